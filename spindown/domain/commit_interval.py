"""When to commit progress, and how much longer work takes because of it and of interruptions.

A commit that is due waits while one is under way, and the last one goes with the end of the job
(``worker.writer.Writer.write_if_due``). That the last commit is made in time at a notice is decided
in ``notice_time`` (``commit_by``) and ``worker_lifecycle``. A commit is written in ``job.commit``.
"""

import math
from dataclasses import dataclass
from datetime import timedelta

from spindown.domain.policy import Policy

#: With a shorter interval, requests cost more than the work that they save.
SHORTEST_INTERVAL = timedelta(seconds=10)
#: With a longer interval, a crash loses too much work; no interruption rate counts crashes.
LONGEST_INTERVAL = timedelta(minutes=30)
#: Results that fill so much of the worker's memory are committed at once.
COMMIT_BYTES = 64 * 1024**2
#: Time that computing stands still for a commit, until one has been measured: two requests to S3,
#: for a small manifest and a small part.
COST_ESTIMATE = timedelta(seconds=1)

_HOUR = timedelta(hours=1)
_SHORTEST = SHORTEST_INTERVAL / _HOUR
_LONGEST = LONGEST_INTERVAL / _HOUR


def interval_hours(
    policy: Policy, *, cost_hours: float, rate: float, items_per_hour: float | None = None
) -> float:
    """Return the checkpoint interval in force at ``rate`` interruptions per hour, in hours.

    Without a setting it is Young's interval, sqrt(2 x cost / rate), within 10 s and 30 min. Worked:
    a checkpoint of 10 s and 10.4 h between interruptions: sqrt(2 x 10 x 37,440) = 865 s. With
    ``items_per_hour`` of a slot, ``checkpoint_items`` counts too, whichever comes first.
    """
    interval = _interval_by_time(policy, cost_hours, rate)
    if items_per_hour is None or policy.checkpoint_items is None:
        return interval
    return min(interval, max(1, policy.checkpoint_items) / items_per_hour)


def _interval_by_time(policy: Policy, cost_hours: float, rate: float) -> float:
    if policy.checkpoint_interval is not None:
        return max(policy.checkpoint_interval / _HOUR, 1.0 / 3600.0)
    mean = 1.0 / rate if rate > 0.0 else math.inf
    if math.isinf(mean):
        return _LONGEST
    best = math.sqrt(2.0 * max(0.0, cost_hours) * mean)
    return min(max(best, _SHORTEST), _LONGEST)


def commit_after(policy: Policy, *, cost: timedelta | None, rate: float) -> timedelta:
    """Return how long after a commit the next is due by time.

    Args:
        policy: gives the interval, if it is fixed.
        cost: time that the last commit took; None: there was none.
        rate: interruptions per hour.
    """
    cost_hours = (cost or COST_ESTIMATE) / _HOUR
    return timedelta(hours=interval_hours(policy, cost_hours=cost_hours, rate=rate))


@dataclass(frozen=True, slots=True, kw_only=True)
class DueCommit:
    """What should be committed now."""

    #: Items that are done.
    results: bool
    #: The code's own state, if it has changed.
    state: bool


def commit_due(
    policy: Policy,
    *,
    items: int,
    in_bytes: int = 0,
    elapsed: timedelta,
    cost: timedelta | None,
    rate: float,
    is_at_risk: bool = False,
) -> DueCommit:
    """Return what should be committed now: by items, bytes or time, whichever comes first.

    Args:
        policy: ``checkpoint_items`` and ``checkpoint_interval``.
        items: done since the last commit; with none there are no results to commit.
        in_bytes: what their results take of the worker's memory.
        elapsed: time since the last commit.
        cost: time that the last commit took; None: there was none.
        rate: interruptions per hour.
        is_at_risk: EC2 has warned since the last commit that it may take the machine soon.
    """
    is_time = is_at_risk or elapsed >= commit_after(policy, cost=cost, rate=rate)
    enough = policy.checkpoint_items is not None and items >= policy.checkpoint_items
    results = items > 0 and (is_time or enough or in_bytes >= COMMIT_BYTES)
    return DueCommit(results=results, state=results or is_time)


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
