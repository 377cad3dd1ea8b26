"""A lower bound for whole traces with whole machines, by mixed-integer programs."""

from tests.bench.compare.integral.schedule import Integral, integral

__all__ = ["Integral", "integral"]
