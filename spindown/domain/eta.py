"""When a batch will be done: a range, from what was learned and from the slots that there are.

Three times are computed. They differ in how much other work of the queue comes first, in how fast
items are, and in when machines that boot are up:

======  ==================  ====================================  ====================
        other work first    items an hour of a slot               a machine that boots
======  ==================  ====================================  ====================
sooner  none that waits     learned, times the fast tenth's pace  the usual time
likely  half of what waits  learned, or as the batch's own ones   the usual time
later   all that waits      that, or as those in hand, times the  19 of 20 boots
                            slow tenth's pace
======  ==================  ====================================  ====================

A slot that holds another's job is free once that job is over. No job waits for it that another slot
can take earlier.

What was learned of quick items says nothing of long ones that follow. So the likely end goes by the
batch's own items as well, where these take longer, and the latest end by those that are in hand: an
item in hand is taken to be half done, and what is left to be like it. Worked: 100 items an hour
were learned, and the first item has taken an hour. By itself it makes half an item an hour; with
one more of those that were learned, 1.5 in 101 / 100 hours.

What an item in hand has left depends on its age alone once that is more than all this says: the
longer it has taken, the longer it is likely to take. By the tail of Pareto with exponent 1, one
time in ten it ends within a ninth of its age; at the median it takes as long again, and one time
in ten more than nine times as long. Worked: 49 s in hand, 5 s to 7 m, likely 49 s.

Until the first heartbeat of a job nobody knows what it has done. By what was learned, and the slow
tenth's pace, it should be over after a while. If it is not, and nothing else of the batch has shown
how long its items take, nothing is told.

A machine that boots for longer than usual is expected at the late time, and after that to take as
long again. A job that waits after a failure is begun no earlier than it can be received again, and
where the machine that failed it is the only one, no earlier than that machine takes it again.

Launches that are not yet asked for, interruptions and failures are not foreseen.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import accumulate

from spindown.domain.fleet import Launch, Lease, Worker
from spindown.domain.learning import (
    DATA_SHEET_ERROR,
    ROBUST_FROM,
    Knowledge,
    boot_p50,
    boot_p95,
    quantile,
    worker_throughput,
)
from spindown.domain.policy import Policy

_HOUR = timedelta(hours=1)
#: Hours: ten years. What a worker says of its speed may lead anywhere.
_LONGEST = 87_600.0
_SLOW, _FAST = 0.1, 0.9
#: Of an item's age: what it has left at the least in nine of ten cases, at the median, at the most.
_AGED = (1 / 9, 1.0, 9.0)
#: Of a normal distribution: a tenth is this many standard deviations from the mean, or more.
_TENTH = 1.2816


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkLeft:
    """What is left of a batch, and what else waits or is worked on in its queue."""

    items: float
    jobs: int
    #: Items that are left of its largest job: one slot does them one after the other.
    largest_job: float
    #: Without what other jobs' slots hold.
    other_items: float = 0.0
    other_jobs: int = 0
    #: Before this nobody takes the last of its jobs that wait after a failure; None: none do.
    not_before: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedSlots:
    """Slots of one machine that are at work, or will be."""

    count: int
    #: Of one slot.
    items_per_hour: float
    ready_at: datetime
    #: When it is ready if it boots as slowly as 1 in 20.
    ready_late_at: datetime
    #: Of the job of another that it holds: for how many hours its item in hand has been so, and how
    #: many items come after that.
    held_hours: float = 0.0
    held_items: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceSpread:
    """How much slower and faster than usual a tenth of the reports are, as factors."""

    slow: float
    fast: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnPace:
    """What a batch's own jobs have shown, in hours of slots."""

    #: Done by those that are over or at work, and in how long.
    items: float = 0.0
    hours: float = 0.0
    #: Of those at work: their number, and what they have done since their last commits.
    in_hand: int = 0
    items_in_hand: float = 0.0
    hours_in_hand: float = 0.0
    #: Of the item that has been in hand longest: for how long.
    oldest: float = 0.0
    #: Of the jobs without a heartbeat, the most hours that one has taken by its items.
    unheard: float = 0.0

    def is_unknown(self, slowest: float) -> bool:
        """Tell whether all that is known is that it is slower than this, items an hour."""
        return not (self.items or self.hours) and self.unheard * slowest > 1.0

    def usual(self, learned: float) -> float:
        """Return by which factor items are slower than learned: at most 1."""
        return _slower(self.items + self.in_hand / 2, self.hours, learned, of_learned=1.0)

    def slowest(self, learned: float) -> float:
        """Return that factor if what is left is like what is in hand."""
        items = self.items_in_hand + self.in_hand / 2
        in_hand = _slower(items, self.hours_in_hand, learned, of_learned=0.0)
        return min(self.usual(learned), in_hand)


def _slower(items: float, hours: float, learned: float, *, of_learned: float) -> float:
    expected = learned * hours + of_learned
    return min((items + of_learned) / expected, 1.0) if expected > 0.0 and items > 0.0 else 1.0


NOTHING_SHOWN = OwnPace()


@dataclass(frozen=True, slots=True, kw_only=True)
class Eta:
    """When a batch will be done."""

    sooner: datetime
    likely: datetime
    later: datetime


def expect_slots(
    workers: Sequence[Worker],
    launches: Iterable[Launch],
    knowledge: Knowledge,
    policy: Policy,
    now: datetime,
    leases: Iterable[Lease] = (),
) -> Sequence[ExpectedSlots]:
    """Return the slots that there are and that were asked for; none before anything was measured.

    Args:
        workers: those that take jobs of the batch, or end after those of it that they hold.
        launches: its launches; only those without an answer count, since others are workers.
        knowledge: what was learned.
        policy: its policy.
        now: the time.
        leases: what other jobs hold of these workers.
    """
    held: dict[str, list[Lease]] = {}
    for lease in leases:
        held.setdefault(lease.instance_id, []).append(lease)
    if not any(record.hours > 0.0 for record in knowledge.throughput.values()):
        return ()
    usual, late = boot_p50(knowledge, policy), boot_p95(knowledge, policy)

    def boots(begun: datetime) -> tuple[datetime, datetime]:
        usually, at_last = begun + usual, begun + late
        if now < usually:
            return usually, at_last
        return (at_last, at_last) if now < at_last else (now + (now - begun),) * 2

    there = [
        ExpectedSlots(
            count=worker.slots,
            items_per_hour=worker_throughput(knowledge, worker, policy).items_per_hour
            / worker.slots,
            ready_at=worker.checked_in_at or boots(worker.launched_at)[0],
            ready_late_at=worker.checked_in_at or boots(worker.launched_at)[1],
        )
        for worker in workers
    ]
    there = [
        part
        for worker, one in zip(workers, there, strict=True)
        for part in _parts(one, held.get(worker.instance_id, ()), now)
    ]
    asked = [
        ExpectedSlots(
            count=launch.count * launch.slots,
            items_per_hour=launch.items_per_hour / launch.slots,
            ready_at=boots(launch.intended_at)[0],
            ready_late_at=boots(launch.intended_at)[1],
        )
        for launch in launches
        if launch.is_open
    ]
    return [*there, *asked]


def _parts(machine: ExpectedSlots, held: Sequence[Lease], now: datetime) -> Iterator[ExpectedSlots]:
    """Yield the slots of a machine that are free, and each that another's job holds."""
    if machine.count > len(held):
        yield replace(machine, count=machine.count - len(held))
    for lease in held:
        yield replace(
            machine,
            count=1,
            held_hours=lease.age(now) / _HOUR,
            held_items=max(lease.items - lease.items_done - 1.0, 0.0),
        )


def pace_spread(knowledge: Knowledge) -> PaceSpread:
    """Return how reports differ from the median of their kind of machine.

    With few reports the range is that of the data sheet's error, e^(+-1.28 x 0.3): 0.68 to 1.47.
    """
    apart: list[float] = []
    for record in knowledge.throughput.values():
        rates = [rate for rate in record.rates if rate > 0.0]
        if rates:
            middle = quantile(rates, 0.5)
            apart += (rate / middle for rate in rates)
    if len(apart) < ROBUST_FROM:
        error = math.exp(_TENTH * DATA_SHEET_ERROR)
        return PaceSpread(slow=1.0 / error, fast=error)
    return PaceSpread(slow=min(quantile(apart, _SLOW), 1.0), fast=max(quantile(apart, _FAST), 1.0))


def expect_end(
    left: WorkLeft,
    slots: Sequence[ExpectedSlots],
    spread: PaceSpread,
    now: datetime,
    own: OwnPace = NOTHING_SHOWN,
) -> Eta | None:
    """Return when a batch will be done; None: no slot is there or expected, or its speed unknown.

    Its speed is unknown, too, once only the first heartbeat can tell it.

    A job runs on one slot, so no more slots work than there are jobs, and the end is never before
    that of the largest job. At the latest, that job is begun last (R. L. Graham, Bounds on
    Multiprocessing Timing Anomalies, 1969). Worked: 300 items in three jobs on two slots of 100 an
    hour: 1.5 h if all slots work to the end, 2.5 h if one job is begun when the others are done.
    """
    able = [each for each in slots if each.count > 0 and each.items_per_hour > 0.0]
    if not able:
        return None
    learned = math.fsum(x.count * x.items_per_hour for x in able) / sum(x.count for x in able)
    if own.is_unknown(learned * spread.slow):
        return None
    paces = (spread.fast, own.usual(learned), own.slowest(learned) * spread.slow)
    hours = [
        _hours_of(
            left,
            [(each, _ready(each, now, pace, aged, is_late=share == 1.0)) for each in able],
            pace=pace,
            share=share,
        )
        for pace, aged, share in zip(paces, _AGED, (0.0, 0.5, 1.0), strict=True)
    ]
    _, usual, slow = (left.largest_job / (_best(able) * pace) for pace in paces)
    hours[-1] += slow
    sooner, likely, later = (
        max(each, own.oldest * aged) for each, aged in zip(hours, _AGED, strict=True)
    )
    if left.not_before is not None:
        begun = _hours(left.not_before, now)
        sooner, likely, later = (
            max(sooner, begun),
            max(likely, begun + usual),
            max(later, begun + slow),
        )
    # Each is later than the one before, whatever the numbers.
    ordered = accumulate((sooner, likely, later), max)
    ends = [now + min(each, _LONGEST) * _HOUR for each in ordered]
    return Eta(sooner=ends[0], likely=ends[1], later=ends[2])


def _hours(at: datetime, now: datetime) -> float:
    return max((at - now) / _HOUR, 0.0)


def _ready(
    slots: ExpectedSlots, now: datetime, pace: float, aged: float, *, is_late: bool
) -> float:
    """Return after how many hours slots are there and hold no other job."""
    up = _hours(slots.ready_late_at if is_late else slots.ready_at, now)
    return up + slots.held_hours * aged + slots.held_items / (slots.items_per_hour * pace)


def _best(slots: Iterable[ExpectedSlots]) -> float:
    return max(each.items_per_hour for each in slots)


def _hours_of(
    left: WorkLeft,
    slots: Sequence[tuple[ExpectedSlots, float]],
    *,
    pace: float,
    share: float,
) -> float:
    """Return after how many hours the batch is done, with a share of the other work before it."""
    items = left.items + left.other_items * share
    jobs = max(left.jobs + math.ceil(left.other_jobs * share), 1)
    done = speed = at = 0.0
    ordered = sorted(slots, key=lambda each: (each[1], -each[0].items_per_hour))
    for each, ready in ordered:
        if jobs <= 0 or (speed > 0.0 and done + speed * (ready - at) >= items):
            break
        done, at = done + speed * (ready - at), ready
        used = min(each.count, jobs)
        jobs -= used
        speed += used * each.items_per_hour * pace
    alone = ordered[0][1] + left.largest_job / (_best(each for each, _ in slots) * pace)
    return max(at + (items - done) / speed, alone)
