"""A lower bound for whole traces by a linear program."""

from research.compare.relaxation.schedule import Relaxed, relaxed

__all__ = ["Relaxed", "relaxed"]
