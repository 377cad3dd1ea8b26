"""How long a worker waits for more work (the idle timeout), and how often it asks.

``idle_timeout`` is the rule, ``timeout_told`` what ticks tell of it, ``timeout_heard`` the one that
a worker uses. What a worker then does is decided in ``domain.worker_lifecycle``.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache

from spindown.domain.learning import (
    Knowledge,
    boot_p50,
    items_per_job,
    surely_up,
    usual_throughput,
)
from spindown.domain.policy import Dispatch, Policy
from spindown.domain.shape import of_dispatch
from spindown.domain.value_range import span

#: The last look must ask every server of SQS, which takes a long poll of a second or more. The
#: rest is for a message that is on its way.
SHORTEST_TIMEOUT = timedelta(seconds=2)
LONGEST_TIMEOUT = timedelta(minutes=30)
#: How many gaps it takes to trust their distribution.
LEARN_FROM = 5

#: How far a learned timeout may be from the one that workers know, as a share of it.
_NEAR = 0.1

#: How long an idle worker polls without a pause; the pause after that, as a share of its further
#: idle time; and the longest pause, which bounds how late it notices a message.
_EAGER_FOR = timedelta(seconds=20)
_PAUSE_SHARE = 0.25
_LONGEST_PAUSE = timedelta(seconds=20)


def idle_timeout(knowledge: Knowledge, policy: Policy) -> timedelta:
    """Return how long a worker stays idle before it ends: as fixed by policy, or learned.

    A gap g costs min(g, timeout) of paid time, plus a new boot b if the gap is longer. Without
    samples the timeout is b. That costs never more than twice what it would cost to know the gap
    beforehand (ski rental). With samples it is the timeout of least mean cost over them, which is
    better (Augustine, Irani and Swamy, FOCS 2004, for a known distribution). The price does not
    matter, since boot and idle time are billed alike. A machine that was launched for one job waits
    for no other.
    """
    if policy.dispatch is Dispatch.DEDICATED:
        return SHORTEST_TIMEOUT
    if policy.idle_timeout is not None:
        return policy.idle_timeout
    boot = worth_of_boot(knowledge, policy)
    if len(knowledge.gaps) < LEARN_FROM:
        best = boot
    else:
        best = timedelta(seconds=cheapest_timeout(knowledge.gaps, boot.total_seconds()))
    return min(max(best, SHORTEST_TIMEOUT), LONGEST_TIMEOUT)


def timeout_told(known: timedelta | None, knowledge: Knowledge, policy: Policy) -> timedelta:
    """Return the timeout that workers are told: a learned one only if it differs by a tenth.

    Near the best timeout the cost hardly changes, but every job changes what is learned. It is that
    of machines for any job, also where the workload's usual ones are for one job each: types may
    have others, and a machine for one job heeds none (``timeout_heard``).
    """
    timeout = idle_timeout(knowledge, replace(policy, dispatch=Dispatch.POOL))
    if known is None or policy.idle_timeout is not None:
        return timeout
    return known if abs(known - timeout) <= known * _NEAR else timeout


def timeout_heard(told: timedelta | None, policy: Policy) -> timedelta:
    """Return the timeout that a worker uses: the one that it was told, if any.

    Args:
        told: what ticks have told (``timeout_told``); None: nothing.
        policy: as the worker follows it.
    """
    is_learned = policy.idle_timeout is None and policy.dispatch is not Dispatch.DEDICATED
    return told if is_learned and told is not None else idle_timeout(Knowledge(), policy)


def idle_within(knowledge: Knowledge, policy: Policy, shape: str) -> timedelta:
    """Return how long a worker of a shape may be idle before it should have ended; "": of none."""
    return idle_timeout(knowledge, of_dispatch(policy, shape)) + policy.scale_down_delay


def worth_of_boot(knowledge: Knowledge, policy: Policy) -> timedelta:
    """Return how much idle time is worth it to save one boot.

    One boot serves all jobs that arrive during the boot (b) and the hold (h); an idle worker is
    paid in that time as well. So a worker that stays for the next job saves less than a boot: a
    fleet without idle time pays s / (h + b + s) of a boot for each job of s. Worked: b 90 s, h 400
    s, s 80 s: 13 s.
    """
    boot, hold = boot_p50(knowledge, policy), timedelta(0)
    if policy.gathers(1):
        hold = max(policy.start_within - surely_up(knowledge, policy, ticks=2), hold)
    job = span(items_per_job(knowledge, policy) / usual_throughput(knowledge, policy))
    return boot * (job / (hold + boot + job))


def cheapest_timeout(gaps: Sequence[float], boot: float) -> float:
    """Return the timeout of least mean cost, all in seconds; the shortest of equals.

    Only 0 and the gaps themselves can be best, since between two gaps the cost only rises. Worked:
    gaps 30, 30, 30, 600, boot 180: timeout 0 costs 4 x 180 = 720, timeout 30 costs 4 x 30 + 180
    = 300, timeout 600 costs 90 + 600 = 690; so 30.
    """
    return _cheapest(tuple(gaps), boot)


@lru_cache(maxsize=64)
def _cheapest(gaps: tuple[float, ...], boot: float) -> float:
    """Return the same, remembered: every tick asks for the same gaps."""
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

    The longer a worker is idle, the more rarely it polls. So new work goes to the workers that were
    busy last, and the others reach their timeout and end. If all polled alike, they would share the
    work and none would end.
    """
    return min(max(idle_for - _EAGER_FOR, timedelta(0)) * _PAUSE_SHARE, _LONGEST_PAUSE)
