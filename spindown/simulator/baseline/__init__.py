"""What people run instead, on the same market and with the same bill."""

from spindown.simulator.baseline.fleet import simulate_baseline
from spindown.simulator.baseline.plan import BASELINES, Baseline, Market

__all__ = ["BASELINES", "Baseline", "Market", "simulate_baseline"]
