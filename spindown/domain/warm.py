"""How many workers are kept warm now, which ones, and how many hours that is in a month."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from spindown.domain.fleet import Worker, WorkerState
from spindown.domain.offer import HOURS_PER_MONTH
from spindown.domain.policy import Policy, WarmSpan, Weekday

_DAY = timedelta(days=1)
_DAYS = tuple(Weekday)
_DAYS_PER_MONTH = HOURS_PER_MONTH / 24


def at_hour(policy: Policy, now: datetime) -> Policy:
    """Return the policy with ``warm_workers`` as its schedule has it now.

    It is the largest number among ``warm_workers`` and the spans in force, and never more than
    ``max_workers``.
    """
    if not policy.warm_schedule:
        return policy
    held = [span.workers for span in policy.warm_schedule if _holds(span, now)]
    return replace(policy, warm_workers=min(max([policy.warm_workers, *held]), policy.max_workers))


def _holds(span: WarmSpan, now: datetime) -> bool:
    """Tell whether a span is in force, by the local time of its zone, summer time included.

    A span that ends before it starts lasts into the next day; its day is that of the start.
    """
    local = now.astimezone(ZoneInfo(span.time_zone))
    clock = timedelta(hours=local.hour, minutes=local.minute, seconds=local.second)
    today, yesterday = _DAYS[local.weekday()], _DAYS[local.weekday() - 1]
    if span.start < span.end:
        return today in span.days and span.start <= clock < span.end
    return (today in span.days and clock >= span.start) or (
        yesterday in span.days and clock < span.end
    )


def kept_warm_of(workers: Sequence[Worker], policy: Policy) -> frozenset[str]:
    """Return the workers that ``warm_workers`` keeps: the youngest, since they live longest.

    A booting worker is kept only if there are not enough others, since it may never come up.
    """
    if policy.warm_workers <= 0:
        return frozenset()
    staying = sorted(
        (w for w in workers if w.takes_jobs), key=lambda w: w.launched_at, reverse=True
    )
    staying.sort(key=lambda w: w.state is WorkerState.BOOTING)
    return frozenset(w.instance_id for w in staying[: policy.warm_workers])


def warm_hours_per_month(policy: Policy) -> float:
    """Return the warm worker-hours of a usual month; spans that overlap are added up.

    Worked: 2 workers from 08:00 to 18:00 on five days a week, and none at other times:
    2 x 10 x 5 / 7 x 730 / 24 = 434.5 hours.
    """
    always = min(policy.warm_workers, policy.max_workers)
    more = sum(
        max(min(span.workers, policy.max_workers) - always, 0)
        * ((span.end - span.start) % _DAY or _DAY).total_seconds()
        / 3600.0
        * len(span.days)
        / 7.0
        for span in policy.warm_schedule
    )
    return always * HOURS_PER_MONTH + more * _DAYS_PER_MONTH
