"""Why an item costs more than it used to: the part that moved most, and what to change.

The cost of an item is ``price x (work + redo + (boot + idle) / items per launch)``. The rise over
the usual cost is split among these factors. The parts add up to the rise, and the largest of them
is the cause.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from spindown.domain.past_cost import CostWindow
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.value_range import Amount, NotZero

#: Percent of GPU and of VRAM below which the work would do with a smaller machine.
LITTLE_USE = 30.0

_SECONDS_PER_HOUR = 3600.0


class Cause(StrEnum):
    """What drove the cost up, and the name of it in an alarm."""

    PRICE = "price"
    BOOT = "boot"
    IDLE = "idle"
    REDO = "redo"
    THROUGHPUT = "throughput"
    SPARSE_QUEUE = "sparse queue"
    OVERKILL = "overkill"


@dataclass(frozen=True, slots=True, kw_only=True)
class CostFactors:
    """The factors of the cost of an item. Hours are of instances."""

    #: USD per paid hour, over all instances.
    price_per_hour: Amount
    #: Of useful computing, per item: the inverse of the throughput.
    work_hours: Amount
    #: Of computing again what was lost, per item.
    redo_hours: Amount
    #: Per launch.
    boot_hours: Amount
    #: Per launch.
    idle_hours: Amount
    items_per_launch: NotZero

    @property
    def hours(self) -> float:
        """Return the paid hours of an item."""
        once = (self.boot_hours + self.idle_hours) / self.items_per_launch
        return self.work_hours + self.redo_hours + once

    @property
    def cost_per_item(self) -> float:
        """Return USD per item, all in."""
        return self.price_per_hour * self.hours


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How much of the machines was used, and what else would do."""

    #: Percent of the time in which it computed.
    gpu_mean: float
    #: Percent of its memory that was used at the most, mean over time.
    vram_max: float
    #: USD per hour of the cheapest offer that fits the requirements; None: there is none.
    cheapest_price: float | None
    #: Its name, for the text.
    cheapest_offer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The cause of an expensive item."""

    cause: Cause
    #: USD per item that the cause adds; for overkill, that the cheaper offer would save.
    dollars: float
    #: Every part; all but overkill add up to the rise over the usual cost.
    parts: Mapping[Cause, float]
    #: USD per item.
    cost: float
    usual: float
    #: What happened, with its numbers.
    reason: Reason


def factors_of(window: CostWindow) -> CostFactors | None:
    """Return the factors of a span; None when nothing was done or nothing was paid.

    A span without a launch used earlier ones, and counts as one launch.
    """
    paid = window.paid_seconds
    if window.items <= 0 or paid <= 0.0 or window.dollars <= 0.0:
        return None
    launches = max(window.launches, 1)
    redone = window.items_redone / (window.items + window.items_redone)
    busy = window.busy_seconds / _SECONDS_PER_HOUR
    return CostFactors(
        price_per_hour=window.dollars / (paid / _SECONDS_PER_HOUR),
        work_hours=busy * (1.0 - redone) / window.items,
        redo_hours=busy * redone / window.items,
        boot_hours=window.boot_seconds / _SECONDS_PER_HOUR / launches,
        idle_hours=window.idle_seconds / _SECONDS_PER_HOUR / launches,
        items_per_launch=window.items / launches,
    )


def diagnose(now: CostFactors, usual: CostFactors, *, fit: Fit | None = None) -> Diagnosis:
    """Return why an item costs more than the usual; ``now`` costs more."""
    parts = split_rise(now, usual)
    if fit is not None:
        parts[Cause.OVERKILL] = _overkill(now, fit)
    cause = max(parts, key=lambda each: parts[each])
    return Diagnosis(
        cause=cause,
        dollars=parts[cause],
        parts=parts,
        cost=now.cost_per_item,
        usual=usual.cost_per_item,
        reason=_reason(cause, now, usual, fit),
    )


def split_rise(now: CostFactors, usual: CostFactors) -> dict[Cause, float]:
    """Return what each factor adds to the cost of an item, USD; the parts sum to the rise.

    Worked: boots of 0.1 h for 100 items a launch at 1 USD/h become boots of 0.1 h for 10 items:
    0.001 becomes 0.01 USD an item, and all of the rise is due to the sparse queue. If boots had
    become 1 h at 100 items a launch, all of it would be due to the boot.
    """
    price = now.price_per_hour
    rarer = 1.0 / now.items_per_launch - 1.0 / usual.items_per_launch
    return {
        Cause.PRICE: (price - usual.price_per_hour) * usual.hours,
        Cause.BOOT: price * (now.boot_hours - usual.boot_hours) / usual.items_per_launch,
        Cause.IDLE: price * (now.idle_hours - usual.idle_hours) / usual.items_per_launch,
        Cause.REDO: price * (now.redo_hours - usual.redo_hours),
        Cause.THROUGHPUT: price * (now.work_hours - usual.work_hours),
        Cause.SPARSE_QUEUE: price * (now.boot_hours + now.idle_hours) * rarer,
    }


def _overkill(now: CostFactors, fit: Fit) -> float:
    """Return what the cheaper offer would save an item if it were as fast; 0: it may be slower."""
    if fit.cheapest_price is None or max(fit.gpu_mean, fit.vram_max) >= LITTLE_USE:
        return 0.0
    return max(0.0, (now.price_per_hour - fit.cheapest_price) * now.hours)


def _reason(cause: Cause, now: CostFactors, usual: CostFactors, fit: Fit | None) -> Reason:
    code = _CODES[cause]
    about: dict[str, str | int | float] = {"cost": now.cost_per_item, "usual": usual.cost_per_item}
    if cause in _FACTORS:
        about |= {"now": _FACTORS[cause](now), "before": _FACTORS[cause](usual)}
    elif fit is not None:
        about |= {"gpu": fit.gpu_mean, "vram": fit.vram_max, "offer": fit.cheapest_offer}
        about["price"] = fit.cheapest_price or 0.0
    return Reason(code, about)


def _redo_share(factors: CostFactors) -> float:
    busy = factors.work_hours + factors.redo_hours
    return factors.redo_hours / busy if busy > 0.0 else 0.0


def _throughput(factors: CostFactors) -> float:
    return 1.0 / factors.work_hours if factors.work_hours > 0.0 else 0.0


_CODES = {cause: ReasonCode(f"cost-{cause.value.replace(' ', '-')}") for cause in Cause}
#: Cause -> its factor, in the unit in which a person reads it.
_FACTORS: Mapping[Cause, Callable[[CostFactors], float]] = {
    Cause.PRICE: lambda factors: factors.price_per_hour,
    Cause.BOOT: lambda factors: 60.0 * factors.boot_hours,
    Cause.IDLE: lambda factors: 60.0 * factors.idle_hours,
    Cause.REDO: lambda factors: 100.0 * _redo_share(factors),
    Cause.THROUGHPUT: _throughput,
    Cause.SPARSE_QUEUE: lambda factors: factors.items_per_launch,
}
