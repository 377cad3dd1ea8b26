"""Rules of rivals that have a size: machines for what waits, not one more at each look."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spindown.simulator import SimScenario
from spindown.simulator.baseline.scaling_rule import BacklogTarget, FleetLook, Rule

#: Metrics of SQS come by the minute, and the alarm after them.
ALARM_DELAY = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogSize:
    """Once work has waited, as many machines as work it off in a given time."""

    #: Seconds of a mean job on a machine.
    job: float
    #: Seconds that something has waited before machines are launched.
    wait: float
    #: Seconds in which the machines are to work off what waits.
    target: float

    def __call__(self, seen: Sequence[FleetLook]) -> int:
        """Decide."""
        now = seen[-1]
        if not now.waiting or now.waited < self.wait:
            return now.machines
        return max(now.machines, math.ceil(now.waiting * self.job / self.target))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackFromZero:
    """Target tracking on backlog per machine; an alarm on the first message brings the first."""

    tracking: BacklogTarget

    def __call__(self, seen: Sequence[FleetLook]) -> int:
        """Decide."""
        now, wanted = seen[-1], self.tracking(seen)
        is_first = not now.machines and now.waiting > 0 and now.waited >= ALARM_DELAY
        return max(wanted, int(is_first))


def backlog_size(wait: float, target: float) -> Callable[[SimScenario, float], Rule]:
    """Return what makes the rule from a scenario and the work of a machine in a second."""

    def make(scenario: SimScenario, throughput: float) -> Rule:
        return BacklogSize(job=mean_job(scenario, throughput), wait=wait, target=target)

    return make


def track_from_zero(delay: float, out_after: int) -> Callable[[SimScenario, float], Rule]:
    """Return what makes target tracking with an acceptable delay in seconds."""

    def make(scenario: SimScenario, throughput: float) -> Rule:
        per_machine = max(delay / max(mean_job(scenario, throughput), 1.0), 0.1)
        return TrackFromZero(tracking=BacklogTarget(per_machine=per_machine, out_after=out_after))

    return make


def mean_job(scenario: SimScenario, throughput: float) -> float:
    """Return the seconds of a mean job on a machine: rivals are told them."""
    return scenario.work_seconds / max(len(scenario.arrivals), 1) / throughput
