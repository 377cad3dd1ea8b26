"""A baseline under way, on the same market and with the same boots, reclaims and bill as ours."""

import math
from collections import deque
from dataclasses import replace
from datetime import datetime
from random import Random

from spindown.app.port import LaunchedInstance
from spindown.contract.event import InstanceEvent
from spindown.simulator.agenda import Agenda, Turn
from spindown.simulator.baseline.idling import Idling
from spindown.simulator.baseline.machine import Job, Machine
from spindown.simulator.baseline.plan import ACCEPTABLE_DELAY, Baseline
from spindown.simulator.baseline.rule import Seen
from spindown.simulator.baseline.shop import Shop, fixed_listing
from spindown.simulator.baseline.size import fewest_machines
from spindown.simulator.compute import SimCompute
from spindown.simulator.record import Recorder, Tally, sum_up
from spindown.simulator.result import Sample, SimResult
from spindown.simulator.scenario import Arrival, Listing, SimScenario

#: Looks that a rule may need to see.
_LOOKS_KEPT = 32


class _Fleet:
    """The queue, the machines and the rule of one baseline; hears of its instances as a watcher."""

    def __init__(self, scenario: SimScenario, baseline: Baseline, seed: int) -> None:
        self.scenario = scenario
        self.baseline = baseline
        self.seed = seed
        self.agenda = Agenda(scenario.start)
        self.record = Recorder(self.agenda)
        self.machines: dict[str, Machine] = {}
        self.waiting: deque[Job] = deque()
        self._tallies: dict[str, Tally] = {}
        self._arrived: dict[str, float] = {}
        self._left = len(scenario.arrivals)
        self._waits_since: float | None = None
        self._seen: deque[Seen] = deque(maxlen=_LOOKS_KEPT)
        self._changed_at = -1e9
        self._is_looking = True
        self._boots = Random(f"{seed}/boot")
        self.compute = SimCompute(
            scenario,
            agenda=self.agenda,
            random=Random(f"{seed}/market"),
            record=self.record,
            watcher=self,
        )
        self._makes = {x.instance_type.name: self._make_of(x) for x in scenario.listings}
        self._shop = Shop(scenario, baseline, self.agenda, self.compute)
        usual = fixed_listing(scenario, baseline)
        _, self._slots = self._make_of(usual)
        throughput = scenario.throughput(usual)
        self._rule = baseline.rule(scenario, throughput)
        self._least = self._desired = self._size(throughput)
        self._idling = self._make_idling()
        for number, arrival in enumerate(scenario.arrivals):
            self.agenda.plan_at(
                arrival.at,
                Turn.ARRIVAL,
                lambda number=number, arrival=arrival: self._arrive(number, arrival),  # type: ignore[misc]
            )
        self._look()

    def run(self) -> SimResult:
        """Go on until all work is done and only machines that never end are left."""
        scenario, least = self.scenario, self._least
        while self.agenda.seconds < scenario.length + scenario.overtime and (
            self.agenda.seconds < scenario.length
            or self._left
            or self.record.open_jobs
            or len(self.machines) > least
        ):
            if not self.agenda.step():
                break
        for machine in self.machines.values():
            machine.break_off()
        bills = self.compute.inner.bills()
        return sum_up(
            scenario=scenario,
            seed=self.seed,
            record=self.record,
            bills=bills,
            tallies=self._tallies,
            accounted_dollars=math.fsum(bill.dollars for bill in bills),
        )

    # What machines ask for and tell.

    def take(self) -> Job | None:
        """Take the oldest job; note how long a new one has waited."""
        if not self.waiting:
            return None
        job = self.waiting.popleft()
        if job.is_new:
            job.is_new = False
            waited = self.agenda.seconds - self._arrived.pop(job.job_id)
            self.record.claimed(job.job_id, waited)
        if not self.waiting:
            self._waits_since = None
        return job

    def give_back(self, job: Job) -> None:
        """Put a job in front of those that wait."""
        self.waiting.appendleft(job)

    def finished(self, machine: Machine, job: Job) -> None:
        """Note a job that is done; let its machine go on."""
        self.record.completed(job.job_id, job.items)
        if self.baseline.one_job:
            self.compute.power_off(machine.instance_id)
        elif not machine.is_leaving:
            machine.go_on()

    def idled(self, machine: Machine) -> None:
        """End a machine that has idled for its time, unless it is one of those that stay."""
        if len(self.machines) > self._least:
            self.compute.power_off(machine.instance_id)
        else:
            machine.go_on()

    # What happens to instances.

    def launched(self, given: LaunchedInstance) -> None:
        """Let a machine come up."""
        speed, slots = self._makes[given.instance_type]
        machine = Machine(
            self,
            given.instance_id,
            speed=speed,
            idling=self._idling,
            checkpoint_seconds=self.baseline.checkpoint_seconds,
            slots=slots,
        )
        self.machines[given.instance_id] = machine
        self._tallies[given.instance_id] = machine.tally
        boots_in = self.scenario.boot.draw(self._boots)
        at_most = self.baseline.attempt_seconds
        if at_most is not None and boots_in > at_most:
            pool = given.instance_type, given.zone
            self.agenda.plan_in(at_most, Turn.WORKER, lambda: self._give_up(machine, pool))
        else:
            self.agenda.plan_in(boots_in, Turn.WORKER, lambda: self._come_up(machine))

    def warned(self, instance_id: str, deadline: datetime) -> None:
        """Let a machine that is about to be taken begin nothing new."""
        if instance_id in self.machines:
            self.record.note("noticed", f"{instance_id} {deadline}")
            self.machines[instance_id].is_leaving = True

    def gone(self, instance_id: str) -> None:
        """Give back what a machine held."""
        self.machines.pop(instance_id).stop()
        self._hand_out()

    def tell(self, event: InstanceEvent) -> None:
        """Hear nothing: nobody listens to EC2 here."""

    def _make_of(self, listing: Listing) -> tuple[float, int]:
        """Return speed of a slot, and slots; one that is for a job at a time gives it all."""
        if self.baseline.one_slot:
            return self.scenario.throughput(listing), 1
        return listing.speed, self.scenario.slots_of(listing)

    def _size(self, throughput: float) -> int:
        if not self.baseline.is_sized:
            return self.baseline.least
        return fewest_machines(
            self.scenario,
            throughput=throughput,
            start_within=ACCEPTABLE_DELAY,
            most=self.baseline.max_workers,
        )

    def _make_idling(self) -> Idling | None:
        if self.baseline.idling is None:
            return None
        boot = self.scenario.boot.at_least + self.scenario.boot.median
        return self.baseline.idling(boot, Random(f"{self.seed}/idle"))

    def _come_up(self, machine: Machine) -> None:
        if machine.instance_id in self.machines:
            machine.come_up()

    def _give_up(self, machine: Machine, pool: tuple[str, str]) -> None:
        self._shop.leave_alone(pool)
        self.compute.power_off(machine.instance_id)

    def _arrive(self, number: int, arrival: Arrival) -> None:
        job = Job(f"job-{number:07d}", arrival.items, arrival.work_seconds)
        self._left -= 1
        self.record.arrived(job.job_id)
        self._arrived[job.job_id] = self.agenda.seconds
        self.waiting.append(job)
        if self._idling is not None and not self._has_room_at_work():
            self._idling.needed(self.agenda.seconds)
        if not self._is_looking:
            self._is_looking = True
            every = self.baseline.first_look_seconds or self.baseline.look_seconds
            looks = math.ceil(self.agenda.seconds / every)
            self.agenda.plan_at(looks * every, Turn.TICK, self._look)
        self._hand_out()

    def _has_room_at_work(self) -> bool:
        return any(each.jobs and each.has_room for each in self.machines.values())

    def _hand_out(self) -> None:
        """Give what waits to free slots: of machines at work, then of the one that idled last."""
        if self.waiting:
            free = [machine for machine in self.machines.values() if machine.has_room]
            for machine in sorted(free, key=lambda each: (each.is_idle, -each.idle_since)):
                if self.waiting:
                    machine.go_on()
        if self.waiting and self._waits_since is None:
            self._waits_since = self.agenda.seconds

    def _look(self) -> None:
        """Let the rule see the queue and the fleet, and do what it says."""
        baseline, now, since = self.baseline, self.agenda.seconds, self._waits_since
        staying = [machine for machine in self.machines.values() if not machine.is_leaving]
        busy = sum(machine.jobs > 0 for machine in staying)
        idle = [machine for machine in staying if machine.is_idle]
        seen = Seen(
            at=now,
            waiting=len(self.waiting),
            waited=0.0 if since is None else now - since,
            busy=busy,
            idle=len(idle),
            booting=len(staying) - busy - len(idle),
            running=sum(machine.jobs for machine in staying),
            slots=self._slots,
            desired=self._desired,
            since_change=now - self._changed_at,
        )
        self._seen.append(seen)
        wanted = self._rule(list(self._seen))
        wanted = max(self._least, min(wanted, baseline.max_workers))
        if wanted != self._desired:
            self._desired, self._changed_at = wanted, now
        for _ in range(wanted - seen.machines):
            if self._shop.buy() is None:
                break
        spare = seen.machines - wanted if self._idling is None else 0
        for machine in sorted(idle, key=lambda each: each.idle_since)[: max(spare, 0)]:
            self.compute.power_off(machine.instance_id)
        self._note(seen)
        # While there is nothing to see, the next look comes with the next job.
        self._is_looking = bool(self.machines or self.waiting or wanted)
        if self._is_looking:
            self.agenda.plan_in(baseline.look_seconds, Turn.TICK, self._look)

    def _note(self, seen: Seen) -> None:
        self.record.counts["tick"] += 1
        self.record.samples.append(
            Sample(
                seconds=seen.at,
                visible=seen.waiting,
                in_flight=seen.running,
                booting=seen.booting,
                idle=seen.idle,
                busy=seen.busy,
            )
        )


def simulate_baseline(
    scenario: SimScenario, baseline: Baseline, seed: int, *, max_workers: int | None = None
) -> SimResult:
    """Run a scenario under a baseline to its end. The same seed gives the same result.

    Args:
        scenario: the world.
        baseline: one of ``BASELINES``, or a changed one.
        seed: of all that is random.
        max_workers: in place of the baseline's own, to compare under one bound.
    """
    if max_workers is not None:
        baseline = replace(baseline, max_workers=max_workers)
    return _Fleet(scenario, baseline, seed).run()
