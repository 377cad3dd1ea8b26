"""What a GPU is expected to do before anything ran on it."""

import math

import pytest

from spindown.domain.learning import (
    SCALING,
    Knowledge,
    Throughput,
    ThroughputRecord,
    throughput,
    worker_throughput,
)
from spindown.domain.offer import InstanceType, is_cpu_family
from spindown.domain.relative_throughput import (
    GPU_DATASHEETS,
    EstimateSource,
    estimate_source,
    relative_throughput,
    vcpu_score,
)
from spindown.local.market.catalogue import instance_types
from tests.builders import a_cpu_type, a_type, a_worker
from tests.unit.domain.learning.report import POLICY


def test_without_reports_throughput_is_the_prior() -> None:
    expected = throughput(Knowledge(), a_type("g4dn.xlarge"), POLICY)

    assert expected == Throughput(items_per_hour=1000.0, measured=False, samples=0)


def test_without_a_gpu_vcpus_count_and_four_for_unknown_types() -> None:
    bare = a_type("z9.2xlarge", gpu_name="", gpu_count=0.0, vcpus=8)
    worker = a_worker(instance_type="z9.2xlarge", gpu_name="", gpu_count=0.0)

    assert throughput(Knowledge(), bare, POLICY).items_per_hour == pytest.approx(160.0)
    assert worker_throughput(Knowledge(), worker, POLICY).items_per_hour == pytest.approx(80.0)
    assert relative_throughput("", 0.0) == pytest.approx(0.08)


def test_the_prior_is_the_mean_of_compute_and_bandwidth() -> None:
    l4 = relative_throughput("L4", 1.0)

    assert l4 == pytest.approx(math.sqrt(121 / 65 * 300 / 320))
    assert l4 == pytest.approx(1.32, abs=0.005)


def test_every_prior_has_a_source() -> None:
    assert all(prior.source and prior.tflops > 0 for prior in GPU_DATASHEETS.values())


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


@pytest.mark.parametrize(
    ("family", "score", "source"),
    [
        pytest.param("c5", 1.0, EstimateSource.BENCHMARK, id="the measure of all"),
        pytest.param("c7i", 7695 / 4531, EstimateSource.BENCHMARK, id="a figure of its own"),
        pytest.param("r7gd", 8143 / 4531, EstimateSource.ESTIMATED, id="as c7g"),
        pytest.param("m8azn", 14139 / 4531, EstimateSource.ESTIMATED, id="as c8a"),
        pytest.param("c7i-flex", 7695 / 4531, EstimateSource.ESTIMATED, id="as c7i"),
        pytest.param("m5dn", 1.0, EstimateSource.ESTIMATED, id="as c5, whose maker is not written"),
        pytest.param("hpc6id", 6011 / 4531, EstimateSource.ESTIMATED, id="as c6i"),
        pytest.param("i4i", 6011 / 4531, EstimateSource.ESTIMATED, id="other generation, as c6i"),
        pytest.param("r5a", 2960 / 4531, EstimateSource.ESTIMATED, id="as m5a, not as c5a"),
        pytest.param("m10i", 8547 / 4531, EstimateSource.ESTIMATED, id="newer than all, as c8i"),
        pytest.param("z1d", 1.0, EstimateSource.NONE, id="older than all"),
        pytest.param("mac", 1.0, EstimateSource.NONE, id="no generation"),
    ],
)
def test_a_vcpu_s_score(family: str, score: float, source: EstimateSource) -> None:
    found, told = vcpu_score(family)

    assert found == pytest.approx(score)
    assert told is source


def test_every_cpu_family_of_today_has_a_score() -> None:
    families = {kind.family for kind in instance_types().values() if is_cpu_family(kind.family)}

    assert len(families) > 90
    assert {vcpu_score(family)[1] for family in families} <= {
        EstimateSource.BENCHMARK,
        EstimateSource.ESTIMATED,
    }


def test_a_machine_without_a_gpu_is_judged_by_its_vcpus() -> None:
    small = throughput(Knowledge(), a_cpu_type("c7i.xlarge", vcpus=4), POLICY)
    large = throughput(Knowledge(), a_cpu_type("c7i.4xlarge", vcpus=16), POLICY)

    assert small.items_per_hour == pytest.approx(1000 * 4 * 0.02 * 7695 / 4531)
    assert large.items_per_hour == pytest.approx(4 * small.items_per_hour)


def test_what_a_family_did_counts_for_its_other_sizes() -> None:
    prior = throughput(Knowledge(), a_cpu_type(), POLICY).items_per_hour
    known = Knowledge(
        throughput={
            ("c7i vCPU", 8.0): ThroughputRecord(items=prior * 60.0, hours=20.0, reports=9, lives=20)
        }
    )

    own = throughput(known, a_cpu_type(), POLICY)
    other = throughput(known, a_cpu_type("c7i.xlarge", vcpus=4), POLICY)

    assert own.measured
    assert own.items_per_hour == pytest.approx(3 * prior, rel=0.1)
    assert not other.measured
    # Half of the vCPUs do more than half: few jobs keep all of them busy.
    assert other.items_per_hour == pytest.approx(3 * prior * 0.5**SCALING, rel=0.1)


def test_what_vcpus_did_counts_for_equal_ones_of_a_family() -> None:
    """Measured at 8 and 32, twice as fast at four times the number: 16 lies between."""
    prior = throughput(Knowledge(), a_cpu_type(), POLICY).items_per_hour
    known = Knowledge(
        throughput={
            ("c7i vCPU", count): ThroughputRecord(
                items=rate * prior * 200.0, hours=200.0, reports=99, lives=99
            )
            for count, rate in ((8.0, 1.0), (32.0, 2.0))
        }
    )

    between = throughput(known, a_cpu_type("m7i.4xlarge", vcpus=16), POLICY)
    small = throughput(known, a_cpu_type("m7i.large", vcpus=2), POLICY)

    assert between.items_per_hour == pytest.approx(math.sqrt(2.0) * prior, rel=0.02)
    assert small.items_per_hour == pytest.approx(0.5 * prior, rel=0.02)


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        (a_type(), EstimateSource.DATASHEET),
        (a_type(gpu_name="Unheard-of"), EstimateSource.NONE),
        (a_type(gpu_name="Inferentia2", gpu_manufacturer="AWS"), EstimateSource.NONE),
        (a_cpu_type(), EstimateSource.BENCHMARK),
        (a_cpu_type("r8gd.large"), EstimateSource.ESTIMATED),
    ],
)
def test_a_prior_tells_its_source(kind: InstanceType, source: EstimateSource) -> None:
    assert estimate_source(kind) is source
