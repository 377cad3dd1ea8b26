"""What people run instead of Spindown: five ways, each with its rules and where they are from.

A machine has as many slots as an instance of ours; one that is for a job at a time gives it all.
Where a source leaves a choice open the baseline is treated kindly: it knows the mean length of a
job beforehand, jobs are handed out oldest first and without a request, scaling in spares machines
that are at work, and the one type of those that know only one is the cheapest hour on sale.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol

from spindown.domain.offer import CapacityType
from spindown.domain.policy import Policy, Rung
from spindown.simulator.scenario import SimScenario

MINUTE = 60.0
#: Delay that the owner of a queue of target tracking is taken to accept, seconds.
ACCEPTABLE_DELAY = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetLook:
    """The queue and the fleet at one look."""

    at: float
    waiting: int
    #: How long something has been waiting without a break, seconds; 0: nothing is.
    waited: float
    #: Machines with a job, without one, and not yet up.
    busy: int
    idle: int
    booting: int
    #: Jobs at work.
    running: int
    #: Jobs that a machine works on at the same time.
    slots: int
    #: What the rule has asked for last; EC2 may have taken some, or not have had them.
    desired: int
    #: Seconds since the rule last asked for something else.
    since_change: float

    @property
    def machines(self) -> int:
        """Return all machines."""
        return self.busy + self.idle + self.booting


class Rule(Protocol):
    """Returns how many machines there should be."""

    def __call__(self, seen: Sequence[FleetLook]) -> int:
        """Decide; ``seen`` are the last looks, oldest first, at least one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthAlarm:
    """One machine more at each look while something waits that no machine will take."""

    #: From a message to the alarm that sees it: metrics come by the minute, the alarm after.
    delay: float = 90.0

    def __call__(self, seen: Sequence[FleetLook]) -> int:
        """Decide."""
        now = seen[-1]
        is_due = (
            now.waited > 0 and now.waited >= self.delay and (now.waiting > now.booting * now.slots)
        )
        return now.machines + is_due


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogTarget:
    """Target tracking on messages per machine: 3 minutes above it, 15 below; a group likewise."""

    #: Acceptable delay over the mean time of a job.
    per_machine: float
    out_after: int = 3
    in_after: int = 15

    def __call__(self, seen: Sequence[FleetLook]) -> int:
        """Decide."""
        now = seen[-1]
        ratios = [each.waiting / max(each.machines, 1) for each in seen[-self.in_after :]]
        wanted = math.ceil(now.waiting / self.per_machine)
        if len(ratios) >= self.out_after and min(ratios[-self.out_after :]) > self.per_machine:
            return max(wanted, now.desired)
        # Scaling in begins at nine tenths of the target.
        if len(ratios) == self.in_after and max(ratios) < 0.9 * self.per_machine:
            return min(wanted, now.desired)
        return now.desired


@dataclass(frozen=True, slots=True, kw_only=True)
class MachinePerJob:
    """As many slots as there are jobs, waiting or at work; ending is the machines' own."""

    def __call__(self, seen: Sequence[FleetLook]) -> int:
        """Decide."""
        now = seen[-1]
        return max(now.machines, math.ceil((now.waiting + now.running) / now.slots))


class PoolChoice(StrEnum):
    """Which offers a baseline asks for, in which order."""

    #: One type in one zone. The one type is the cheapest hour, by the mean price of its first zone.
    FIXED = "fixed"
    #: One type, its zones cheapest first.
    ZONES = "zones"
    #: Every type and zone, cheapest hour first.
    CHEAPEST = "cheapest"
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
    pools: PoolChoice = PoolChoice.FIXED
    #: Machines that never end.
    least: int = 0
    #: The most machines; simulate_baseline takes that of the policy it is compared with.
    max_workers: int = 4
    look_seconds: float = MINUTE
    #: Seconds without a job after which a machine ends; None: only the rule ends machines.
    idle_seconds: float | None = None
    #: A machine works on one job at a time, whatever its slots.
    one_slot: bool = False
    #: It ends with its first job.
    one_job: bool = False
    #: A pool that refused is left alone for so many seconds.
    back_off: float = MINUTE
    #: Work that a reclaim undoes is counted from the last such mark; None: from its beginning.
    checkpoint_seconds: float | None = 600.0
    #: It takes jobs from SQS, so one of the scenario's ``disorder`` oldest; else the oldest.
    is_on_sqs: bool = False


def depth_alarm(_scenario: SimScenario, _throughput: float) -> Rule:
    """Launch when the depth alarm goes off."""
    return DepthAlarm()


def machine_per_job(_scenario: SimScenario, _throughput: float) -> Rule:
    """Launch a machine for each job."""
    return MachinePerJob()


def backlog_target(scenario: SimScenario, throughput: float) -> Rule:
    """Track the backlog that one machine works off within ``ACCEPTABLE_DELAY``."""
    mean = scenario.work_seconds / max(len(scenario.arrivals), 1) / throughput
    return BacklogTarget(per_machine=max(ACCEPTABLE_DELAY / max(mean, 1.0), 0.1))


_ALL = (
    Baseline(
        name="warm",
        title="one machine on demand that is never off, more beside it by alarm",
        source="the field's story of 847 billed GPU-hours for 200 of work",
        rule=depth_alarm,
        capacity_type=CapacityType.ON_DEMAND,
        least=1,
        idle_seconds=10 * MINUTE,
    ),
    Baseline(
        name="asg-backlog",
        title="Auto Scaling, target tracking on backlog per instance",
        source="EC2 Auto Scaling: scaling based on Amazon SQS; 3 minutes out, 15 in, minimum 1",
        rule=backlog_target,
        pools=PoolChoice.ZONES,
        least=1,
    ),
    Baseline(
        name="batch",
        title="AWS Batch, scale-down delay on: a machine per waiting job, kept 20 minutes",
        source="AWS Batch: SPOT_PRICE_CAPACITY_OPTIMIZED, minScaleDownDelayMinutes 20",
        rule=machine_per_job,
        pools=PoolChoice.DEEP,
        look_seconds=30.0,
        idle_seconds=20 * MINUTE,
    ),
    Baseline(
        name="vm-per-job",
        title="a machine per job, ended with it",
        source="SkyPilot managed jobs: zones cheapest first, autostop 0",
        rule=machine_per_job,
        pools=PoolChoice.ZONES,
        look_seconds=10.0,
        idle_seconds=0.0,
        one_slot=True,
        one_job=True,
    ),
    Baseline(
        name="classic-alarm",
        title="alarm on queue depth, ten idle minutes",
        source="the field's cure: depth over a threshold launches the cheapest hour that is to be "
        "had, ten idle minutes end",
        rule=depth_alarm,
        pools=PoolChoice.CHEAPEST,
        idle_seconds=10 * MINUTE,
    ),
)

#: Name -> baseline, in the order of a table.
BASELINES: Mapping[str, Baseline] = MappingProxyType({each.name: each for each in _ALL})

#: Name of the shipped policy without spot among those that people run instead.
OURS_ON_DEMAND = "ours-on-demand"


def on_demand_only(policy: Policy) -> Policy:
    """Return a policy that buys on demand from the first second on, and is the same else."""
    rung = Rung(after=timedelta(0), capacity_types=frozenset({CapacityType.ON_DEMAND}))
    return replace(policy, ladder=(rung,))
