"""Between what the optimum of a whole trace lies: a bound with whole machines, and schedules."""

from tests.bench.compare.integral.feasible import feasible
from tests.bench.compare.integral.online import online
from tests.bench.compare.integral.schedule import Integral, integral

__all__ = ["Integral", "feasible", "integral", "online"]
