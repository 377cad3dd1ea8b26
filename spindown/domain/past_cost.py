"""What workers and items have cost: paid seconds by what they were for, dollars, dollars per item.

What an item will cost on an offer is in ``domain.ranking.candidate_list``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil

from spindown.domain.fleet import Worker, WorkerState

#: A shorter span is too early for a saving against kept warm. Each minute without work changes that
#: by ``dollars / (warm dollars x minutes)``: from an hour on by 2 % at most, as long as it is not
#: dearer than 1.2 times a warm machine.
WARM_TOLD_AFTER = timedelta(hours=1)

#: Of fewer items no cost is told: the boots of the first machines are most of what one has cost.
FEW_ITEMS = 10

#: EC2 charges at least this much of every instance (EC2 pricing, per-second billing).
LEAST_BILLED = timedelta(seconds=60)

_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accrual:
    """What a worker has cost since its cost was last added up."""

    #: USD at the price of the last charge.
    dollars: float
    boot_seconds: float
    busy_seconds: float
    idle_seconds: float
    #: Of the idle seconds: past the end, up to EC2's minimum.
    minimum_seconds: float
    #: Up to where it is added up now; the row's ``accrued_until`` from here on.
    until: datetime

    @property
    def paid_seconds(self) -> float:
        """Return all seconds that were paid for."""
        return self.boot_seconds + self.busy_seconds + self.idle_seconds


def accrue(worker: Worker, until: datetime) -> Accrual:
    """Return what a worker has cost between ``accrued_until`` and ``until``.

    A worker that has ended costs nothing past its end, but at least a minute. Time before the
    check-in is boot, time since ``idle_since`` is idle, the rest is busy. What is charged past the
    end is idle.
    """
    start = max(worker.accrued_until or worker.launched_at, worker.launched_at)
    end = lived_until = max(start, until)
    if worker.ended_at is not None:
        lived_until = max(start, min(until, worker.ended_at))
        end = max(lived_until, worker.launched_at + LEAST_BILLED)
    booted_at = lived_until if worker.checked_in_at is None else worker.checked_in_at
    booted_at = min(max(booted_at, start), lived_until)
    idle_from = lived_until if worker.idle_since is None else worker.idle_since
    idle_from = min(max(idle_from, booted_at), lived_until)
    return Accrual(
        dollars=worker.price_per_hour * ((end - start) / _HOUR),
        boot_seconds=(booted_at - start).total_seconds(),
        busy_seconds=(idle_from - booted_at).total_seconds(),
        idle_seconds=(end - idle_from).total_seconds(),
        minimum_seconds=(end - lived_until).total_seconds(),
        until=end,
    )


def accrue_at_least(worker: Worker, now: datetime) -> Accrual:
    """Return what a worker will have cost beside its charges if it ends now: a minute at least."""
    return accrue(worker, max(now, worker.launched_at + LEAST_BILLED))


def accrue_whole(worker: Worker, now: datetime) -> Accrual:
    """Return what a worker has cost since its launch, all in; its dollars as they were charged."""
    life = accrue(replace(worker, accrued_until=None), now)
    return replace(life, dollars=worker.charged_usd + accrue(worker, now).dollars)


def on_demand_dollars(worker: Worker, accrual: Accrual) -> float:
    """Return what the same seconds of a worker would have cost on demand, USD."""
    price = worker.on_demand_price or worker.price_per_hour
    return price * accrual.paid_seconds / _HOUR.total_seconds()


def told_cost(dollars: float, items: float) -> float | None:
    """Return USD of an item, all in; None: there are too few to say, or nothing was paid."""
    return dollars / items if items >= FEW_ITEMS and dollars > 0.0 else None


def dollars_per_hour(workers: tuple[Worker, ...] | list[Worker]) -> float:
    """Return what all workers that have not ended cost an hour together, USD."""
    return sum(w.price_per_hour for w in workers if w.state is not WorkerState.ENDED)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostPerItem:
    """USD per item, twice: for the busy time alone, and for everything that was paid."""

    busy: float
    all_in: float


def cost_per_item(
    *, dollars: float, items: float, busy_seconds: float, paid_seconds: float
) -> CostPerItem | None:
    """Return what an item has cost; None: there are too few to say.

    Worked: 2 USD, 1000 items, 6000 of 8000 paid seconds busy: 0.0015 busy, 0.0020 all-in.
    """
    if items < FEW_ITEMS:
        return None
    share = min(1.0, busy_seconds / paid_seconds) if paid_seconds > 0.0 else 0.0
    return CostPerItem(busy=dollars * share / items, all_in=dollars / items)


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """What a span has cost beside what it might have, USD. The others are estimates."""

    dollars: float
    #: The same hours of the same types on demand, at the prices of their launches; 0: not known.
    on_demand_dollars: float
    #: As many such machines as the work fills, kept on demand for the whole span; None: not known,
    #: or too early to say.
    warm_dollars: float | None
    #: How many those are.
    warm_machines: int = 1
    #: The span is shorter than ``WARM_TOLD_AFTER``.
    is_early: bool = False

    @property
    def against_on_demand(self) -> float | None:
        """Return the share that is saved; below 0: it cost more. None: not known."""
        return _saved(self.dollars, self.on_demand_dollars)

    @property
    def against_warm(self) -> float | None:
        """Return the share that is saved; below 0: it cost more. None: not known."""
        return None if self.warm_dollars is None else _saved(self.dollars, self.warm_dollars)


def _saved(dollars: float, other: float) -> float | None:
    return 1.0 - dollars / other if other > 0.0 else None


def saving_over(
    *,
    dollars: float,
    on_demand_dollars: float,
    busy_seconds: float,
    paid_seconds: float,
    span: timedelta,
) -> Saving:
    """Return what a span has cost beside on-demand and warm machines.

    Warm machines work for the whole span. They cost as much an hour and are as fast as those that
    were there, so as many are needed as the busy time fills. Worked: 30 busy of 40 paid hours in a
    day, which would have cost 20 USD on demand: 0.50 USD/h, 2 of them, 24 USD.

    Args:
        dollars: what it has cost, USD.
        on_demand_dollars: its hours on demand, USD.
        busy_seconds: paid time with a job.
        paid_seconds: all time that is paid for.
        span: how long it was.
    """
    if span < WARM_TOLD_AFTER:
        return Saving(
            dollars=dollars,
            on_demand_dollars=on_demand_dollars,
            warm_dollars=None,
            is_early=True,
        )
    seconds = span.total_seconds()
    count = max(1, ceil(busy_seconds / seconds))
    is_known = paid_seconds > 0.0 and on_demand_dollars > 0.0
    return Saving(
        dollars=dollars,
        on_demand_dollars=on_demand_dollars,
        warm_dollars=count * on_demand_dollars / paid_seconds * seconds if is_known else None,
        warm_machines=count,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CostWindow:
    """What a span of time cost, and the items that were done in it."""

    #: USD.
    dollars: float
    items: float
    items_redone: float
    #: Instances launched within the span.
    launches: float
    boot_seconds: float
    busy_seconds: float
    idle_seconds: float

    @property
    def paid_seconds(self) -> float:
        """Return all seconds that were paid for."""
        return self.boot_seconds + self.busy_seconds + self.idle_seconds

    @property
    def cost_per_item(self) -> float | None:
        """Return USD of an item, all in; None: there are too few to say, or nothing was paid."""
        return told_cost(self.dollars, self.items)


def share_out(window: CostWindow, *, minimum_seconds: float) -> Mapping[str, tuple[float, float]]:
    """Return cause -> (USD, seconds): dollars are shared out by paid seconds.

    Worked: 10 USD, 800 of 1000 paid seconds busy, a fifth of the items done twice: work 6.67 USD,
    redo 1.33 USD, and 2 USD for boot and idle.
    """
    paid = window.paid_seconds
    again = window.items + window.items_redone
    redone = window.items_redone / again if again > 0 else 0.0
    least = min(minimum_seconds, window.idle_seconds)
    seconds = {
        "work": window.busy_seconds * (1.0 - redone),
        "redo": window.busy_seconds * redone,
        "boot": window.boot_seconds,
        "idle": window.idle_seconds - least,
        "EC2's minimum of a minute": least,
    }
    if paid <= 0.0:
        return {"work": (window.dollars, 0.0)} if window.dollars else {}
    return {cause: (window.dollars * each / paid, each) for cause, each in seconds.items() if each}
