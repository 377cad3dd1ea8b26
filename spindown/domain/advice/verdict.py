"""When not to use Spindown, each case with the figure at which it tips.

All money is USD a month of 730 hours.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

#: A saving below this is not worth another system to run.
LEAST_SAVING = 50.0
_MINUTE = 60.0


class Answer(StrEnum):
    """Whether a case is a reason not to use Spindown."""

    NO = "does not apply"
    YES = "applies"
    #: The figures are here; what they are worth only the user knows.
    JUDGE = "you decide"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One case."""

    case: str
    answer: Answer
    #: The figure at which the case tips, in the unit that ``sentence`` gives; infinite: never.
    break_even: float
    sentence: str


def judge_latency(
    *,
    month: float,
    warm_month: float,
    jobs: float,
    promise: float,
    boot: float,
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
        warm_wait: time within which 95 % start with those warm workers, seconds.
        warm_workers: how many.
        is_kept: whether the advised settings keep the promise without any, since workers run
            anyway when jobs come.
    """
    more = max(warm_month - month, 0.0)
    each = more / jobs if jobs > 0.0 else math.inf
    return Verdict(
        case="latency-critical work",
        answer=Answer.YES if promise < boot and not is_kept else Answer.NO,
        break_even=each,
        sentence=(
            f"A cold start takes {boot:.0f} s. With start_within = 1m, drain_within = 2m, "
            f"scale_up_threshold = 1 and warm_workers = {warm_workers} the month costs "
            f"${warm_month:,.2f}, ${more:,.2f} more, and 95 % of jobs start within "
            f"{_say_wait(warm_wait)}: worth it from ${each:.3g} a job."
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
    """Judge work that never stops: a reserved machine is cheaper than any that comes and goes.

    Worked: 100 USD for work that fills one machine for 40 % of all hours is 250 for all hours; a
    reserved one at 200 pays from 200 / 250 = 80 % on. Boots and idle time do not grow with the
    load, so that below that only the work counts; where they make the reserved one cheaper
    already, it pays from where the whole cost reaches its price.

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
    reserved = (
        f"One reserved {machine} costs" if machines == 1 else f"{machines} reserved {machine} cost"
    )
    kept = "it" if machines == 1 else "them"
    when = (
        f"that pays from {_percent(tips)} busy hours on"
        if tips <= 1.0
        else "no load is constant enough for that to pay"
    )
    return Verdict(
        case="constant load",
        answer=Answer.YES if month > reserved_month else Answer.NO,
        break_even=tips if tips <= 1.0 else math.inf,
        sentence=(
            f"{reserved} ${reserved_month:,.2f} a month; the work would keep {kept} busy for "
            f"{_percent(share)} of the hours, and {when}."
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
    from_here = (
        f"it saves ${LEAST_SAVING:.0f} from {tips:,.0f} such jobs a month on, now {jobs:,.0f}"
        if math.isfinite(tips)
        else "more of the same work would not change that"
    )
    told = f"saves ${saving:,.2f}" if saving >= 0.0 else f"costs ${-saving:,.2f} more"
    return Verdict(
        case="too small a bill",
        answer=Answer.YES if saving < LEAST_SAVING else Answer.NO,
        break_even=tips,
        sentence=(
            f"The same work on demand, started and stopped by hand without an idle minute, costs "
            f"${by_hand_month:,.2f} a month: Spindown {told}; {from_here}."
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
    worth = (
        f"worth it if an interruption costs you more than ${each:,.2f}"
        if math.isfinite(each)
        else "none was seen here"
    )
    return Verdict(
        case="work that bears no interruption",
        answer=Answer.JUDGE,
        break_even=each,
        sentence=(
            f"Expect {interruptions:,.0f} interruptions a month, {redone_hours:.1f} hours of work "
            f"done again. On demand only costs ${on_demand_month:,.2f} a month, ${more:,.2f} more: "
            f"{worth}."
        ),
    )


def _say_wait(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 2 * _MINUTE else f"{seconds / _MINUTE:.0f} min"


def _percent(share: float) -> str:
    """Return a share in words; little is not nothing."""
    return "less than 1%" if 0.0 < share < _LEAST_PERCENT else f"{share:.0%}"


_LEAST_PERCENT = 0.01
