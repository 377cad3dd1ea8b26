"""What ``spindown run`` makes of its options; that it runs is in tests/e2e/test_run.py."""

import pytest

from spindown.cli.run import least_gpu_memory
from spindown.domain.offer import Catalogue
from spindown.error import BadInput
from tests.builders import NOW, a_type

_SOLD = Catalogue(
    taken_at=NOW,
    instance_types={
        one.name: one
        for one in (
            a_type("g6.xlarge", gpu_name="L4", gpu_memory_mib=22888),
            a_type("g6f.large", gpu_name="L4", gpu_memory_mib=2861, gpu_count=0.125),
            a_type("p4d.24xlarge", gpu_name="A100", gpu_memory_mib=40960, gpu_count=8.0),
            a_type("p4de.24xlarge", gpu_name="A100", gpu_memory_mib=81920, gpu_count=8.0),
        )
    },
    offerings={},
    on_demand={},
    reclaim_share={},
)


@pytest.mark.parametrize(("name", "gib"), [("L4", 22), ("l4", 22), ("A100", 40)])
def test_a_gpu_by_name_is_its_memory_at_least(name: str, gib: int) -> None:
    assert least_gpu_memory(name, _SOLD) == gib


@pytest.mark.parametrize(
    ("name", "sold"),
    [pytest.param("H100", _SOLD, id="not sold"), pytest.param("L4", None, id="not read yet")],
)
def test_a_gpu_that_nobody_sells_is_refused(name: str, sold: Catalogue | None) -> None:
    with pytest.raises(BadInput) as refused:
        least_gpu_memory(name, sold)
    assert refused.value.field == "--gpu"
