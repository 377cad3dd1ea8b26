"""What a deployment has cost in a month: by kind, workload, type, day and cause.

The cost of workers is booked second by second (``control.spend``); the prices stamped at their
launches tell disks and addresses apart. The cost of the control plane is an estimate at list
prices.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from spindown.domain.control_cost import UsedUnits
from spindown.domain.fleet import Worker
from spindown.domain.offer import PUBLIC_IPV4_PRICE_PER_HOUR
from spindown.domain.past_cost import (
    LEAST_BILLED,
    CostWindow,
    Saving,
    accrue_at_least,
    share_out,
    told_cost,
)

_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
#: USD; less than a tenth of a cent is rounding.
_NOTHING = 0.001


class CostKind(StrEnum):
    """What money is paid for; the value is its name on the bill."""

    MACHINES = "machines"
    DISKS = "disks"
    ADDRESSES = "addresses"
    DATA = "data"
    CONTROL = "control plane"
    OTHER = "other"


class Grouping(StrEnum):
    """What the lines of a bill are about."""

    KIND = "kind"
    WORKLOAD = "workload"
    TYPE = "type"
    DAY = "day"
    CAUSE = "cause"


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineCost:
    """What one instance has cost within a span, USD."""

    workload: str
    instance_id: str
    instance_type: str
    #: "spot" or "on-demand".
    capacity_type: str
    hours: float
    machine: float
    disk: float
    address: float
    #: What more it would have cost, had EC2 not reclaimed it in its first hour.
    refunded: float

    @property
    def dollars(self) -> float:
        """Return the sum, USD."""
        return self.machine + self.disk + self.address


def cost_within(
    worker: Worker,
    workload: str,
    *,
    start: datetime,
    end: datetime,
    now: datetime,
    has_addresses: bool,
) -> MachineCost | None:
    """Return what a worker has cost between two instants; None: it did not run then.

    What it has been charged, and what the next tick will charge, is taken as spread evenly over
    its paid time. Worked: 2 h at 0.30 USD/h, of which 0.02 are disk and address, the second hour
    in the next month: 0.28 for the machine, 0.015 for the disk, 0.005 for the address.

    Args:
        worker: as its row says.
        workload: whose.
        start: first instant.
        end: last instant, not included.
        now: the time; nothing is paid after it.
        has_addresses: whether its network gives public addresses.
    """
    due = accrue_at_least(worker, now)
    until = max(worker.ended_at or now, worker.launched_at + LEAST_BILLED)
    life = until - worker.launched_at
    # A span up to now has the whole of a minute that is charged and not over.
    inside = (min(until, end) if end < now else until) - max(worker.launched_at, start)
    if life <= timedelta(0) or inside <= timedelta(0):
        return None
    share = inside / life
    dollars = share * (worker.charged_usd + due.dollars)
    hours = inside / _HOUR
    extra = min(worker.extra_price * hours, dollars)
    per_hour = min(PUBLIC_IPV4_PRICE_PER_HOUR, worker.extra_price) if has_addresses else 0.0
    address = min(per_hour * hours, extra)
    return MachineCost(
        workload=workload,
        instance_id=worker.instance_id,
        instance_type=worker.instance_type,
        capacity_type=worker.capacity_type.value,
        hours=hours,
        machine=dollars - extra,
        disk=extra - address,
        address=address,
        refunded=share * worker.refunded_usd,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BilledDay:
    """What the books say of one day of UTC, and what its hours would have cost on demand."""

    window: CostWindow
    on_demand_dollars: float
    #: Of the idle seconds: up to EC2's minimum.
    minimum_seconds: float
    items_failed: int
    jobs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadBill:
    """What one workload has cost in a month. Money is USD."""

    workload: str
    #: Day, as ``2026-11-20`` -> what the books say. What runs is charged up to now.
    days: Mapping[str, BilledDay]
    #: The span of the same length before it: its dollars and items.
    before: CostWindow
    machines: tuple[MachineCost, ...]
    #: Since when there was work.
    begun: datetime
    #: From then, or from the start of the bill, on.
    saving: Saving

    @property
    def dollars(self) -> float:
        """Return what is booked."""
        return sum(day.window.dollars for day in self.days.values())

    @property
    def items(self) -> float:
        """Return how many items were done."""
        return sum(day.window.items for day in self.days.values())

    @property
    def items_failed(self) -> int:
        """Return how many items failed; they do not count as done."""
        return sum(day.items_failed for day in self.days.values())

    @property
    def jobs(self) -> int:
        """Return how many jobs were done."""
        return sum(day.jobs for day in self.days.values())

    @property
    def cost_per_item(self) -> float | None:
        """Return USD of an item, all in; None: there are too few to say, or nothing was paid."""
        return told_cost(self.dollars, self.items)

    @property
    def trend(self) -> float | None:
        """Return by which share an item costs more than in the span before; None: not known."""
        now, before = self.cost_per_item, self.before.cost_per_item
        return None if now is None or before is None else now / before - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BillRow:
    """One row of the bill. Money is USD."""

    name: str
    dollars: float
    is_estimate: bool = False
    #: Else nobody knows its dollars.
    is_recorded: bool = True
    #: None: items are not counted by this.
    items: float | None = None
    hours: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthBill:
    """What a deployment has cost between two instants, the last not included."""

    deployment: str
    start: datetime
    end: datetime
    workloads: tuple[WorkloadBill, ...]
    control: tuple[UsedUnits, ...]

    @property
    def booked(self) -> float:
        """Return what workers have cost, USD: what the budget counts."""
        return sum(one.dollars for one in self.workloads)

    @property
    def control_dollars(self) -> float:
        """Return what the control plane costs by estimate, USD."""
        return sum(one.billed for one in self.control)

    @property
    def dollars(self) -> float:
        """Return the sum, USD."""
        return self.booked + self.control_dollars

    @property
    def machines(self) -> tuple[MachineCost, ...]:
        """Return what each instance has cost."""
        return tuple(one for workload in self.workloads for one in workload.machines)

    @property
    def unassigned(self) -> float:
        """Return what is booked and belongs to no instance that history still has, USD."""
        left = self.booked - sum(one.dollars for one in self.machines)
        return left if abs(left) >= _NOTHING else 0.0


def rows_of(bill: MonthBill, grouping: Grouping) -> tuple[BillRow, ...]:
    """Return the rows of a bill; those of every grouping sum to the same total."""
    return (*_ROWS[grouping](bill), *(_shared(bill) if grouping is not Grouping.KIND else ()))


def _shared(bill: MonthBill) -> Iterator[BillRow]:
    if bill.control_dollars:
        yield BillRow(name=CostKind.CONTROL, dollars=bill.control_dollars, is_estimate=True)


def _by_kind(bill: MonthBill) -> Iterator[BillRow]:
    machines = bill.machines
    disks, addresses = sum(x.disk for x in machines), sum(x.address for x in machines)
    yield BillRow(
        name=CostKind.MACHINES,
        dollars=bill.booked - disks - addresses,
        hours=sum(one.hours for one in machines),
    )
    yield BillRow(name=CostKind.DISKS, dollars=disks)
    yield BillRow(name=CostKind.ADDRESSES, dollars=addresses)
    note = "not recorded: AWS's own bill has it (`--export`)"
    yield BillRow(name=CostKind.DATA, dollars=0.0, is_recorded=False, note=note)
    listed = sum(one.listed for one in bill.control)
    yield BillRow(
        name=CostKind.CONTROL,
        dollars=bill.control_dollars,
        is_estimate=True,
        note=f"would be {listed:,.2f} USD without AWS's free allowances",
    )


def _by_workload(bill: MonthBill) -> Iterator[BillRow]:
    for one in sorted(bill.workloads, key=lambda each: -each.dollars):
        yield BillRow(
            name=one.workload,
            dollars=one.dollars,
            items=one.items,
            hours=sum(each.hours for each in one.machines),
        )


def _by_type(bill: MonthBill) -> Iterator[BillRow]:
    sums: dict[str, tuple[float, float]] = {}
    for one in bill.machines:
        name = f"{one.instance_type} {one.capacity_type}"
        dollars, hours = sums.get(name, (0.0, 0.0))
        sums[name] = dollars + one.dollars, hours + one.hours
    for name, (dollars, hours) in sorted(sums.items(), key=lambda entry: -entry[1][0]):
        yield BillRow(name=name, dollars=dollars, hours=hours)
    if bill.unassigned:
        yield BillRow(
            name="not known",
            dollars=bill.unassigned,
            note="of instances that history no longer has, or by a price that has moved",
        )


def _by_day(bill: MonthBill) -> Iterator[BillRow]:
    days: dict[str, list[BilledDay]] = {}
    for one in bill.workloads:
        for day, billed in one.days.items():
            days.setdefault(day, []).append(billed)
    for day, found in sorted(days.items()):
        paid = sum(each.window.paid_seconds for each in found)
        yield BillRow(
            name=day,
            dollars=sum(each.window.dollars for each in found),
            items=sum(each.window.items for each in found),
            hours=paid / _HOUR.total_seconds(),
        )


def _by_cause(bill: MonthBill) -> Iterator[BillRow]:
    sums: dict[str, tuple[float, float]] = {}
    for one in bill.workloads:
        for day in one.days.values():
            for cause, (dollars, seconds) in share_out(
                day.window, minimum_seconds=day.minimum_seconds
            ).items():
                before = sums.get(cause, (0.0, 0.0))
                sums[cause] = before[0] + dollars, before[1] + seconds
    for cause, (dollars, seconds) in sums.items():
        yield BillRow(
            name=cause,
            dollars=dollars,
            is_estimate=True,
            hours=seconds / _HOUR.total_seconds(),
        )


_ROWS = {
    Grouping.KIND: _by_kind,
    Grouping.WORKLOAD: _by_workload,
    Grouping.TYPE: _by_type,
    Grouping.DAY: _by_day,
    Grouping.CAUSE: _by_cause,
}


class LineType(StrEnum):
    """What a line of an export is."""

    USAGE = "usage"
    DISCOUNT = "discounts"
    CREDIT = "credits and refunds"
    TAX = "tax"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportLine:
    """What an export says of one resource and kind of usage within a span, summed up."""

    kind: CostKind
    line_type: LineType
    #: Of an instance its id; else whatever AWS names.
    resource_id: str
    dollars: float
    #: In the unit of the usage; of machines hours.
    amount: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CostExport:
    """The lines of a deployment in an export of AWS, and how far the export reaches."""

    #: "CUR 2.0" or "FOCUS".
    source: str
    lines: tuple[ExportLine, ...]
    #: First and last instant of what it has, of anybody in the account.
    begin: datetime
    end: datetime
    #: Tags of ours that it has, as ``spindown:workload``.
    tags: frozenset[str]
    currency: str


class Gap(StrEnum):
    """Why a bill of AWS differs from the books; the value is its name."""

    TIME = "longer or shorter than booked"
    PRICE = "dearer or cheaper than booked"
    REFUND = "charged, though booked as refunded"
    NOT_CHARGED = "not charged, though booked"
    UNKNOWN = "instances that the books do not have"
    ABSENT = "instances that the export does not have"
    DISCOUNT = "discounts"
    CREDIT = "credits and refunds"
    TAX = "tax"


@dataclass(frozen=True, slots=True, kw_only=True)
class KindDifference:
    """One kind of cost, by the books and by the export, USD."""

    kind: CostKind
    booked: float
    billed: float
    is_estimate: bool

    @property
    def difference(self) -> float:
        """Return what AWS bills more."""
        return self.billed - self.booked


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportComparison:
    """The books beside an export, over the span that both have."""

    start: datetime
    end: datetime
    kinds: tuple[KindDifference, ...]
    #: The difference of machines, and what is no usage, by cause, USD; they sum to it.
    gaps: Mapping[Gap, float]

    @property
    def booked(self) -> float:
        """Return what the books and estimates say, USD."""
        return sum(one.booked for one in self.kinds)

    @property
    def billed(self) -> float:
        """Return what AWS bills, USD: usage, discounts, credits, tax."""
        others = (Gap.DISCOUNT, Gap.CREDIT, Gap.TAX)
        return sum(one.billed for one in self.kinds) + sum(self.gaps.get(x, 0.0) for x in others)


def compare_with_export(
    machines: Sequence[MachineCost],
    control: Sequence[UsedUnits],
    export: CostExport,
    *,
    start: datetime,
    end: datetime,
) -> ExportComparison:
    """Return how an export differs from the books over a span that both have.

    Args:
        machines: what each instance has cost in that span.
        control: what the control plane has used in it.
        export: what AWS says.
        start: first instant.
        end: last instant, not included.
    """
    usage = [line for line in export.lines if line.line_type is LineType.USAGE]
    booked = {
        CostKind.MACHINES: sum(one.machine for one in machines),
        CostKind.DISKS: sum(one.disk for one in machines),
        CostKind.ADDRESSES: sum(one.address for one in machines),
        CostKind.CONTROL: sum(one.billed for one in control),
    }
    kinds = [
        KindDifference(
            kind=kind,
            booked=booked.get(kind, 0.0),
            billed=sum(line.dollars for line in usage if line.kind is kind),
            is_estimate=kind is CostKind.CONTROL,
        )
        for kind in CostKind
    ]
    gaps: dict[Gap, float] = {}
    for gap, dollars in _gaps(machines, export.lines):
        gaps[gap] = gaps.get(gap, 0.0) + dollars
    return ExportComparison(
        start=start,
        end=end,
        kinds=tuple(one for one in kinds if one.booked or one.billed),
        gaps={gap: gaps[gap] for gap in Gap if abs(gaps.get(gap, 0.0)) >= _NOTHING / 100},
    )


_OTHER_LINES = {
    LineType.DISCOUNT: Gap.DISCOUNT,
    LineType.CREDIT: Gap.CREDIT,
    LineType.TAX: Gap.TAX,
}


def _gaps(
    machines: Sequence[MachineCost], lines: Sequence[ExportLine]
) -> Iterator[tuple[Gap, float]]:
    """Yield the parts of the difference of machines, then what is no usage."""
    billed: dict[str, tuple[float, float]] = {}
    for line in lines:
        if line.line_type is not LineType.USAGE:
            yield _OTHER_LINES[line.line_type], line.dollars
        elif line.kind is CostKind.MACHINES:
            dollars, hours = billed.get(line.resource_id, (0.0, 0.0))
            billed[line.resource_id] = dollars + line.dollars, hours + line.amount
    for one in machines:
        if one.instance_id not in billed:
            yield Gap.ABSENT, -one.machine
            continue
        dollars, hours = billed.pop(one.instance_id)
        if one.machine <= 0.0 or one.hours <= 0.0:
            yield Gap.REFUND, dollars
        elif dollars <= 0.0 or hours <= 0.0:
            yield Gap.NOT_CHARGED, dollars - one.machine
        else:
            price = one.machine / one.hours
            yield Gap.TIME, (hours - one.hours) * price
            yield Gap.PRICE, dollars - hours * price
    for dollars, _ in billed.values():
        yield Gap.UNKNOWN, dollars
