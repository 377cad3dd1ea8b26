"""Compare what the ledger has charged with the market's bill, instance by instance.

The two differ for reasons that are known, each with its dollars: spot prices that moved after the
launch at whose price the ledger charges, volumes and addresses that this market does not sell,
and the seconds around a launch and an end. Whatever they leave over is a fault.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from spindown.control.market.priced_offers import SPOT_PRICES_TRUSTED_FOR
from spindown.domain.fleet import Worker
from spindown.domain.offer import extra_price_per_hour
from spindown.ec2sim import Ec2Bill
from spindown.local.market import LocalMarket

#: The root volume that a workload has without a word, GiB.
_VOLUME_GIB = 100
#: A tick charges up to the time at which it began.
_SECONDS_LESS = 5.0
#: A scaler that dies with the lock keeps others from seeing an end for three minutes.
_SECONDS_MORE = 240.0
#: How old a spot price may be that a launch goes by: five minutes, or this while EC2 is silent.
_PRICE_AGE = SPOT_PRICES_TRUSTED_FOR
_CENT_FRACTION = 1e-5
_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Where the dollars of ledger and market differ; USD, what the ledger has less is positive."""

    moved_prices: float
    volumes_and_addresses: float
    seconds_around_the_ends: float
    unexplained: float
    #: What must not be, in words.
    faults: tuple[str, ...]


def compare(market: LocalMarket, rows: Mapping[str, Worker], charged: float) -> Comparison:
    """Explain the difference between the ledger's ``charged`` dollars and the market's bill."""
    extra = extra_price_per_hour(_VOLUME_GIB)
    moved = extras = around = 0.0
    faults: list[str] = []
    bill = market.bill()
    for line in bill:
        worker = rows.get(line.instance_id)
        if worker is None:
            faults.append(f"no row knows {line.instance_id}, {line.dollars:.6f} USD")
            continue
        faults += _faults(line, worker, worker.price_per_hour - extra, market)
        seconds, price = _seconds(worker), worker.price_per_hour - extra
        extras += seconds * extra / _HOUR
        if line.is_free:
            continue
        moved += line.dollars - line.paid_seconds * price / _HOUR
        around += (seconds - line.paid_seconds) * price / _HOUR
    difference = sum(line.dollars for line in bill) - charged
    left = difference - (moved - extras - around)
    if abs(left) > _CENT_FRACTION:
        faults.append(f"{left:.6f} USD between ledger and market have no reason")
    return Comparison(
        moved_prices=round(moved, 6),
        volumes_and_addresses=round(-extras, 6),
        seconds_around_the_ends=round(-around, 6),
        unexplained=round(left, 6),
        faults=tuple(faults),
    )


def _seconds(worker: Worker) -> float:
    return ((worker.accrued_until or worker.launched_at) - worker.launched_at).total_seconds()


def _faults(line: Ec2Bill, worker: Worker, price: float, market: LocalMarket) -> list[str]:
    """Return what is wrong with what one instance was charged."""
    name, found = worker.instance_id, []
    if line.is_free and not worker.interruption_counted:
        found.append(f"{name} was reclaimed and counts as {worker.reason!r}")
    more = _seconds(worker) - line.paid_seconds
    if not line.is_free and not -_SECONDS_LESS <= more <= _SECONDS_MORE:
        found.append(f"{name} was charged for {more:.0f} s more than it ran")
    if all(abs(price - shown) > _CENT_FRACTION for shown in _shown(line.instance_id, market)):
        found.append(f"{name} was charged {price:.4f} USD per hour, which nobody asked")
    return found


def _shown(instance_id: str, market: LocalMarket) -> set[float]:
    """Return the prices of an instance's pool in the time before its launch."""
    instance = market.find(instance_id)
    assert instance is not None
    begins, region, pool = instance.launched_at - _PRICE_AGE, instance.region, instance.pool
    moments = (begins + timedelta(seconds=n) for n in range(int(_PRICE_AGE.total_seconds()) + 1))
    prices = (market.listings.price_at(pool, region=region, at=at) for at in moments)
    return {price for price in prices if price is not None}
