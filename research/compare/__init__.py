"""The shipped policy beside other ways, bounds and exact solutions; ``make compare``."""
