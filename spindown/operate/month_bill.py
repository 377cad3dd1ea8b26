"""Gather what a deployment has cost between two instants, from the ledger. Writes nothing."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from spindown.contract.row import SpendRow
from spindown.control.spend import sum_spend, window_of
from spindown.domain.control_cost import estimate_control
from spindown.domain.fleet import Worker
from spindown.domain.month_bill import (
    BilledDay,
    CostExport,
    ExportComparison,
    MonthBill,
    WorkloadBill,
    compare_with_export,
    cost_within,
)
from spindown.error import BadInput
from spindown.ledger import Ledger
from spindown.operate.spent import spent_of

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
    begun = max(start, min((one.begun for one in bills), default=end))
    control = estimate_control(
        hours=max((end - begun) / _HOUR, 0.0),
        workloads=len(ledgers),
        jobs=sum(one.jobs for one in bills),
        alarm_metrics=alarm_metrics,
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
    spent = spent_of(ledger, view, now, past=ledger.read_past_days())
    workers = {**ledger.read_ended(), **view.workers}.values()
    before = spent.between(start - (end - start), start).values()
    return WorkloadBill(
        workload=workload,
        days={day: _billed(row) for day, row in spent.between(start, end).items()},
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
        begun=spent.begun,
        saving=spent.saving_between(start, end),
    )


def _billed(row: SpendRow) -> BilledDay:
    return BilledDay(
        window=window_of(row),
        on_demand_dollars=row.on_demand_dollars,
        minimum_seconds=row.minimum_seconds,
        items_failed=row.items_failed,
        jobs=row.jobs,
    )


def compare_month(
    ledgers: Mapping[str, Ledger],
    export: CostExport,
    bill: MonthBill,
    *,
    now: datetime,
    without_addresses: frozenset[str],
    alarm_metrics: int,
) -> ExportComparison:
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
    begun = max(start, min((one.begun for one in bill.workloads), default=end))
    control = estimate_control(
        hours=max((end - begun) / _HOUR, 0.0),
        workloads=len(ledgers),
        jobs=part * sum(one.jobs for one in bill.workloads),
        alarm_metrics=alarm_metrics,
    )
    return compare_with_export(machines, control, export, start=start, end=end)


def _all_workers(ledger: Ledger) -> Sequence[Worker]:
    return tuple({**ledger.read_ended(), **ledger.read().workers}.values())
