"""How fast a GPU is once jobs have run on it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.learning import (
    Knowledge,
    ThroughputRecord,
    throughput,
    worker_throughput,
)
from spindown.domain.relative_throughput import relative_throughput
from tests.builders import a_type, a_worker
from tests.unit.domain.learning.report import POLICY, measured, rate


def test_a_measured_gpu_is_pulled_to_its_prior_by_five_seconds() -> None:
    # Two GPUs measured at half and at twice their priors leave the scale at 1.
    l4 = relative_throughput("L4", 1.0) * 1000
    knowledge = Knowledge(
        throughput={
            ("T4", 1.0): measured((500 * 35 / 3600, 35.0)),
            ("L4", 1.0): measured((l4 * 2 * 35 / 3600, 35.0)),
        }
    )

    expected = throughput(knowledge, a_type("g4dn.xlarge"), POLICY)

    assert expected.items_per_hour == pytest.approx((500 * 35 + 1000 * 5) / 40)
    assert expected.measured
    assert expected.samples == 1


def test_one_job_on_each_of_two_gpus_makes_the_ranking_follow() -> None:
    # By the priors the A10G is 1.9 times as fast; this workload runs at half its speed there.
    knowledge = Knowledge(
        throughput={
            ("T4", 1.0): measured((300, 30.0)),
            ("A10G", 1.0): measured((150, 30.0)),
        }
    )

    assert rate(Knowledge(), "g5.xlarge") > rate(Knowledge(), "g4dn.xlarge")
    assert rate(knowledge, "g5.xlarge") < rate(knowledge, "g4dn.xlarge")


def test_differing_jobs_count_by_mean_and_like_ones_by_median() -> None:
    # Items take 1 s to 8 s, as many of each: the mean of the hours, not the usual job.
    differing = measured(*[(100.0, 100.0 * 2**n) for n in range(4)] * 6)
    hung = measured(*[(100.0, 100.0)] * 23, (100.0, 100_000.0))

    assert rate(Knowledge(throughput={("T4", 1.0): differing}), "g4dn.xlarge") == pytest.approx(
        3600 * 400 / 1500, rel=0.01
    )
    assert rate(Knowledge(throughput={("T4", 1.0): hung}), "g4dn.xlarge") == pytest.approx(
        3600 / 1.2, rel=0.01
    )


@pytest.mark.parametrize(
    ("before", "per_hour"),
    [
        pytest.param(1, 2 * 360_000 / 100_100, id="of two reports either may be the odd one"),
        pytest.param(2, 3600 / 1.2, id="two against one"),
    ],
)
def test_from_the_third_report_on_a_job_that_hung_counts_little(
    before: int, per_hour: float
) -> None:
    record = measured(*[(100.0, 100.0)] * before, (100.0, 100_000.0))

    assert rate(Knowledge(throughput={("T4", 1.0): record}), "g4dn.xlarge") == pytest.approx(
        per_hour, rel=0.01
    )


#: Seconds of an item -> its share of all items.
MIXES = {
    "19 of 20 take 1 s, one 200 s": {1.0: 0.95, 200.0: 0.05},
    "one of 20 takes 1 s": {1.0: 0.05, 200.0: 0.95},
    "three of four take 200 s": {1.0: 0.25, 200.0: 0.75},
    "half and half": {0.1: 0.5, 60.0: 0.5},
    "one of 100 takes an hour": {2.0: 0.99, 3600.0: 0.01},
}
REPORTS = 1000


def learned(jobs: list[tuple[float, float]]) -> float:
    return rate(Knowledge(throughput={("T4", 1.0): measured(*jobs)}), "g4dn.xlarge")


def mixed(mix: dict[float, float]) -> list[tuple[float, float]]:
    """Return reports of one item each, in any order."""
    return [(1.0, seconds) for seconds, share in mix.items() for _ in range(round(share * REPORTS))]


@pytest.mark.parametrize("name", MIXES)
def test_unequal_items_are_learned_as_they_are(name: str) -> None:
    true = 3600 / sum(seconds * share for seconds, share in MIXES[name].items())

    assert learned(mixed(MIXES[name])) == pytest.approx(true, rel=0.1)


@pytest.mark.parametrize("name", MIXES)
@pytest.mark.parametrize("outlier", [(1.0, 1e9), (1e9, 1.0), (1e9, 1e9)], ids=str)
def test_no_single_report_rules(name: str, outlier: tuple[float, float]) -> None:
    true = 3600 / sum(seconds * share for seconds, share in MIXES[name].items())

    found = learned([*mixed(MIXES[name]), outlier])

    assert true / 1.35 <= found <= true * 1.35


@given(
    factor=st.floats(0.001, 1000.0),
    usual=st.integers(3, 30),
    items=st.floats(1.0, 1e6),
)
def test_one_outlier_does_not_flip_the_order(factor: float, usual: int, items: float) -> None:
    # The T4 does 1.5 times what the A10G does, and one job anywhere says otherwise.
    a10g = measured(*[(items, 60.0)] * usual)
    t4 = measured(*[(items * 1.5, 60.0)] * usual, (items * 1.5, 60.0 * factor))
    knowledge = Knowledge(throughput={("T4", 1.0): t4, ("A10G", 1.0): a10g})

    assert rate(knowledge, "g4dn.xlarge") > rate(knowledge, "g5.xlarge")


def test_reports_are_by_slot_and_add_up_to_the_instance() -> None:
    record = {("T4", 4.0): measured((1000, 3600.0))}

    per_gpu = throughput(Knowledge(throughput=record), a_type("g4dn.12xlarge"), POLICY)
    whole = Knowledge(throughput=record, slots="per-instance")

    assert per_gpu.items_per_hour == pytest.approx(4000.0)
    assert throughput(whole, a_type("g4dn.12xlarge"), POLICY).items_per_hour == pytest.approx(1000)


def test_a_worker_is_expected_to_do_what_its_type_does() -> None:
    knowledge = Knowledge(throughput={("T4", 1.0): measured((1234, 3600.0))})

    assert worker_throughput(knowledge, a_worker(), POLICY) == throughput(
        knowledge, a_type(), POLICY
    )


def test_a_slot_works_as_fast_however_many_share_its_machine() -> None:
    knowledge = Knowledge(throughput={("T4", 1.0): measured((1234, 3600.0))})
    one, eight = (worker_throughput(knowledge, a_worker(slots=n), POLICY) for n in (1, 8))

    assert eight.items_per_hour == pytest.approx(8 * one.items_per_hour)


def test_one_report_with_all_items_leaves_the_mean() -> None:
    one = ThroughputRecord(items=9000.0, hours=9.0, reports=3)
    all_in_one = replace(one, largest_items=9000.0, largest_hours=8.0)
    found = [
        throughput(Knowledge(throughput={("T4", 1.0): record}), a_type(), POLICY)
        for record in (one, all_in_one)
    ]

    assert found[0] == found[1]


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(ThroughputRecord(), id="nothing"),
        pytest.param(ThroughputRecord(items=5.0, hours=0.0, reports=1), id="no time"),
        pytest.param(ThroughputRecord(items=0.0, hours=1.0, reports=1), id="no items"),
    ],
)
def test_an_odd_record_still_gives_a_throughput_above_zero(record: ThroughputRecord) -> None:
    assert rate(Knowledge(throughput={("T4", 1.0): record}), "g4dn.xlarge") > 0.0
