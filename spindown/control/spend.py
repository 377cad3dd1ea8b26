"""Account for what workers cost, each second once.

A worker is charged every few minutes and at its end. Each charge moves ``accrued_until`` in the row
that only the control plane writes, on the condition that nobody has moved it since. So no worker
says up to when it has paid, nor what it costs, since when it runs, or that it has ended. EC2 bills
spot at the price of the moment (EC2 User Guide, Spot Instance pricing), so each charge also notes
the price for the next one.

Before EC2 is asked, a launch sets its dollars aside in ``control.plan.launch_allowance``
(``reserve``), so that two workloads which launch at once do not overspend the month.

Dollars go to the day of the workload and to the month of the deployment; what a launch has
reserved in the budget is released step by step as its workers are charged. With a budget it is
corrected then, to what its workers need by now.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

from spindown.contract import row as rows
from spindown.contract.codec import decode, encode, encode_instant, replace_fields
from spindown.contract.row import SpendRow
from spindown.domain.fleet import Launch, Worker
from spindown.domain.notice_time import FREE_FOR
from spindown.domain.offer import CapacityType, Pool
from spindown.domain.past_cost import (
    FEW_ITEMS,
    CostWindow,
    Saving,
    accrue,
    accrue_at_least,
    on_demand_dollars,
    saving_over,
)
from spindown.ledger import RowWrites, month_key
from spindown.port import Key, When, Write

_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
_NOT_ENDED = frozenset({"ended_at"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What one worker is charged for a stretch of its life."""

    #: Up to where: ``accrued_until`` from here on.
    until: datetime

    dollars: float
    on_demand_dollars: float
    idle_seconds: float
    #: Taken out of the launch's reservation; below 0: it was too small.
    released_usd: float
    #: What more the worker would have cost by now, if its instance is refunded; else 0.
    refunded_usd: float
    #: What is added to day, pool, month and launch.
    sums: tuple[tuple[Key, Mapping[str, float]], ...]

    @property
    def writes(self) -> tuple[Write, ...]:
        """Return the additions as writes."""
        return tuple(
            Write(key=key, add=added) for key, sums in self.sums if (added := _not_zero(sums))
        )


def charge(
    worker: Worker,
    launch: Launch | None,
    *,
    until: datetime,
    ledger: RowWrites,
    reclaimed: bool = False,
    keep: tuple[float, float] | None = None,
) -> Charge:
    """Return what a worker has cost since it was last charged.

    Args:
        worker: as it has been charged, or with ``ended_at`` about to be
            written.
        launch: the launch that it came from, for its reservation.
        until: up to where it is charged.
        ledger: makes the writes.
        reclaimed: EC2 took it back; within the first hour it then charges nothing but volume and
            address.
        keep: the least and the most USD that the launch keeps reserved; None: what it had, less
            this charge.
    """
    accrual = accrue(worker, until)
    start = worker.accrued_until or worker.launched_at
    hours = (accrual.until - start) / _HOUR
    is_free = reclaimed and _is_within_free_hour(worker, until)
    dollars, refund = accrual.dollars, 0.0
    if is_free:
        extra = min(worker.extra_price, worker.price_per_hour)
        dollars = extra * hours
        refund = max(worker.charged_usd - extra * ((start - worker.launched_at) / _HOUR), 0.0)
    earlier = -refund * _charged_before(worker, accrual.until)
    refunded = refund + accrual.dollars - dollars
    dollars -= refund
    on_demand = (worker.on_demand_price or worker.price_per_hour) * hours
    released = _released(launch, dollars, keep) if launch else 0.0
    day: dict[str, float] = {
        "dollars": dollars - earlier,
        "on_demand_dollars": on_demand,
        "boot_seconds": accrual.boot_seconds,
        "busy_seconds": accrual.busy_seconds,
        "idle_seconds": accrual.idle_seconds,
        "minimum_seconds": accrual.minimum_seconds,
        "refunded_seconds": (accrual.until - worker.launched_at).total_seconds() if is_free else 0,
        **_gpu_use(worker, accrual.busy_seconds),
    }
    pool = _pool_sort(worker.instance_type, worker.zone, worker.capacity_type)
    sums = [
        (ledger.key(rows.spend_sort_key(accrual.until)), day),
        (ledger.key(pool), {"hours": hours}),
        (month_key(accrual.until), _spent(dollars - earlier)),
    ]
    if earlier:
        sums.append((ledger.key(rows.spend_sort_key(worker.launched_at)), {"dollars": earlier}))
        sums.append((month_key(worker.launched_at), _spent(earlier)))
    if launch is not None and released:
        sums.append((month_key(launch.reserved_at), {"committed": -released}))
        back = {"reserved_usd": -released}
        sums.append((ledger.key(rows.launch_sort_key(launch.launch_id)), back))
    return Charge(
        until=accrual.until,
        dollars=dollars,
        on_demand_dollars=on_demand,
        idle_seconds=accrual.idle_seconds,
        released_usd=released,
        refunded_usd=refunded,
        sums=tuple(sums),
    )


def take_back_refund(worker: Worker, ledger: RowWrites) -> Charge:
    """Return the charge for all that a worker was refunded: it was not reclaimed after all.

    Its seconds were counted at its end, and stay.
    """
    until = worker.accrued_until or worker.launched_at
    seconds = (until - worker.launched_at).total_seconds()
    dollars = worker.refunded_usd
    earlier = dollars * _charged_before(worker, until)
    day = {"dollars": dollars - earlier, "refunded_seconds": -seconds}
    return Charge(
        until=until,
        dollars=dollars,
        on_demand_dollars=0.0,
        idle_seconds=0.0,
        released_usd=0.0,
        refunded_usd=0.0,
        sums=(
            (ledger.key(rows.spend_sort_key(until)), day),
            (month_key(until), _spent(dollars - earlier)),
            (ledger.key(rows.spend_sort_key(worker.launched_at)), {"dollars": earlier}),
            (month_key(worker.launched_at), _spent(earlier)),
        ),
    )


def _released(launch: Launch, dollars: float, keep: tuple[float, float] | None) -> float:
    """Return the USD that a charge takes out of a launch's reservation; below 0: it puts in."""
    left = launch.reserved_usd - min(launch.reserved_usd, max(dollars, 0.0))
    if keep is not None:
        least, most = keep
        left = max(least, min(left, most))
    return launch.reserved_usd - left


def _charged_before(worker: Worker, at: datetime) -> float:
    """Return the share of what a worker has been charged that is of the day before ``at``."""
    midnight = at.replace(hour=0, minute=0, second=0, microsecond=0)
    charged_until = worker.accrued_until or worker.launched_at
    charged = charged_until - worker.launched_at
    before = min(charged_until, midnight) - worker.launched_at
    return max(before / charged, 0.0) if charged else 0.0


def _spent(dollars: float) -> dict[str, float]:
    return {"dollars": dollars, "committed": dollars}


def mark_charged(
    worker: Worker, due: Charge, ledger: RowWrites, *, price: float | None = None
) -> Write:
    """Return the write that moves a worker's ``accrued_until``, once, and keeps its end.

    Args:
        worker: as it had been charged before.
        due: what it is charged now.
        ledger: makes the write.
        price: whole USD an hour from here on; None: as before.
    """
    so_far = worker.accrued_until or worker.launched_at
    when = When(at_most={"accrued_until": encode_instant(so_far)}, absent=_NOT_ENDED)
    charged = {"accrued_until": due.until, "charged_usd": max(worker.charged_usd + due.dollars, 0)}
    if price is not None:
        charged["price_per_hour"] = price
    return keep_machine(replace_fields(worker, charged), ledger, when)


def keep_machine(worker: Worker, ledger: RowWrites, when: When) -> Write:
    """Return the write that keeps what no worker may change of its own row."""
    return Write(
        key=ledger.key(rows.machine_sort_key(worker.instance_id)),
        set={name: encode(getattr(worker, name)) for name in _KEPT},
        when=when,
    )


#: What is decided, and what a row of a worker cannot be read without.
_KEPT = (*rows.DECIDED, "instance_id", "gpu_name", "gpu_count", "slots", "state")


@lru_cache(maxsize=1024)
def _pool_sort(instance_type: str, zone: str, capacity_type: CapacityType) -> str:
    """Asked for every worker in every tick."""
    pool = Pool(instance_type=instance_type, zone=zone, capacity_type=capacity_type)
    return rows.pool_sort_key(pool)


def _not_zero(sums: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in sums.items() if value}


def _gpu_use(worker: Worker, busy_seconds: float) -> dict[str, float]:
    """Return what the day's sums keep of how the GPUs were used while busy."""
    if worker.gpu_percent is None or worker.vram_percent is None:
        return {}
    return {
        "gpu_seconds": busy_seconds,
        "gpu_percent_seconds": worker.gpu_percent * busy_seconds,
        "vram_percent_seconds": worker.vram_percent * busy_seconds,
    }


def _is_within_free_hour(worker: Worker, until: datetime) -> bool:
    is_spot = worker.capacity_type is CapacityType.SPOT
    return is_spot and until - worker.launched_at < FREE_FOR


def last_days(
    days: Mapping[str, SpendRow], now: datetime, count: int = 1, *, begun: datetime | None = None
) -> CostWindow:
    """Return the last so many times 24 hours: whole days of UTC, and a share of the oldest.

    What a day cost is taken as spread evenly over it. So nothing begins anew at midnight. Worked:
    at 06:00, 1 USD today and 4 USD yesterday: 1 + 0.75 x 4 = 4 USD. If work has begun within
    the span, at ``begun``, all of it is within.
    """
    is_whole = begun is not None and now - begun < count * _DAY
    known = _weighed(days, now, count, whole=is_whole)
    return CostWindow(
        **{
            name: float(sum([share * getattr(row, name) for share, row in known]))
            for name in _OF_WINDOW
        }
    )


#: So many weeks are looked at for ten items. Of 1 to 4 items a day that take 1 to 12 hours, the
#: cost told so is within 13 to 20 % of the true one in 95 of 100 looks; that of one day with any
#: item within 33 to 65 %, and of one day with ten it is hardly ever told.
_COST_DAYS_AT_MOST = 28


def days_to_tell(
    days: Mapping[str, SpendRow], now: datetime, *, begun: datetime | None = None
) -> int:
    """Return how many days to look back on to say what an item costs: until ten are done.

    1 where four weeks have fewer. ``begun`` is as for ``last_days``.
    """
    are_enough = sum(row.items for row in days.values()) >= FEW_ITEMS
    spans = range(1, _COST_DAYS_AT_MOST + 1) if are_enough else ()
    told = (n for n in spans if last_days(days, now, n, begun=begun).items >= FEW_ITEMS)
    return next(told, 1)


def _weighed(
    days: Mapping[str, SpendRow], now: datetime, count: int, *, whole: bool = False
) -> Sequence[tuple[float, SpendRow]]:
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    left = 1.0 if whole else 1.0 - (now - midnight) / _DAY
    return [
        (share, days.get((now.date() - ago * _DAY).isoformat(), SpendRow()))
        for ago, share in enumerate([*[1.0] * count, left])
    ]


#: What a saving is told of where nobody asks for another span.
SAVED_IN_DAYS = 7


def last_saving(days: Mapping[str, SpendRow], begun: datetime, now: datetime) -> Saving:
    """Return what the last seven times 24 hours have cost beside on-demand and warm machines."""
    known = _weighed(days, now, SAVED_IN_DAYS)
    return _saving(known, now - max(begun, now - SAVED_IN_DAYS * _DAY))


def saving_of(rows_: Iterable[SpendRow], span: timedelta) -> Saving:
    """Return what whole days have cost beside on-demand and warm machines, over a span of them."""
    return _saving([(1.0, row) for row in rows_], span)


def _saving(known: Sequence[tuple[float, SpendRow]], span: timedelta) -> Saving:
    def total(of: Callable[[SpendRow], float]) -> float:
        return sum(share * of(row) for share, row in known)

    return saving_over(
        dollars=total(lambda row: row.dollars),
        on_demand_dollars=total(lambda row: row.on_demand_dollars),
        busy_seconds=total(lambda row: row.busy_seconds),
        paid_seconds=total(lambda row: row.paid_seconds),
        span=max(span, timedelta(0)),
    )


def books_up_to(
    days: Mapping[str, SpendRow], workers: Iterable[Worker], now: datetime
) -> Mapping[str, SpendRow]:
    """Return the books with what the next tick will charge: each worker for a minute at least.

    Args:
        days: as charged.
        workers: those whose last charge may be missing.
        now: the time.
    """
    due = [(one, accrue_at_least(one, now)) for one in workers]
    if not any(accrual.dollars for _, accrual in due):
        return days
    today = f"{now:%Y-%m-%d}"
    row = days.get(today, SpendRow())
    return {
        **days,
        today: replace(
            row,
            dollars=row.dollars + sum(x.dollars for _, x in due),
            on_demand_dollars=row.on_demand_dollars + sum(on_demand_dollars(*x) for x in due),
            boot_seconds=row.boot_seconds + sum(x.boot_seconds for _, x in due),
            busy_seconds=row.busy_seconds + sum(x.busy_seconds for _, x in due),
            idle_seconds=row.idle_seconds + sum(x.idle_seconds for _, x in due),
            minimum_seconds=row.minimum_seconds + sum(x.minimum_seconds for _, x in due),
        ),
    }


_OF_WINDOW = tuple(each.name for each in fields(CostWindow))


def window_of(row: SpendRow) -> CostWindow:
    """Return what a day has cost and done."""
    return CostWindow(**{name: getattr(row, name) for name in _OF_WINDOW})


def items_since_yesterday(days: Mapping[str, SpendRow], now: datetime) -> int:
    """Return how many items were done today and yesterday, those that failed too."""
    dates = (now.date(), now.date() - timedelta(days=1))
    rows_of = (days.get(date.isoformat(), SpendRow()) for date in dates)
    return sum(row.items + row.items_failed for row in rows_of)


def sum_spend(days: Iterable[SpendRow]) -> SpendRow:
    """Add up several days; what an item said when it failed is of its day alone."""
    total: dict[str, Any] = {}
    for day in days:
        for name, value in encode(day).items():
            if isinstance(value, str):
                continue
            before = total.get(name, 0)
            total[name] = max(before, value) if name.endswith("_max") else before + value
    return decode(SpendRow, total)
