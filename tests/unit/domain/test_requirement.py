"""Which types will do, and in what words one does not."""

from dataclasses import replace
from typing import Any

import pytest

from spindown.domain.offer import Requirements
from spindown.domain.reason import ReasonCode
from spindown.domain.requirement import misfit
from tests.builders import a_type

FITTING = Requirements()


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
