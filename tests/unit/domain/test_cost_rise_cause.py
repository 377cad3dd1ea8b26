"""A dear item is explained by the part of its cost that moved most."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.cost_rise_cause import (
    Cause,
    CostFactors,
    Fit,
    diagnose,
    factors_of,
    split_rise,
)
from spindown.domain.past_cost import CostWindow
from spindown.domain.reason import ReasonCode
from spindown.reason_text import say_remedy

#: 0.5 USD/h, 1000 items an hour, boots of 6 and idle tails of 3 minutes for 500 items each:
#: 0.00066 USD an item.
USUAL = CostFactors(
    price_per_hour=0.5,
    work_hours=0.001,
    redo_hours=0.00002,
    boot_hours=0.1,
    idle_hours=0.05,
    items_per_launch=500.0,
)


@pytest.mark.parametrize(
    ("now", "cause", "said"),
    [
        pytest.param(
            replace(USUAL, price_per_hour=1.5, idle_hours=0.06),
            Cause.PRICE,
            "max_price_per_hour",
            id="the hour became dearer",
        ),
        pytest.param(
            replace(USUAL, boot_hours=0.6, price_per_hour=0.52),
            Cause.BOOT,
            "`mode`",
            id="boots became longer",
        ),
        pytest.param(
            replace(USUAL, idle_hours=0.55, boot_hours=0.11),
            Cause.IDLE,
            "idle_timeout",
            id="workers idle longer",
        ),
        pytest.param(
            replace(USUAL, redo_hours=0.001, work_hours=0.0011),
            Cause.REDO,
            "checkpoint_interval",
            id="more work is lost and repeated",
        ),
        pytest.param(
            replace(USUAL, work_hours=0.003, boot_hours=0.12),
            Cause.THROUGHPUT,
            "batch_size",
            id="items take longer",
        ),
        pytest.param(
            replace(USUAL, items_per_launch=25.0, price_per_hour=0.55),
            Cause.SPARSE_QUEUE,
            "start_within",
            id="a launch serves few items",
        ),
    ],
)
def test_names_the_part_that_moved_most(now: CostFactors, cause: Cause, said: str) -> None:
    found = diagnose(now, USUAL)

    assert found.cause is cause
    assert found.dollars == max(found.parts.values())
    assert said in say_remedy(found.reason)
    assert (found.cost, found.usual) == (now.cost_per_item, USUAL.cost_per_item)


@pytest.mark.parametrize(
    ("now", "numbers"),
    [
        pytest.param(
            replace(USUAL, price_per_hour=1.5),
            (1.5, 0.5),
            id="price",
        ),
        pytest.param(
            replace(USUAL, boot_hours=0.6),
            (36.0, 6.0),
            id="boot",
        ),
        pytest.param(
            replace(USUAL, idle_hours=0.55),
            (33.0, 3.0),
            id="idle",
        ),
        pytest.param(
            replace(USUAL, redo_hours=0.001),
            (50.0, 100.0 / 51.0),
            id="redo",
        ),
        pytest.param(
            replace(USUAL, work_hours=0.004),
            (250.0, 1000.0),
            id="throughput",
        ),
        pytest.param(
            replace(USUAL, items_per_launch=25.0),
            (25.0, 500.0),
            id="sparse queue",
        ),
    ],
)
def test_tells_how_much_of_the_cause_there_is_and_is_usual(
    now: CostFactors, numbers: tuple[float, float]
) -> None:
    found = diagnose(now, USUAL)

    about = found.reason.about
    assert (about["cost"], about["usual"]) == (now.cost_per_item, USUAL.cost_per_item)
    assert (about["now"], about["before"]) == pytest.approx(numbers)


def test_tells_which_share_of_the_computing_repeats_lost_work() -> None:
    usual = replace(USUAL, redo_hours=0.004)

    found = diagnose(replace(usual, redo_hours=0.019), usual)

    assert found.reason.code is ReasonCode.COST_REDO
    assert (found.reason.about["now"], found.reason.about["before"]) == pytest.approx((95.0, 80.0))


def test_without_computation_no_work_is_redone_and_none_done() -> None:
    idled = replace(USUAL, work_hours=0.0, redo_hours=0.0)

    repeated = diagnose(replace(USUAL, redo_hours=0.01), idled)
    slower = diagnose(replace(USUAL, work_hours=0.01), idled)

    assert repeated.reason.about["before"] == 0.0
    assert (slower.reason.about["now"], slower.reason.about["before"]) == pytest.approx(
        (100.0, 0.0)
    )


def test_names_overkill_when_a_cheaper_offer_saves_most() -> None:
    dear = replace(USUAL, price_per_hour=1.0)
    fit = Fit(gpu_mean=12.0, vram_max=20.0, cheapest_price=0.2, cheapest_offer="g4dn.xlarge")

    found = diagnose(dear, USUAL, fit=fit)

    assert found.cause is Cause.OVERKILL
    assert found.dollars == pytest.approx((1.0 - 0.2) * dear.hours)
    assert found.reason.about["offer"] == "g4dn.xlarge"
    assert (found.reason.about["price"], found.reason.about["gpu"]) == (0.2, 12.0)
    assert "`gpu_memory_gib_min`" in say_remedy(found.reason)


@pytest.mark.parametrize(
    "fit",
    [
        pytest.param(Fit(gpu_mean=30.0, vram_max=20.0, cheapest_price=0.2), id="the GPU is used"),
        pytest.param(Fit(gpu_mean=12.0, vram_max=85.0, cheapest_price=0.2), id="VRAM is used"),
        pytest.param(Fit(gpu_mean=12.0, vram_max=20.0, cheapest_price=None), id="nothing fits"),
        pytest.param(Fit(gpu_mean=12.0, vram_max=20.0, cheapest_price=1.1), id="it is dearer"),
    ],
)
def test_does_not_blame_a_machine_that_is_needed(fit: Fit) -> None:
    found = diagnose(replace(USUAL, price_per_hour=1.0), USUAL, fit=fit)

    assert found.cause is Cause.PRICE
    assert found.parts[Cause.OVERKILL] == 0.0


SHAPES = st.builds(
    CostFactors,
    price_per_hour=st.floats(0.05, 50.0),
    work_hours=st.floats(1e-6, 1.0),
    redo_hours=st.floats(0.0, 1.0),
    boot_hours=st.floats(0.0, 1.0),
    idle_hours=st.floats(0.0, 1.0),
    items_per_launch=st.floats(1.0, 1e6),
)


@given(now=SHAPES, usual=SHAPES)
def test_the_parts_sum_to_the_rise(now: CostFactors, usual: CostFactors) -> None:
    rise = now.cost_per_item - usual.cost_per_item

    assert sum(split_rise(now, usual).values()) == pytest.approx(rise, abs=1e-9, rel=1e-6)


def a_window(**changes: Any) -> CostWindow:
    base = CostWindow(
        dollars=2.0,
        items=900,
        items_redone=100,
        launches=3,
        boot_seconds=1080.0,
        busy_seconds=5400.0,
        idle_seconds=720.0,
    )
    return replace(base, **changes)


def test_the_shape_of_a_window_costs_what_the_window_cost() -> None:
    factors = factors_of(a_window())

    assert factors is not None
    assert factors.cost_per_item == pytest.approx(2.0 / 900)
    assert factors.price_per_hour == pytest.approx(1.0)
    assert factors.boot_hours == pytest.approx(0.1)
    assert factors.items_per_launch == 300.0
    assert factors.redo_hours / (factors.redo_hours + factors.work_hours) == pytest.approx(0.1)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"items": 0}, id="no item was done"),
        pytest.param({"dollars": 0.0}, id="nothing was paid"),
        pytest.param(
            {"boot_seconds": 0.0, "busy_seconds": 0.0, "idle_seconds": 0.0}, id="nothing ran"
        ),
    ],
)
def test_a_window_without_cost_or_items_has_no_factors(changes: dict[str, Any]) -> None:
    assert factors_of(a_window(**changes)) is None


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"items": 1}, id="one item"),
        pytest.param({"dollars": 0.004}, id="less than a cent"),
        pytest.param(
            {"boot_seconds": 0.0, "busy_seconds": 0.4, "idle_seconds": 0.0}, id="a moment"
        ),
    ],
)
def test_a_window_has_factors_however_little_it_holds(changes: dict[str, Any]) -> None:
    window = a_window(**changes)
    factors = factors_of(window)

    assert factors is not None
    assert factors.cost_per_item == pytest.approx(window.dollars / window.items)


def test_a_window_on_earlier_launches_counts_as_one_launch() -> None:
    factors = factors_of(a_window(launches=0))

    assert factors is not None
    assert factors.items_per_launch == 900.0
