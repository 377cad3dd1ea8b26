"""What people run instead of Spindown, each way with the source of its rules.

A machine has as many slots as an instance of ours; one that is for a job at a time gives it all.
Where a source leaves a choice open the baseline is treated kindly: it knows the mean length of a
job beforehand, jobs are handed out oldest first and without a request, scaling in spares machines
that are at work, and the one type of those that know only one is the cheapest hour on sale.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from spindown.domain.offer import CapacityType
from spindown.simulator.baseline.idling import (
    IdlingFactory,
    LearnedIdling,
    RandomIdling,
    SteadyIdling,
)
from spindown.simulator.baseline.rule import (
    BacklogTarget,
    DepthAlarm,
    MachinePerJob,
    PendingJobs,
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
    #: They are as many as the work needs to start within ACCEPTABLE_DELAY, known beforehand.
    is_sized: bool = False
    #: The most machines; simulate_baseline takes that of the policy it is compared with.
    max_workers: int = 4
    look_seconds: float = MINUTE
    #: Likewise until the first look at work that comes while there is no machine.
    first_look_seconds: float | None = None
    #: Idle time after which a machine ends; None: only the rule ends machines.
    idling: IdlingFactory | None = None
    #: A machine works on one job at a time, whatever its slots.
    one_slot: bool = False
    #: It ends with its first job.
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


def _pool(_scenario: SimScenario, _throughput: float) -> Rule:
    return PendingJobs()


def _none(_scenario: SimScenario, _throughput: float) -> Rule:
    """Want no machine beyond those that never end."""
    return lambda _seen: 0


def _idles(minutes: float) -> IdlingFactory:
    return lambda _boot, _random: SteadyIdling(minutes * MINUTE)


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
        idling=_idles(10),
    ),
    Baseline(
        name="warm-spot",
        title="the same on spot, in the cheapest zone that has the type",
        source="as warm; a spot machine that EC2 takes is replaced",
        rule=_alarm,
        market=Market.ZONES,
        least=1,
        idling=_idles(10),
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
        name="asg-on-demand",
        title="Auto Scaling, target tracking on backlog per instance, on demand",
        source="as asg-backlog; on demand",
        rule=_backlog,
        capacity_type=CapacityType.ON_DEMAND,
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
        idling=_idles(20),
    ),
    Baseline(
        name="vm-per-job",
        title="a machine per job, ended with it",
        source="SkyPilot managed jobs: zones cheapest first, autostop 0",
        rule=_pending,
        market=Market.ZONES,
        look_seconds=10.0,
        idling=_idles(0),
        one_slot=True,
        one_job=True,
    ),
    Baseline(
        name="pool",
        title="a pool of workers that grows by one while jobs wait, down to none",
        source="SkyPilot job pools (docs.skypilot.co, examples/pools; autoscaling of pull request "
        "8483): a worker is one job's at a time; looks every 20 s, every 5 s while there is none; "
        "min_workers 0; defaults: queue_length_threshold 1, upscale delay 5 min, downscale 20 min",
        rule=_pool,
        market=Market.ZONES,
        look_seconds=20.0,
        first_look_seconds=5.0,
        one_slot=True,
    ),
    Baseline(
        name="pool-fixed",
        title="a pool of as many workers as start 95 % of the jobs within 10 minutes",
        source="SkyPilot job pools with a fixed number of workers, chosen knowing all work",
        rule=_none,
        market=Market.ZONES,
        is_sized=True,
        one_slot=True,
    ),
    Baseline(
        name="classic-alarm",
        title="alarm on queue depth, ten idle minutes",
        source="the field's cure: depth over a threshold launches the cheapest hour that is to be "
        "had, ten idle minutes end",
        rule=_alarm,
        market=Market.CHEAPEST,
        idling=_idles(10),
    ),
    Baseline(
        name="ski-rental",
        title="alarm on queue depth, idle for as long as a boot costs",
        source="Lu and Chen, arXiv 1112.0442: break-even timeout, work to the last that idled",
        rule=_alarm,
        market=Market.CHEAPEST,
        idling=lambda boot, _: SteadyIdling(boot),
    ),
    Baseline(
        name="ski-random",
        title="the same, idle for a time drawn by chance, at most a boot's",
        source="Karlin et al., Algorithmica 11 (1994): e / (e - 1) of what knowing the gap costs",
        rule=_alarm,
        market=Market.CHEAPEST,
        idling=RandomIdling,
    ),
    Baseline(
        name="ski-learned",
        title="the same, idle for the time that would have cost least over the gaps so far",
        source="Augustine, Irani and Swamy, FOCS 2004, learned from the workload's own gaps",
        rule=_alarm,
        market=Market.CHEAPEST,
        idling=lambda boot, _: LearnedIdling(boot),
    ),
    Baseline(
        name="luna",
        title="candidates by estimated price, ten minutes for an attempt",
        source="Luna: spot taken as half of on-demand, scaleUpTimeout 10 min, then the next",
        rule=_pending,
        market=Market.LIST,
        look_seconds=10.0,
        idling=_idles(10),
        back_off=30 * MINUTE,
        attempt_seconds=10 * MINUTE,
    ),
)

#: Name -> baseline, in the order of a table.
BASELINES: Mapping[str, Baseline] = MappingProxyType({each.name: each for each in _ALL})
