"""A mixed-integer program over time that is bounded block by block (Lagrange).

Each column belongs to a step of time, and a block is some steps in a row. Rows whose columns lie in
more than one block are left out; what breaking them is worth is put into the costs instead, at the
dual prices of the linear relaxation. Each block is then a small program of its own. The sum of the
blocks' proven bounds is below the optimum whatever the prices are, and not below the relaxation
at these ones.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import highspy
import numpy as np
import numpy.typing as npt

Terms = Sequence[tuple[int, float]]
_Floats = npt.NDArray[np.float64]
#: From so many columns on the interior point method is faster than the simplex method.
_LARGE = 40_000


@dataclass(frozen=True, slots=True)
class _Row:
    columns: list[int]
    factors: list[float]
    least: float
    most: float


class Blocks:
    """Columns from 0 to a value, each with a cost, and rows that bound sums of them."""

    def __init__(self, steps: int) -> None:
        """Begin with nothing; a block is ``steps`` long."""
        self._steps = steps
        self._costs: list[float] = []
        self._most: list[float] = []
        self._is_whole: list[bool] = []
        self._block: list[int] = []
        self._rows: list[_Row] = []

    @property
    def columns(self) -> int:
        """Return how many columns there are."""
        return len(self._costs)

    def add_column(self, step: int, *, most: float, cost: float = 0.0, whole: bool = False) -> int:
        """Add a column of a step; return its number."""
        self._costs.append(cost)
        self._most.append(most)
        self._is_whole.append(whole)
        self._block.append(step // self._steps)
        return len(self._costs) - 1

    def add_row(self, terms: Terms, *, least: float = -math.inf, most: float = math.inf) -> None:
        """Let the sum of the terms, (column, factor) each, lie between two values."""
        columns, factors = zip(*terms, strict=True)
        self._rows.append(_Row(list(columns), list(factors), least, most))

    def solve(self, seconds: float) -> tuple[float, float]:
        """Return a lower bound on the optimum, and that of the linear relaxation.

        Args:
            seconds: for the whole numbers of one block.

        Raises:
            ArithmeticError: HiGHS has found no optimum of the relaxation.
        """
        every = np.arange(self.columns)
        model = _pass(self._linear(every, self._rows, np.array(self._costs)))
        if self.columns >= _LARGE:
            model.setOptionValue("solver", "ipm")
        model.run()
        status = model.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            raise ArithmeticError(f"HiGHS found no optimum: {status}")
        relaxed = float(model.getInfo().objective_function_value)
        blocks = sorted(set(self._block))
        if len(blocks) == 1:
            return max(relaxed, self._bound(every, self._rows, np.array(self._costs), seconds)), (
                relaxed
            )
        return max(relaxed, self._bound_apart(model.getSolution().row_dual, seconds)), relaxed

    def _bound_apart(self, prices: Sequence[float], seconds: float) -> float:
        costs, constant = np.array(self._costs), 0.0
        inner: dict[int, list[_Row]] = {block: [] for block in self._block}
        for row, price in zip(self._rows, prices, strict=True):
            found = {self._block[column] for column in row.columns}
            if len(found) == 1:
                inner[found.pop()].append(row)
                continue
            limit = row.least if price > 0.0 else row.most
            if math.isinf(limit):
                continue
            constant += price * limit
            np.subtract.at(costs, row.columns, price * np.array(row.factors))
        where = np.array(self._block)
        return constant + math.fsum(
            self._bound(np.flatnonzero(where == block), rows, costs, seconds)
            for block, rows in inner.items()
        )

    def _bound(
        self, columns: npt.NDArray[np.int64], rows: Sequence[_Row], costs: _Floats, seconds: float
    ) -> float:
        """Return what is proven of some columns and the rows among them."""
        linear = self._linear(columns, rows, costs)
        whole = np.array(self._is_whole)[columns]
        linear.integrality_ = [
            highspy.HighsVarType.kInteger if each else highspy.HighsVarType.kContinuous
            for each in whole
        ]
        model = _pass(linear)
        model.setOptionValue("time_limit", seconds)
        model.run()
        info = model.getInfo()
        bound = float(info.mip_dual_bound)
        # Nothing proven in time: every column where it is cheapest, which breaks all rows.
        loosest = float(np.minimum(costs[columns] * np.array(self._most)[columns], 0.0).sum())
        return max(bound, loosest)

    def _linear(
        self, columns: npt.NDArray[np.int64], rows: Sequence[_Row], costs: _Floats
    ) -> highspy.HighsLp:
        place = np.full(self.columns, -1)
        place[columns] = np.arange(len(columns))
        linear = highspy.HighsLp()
        linear.num_col_, linear.num_row_ = len(columns), len(rows)
        linear.col_cost_ = costs[columns]
        linear.col_lower_ = np.zeros(len(columns))
        linear.col_upper_ = np.array(self._most)[columns]
        linear.row_lower_ = np.array([row.least for row in rows])
        linear.row_upper_ = np.array([row.most for row in rows])
        starts = np.cumsum([0, *(len(row.columns) for row in rows)])
        linear.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        linear.a_matrix_.start_ = starts
        linear.a_matrix_.index_ = place[[column for row in rows for column in row.columns]]
        linear.a_matrix_.value_ = np.array([x for row in rows for x in row.factors])
        return linear


def _pass(linear: highspy.HighsLp) -> highspy.Highs:
    model = highspy.Highs()  # type: ignore[no-untyped-call]
    model.silent()
    model.setOptionValue("threads", 1)
    model.passModel(linear)
    return model
