"""Sizes of a type, from what its jobs have used to the machines of the next, run for real."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from spindown.contract import tag
from spindown.domain.shape import parse_shape
from spindown.job.manifest_store import load_manifest
from tests.e2e.world import HANGING, World, deployed, found, write_deployment
from tests.local.waiting import is_quiet

pytestmark = pytest.mark.proof

_TYPES = """
[[workload.count.policy.types]]
name = "roomy"
memory_gib = 24

[[workload.count.policy.types]]
name = "hungry"
memory_gib = 4

[workload.count.policy.requirements_at_most]
memory_gib = 32

[workload.count.requirements]
gpu_count_min = 0
"""
#: Memory runs out once: on the machine that the first attempt has.
_CODE = """
import time
from pathlib import Path

from spindown.user import Result

def run(batch, ctx):
    for item in batch:
        if item.value.startswith("/") and not Path(item.value).exists():
            Path(item.value).touch()
            raise MemoryError("a table that is too large")
        table = bytearray(2**26)
        time.sleep(1.5)
        yield Result(item, {"length": len(item.value)})
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    path = write_deployment(tmp_path_factory.mktemp("learning"), "count")
    (path.parent / "count" / "count.py").write_text(_CODE, encoding="utf-8")
    policy = 'max_workers = 3\nrightsize = "apply"'
    text = path.read_text(encoding="utf-8").replace("max_workers = 1", policy)
    path.write_text(text + _TYPES, encoding="utf-8")
    with deployed(path) as world:
        yield world


def memory_of(world: World, job_id: str) -> int:
    """Return the GiB that the shape of the machine has which has done a job."""
    assert world.finished(job_id).state == "completed"
    fence = load_manifest(job_id, world.session.work_store("count"))
    assert fence is not None
    owner = fence.manifest.owner.partition("/")[0]
    (machine,) = [one for one in world.instances("count") if one.instance_id == owner]
    shape = parse_shape(machine.tags[tag.SHAPE])
    assert shape is not None
    return shape.memory_gib


def send(world: World, *job_ids: str) -> None:
    for job_id in job_ids:
        world.send("count", {"items": ["one"], "job_id": job_id, "type": "roomy"})


def test_what_jobs_use_is_what_the_next_ones_get(world: World) -> None:
    first = [f"first-{n}" for n in range(6)]
    send(world, *first)
    assert {memory_of(world, job_id) for job_id in first} == {32}
    found(lambda: is_quiet(world.session.status("count")))
    # Workers write at their end what they have measured.
    sql = "SELECT job_id FROM usage WHERE type = 'roomy'"
    found(lambda: len(world.spindown_json("usage", "count", "--sql", sql)) == len(first))

    # What was written within the last minute is left to the next run.
    assert found(lambda: world.invoke("offers")["sized"], HANGING)
    send(world, "next")
    assert memory_of(world, "next") < 32
    sizings = world.spindown_json("rightsize", "count")["sizings"]
    (told,) = [each for each in sizings if each["name"] == "roomy"]
    assert told["given"]["memory_gib"] < told["asked"]["memory_gib"]
    assert told["dollars"] > 0.0
    assert "$/month" in world.spindown("rightsize", "count").stdout


def test_a_job_that_runs_out_goes_on_with_the_next_size(world: World, tmp_path: Path) -> None:
    world.send(
        "count",
        {
            "items": [str(tmp_path / "tried")],
            "job_id": "hungry",
            "type": "hungry",
        },
    )
    # The machine of the local system has the memory of this one, so the next size is above that.
    assert memory_of(world, "hungry") > 4
    (record,) = world.records("hungry")
    assert record["result"] == {"length": len(str(tmp_path / "tried"))}
