"""How long a worker waits for more work, and how often it asks."""

from collections.abc import Sequence
from datetime import timedelta
from functools import lru_cache

from spindown.domain.learning import (
    Knowledge,
    boot_p50,
    items_per_job,
    surely_up,
    usual_throughput,
)
from spindown.domain.policy import Policy

#: A last look that asks every server of SQS takes a long poll, of a second or more; the rest is
#: room for a message under way.
SHORTEST_TIMEOUT = timedelta(seconds=2)
LONGEST_TIMEOUT = timedelta(minutes=30)
#: Gaps from which their distribution is trusted.
LEARN_FROM = 5

#: How far a learned timeout may be from the one that workers were told, as a share of it.
_NEAR = 0.1

#: How long an idle worker polls without a pause, what share of its further idle time it pauses
#: between polls, and the longest pause, which bounds how late it can notice a message.
_EAGER_FOR = timedelta(seconds=20)
_PAUSE_SHARE = 0.25
_LONGEST_PAUSE = timedelta(seconds=20)


def idle_timeout(knowledge: Knowledge, policy: Policy) -> timedelta:
    """Return how long a worker stays idle before it ends: as fixed by policy, or learned.

    Keeping an idle worker for a gap g costs min(g, timeout) of paid time, plus a new boot b if
    the gap is longer. Without samples the timeout is b: never more than twice the cost of knowing
    the gap beforehand (ski rental). With samples it is the timeout of least mean cost over them,
    which beats that bound (Augustine, Irani and Swamy, FOCS 2004, for a known distribution).
    The price cancels: boot and idle time are billed alike.
    """
    if policy.idle_timeout is not None:
        return policy.idle_timeout
    boot = worth_of_boot(knowledge, policy)
    if len(knowledge.gaps) < LEARN_FROM:
        best = boot
    else:
        best = timedelta(seconds=cheapest_timeout(knowledge.gaps, boot.total_seconds()))
    return min(max(best, SHORTEST_TIMEOUT), LONGEST_TIMEOUT)


def is_about(told: timedelta, timeout: timedelta) -> bool:
    """Tell whether a timeout is so near to what workers were told that they need no other.

    Near its best the cost hardly depends on it, and what has been learned moves with every job.
    """
    return abs(told - timeout) <= told * _NEAR


def worth_of_boot(knowledge: Knowledge, policy: Policy) -> timedelta:
    """Return how much idle time is worth it to save one boot.

    A boot, b, if work that comes is never held. If launches are held for h, the next boot serves
    all that comes in h, so bridging one gap saves little: in the time that one job of s takes a
    fleet that ends at once pays s / (h + s) of a boot. Worked: b 90 s, h 400 s, s 80 s: 15 s.
    """
    boot = boot_p50(knowledge, policy)
    if policy.scale_up_threshold <= 1:
        return boot
    hold = policy.start_within - surely_up(knowledge, policy, ticks=2)
    hours = items_per_job(knowledge, policy) / usual_throughput(knowledge, policy)
    job = timedelta(hours=hours)
    return boot * (job / (max(hold, timedelta(0)) + job))


def cheapest_timeout(gaps: Sequence[float], boot: float) -> float:
    """Return the timeout of least mean cost, all in seconds; the shortest of equals.

    Only 0 and the gaps themselves can be best: between two gaps the cost only rises. Worked:
    gaps 30, 30, 30, 600, boot 180: timeout 0 costs 4 x 180 = 720, timeout 30 costs 4 x 30 + 180
    = 300, timeout 600 costs 90 + 600 = 690; so 30.
    """
    return _cheapest(tuple(gaps), boot)


@lru_cache(maxsize=64)
def _cheapest(gaps: tuple[float, ...], boot: float) -> float:
    """Asked for the same gaps in every tick."""
    ordered = sorted(max(0.0, gap) for gap in gaps)
    best, least = 0.0, boot * len(ordered)
    bridged = 0.0
    for index, gap in enumerate(ordered):
        bridged += gap
        longer = len(ordered) - index - 1
        cost = bridged + longer * (gap + boot)
        if cost < least:
            best, least = gap, cost
    return best


def poll_wait(idle_for: timedelta) -> timedelta:
    """Return the pause before the next poll of a worker that has been idle this long.

    The longer idle, the rarer: new work finds the workers that were busy last, the others reach
    their timeout and go. Everybody polling alike would share the work so that nobody ends.
    """
    return min(max(idle_for - _EAGER_FOR, timedelta(0)) * _PAUSE_SHARE, _LONGEST_PAUSE)
