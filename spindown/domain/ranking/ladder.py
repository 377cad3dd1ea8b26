"""The price ladder: what may be bought once work has waited this long."""

import math
from dataclasses import replace
from datetime import timedelta

from spindown.domain.offer import CapacityType
from spindown.domain.policy import Policy, Rung


def open_rungs(policy: Policy, waited: timedelta) -> tuple[Rung, ...]:
    """Return the rungs of the price ladder that have been reached.

    Once ``start_within`` has passed, all of them: the promise comes before the ladder.
    """
    if waited >= policy.start_within:
        return policy.ladder
    return tuple(rung for rung in policy.ladder if rung.after <= waited)


def price_ceilings(policy: Policy, waited: timedelta) -> dict[CapacityType, float]:
    """Return the highest whole price in force by capacity type; a missing one is not open.

    Rungs add up: what was open once stays open while the same work waits.
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
    """Return the policy with every rung of the price ladder open after a wait, if not before.

    Worked: rungs after 0 and 5 min, a wait of 2 min: they open after 0 and 2 min.
    """
    rungs = (replace(rung, after=min(rung.after, wait)) for rung in policy.ladder)
    return replace(policy, ladder=tuple(rungs))
