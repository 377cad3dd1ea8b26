"""Boots, the items of a job, the cost of a commit, what an item moves: estimated, then learned."""

from datetime import timedelta
from typing import Any

import pytest

from spindown.domain.learning import (
    Knowledge,
    ThroughputRecord,
    boot_p50,
    boot_p95,
    check_in_within,
    checkpoint_cost,
    items_per_job,
    traffic,
)
from tests.builders import job_sizes, minutes
from tests.unit.domain.learning.report import POLICY


@pytest.mark.parametrize(
    ("boots", "p50", "p95"),
    [
        pytest.param((), 180.0, 180.0, id="estimate"),
        pytest.param((60.0,), 60.0, 60.0, id="one"),
        pytest.param((0.5,), 0.5, 0.5, id="half a second"),
        pytest.param((-2.0,), 0.0, 0.0, id="two clocks"),
        pytest.param((90.0,) * 9 + (500.0,), 90.0, 860 / 3, id="one slow boot among few"),
        pytest.param((90.0,) * 36 + (500.0,) * 4, 90.0, 1180 / 3, id="one in ten of many"),
        pytest.param(tuple(float(n) for n in range(100, 0, -1)), 50.0, 95.0, id="a hundred"),
    ],
)
def test_boot_times(boots: tuple[float, ...], p50: float, p95: float) -> None:
    knowledge = Knowledge(boots=boots)

    assert boot_p50(knowledge, POLICY).total_seconds() == p50
    assert boot_p95(knowledge, POLICY).total_seconds() == pytest.approx(p95)


@pytest.mark.parametrize(
    ("boots", "expected"),
    [
        pytest.param((), minutes(10), id="not learned"),
        pytest.param((60.0,), minutes(10), id="fast"),
        pytest.param((900.0,), minutes(30), id="twice the slow boot"),
    ],
)
def test_a_launch_has_until_twice_its_usual_boot(
    boots: tuple[float, ...], expected: timedelta
) -> None:
    assert check_in_within(Knowledge(check_ins=boots), POLICY) == expected


@pytest.mark.parametrize(
    ("samples", "expected"), [((), 100.0), ((10.0, 30.0), 20.0), ((0.0,), 1.0)]
)
def test_items_of_a_job_are_at_least_one(samples: tuple[float, ...], expected: float) -> None:
    assert items_per_job(Knowledge(jobs=job_sizes(*samples)), POLICY) == expected


@pytest.mark.parametrize(
    ("samples", "seconds"), [((), 1.0), ((2.0, 4.0, 90.0), 4.0), ((0.25,), 0.25), ((-1.0,), 0.0)]
)
def test_checkpoint_cost_is_the_median(samples: Any, seconds: float) -> None:
    assert checkpoint_cost(Knowledge(checkpoints=samples)).total_seconds() == seconds


@pytest.mark.parametrize(
    ("records", "mib_in", "mib_out"),
    [
        pytest.param([], 1.0, 0.0, id="nothing seen: the estimate"),
        pytest.param([(0.0, 0.0, 0.0)], 1.0, 0.0, id="nothing counted yet"),
        pytest.param([(99.0, 99 * 8.0, 0.0)], 7.93, 0.0, id="one GPU, pulled by one item"),
        pytest.param([(9.0, 9.0, 9.0), (10.0, 50.0, 1.0)], 3.0, 0.5, id="every GPU counts"),
    ],
)
def test_an_item_moves_what_items_moved(
    records: list[tuple[float, float, float]], mib_in: float, mib_out: float
) -> None:
    seen = {
        (f"gpu-{n}", 1.0): ThroughputRecord(moved=items, gib_in=taken / 1024, gib_out=given / 1024)
        for n, (items, taken, given) in enumerate(records)
    }

    moved = traffic(Knowledge(throughput=seen), POLICY)

    assert moved.gib_in * 1024 == pytest.approx(mib_in)
    assert moved.gib_out * 1024 == pytest.approx(mib_out)
