"""Jobs of two types, deployed and run for real: routed, done on machines of their size, told of."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spindown.contract import tag
from spindown.job.manifest_store import load_manifest
from spindown.local.market.scenario import DryPool
from tests.e2e.world import World, deployed, found, write_deployment
from tests.local.waiting import is_quiet
from tests.local.world import at_once

pytestmark = pytest.mark.proof

_TYPES = """
[[workload.count.policy.types]]
name = "small"
memory_gib = 4

[[workload.count.policy.types]]
name = "large"
memory_gib = 24

[workload.count.policy.requirements_at_most]
memory_gib = 32

[workload.count.requirements]
gpu_count_min = 0
"""
#: A workload that takes folders.
_LAB = """
[[workload.lab.policy.types]]
name = "small"
memory_gib = 4

[workload.lab.policy.requirements_at_most]
vcpus = 4
memory_gib = 32

[workload.lab.requirements]
gpu_count_min = 0
"""
#: The cheapest pool of the machines with more than 8 GiB and no GPU.
_DRY = DryPool(type="m7a.2xlarge", zone="us-east-1a")
#: Memory of the machines of the local market that have no GPU, GiB.
_MEMORY = {"c7i.xlarge": 8, "m7a.2xlarge": 32}
_JOBS: dict[str, dict[str, Any]] = {
    **{f"small-{n}": {"type": "small"} for n in range(4)},
    **{f"large-{n}": {"type": "large"} for n in range(3)},
    "asked": {"type": "small", "requirements": {"memory_gib": 20}},
    "plain": {},
}
_NEEDS = {"small": 4, "large": 24, "asked": 20, "plain": 0}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    path = write_deployment(tmp_path_factory.mktemp("types"), "count", "lab")
    text = path.read_text(encoding="utf-8").replace("max_workers = 1", "max_workers = 3")
    path.write_text(text + _TYPES + _LAB, encoding="utf-8")
    with deployed(path, at_once().model_copy(update={"dry": (_DRY,)})) as world:
        yield world


@pytest.fixture(scope="module")
def sent(world: World) -> World:
    for job_id, asked in _JOBS.items():
        world.send("count", {"items": ["one", "three"], "job_id": job_id, **asked})
    world.send("count", {"items": ["x"], "job_id": "greedy", "requirements": {"memory_gib": 64}})
    world.send("count", {"items": ["x"], "job_id": "strange", "type": "huge"})
    return world


def test_each_job_is_done_on_a_machine_of_its_size(sent: World) -> None:
    for job_id in _JOBS:
        assert sent.finished(job_id).state == "completed"
    found(lambda: is_quiet(sent.session.status("count")))

    types = {one.instance_id: one.instance_type for one in sent.instances("count")}
    store = sent.session.work_store("count")
    for job_id in _JOBS:
        fence = load_manifest(job_id, store)
        assert fence is not None
        # Each was claimed once: no machine got it that could not run it.
        assert fence.manifest.epoch == 1
        machine = types[fence.manifest.owner.partition("/")[0]]
        assert _MEMORY[machine] >= _NEEDS[job_id.partition("-")[0]]
    assert [one["result"]["length"] for one in sent.records("large-0")] == [3, 5]
    # Each shape has machines of its own, whatever they are.
    shapes = {one.tags[tag.SHAPE] for one in sent.instances("count")}
    assert shapes == {"c0m0", "c0m4", "c0m32"}
    sql = "SELECT job_id FROM usage WHERE type = 'large'"
    measured = found(lambda: sent.spindown_json("usage", "count", "--sql", sql))
    # Other tests send jobs of this type too.
    assert {row["job_id"] for row in measured} & set(_JOBS) == {
        job_id for job_id in _JOBS if job_id.startswith("large-")
    }


def test_what_is_forbidden_is_a_dead_letter(sent: World) -> None:
    sqs = sent.client("sqs")
    url = sent.session.workload("count").dlq_url

    def letters() -> dict[str, str] | None:
        answer = sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"], VisibilityTimeout=0
        )
        told = {
            one["MessageAttributes"]["job_id"]["StringValue"]: one["MessageAttributes"]["code"][
                "StringValue"
            ]
            for one in answer.get("Messages", [])
        }
        return told if len(told) == 2 else None

    assert found(letters) == {"greedy": "requirement-forbidden", "strange": "type-unknown"}


def test_status_plan_and_submit_know_the_types(sent: World) -> None:
    status = sent.spindown("status", "count")
    plan = sent.spindown("plan", "count")
    refused = sent.spindown("submit", "count", __file__, "--type", "huge")
    taken = sent.spindown("submit", "count", __file__, "--type", "large")

    assert (status.returncode, plan.returncode) == (0, 0)
    assert refused.returncode != 0
    assert taken.returncode == 0, taken.stderr
    found(lambda: "c0m32" in sent.spindown("status", "count").stdout)


def test_a_run_of_a_type_tells_which_pool_was_dry(world: World, tmp_path: Path) -> None:
    (tmp_path / "say.sh").write_text("sleep 4; echo made > outputs/made; exit 3")
    place = ("--config", str(world.directory / "spindown.toml"), "--folder", str(tmp_path))
    asked = ("--type", "small", "--cpu", "2", "--memory", "20")
    done = world.run("run", *place, *asked, "--", "sh", "say.sh")

    assert done.returncode == 3, done.stderr
    (made,) = (tmp_path / "outputs").glob("*/made")
    assert made.read_text() == "made\n"
    (machine,) = {one.instance_id: one for one in world.instances("lab")}.values()
    assert (machine.instance_type, machine.tags[tag.SHAPE]) == (_DRY.type, "c2m32")
    assert machine.zone != _DRY.zone
    # One pool after the other, and what the run was asked for beside what it has used.
    told = done.stderr
    refused = f"{_DRY.type}/{_DRY.zone}/spot refused: {_DRY.code}"
    assert told.index(refused) < told.index(f"{_DRY.type}/{machine.zone}/spot launched 1")
    assert "asked 20 GiB" in done.stdout
