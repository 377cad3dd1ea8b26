"""What an item has cost is told once there are enough, and of a span that has passed."""

from datetime import timedelta

import pytest

from spindown.cli.render.saving import item_cost_cell, say_item_cost, say_span_until
from spindown.domain.past_cost import CostWindow
from tests.builders import NOW


def a_window(items: float) -> CostWindow:
    return CostWindow(
        dollars=1.0,
        items=items,
        items_redone=0.0,
        launches=1.0,
        boot_seconds=1.0,
        busy_seconds=1.0,
        idle_seconds=1.0,
    )


@pytest.mark.parametrize(
    ("items", "said"),
    [
        (0, ""),
        (2, "too few items in 24 hours to say what one costs"),
        (10, "$0.1 an item all in, in 24 hours"),
    ],
)
def test_of_a_few_items_no_cost_is_told(items: float, said: str) -> None:
    window = a_window(items)

    assert say_item_cost(window, "in 24 hours", window) == said


@pytest.mark.parametrize(
    ("items_of_week", "trend"), [(0, ""), (20, " (+100 % on 7 days)"), (9, "")]
)
def test_the_cost_of_an_item_is_told_with_its_trend(items_of_week: float, trend: str) -> None:
    said = say_item_cost(a_window(10), "in 24 hours", a_window(items_of_week))

    assert said == f"$0.1 an item all in, in 24 hours{trend}"


@pytest.mark.parametrize(
    ("items", "cell"),
    [(0, ""), (9, "too few items"), (10, "$0.1 an item"), (50, "$20 for 1,000 items")],
)
def test_a_table_tells_the_cost_of_an_item_likewise(items: int, cell: str) -> None:
    assert item_cost_cell(1.0, items) == cell


@pytest.mark.parametrize(
    ("begun", "days", "said"),
    [
        (timedelta(minutes=6), 7, "since 11:54 UTC"),
        (timedelta(days=3), 7, f"since {NOW - timedelta(days=3):%Y-%m-%d}"),
        (timedelta(days=3), 1, "in 24 hours"),
        (timedelta(days=9), 7, "in 7 days"),
        (None, 7, "in 7 days"),
    ],
)
def test_a_span_that_has_not_passed_is_told_by_its_begin(
    begun: timedelta | None, days: int, said: str
) -> None:
    first = None if begun is None else NOW - begun

    assert say_span_until(NOW, first, days) == said
