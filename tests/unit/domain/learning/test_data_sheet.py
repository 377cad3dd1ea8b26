"""How much a data sheet is worth beside what a workload has shown."""

import math

import pytest

from spindown.domain.learning import Knowledge, ThroughputRecord, relative_throughput
from spindown.domain.learning.knowledge import prior_hours
from spindown.domain.learning.sample import worth_in_reports
from tests.unit.domain.learning.report import measured, rate


@pytest.mark.parametrize(
    ("rates", "reports"),
    [
        pytest.param([], 0.0, id="no GPU"),
        pytest.param([(1.0, 9.0)], 0.0, id="too few to tell"),
        pytest.param([(5.0, 5.0, 5.0)], 0.0, id="jobs alike"),
        pytest.param([(1.0, 1.0, 1.0, 1e-9)], 0.0, id="one that hung"),
        pytest.param([(0.0, 0.0, 0.0)], 0.0, id="no item in most"),
        pytest.param([(1.0, 1.0, math.inf)], 0.0, id="no time in some"),
        # The third quartile of a normal distribution is 0.6745 deviations above its median.
        pytest.param([(0.1, 1.0, math.exp(0.6745 * 0.5))], 4.0, id="two data sheets apart"),
        pytest.param(
            [(0.1, 1.0, math.exp(0.6745 * 0.5)), (7.0, 7.0, 7.0, 7.0, 7.0)],
            2 * 4.0 / 6,
            id="each GPU by how many it has",
        ),
    ],
)
def test_a_data_sheet_counts_as_many_reports_as_they_differ(
    rates: list[tuple[float, ...]], reports: float
) -> None:
    assert worth_in_reports(rates) == pytest.approx(reports)


def test_few_reports_of_unequal_jobs_move_a_gpu_little_and_many_do() -> None:
    # Jobs of the T4 differ by a factor; three of the A10G happened to be short.
    unequal = [(1000 * math.exp(0.6745 * k), 3600.0) for k in (-1, 0, 1)] * 9
    prior = relative_throughput("A10G", 1.0) / relative_throughput("T4", 1.0)

    def ratio(count: int) -> float:
        lucky = measured(*[(4000.0, 3600.0)] * count)
        known = {("T4", 1.0): measured(*unequal), ("A10G", 1.0): lucky}
        knowledge = Knowledge(throughput=known)
        return rate(knowledge, "g5.xlarge") / rate(knowledge, "g4dn.xlarge")

    assert prior < ratio(3) < 1.35 * prior
    assert ratio(3) < ratio(30) < ratio(300)
    assert ratio(300) == pytest.approx(3.3, rel=0.1)


@pytest.mark.parametrize(("reports", "share"), [(0, 1.0), (1, 1.0), (4, 0.25)])
def test_a_data_sheet_is_worth_the_hours_of_so_many_reports(reports: int, share: float) -> None:
    record = ThroughputRecord(items=10.0, hours=2.0, reports=reports)
    rates = (100.0, 100.0, 200.0)
    known = Knowledge(throughput={("T4", 1.0): record, ("L4", 1.0): ThroughputRecord(rates=rates)})

    assert prior_hours(known, record) == pytest.approx(worth_in_reports([rates]) * 2.0 * share)
