"""How few slots must be launched now so that everything that waits starts within ``start_within``.

A launch waits for the next tick if that does not cost another worker later. Meanwhile more work
comes together, or a slot becomes free, and one boot serves more jobs. Once work has gathered, few
slots that start now do what many would have to do later.

Also decided in: ``demand.make_schedule`` (when nothing is held: jobs that are too long, as many
messages as a threshold says, machines for one job each), ``machine_count`` (warm machines).
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
from spindown.domain.reason import ReasonCode
from spindown.domain.schedule.jobs import Waiting, is_measured
from spindown.domain.schedule.slots import Capacity, jobs_started, slot_times

#: Seconds, far less than a tick. A start at the very deadline is too late, however it is rounded.
_ROUNDING = 1e-6
#: Share of the jobs that start within the promise when the margin stands still. The aim is 19 of
#: 20; the rest makes up for jobs that are late while the margin is learned.
_SHARE_IN_TIME = 0.96
#: Late jobs that move the margin at once, at most: rows may claim any number.
_MOVED_AT_MOST = 1e6
#: Where the margin begins, how far one late job moves it, and how far it may go, as shares of the
#: promise. With larger steps the margin goes up and down with each burst, and each way costs boots.
_MARGIN_AT_FIRST = 0.25
_MARGIN_STEP = 0.003
_MARGIN_AT_MOST = 0.5
#: How much later than planned a launch may be, ticks. The plan holds back two: one for a retry
#: (``usually_up_seconds``) and one until the next look (``slots_now``). Most launches need neither.
_MARGIN_AT_LEAST = -2
#: Share of the promise after which the oldest job has waited long enough for others to join it.
_GATHERED_AFTER = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPlan:
    """What must be launched now, and what may wait."""

    #: Slots of the usual kind to launch now; 0: all can wait a tick.
    slots: int
    #: Why they are launched now.
    why: ReasonCode
    #: Whether a new slot starts one job in time, however late it is launched: nothing is gained by
    #: waiting for others.
    is_for_one: bool
    #: Of ``slots``, how many are needed however fast they are: each has time to start one job only.
    side_by_side: int
    #: Items an hour of one slot of the usual kind.
    items_per_hour: float
    #: Jobs that the present slots will not start in time.
    late_jobs: int
    #: Until when the first launch can wait, if no slot becomes free; None: no launch is needed.
    launch_by: datetime | None
    #: When the price ladder opens, however long work has waited: one tick later, a launch of the
    #: whole headroom would be too late for a job that has not started yet. None: the present slots
    #: start all of these in time.
    ladder_opens_at: datetime | None
    #: Since when the oldest job waits; None: no job waits.
    oldest_since: datetime | None


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

    The slot that is free first takes the oldest job. A slot that is free in f and takes s for a
    job has started floor((d - f) / s) + 1 jobs by d. When to launch goes by the 95th percentile of
    boots, and how many by the median, each with one tick in which a refused launch is tried again:
    one slot in two is up before that, and does more jobs than it is planned for.

    k is the least number of slots that start every job within ``start_within`` of its arrival if
    all k are launched now. The answer is how many of these k must be launched now, if the others
    are launched one tick later.
    A slot is never planned for less than one boot of work, if there is more. Some jobs are late
    whatever is launched now. They are planned for one boot after the launch is up.

    Late jobs raise the margin: all starts are planned that much earlier, and so are the launches
    of two slots and more, since each of them then does more. One slot alone would do no more for
    it, and others may join the jobs that it waits for: once a boot is known, it is launched as if
    there were no margin.

    Once the oldest job has waited for a quarter of the promise, all k are launched if as many could
    not do the work later, when no more than one boot of work is left to each. What comes meanwhile
    keeps them busy. Until a speed is measured, one slot is launched at once, for a size of jobs
    that is guessed buys too many machines or too few. Neither holds with a ``scale_up_threshold``:
    what is below it waits as long as it can.

    If k is above the headroom, a later launch cannot make up for it, so nothing waits. The price
    ladder opens when a launch of the whole headroom cannot wait for another tick; until then, jobs
    may wait for spot. A requeued job has kept its promise already, so it does not open the ladder.

    Worked: start within 10 min, boot 90 s, tick 60 s, jobs of 80 s. 4 new jobs need one slot, from
    minute 6 on: the fourth starts four minutes after the slot is up. 40 jobs need 7 slots if they
    are launched now, and 8 a tick later: five are launched now. With a headroom of 6, all six are
    launched, on whatever the ladder allows. A lone job waits for spot until minute 7.5.

    Args:
        waiting: what waits, oldest first.
        capacity: the present slots; booting workers and intents count.
        knowledge: boots, throughput and sizes of jobs.
        policy: promise and tick.
        now: the present.
        margin: how much earlier than promised all starts are planned; below 0: how much later.
        headroom_slots: slots that may be launched at all.
    """
    rate = usual_throughput(knowledge, policy)
    items = items_per_job(knowledge, policy)
    early = max(margin.total_seconds(), 0.0)
    times = _StartTimes(
        job_seconds=3600.0 * items / rate,
        tick_seconds=policy.tick.total_seconds(),
        boot_seconds=boot_p50(knowledge, policy).total_seconds(),
        surely_up_seconds=surely_up(knowledge, policy, ticks=1).total_seconds(),
        early_seconds=early,
        early_seconds_alone=0.0 if knowledge.boots else early,
    )
    promise = policy.start_within.total_seconds()
    due_after = policy.start_within - min(margin, timedelta(0))
    deadlines = [
        ((group.since + due_after - now).total_seconds() - _ROUNDING, group.jobs)
        for group in waiting
    ]
    existing = slot_times(capacity, items)
    gaps = list(_gaps(deadlines, existing, times))
    needed = max((math.ceil(gap.missing_jobs / gap.jobs_per_slot) for gap in gaps), default=0)
    is_over_capacity = needed > headroom_slots
    slots = min(max((gap.slots_now(needed, times) for gap in gaps), default=0), needed)
    first_within = min((gap.first_launch_within(needed, times) for gap in gaps), default=None)
    why = ReasonCode.TOO_LATE_NEXT_TICK
    if is_over_capacity:
        slots, why = needed, ReasonCode.OVER_CAPACITY
    elif first_within is not None and policy.scale_up_threshold is None:
        gathered_within = _gathered_within(
            gaps, needed, waiting, existing, times, knowledge, policy, now
        )
        first_within = min(first_within, gathered_within)
        enough, because = (
            (needed, ReasonCode.FEWEST_NOW)
            if is_measured(knowledge)
            else (1, ReasonCode.TO_MEASURE)
        )
        if gathered_within <= 0.0 and slots < enough:
            slots, why = enough, because
    alone = max((gap.missing_jobs for gap in gaps if gap.jobs_per_slot == 1), default=0)
    new = [
        (due, each.jobs - each.requeued) for (due, _), each in zip(deadlines, waiting, strict=True)
    ]
    pressing = (
        gaps if new == deadlines else _gaps([each for each in new if each[1]], existing, times)
    )
    whole_within = min(
        (gap.whole_launch_within(headroom_slots, times) for gap in pressing), default=None
    )
    return StartPlan(
        slots=slots,
        why=why,
        is_for_one=times.job_seconds > promise - times.usually_up_seconds,
        side_by_side=min(alone, slots),
        items_per_hour=rate,
        late_jobs=max((gap.missing_jobs for gap in gaps), default=0),
        launch_by=_instant_in(first_within, now),
        ladder_opens_at=_instant_in(whole_within, now),
        oldest_since=waiting[0].since if waiting else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _StartTimes:
    """The times that a start plan is made of, in seconds."""

    #: Of one job on a slot of the usual kind.
    job_seconds: float
    tick_seconds: float
    boot_seconds: float
    #: Until a launch of now is up in 19 of 20 cases.
    surely_up_seconds: float
    #: How much earlier than promised starts are planned, and the launch of one slot alone.
    early_seconds: float
    early_seconds_alone: float

    @property
    def usually_up_seconds(self) -> float:
        """Return the seconds until half of all launches of now are up."""
        return self.boot_seconds + self.tick_seconds

    def planned_start(self, due: float) -> float:
        """Return in how many seconds a job is planned to start that is due in ``due``."""
        is_past_saving = due < self.usually_up_seconds
        if is_past_saving:
            return self.usually_up_seconds + self.boot_seconds
        return max(due - self.early_seconds, self.usually_up_seconds)

    def jobs_by(self, planned_start: float) -> int:
        """Return how many jobs a slot launched now starts by a time, or within one boot."""
        works_for = max(planned_start - self.usually_up_seconds, self.boot_seconds)
        return jobs_started(works_for, self.job_seconds)

    def launch_within(self, due: float, slots: int) -> float:
        """Return in how many seconds so many slots must be launched for a job due in ``due``."""
        early = self.early_seconds if slots > 1 else self.early_seconds_alone
        return due - self.surely_up_seconds - early


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gap:
    """Jobs up to one deadline that the present slots do not start by it."""

    missing_jobs: int
    #: Seconds until the last of them is due, and until it is planned to start.
    due: float
    planned_start: float
    #: Jobs that one slot launched now starts by then.
    jobs_per_slot: int
    #: Whether a launch at the next tick is too late for them.
    is_urgent: bool

    def slots_now(self, needed: int, times: _StartTimes) -> int:
        """Return how many of the ``needed`` slots cannot wait a tick."""
        if self.is_urgent:
            return math.ceil(self.missing_jobs / self.jobs_per_slot)
        later = times.jobs_by(self.planned_start - times.tick_seconds)
        if self.jobs_per_slot <= later:
            return 0
        over = self.missing_jobs - needed * later
        return max(math.ceil(over / (self.jobs_per_slot - later)), 0)

    def first_launch_within(self, needed: int, times: _StartTimes) -> float:
        """Return in how many seconds the first of the needed slots must be launched."""
        launch_within = times.launch_within(self.due, needed)
        return launch_within - times.tick_seconds - self.busy(needed, times)

    def whole_launch_within(self, headroom_slots: float, times: _StartTimes) -> float:
        """Return in how many seconds the whole headroom must be launched, whatever the margin."""
        slots = int(min(max(headroom_slots, 1), self.missing_jobs))
        return self.due - times.surely_up_seconds - self.busy(slots, times)

    def busy(self, slots: int, times: _StartTimes) -> float:
        """Return the seconds from the first start to the last, if so many slots share the jobs."""
        return (math.ceil(self.missing_jobs / slots) - 1) * times.job_seconds


def _gathered_within(
    gaps: Sequence[_Gap],
    needed: int,
    waiting: Sequence[Waiting],
    existing: Sequence[tuple[float, float]],
    times: _StartTimes,
    knowledge: Knowledge,
    policy: Policy,
    now: datetime,
) -> float:
    """Return in how many seconds no more work is waited for; infinite: as long as it may."""
    if not is_measured(knowledge):
        return math.inf if existing else 0.0
    jobs_at_last = jobs_started(times.boot_seconds, times.job_seconds)
    if all(math.ceil(gap.missing_jobs / jobs_at_last) <= needed for gap in gaps):
        return math.inf
    return (waiting[0].since + _GATHERED_AFTER * policy.start_within - now).total_seconds()


def _instant_in(seconds: float | None, now: datetime) -> datetime | None:
    return None if seconds is None else now + timedelta(milliseconds=max(round(1000 * seconds), 0))


def _gaps(
    deadlines: Sequence[tuple[float, int]],
    existing: Sequence[tuple[float, float]],
    times: _StartTimes,
) -> Iterator[_Gap]:
    came = 0
    for due, jobs in deadlines:
        came += jobs
        planned = times.planned_start(due)
        missing = came - sum(jobs_started(planned - free, takes) for free, takes in existing)
        if missing <= 0:
            continue
        each = times.jobs_by(planned)
        yield _Gap(
            missing_jobs=missing,
            due=due,
            planned_start=planned,
            jobs_per_slot=each,
            is_urgent=times.launch_within(due, math.ceil(missing / each)) < times.tick_seconds,
        )


def next_margin(margin: timedelta | None, *, started: int, late: int, policy: Policy) -> timedelta:
    """Return the margin after some jobs have started: late jobs raise it, the others lower it.

    One late job counts as much as 24 jobs in time. So the margin stands still when 24 of 25 jobs
    start within the promise, however much jobs and boots differ, and whatever order SQS gives. A
    margin below 0 takes back what the plan holds in reserve for every launch. Worked: start within
    10 min, so a step of 12 s; 100 jobs of which 10 are late move the margin by
    12 x (0.96 x 10 - 0.04 x 90) = 72 s.

    Args:
        margin: up to now; None: nothing is learned yet.
        started: jobs that have been claimed.
        late: those of them that had waited for longer than ``start_within``.
        policy: the promise.
    """
    before = policy.start_within * _MARGIN_AT_FIRST if margin is None else margin
    moved = _SHARE_IN_TIME * late - (1.0 - _SHARE_IN_TIME) * (started - late)
    moved = min(max(moved, -_MOVED_AT_MOST), _MOVED_AT_MOST)
    least, most = _MARGIN_AT_LEAST * policy.tick, policy.start_within * _MARGIN_AT_MOST
    return min(max(before + policy.start_within * _MARGIN_STEP * moved, least), most)
