"""What people run instead, on the same market and with the same bill."""

from spindown.simulator.baseline.fleet import simulate_baseline
from spindown.simulator.baseline.scaling_rule import (
    BASELINES,
    OURS_ON_DEMAND,
    Baseline,
    PoolChoice,
    on_demand_only,
)

__all__ = [
    "BASELINES",
    "OURS_ON_DEMAND",
    "Baseline",
    "PoolChoice",
    "on_demand_only",
    "simulate_baseline",
]
