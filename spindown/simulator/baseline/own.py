"""The shipped policy without spot: what is left of its saving once no price is."""

from dataclasses import replace
from datetime import timedelta

from spindown.domain.offer import CapacityType
from spindown.domain.policy import Policy, Rung

#: Its name among those that people run instead.
OURS_ON_DEMAND = "ours-on-demand"


def on_demand_only(policy: Policy) -> Policy:
    """Return a policy that buys on demand from the first second on, and is the same else."""
    rung = Rung(after=timedelta(0), capacity_types=frozenset({CapacityType.ON_DEMAND}))
    return replace(policy, ladder=(rung,))
