"""Which types will do, and in what words one does not."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.offer import InstanceRequirements, InstanceType
from spindown.domain.reason import ReasonCode
from spindown.domain.requirement import limit_types, misfit
from tests.builders import a_cpu_type, a_type

FITTING = InstanceRequirements()


@pytest.mark.parametrize(
    ("kind", "wanted", "constraint"),
    [
        pytest.param({}, {}, None, id="fits"),
        pytest.param({}, {"gpu_names": frozenset({"T4", "L4"})}, None, id="allowed GPU"),
        pytest.param({}, {"gpu_names": frozenset({"L4"})}, "gpu_names", id="other GPU"),
        pytest.param({}, {"gpu_names_denied": frozenset({"T4"})}, "gpu_names_denied", id="denied"),
        pytest.param({"gpu_manufacturer": "AMD"}, {}, "gpu_manufacturer", id="AMD"),
        pytest.param({"gpu_manufacturer": "AMD"}, {"gpu_manufacturer": None}, None, id="any maker"),
        pytest.param({"architecture": "arm64"}, {}, "architectures", id="arm64"),
        pytest.param({}, {"gpu_count_min": 2.0}, "gpu_count_min", id="too few GPUs"),
        pytest.param({"gpu_count": 8.0}, {"gpu_count_max": 4.0}, "gpu_count_max", id="too many"),
        pytest.param({"gpu_count": 0.125}, {}, "allow_fractional_gpu", id="a partition"),
        pytest.param(
            {"gpu_count": 0.125}, {"allow_fractional_gpu": True}, None, id="an allowed partition"
        ),
        pytest.param(
            {"gpu_count": 0.125},
            {"allow_fractional_gpu": True, "gpu_count_min": 2.0},
            "gpu_count_min",
            id="a partition is no two GPUs",
        ),
        pytest.param({"gpu_count": 0.0}, {}, "gpu_count_min", id="Count 0"),
        pytest.param({}, {"gpu_memory_mib_min": 20000}, "gpu_memory_mib_min", id="VRAM"),
        pytest.param(
            {"gpu_name": "A100", "gpu_memory_mib": 40960},
            {"gpu_memory_mib_min": 80000},
            "gpu_memory_mib_min",
            id="the smaller A100",
        ),
        pytest.param(
            {"gpu_name": "A100", "gpu_memory_mib": 81920},
            {"gpu_memory_mib_min": 80000},
            None,
            id="the larger A100",
        ),
        pytest.param(
            {"gpu_count": 4.0},
            {"gpu_memory_total_mib_min": 65537},
            "gpu_memory_total_mib_min",
            id="VRAM in all",
        ),
        pytest.param(
            {"gpu_count": 4.0}, {"gpu_memory_total_mib_min": 65536}, None, id="just enough VRAM"
        ),
        pytest.param({}, {"vcpus_min": 8}, "vcpus_min", id="vCPUs"),
        pytest.param({}, {"vcpus_min": 4}, None, id="just enough vCPUs"),
        pytest.param({}, {"memory_mib_min": 65536}, "memory_mib_min", id="memory"),
        pytest.param({}, {"memory_mib_min": 16384}, None, id="just enough memory"),
        pytest.param({}, {"gpu_memory_mib_min": 16384}, None, id="just enough VRAM of one"),
        pytest.param({}, {"gpu_count_max": 1.0}, None, id="just as many GPUs"),
        pytest.param({"bare_metal": True}, {}, "allow_bare_metal", id="metal"),
        pytest.param({"bare_metal": True}, {"allow_bare_metal": True}, None, id="allowed metal"),
        pytest.param(
            {}, {"families_denied": frozenset({"g4dn"})}, "families_denied", id="family left out"
        ),
        pytest.param(
            {}, {"instance_types": frozenset({"g5.xlarge"})}, "instance_types", id="not listed"
        ),
    ],
)
def test_names_the_requirement_that_a_type_does_not_meet(
    kind: dict[str, Any], wanted: dict[str, Any], constraint: str | None
) -> None:
    unfit = misfit(a_type(**kind), replace(FITTING, **wanted))

    assert (None if unfit is None else unfit.code.value) == constraint


@pytest.mark.parametrize(
    ("kind", "wanted", "sides"),
    [
        pytest.param({}, {"gpu_names": frozenset({"L4", "A10G"})}, ("T4", "A10G or L4"), id="GPU"),
        pytest.param({}, {"gpu_memory_mib_min": 20000}, (16384, 20000), id="VRAM of one"),
        pytest.param({}, {"gpu_memory_total_mib_min": 16385}, (16384, 16385), id="VRAM in all"),
    ],
)
def test_a_misfit_tells_both_sides(
    kind: dict[str, Any], wanted: dict[str, Any], sides: tuple[Any, Any]
) -> None:
    unfit = misfit(a_type(**kind), replace(FITTING, **wanted))

    assert unfit is not None
    assert (unfit.about["found"], unfit.about["wanted"]) == sides


@pytest.mark.parametrize(
    ("wanted", "code", "sides"),
    [
        pytest.param({}, ReasonCode.GPU_MANUFACTURER, ("", "NVIDIA"), id="a maker"),
        pytest.param(
            {"gpu_manufacturer": None, "gpu_names": frozenset({"T4"})},
            ReasonCode.GPU_NAMES,
            ("", "T4"),
            id="a name",
        ),
        pytest.param(
            {"gpu_manufacturer": None}, ReasonCode.GPU_COUNT_MIN, (0.0, 1.0), id="a count"
        ),
    ],
)
def test_a_type_without_a_gpu_does_not_fit(
    wanted: dict[str, Any], code: ReasonCode, sides: tuple[Any, Any]
) -> None:
    bare = a_type("c7i.large", gpu_name="", gpu_manufacturer="", gpu_count=0.0, gpu_memory_mib=0)

    unfit = misfit(bare, replace(FITTING, **wanted))

    assert unfit is not None
    assert (unfit.code, unfit.about["found"], unfit.about["wanted"]) == (code, *sides)


INF2 = a_type("inf2.xlarge", gpu_name="Inferentia2", gpu_manufacturer="AWS", gpu_memory_mib=32768)
MIXED = InstanceRequirements(gpu_count_min=0.0, gpu_names=frozenset({"T4"}))
CPU_ONLY = InstanceRequirements(gpu_count_min=0.0, gpu_count_max=0.0)


@pytest.mark.parametrize(
    ("kind", "wanted", "constraint"),
    [
        pytest.param(a_cpu_type(), CPU_ONLY, None, id="no GPU is asked for"),
        pytest.param(a_type(), CPU_ONLY, "gpu_count_max", id="a GPU where none is wanted"),
        pytest.param(a_cpu_type(), MIXED, None, id="a GPU is not needed"),
        pytest.param(a_type(), MIXED, None, id="the GPU that may do"),
        pytest.param(a_type("g6.xlarge"), MIXED, "gpu_names", id="another GPU"),
        pytest.param(
            a_cpu_type(architecture="arm64"), CPU_ONLY, "architectures", id="an architecture"
        ),
        pytest.param(
            a_cpu_type(), replace(CPU_ONLY, memory_mib_min=20_000), "memory_mib_min", id="memory"
        ),
        pytest.param(a_cpu_type(), replace(CPU_ONLY, vcpus_min=9), "vcpus_min", id="vCPUs"),
        pytest.param(INF2, InstanceRequirements(), "gpu_manufacturer", id="Neuron for a GPU"),
        pytest.param(
            INF2,
            InstanceRequirements(gpu_manufacturer=None),
            "gpu_manufacturer",
            id="any maker of GPUs",
        ),
        pytest.param(INF2, InstanceRequirements(gpu_manufacturer="AWS"), None, id="its maker"),
        pytest.param(
            INF2,
            InstanceRequirements(gpu_manufacturer=None, gpu_names=frozenset({"Inferentia2"})),
            None,
            id="its name",
        ),
        pytest.param(
            INF2,
            InstanceRequirements(gpu_manufacturer=None, instance_types=frozenset({"inf2.xlarge"})),
            None,
            id="its type",
        ),
    ],
)
def test_machines_without_a_gpu_and_with_neuron(
    kind: InstanceType, wanted: InstanceRequirements, constraint: str | None
) -> None:
    unfit = misfit(kind, wanted)

    assert (None if unfit is None else unfit.code.value) == constraint


def test_work_on_gpus_is_ranked_on_all_gpus_and_nothing_else() -> None:
    types = {one.name: one for one in (a_type(), a_type("g6.xlarge"), a_cpu_type(), INF2)}
    wanted = InstanceRequirements(gpu_names=frozenset({"T4"}))

    assert set(limit_types(types, wanted)) == {"g4dn.xlarge", "g6.xlarge"}


def test_other_work_is_ranked_on_what_fits_or_nearly_does() -> None:
    large = a_cpu_type("m7i.4xlarge", memory_mib=65_536)
    types = {one.name: one for one in (a_type(), a_cpu_type(), large, INF2)}

    fitting = limit_types(types, replace(CPU_ONLY, memory_mib_min=40_000))
    none = limit_types(types, replace(CPU_ONLY, memory_mib_min=900_000))

    assert set(fitting) == {"m7i.4xlarge"}
    assert set(none) == {"c7i.2xlarge", "m7i.4xlarge"}


@given(
    kinds=st.lists(
        st.builds(
            a_cpu_type,
            name=st.sampled_from(["c7i.large", "m7g.xlarge", "r8a.2xlarge"]),
            vcpus=st.integers(1, 192),
            memory_mib=st.integers(1024, 800_000),
            architecture=st.sampled_from(["x86_64", "arm64"]),
        )
        | st.builds(a_type, vcpus=st.integers(1, 192)),
        unique_by=lambda kind: kind.name,
    ),
    least=st.tuples(st.integers(0, 200), st.integers(0, 900_000)),
    most=st.sampled_from([None, 0.0, 1.0]),
)
def test_limiting_the_types_leaves_out_no_candidate(
    kinds: list[InstanceType], least: tuple[int, int], most: float | None
) -> None:
    wanted = InstanceRequirements(
        gpu_count_min=0.0, gpu_count_max=most, vcpus_min=least[0], memory_mib_min=least[1]
    )
    types = {kind.name: kind for kind in kinds}

    kept = limit_types(types, wanted)

    fitting = {name for name, kind in types.items() if misfit(kind, wanted) is None}
    assert fitting <= set(kept)
    assert not fitting or set(kept) == fitting
