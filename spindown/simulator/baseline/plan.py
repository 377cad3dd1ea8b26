"""What people run instead of Spindown: eight ways, each with the source of its rules.

A machine has as many slots as an instance of ours; one that is for one job gives it all of them.
Where a source leaves a choice open the baseline is treated kindly: it knows the mean length of a
job beforehand, jobs are handed out oldest first and without a request, scaling in spares machines
that are at work, and the one type of those that know only one is the cheapest hour on sale.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from spindown.domain.offer import CapacityType
from spindown.simulator.baseline.rule import (
    BacklogTarget,
    DepthAlarm,
    MachinePerJob,
    Rule,
    Utilisation,
)
from spindown.simulator.scenario import SimScenario

MINUTE = 60.0
#: Delay that the owner of a queue of target tracking is taken to accept.
ACCEPTABLE_DELAY = 600.0


class Market(StrEnum):
    """Which offers a baseline asks for, in which order."""

    #: One type in one zone.
    FIXED = "fixed"
    #: One type, its zones cheapest first.
    ZONES = "zones"
    #: Every type and zone, cheapest hour first.
    CHEAPEST = "cheapest"
    #: Every type and zone, by dollars per hour estimated from the on-demand price.
    LIST = "list"
    #: Every type and zone, of the half that EC2 reclaims least the cheapest per hour.
    DEEP = "deep"


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A fleet and the rules by which it grows and shrinks."""

    name: str
    #: One sentence for a reader of a table.
    title: str
    #: What its rules are taken from.
    source: str
    #: Made from the world and the work that one machine does in a second.
    rule: Callable[[SimScenario, float], Rule]
    capacity_type: CapacityType = CapacityType.SPOT
    market: Market = Market.FIXED
    #: Of those that know only one type; "": the cheapest hour, by the mean price of its first zone.
    instance_type: str = ""
    #: Machines that never end.
    least: int = 0
    #: The most machines; simulate_baseline takes that of the policy it is compared with.
    max_workers: int = 4
    look_seconds: float = MINUTE
    #: Idle time after which a machine ends; None: only the rule ends machines.
    idle_seconds: float | None = None
    #: Idle time is one boot: what a new machine would cost.
    idles_one_boot: bool = False
    #: A machine works on one job and ends.
    one_job: bool = False
    #: A pool that refused, or did not come up in ``attempt_seconds``, is left alone this long.
    back_off: float = MINUTE
    #: A launch that is not up by then is given up; None: it is waited for.
    attempt_seconds: float | None = None
    #: Work that a reclaim undoes is counted from the last such mark; None: from its beginning.
    checkpoint_seconds: float | None = 600.0


def _alarm(_scenario: SimScenario, _throughput: float) -> Rule:
    return DepthAlarm()


def _pending(_scenario: SimScenario, _throughput: float) -> Rule:
    return MachinePerJob()


def _utilisation(_scenario: SimScenario, _throughput: float) -> Rule:
    return Utilisation()


def _backlog(scenario: SimScenario, throughput: float) -> Rule:
    mean = scenario.work_seconds / max(len(scenario.arrivals), 1) / throughput
    return BacklogTarget(per_machine=max(ACCEPTABLE_DELAY / max(mean, 1.0), 0.1))


_ALL = (
    Baseline(
        name="warm",
        title="one machine on demand that is never off, more beside it by alarm",
        source="the field's story of 847 billed GPU-hours for 200 of work",
        rule=_alarm,
        capacity_type=CapacityType.ON_DEMAND,
        least=1,
        idle_seconds=10 * MINUTE,
    ),
    Baseline(
        name="asg-cpu",
        title="Auto Scaling on utilisation, out over 80 %, in under 20 %",
        source="EC2 Auto Scaling: simple scaling, cooldown 300 s, five-minute metrics, minimum 1",
        rule=_utilisation,
        market=Market.ZONES,
        least=1,
    ),
    Baseline(
        name="asg-backlog",
        title="Auto Scaling, target tracking on backlog per instance",
        source="EC2 Auto Scaling: scaling based on Amazon SQS; 3 minutes out, 15 in, minimum 1",
        rule=_backlog,
        market=Market.ZONES,
        least=1,
    ),
    Baseline(
        name="batch",
        title="AWS Batch: a machine per waiting job, kept 20 minutes",
        source="AWS Batch: SPOT_PRICE_CAPACITY_OPTIMIZED, minScaleDownDelayMinutes 20",
        rule=_pending,
        market=Market.DEEP,
        look_seconds=30.0,
        idle_seconds=20 * MINUTE,
    ),
    Baseline(
        name="vm-per-job",
        title="a machine per job, ended with it",
        source="SkyPilot managed jobs: zones cheapest first, autostop 0",
        rule=_pending,
        market=Market.ZONES,
        look_seconds=10.0,
        idle_seconds=0.0,
        one_job=True,
    ),
    Baseline(
        name="classic-alarm",
        title="alarm on queue depth, ten idle minutes",
        source="the field's cure: depth over a threshold launches the cheapest hour that is to be "
        "had, ten idle minutes end",
        rule=_alarm,
        market=Market.CHEAPEST,
        idle_seconds=10 * MINUTE,
    ),
    Baseline(
        name="ski-rental",
        title="alarm on queue depth, idle for as long as a boot costs",
        source="Lu and Chen, arXiv 1112.0442: break-even timeout, work to the last that idled",
        rule=_alarm,
        market=Market.CHEAPEST,
        idles_one_boot=True,
    ),
    Baseline(
        name="luna",
        title="candidates by estimated price, ten minutes for an attempt",
        source="Luna: spot taken as half of on-demand, scaleUpTimeout 10 min, then the next",
        rule=_pending,
        market=Market.LIST,
        look_seconds=10.0,
        idle_seconds=10 * MINUTE,
        back_off=30 * MINUTE,
        attempt_seconds=10 * MINUTE,
    ),
)

#: Name -> baseline, in the order of a table.
BASELINES: Mapping[str, Baseline] = MappingProxyType({each.name: each for each in _ALL})
