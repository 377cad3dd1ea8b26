"""Rules by which a fleet is scaled: what each sees of the queue and its machines, and asks for."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
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

    @property
    def utilisation(self) -> float:
        """Return the busy share of the slots that are up; 0 without any."""
        up = (self.busy + self.idle) * self.slots
        return self.running / up if up else 0.0


class Rule(Protocol):
    """Returns how many machines there should be."""

    def __call__(self, seen: Sequence[Seen]) -> int:
        """Decide; ``seen`` are the last looks, oldest first, at least one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthAlarm:
    """One machine more at each look while something waits that no machine will take."""

    #: From a message to the alarm that sees it: metrics come by the minute, the alarm after.
    delay: float = 90.0

    def __call__(self, seen: Sequence[Seen]) -> int:
        """Decide."""
        now = seen[-1]
        is_due = (
            now.waited > 0 and now.waited >= self.delay and (now.waiting > now.booting * now.slots)
        )
        return now.machines + is_due


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

    def __call__(self, seen: Sequence[Seen]) -> int:
        """Decide."""
        now, last = seen[-1], seen[-self.over :]
        mean = sum(each.utilisation for each in last) / len(last)
        if now.since_change < self.cooldown or now.booting:
            return now.desired
        return now.desired + (mean > self.high) - (mean < self.low)


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogTarget:
    """Target tracking on messages per machine: 3 minutes above it, 15 below; a group likewise."""

    #: Acceptable delay over the mean time of a job.
    per_machine: float
    out_after: int = 3
    in_after: int = 15

    def __call__(self, seen: Sequence[Seen]) -> int:
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

    def __call__(self, seen: Sequence[Seen]) -> int:
        """Decide."""
        now = seen[-1]
        return max(now.machines, math.ceil((now.waiting + now.running) / now.slots))


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

    def __call__(self, seen: Sequence[Seen]) -> int:
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

    def _aim(self, now: Seen) -> int:
        if not now.waiting:
            return 0
        step = (now.waiting > self.threshold) - (now.waiting < self.threshold)
        return max(now.desired + step, 1)
