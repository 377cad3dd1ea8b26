"""How few workers must be launched now, so that everything that waits still starts in time.

A launch that can wait a tick without costing another worker later is not made yet: work gathers
meanwhile, a slot may become free, and one boot then serves more of it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from spindown.domain.learning import (
    Knowledge,
    boot_p50,
    items_per_job,
    surely_up,
    usual_throughput,
)
from spindown.domain.policy import Policy
from spindown.domain.schedule.jobs import Waiting
from spindown.domain.schedule.slots import Capacity, jobs_started, slot_times

#: Less than any tick: equal instants are too late, whatever fractions make of them.
_LEAST = 1e-6
#: Share of the jobs that start within the promise where the margin rests: 19 of 20, and room for
#: what is late while it is learned.
_KEPT = 0.96
#: Where the margin begins, how far one job moves it, and how far it may go, as shares of the
#: promise. A step of a fiftieth: a burst whose jobs come late is over after a few dozen, and a
#: smaller one would have learned too late to save the next.
_MARGIN_AT_FIRST = 0.1
_STEP = 0.02
_MARGIN_AT_MOST = 0.5
#: How much later than planned launches may be, ticks: ``up`` and ``must`` hold back one each, for
#: a retry and for the next look, and most launches need neither.
_MARGIN_AT_LEAST = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPlan:
    """What must be launched now, and what may wait."""

    #: Slots of the usual kind to launch now; 0: all can wait a tick.
    slots: int
    #: Whether that is more than there is room for, so that none of them can wait.
    is_over_capacity: bool
    #: Of these, wanted however fast a slot is: it could start no more than one job.
    side_by_side: int
    #: Items an hour of such a slot.
    items_per_hour: float
    #: Jobs that slots of ours will not start in time.
    late_jobs: int
    #: Until when the first launch can wait, if no slot becomes free; None: nothing waits.
    until: datetime | None
    #: When the price ladder opens, whatever has waited how long: launched a tick later, all that
    #: there is room for would break the promise of a job that has not started yet. None: slots
    #: of ours start all of these in time.
    opens_at: datetime | None
    #: Since when the oldest job waits; None: nothing waits.
    since: datetime | None


def plan_starts(
    waiting: Sequence[Waiting],
    capacity: Capacity,
    *,
    knowledge: Knowledge,
    policy: Policy,
    now: datetime,
    margin: timedelta = timedelta(0),
    headroom_slots: float = math.inf,
) -> StartPlan:
    """Return how few slots must be launched now.

    Jobs are taken in the order in which they came, by whatever slot is free first; a slot that
    is free in f and needs s for a job has started floor((d - f) / s) + 1 jobs by d. A launch is
    up after p95 boot and one tick, in which a refused one is tried again; what is launched a tick
    later, a tick later. k is the least number of slots that start every job within
    ``start_within`` of its arrival if all are launched now, and the answer is the least m of them
    with which the other k - m can wait a tick. A job that nothing launched now could start within
    its promise, margin or not, is past saving: it is planned for one boot after the launch, or a
    late backlog would ask for a slot for each job.

    Where k is more than there is room for, no later launch makes good what waits, and none waits.
    So long as all that there is room for starts every job in time if launched a tick later, spot
    may be waited for; then the price ladder opens. A job that was put down has kept its promise
    already: for that, the ladder's own rungs say when.

    Worked: start within 10 min, boot 90 s, tick 60 s, jobs of 80 s. 4 jobs that have just come
    need one slot, from minute 6 on: the fourth starts four minutes after the slot is up. 40 jobs
    need 7 slots if launched now, and 8 a tick later: five are launched now. With room for 6 slots
    all of them are, on whatever the ladder allows at all. A lone job waits for spot until minute
    7.5.

    Args:
        waiting: what waits, oldest first.
        capacity: slots of ours; booting ones and intents count.
        knowledge: boots, throughput and sizes of jobs.
        policy: promise and tick.
        now: the present.
        margin: by how much earlier than the promise asks for everything is planned; below 0:
            later than a launch that needs its retry could be.
        headroom_slots: slots that may be launched at all.
    """
    rate = usual_throughput(knowledge, policy)
    items = items_per_job(knowledge, policy)
    terms = _Terms(
        takes=3600.0 * items / rate,
        tick=policy.tick.total_seconds(),
        boot=boot_p50(knowledge, policy).total_seconds(),
        up=surely_up(knowledge, policy, ticks=1).total_seconds(),
        ahead=max(margin.total_seconds(), 0.0),
    )
    deadlines = [
        ((group.since + policy.start_within - margin - now).total_seconds() - _LEAST, group.jobs)
        for group in waiting
    ]
    existing = slot_times(capacity, items)
    gaps = list(_gaps(deadlines, existing, terms))
    needed = max((math.ceil(gap.missing / gap.each) for gap in gaps), default=0)
    is_over_capacity = needed > headroom_slots
    slots = min(max((gap.must(needed, terms) for gap in gaps), default=0), needed)
    slots = needed if is_over_capacity else slots
    alone = max((gap.missing for gap in gaps if gap.each == 1), default=0)
    spare = min((gap.spare(needed, terms) for gap in gaps), default=None)
    new = [
        (due, each.jobs - each.requeued) for (due, _), each in zip(deadlines, waiting, strict=True)
    ]
    pressing = (
        gaps if new == deadlines else _gaps([each for each in new if each[1]], existing, terms)
    )
    latest = min((gap.latest(headroom_slots, terms) for gap in pressing), default=None)
    return StartPlan(
        slots=slots,
        is_over_capacity=is_over_capacity,
        side_by_side=min(alone, slots),
        items_per_hour=rate,
        late_jobs=max((gap.missing for gap in gaps), default=0),
        until=_in(spare, now),
        opens_at=_in(latest, now),
        since=waiting[0].since if waiting else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Terms:
    """Seconds: of a job on the usual slot, of a tick, of a boot; until a launch is surely up."""

    takes: float
    tick: float
    boot: float
    up: float
    #: By how much every job is due before its promise ends.
    ahead: float

    def planned(self, due: float) -> float:
        """Return until when a job is planned for that is due in so many seconds."""
        is_past_saving = due + self.ahead < self.up
        return self.up + self.boot if is_past_saving else max(due, self.up)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gap:
    """Jobs that slots of ours do not start by an instant, counted with all that came before."""

    missing: int
    #: Seconds until they are due, and until when they are planned for.
    due: float
    planned: float
    #: Jobs that a slot that is launched now starts by then.
    each: int
    #: Whether a launch of the next tick is too late for them.
    is_urgent: bool

    def must(self, needed: int, terms: _Terms) -> int:
        """Return how many of the ``needed`` slots cannot wait a tick."""
        if self.is_urgent:
            return math.ceil(self.missing / self.each)
        later = jobs_started(self.planned - terms.up - terms.tick, terms.takes)
        over = self.missing - needed * later
        return max(math.ceil(over / (self.each - later)), 0) if self.each > later else 0

    def spare(self, needed: int, terms: _Terms) -> float:
        """Return in how many seconds the first of the needed slots must be launched."""
        busy = (math.ceil(self.missing / needed) - 1) * terms.takes
        return self.due - terms.up - terms.tick - busy

    def latest(self, headroom_slots: float, terms: _Terms) -> float:
        """Return in how many seconds all that there is room for must be launched."""
        return self.spare(int(min(max(headroom_slots, 1), self.missing)), terms) + terms.tick


def _in(seconds: float | None, now: datetime) -> datetime | None:
    return None if seconds is None else now + timedelta(milliseconds=max(round(1000 * seconds), 0))


def _gaps(
    deadlines: Sequence[tuple[float, int]],
    existing: Sequence[tuple[float, float]],
    terms: _Terms,
) -> Iterator[_Gap]:
    came = 0
    for due, jobs in deadlines:
        came += jobs
        planned = terms.planned(due)
        missing = came - sum(jobs_started(planned - free, takes) for free, takes in existing)
        if missing <= 0:
            continue
        yield _Gap(
            missing=missing,
            due=due,
            planned=planned,
            each=jobs_started(planned - terms.up, terms.takes),
            is_urgent=due < terms.up + terms.tick,
        )


def next_margin(margin: timedelta | None, *, started: int, late: int, policy: Policy) -> timedelta:
    """Return the margin after some jobs have started: larger by late ones, smaller by the others.

    One late job weighs as much as 24 in time, so the margin rests where 24 of 25 jobs start
    within the promise, however much jobs and boots differ, and in whatever order SQS hands them
    out. Below 0 it takes back what was held in reserve for every launch. Worked: start within
    10 min, a step of 12 s; 100 jobs of which 10 are late move it by
    12 x (0.96 x 10 - 0.04 x 90) = 72 s.

    Args:
        margin: up to now; None: nothing is learned yet.
        started: jobs that have been claimed.
        late: those of them that had waited for longer than ``start_within``.
        policy: the promise.
    """
    before = policy.start_within * _MARGIN_AT_FIRST if margin is None else margin
    moved = _KEPT * late - (1.0 - _KEPT) * (started - late)
    least, most = _MARGIN_AT_LEAST * policy.tick, policy.start_within * _MARGIN_AT_MOST
    return min(max(before + policy.start_within * _STEP * moved, least), most)
