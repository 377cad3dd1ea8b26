from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.fleet import WorkerState
from spindown.domain.past_cost import (
    FEW_ITEMS,
    CostPerItem,
    accrue,
    cost_per_item,
    dollars_per_hour,
)
from tests.builders import NOW, a_booting_worker, a_worker, minutes


def test_splits_paid_time_into_boot_busy_and_idle() -> None:
    worker = a_worker(
        launched_at=NOW - minutes(30),
        checked_in_at=NOW - minutes(27),
        idle_since=NOW - minutes(5),
        price_per_hour=0.60,
    )

    accrual = accrue(worker, NOW)

    assert accrual.dollars == pytest.approx(0.30)
    assert (accrual.boot_seconds, accrual.busy_seconds, accrual.idle_seconds) == (180, 1320, 300)
    assert accrual.paid_seconds == 1800
    assert accrual.until == NOW


def test_accrues_only_what_is_new() -> None:
    worker = a_worker(accrued_until=NOW - minutes(1), price_per_hour=0.60)

    accrual = accrue(worker, NOW)

    assert accrual.dollars == pytest.approx(0.01)
    assert (accrual.boot_seconds, accrual.busy_seconds) == (0, 60)


def test_a_worker_that_never_checked_in_only_boots() -> None:
    accrual = accrue(a_booting_worker(age=minutes(2)), NOW)

    assert (accrual.boot_seconds, accrual.busy_seconds, accrual.idle_seconds) == (120, 0, 0)


def test_nothing_accrues_past_the_end() -> None:
    worker = a_worker(ended_at=NOW - minutes(10), state=WorkerState.ENDED)

    accrual = accrue(worker, NOW)

    assert accrual.paid_seconds == 20 * 60
    assert accrue(replace(worker, accrued_until=accrual.until), NOW).dollars == 0


def test_an_instance_is_charged_for_a_minute_at_least() -> None:
    worker = a_booting_worker(age=minutes(5), ended_at=NOW - minutes(4.9))

    assert accrue(worker, NOW).paid_seconds == 60
    # It lived 6 s; what is charged past that is idle, and told apart.
    assert accrue(worker, NOW).boot_seconds == pytest.approx(6)
    assert accrue(worker, NOW).minimum_seconds == pytest.approx(54)
    assert accrue(worker, NOW).idle_seconds == pytest.approx(54)
    assert accrue(worker, NOW - minutes(4.9)).paid_seconds == 60


def test_a_clock_that_went_back_accrues_nothing() -> None:
    worker = a_worker(accrued_until=NOW + minutes(1))

    accrual = accrue(worker, NOW)

    assert accrual.dollars == 0
    assert accrual.until == NOW + minutes(1)


@given(st.lists(st.floats(0, 3600), min_size=1, max_size=10), st.floats(0, 1800))
def test_any_ticks_add_up_to_the_same_bill(ticks: list[float], booted: float) -> None:
    start = NOW - timedelta(hours=1)
    worker = a_worker(
        launched_at=start,
        checked_in_at=start + timedelta(seconds=booted),
        ended_at=NOW,
        price_per_hour=1.0,
    )
    total = 0.0
    for at in [*sorted(start + timedelta(seconds=s) for s in ticks), NOW]:
        accrual = accrue(worker, at)
        total += accrual.dollars
        worker = replace(worker, accrued_until=accrual.until)

    assert total == pytest.approx(1.0)


def test_cost_per_item_busy_and_all_in() -> None:
    found = cost_per_item(dollars=2.0, items=1000, busy_seconds=6000, paid_seconds=8000)

    assert found == CostPerItem(busy=0.0015, all_in=0.002)


@pytest.mark.parametrize(
    ("busy_seconds", "paid_seconds", "busy"),
    [
        pytest.param(9000.0, 8000.0, 0.002, id="more busy than paid, as two accounts may say"),
        pytest.param(0.0, 0.0, 0.0, id="nothing paid yet"),
    ],
)
def test_the_busy_part_is_from_nothing_to_all(
    busy_seconds: float, paid_seconds: float, busy: float
) -> None:
    found = cost_per_item(
        dollars=2.0, items=1000, busy_seconds=busy_seconds, paid_seconds=paid_seconds
    )

    assert found == CostPerItem(busy=busy, all_in=0.002)


def test_a_fraction_of_a_second_is_paid_for_too() -> None:
    found = cost_per_item(dollars=10.0, items=10, busy_seconds=0.25, paid_seconds=0.5)
    assert found is not None
    assert (found.busy, found.all_in) == (0.5, 1.0)


@pytest.mark.parametrize("items", [0, FEW_ITEMS - 1])
def test_there_is_no_cost_per_item_of_few_items(items: int) -> None:
    assert cost_per_item(dollars=2.0, items=items, busy_seconds=0, paid_seconds=100) is None


def test_workers_cost_until_they_have_ended() -> None:
    workers = [
        a_worker(price_per_hour=0.2),
        a_worker(price_per_hour=0.3, state=WorkerState.CONDEMNED),
        a_worker(price_per_hour=0.7, state=WorkerState.ENDED),
    ]

    assert dollars_per_hour(workers) == pytest.approx(0.5)
