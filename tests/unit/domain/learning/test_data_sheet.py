"""How many workers it takes to know better than a data sheet."""

import math
from random import Random

import pytest

from spindown.domain.learning import (
    DATA_SHEET_ERROR,
    Knowledge,
    ThroughputRecord,
    data_sheet_worth,
    throughput,
)
from tests.builders import a_type
from tests.unit.domain.learning.report import POLICY, measured, rate


@pytest.mark.parametrize(
    ("rates", "worth"),
    [
        pytest.param((), 1.0, id="nothing has run"),
        pytest.param(((), (0.0,)), 1.0, id="nothing was done"),
        pytest.param(((7.0,),), 1.0, id="one report tells of no spread"),
        pytest.param(((7.0,) * 20,), 1 / 20, id="jobs that are alike"),
        pytest.param(((7.0,) * 3, (70.0,) * 3), 1 / 5, id="alike on each of two GPUs"),
        pytest.param(((1.0, 1.0, 1.0, 1000.0),), 1 / 4, id="one of four that hung"),
        pytest.param(
            ((1.0, math.exp(0.6)),), (1 + 0.6**2 / DATA_SHEET_ERROR**2) / 2, id="two that differ"
        ),
    ],
)
def test_a_data_sheet_is_worth_more_the_more_jobs_differ(
    rates: tuple[tuple[float, ...], ...], worth: float
) -> None:
    assert data_sheet_worth(rates) == pytest.approx(worth)
    assert data_sheet_worth(rates[::-1]) == pytest.approx(worth)


@pytest.mark.parametrize("spread", [0.1, 0.3, 0.6, 1.2])
def test_lognormal_jobs_show_their_spread_beyond_the_data_sheet(
    spread: float,
) -> None:
    random = Random(3)
    rates = tuple(random.lognormvariate(5.0, spread) for _ in range(2000))

    assert data_sheet_worth((rates,)) == pytest.approx((spread / DATA_SHEET_ERROR) ** 2, rel=0.1)


def test_one_worker_counts_as_much_as_the_data_sheet_at_first() -> None:
    # Both GPUs did 1,000 items an hour; by its data sheet an L4 does 1.32 times what a T4 does.
    both = {name: measured((500, 1800.0), lives=1) for name in (("T4", 1.0), ("L4", 1.0))}
    scale = 1 / math.sqrt(1.3210572688919688)

    expected = throughput(Knowledge(throughput=both), a_type("g4dn.xlarge"), POLICY)

    assert expected.items_per_hour == pytest.approx(1000 * (1 + scale) / 2)
    assert expected.measured


def test_a_gpu_with_one_worker_s_short_jobs_is_not_fast() -> None:
    # Jobs of 10 s to 40 s; the one worker with an L4 came in an hour of short ones.
    usual = [(1.0, seconds) for seconds in (10.0, 20.0, 40.0)] * 10
    short = [(1.0, 10.0)] * 30

    def of(lives: int) -> float:
        knowledge = Knowledge(
            throughput={
                ("T4", 1.0): measured(*usual, lives=20),
                ("L4", 1.0): measured(*short, lives=lives),
            }
        )
        return rate(knowledge, "g6.xlarge") / rate(knowledge, "g4dn.xlarge")

    assert of(1) < 1.7
    assert of(20) > 2.0


def test_a_row_that_counts_no_workers_is_of_one() -> None:
    record = measured((500, 1800.0), lives=1)
    others = {("L4", 1.0): measured((5000, 1800.0), lives=4)}
    uncounted = ThroughputRecord(items=500, hours=0.5, reports=1, rates=record.rates)

    for known in (record, uncounted):
        knowledge = Knowledge(throughput={("T4", 1.0): known, **others})
        assert rate(knowledge, "g4dn.xlarge") == pytest.approx(
            rate(Knowledge(throughput={("T4", 1.0): record, **others}), "g4dn.xlarge")
        )
    assert rate(knowledge, "g4dn.xlarge") > 1000.0
