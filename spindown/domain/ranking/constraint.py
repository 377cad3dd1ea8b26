"""What rules an offer out: every constraint is stated once, here or in ``terms``.

Whether spot or on demand is open is decided in ``domain.spot_or_on_demand``, which ``ladder`` asks.

``candidate_list`` only asks whether any constraint rules an offer out; the first of ``rejections``
says which. The numbers of a reason are made when they are read, since most rejections are only
counted.
"""

import math
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from spindown.domain.offer import CapacityType, Offer
from spindown.domain.ranking.candidate import Rejection
from spindown.domain.ranking.terms import Terms
from spindown.domain.reason import About, Reason, ReasonCode
from spindown.domain.requirement import JUDGED

#: Names of all constraints, in order of precedence: the first that applies is the reason given.
PRECEDENCE = (
    *JUDGED,
    "regions",
    "price",
    "max_price_per_hour",
    "max_price_per_gpu_hour",
    "max_dollars_per_hour",
    "ladder",
    "on_demand_price",
    "min_reliability",
    "pool_cooldown",
    "quota",
)
#: Constraints that no wait and no ceiling changes: a type that does not fit, an impossible price.
NEVER = frozenset({*JUDGED, "price"})


def rejections(offer: Offer, terms: Terms) -> Iterator[Rejection]:
    """Yield every constraint that rules an offer out, in order of precedence."""
    unfit = terms.misfit_of(offer.instance_type)
    if unfit is not None:
        yield Rejection(offer, unfit.code.value, unfit.code, lambda: unfit.about)
    block = terms.block_of(offer)
    if block is not None:
        yield _from_reason(offer, "regions", block.reason, block.until)
    if lacks_price(offer):
        price = offer.instance_price
        code = ReasonCode.PRICE_UNKNOWN if price == 0.0 else ReasonCode.PRICE_ABSURD
        yield Rejection(offer, "price", code, lambda: {"price": price})
    for name, most in terms.ceilings(offer.capacity_type, offer.instance_type.gpu_count).items():
        # Written so that a price that is not a number fails.
        if not offer.price <= most:
            yield _OVER_CEILING[name](offer, most, terms)
    if is_dearer_than_on_demand(offer):
        spot, listed = offer.instance_price, offer.on_demand_price or 0.0
        code = ReasonCode.ABOVE_ON_DEMAND
        yield Rejection(offer, "on_demand_price", code, lambda: {"spot": spot, "on_demand": listed})
    rate = terms.rate_of(offer)
    if terms.is_too_unreliable(rate):
        least = terms.situation.policy.min_reliability
        numbers = {"survives": math.exp(-rate), "least": least}
        yield Rejection(offer, "min_reliability", ReasonCode.UNRELIABLE, lambda: numbers)
    yield from _not_given_now(offer, terms)


def lacks_price(offer: Offer) -> bool:
    """Tell whether the price is unknown: 0, below 0 or not a number."""
    return not offer.instance_price > 0.0


def is_dearer_than_on_demand(offer: Offer) -> bool:
    """Tell whether spot costs more than the same type on demand."""
    listed = offer.on_demand_price
    return (
        listed is not None
        and offer.instance_price > listed
        and offer.capacity_type is CapacityType.SPOT
    )


def _not_given_now(offer: Offer, terms: Terms) -> Iterator[Rejection]:
    cooldown = terms.cooldown_of(offer)
    if cooldown is not None:
        reason = cooldown.reason.within(
            ReasonCode.POOL_COOLING_DOWN, until=cooldown.until.isoformat()
        )
        yield _from_reason(offer, "pool_cooldown", reason, cooldown.until)
    quota, full_until = offer.quota_class, terms.quota_blocked_until(offer)
    if full_until is not None:
        about = {"quota": quota, "until": full_until.isoformat()}
        yield Rejection(offer, "quota", ReasonCode.QUOTA_FULL, lambda: about, full_until)
    left = terms.vcpus_short(offer)
    if left is not None:
        short: About = {
            "vcpus": offer.instance_type.vcpus,
            "quota": quota,
            "left": max(left, 0.0),
        }
        yield Rejection(offer, "quota", ReasonCode.QUOTA_SHORT, lambda: short)


def _from_reason(
    offer: Offer, constraint: str, reason: Reason, retry_at: datetime | None
) -> Rejection:
    return Rejection(offer, constraint, reason.code, lambda: reason.about, retry_at)


def _absurd(offer: Offer, _most: float, _terms: Terms) -> Rejection:
    numbers = {"price": offer.instance_price}
    return Rejection(offer, "price", ReasonCode.PRICE_ABSURD, lambda: numbers)


def _over_price(offer: Offer, most: float, _terms: Terms) -> Rejection:
    return Rejection(
        offer,
        "max_price_per_hour",
        ReasonCode.OVER_MAX_PRICE,
        lambda: {"price": offer.price, "most": most},
    )


def _over_gpu_price(offer: Offer, most: float, _terms: Terms) -> Rejection:
    gpus = offer.instance_type.gpu_count
    return Rejection(
        offer,
        "max_price_per_gpu_hour",
        ReasonCode.OVER_GPU_PRICE,
        lambda: {"price": offer.price / gpus, "most": most / gpus},
    )


def _over_headroom(offer: Offer, most: float, _terms: Terms) -> Rejection:
    return Rejection(
        offer,
        "max_dollars_per_hour",
        ReasonCode.OVER_HEADROOM,
        lambda: {"price": offer.price, "left": most},
    )


def _off_ladder(offer: Offer, _most: float, terms: Terms) -> Rejection:
    policy, kind, price = terms.situation.policy, offer.capacity_type, offer.price
    fitting = [
        rung.after
        for rung in policy.ladder
        if kind in rung.capacity_types
        and (rung.max_price_per_hour is None or price <= rung.max_price_per_hour)
    ]
    about: About = {"capacity_type": kind.value, "price": price}
    if not fitting:
        return Rejection(offer, "ladder", ReasonCode.NO_RUNG, lambda: about)
    wait = max(min(*fitting, policy.start_within) - terms.situation.waited, timedelta(0))
    opens = terms.situation.now + wait
    code = ReasonCode.RUNG_OPENS_LATER
    return Rejection(offer, "ladder", code, lambda: {**about, "at": opens.isoformat()}, opens)


#: Ceiling -> the rejection of a price above it; ``terms.Terms.ceilings`` has their order.
_OVER_CEILING: dict[str, Callable[[Offer, float, Terms], Rejection]] = {
    "price": _absurd,
    "max_price_per_hour": _over_price,
    "max_price_per_gpu_hour": _over_gpu_price,
    "max_dollars_per_hour": _over_headroom,
    "ladder": _off_ladder,
}
