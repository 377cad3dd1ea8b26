"""What one workload costs, beside what it might: on demand, on one warm machine, in the budget."""

from collections.abc import Sequence

from aws_cdk import aws_cloudwatch as cloudwatch

from infra.insight.question import Graph, Question
from infra.insight.series import DAY, HOUR, Series
from spindown.contract.metric import CAUSE

#: Variable of a day's sum -> its metric.
_NAMES = {"spend": "Spend", "spendOnDemand": "SpendOnDemand", "warmDollars": "WarmDollars"}


def ask_cost(series: Series, budget_per_month: float | None) -> Question:
    """Return the row of the dashboard; the budget is that of the deploy, in USD."""
    return Question(
        title="What does it cost?",
        how_to_read=(
            "All in counts every paid second, busy only those with a job: the gap between them "
            "is boot and idle time. Dollars are estimates at the price stamped at each launch. "
            "The saving compares with the same hours on demand, and with the cheapest machine "
            "that fits, kept on demand all day. An item that costs half as much again as in the "
            "week before is told of, with its cause. The month is the whole deployment's."
        ),
        graphs=[
            Graph(
                title="Cost per item today",
                left=[
                    series.metric("CostPerItem", "Maximum", label="all in"),
                    series.metric("CostPerItemBusy", "Maximum", label="busy"),
                ],
                left_label="USD",
            ),
            Graph(
                title="Why an item became dear",
                left=[series.search("CostRise", "Maximum", by=CAUSE, period=HOUR)],
                left_label="USD per item",
                stacked=True,
            ),
            Graph(
                title="Dollars per hour",
                left=[series.level("DollarsPerHour", label="now running")],
                left_label="USD",
            ),
            _a_day(series),
            Graph(
                title="Month",
                left=[series.metric("SpendOfMonth", "Maximum", label="spent")],
                right=[series.metric("BudgetUsed", "Maximum", label="budget used, %")],
                left_label="USD",
                right_label="percent",
                marks=[(budget_per_month, "budget")] if budget_per_month is not None else [],
            ),
        ],
    )


def _a_day(series: Series) -> Graph:
    return Graph(
        title="A day beside what it might have cost",
        left=[
            _day(series, "spend", "spent"),
            _day(series, "spendOnDemand", "the same hours on demand"),
            _day(series, "warmDollars", "one warm machine"),
        ],
        right=[
            _saving(series, "spendOnDemand", "saved against on demand"),
            _saving(series, "warmDollars", "saved against one warm machine"),
        ],
        left_label="USD",
        right_label="percent",
        right_from_zero=False,
    )


def _day(series: Series, variable: str, label: str) -> cloudwatch.MathExpression:
    """Return a day's dollars of one kind, by the name of the variable."""
    return _math(series, f"FILL({variable}, 0)", [variable], label)


def _saving(series: Series, other: str, label: str) -> cloudwatch.MathExpression:
    """Return what is saved in a day against the dollars of another kind, in percent of those."""
    share = f"IF({other} > 0, 100 * (1 - FILL(spend, 0) / {other}))"
    return _math(series, share, ["spend", other], label)


def _math(
    series: Series, expression: str, variables: Sequence[str], label: str
) -> cloudwatch.MathExpression:
    # The graph's expressions share their variables, so that each metric is shown once.
    return cloudwatch.MathExpression(
        expression=expression,
        using_metrics={name: series.total(_NAMES[name], period=DAY) for name in variables},
        label=label,
        period=DAY,
    )
