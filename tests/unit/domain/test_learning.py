import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.learning import (
    GPU_PRIORS,
    Knowledge,
    PoolRecord,
    Throughput,
    ThroughputRecord,
    boot_p50,
    boot_p95,
    check_in_within,
    checkpoint_cost,
    interruption_rate,
    items_per_job,
    published_rate,
    relative_throughput,
    throughput,
    traffic,
    usual_throughput,
    worker_throughput,
    workload_scale,
)
from spindown.domain.policy import Policy
from tests.builders import a_type, a_worker, minutes

POLICY = Policy(throughput_estimate=1000.0)


def measured(*jobs: tuple[float, float]) -> ThroughputRecord:
    """Return the record of jobs of (items, seconds)."""
    return ThroughputRecord(
        items=sum(items for items, _ in jobs),
        hours=sum(seconds for _, seconds in jobs) / 3600,
        reports=len(jobs),
        rates=tuple(items / seconds * 3600 for items, seconds in jobs),
    )


def rate(knowledge: Knowledge, name: str) -> float:
    return throughput(knowledge, a_type(name), POLICY).items_per_hour


def test_without_reports_throughput_is_the_prior() -> None:
    expected = throughput(Knowledge(), a_type("g4dn.xlarge"), POLICY)

    assert expected == Throughput(items_per_hour=1000.0, measured=False, samples=0)


def test_without_a_gpu_the_vcpus_count_and_of_an_unknown_type_four() -> None:
    bare = a_type(gpu_name="", gpu_count=0.0, vcpus=8)
    worker = a_worker(gpu_name="", gpu_count=0.0)

    assert throughput(Knowledge(), bare, POLICY).items_per_hour == pytest.approx(160.0)
    assert worker_throughput(Knowledge(), worker, POLICY).items_per_hour == pytest.approx(80.0)
    assert relative_throughput("", 0.0) == pytest.approx(0.08)


@pytest.mark.parametrize(
    ("name", "per_hour"),
    [
        pytest.param("g4dn.xlarge", (35_000 + 3000 * 5) / 40, id="measured"),
        pytest.param("g6.xlarge", 3000 * relative_throughput("L4", 1.0), id="not measured"),
    ],
)
def test_a_scale_that_the_caller_has_is_not_worked_out_again(name: str, per_hour: float) -> None:
    knowledge = Knowledge(throughput={("T4", 1.0): measured((1000 * 35 / 3600, 35.0))})

    found = throughput(knowledge, a_type(name), POLICY, scale=3.0)

    assert found.items_per_hour == pytest.approx(per_hour, rel=1e-4)


def test_the_prior_is_the_geometric_mean_of_compute_and_bandwidth() -> None:
    l4 = relative_throughput("L4", 1.0)

    assert l4 == pytest.approx(math.sqrt(121 / 65 * 300 / 320))
    assert l4 == pytest.approx(1.32, abs=0.005)


def test_every_prior_has_a_source() -> None:
    assert all(prior.source and prior.tflops > 0 for prior in GPU_PRIORS.values())


@pytest.mark.parametrize(
    ("name", "count", "vcpus", "expected"),
    [
        pytest.param("T4", 1.0, 4, 1.0, id="the measure of all"),
        pytest.param("T4", 4.0, 48, 4.0, id="four of them"),
        pytest.param("T4", 0.125, 4, 0.125, id="an eighth"),
        pytest.param("T4", 0.0, 4, 0.08, id="Count 0 counts vCPUs"),
        pytest.param("", 0.0, 8, 0.16, id="no GPU"),
        pytest.param("", 0.0, 0, 0.02, id="nothing at all"),
        pytest.param("Unheard-of", 1.0, 4, 1.0, id="unknown GPU"),
    ],
)
def test_the_prior_never_divides_by_a_count(
    name: str, count: float, vcpus: int, expected: float
) -> None:
    assert relative_throughput(name, count, vcpus=vcpus) == pytest.approx(expected)


def test_a_measured_gpu_is_pulled_toward_the_prior_by_five_seconds() -> None:
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


def test_one_job_on_each_of_two_gpus_makes_the_ranking_follow_the_measurement() -> None:
    # By the priors the A10G is 1.9 times as fast; this workload runs at half its speed there.
    knowledge = Knowledge(
        throughput={
            ("T4", 1.0): measured((300, 30.0)),
            ("A10G", 1.0): measured((150, 30.0)),
        }
    )

    assert rate(Knowledge(), "g5.xlarge") > rate(Knowledge(), "g4dn.xlarge")
    assert rate(knowledge, "g5.xlarge") < rate(knowledge, "g4dn.xlarge")


def test_where_jobs_differ_their_mean_counts_and_where_they_are_alike_their_median() -> None:
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


@pytest.mark.parametrize(
    ("records", "per_hour"),
    [
        pytest.param({}, 1000.0, id="it has run nowhere: a T4"),
        pytest.param({("A10G", 1.0): ThroughputRecord()}, 1000.0, id="it has only begun"),
        pytest.param({("T4", 4.0): measured((700, 3600.0))}, 700.0, id="one slot of four"),
        pytest.param(
            {("T4", 1.0): measured((700, 3600.0)), ("L4", 1.0): measured((1800, 7200.0))},
            900.0,
            id="the kind with the most hours",
        ),
        pytest.param(
            {("T4", 1.0): measured((700, 3600.0)), ("L4", 1.0): measured((900, 3600.0))},
            700.0,
            id="of two with as many hours always the same",
        ),
    ],
)
def test_the_usual_throughput_is_that_of_a_slot_of_the_kind_that_ran_most(
    records: dict[tuple[str, float], ThroughputRecord], per_hour: float
) -> None:
    for known in (records, dict(reversed(records.items()))):
        found = usual_throughput(Knowledge(throughput=known), POLICY)

        assert found == pytest.approx(per_hour, rel=0.01)


@pytest.mark.parametrize(
    ("rates", "per_hour"),
    [
        pytest.param((0.5, 0.5, 0.5, 0.0005), 0.5 / 1.2, id="items of hours each"),
        pytest.param((0.0, 0.0, 4.0), 4.0 / 3, id="most reports without an item"),
        pytest.param((1.0, 1.0, 1.5, 60.0), 2.25, id="a quarter at 1.5 times the median"),
    ],
)
def test_the_mean_is_kept_near_the_median(rates: tuple[float, ...], per_hour: float) -> None:
    # As many hours at each of these rates, but the mean of all reports ever.
    mean = {3: 4.0 / 3, 4: 0.001 if min(rates) < 0.1 else 16.0}[len(rates)]
    record = ThroughputRecord(items=mean * 1000, hours=1000.0, reports=9, rates=rates)

    assert rate(Knowledge(throughput={("T4", 1.0): record}), "g4dn.xlarge") == pytest.approx(
        per_hour, rel=1e-3
    )


def test_each_gpu_counts_toward_the_scale_by_its_hours_up_to_one() -> None:
    # 5 s weigh a half, 15 s three quarters; what has no item or no time yet says nothing.
    records = {
        ("T4", 4.0): ThroughputRecord(),
        ("L4", 1.0): ThroughputRecord(hours=1.0),
        ("T4", 1.0): measured((4000 * 5 / 3600, 5.0)),
        ("A10G", 1.0): measured((relative_throughput("A10G", 1.0) * 1000 * 15 / 3600, 15.0)),
    }

    for known in (records, dict(reversed(records.items()))):
        scale = workload_scale(Knowledge(throughput=known), POLICY)
        assert scale == pytest.approx(4.0 ** (0.5 / 1.25))
    one = Knowledge(throughput={("T4", 1.0): measured((1.0, 1.8))})
    assert workload_scale(one, POLICY) == pytest.approx(2.0)


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


def test_an_unmeasured_gpu_takes_its_prior_times_what_others_have_shown() -> None:
    knowledge = Knowledge(throughput={("T4", 1.0): measured((3000 * 10, 36000.0))})

    expected = throughput(knowledge, a_type("g6.xlarge"), POLICY)

    assert expected.items_per_hour == pytest.approx(3000 * relative_throughput("L4", 1.0), rel=1e-6)
    assert not expected.measured


def test_the_same_gpu_in_another_count_says_more_than_other_gpus() -> None:
    records = {("T4", 1.0): measured((2000, 3600.0)), ("L4", 1.0): measured((100, 3600.0))}

    for known in (records, dict(reversed(records.items()))):
        assert rate(Knowledge(throughput=known), "g4dn.12xlarge") == pytest.approx(8000.0)


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


@pytest.mark.parametrize(
    ("share", "per_hour"),
    [
        pytest.param(0.2, 0.000305675, id="a fifth a month"),
        pytest.param(0.0, 0.0, id="never"),
        pytest.param(1.0, -math.log(0.01) / 730, id="all of them counts as 99 %"),
        pytest.param(None, 0.000305675, id="unknown is not never"),
    ],
)
def test_a_monthly_share_becomes_an_hourly_rate(share: float | None, per_hour: float) -> None:
    assert published_rate(share) == pytest.approx(per_hour, rel=1e-5)


def test_a_pool_learns_from_its_own_interruptions() -> None:
    record = PoolRecord(interruptions=1, hours=6.0)

    assert interruption_rate(record, 0.2) == pytest.approx((24 * 0.000305675 + 1) / 30, rel=1e-5)
    assert interruption_rate(None, 0.2) == published_rate(0.2)
    assert interruption_rate(PoolRecord(hours=0.5), 0.05) == pytest.approx(
        24 * published_rate(0.05) / 24.5
    )


@given(
    share=st.none() | st.floats(0.0, 1.0),
    interruptions=st.floats(0.0, 100.0),
    hours=st.floats(0.0, 10000.0),
)
def test_an_interruption_raises_the_rate_and_a_calm_hour_lowers_it(
    share: float | None, interruptions: float, hours: float
) -> None:
    now = interruption_rate(PoolRecord(interruptions=interruptions, hours=hours), share)

    assert interruption_rate(PoolRecord(interruptions=interruptions + 1, hours=hours), share) > now
    assert interruption_rate(PoolRecord(interruptions=interruptions, hours=hours + 1), share) <= now


@pytest.mark.parametrize(
    ("boots", "p50", "p95"),
    [
        pytest.param((), 180.0, 180.0, id="estimate"),
        pytest.param((60.0,), 60.0, 60.0, id="one"),
        pytest.param((0.5,), 0.5, 0.5, id="half a second"),
        pytest.param((-2.0,), 0.0, 0.0, id="two clocks"),
        pytest.param(tuple(float(n) for n in range(100, 0, -1)), 50.0, 95.0, id="a hundred"),
    ],
)
def test_boot_times(boots: tuple[float, ...], p50: float, p95: float) -> None:
    knowledge = Knowledge(boots=boots)

    assert boot_p50(knowledge, POLICY).total_seconds() == p50
    assert boot_p95(knowledge, POLICY).total_seconds() == p95


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
    assert check_in_within(Knowledge(boots=boots), POLICY) == expected


@pytest.mark.parametrize(
    ("samples", "expected"), [((), 100.0), ((10.0, 30.0), 20.0), ((0.0,), 1.0)]
)
def test_items_of_a_job_are_at_least_one(samples: tuple[float, ...], expected: float) -> None:
    assert items_per_job(Knowledge(items_per_job=samples), POLICY) == expected


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
