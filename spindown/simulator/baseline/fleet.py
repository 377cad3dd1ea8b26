"""A baseline under way, on the same market and with the same boots, reclaims and bill as ours.

A machine boots, works on one job after the other in each slot, idles and ends. The shop asks the
pools that a baseline knows of. The fleet holds the queue, and does what the baseline's rule says.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from random import Random
from typing import Protocol

from spindown.contract.event import InstanceEvent
from spindown.contract.settings import TemplateRef
from spindown.domain.offer import CapacityType
from spindown.ec2sim import Agenda, Planned, Turn
from spindown.port import LaunchedInstance, LaunchOverride, LaunchRequest
from spindown.simulator.baseline.scaling_rule import Baseline, FleetLook, PoolChoice
from spindown.simulator.compute import SimCompute
from spindown.simulator.record import InstanceTally, SimRecorder, sum_up
from spindown.simulator.result import Sample, SimResult
from spindown.simulator.scenario import Arrival, Listing, SimScenario, Steps, Zone, value_at

#: Looks that a rule may need to see.
_LOOKS_KEPT = 32


@dataclass(slots=True)
class BaselineJob:
    """A job as far as it is done."""

    job_id: str
    items: int
    #: On the reference GPU.
    seconds_left: float
    is_new: bool = True


@dataclass(slots=True, eq=False)
class _Stint:
    """A job at work in a slot."""

    job: BaselineJob
    since: float
    end: Planned


class Owner(Protocol):
    """The fleet, as its machines know it."""

    agenda: Agenda

    def take(self) -> BaselineJob | None:
        """Take the oldest job that waits."""
        ...

    def give_back(self, job: BaselineJob) -> None:
        """Put a job in front of those that wait."""
        ...

    def finished(self, machine: "BaselineMachine", job: BaselineJob) -> None:
        """Hear that a job is done."""
        ...

    def idles_for(self) -> float | None:
        """Return the seconds that a machine which falls idle now waits; None: for ever."""
        ...

    def idled(self, machine: "BaselineMachine") -> None:
        """Hear that a machine has idled for its time."""
        ...


class BaselineMachine:
    """One machine: it boots, works on one job after the other in each slot, idles, ends."""

    def __init__(
        self,
        owner: Owner,
        instance_id: str,
        *,
        speed: float,
        checkpoint_seconds: float | None,
        slots: int = 1,
    ) -> None:
        """Begin to boot.

        Args:
            owner: gives jobs and hears what becomes of them.
            instance_id: EC2's.
            speed: of one slot; the reference GPU is 1.
            checkpoint_seconds: from one mark to the next to which a reclaim leaves the work; None:
                there are none.
            slots: jobs at the same time.
        """
        self._owner = owner
        self.instance_id = instance_id
        self.tally = InstanceTally(owner.agenda.now, slots=slots)
        self.is_leaving = False
        self.idle_since = 0.0
        self._speed = speed
        self._slots = slots
        self._checkpoint_seconds = checkpoint_seconds
        self._stints: list[_Stint] = []
        self._idle_end: Planned | None = None

    @property
    def is_up(self) -> bool:
        """Tell whether it has booted."""
        return self.tally.checked_in_at is not None

    @property
    def jobs(self) -> int:
        """Return how many jobs it works on."""
        return len(self._stints)

    @property
    def is_idle(self) -> bool:
        """Tell whether it is up and has no job."""
        return self.is_up and not self._stints and not self.is_leaving

    @property
    def has_room(self) -> bool:
        """Tell whether it is up and has a free slot."""
        return self.is_up and self.jobs < self._slots and not self.is_leaving

    @property
    def work_under_way(self) -> float:
        """Return the work on its jobs so far, seconds on the reference GPU."""
        now = self._owner.agenda.seconds
        return sum((now - stint.since) * self._speed for stint in self._stints)

    def come_up(self) -> None:
        """Begin to work."""
        self.tally.checked_in_at = self._owner.agenda.now
        self.go_on()

    def go_on(self) -> None:
        """Take the oldest jobs into free slots; idle if there is none at all."""
        self._stop_idling()
        now = self._owner.agenda.seconds
        while self.jobs < self._slots and (job := self._owner.take()) is not None:
            self._begin(job, now)
        if self._stints:
            return
        self.idle_since = now
        seconds = self._owner.idles_for()
        if seconds is not None:
            self._idle_end = self._plan(seconds, lambda: self._owner.idled(self))

    def stop(self) -> None:
        """Give back what is held, as far as the last checkpoint; the machine is gone."""
        self._stop_idling()
        stints, self._stints = self._stints, []
        # The last first: each goes in front of those that wait.
        for stint in reversed(stints):
            stint.end.call_off()
            run = self._owner.agenda.seconds - stint.since
            every = self._checkpoint_seconds
            kept = 0.0 if every is None else run // every * every
            self.tally.count(run, run - kept)
            stint.job.seconds_left -= kept * self._speed
            self._owner.give_back(stint.job)

    def break_off(self) -> None:
        """Count the work on jobs that are under way when a simulation ends."""
        for stint in self._stints:
            self.tally.count(self._owner.agenda.seconds - stint.since, 0.0)

    def _begin(self, job: BaselineJob, now: float) -> None:
        end = self._plan(job.seconds_left / self._speed, lambda: self._finish(stint))
        stint = _Stint(job, now, end)
        self._stints.append(stint)

    def _finish(self, stint: _Stint) -> None:
        self._stints.remove(stint)
        self.tally.count(self._owner.agenda.seconds - stint.since, 0.0)
        self._owner.finished(self, stint.job)

    def _plan(self, seconds: float, action: Callable[[], None]) -> Planned:
        return self._owner.agenda.plan_in(seconds, Turn.WORKER, action)

    def _stop_idling(self) -> None:
        if self._idle_end is not None:
            self._idle_end.call_off()


@dataclass(frozen=True, slots=True)
class SoldPool:
    """One type in one zone."""

    listing: Listing
    zone_name: str
    zone: Zone

    @property
    def key(self) -> tuple[str, str]:
        """Return its name among all pools."""
        return self.listing.instance_type.name, self.zone_name


class Shop:
    """The market as one baseline uses it."""

    def __init__(
        self, scenario: SimScenario, baseline: Baseline, agenda: Agenda, compute: SimCompute
    ) -> None:
        self._baseline = baseline
        self._agenda = agenda
        self._compute = compute
        self._asked = 0
        self._left_alone: dict[tuple[str, str], float] = {}
        fixed = fixed_listing(scenario, baseline)
        several = baseline.pools in {PoolChoice.CHEAPEST, PoolChoice.DEEP}
        self.pools = [
            SoldPool(listing, name, zone)
            for listing in (scenario.listings if several else (fixed,))
            for name, zone in listing.zones.items()
        ]
        if baseline.pools is PoolChoice.FIXED:
            del self.pools[1:]

    def buy(self) -> LaunchedInstance | None:
        """Ask one pool after the other; None if all refuse."""
        now = self._agenda.seconds
        for pool in self.in_order(now):
            if self._left_alone.get(pool.key, 0.0) > now:
                continue
            self._asked += 1
            answer = self._compute.launch(
                LaunchRequest(
                    client_token=f"{self._baseline.capacity_type}-{self._asked}",
                    region=pool.listing.region,
                    template=TemplateRef(id="lt", version="1"),
                    capacity_type=self._baseline.capacity_type,
                    overrides=(
                        LaunchOverride(
                            instance_type=pool.listing.instance_type.name,
                            zone=pool.zone_name,
                            subnet_id="subnet",
                        ),
                    ),
                    count=1,
                    tags={},
                )
            )
            if answer.instances:
                return answer.instances[0]
            self.leave_alone(pool.key)
        return None

    def leave_alone(self, key: tuple[str, str]) -> None:
        """Ask a type in a zone no more for a while."""
        self._left_alone[key] = self._agenda.seconds + self._baseline.back_off

    def in_order(self, now: float) -> Sequence[SoldPool]:
        """Return the pools that sell at a time, in the order of asking."""
        sold = [(price, pool) for pool in self.pools if (price := self.price(pool, now))]
        if self._baseline.pools is PoolChoice.DEEP:
            rates = sorted(pool.zone.reclaims_per_hour for _, pool in sold)
            calm = rates[(len(rates) - 1) // 2] if rates else 0.0
            sold = [each for each in sold if each[1].zone.reclaims_per_hour <= calm]
        return [pool for _, pool in sorted(sold, key=lambda each: (each[0], each[1].key))]

    def price(self, pool: SoldPool, now: float) -> float | None:
        """Return USD an hour in force; None: it is not sold."""
        if self._baseline.capacity_type is CapacityType.ON_DEMAND:
            return pool.listing.on_demand
        return value_at(pool.zone.spot, now)


def fixed_listing(scenario: SimScenario, baseline: Baseline) -> Listing:
    """Return the one type of a baseline that knows only one: the cheapest hour of its kind."""
    is_spot = baseline.capacity_type is CapacityType.SPOT

    def hour(listing: Listing) -> float:
        zone = next(iter(listing.zones.values()))
        hourly = _mean(zone.spot, scenario.length) if is_spot else listing.on_demand
        return math.inf if hourly is None else hourly

    return min(scenario.listings, key=hour)


def _mean(steps: Steps, length: float) -> float | None:
    """Return the mean over the time until ``length`` that it is in force; None: it never is."""
    ends = [*(begins for begins, _ in steps[1:]), length]
    spans = [
        (max(min(end, length) - begins, 0.0), value)
        for (begins, value), end in zip(steps, ends, strict=False)
    ]
    whole = math.fsum(span for span, _ in spans)
    return math.fsum(span * value for span, value in spans) / whole if whole else None


class BaselineFleet:
    """The queue, the machines and the rule of one baseline; hears of its instances as a watcher."""

    def __init__(self, scenario: SimScenario, baseline: Baseline, seed: int) -> None:
        self.scenario = scenario
        self.baseline = baseline
        self.seed = seed
        self.agenda = Agenda(scenario.start)
        self.record = SimRecorder(self.agenda)
        self.machines: dict[str, BaselineMachine] = {}
        self.waiting: deque[BaselineJob] = deque()
        self._tallies: dict[str, InstanceTally] = {}
        self._arrived: dict[str, float] = {}
        self._left = len(scenario.arrivals)
        self._waits_since: float | None = None
        self._seen: deque[FleetLook] = deque(maxlen=_LOOKS_KEPT)
        self._changed_at = -1e9
        self._is_looking = True
        self._boots = Random(f"{seed}/boot")
        self._order = Random(f"{seed}/order")
        self.compute = SimCompute(
            scenario,
            agenda=self.agenda,
            random=Random(f"{seed}/market"),
            record=self.record,
            watcher=self,
        )
        self._makes = {x.instance_type.name: self._make_of(x) for x in scenario.listings}
        self.shop = Shop(scenario, baseline, self.agenda, self.compute)
        usual = fixed_listing(scenario, baseline)
        _, self._slots = self._make_of(usual)
        throughput = scenario.throughput(usual)
        self._rule = baseline.rule(scenario, throughput)
        self._least = self._desired = baseline.least
        for number, arrival in enumerate(scenario.arrivals):
            self.agenda.plan_at(
                arrival.at,
                Turn.ARRIVAL,
                lambda number=number, arrival=arrival: self.arrive(number, arrival),  # type: ignore[misc]
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
        bills = self.compute.bills()
        return sum_up(
            scenario=scenario,
            seed=self.seed,
            record=self.record,
            bills=bills,
            tallies=self._tallies,
            accounted_dollars=math.fsum(bill.dollars for bill in bills),
        )

    @property
    def first_look_seconds(self) -> float:
        """Return the time between looks while there is nothing to see, seconds."""
        return self.baseline.look_seconds

    def arrive(self, number: int, arrival: Arrival) -> None:
        """Queue a job that has just come; look for it, and give it to a free slot."""
        job = BaselineJob(f"job-{number:07d}", arrival.items, arrival.work_seconds)
        self._left -= 1
        self.record.arrived(job.job_id)
        self._arrived[job.job_id] = self.agenda.seconds
        self.waiting.append(job)
        if not self._is_looking:
            self._is_looking = True
            every = self.first_look_seconds
            looks = math.ceil(self.agenda.seconds / every)
            self.agenda.plan_at(looks * every, Turn.TICK, self._look)
        self._hand_out()

    # What machines ask for and tell.

    def take(self) -> BaselineJob | None:
        """Take the oldest job, or what SQS gives; note how long a new one has waited."""
        if not self.waiting:
            return None
        of = min(self.scenario.disorder, len(self.waiting)) if self.baseline.is_on_sqs else 1
        number = int(self._order.random() * of)
        job = self.waiting[number]
        del self.waiting[number]
        if job.is_new:
            job.is_new = False
            waited = self.agenda.seconds - self._arrived.pop(job.job_id)
            self.record.claimed(job.job_id, waited)
        if not self.waiting:
            self._waits_since = None
        return job

    def give_back(self, job: BaselineJob) -> None:
        """Put a job in front of those that wait."""
        self.waiting.appendleft(job)

    def finished(self, machine: BaselineMachine, job: BaselineJob) -> None:
        """Note a job that is done; let its machine go on."""
        self.record.completed(job.job_id, job.items)
        if self.baseline.one_job:
            self.compute.power_off(machine.instance_id)
        elif not machine.is_leaving:
            machine.go_on()

    def idles_for(self) -> float | None:
        """Return the baseline's own idle time."""
        return self.baseline.idle_seconds

    def idled(self, machine: BaselineMachine) -> None:
        """End a machine that has idled for its time, unless it is one of those that stay."""
        if len(self.machines) > self._least:
            self.compute.power_off(machine.instance_id)
        else:
            machine.go_on()

    # What happens to instances.

    def launched(self, given: LaunchedInstance) -> None:
        """Let a machine come up."""
        speed, slots = self._makes[given.instance_type]
        machine = BaselineMachine(
            self,
            given.instance_id,
            speed=speed,
            checkpoint_seconds=self.baseline.checkpoint_seconds,
            slots=slots,
        )
        self.machines[given.instance_id] = machine
        self._tallies[given.instance_id] = machine.tally
        self.boot(machine, self.scenario.boot.draw(self._boots))

    def boot(self, machine: BaselineMachine, seconds: float) -> None:
        """Let a machine be up in so many seconds."""
        self.agenda.plan_in(seconds, Turn.WORKER, lambda: self._come_up(machine))

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

    def _come_up(self, machine: BaselineMachine) -> None:
        if machine.instance_id in self.machines:
            machine.come_up()

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
        seen = FleetLook(
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
            if self.shop.buy() is None:
                break
        spare = seen.machines - wanted if baseline.idle_seconds is None else 0
        for machine in sorted(idle, key=lambda each: each.idle_since)[: max(spare, 0)]:
            self.compute.power_off(machine.instance_id)
        self._note(seen)
        # While there is nothing to see, the next look comes with the next job.
        self._is_looking = bool(self.machines or self.waiting or wanted)
        if self._is_looking:
            self.agenda.plan_in(baseline.look_seconds, Turn.TICK, self._look)

    def _note(self, seen: FleetLook) -> None:
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
    return BaselineFleet(scenario, baseline, seed).run()
