"""When work goes from spot to on demand: the price ladder, by what it has waited or its deadline.

``schedule.finish_within`` decides by a deadline which mode of purchase holds; what is open is
ranked. More ways lead to on demand: ``wasted_work``, if EC2 keeps taking a job's machines back;
spot as a ``useless_trait``, which opens all rungs (``control.plan.offers``); on-demand capacity
that is paid for already (``account_pricing.open_to_paid``); and ``control.plan.migrate``, for a
job at work.
"""

import math
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum

from spindown.domain.offer import CapacityType
from spindown.domain.policy import Policy, Rung


class PurchaseMode(StrEnum):
    """What a deadline allows for a waiting job; ``ReasonCode`` has the same codes."""

    #: What the first rung allows, or nothing.
    SPOT = "wait-for-spot"
    #: What any rung allows.
    ANY = "take-any"
    #: No time is left for another loss of a spot instance.
    ON_DEMAND = "on-demand-only"


def open_rungs(policy: Policy, waited: timedelta) -> tuple[Rung, ...]:
    """Return the rungs of the price ladder that have been reached.

    Once ``start_within`` has passed, all are open: the promise comes before the ladder.
    """
    if waited >= policy.start_within:
        return policy.ladder
    return tuple(rung for rung in policy.ladder if rung.after <= waited)


def price_ceilings(policy: Policy, waited: timedelta) -> dict[CapacityType, float]:
    """Return the highest whole price by capacity type; a type that is missing is not open.

    Rungs add up: what one rung has opened, a later rung never closes.
    """
    if not policy.ladder:
        return dict.fromkeys(CapacityType, policy.max_price_per_hour)
    found: dict[CapacityType, float] = {}
    for rung in open_rungs(policy, waited):
        own = math.inf if rung.max_price_per_hour is None else rung.max_price_per_hour
        for capacity_type in rung.capacity_types:
            ceiling = min(own, policy.max_price_per_hour)
            found[capacity_type] = max(found.get(capacity_type, ceiling), ceiling)
    return found


def bring_forward(policy: Policy, wait: timedelta) -> Policy:
    """Return the policy with every rung open after this wait at the latest.

    Worked: rungs after 0 and 5 min, a wait of 2 min: they open after 0 and 2 min.
    """
    rungs = (replace(rung, after=min(rung.after, wait)) for rung in policy.ladder)
    return replace(policy, ladder=tuple(rungs))


def allows(policy: Policy, kind: CapacityType) -> bool:
    """Tell whether any rung of the ladder allows a capacity type."""
    return not policy.ladder or any(kind in rung.capacity_types for rung in policy.ladder)


def open_ladder(policy: Policy, wanted: PurchaseMode | CapacityType) -> Policy:
    """Return the policy with the rungs that a mode opens, all of them at once.

    ``wanted`` may be one capacity type too: then every rung that allows it is open, for it alone.
    What no rung allows is never bought: where none is left, the whole ladder is open.
    """
    rungs = policy.ladder
    if wanted is PurchaseMode.SPOT:
        rungs = rungs[:1]
    elif wanted is not PurchaseMode.ANY:
        kind = wanted if isinstance(wanted, CapacityType) else CapacityType.ON_DEMAND
        rungs = tuple(
            replace(rung, capacity_types=frozenset({kind}))
            for rung in rungs
            if kind in rung.capacity_types
        )
    at_once = (replace(rung, after=timedelta(0)) for rung in rungs or policy.ladder)
    return replace(policy, ladder=tuple(at_once))


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLadder:
    """What of the price ladder is open now, and why."""

    #: With the rungs in force.
    policy: Policy
    #: The wait that their times are compared with.
    waited: timedelta
    #: Whether work is or would be late, so that even an estimated price will do.
    is_late: bool
    #: Whether start deadlines open a rung before its own time.
    is_early: bool = False


def ladder_now(
    policy: Policy,
    waited: timedelta,
    *,
    override: PurchaseMode | CapacityType | None,
    opens_in: timedelta | None,
) -> OpenLadder:
    """Return what of the price ladder is open now.

    A finish deadline opens it by the slack that is left, not by the wait. Without one, each rung
    opens after its own wait, or when start deadlines need all of them.

    Args:
        policy: the ladder, and ``start_within``.
        waited: how long work has waited.
        override: what a finish deadline or a migration asks for; None: neither does.
        opens_in: time until start deadlines open the ladder; None: they need not.
    """
    is_late = waited >= policy.start_within
    if override is not None:
        asks_more = {PurchaseMode.ANY, PurchaseMode.ON_DEMAND, CapacityType.ON_DEMAND}
        forced = open_ladder(policy, override)
        return OpenLadder(policy=forced, waited=waited, is_late=override in asks_more)
    if opens_in is None:
        return OpenLadder(policy=policy, waited=waited, is_late=is_late)
    sooner = bring_forward(policy, waited + opens_in)
    is_early = price_ceilings(sooner, waited) != price_ceilings(policy, waited)
    return OpenLadder(policy=sooner, waited=waited, is_late=is_late or is_early, is_early=is_early)
