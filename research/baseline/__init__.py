"""What people run instead: the product's baselines, rare ones, and rules for a deadline."""

from research.baseline.deadline import DEADLINE_RULES, simulate_deadline
from research.baseline.rare import ALL, RARE, simulate_any

__all__ = ["ALL", "DEADLINE_RULES", "RARE", "simulate_any", "simulate_deadline"]
