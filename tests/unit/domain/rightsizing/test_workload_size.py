"""What the work has used decides what is worth asking for, and no more."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.offer import InstanceRequirements
from spindown.domain.requirement import misfit
from spindown.domain.rightsizing.workload_size import (
    Extent,
    JobUse,
    RequirementKey,
    advise_requirements,
    fit,
)
from tests.builders import a_type

GIB = 1024

LITTLE = JobUse(
    seconds=60.0,
    cpu_mean=1.0,
    cpu_max=2.2,
    memory_mib_mean=4 * GIB,
    memory_mib_max=6 * GIB,
    memory_share_max=9.0,
    vram_mib_mean=3 * GIB,
    vram_mib_max=4 * GIB,
    vram_share_max=18.0,
    gpu_mean=12.0,
)
LARGE = InstanceRequirements(
    vcpus_min=16,
    memory_mib_min=64 * GIB,
    gpu_memory_mib_min=20 * GIB,
    gpu_names=frozenset({"A10G"}),
    gpu_names_denied=frozenset({"M60"}),
)


def extent_of(
    key: RequirementKey, *uses: JobUse, asked: InstanceRequirements = LARGE, slots: str = "per-gpu"
) -> Extent:
    advice = advise_requirements(uses, asked, slots)
    assert advice is not None
    return next(extent for extent in advice.extents if extent.key is key)


@pytest.mark.parametrize(
    ("key", "enough"),
    [
        pytest.param(RequirementKey.VCPUS, 3, id="as many CPUs as were ever busy"),
        pytest.param(RequirementKey.MEMORY, 8, id="a quarter more memory than was ever used"),
        pytest.param(RequirementKey.VRAM, 5, id="likewise VRAM"),
    ],
)
def test_more_than_was_ever_used_is_more_than_enough(key: RequirementKey, enough: int) -> None:
    extent = extent_of(key, LITTLE)

    assert (extent.enough, extent.advised) == (enough, enough)


def test_a_job_that_needs_much_now_and_then_counts() -> None:
    hourly = replace(LITTLE, seconds=1.0, memory_mib_max=50 * GIB, memory_share_max=80.0)

    extent = extent_of(RequirementKey.MEMORY, *[LITTLE] * 500, hourly)

    assert (extent.most, extent.enough, extent.advised) == (50.0, 63, 63)
    assert extent.mean == pytest.approx(4.0)


def test_slots_of_an_instance_need_their_memory_together() -> None:
    assert extent_of(RequirementKey.MEMORY, LITTLE, slots="4").enough == 30
    assert extent_of(RequirementKey.VCPUS, LITTLE, slots="4").enough == 9
    # Each slot has GPUs of its own, or a share of one that was seen whole.
    assert extent_of(RequirementKey.VRAM, LITTLE, slots="4").enough == 5


@pytest.mark.parametrize(("asked", "advised"), [(4, 8), (8, None), (64, None)])
def test_a_job_that_nearly_ran_out_is_told_to_ask_for_more(asked: int, advised: int | None) -> None:
    close = replace(LITTLE, memory_share_max=95.0)
    requirements = replace(LARGE, memory_mib_min=asked * GIB)

    assert extent_of(RequirementKey.MEMORY, close, asked=requirements).advised == advised


def test_what_asks_for_nothing_is_left_alone() -> None:
    advice = advise_requirements([LITTLE], InstanceRequirements(), "per-gpu")

    assert advice is not None
    assert [extent.advised for extent in advice.extents] == [None, None, None]


def test_without_a_gpu_only_cpus_and_memory_are_judged() -> None:
    bare = JobUse(seconds=60.0, cpu_max=1.0, memory_mib_max=1.0, memory_share_max=1.0)

    advice = advise_requirements([bare], LARGE, "per-gpu")

    assert advice is not None
    assert [extent.key for extent in advice.extents] == [
        RequirementKey.VCPUS,
        RequirementKey.MEMORY,
    ]
    assert not advice.uses_little_gpu


def test_jobs_too_short_to_be_looked_at_say_nothing() -> None:
    assert advise_requirements([JobUse(seconds=0.5)], LARGE, "per-gpu") is None
    assert advise_requirements([], LARGE, "per-gpu") is None


def test_any_gpu_will_do_only_where_little_of_one_is_used() -> None:
    idle = advise_requirements([LITTLE], LARGE, "per-gpu")
    busy = advise_requirements([replace(LITTLE, gpu_mean=70.0)], LARGE, "per-gpu")
    assert idle is not None
    assert busy is not None

    assert fit(LARGE, idle).gpu_names is None
    assert fit(LARGE, idle).gpu_names_denied == {"M60"}
    assert fit(LARGE, busy).gpu_names == frozenset({"A10G"})


def test_a_request_becomes_what_is_enough_and_the_rest_stays() -> None:
    asked = replace(LARGE, instance_types=frozenset({"g5.16xlarge"}))
    idle = advise_requirements([LITTLE], asked, "per-gpu")
    busy = advise_requirements([replace(LITTLE, gpu_mean=70.0)], asked, "per-gpu")
    assert idle is not None
    assert busy is not None

    enough = replace(asked, vcpus_min=3, memory_mib_min=8 * GIB, gpu_memory_mib_min=5 * GIB)
    assert fit(asked, busy) == enough
    assert fit(asked, idle) == replace(enough, gpu_names=None, instance_types=None)
    settled = advise_requirements([replace(LITTLE, gpu_mean=70.0)], enough, "per-gpu")
    assert settled is not None
    assert fit(enough, settled) == enough


def test_most_and_mean_are_of_an_instance_and_of_one_gpu() -> None:
    told = {key: extent_of(key, LITTLE, slots="4") for key in RequirementKey}

    assert {key: (extent.asked, extent.most, extent.mean) for key, extent in told.items()} == {
        RequirementKey.VCPUS: (16, pytest.approx(8.8), 4.0),
        RequirementKey.MEMORY: (64.0, 24.0, 16.0),
        RequirementKey.VRAM: (20.0, 4.0, 3.0),
    }


@pytest.mark.parametrize(
    ("seconds", "mean"),
    [
        pytest.param((30.0, 90.0), 3.5, id="long jobs count for more"),
        pytest.param((0.2, 0.6), 3.5, id="also where all are short"),
        pytest.param((0.0, 0.0), 3.0, id="of jobs without a length all alike"),
    ],
)
def test_the_mean_is_over_time(seconds: tuple[float, float], mean: float) -> None:
    first, second = (
        replace(LITTLE, seconds=each, cpu_mean=cores)
        for each, cores in zip(seconds, (2.0, 4.0), strict=True)
    )

    assert extent_of(RequirementKey.VCPUS, first, second).mean == pytest.approx(mean)


def test_who_has_used_nothing_needs_the_least_that_there_is() -> None:
    nothing = JobUse(seconds=60.0, cpu_max=0.0, memory_mib_max=0.0, vram_mib_max=0.0)

    for key in RequirementKey:
        extent = extent_of(key, nothing)
        assert (extent.most, extent.mean, extent.enough, extent.is_close) == (0.0, 0.0, 1, False)


@pytest.mark.parametrize(("share", "is_close"), [(89.9, False), (90.0, True), (None, False)])
def test_nine_tenths_of_its_share_are_close_to_all_of_it(
    share: float | None, is_close: bool
) -> None:
    assert (
        extent_of(RequirementKey.MEMORY, replace(LITTLE, memory_share_max=share)).is_close
        is is_close
    )


sizes = st.floats(min_value=0.0, max_value=200_000.0)


@given(sizes, sizes, st.floats(min_value=0.0, max_value=64.0), st.integers(1, 8))
def test_a_machine_that_has_enough_holds_what_was_used(
    memory: float, vram: float, cores: float, slots: int
) -> None:
    use = JobUse(
        seconds=1.0,
        cpu_max=cores,
        memory_mib_max=memory,
        memory_share_max=50.0,
        vram_mib_max=vram,
        vram_share_max=50.0,
    )
    asked = InstanceRequirements(
        vcpus_min=10_000, memory_mib_min=10**9, gpu_memory_mib_min=10**9, gpu_count_min=1.0
    )
    advice = advise_requirements([use], asked, str(slots))
    assert advice is not None
    enough = fit(asked, advice)
    smallest = replace(
        a_type(),
        vcpus=enough.vcpus_min,
        memory_mib=enough.memory_mib_min,
        gpu_memory_mib=enough.gpu_memory_mib_min,
    )

    assert misfit(smallest, enough) is None
    assert smallest.vcpus >= cores * slots
    assert smallest.memory_mib >= memory * slots
    assert smallest.gpu_memory_mib >= vram
