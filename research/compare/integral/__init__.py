"""Between what the optimum of a whole trace lies: a bound with whole machines, and schedules."""

from research.compare.integral.feasible import feasible
from research.compare.integral.online import online
from research.compare.integral.schedule import Integral, integral

__all__ = ["Integral", "feasible", "integral", "online"]
