"""What a workload has shown on some GPUs says what it will do on others."""

import pytest

from spindown.domain.learning import (
    Knowledge,
    ThroughputRecord,
    throughput,
    usual_slots,
    usual_throughput,
    workload_scale,
)
from spindown.domain.relative_throughput import relative_throughput
from tests.builders import a_type
from tests.unit.domain.learning.report import POLICY, measured, rate


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


def test_a_gpu_counts_toward_the_scale_by_its_hours_up_to_one() -> None:
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


def test_an_unmeasured_gpu_takes_its_prior_times_the_scale() -> None:
    knowledge = Knowledge(throughput={("T4", 1.0): measured((3000 * 10, 36000.0))})

    expected = throughput(knowledge, a_type("g6.xlarge"), POLICY)

    assert expected.items_per_hour == pytest.approx(3000 * relative_throughput("L4", 1.0), rel=1e-6)
    assert not expected.measured


def test_another_count_of_a_gpu_says_more_than_other_gpus() -> None:
    records = {("T4", 1.0): measured((2000, 3600.0)), ("L4", 1.0): measured((100, 3600.0))}

    for known in (records, dict(reversed(records.items()))):
        assert rate(Knowledge(throughput=known), "g4dn.12xlarge") == pytest.approx(8000.0)


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
def test_the_usual_throughput_is_a_slot_s_of_the_commonest_kind(
    records: dict[tuple[str, float], ThroughputRecord], per_hour: float
) -> None:
    for known in (records, dict(reversed(records.items()))):
        found = usual_throughput(Knowledge(throughput=known), POLICY)

        assert found == pytest.approx(per_hour, rel=0.01)


def test_the_usual_slots_are_those_of_the_kind_that_ran_most() -> None:
    four = Knowledge(throughput={("T4", 4.0): measured((700, 3600.0))})

    assert [usual_slots(known) for known in (Knowledge(), four)] == [1, 4]
