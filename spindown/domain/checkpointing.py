"""When to commit progress, and how much longer work takes because of it and of interruptions.

The worker's ``writer`` commits besides when results fill its memory, and at once when EC2 warns.
"""

import math
from datetime import timedelta

from spindown.domain.policy import Policy

#: With a shorter interval, requests cost more than the work that they save.
SHORTEST_INTERVAL = timedelta(seconds=10)
#: With a longer interval, a crash loses too much work; no interruption rate counts crashes.
LONGEST_INTERVAL = timedelta(minutes=30)

_HOUR = timedelta(hours=1)
_SHORTEST = SHORTEST_INTERVAL / _HOUR
_LONGEST = LONGEST_INTERVAL / _HOUR


def interval_hours(policy: Policy, *, cost_hours: float, rate: float) -> float:
    """Return the checkpoint interval in force at ``rate`` interruptions per hour, in hours.

    Without a setting it is Young's interval, sqrt(2 x cost / rate), within 10 s and 30 min. Worked:
    a checkpoint of 10 s and 10.4 h between interruptions: sqrt(2 x 10 x 37,440) = 865 s.
    """
    if policy.checkpoint_interval is not None:
        return max(policy.checkpoint_interval / _HOUR, 1.0 / 3600.0)
    mean = 1.0 / rate if rate > 0.0 else math.inf
    if math.isinf(mean):
        return _LONGEST
    best = math.sqrt(2.0 * max(0.0, cost_hours) * mean)
    return min(max(best, _SHORTEST), _LONGEST)


def is_due(policy: Policy, *, items_since: int, elapsed: timedelta, interval: timedelta) -> bool:
    """Tell whether progress should be committed now: by items, or by time, whichever first.

    Args:
        policy: gives the number of items, if there is one.
        items_since: items finished since the last commit; with none there is nothing to commit.
        elapsed: time since the last commit.
        interval: what ``interval_hours`` says, as a span of time.
    """
    if items_since <= 0:
        return False
    by_items = policy.checkpoint_items is not None and items_since >= policy.checkpoint_items
    return by_items or elapsed >= interval


#: With a larger exponent the work never ends; exp(50) is large enough to rank last.
_EXPONENT_AT_MOST = 50.0


def slowdown(*, rate: float, boot: float, interval: float, cost: float) -> float:
    """Return F: hours billed per hour of useful work, checkpoints, redone work and boots included.

    F = C/c + e^(lb) (e^(lc) - 1) / (lc): a checkpoint of cost C every c hours, and at each
    interruption (rate l) on average half an interval is redone and a boot b is paid again.
    Worked: l = 0.5, b = 0.05, c = 0.25, C = 0.005: 0.02 + 1.025315 x 1.065188 = 1.112153.
    As l goes to 0, F goes to 1 + C/c.

    Args:
        rate: interruptions per hour.
        boot: billed hours of one boot.
        interval: hours between checkpoints, above 0.
        cost: hours that one checkpoint takes.
    """
    exposed = min(rate * interval, _EXPONENT_AT_MOST)
    redone = math.expm1(exposed) / exposed if exposed > 0.0 else 1.0
    return cost / interval + math.exp(min(rate * boot, _EXPONENT_AT_MOST)) * redone
