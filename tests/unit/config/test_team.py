"""The example of a team with four kinds of jobs: each gets a machine that has enough for it."""

from pathlib import Path

import pytest

from spindown.config import load
from spindown.domain.offer import InstanceType
from spindown.domain.requirement import misfit
from spindown.domain.shape import parse_shape, requirements_of, settle, shape_of
from tests.builders import a_cpu_type, a_type

GIB = 1024
WORKLOADS = load(Path(__file__).parents[3] / "examples" / "team" / "spindown.toml").workload
OF = {each.name: one for one in WORKLOADS.values() for each in one.to_policy().types}


@pytest.mark.parametrize(
    ("name", "shape", "enough", "too_small"),
    [
        (
            "model",
            "c16m384d",
            a_cpu_type(vcpus=48, memory_mib=384 * GIB),
            a_cpu_type(vcpus=32, memory_mib=256 * GIB),
        ),
        (
            "nlp",
            "c0m0g1v15",
            a_type(gpu_memory_mib=16 * GIB),
            a_cpu_type(vcpus=64, memory_mib=512 * GIB),
        ),
        (
            "forecast",
            "c32m64d",
            a_cpu_type(vcpus=32, memory_mib=64 * GIB),
            a_cpu_type(vcpus=16, memory_mib=64 * GIB),
        ),
        # Eight of them at once.
        (
            "sql",
            "c1m2s",
            a_cpu_type(vcpus=8, memory_mib=16 * GIB),
            a_cpu_type(vcpus=4, memory_mib=8 * GIB),
        ),
    ],
)
def test_each_job_of_the_team_gets_what_it_needs(
    name: str, shape: str, enough: InstanceType, too_small: InstanceType
) -> None:
    policy = OF[name].to_policy()
    settled = settle(name, None, policy)
    assert settled.shape.name == shape
    wanted = requirements_of(settled.shape, OF[name].to_requirements(), policy.shared_slots)
    assert misfit(enough, wanted) is None
    assert misfit(too_small, wanted) is not None


@pytest.mark.parametrize("name", OF)
def test_one_that_runs_out_of_memory_may_still_grow(name: str) -> None:
    policy = OF[name].to_policy()
    most = shape_of(policy.requirements_at_most)
    shape = parse_shape(settle(name, None, policy).shape.name)
    assert shape is not None
    assert shape.memory_gib < most.memory_gib
    assert shape.gpu_memory_gib < most.gpu_memory_gib or not shape.gpus


def test_work_without_a_gpu_boots_from_a_small_disk() -> None:
    sizes = {name: one.image.root_volume_gib for name, one in WORKLOADS.items()}
    assert sizes == {"team": 30, "texts": 100}
    # Nor does it wait for packages that need a GPU.
    assert not WORKLOADS["team"].run.requirements
