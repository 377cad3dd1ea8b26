"""What ``advise`` works out: when not to use Spindown, the gaps between work, and long jobs.

Each case against Spindown comes with the figure at which it begins to apply. All money is USD a
month of 730 hours.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from spindown.domain.commit_interval import slowdown
from spindown.domain.reason import Reason, ReasonCode

#: A saving below this is not worth another system to run.
LEAST_SAVING = 50.0


class Answer(StrEnum):
    """Whether a case is a reason not to use Spindown."""

    NO = "does not apply"
    YES = "applies"
    #: The figures are known, but only the user can judge them.
    JUDGE = "you decide"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One case."""

    answer: Answer
    #: The figure at which the case tips, in the unit that ``reason`` gives; infinite: never.
    break_even: float
    #: Its code names the case.
    reason: Reason


def judge_latency(  # noqa: PLR0913 - one figure each
    *,
    month: float,
    warm_month: float,
    jobs: float,
    promise: float,
    boot: float,
    wait: float,
    warm_wait: float,
    warm_workers: int = 1,
    is_kept: bool = False,
) -> Verdict:
    """Judge work that cannot wait for a boot: it needs ``warm_workers``, and pays for them.

    Args:
        month: cost with the advised settings.
        warm_month: cost of the same without patience, with workers kept warm.
        jobs: a month.
        promise: time within which 95 % of jobs should start, seconds.
        boot: usual time from launch to first job, seconds.
        wait: time within which 95 % start with the advised settings, seconds.
        warm_wait: the same with those warm workers. If it is no shorter and late, jobs wait for
            each other and not for a boot, and no money for warm workers helps.
        warm_workers: how many.
        is_kept: whether the advised settings keep the promise without any, since workers run
            anyway when jobs come.
    """
    more = max(warm_month - month, 0.0)
    is_sooner = warm_wait < wait
    # In time without being sooner: warm workers are among the advised settings.
    helps = is_sooner or wait <= promise
    each = more / jobs if jobs > 0.0 and is_sooner else math.inf
    return Verdict(
        answer=Answer.YES if promise < boot and not is_kept and helps else Answer.NO,
        break_even=each,
        reason=Reason(
            ReasonCode.CASE_LATENCY,
            {
                "boot": boot,
                "warm_workers": warm_workers,
                "month": warm_month,
                "more": more,
                "now": wait,
                "helps": helps,
                "wait": warm_wait,
                "each": each,
            },
        ),
    )


def judge_constant_load(
    *,
    month: float,
    work_month: float,
    reserved_month: float,
    machine: str,
    share: float,
    machines: int,
) -> Verdict:
    """Judge work that never stops: a reserved machine may be cheaper than launched ones.

    Worked: work fills one machine for 40 % of all hours and costs 100 USD, so all hours would cost
    250. A reserved machine at 200 pays from 200 / 250 = 80 % on. Only the cost of the work is
    scaled, since boots and idle time do not grow with the load. If the reserved machine is cheaper
    already, the whole cost is scaled.

    Args:
        month: cost with the advised settings.
        work_month: of it, the cost of the work alone, without boots and idle time.
        reserved_month: cost of the reserved machines that could do all the work.
        machine: their type.
        share: of their hours that the work fills, 0 to 1.
        machines: how many.
    """
    grows = month if month > reserved_month else work_month
    full = grows / share if share > 0.0 else math.inf
    tips = reserved_month / full if full > 0.0 and math.isfinite(full) else math.inf
    return Verdict(
        answer=Answer.YES if month > reserved_month else Answer.NO,
        break_even=tips if tips <= 1.0 else math.inf,
        reason=Reason(
            ReasonCode.CASE_CONSTANT_LOAD,
            {
                "machines": machines,
                "machine": machine,
                "month": reserved_month,
                "share": share,
                "tips": tips,
            },
        ),
    )


def judge_small_bill(*, month: float, by_hand_month: float, jobs: float) -> Verdict:
    """Judge a bill so small that no system is worth the trouble.

    Args:
        month: cost with the advised settings.
        by_hand_month: the same hours of work on demand, started and stopped by hand.
        jobs: a month.
    """
    saving = by_hand_month - month
    factor = LEAST_SAVING / saving if saving > 0.0 else math.inf
    tips = factor * jobs if math.isfinite(factor) else math.inf
    return Verdict(
        answer=Answer.YES if saving < LEAST_SAVING else Answer.NO,
        break_even=tips,
        reason=Reason(
            ReasonCode.CASE_SMALL_BILL,
            {
                "month": by_hand_month,
                "saving": saving,
                "least": LEAST_SAVING,
                "tips": tips,
                "jobs": jobs,
            },
        ),
    )


def judge_interruptions(
    *, month: float, on_demand_month: float, interruptions: float, redone_hours: float
) -> Verdict:
    """Judge work that cannot bear to be interrupted: it runs on demand only.

    Args:
        month: cost with the advised settings.
        on_demand_month: cost of the same on demand only.
        interruptions: a month.
        redone_hours: hours of work that were done again, a month.
    """
    more = max(on_demand_month - month, 0.0)
    each = more / interruptions if interruptions > 0.0 else math.inf
    return Verdict(
        answer=Answer.JUDGE,
        break_even=each,
        reason=Reason(
            ReasonCode.CASE_NO_INTERRUPTION,
            {
                "interruptions": interruptions,
                "redone_hours": redone_hours,
                "month": on_demand_month,
                "more": more,
                "each": each,
            },
        ),
    )


def judge_long_items(
    *, longest: float, rate: float, boot: float, spot: float, on_demand: float
) -> Verdict:
    """Judge items that keep no checkpoint: one that is interrupted begins anew.

    An item of h hours is expected to take h F on spot (``commit_interval.slowdown``, as if it kept
    a checkpoint only at its end). It tips where that costs as much as h on demand. Worked: 0.2 and
    0.5 USD an hour, 0.5 reclaims an hour, boots of 0.05 h: F = 2.5 at 3.158 h.

    Args:
        longest: of the items without a checkpoint, hours; 0: there are none.
        rate: reclaims an hour.
        boot: hours.
        spot: USD an hour.
        on_demand: likewise.
    """
    tips = _tipping_length(rate, boot, on_demand / spot) if spot > 0.0 else 0.0
    return Verdict(
        answer=Answer.YES if longest > tips else Answer.NO,
        break_even=tips,
        reason=Reason(
            ReasonCode.CASE_LONG_ITEMS,
            {
                "longest": longest,
                "tips": tips,
                "rate": rate,
                "spot": spot,
                "on_demand": on_demand,
            },
        ),
    )


def _tipping_length(rate: float, boot: float, ratio: float) -> float:
    """Return the hours of work in one piece from which F exceeds a ratio; infinite: never."""
    if rate <= 0.0:
        return math.inf
    low, high = 0.0, _LENGTH_AT_MOST
    if slowdown(rate=rate, boot=boot, interval=high, cost=0.0) <= ratio:
        return math.inf
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        is_below = slowdown(rate=rate, boot=boot, interval=middle, cost=0.0) <= ratio
        low, high = (middle, high) if is_below else (low, middle)
    return low


#: Hours; no attempt may be longer (``lease.RELEASE_AFTER``), and few years are.
_LENGTH_AT_MOST = 10_000.0
#: To less than a second.
_HALVINGS = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class GapShare:
    """Gaps that a worker outlives: it is still there when the next work comes."""

    covered: int
    gaps: int

    @property
    def share(self) -> float:
        """Return covered over all; 0 without gaps."""
        return self.covered / self.gaps if self.gaps else 0.0


def find_gaps(present: Iterable[tuple[float, bool]], arrivals: Sequence[float]) -> list[float]:
    """Return how long there was no work each time, seconds, in order of time.

    Worked: work is seen gone at 100, the next job comes at 160: a gap of 60.

    Args:
        present: (second, whether there was work) of each look, in order of time.
        arrivals: seconds at which jobs came, sorted.
    """
    gaps = []
    was_present = False
    for at, is_present in present:
        if was_present and not is_present:
            following = bisect_left(arrivals, at)
            if following < len(arrivals):
                gaps.append(arrivals[following] - at)
        was_present = is_present
    return gaps


def gap_share(gaps: Iterable[float], timeout: float) -> GapShare:
    """Return how many gaps are not longer than an idle timeout, both in seconds."""
    ordered = sorted(gaps)
    return GapShare(covered=bisect_right(ordered, timeout), gaps=len(ordered))


def gap_quantile(gaps: Iterable[float], share: float) -> float:
    """Return the shortest timeout that covers a share of the gaps, seconds; 0 without any."""
    ordered = sorted(gaps)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


_HOUR = timedelta(hours=1)
#: A job is long from here on: shorter ones are done before a wait for spot is worth a word.
LONG = _HOUR
#: The deadline that is shown leaves a job its own time once more for waiting and for losses.
_ROOM = 2
#: The longest that `finish_within` may be.
_MOST = timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class LongJobs:
    """The long jobs of a history, and what a deadline could save.

    No history says by when a job must be done, nor when there was no spot capacity. So these are
    figures for a person who knows, and no advice.
    """

    #: A month.
    jobs: float
    #: Of work, a month.
    hours: float
    longest: timedelta
    #: A value of ``finish_within`` that leaves all of them time to wait.
    within: timedelta
    #: USD that an hour of them costs more on demand.
    more_an_hour: float

    @property
    def more_a_month(self) -> float:
        """Return USD a month that they would cost more, all of them on demand."""
        return self.more_an_hour * self.hours


def find_long_jobs(
    seconds: Sequence[float], *, months: float, spot: float, on_demand: float, done_after: float
) -> LongJobs | None:
    """Return the jobs of an hour and more; None: there are none, or a deadline saves nothing.

    Worked: two jobs of 2 h and 5 h in half a month, at 0.20 and 0.50 USD an hour: 4 jobs and 14
    hours a month, 4.20 USD more on demand; a deadline of 10 h leaves the longer one 5 h to wait.
    If the last job is done 13 h after it was sent, since jobs wait for each other, the deadline is
    18 h: no shorter one can be kept, whatever is bought.

    Args:
        seconds: of each job, on the machine that does most of the work.
        months: length of the history.
        spot: USD an hour of that machine.
        on_demand: likewise.
        done_after: seconds from the sending of a job to its end, at the most, as settings are.
    """
    long = [one for one in seconds if one >= LONG.total_seconds()]
    if not long or on_demand <= spot:
        return None
    longest = timedelta(seconds=max(long))
    # Its own time once more, after all that it waits for others anyway.
    done = max(timedelta(seconds=done_after), longest)
    within = math.ceil((done + (_ROOM - 1) * longest) / _HOUR) * _HOUR
    if within > _MOST:
        return None
    return LongJobs(
        jobs=len(long) / months,
        hours=math.fsum(long) / LONG.total_seconds() / months,
        longest=longest,
        within=within,
        more_an_hour=on_demand - spot,
    )
