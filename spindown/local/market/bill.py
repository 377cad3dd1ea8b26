"""What AWS would charge for each instance: the truth to check one's own accounting against.

Linux rules: per second from running to shutting-down (or stopping), at least a minute, the spot
price of each moment, and nothing at all for a spot instance that EC2 takes back within its first
hour. Volumes and addresses are not in this bill.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from spindown.local.market.instance import MarketInstance, Reason
from spindown.local.market.price import PriceBook

_LEAST = timedelta(seconds=60)
_FREE_WITHIN = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class BillLine:
    """One instance's charge so far."""

    instance: MarketInstance
    paid_seconds: float
    dollars: float
    #: Reclaimed by EC2 within the first hour.
    is_free: bool


def bill_line(instance: MarketInstance, prices: PriceBook, *, now: datetime) -> BillLine:
    """Charge one instance up to `now`, or to its end."""
    if instance.running_at is None:
        return BillLine(instance=instance, paid_seconds=0.0, dollars=0.0, is_free=False)
    lasted = (instance.ended_at or now) - instance.running_at
    if instance.reason is Reason.RECLAIMED and lasted < _FREE_WITHIN:
        return BillLine(instance=instance, paid_seconds=0.0, dollars=0.0, is_free=True)
    paid = max(lasted, _LEAST)
    dollars = prices.cost(instance.pool, instance.running_at, instance.running_at + paid)
    return BillLine(
        instance=instance, paid_seconds=paid.total_seconds(), dollars=dollars, is_free=False
    )
