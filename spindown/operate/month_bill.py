"""Gather what a deployment has cost between two instants, from the ledger. Writes nothing."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from spindown.contract.row import SpendRow
from spindown.control.spend import sum_spend, window_of
from spindown.domain.control_cost import estimate_control
from spindown.domain.diagnosis import CostWindow
from spindown.domain.fleet import Worker
from spindown.domain.month_bill import (
    BilledDay,
    CostExport,
    MonthBill,
    Reconciliation,
    WorkloadBill,
    cost_within,
    reconcile,
)
from spindown.domain.past_cost import accrue_at_least, on_demand_dollars, saving_over, warm_price_of
from spindown.error import BadInput
from spindown.ledger import Ledger

_DAY = timedelta(days=1)
_HOUR = timedelta(hours=1)


def month_span(month: str | None, now: datetime) -> tuple[datetime, datetime]:
    """Return first and last instant of a month of UTC, as ``2026-11``; None: the present one.

    The last is not included; it is now at the latest.

    Raises:
        BadInput: no month, or one that has not begun.
    """
    text = month or f"{now:%Y-%m}"
    try:
        start = datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC)
    except ValueError as exc:
        raise BadInput("--month", text, "write it as 2026-11") from exc
    if start > now:
        raise BadInput("--month", text, "name one that has begun")
    following = (start + 32 * _DAY).replace(day=1)
    return start, min(following, now)


def read_month(
    ledgers: Mapping[str, Ledger],
    *,
    deployment: str,
    start: datetime,
    end: datetime,
    now: datetime,
    without_addresses: frozenset[str],
    alarm_metrics: int,
) -> MonthBill:
    """Return what a deployment has cost.

    Args:
        ledgers: workload -> its ledger.
        deployment: its name.
        start: first instant, a midnight of UTC.
        end: last instant, not included: a midnight, or now.
        now: the time.
        without_addresses: workloads whose instances have no public address.
        alarm_metrics: metrics that alarms read; 0: no alarm is deployed.
    """
    bills = tuple(
        _read_workload(
            name,
            ledger,
            start=start,
            end=end,
            now=now,
            has_addresses=name not in without_addresses,
        )
        for name, ledger in ledgers.items()
    )
    begun = [datetime.fromisoformat(day).replace(tzinfo=UTC) for x in bills for day in x.days]
    control = (
        estimate_control(
            hours=(end - max(start, min(begun))) / _HOUR,
            workloads=len(ledgers),
            jobs=sum(one.jobs for one in bills),
            alarm_metrics=alarm_metrics,
        )
        if begun
        else ()
    )
    return MonthBill(deployment=deployment, start=start, end=end, workloads=bills, control=control)


def _read_workload(
    workload: str,
    ledger: Ledger,
    *,
    start: datetime,
    end: datetime,
    now: datetime,
    has_addresses: bool,
) -> WorkloadBill:
    view = ledger.read()
    known = {**ledger.read_past_days(), **view.spend}
    live = list(view.workers.values())
    workers = {**ledger.read_ended(), **view.workers}.values()
    days = {day: _billed(row) for day, row in known.items() if _is_within(day, start, end)}
    if start <= now <= end and (
        due := sum(accrue_at_least(worker, now).dollars for worker in live)
    ):
        # The next tick charges it.
        today = now.date().isoformat()
        days[today] = _with_due(days.get(today) or _billed(SpendRow()), live, now, due)
    before = [row for day, row in known.items() if _is_within(day, start - (end - start), start)]
    spent = sum_spend(row for day, row in known.items() if _is_within(day, start, end))
    dollars = sum(day.window.dollars for day in days.values())
    return WorkloadBill(
        workload=workload,
        days=days,
        before=window_of(sum_spend(before)),
        machines=tuple(
            found
            for worker in sorted(workers, key=lambda each: each.launched_at)
            if (
                found := cost_within(
                    worker,
                    workload,
                    start=start,
                    end=end,
                    now=now,
                    has_addresses=has_addresses,
                )
            )
            is not None
        ),
        saving=saving_over(
            dollars=dollars,
            on_demand_dollars=sum(day.on_demand_dollars for day in days.values()),
            busy_seconds=spent.busy_seconds,
            warm_price=warm_price_of(workers),
            span=end - start,
        ),
    )


def _is_within(day: str, start: datetime, end: datetime) -> bool:
    at = datetime.fromisoformat(day).replace(tzinfo=UTC)
    return start.date() <= at.date() and at < end


def _billed(row: SpendRow) -> BilledDay:
    return BilledDay(
        window=window_of(row),
        on_demand_dollars=row.on_demand_dollars,
        minimum_seconds=row.minimum_seconds,
        items_failed=row.items_failed,
        jobs=row.jobs,
    )


def _with_due(day: BilledDay, live: Iterable[Worker], now: datetime, due: float) -> BilledDay:
    """Return a day with what its workers have cost since their last charge."""
    accruals = [(worker, accrue_at_least(worker, now)) for worker in live]
    window = day.window
    return BilledDay(
        window=CostWindow(
            dollars=window.dollars + due,
            items=window.items,
            items_redone=window.items_redone,
            launches=window.launches,
            boot_seconds=window.boot_seconds + sum(x.boot_seconds for _, x in accruals),
            busy_seconds=window.busy_seconds + sum(x.busy_seconds for _, x in accruals),
            idle_seconds=window.idle_seconds + sum(x.idle_seconds for _, x in accruals),
        ),
        on_demand_dollars=day.on_demand_dollars
        + sum(on_demand_dollars(worker, accrual) for worker, accrual in accruals),
        minimum_seconds=day.minimum_seconds,
        items_failed=day.items_failed,
        jobs=day.jobs,
    )


def reconcile_month(
    ledgers: Mapping[str, Ledger],
    export: CostExport,
    bill: MonthBill,
    *,
    now: datetime,
    without_addresses: frozenset[str],
    alarm_metrics: int,
) -> Reconciliation:
    """Return how an export differs from the books, over the part of a bill that it reaches.

    Raises:
        BadInput: it has nothing of that time.
    """
    start, end = max(bill.start, export.begin), min(bill.end, export.end)
    if start >= end:
        reach = f"{export.begin:%Y-%m-%d %H:%M} to {export.end:%Y-%m-%d %H:%M} UTC"
        raise BadInput("--export", reach, "give one of the month that --month names")
    machines = [
        found
        for name, ledger in ledgers.items()
        for worker in _all_workers(ledger)
        if (
            found := cost_within(
                worker,
                name,
                start=start,
                end=end,
                now=now,
                has_addresses=name not in without_addresses,
            )
        )
        is not None
    ]
    part = (end - start) / (bill.end - bill.start)
    control = estimate_control(
        hours=(end - start) / _HOUR,
        workloads=len(ledgers),
        jobs=part * sum(one.jobs for one in bill.workloads),
        alarm_metrics=alarm_metrics,
    )
    return reconcile(machines, control, export, start=start, end=end)


def _all_workers(ledger: Ledger) -> Sequence[Worker]:
    return tuple({**ledger.read_ended(), **ledger.read().workers}.values())
