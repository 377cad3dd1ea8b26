"""Ways of working that few run: beside those of ``spindown.simulator.baseline``, for comparison.

They are treated as kindly. What they need beyond the product's baselines is here alone: idle times
that are drawn or learned, a fleet sized with all work known, launches that are given up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from types import MappingProxyType

from research.baseline.idling import (
    IdlingFactory,
    LearnedIdling,
    RandomIdling,
    SteadyIdling,
)
from research.baseline.size import fewest_machines
from spindown.domain.offer import CapacityType
from spindown.ec2sim import Turn
from spindown.port import LaunchedInstance
from spindown.simulator import BASELINES, Arrival, Baseline, SimResult, SimScenario
from spindown.simulator.baseline import PoolChoice
from spindown.simulator.baseline.fleet import (
    BaselineFleet,
    BaselineMachine,
    Shop,
    SoldPool,
    fixed_listing,
    simulate_baseline,
)
from spindown.simulator.baseline.scaling_rule import (
    ACCEPTABLE_DELAY,
    MINUTE,
    FleetLook,
    Rule,
    backlog_target,
    depth_alarm,
    machine_per_job,
)

#: Share of the on-demand price that a spot price is taken to be (Luna's own setting).
_ESTIMATE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilisation:
    """One more above a share of busy time, one less below another, then a pause.

    As every group of EC2 Auto Scaling it replaces what EC2 takes: only ``desired`` counts.
    """

    high: float = 0.8
    low: float = 0.2
    #: Looks over which it is averaged: a datapoint of EC2's is five minutes.
    over: int = 5
    cooldown: float = 300.0

    def __call__(self, seen: Sequence[FleetLook]) -> int:
        """Decide."""
        now, last = seen[-1], seen[-self.over :]
        mean = sum(map(_busy_share, last)) / len(last)
        if now.since_change < self.cooldown or now.booting:
            return now.desired
        return now.desired + (mean > self.high) - (mean < self.low)


@dataclass(slots=True, kw_only=True)
class PendingJobs:
    """One worker more while jobs wait, none once nothing does, each after it was so for long.

    From none to the first it goes at once. Counts its looks, so that it is for one fleet.
    """

    #: Jobs that may wait without it growing.
    threshold: int = 1
    #: Looks in a row: of five minutes, and of twenty, every 20 s.
    out_after: int = 15
    in_after: int = 60
    _above: int = 0
    _below: int = 0

    def __call__(self, seen: Sequence[FleetLook]) -> int:
        """Decide."""
        now = seen[-1]
        aim = self._aim(now)
        if not now.desired:
            return aim
        is_above, is_below = aim > now.desired, aim < now.desired
        self._above = self._above + 1 if is_above else 0
        self._below = self._below + 1 if is_below else 0
        if self._above < self.out_after and self._below < self.in_after:
            return now.desired
        self._above = self._below = 0
        return aim

    def _aim(self, now: FleetLook) -> int:
        if not now.waiting:
            return 0
        step = (now.waiting > self.threshold) - (now.waiting < self.threshold)
        return max(now.desired + step, 1)


def _busy_share(look: FleetLook) -> float:
    """Return the busy share of the slots that are up; 0 without any."""
    up = (look.busy + look.idle) * look.slots
    return look.running / up if up else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RareBaseline(Baseline):
    """A baseline with what only a few of them have."""

    #: Says how long an idle machine waits; None: always ``idle_seconds``, which is else not read.
    idling: IdlingFactory | None = None
    #: Its machines that never end are as many as the work needs to start within
    #: ``ACCEPTABLE_DELAY``, known beforehand.
    is_sized: bool = False
    #: Seconds between looks while there is no machine; None: ``look_seconds``.
    first_look_seconds: float | None = None
    #: Pools are asked by an estimate from the on-demand price, not by their price.
    by_estimate: bool = False
    #: A launch that is not up after so many seconds is given up; None: it is waited for.
    attempt_seconds: float | None = None


def utilisation(_scenario: SimScenario, _throughput: float) -> Rule:
    """Scale on utilisation."""
    return Utilisation()


def pending_jobs(_scenario: SimScenario, _throughput: float) -> Rule:
    """Grow by one while jobs wait."""
    return PendingJobs()


def no_more(_scenario: SimScenario, _throughput: float) -> Rule:
    """Want no machine beyond those that never end."""
    return lambda _seen: 0


_ALL = (
    RareBaseline(
        name="warm-spot",
        title="the same on spot, in the cheapest zone that has the type",
        source="as warm; a spot machine that EC2 takes is replaced",
        rule=depth_alarm,
        pools=PoolChoice.ZONES,
        least=1,
        idle_seconds=10 * MINUTE,
    ),
    RareBaseline(
        name="asg-cpu",
        title="Auto Scaling on utilisation, out over 80 %, in under 20 %",
        source="EC2 Auto Scaling: simple scaling, cooldown 300 s, five-minute metrics, minimum 1",
        rule=utilisation,
        pools=PoolChoice.ZONES,
        least=1,
    ),
    RareBaseline(
        name="asg-on-demand",
        title="Auto Scaling, target tracking on backlog per instance, on demand",
        source="as asg-backlog; on demand",
        rule=backlog_target,
        capacity_type=CapacityType.ON_DEMAND,
        pools=PoolChoice.ZONES,
        least=1,
    ),
    RareBaseline(
        name="pool",
        title="a pool of workers that grows by one while jobs wait, down to none",
        source="SkyPilot job pools (docs.skypilot.co, examples/pools; autoscaling of pull request "
        "8483): a worker is one job's at a time; looks every 20 s, every 5 s while there is none; "
        "min_workers 0; defaults: queue_length_threshold 1, upscale delay 5 min, downscale 20 min",
        rule=pending_jobs,
        pools=PoolChoice.ZONES,
        look_seconds=20.0,
        first_look_seconds=5.0,
        one_slot=True,
    ),
    RareBaseline(
        name="pool-fixed",
        title="a pool of as many workers as start 95 % of the jobs within 10 minutes",
        source="SkyPilot job pools with a fixed number of workers, chosen knowing all work",
        rule=no_more,
        pools=PoolChoice.ZONES,
        is_sized=True,
        one_slot=True,
    ),
    RareBaseline(
        name="ski-rental",
        title="alarm on queue depth, idle for as long as a boot costs",
        source="Lu and Chen, arXiv 1112.0442: break-even timeout, work to the last that idled",
        rule=depth_alarm,
        pools=PoolChoice.CHEAPEST,
        idle_seconds=0.0,
        idling=lambda boot, _: SteadyIdling(boot),
    ),
    RareBaseline(
        name="ski-random",
        title="the same, idle for a time drawn by chance, at most a boot's",
        source="Karlin et al., Algorithmica 11 (1994): e / (e - 1) of what knowing the gap costs",
        rule=depth_alarm,
        pools=PoolChoice.CHEAPEST,
        idle_seconds=0.0,
        idling=RandomIdling,
    ),
    RareBaseline(
        name="ski-learned",
        title="the same, idle for the time that would have cost least over the gaps so far",
        source="Augustine, Irani and Swamy, FOCS 2004, learned from the workload's own gaps",
        rule=depth_alarm,
        pools=PoolChoice.CHEAPEST,
        idle_seconds=0.0,
        idling=lambda boot, _: LearnedIdling(boot),
    ),
    RareBaseline(
        name="luna",
        title="candidates by estimated price, ten minutes for an attempt",
        source="Luna: spot taken as half of on-demand, scaleUpTimeout 10 min, then the next",
        rule=machine_per_job,
        pools=PoolChoice.CHEAPEST,
        by_estimate=True,
        look_seconds=10.0,
        idle_seconds=10 * MINUTE,
        back_off=30 * MINUTE,
        attempt_seconds=10 * MINUTE,
    ),
)

#: Name -> baseline, in the order of a table.
RARE: Mapping[str, RareBaseline] = MappingProxyType({each.name: each for each in _ALL})
#: The product's and the rare ones together.
ALL: Mapping[str, Baseline] = MappingProxyType({**BASELINES, **RARE})


class _EstimateShop(Shop):
    """Asks pools by what half of their on-demand price is."""

    def in_order(self, now: float) -> Sequence[SoldPool]:
        """Return the pools that sell at a time, in the order of asking."""

        def hour(pool: SoldPool) -> float:
            on_demand = pool.listing.on_demand
            return (self.price(pool, now) or 0.0) if on_demand is None else on_demand * _ESTIMATE

        sold = [pool for pool in self.pools if self.price(pool, now)]
        return sorted(sold, key=lambda pool: (hour(pool), pool.key))


class _RareFleet(BaselineFleet):
    """The fleet of one rare baseline."""

    def __init__(self, scenario: SimScenario, rare: RareBaseline, seed: int) -> None:
        self._rare = rare
        self._pools: dict[str, tuple[str, str]] = {}
        super().__init__(scenario, rare, seed)
        boot = scenario.boot.at_least + scenario.boot.median
        idling = rare.idling
        self._idling = None if idling is None else idling(boot, Random(f"{seed}/idle"))
        if rare.by_estimate:
            self.shop = _EstimateShop(scenario, rare, self.agenda, self.compute)

    @property
    def first_look_seconds(self) -> float:
        """Return the time between looks while there is nothing to see, seconds."""
        return self._rare.first_look_seconds or self._rare.look_seconds

    def arrive(self, number: int, arrival: Arrival) -> None:
        """Let the idle time learn whether a machine more is needed for a job that has come."""
        is_needed = not any(each.jobs and each.has_room for each in self.machines.values())
        if self._idling is not None and is_needed:
            self._idling.needed(self.agenda.seconds)
        super().arrive(number, arrival)

    def idles_for(self) -> float | None:
        """Return the seconds that a machine which falls idle now waits."""
        if self._idling is None:
            return super().idles_for()
        return self._idling.begin(self.agenda.seconds)

    def launched(self, given: LaunchedInstance) -> None:
        """Let a machine come up; remember where it is from."""
        self._pools[given.instance_id] = given.instance_type, given.zone
        super().launched(given)

    def boot(self, machine: BaselineMachine, seconds: float) -> None:
        """Let a machine be up in so many seconds, or give it up before."""
        at_most = self._rare.attempt_seconds
        if at_most is None or seconds <= at_most:
            super().boot(machine, seconds)
        else:
            self.agenda.plan_in(at_most, Turn.WORKER, lambda: self._give_up(machine))

    def _give_up(self, machine: BaselineMachine) -> None:
        self.shop.leave_alone(self._pools[machine.instance_id])
        self.compute.power_off(machine.instance_id)


def simulate_any(
    scenario: SimScenario, baseline: Baseline, seed: int, *, max_workers: int | None = None
) -> SimResult:
    """Run a scenario under a baseline, a rare one or one of the product's, to its end.

    Args:
        scenario: the world.
        baseline: one of ``ALL``, or a changed one.
        seed: of all that is random.
        max_workers: in place of the baseline's own, to compare under one bound.
    """
    if not isinstance(baseline, RareBaseline):
        return simulate_baseline(scenario, baseline, seed, max_workers=max_workers)
    if max_workers is not None:
        baseline = replace(baseline, max_workers=max_workers)
    if baseline.is_sized:
        fewest = fewest_machines(
            scenario,
            throughput=scenario.throughput(fixed_listing(scenario, baseline)),
            start_within=ACCEPTABLE_DELAY,
            most=baseline.max_workers,
        )
        baseline = replace(baseline, least=fewest)
    return _RareFleet(scenario, baseline, seed).run()
