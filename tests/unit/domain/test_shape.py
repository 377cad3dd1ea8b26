"""What a job needs becomes a shape on a fixed scale, within what the policy allows."""

import math
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.offer import InstanceRequirements, InstanceType
from spindown.domain.policy import Dispatch, JobNeeds, JobType, Policy
from spindown.domain.reason import About, Reason, ReasonCode
from spindown.domain.requirement import misfit
from spindown.domain.shape import (
    DEARER_AT_MOST,
    SCALES,
    Shape,
    as_asked,
    declared_shapes,
    distinct_sizes,
    is_possible,
    of_dispatch,
    own_shape,
    parse_shape,
    price_of,
    requirements_of,
    settle,
    shape_of,
    size_on_sale,
    slots_of,
    why_not_sold,
    why_unmet,
)
from spindown.local.market.catalogue import instance_types
from spindown.reason_text import say
from tests.builders import a_cpu_type, a_type

GIB = 1024
POLICY = replace(
    Policy(),
    types=(
        JobType(name="small", needs=JobNeeds(memory_gib=2)),
        JobType(name="gpu", needs=JobNeeds(gpus=1, gpu_memory_gib=20, memory_gib=100)),
    ),
    requirements_at_most=JobNeeds(memory_gib=64, vcpus=32),
)
NO_GPU = InstanceRequirements(gpu_count_min=0.0, gpu_count_max=0.0)

amounts = st.none() | st.floats(0.0, 9000.0)
counts = st.none() | st.integers(0, 600)
needs = st.builds(
    JobNeeds,
    vcpus=counts,
    memory_gib=amounts,
    gpus=st.none() | st.integers(0, 20),
    gpu_memory_gib=st.none() | st.floats(0.0, 400.0),
    disk_gib=amounts,
    architectures=st.none() | st.frozensets(st.sampled_from(["x86_64", "arm64"]), min_size=1),
)
shapes = st.builds(
    Shape,
    vcpus=st.sampled_from(SCALES["vcpus"]),
    memory_gib=st.sampled_from(SCALES["memory_gib"]),
    gpus=st.sampled_from(SCALES["gpus"]),
    gpu_memory_gib=st.sampled_from(SCALES["gpu_memory_gib"]),
    architecture=st.sampled_from(["", "x86_64", "arm64"]),
    dispatch=st.sampled_from(Dispatch),
)


def test_each_gpu_on_sale_has_a_size_of_its_own() -> None:
    vram = {one.gpu_memory_mib for one in instance_types().values() if one.gpu_name}
    sizes = {mib: shape_of(JobNeeds(gpu_memory_gib=mib // GIB)).gpu_memory_gib for mib in vram}

    assert 144_384 in vram
    assert [mib for mib, size in sizes.items() if size * GIB > mib] == []


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        (JobNeeds(), "c0m0"),
        (JobNeeds(vcpus=3, memory_gib=15.5), "c4m16"),
        (JobNeeds(memory_gib=0.25), "c0m1"),
        (JobNeeds(gpus=1), "c0m0g1v0"),
        (JobNeeds(gpu_memory_gib=21), "c0m0g1v22"),
        (JobNeeds(gpus=3, gpu_memory_gib=80), "c0m0g4v80"),
        (JobNeeds(architectures=frozenset({"arm64"})), "c0m0a"),
        (JobNeeds(architectures=frozenset({"arm64", "x86_64"})), "c0m0"),
        (JobNeeds(vcpus=16, memory_gib=300, architectures=frozenset({"x86_64"})), "c16m384x"),
    ],
)
def test_needs_are_rounded_up_to_the_next_step(asked: JobNeeds, name: str) -> None:
    assert shape_of(asked).name == name


@given(needs)
def test_a_shape_has_all_that_is_asked_for(asked: JobNeeds) -> None:
    shape = shape_of(asked)
    for name, (*_, most) in SCALES.items():
        value = getattr(asked, name)
        assert value is None or getattr(shape, name) >= min(value, most)
    # Whoever asks for the shape itself gets no larger one.
    again = JobNeeds(**{name: getattr(shape, name) for name in SCALES})
    assert replace(shape_of(again), architecture=shape.architecture) == shape


@pytest.mark.parametrize(
    ("usual", "own", "name"),
    [
        (Dispatch.POOL, None, "c0m2"),
        (Dispatch.POOL, Dispatch.DEDICATED, "c0m2d"),
        (Dispatch.DEDICATED, None, "c0m2d"),
        (Dispatch.DEDICATED, Dispatch.POOL, "c0m2"),
        (Dispatch.DEDICATED, Dispatch.SHARED, "c0m2s"),
    ],
)
def test_a_type_says_how_its_jobs_come_to_machines(
    usual: Dispatch, own: Dispatch | None, name: str
) -> None:
    one = JobType(name="one", needs=JobNeeds(memory_gib=2), dispatch=own)
    policy = replace(Policy(), types=(one,), dispatch=usual)
    shape = settle("one", None, policy).shape
    assert shape.name == name
    assert is_possible(shape, policy)
    assert settle("", None, policy).shape == own_shape(policy)
    assert of_dispatch(policy, name).dispatch is (own or usual)
    assert of_dispatch(policy, "") is policy


@given(shapes, shapes)
def test_a_machine_takes_no_job_of_another_dispatch(one: Shape, other: Shape) -> None:
    assert one.dispatch is other.dispatch or not one.covers(other)


@pytest.mark.parametrize(
    ("dispatch", "usual", "slots"),
    [
        (Dispatch.POOL, "per-gpu", "per-gpu"),
        (Dispatch.POOL, "3", "3"),
        (Dispatch.DEDICATED, "3", "per-instance"),
        (Dispatch.SHARED, "per-gpu", "8"),
        (Dispatch.SHARED, "3", "8"),
    ],
)
def test_machines_have_the_slots_of_their_dispatch(
    dispatch: Dispatch, usual: str, slots: str
) -> None:
    assert slots_of(replace(Policy(), dispatch=dispatch), usual) == slots


@pytest.mark.parametrize(
    ("needs", "jobs", "least"),
    [
        pytest.param(JobNeeds(vcpus=1, memory_gib=2), 8, (8, 16, 0, 0, 1), id="cores and memory"),
        pytest.param(JobNeeds(gpus=1), 4, (0, 0, 4, 0, 1), id="a GPU each"),
        pytest.param(JobNeeds(gpus=1, gpu_memory_gib=6), 4, (0, 0, 1, 6, 4), id="VRAM of one"),
        pytest.param(JobNeeds(gpus=2, gpu_memory_gib=6), 2, (0, 0, 4, 6, 1), id="two GPUs each"),
    ],
)
def test_a_shared_machine_has_enough_for_all_its_jobs(
    needs: JobNeeds, jobs: int, least: tuple[float, ...]
) -> None:
    found = requirements_of(shape_of(needs, Dispatch.SHARED), NO_GPU, jobs)
    host, gpu = found.memory_mib_min / GIB, found.gpu_memory_mib_each / GIB
    assert [found.vcpus_min, host, found.gpu_count_min, gpu, found.gpu_jobs] == list(least)
    alone = requirements_of(shape_of(needs, Dispatch.DEDICATED), NO_GPU, jobs)
    assert alone == requirements_of(shape_of(needs), NO_GPU)


@pytest.mark.parametrize(
    ("jobs", "gpus", "fits"), [(8, 8, True), (9, 8, False), (4, 4, True), (2, 1, False)]
)
def test_each_gpu_has_enough_for_the_jobs_that_it_serves(
    jobs: int, gpus: float, *, fits: bool
) -> None:
    shape = shape_of(JobNeeds(gpu_memory_gib=16), Dispatch.SHARED)
    kind = a_type("g6.48xlarge", gpu_count=gpus, gpu_memory_mib=22_888)

    assert (misfit(kind, requirements_of(shape, InstanceRequirements(), jobs)) is None) is fits


@given(shapes)
def test_a_name_says_the_whole_shape_in_18_characters(shape: Shape) -> None:
    assert parse_shape(shape.name) == shape
    assert len(shape.name) <= 18


@pytest.mark.parametrize("name", ["", "c4", "dlq", "c4m16 ", "c04m16", "c4m16g0v0", "c9999m1", "x"])
def test_other_names_are_no_shapes(name: str) -> None:
    assert parse_shape(name) is None


@given(shapes, shapes)
def test_a_machine_of_a_covering_shape_meets_the_other(one: Shape, other: Shape) -> None:
    workload = InstanceRequirements(gpu_count_min=0.0, architectures=frozenset({"x86_64", "arm64"}))
    machine = a_type(
        vcpus=one.vcpus,
        memory_mib=one.memory_gib * GIB,
        gpu_count=float(one.gpus),
        gpu_memory_mib=one.gpu_memory_gib * GIB,
        architecture=one.architecture or "x86_64",
    )
    assert misfit(machine, requirements_of(one, workload)) is None
    if one.covers(other):
        # A machine with a GPU can do the work of vCPUs, though it is not bought for that.
        wanted = replace(requirements_of(other, workload), gpu_count_max=None)
        assert misfit(machine, wanted) is None


@pytest.mark.parametrize(
    "short",
    [
        {"vcpus": 3},
        {"memory_mib": 16 * GIB - 1},
        {"gpu_count": 1.0},
        {"gpu_memory_mib": 24 * GIB - 1},
        {"architecture": "x86_64"},
    ],
)
def test_a_machine_that_lacks_one_need_of_a_shape_is_unfit(short: Any) -> None:
    shape = Shape(vcpus=4, memory_gib=16, gpus=2, gpu_memory_gib=24, architecture="arm64")
    workload = InstanceRequirements(architectures=frozenset({"x86_64", "arm64"}))
    exact: dict[str, Any] = {
        "vcpus": 4,
        "memory_mib": 16 * GIB,
        "gpu_count": 2.0,
        "gpu_memory_mib": 24 * GIB,
        "architecture": "arm64",
    }
    wanted = requirements_of(shape, workload)

    assert misfit(a_type(**exact), wanted) is None
    assert misfit(a_type(**{**exact, **short}), wanted) is not None


def test_a_shape_of_any_architecture_fits_a_machine_of_each() -> None:
    anywhere, arm = Shape(vcpus=4), Shape(vcpus=4, architecture="arm64")
    assert arm.covers(anywhere)
    assert not anywhere.covers(arm)
    assert not replace(arm, architecture="x86_64").covers(arm)


@pytest.mark.parametrize(
    ("least", "needs", "is_bought"),
    [
        # GPUs of a machine for: work of vCPUs, of either, of a GPU; and where all need one.
        (0.0, JobNeeds(vcpus=4, memory_gib=16), False),
        (0.0, JobNeeds(memory_gib=16), True),
        (0.0, JobNeeds(vcpus=4, gpus=1), True),
        (1.0, JobNeeds(vcpus=4), True),
    ],
)
def test_for_the_work_of_vcpus_no_gpu_is_bought(
    least: float, needs: JobNeeds, is_bought: bool
) -> None:
    wanted = requirements_of(shape_of(needs), InstanceRequirements(gpu_count_min=least))
    machine = a_type(vcpus=4, memory_mib=16 * GIB, gpu_count=1.0)
    assert (misfit(machine, wanted) is None) is is_bought


@given(shapes)
def test_a_shape_asks_for_no_less_than_the_workload(shape: Shape) -> None:
    workload = InstanceRequirements(
        vcpus_min=8, memory_mib_min=64 * GIB, gpu_memory_mib_min=16 * GIB
    )
    wanted = requirements_of(shape, workload)
    assert wanted.vcpus_min >= 8
    assert wanted.memory_mib_min >= 64 * GIB
    assert wanted.gpu_memory_mib_min >= 16 * GIB
    assert wanted.gpu_count_min >= 1.0
    assert wanted.architectures <= workload.architectures


def test_without_types_whatever_names_one_is_refused() -> None:
    for name, asked in (("small", None), ("", JobNeeds()), ("small", JobNeeds(vcpus=1))):
        rejected = settle(name, asked, Policy()).rejected
        field = "type" if name else "requirements"
        assert rejected == Reason(ReasonCode.NO_TYPES, {"field": field})
    assert settle("", None, Policy()).shape == Shape()


@pytest.mark.parametrize(
    ("name", "asked", "shape"),
    [
        ("", None, "c0m0"),
        ("small", None, "c0m2"),
        ("small", JobNeeds(memory_gib=64), "c0m64"),
        ("small", JobNeeds(vcpus=32), "c32m2"),
        ("gpu", JobNeeds(memory_gib=100), "c0m128g1v20"),
        ("gpu", JobNeeds(memory_gib=4, gpus=0, gpu_memory_gib=0), "c0m4"),
        ("", JobNeeds(memory_gib=4), "c0m4"),
    ],
)
def test_a_message_asks_for_less_or_up_to_the_ceiling(
    name: str, asked: JobNeeds | None, shape: str
) -> None:
    settled = settle(name, asked, POLICY)
    assert not settled.rejected
    assert settled.shape.name == shape


@pytest.mark.parametrize(
    ("name", "asked", "field", "value", "most"),
    [
        ("small", JobNeeds(memory_gib=65), "memory_gib", 65, 64),
        ("gpu", JobNeeds(memory_gib=101), "memory_gib", 101, 100),
        ("small", JobNeeds(gpus=1), "gpus", 1, 0),
        ("gpu", JobNeeds(gpus=2), "gpus", 2, 1),
        ("", JobNeeds(disk_gib=1), "disk_gib", 1, 0),
    ],
)
def test_more_than_the_ceiling_is_rejected(
    name: str, asked: JobNeeds, field: str, value: float, most: float
) -> None:
    rejected = settle(name, asked, POLICY).rejected
    setting = f"policy.requirements_at_most.{field}"
    about: About = {"field": field, "asked": value, "most": most, "setting": setting}
    assert rejected == Reason(ReasonCode.REQUIREMENT_FORBIDDEN, about)


def test_an_unknown_type_is_rejected_with_those_that_there_are() -> None:
    rejected = settle("huge", None, POLICY).rejected
    assert rejected == Reason(ReasonCode.TYPE_UNKNOWN, {"type": "huge", "known": "gpu, small"})


@given(st.sampled_from(["", "small", "gpu"]), st.none() | needs)
def test_what_is_settled_is_within_type_and_ceiling(name: str, asked: JobNeeds | None) -> None:
    settled = settle(name, asked, POLICY)
    if settled.rejected:
        return
    usual = next((t.needs for t in POLICY.types if t.name == name), JobNeeds())
    for each in fields(JobNeeds):
        if each.name == "architectures":
            continue
        bound = getattr(usual, each.name), getattr(POLICY.requirements_at_most, each.name)
        assert (getattr(settled.needs, each.name) or 0) <= max(value or 0 for value in bound)


@given(name=st.sampled_from(["", "small", "gpu"]), asked=st.none() | needs)
def test_a_shape_that_a_job_comes_to_is_a_possible_one(name: str, asked: JobNeeds | None) -> None:
    settled = settle(name, asked, POLICY)

    assert settled.rejected or is_possible(settled.shape, POLICY)
    assert not is_possible(settled.shape, Policy())


def test_a_shape_above_all_types_and_ceilings_is_impossible() -> None:
    assert not is_possible(Shape(memory_gib=8192), POLICY)
    assert is_possible(Shape(), POLICY)


def test_what_no_machine_is_sold_with_is_refused() -> None:
    policy = replace(POLICY, requirements_at_most=JobNeeds(memory_gib=1e6))
    rejected = settle("small", JobNeeds(memory_gib=1e5), policy).rejected
    about: About = {"field": "memory_gib", "asked": 1e5, "most": SCALES["memory_gib"][-1]}
    assert rejected.about == about


@pytest.mark.parametrize(
    ("asked", "setting", "value", "most"),
    [
        (JobNeeds(disk_gib=101), "image.root_volume_gib", 101, 100),
        (JobNeeds(gpus=1), "requirements.gpu_count_max", 1, 0),
        (JobNeeds(gpu_memory_gib=1), "requirements.gpu_count_max", 1, 0),
        (
            JobNeeds(architectures=frozenset({"arm64"})),
            "requirements.architectures",
            "arm64",
            "x86_64",
        ),
    ],
)
def test_what_no_machine_of_the_workload_has_is_unmet(
    asked: JobNeeds, setting: str, value: float | str, most: float | str
) -> None:
    fields = {
        "image.root_volume_gib": "disk_gib",
        "requirements.gpu_count_max": "gpus",
        "requirements.architectures": "architectures",
    }
    about: About = {"field": fields[setting], "asked": value, "most": most, "setting": setting}
    assert why_unmet(asked, NO_GPU, 100) == Reason(ReasonCode.REQUIREMENT_FORBIDDEN, about)


def test_a_declared_type_has_a_shape_of_its_own_dispatch() -> None:
    types = (
        JobType(name="a", needs=JobNeeds(memory_gib=3)),
        JobType(name="b", needs=JobNeeds(vcpus=2), dispatch=Dispatch.SHARED),
    )

    assert declared_shapes(Policy(types=types)) == {"c0m4", "c2m0s"}


def test_what_its_machines_have_is_met() -> None:
    met = JobNeeds(disk_gib=100, architectures=frozenset({"arm64", "x86_64"}), memory_gib=1000)
    assert not why_unmet(met, NO_GPU, 100)
    assert misfit(a_cpu_type(), requirements_of(shape_of(JobNeeds(memory_gib=16)), NO_GPU)) is None
    assert misfit(a_cpu_type(), requirements_of(shape_of(JobNeeds(memory_gib=17)), NO_GPU))


ON_SALE = (
    a_type("g4dn.xlarge"),
    a_type("g4dn.2xlarge", vcpus=8, memory_mib=32 * 1024),
    a_cpu_type("c7i.2xlarge"),
    a_cpu_type("r7i.4xlarge", vcpus=16, memory_mib=128 * 1024),
    a_cpu_type("r8g.8xlarge", vcpus=32, memory_mib=256 * 1024, architecture="arm64"),
)
ANY_CPU = InstanceRequirements(gpu_count_min=0.0, architectures=frozenset({"x86_64", "arm64"}))


@pytest.mark.parametrize(
    ("shape", "workload", "field", "asked", "most"),
    [
        (Shape(memory_gib=48), InstanceRequirements(), "memory_gib", 48, 32),
        (Shape(vcpus=16), InstanceRequirements(), "vcpus", 16, 8),
        (Shape(vcpus=8, memory_gib=512), ANY_CPU, "memory_gib", 512, 256),
        (Shape(memory_gib=256, architecture="x86_64"), ANY_CPU, "memory_gib", 256, 128),
        # With a GPU: what no machine with one has.
        (Shape(gpus=1, gpu_memory_gib=15, memory_gib=128), ANY_CPU, "gpus", 1, 0),
        (
            Shape(memory_gib=16, dispatch=Dispatch.SHARED),
            InstanceRequirements(),
            "memory_gib",
            16,
            8,
        ),
    ],
)
def test_a_size_that_nobody_sells_is_told_by_numbers(
    shape: Shape, workload: InstanceRequirements, field: str, asked: float, most: float
) -> None:
    rejected = why_not_sold(shape, workload, 4, ON_SALE)

    told = (rejected.code, *map(rejected.about.get, ("field", "asked", "most", "shape")))
    if most:
        assert told == (ReasonCode.NO_SUCH_SIZE, field, asked, most, shape.name)
    else:
        assert rejected.code is ReasonCode.NO_SUCH_SIZE


@pytest.mark.parametrize(
    ("dispatch", "given", "slots"),
    [(Dispatch.POOL, 700.0, 1), (Dispatch.SHARED, 768, 4)],
)
def test_a_size_that_was_rounded_up_keeps_what_was_asked(
    dispatch: Dispatch, given: float, slots: int
) -> None:
    needs = JobNeeds(memory_gib=given)
    rejected = as_asked(why_not_sold(shape_of(needs, dispatch), ANY_CPU, 4, ON_SALE), needs)

    told = map(rejected.about.get, ("field", "given", "asked", "slots"))
    assert tuple(told) == ("memory_gib", given, 768, slots)
    words = say(rejected)
    assert ("700" in words) is (given == 700)
    assert ("4 jobs" in words) is (slots == 4)


def test_architectures_are_asked_for_by_name_not_by_size() -> None:
    asked = JobNeeds(architectures=frozenset({"arm64"}))
    words = say(why_unmet(asked, NO_GPU, 100))

    assert "less" not in words
    assert "x86_64" in words


@pytest.mark.parametrize(
    ("shape", "workload", "sold"),
    [
        (Shape(memory_gib=32), InstanceRequirements(), ON_SALE),
        # Nothing is known of the market.
        (Shape(memory_gib=8192), InstanceRequirements(), ()),
        # Not its size is at fault: the workload itself has no machine.
        (Shape(memory_gib=48), InstanceRequirements(gpu_names=frozenset({"H100"})), ON_SALE),
    ],
)
def test_a_size_that_may_be_sold_is_not_rejected(
    shape: Shape, workload: InstanceRequirements, sold: tuple[InstanceType, ...]
) -> None:
    assert not why_not_sold(shape, workload, 4, sold)


def a_kind(number: int, vcpus: int, ratio: int, gpus: float, *, arm: bool) -> InstanceType:
    """Return a type of a few sizes, so that several are of one."""
    return InstanceType(
        name=f"g{number}.xlarge" if gpus else f"m{number}.xlarge",
        vcpus=vcpus,
        memory_mib=vcpus * ratio * GIB,
        architecture="arm64" if arm else "x86_64",
        gpu_name="L4" if gpus else "",
        gpu_manufacturer="NVIDIA" if gpus else "",
        gpu_count=gpus,
        gpu_memory_mib=22_888 if gpus else 0,
    )


markets = st.dictionaries(
    st.builds(
        a_kind,
        st.integers(5, 8),
        st.sampled_from([2, 4, 16]),
        st.sampled_from([2, 8]),
        st.sampled_from([0.0, 0.0, 0.125, 1.0, 4.0]),
        arm=st.booleans(),
    ),
    st.sampled_from([0.1, 0.5, 2.0, math.inf]),
    max_size=25,
)
workloads = st.sampled_from(
    [
        InstanceRequirements(),
        NO_GPU,
        ANY_CPU,
        replace(ANY_CPU, allow_fractional_gpu=True, memory_mib_min=8 * GIB),
        replace(ANY_CPU, families_denied=frozenset({"m5", "g6"})),
    ]
)
small_shapes = st.builds(
    Shape,
    vcpus=st.sampled_from((0, 1, 4, 16, 32)),
    memory_gib=st.sampled_from((0, 4, 16, 32, 128, 256)),
    gpus=st.sampled_from((0, 0, 1, 2, 8)),
    gpu_memory_gib=st.sampled_from((0, 0, 15, 22, 80)),
    architecture=st.sampled_from(["", "x86_64", "arm64"]),
    dispatch=st.sampled_from(Dispatch),
)


@given(small_shapes, workloads, markets)
def test_one_type_of_each_size_says_what_all_say(
    shape: Shape, workload: InstanceRequirements, sold: dict[InstanceType, float]
) -> None:
    distinct = distinct_sizes(workload, sold)

    assert price_of(shape, workload, 4, distinct) == price_of(shape, workload, 4, sold)
    assert why_not_sold(shape, workload, 4, distinct) == why_not_sold(shape, workload, 4, sold)


def test_of_the_types_of_one_size_the_cheapest_is_left() -> None:
    prices = {"c7i.2xlarge": 0.36, "c7a.2xlarge": 0.31, "c8i.2xlarge": 0.4}
    sold = {a_cpu_type(name): price for name, price in prices.items()}
    larger = a_cpu_type("m7i.2xlarge", memory_mib=32 * GIB)

    left = distinct_sizes(ANY_CPU, {**sold, larger: 0.4, a_type("g6.xlarge"): 0.8})

    assert {kind.name for kind in left} == {"c7a.2xlarge", "m7i.2xlarge", "g6.xlarge"}


@given(small_shapes, small_shapes, workloads, markets)
def test_a_machine_on_sale_takes_a_job_near_its_price(
    shape: Shape, most: Shape, workload: InstanceRequirements, sold: dict[InstanceType, float]
) -> None:
    reach = {kind: price for kind, price in sold.items() if kind.vcpus % 3}
    found = size_on_sale(shape, most, workload, 4, sold, reach)

    own = price_of(shape, workload, 4, sold)
    assert found.covers(shape)
    assert (
        price_of(found, workload, 4, sold) == own
        or price_of(found, workload, 4, reach) <= DEARER_AT_MOST * own
    )
    assert size_on_sale(found, most, workload, 4, sold).covers(found)
    for need in SCALES:
        assert getattr(found, need) <= max(getattr(shape, need), getattr(most, need))


MACHINES = (
    a_type("g6.xlarge"),
    a_type("g6.12xlarge", vcpus=48, memory_mib=192 * GIB, gpu_count=4.0),
    a_type("p5.48xlarge", vcpus=192, memory_mib=2048 * GIB, gpu_count=8.0),
)


@given(st.lists(small_shapes, max_size=40))
def test_made_up_sizes_come_to_those_of_machines(asked: list[Shape]) -> None:
    sold = {kind: float(kind.vcpus) for kind in MACHINES}
    most = Shape(vcpus=512, memory_gib=8192, gpus=16, gpu_memory_gib=288)
    fitting = (each for each in asked if not why_not_sold(each, InstanceRequirements(), 4, sold))
    found = {size_on_sale(each, most, InstanceRequirements(), 4, sold) for each in fitting}

    kinds = {(each.vcpus, each.memory_gib, each.gpus, each.gpu_memory_gib) for each in found}
    assert len(kinds) <= len(sold) * len(Dispatch)


def test_without_a_catalogue_a_size_grows_in_what_it_asks_for() -> None:
    most = Shape(vcpus=64, memory_gib=512, gpus=8, gpu_memory_gib=80)

    assert size_on_sale(Shape(vcpus=4, memory_gib=8), most, ANY_CPU, 1, {}).name == "c64m512"
