"""A job that has run out of memory asks for the next larger size, if there is one for it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.out_of_memory import had_used_little, larger_needs
from spindown.domain.policy import JobNeeds, JobType, Policy
from spindown.domain.rightsizing.type_size import MEMORY, VRAM
from spindown.domain.shape import SCALES, settle

TYPED = replace(
    Policy(),
    types=(JobType(name="small", needs=JobNeeds(memory_gib=2)),),
    requirements_at_most=JobNeeds(memory_gib=64, vcpus=32),
)
LARGEST = SCALES["memory_gib"][-1]


@pytest.mark.parametrize(
    ("asked", "shape", "had", "wanted"),
    [
        pytest.param(None, "c0m2", 2, 4, id="the next step"),
        pytest.param(None, "c0m2", 3.0, 4, id="above what the machine had, not what it asked for"),
        pytest.param(None, "c0m2", 15.4, 32, id="as sold, not as its system tells"),
        pytest.param(None, "c0m2", 7.6, 16, id="as sold, of a small machine"),
        pytest.param(None, "c0m32", 59.7, 64, id="as sold, of a machine of 61 GiB"),
        pytest.param(None, "c0m2", 23.2, 32, id="of a machine between two sizes"),
        pytest.param(None, "c0m2", 0, 4, id="what the machine had is not known"),
        pytest.param(JobNeeds(memory_gib=8, vcpus=2), "c2m8", 8, 16, id="with its other needs"),
        pytest.param(JobNeeds(memory_gib=48), "c0m48", 48, 64, id="up to the ceiling"),
        pytest.param(JobNeeds(memory_gib=64), "c0m64", 64, None, id="no further"),
        pytest.param(JobNeeds(vcpus=64), "c64m2", 2, None, id="the rest is not allowed"),
        pytest.param(None, f"c0m{LARGEST}", 2, None, id="nothing larger is sold"),
        pytest.param(None, "", 2, None, id="its machine is not one of several sizes"),
    ],
)
def test_what_runs_out_of_memory_asks_for_the_next_step(
    asked: JobNeeds | None, shape: str, had: float, wanted: float | None
) -> None:
    needs = larger_needs("small", asked, shape=shape, memory_gib=had, policy=TYPED)

    assert (None if needs is None else needs.memory_gib) == wanted
    if needs is not None and asked is not None:
        assert needs.vcpus == asked.vcpus


@pytest.mark.parametrize(
    ("stated", "most", "had", "wanted"),
    [
        pytest.param(20, 0, 15.4, 20, id="what its type states, which is learned to be less"),
        pytest.param(4, 20, 15.4, 20, id="the ceiling"),
        pytest.param(300, 0, 246.0, 300, id="a large one"),
        pytest.param(20, 0, 31.0, None, id="it had as much"),
    ],
)
def test_a_most_between_two_steps_is_asked_for(
    stated: float, most: float, had: float, wanted: float | None
) -> None:
    policy = replace(
        Policy(),
        types=(JobType(name="scan", needs=JobNeeds(memory_gib=stated)),),
        requirements_at_most=JobNeeds(memory_gib=most),
    )
    needs = larger_needs("scan", None, shape="c0m4", memory_gib=had, policy=policy)

    assert (None if needs is None else needs.memory_gib) == wanted


GPUS = replace(
    Policy(),
    types=(
        JobType(name="train", needs=JobNeeds(gpu_memory_gib=16)),
        JobType(name="any", needs=JobNeeds(gpus=1)),
        JobType(name="plain", needs=JobNeeds(vcpus=4, memory_gib=8)),
    ),
    requirements_at_most=JobNeeds(memory_gib=64, vcpus=32, gpus=1, gpu_memory_gib=48),
)


@pytest.mark.parametrize(
    ("name", "asked", "shape", "had", "wanted"),
    [
        pytest.param("train", None, "c0m0g1v16", 0, 20, id="the next step"),
        pytest.param("train", None, "c0m0g1v16", 22.5, 32, id="above what the GPU had"),
        pytest.param("train", None, "c0m0g1v16s", 80, 20, id="above its share of a GPU"),
        pytest.param("train", None, "c0m0g1v5", 5, 6, id="what is learned to be less"),
        pytest.param(
            "train", JobNeeds(memory_gib=8), "c0m8g1v44", 44, 48, id="with its other needs"
        ),
        pytest.param("train", JobNeeds(gpu_memory_gib=48), "c0m0g1v48", 48, None, id="no further"),
        pytest.param(
            "train", JobNeeds(vcpus=64), "c64m0g1v16", 16, None, id="the rest is forbidden"
        ),
        pytest.param("train", None, "", 16, None, id="its machine is not one of several sizes"),
        pytest.param("any", None, "c0m0g1v0", 15.0, 20, id="a T4, which is sold as 16"),
        pytest.param("any", None, "c0m0g1v0", 0, None, id="its GPU is not known"),
        pytest.param("plain", None, "c4m8", 0, None, id="it has no GPU"),
    ],
)
def test_what_a_gpu_is_too_small_for_asks_for_a_larger(
    name: str, asked: JobNeeds | None, shape: str, had: float, wanted: float | None
) -> None:
    needs = larger_needs(name, asked, shape=shape, memory_gib=had, policy=GPUS, need=VRAM)

    if wanted is None:
        assert needs is None
    else:
        assert needs == replace(asked or JobNeeds(), gpu_memory_gib=wanted)


@given(
    need=st.sampled_from([MEMORY, VRAM]),
    most=st.integers(1, 300),
    stated=st.integers(1, 300),
    had=st.floats(0.0, 400.0),
)
def test_who_always_says_so_ends_at_the_ceiling(
    need: str, most: int, stated: int, had: float
) -> None:
    def of(gib: float) -> JobNeeds:
        return JobNeeds(memory_gib=gib) if need == MEMORY else JobNeeds(gpu_memory_gib=gib)

    policy = replace(
        Policy(), types=(JobType(name="t", needs=of(stated)),), requirements_at_most=of(most)
    )
    asked, steps, shape = None, 0, settle("t", None, policy).shape
    while larger := larger_needs(
        "t", asked, shape=shape.name, memory_gib=had, policy=policy, need=need
    ):
        more = getattr(larger, need)
        assert max(had, getattr(asked or of(0), need)) < more <= max(most, stated)
        asked, steps, had = larger, steps + 1, more
        shape = settle("t", asked, policy).shape

    assert steps <= len(SCALES[need])


def test_without_types_it_has_failed() -> None:
    assert larger_needs("", None, shape="c0m2", memory_gib=2, policy=Policy()) is None


@pytest.mark.parametrize(
    ("peak", "had", "is_little"),
    [
        pytest.param(None, 64.0, False, id="not known, or the kernel has killed it"),
        pytest.param(0.1, 2.0, True, id="far below"),
        pytest.param(0.1, 1.9, False, id="others had used little, so it got less than it asks for"),
        pytest.param(15.9, 64.0, True, id="just under a quarter"),
        pytest.param(16.0, 64.0, False, id="a quarter"),
        pytest.param(1.9, 2.0, False, id="nearly all"),
        pytest.param(0.1, 0.0, False, id="what it had is not known"),
    ],
)
def test_who_has_used_little_counts_each_attempt(
    peak: float | None, had: float, is_little: bool
) -> None:
    policy = replace(Policy(), types=(JobType(name="t", needs=JobNeeds(memory_gib=64)),))
    asked = JobNeeds(memory_gib=2)

    assert had_used_little(peak, had, "t", asked, policy) is is_little
    # Without a word of its own it asks for what its type does.
    assert had_used_little(0.1, 32, "t", None, policy) is False
    assert had_used_little(0.1, 64, "t", None, policy) is True
