"""What people run instead: a machine kept warm, and an alarm with workers that idle ten minutes.

Simple models on the same market, with the same boots, reclaims and bill as the shipped code; in
every choice that their sources leave open they are treated kindly: jobs are handed out oldest
first and without a request, nothing is lost but what a reclaim takes, and a job that was given
back is there at once.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from random import Random

from spindown.app.port import LaunchedInstance, LaunchOverride, LaunchRequest
from spindown.contract.event import InstanceEvent
from spindown.contract.settings import TemplateRef
from spindown.domain.offer import CapacityType
from spindown.simulator.agenda import Agenda, Planned, Turn
from spindown.simulator.compute import SimCompute
from spindown.simulator.record import Recorder, Tally, sum_up
from spindown.simulator.result import Sample, SimResult
from spindown.simulator.scenario import Arrival, SimScenario

_MINUTE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A fleet of one instance type in one zone, scaled by an alarm on the queue's depth."""

    name: str
    instance_type: str
    region: str
    zone: str
    capacity_type: CapacityType
    #: Machines that never end.
    warm: int = 0
    max_workers: int = 4
    #: Jobs that wait for no machine that boots, from which one more is launched a minute.
    threshold: int = 1
    #: From a message to the alarm that sees it: metrics come by the minute, the alarm after.
    alarm_seconds: float = 90.0
    idle_seconds: float = 600.0
    #: Work that a reclaim undoes is counted from the last such mark.
    checkpoint_seconds: float = 600.0


def warm_machine(scenario: SimScenario, instance_type: str) -> Baseline:
    """Return one machine on demand that is never switched off, others beside it by alarm.

    The story that it is taken from: 847 GPU-hours billed for 200 of work.
    """
    return _at_first_zone("warm", scenario, instance_type, CapacityType.ON_DEMAND, warm=1)


def alarm_and_idle(scenario: SimScenario, instance_type: str) -> Baseline:
    """Return the classic: an alarm launches spot machines, each ends after ten idle minutes."""
    return _at_first_zone("alarm", scenario, instance_type, CapacityType.SPOT, warm=0)


def _at_first_zone(
    name: str, scenario: SimScenario, instance_type: str, capacity_type: CapacityType, *, warm: int
) -> Baseline:
    listing = next(x for x in scenario.listings if x.instance_type.name == instance_type)
    return Baseline(
        name=name,
        instance_type=instance_type,
        region=listing.region,
        zone=next(iter(listing.zones)),
        capacity_type=capacity_type,
        warm=warm,
    )


@dataclass(slots=True)
class _Job:
    job_id: str
    items: int
    #: On the reference GPU.
    seconds_left: float
    is_new: bool = True


class _Machine:
    """One machine of the fleet."""

    def __init__(self, fleet: "_Fleet", instance_id: str) -> None:
        self.fleet = fleet
        self.instance_id = instance_id
        self.tally = Tally(fleet.agenda.now)
        self.job: _Job | None = None
        self.is_leaving = False
        self._since = 0.0
        self._planned: Planned | None = None

    @property
    def is_idle(self) -> bool:
        """Tell whether it is up and has no job."""
        return self.tally.checked_in_at is not None and self.job is None and not self.is_leaving

    def come_up(self) -> None:
        """Begin to work."""
        if self.instance_id in self.fleet.machines:
            self.tally.checked_in_at = self.fleet.agenda.now
            self.go_on()

    def go_on(self) -> None:
        """Take the oldest job; idle if there is none."""
        fleet = self.fleet
        if self._planned is not None:
            self._planned.call_off()
        if not fleet.waiting:
            self._plan(fleet.baseline.idle_seconds, self._idle_out)
            return
        self.job = fleet.waiting.popleft()
        self._since = fleet.agenda.seconds
        fleet.claim(self.job)
        self._plan(self.job.seconds_left / fleet.speed, self._finish)

    def stop(self) -> None:
        """Give back what is held, as far as the last checkpoint; the machine is gone."""
        if self._planned is not None:
            self._planned.call_off()
        job, self.job = self.job, None
        if job is not None:
            run = self.fleet.agenda.seconds - self._since
            every = self.fleet.baseline.checkpoint_seconds
            kept = run // every * every
            self.tally.count(run, run - kept)
            job.seconds_left -= kept * self.fleet.speed
            self.fleet.waiting.appendleft(job)

    def _finish(self) -> None:
        job, self.job = self.job, None
        if job is not None:
            self.tally.count(self.fleet.agenda.seconds - self._since, 0.0)
            self.fleet.record.completed(job.job_id, job.items)
        if not self.is_leaving:
            self.go_on()

    def _idle_out(self) -> None:
        if len(self.fleet.machines) > self.fleet.baseline.warm:
            self.fleet.compute.power_off(self.instance_id)
        else:
            self._plan(self.fleet.baseline.idle_seconds, self._idle_out)

    def _plan(self, seconds: float, action: Callable[[], None]) -> None:
        self._planned = self.fleet.agenda.plan_in(seconds, Turn.WORKER, action)


class _Fleet:
    """A baseline under way."""

    def __init__(self, scenario: SimScenario, baseline: Baseline, seed: int) -> None:
        self.scenario = scenario
        self.baseline = baseline
        self.seed = seed
        self.agenda = Agenda(scenario.start)
        self.record = Recorder(self.agenda)
        self.machines: dict[str, _Machine] = {}
        self.waiting: deque[_Job] = deque()
        self._all: dict[str, Tally] = {}
        self._arrived: dict[str, float] = {}
        self._left = len(scenario.arrivals)
        self._waits_since: float | None = None
        self._tokens = 0
        self._boots = Random(f"{seed}/boot")
        self.compute = SimCompute(
            scenario,
            agenda=self.agenda,
            random=Random(f"{seed}/market"),
            record=self.record,
            watcher=self,
        )
        listings = {x.instance_type.name: x for x in scenario.listings}
        self.speed = listings[baseline.instance_type].speed
        for number, arrival in enumerate(scenario.arrivals):
            self.agenda.plan_at(
                arrival.at,
                Turn.ARRIVAL,
                lambda number=number, arrival=arrival: self._arrive(number, arrival),  # type: ignore[misc]
            )
        self._look()

    def run(self) -> SimResult:
        """Go on until all work is done and only warm machines are left."""
        scenario, warm = self.scenario, self.baseline.warm
        while self.agenda.seconds < scenario.length + scenario.overtime and (
            self.agenda.seconds < scenario.length
            or self._left
            or self.record.open_jobs
            or len(self.machines) > warm
        ):
            self.agenda.step()
        bills = self.compute.inner.bills()
        return sum_up(
            scenario=scenario,
            seed=self.seed,
            record=self.record,
            bills=bills,
            tallies=self._all,
            accounted_dollars=sum(bill.dollars for bill in bills),
        )

    def claim(self, job: _Job) -> None:
        """Note how long a job has waited for its first machine."""
        if job.is_new:
            job.is_new = False
            waited = self.agenda.seconds - self._arrived.pop(job.job_id)
            self.record.claimed(job.job_id, waited)
        if not self.waiting:
            self._waits_since = None

    # What happens to instances.

    def launched(self, given: LaunchedInstance) -> None:
        """Let a machine come up."""
        machine = _Machine(self, given.instance_id)
        self.machines[given.instance_id] = machine
        self._all[given.instance_id] = machine.tally
        boots_in = self.scenario.boot.draw(self._boots)
        self.agenda.plan_in(boots_in, Turn.WORKER, machine.come_up)

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

    def _arrive(self, number: int, arrival: Arrival) -> None:
        job = _Job(f"job-{number:07d}", arrival.items, arrival.work_seconds)
        self._left -= 1
        self.record.arrived(job.job_id)
        self._arrived[job.job_id] = self.agenda.seconds
        self.waiting.append(job)
        self._hand_out()

    def _hand_out(self) -> None:
        for machine in list(self.machines.values()):
            if self.waiting and machine.is_idle:
                machine.go_on()
        if self.waiting and self._waits_since is None:
            self._waits_since = self.agenda.seconds

    def _look(self) -> None:
        """Evaluate the alarm, as every minute."""
        baseline, now = self.baseline, self.agenda.seconds
        since = self._waits_since
        seen = since is not None and now - since >= baseline.alarm_seconds
        busy = sum(machine.job is not None for machine in self.machines.values())
        idle = sum(machine.is_idle for machine in self.machines.values())
        booting = len(self.machines) - busy - idle
        is_due = seen and len(self.waiting) - booting >= baseline.threshold
        if len(self.machines) < (baseline.max_workers if is_due else baseline.warm):
            self._launch()
        self.record.counts["tick"] += 1
        self.record.samples.append(
            Sample(
                seconds=now,
                visible=len(self.waiting),
                in_flight=busy,
                booting=booting,
                idle=idle,
                busy=busy,
            )
        )
        self.agenda.plan_in(_MINUTE, Turn.TICK, self._look)

    def _launch(self) -> None:
        self._tokens += 1
        baseline = self.baseline
        self.compute.launch(
            LaunchRequest(
                client_token=f"{self._tokens}",
                region=baseline.region,
                template=TemplateRef(id="lt", version="1"),
                capacity_type=baseline.capacity_type,
                overrides=(
                    LaunchOverride(
                        instance_type=baseline.instance_type,
                        zone=baseline.zone,
                        subnet_id="subnet",
                    ),
                ),
                count=1,
                tags={},
            )
        )


def simulate_baseline(scenario: SimScenario, baseline: Baseline, seed: int) -> SimResult:
    """Run a scenario under a baseline to its end. The same seed gives the same result."""
    return _Fleet(scenario, baseline, seed).run()
