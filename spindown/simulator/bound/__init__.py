"""What no policy can do without: lower bounds in dollars, the denominators of every ratio."""

from spindown.simulator.bound.passage import passage
from spindown.simulator.bound.supply import generous
from spindown.simulator.bound.wait import Bound, bound, mean_boot

__all__ = ["Bound", "bound", "generous", "mean_boot", "passage"]
