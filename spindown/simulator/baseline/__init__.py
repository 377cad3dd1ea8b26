"""What people run instead, on the same market and with the same bill."""

from spindown.simulator.baseline.deadline import DEADLINE_RULES
from spindown.simulator.baseline.errand import simulate_deadline
from spindown.simulator.baseline.fleet import simulate_baseline
from spindown.simulator.baseline.own import OURS_ON_DEMAND, on_demand_only
from spindown.simulator.baseline.plan import BASELINES, Baseline, Market

__all__ = [
    "BASELINES",
    "DEADLINE_RULES",
    "OURS_ON_DEMAND",
    "Baseline",
    "Market",
    "on_demand_only",
    "simulate_baseline",
    "simulate_deadline",
]
