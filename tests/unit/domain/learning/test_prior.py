"""What a GPU is expected to do before anything ran on it."""

import math

import pytest

from spindown.domain.learning import (
    Knowledge,
    Throughput,
    throughput,
    worker_throughput,
)
from spindown.domain.prior import GPU_PRIORS, relative_throughput
from tests.builders import a_type, a_worker
from tests.unit.domain.learning.report import POLICY


def test_without_reports_throughput_is_the_prior() -> None:
    expected = throughput(Knowledge(), a_type("g4dn.xlarge"), POLICY)

    assert expected == Throughput(items_per_hour=1000.0, measured=False, samples=0)


def test_without_a_gpu_vcpus_count_and_four_for_unknown_types() -> None:
    bare = a_type(gpu_name="", gpu_count=0.0, vcpus=8)
    worker = a_worker(gpu_name="", gpu_count=0.0)

    assert throughput(Knowledge(), bare, POLICY).items_per_hour == pytest.approx(160.0)
    assert worker_throughput(Knowledge(), worker, POLICY).items_per_hour == pytest.approx(80.0)
    assert relative_throughput("", 0.0) == pytest.approx(0.08)


def test_the_prior_is_the_mean_of_compute_and_bandwidth() -> None:
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
