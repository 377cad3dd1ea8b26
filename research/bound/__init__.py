"""What no policy can do without: lower bounds in dollars, the denominators of every ratio."""

from research.bound.bought import bought_work
from research.bound.schedule import optimal_schedule
from research.bound.supply import generous
from research.bound.wait import Bound, bound, mean_boot

__all__ = ["Bound", "bought_work", "bound", "generous", "mean_boot", "optimal_schedule"]
