"""The example of a team with four kinds of jobs: each gets a machine that has enough for it."""

from pathlib import Path

import pytest

from spindown.config import load
from spindown.domain.job_type import parse_shape, requirements_of, settle, shape_of
from spindown.domain.offer import InstanceType
from spindown.domain.requirement import misfit
from tests.builders import a_cpu_type, a_type

GIB = 1024
WORKLOAD = load(Path(__file__).parents[3] / "examples" / "team" / "spindown.toml").workload["team"]


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
    policy = WORKLOAD.to_policy()
    settled = settle(name, None, policy)
    assert settled.shape.name == shape
    wanted = requirements_of(settled.shape, WORKLOAD.to_requirements(), policy.shared_slots)
    assert misfit(enough, wanted) is None
    assert misfit(too_small, wanted) is not None


def test_one_that_runs_out_of_memory_may_still_grow() -> None:
    policy = WORKLOAD.to_policy()
    most = shape_of(policy.requirements_at_most).memory_gib
    for each in policy.types:
        shape = parse_shape(settle(each.name, None, policy).shape.name)
        assert shape is not None
        assert shape.memory_gib < most
