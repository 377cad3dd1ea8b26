"""One long job with a deadline under two rules of others, on our market with our boots and bill.

Both rules know the job's length, see at each look whether spot is to be had, and pay for on demand
from where the deadline would else be missed. A new machine boots while the old one works on.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from math import fsum
from random import Random
from types import MappingProxyType

from research.bound import mean_boot
from spindown.contract.event import InstanceEvent
from spindown.domain.offer import CapacityType
from spindown.ec2sim import Agenda, Turn
from spindown.port import LaunchedInstance
from spindown.simulator import Baseline, SimResult, SimScenario
from spindown.simulator.baseline import PoolChoice
from spindown.simulator.baseline.fleet import BaselineJob, BaselineMachine, Shop
from spindown.simulator.baseline.scaling_rule import machine_per_job
from spindown.simulator.compute import SimCompute
from spindown.simulator.record import InstanceTally, SimRecorder, sum_up

#: How often a rule looks whether spot is to be had, seconds.
_LOOK = 30.0
#: Progress is kept to the second: a notice leaves time to.
_CHECKPOINT = 1.0


class Move(StrEnum):
    """What a rule wants next."""

    #: Stay as it is.
    STAY = "stay"
    #: Spot if there is any; else on demand.
    EITHER = "either"
    #: Spot if there is any; else nothing.
    SPOT_OR_NOTHING = "spot or nothing"
    #: On demand to the end.
    HOME = "home"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineLook:
    """A job under way; times are seconds, work too, on the machines that there are."""

    elapsed: float
    deadline: float
    work: float
    done: float
    #: What a change of machines costs in time.
    change: float
    on_spot: bool = False
    on_demand: bool = False

    @property
    def must_go_home(self) -> bool:
        """Tell whether waiting on would miss the deadline (their safety net)."""
        return self.deadline - self.elapsed < self.work - self.done + 2.0 * self.change

    def even(self, later: float = 0.0) -> float:
        """Return what even progress towards the deadline would have done by now, or later."""
        return (self.elapsed + later) * self.work / self.deadline


def greedy(seen: DeadlineLook) -> Move:
    """Spot whenever there is any, nothing else until the last moment, then on demand."""
    if seen.on_spot:
        return Move.STAY
    return Move.HOME if seen.must_go_home else Move.SPOT_OR_NOTHING


def uniform_progress(seen: DeadlineLook) -> Move:
    """Keep up with even progress, on demand where spot does not do.

    Wu et al., "Can't Be Late" (NSDI 2024): spot whenever there is any, kept until it is taken; on
    demand while behind, left when ahead by two changes of machines; the safety net of all.
    """
    if seen.on_spot:
        return Move.STAY
    if seen.on_demand:
        is_ahead = seen.done >= seen.even(2.0 * seen.change)
        return Move.SPOT_OR_NOTHING if is_ahead else Move.STAY
    if seen.must_go_home:
        return Move.HOME
    return Move.EITHER if seen.done < seen.even() else Move.SPOT_OR_NOTHING


def on_demand_only(_seen: DeadlineLook) -> Move:
    """Pay for certainty."""
    return Move.HOME


DEADLINE_RULES: Mapping[str, Callable[[DeadlineLook], Move]] = MappingProxyType(
    {"greedy": greedy, "uniform-progress": uniform_progress, "on-demand": on_demand_only}
)


class DeadlineJob:
    """The one job, and whatever works on it; hears of its instances as a watcher."""

    def __init__(
        self,
        scenario: SimScenario,
        rule: Callable[[DeadlineLook], Move],
        deadline: float,
        seed: int,
    ) -> None:
        self.scenario = scenario
        self.agenda = Agenda(scenario.start)
        self.record = SimRecorder(self.agenda)
        self._rule = rule
        self._deadline = deadline
        self._seed = seed
        self._machines: dict[str, tuple[BaselineMachine, CapacityType]] = {}
        self._tallies: dict[str, InstanceTally] = {}
        self._boots = Random(f"{seed}/boot")
        self._speed = scenario.throughput(scenario.listings[0])
        self._is_going_home = self._is_done = False
        self.compute = SimCompute(
            scenario,
            agenda=self.agenda,
            random=Random(f"{seed}/market"),
            record=self.record,
            watcher=self,
        )
        self._shops = {kind: self._open_shop(kind) for kind in CapacityType}
        (arrival,) = scenario.arrivals
        self._begins, self._work = arrival.at, arrival.work_seconds
        self._job = BaselineJob("job", arrival.items, arrival.work_seconds)
        self._waiting: BaselineJob | None = None
        self.agenda.plan_at(arrival.at, Turn.ARRIVAL, self._arrive)

    def run(self) -> SimResult:
        """Go on until the job is done and nothing runs."""
        last = self.scenario.length + self.scenario.overtime
        while self.agenda.seconds < last and not (self._is_done and not self._machines):
            self.agenda.step()
        for machine, _ in self._machines.values():
            machine.break_off()
        bills = self.compute.bills()
        return sum_up(
            scenario=self.scenario,
            seed=self._seed,
            record=self.record,
            bills=bills,
            tallies=self._tallies,
            accounted_dollars=fsum(bill.dollars for bill in bills),
        )

    # What a machine asks for and tells.

    def take(self) -> BaselineJob | None:
        """Take the job if nobody works on it."""
        job, self._waiting = self._waiting, None
        if job is not None and job.is_new:
            job.is_new = False
            self.record.claimed(job.job_id, self.agenda.seconds - self._begins)
        return job

    def give_back(self, job: BaselineJob) -> None:
        """Let the next machine go on."""
        self._waiting = job

    def finished(self, machine: BaselineMachine, job: BaselineJob) -> None:
        """Note that the job is done; end everything."""
        del machine
        self._is_done = True
        self.record.completed(job.job_id, job.items)
        self._end_all()

    def idles_for(self) -> float | None:
        """Let a machine wait for ever: the rule ends it."""
        return None

    def idled(self, machine: BaselineMachine) -> None:
        """Let a machine wait: the rule ends it."""

    # What happens to instances.

    def launched(self, given: LaunchedInstance) -> None:
        """Let a machine come up."""
        machine = BaselineMachine(
            self,
            given.instance_id,
            speed=self._speed,
            checkpoint_seconds=_CHECKPOINT,
        )
        self._machines[given.instance_id] = machine, given.capacity_type
        self._tallies[given.instance_id] = machine.tally
        boots_in = self.scenario.boot.draw(self._boots)
        self.agenda.plan_in(boots_in, Turn.WORKER, lambda: self._come_up(machine))

    def warned(self, instance_id: str, deadline: datetime) -> None:
        """Count no more on a machine that is about to be taken."""
        del deadline
        if instance_id in self._machines:
            self._machines[instance_id][0].is_leaving = True

    def gone(self, instance_id: str) -> None:
        """Take back what a machine held; another that is up goes on with it."""
        machine, _ = self._machines.pop(instance_id)
        machine.stop()
        for other, _ in self._machines.values():
            if other.is_idle:
                other.go_on()

    def tell(self, event: InstanceEvent) -> None:
        """Hear nothing: nobody listens to EC2 here."""

    def _open_shop(self, kind: CapacityType) -> Shop:
        buyer = Baseline(
            name="deadline",
            title="every zone, cheapest first",
            source="",
            rule=machine_per_job,
            capacity_type=kind,
            pools=PoolChoice.DEEP,
            back_off=0.0,
        )
        return Shop(self.scenario, buyer, self.agenda, self.compute)

    def _arrive(self) -> None:
        self.record.arrived(self._job.job_id)
        self._waiting = self._job
        self._look()

    def _come_up(self, machine: BaselineMachine) -> None:
        if machine.instance_id not in self._machines or self._is_done:
            return
        self._end_all(but=machine)
        machine.come_up()

    def _end_all(self, *, but: BaselineMachine | None = None) -> None:
        for instance_id, (machine, _) in list(self._machines.items()):
            if machine is not but:
                self.compute.power_off(instance_id)

    def _look(self) -> None:
        if self._is_done:
            return
        staying = {kind for machine, kind in self._machines.values() if not machine.is_leaving}
        done = self._work - self._job.seconds_left
        done += sum(machine.work_under_way for machine, _ in self._machines.values())
        seen = DeadlineLook(
            elapsed=self.agenda.seconds - self._begins,
            deadline=self._deadline,
            work=self._work / self._speed,
            done=done / self._speed,
            change=mean_boot(self.scenario.boot),
            on_spot=CapacityType.SPOT in staying,
            on_demand=CapacityType.ON_DEMAND in staying,
        )
        self._do(Move.HOME if self._is_going_home else self._rule(seen), seen)
        self.agenda.plan_in(_LOOK, Turn.TICK, self._look)

    def _do(self, move: Move, seen: DeadlineLook) -> None:
        if move is Move.STAY:
            return
        if move is Move.HOME:
            self._is_going_home = True
        elif self._shops[CapacityType.SPOT].buy() is not None:
            return
        if move in {Move.HOME, Move.EITHER}:
            if not seen.on_demand:
                self._shops[CapacityType.ON_DEMAND].buy()
        elif move is Move.SPOT_OR_NOTHING and seen.on_demand:
            self._end_all()


def simulate_deadline(
    scenario: SimScenario, rule: Callable[[DeadlineLook], Move], *, deadline: float, seed: int
) -> SimResult:
    """Run the one job of a scenario under a rule to its end. The same seed gives the same result.

    Args:
        scenario: the world, with one arrival; all its machines have one speed.
        rule: one of ``DEADLINE_RULES``.
        deadline: seconds after the arrival.
        seed: of all that is random.
    """
    return DeadlineJob(scenario, rule, deadline, seed).run()
