"""Why an offer is not taken: the first constraint that rules it out, in order of precedence.

Must agree with the one pass of ``score`` on every offer; a property test holds them together.
The sentence is written only when it is read: most reasons are only counted.
"""

import math
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from spindown.domain.offer import CapacityType, Offer
from spindown.domain.ranking.terms import HIGHEST_PRICE, Terms
from spindown.domain.requirement import misfit

#: Constraint, sentence, and when it may lift by itself.
Reason = tuple[str, Callable[[], str], datetime | None]


#: What is judged after the requirements, in this order.
PRECEDENCE = (
    "regions",
    "price",
    "max_price_per_hour",
    "max_price_per_gpu_hour",
    "max_dollars_per_hour",
    "ladder",
    "on_demand_price",
    "min_reliability",
    "unavailable",
    "quota",
)


def reasons(offer: Offer, terms: Terms) -> Iterator[Reason]:
    """Yield what rules an offer out, in order of precedence."""
    policy, kind = terms.situation.policy, offer.instance_type
    unfit = misfit(kind, terms.situation.requirements)
    if unfit is not None:
        requirement, sentence = unfit
        yield requirement, lambda: sentence, None
    block = terms.situation.closed.get(offer.region)
    if block is not None:
        yield "regions", lambda: block.reason, block.until
    price = offer.price
    if offer.instance_price == 0.0:
        yield "price", lambda: "no price is known, neither as spot nor on demand", None
    elif not (offer.instance_price > 0.0 and price <= HIGHEST_PRICE):
        yield "price", lambda: f"{offer.instance_price:g} USD/h cannot be right", None
    yield from _over_ceiling(offer, terms)
    yield from _off_ladder(offer, terms)
    on_demand = offer.on_demand_price
    if (
        offer.capacity_type is CapacityType.SPOT
        and on_demand is not None
        and offer.instance_price > on_demand
    ):
        yield (
            "on_demand_price",
            lambda: (
                f"{offer.instance_price:.4f} USD/h as spot is dearer than {on_demand:.4f} on demand"
            ),
            None,
        )
    rate = terms.rate_of(offer)
    if rate > terms.rate_at_most:
        least = policy.min_reliability
        yield (
            "min_reliability",
            lambda: f"it lives an hour with probability {math.exp(-rate):.3f}, below {least:g}",
            None,
        )
    yield from _out_of_reach(offer, terms)


def _out_of_reach(offer: Offer, terms: Terms) -> Iterator[Reason]:
    """Yield what EC2 will not give now."""
    kind = offer.instance_type
    dry = terms.dry.get((kind.name, offer.zone, offer.capacity_type))
    if dry is not None:
        back, why = dry.until, dry.reason.about.get("refusal", dry.reason.code)
        yield (
            "unavailable",
            lambda: f"{why}; left alone until {back:%H:%M:%S}",
            back,
        )
    until = terms.blocked.get(offer.quota_class)
    if until is not None:
        full = offer.quota_class
        yield "quota", lambda: f"quota {full} is full; blocked until {until:%H:%M:%S}", until
    left = terms.vcpus_short(offer)
    if left is not None:
        count, needed = max(left, 0.0), kind.vcpus
        short = offer.quota_class
        yield "quota", lambda: f"it takes {needed} vCPUs, quota {short} has {count:g} left", None


def _over_ceiling(offer: Offer, terms: Terms) -> Iterator[Reason]:
    policy, price, gpus = terms.situation.policy, offer.price, offer.instance_type.gpu_count
    if price > policy.max_price_per_hour:
        ceiling = policy.max_price_per_hour
        yield "max_price_per_hour", lambda: f"{price:.4f} USD/h is above {ceiling:g}", None
    per_gpu = policy.max_price_per_gpu_hour
    if per_gpu is not None and gpus > 0.0 and price > per_gpu * gpus:
        each = price / gpus
        yield (
            "max_price_per_gpu_hour",
            lambda: f"{each:.4f} USD per GPU-hour is above {per_gpu:g}",
            None,
        )
    if price > terms.situation.headroom_per_hour:
        left = terms.situation.headroom_per_hour
        yield (
            "max_dollars_per_hour",
            lambda: f"{price:.4f} USD/h, and {left:.4f} are left to grow",
            None,
        )


def _off_ladder(offer: Offer, terms: Terms) -> Iterator[Reason]:
    price, capacity_type = offer.price, offer.capacity_type
    ceiling = terms.ceilings.get(capacity_type, -math.inf)
    if price <= ceiling:
        return
    policy, waited = terms.situation.policy, terms.situation.waited
    fitting = [
        rung.after
        for rung in policy.ladder
        if capacity_type in rung.capacity_types
        and (rung.max_price_per_hour is None or price <= rung.max_price_per_hour)
    ]
    if not fitting:
        yield "ladder", lambda: f"no rung allows {capacity_type} at {price:.4f} USD/h", None
        return
    wait = max(min(*fitting, policy.start_within) - waited, timedelta(0))
    opens = terms.situation.now + wait
    yield "ladder", lambda: f"{capacity_type} at {price:.4f} USD/h opens at {opens:%H:%M:%S}", opens
