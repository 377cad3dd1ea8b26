"""A linear program that is written down row by row and solved by HiGHS."""

import math
from collections.abc import Sequence

import highspy
import numpy as np
import numpy.typing as npt

from research.bound.refund import refund_share
from spindown.domain.offer import extra_price_per_hour
from spindown.simulator import Listing
from spindown.simulator.scenario import value_at

Terms = Sequence[tuple[int, float]]
#: From so many columns on the interior point method is faster than the simplex method.
_LARGE = 20_000


class Program:
    """Columns of 0 or more, each with a cost, and rows that bound sums of them."""

    def __init__(self) -> None:
        self.costs: list[float] = []
        self._least: list[float] = []
        self._most: list[float] = []
        self._starts = [0]
        self._columns: list[int] = []
        self._factors: list[float] = []

    def add_column(self, cost: float) -> int:
        """Add a column; return its number."""
        self.costs.append(cost)
        return len(self.costs) - 1

    def add_row(self, terms: Terms, *, least: float, most: float = math.inf) -> None:
        """Let the sum of the terms, (column, factor) each, lie between two values."""
        for column, factor in terms:
            self._columns.append(column)
            self._factors.append(factor)
        self._starts.append(len(self._columns))
        self._least.append(least)
        self._most.append(most)

    def solve(self) -> npt.NDArray[np.float64]:
        """Return the value of each column at the least cost.

        Raises:
            ArithmeticError: HiGHS has found no optimum.
        """
        model = highspy.Highs()  # type: ignore[no-untyped-call]
        model.silent()
        model.setOptionValue("threads", 1)
        if len(self.costs) >= _LARGE:
            model.setOptionValue("solver", "ipm")
            model.setOptionValue("run_crossover", "off")
        model.passModel(self._linear())
        model.run()
        status = model.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            raise ArithmeticError(f"HiGHS found no optimum: {status}")
        return np.array(model.getSolution().col_value)

    def _linear(self) -> highspy.HighsLp:
        count = len(self.costs)
        linear = highspy.HighsLp()
        linear.num_col_, linear.num_row_ = count, len(self._least)
        linear.col_cost_ = np.array(self.costs)
        linear.col_lower_ = np.zeros(count)
        linear.col_upper_ = np.full(count, math.inf)
        linear.row_lower_ = np.array(self._least)
        linear.row_upper_ = np.array(self._most)
        linear.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        linear.a_matrix_.start_ = np.array(self._starts)
        linear.a_matrix_.index_ = np.array(self._columns)
        linear.a_matrix_.value_ = np.array(self._factors)
        return linear


def cheapest_hours(
    listings: Sequence[Listing], speed: float, volume_gib: int, instants: Sequence[float]
) -> Sequence[float]:
    """Return the least USD per hour of an instance of one speed at each instant.

    As in ``research.bound.price``: what EC2 reclaims within an hour is free, root
    volume and address are not.
    """
    extra = extra_price_per_hour(volume_gib)
    sold = [listing for listing in listings if listing.speed == speed]
    lists = [listing.on_demand for listing in sold if listing.on_demand is not None]
    zones = [zone for listing in sold for zone in listing.zones.values()]
    hours = []
    for at in instants:
        spot = [
            price * (1.0 - refund_share(zone.reclaims_per_hour))
            for zone in zones
            if (price := value_at(zone.spot, at)) is not None
        ]
        hours.append(min([*spot, *lists], default=math.inf) + extra)
    return hours
