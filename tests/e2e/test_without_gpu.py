"""Work that needs no GPU, on a system in the background: bought, done, learned, told of."""

from collections.abc import Iterator

import pytest

from spindown.error import BadInput
from spindown.local import daemon
from spindown.local.status import SystemStatus
from tests.e2e.world import Deployed, found, in_background, write_deployment
from tests.local.waiting import is_quiet

pytestmark = pytest.mark.proof

_NO_GPU = """
[workload.count.requirements]
gpu_count_min = 0
vcpus_min = 4
"""


@pytest.fixture(scope="module")
def background(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Deployed, SystemStatus]]:
    path = write_deployment(tmp_path_factory.mktemp("cpu"), "count")
    path.write_text(path.read_text(encoding="utf-8") + _NO_GPU, encoding="utf-8")
    with in_background(path) as background:
        yield background


@pytest.fixture
def world(background: tuple[Deployed, SystemStatus]) -> Deployed:
    return background[0]


def now(world: Deployed) -> SystemStatus:
    told = daemon.status(world.directory / ".spindown")
    assert told is not None
    return told


def test_up_tells_what_it_deployed_and_status_what_runs(
    background: tuple[Deployed, SystemStatus],
) -> None:
    world, up = background
    assert up.functions == ("e2e--interruption", "e2e--offers", "e2e--scaler", "e2e--teardown")
    assert {"e2e--count", "e2e--count--dlq"} <= {queue.name for queue in up.queues}

    earlier = {one.instance_id for one in now(world).instances}
    found(lambda: is_quiet(world.session.status("count")))
    world.send("count", {"items": ["a"], "job_id": "seen"})
    found(lambda: {one.instance_id for one in now(world).instances} - earlier)
    assert now(world).pid == up.pid
    assert daemon.exports(world.directory / ".spindown").startswith("export AWS_CONFIG_FILE=")
    assert world.finished("seen").state == "completed"


def test_a_job_is_done_on_a_machine_without_a_gpu(world: Deployed) -> None:
    world.send("count", {"items": ["one", "three"], "job_id": "words"})

    assert world.finished("words").state == "completed"
    found(lambda: is_quiet(world.session.status("count")))

    # Another test changes the code, and may come first.
    assert [[*one["result"].values()] for one in world.records("words")] == [[3], [5]]
    # c7g is arm64, which the workload does not allow.
    types = {instance.instance_type for instance in now(world).instances}
    assert types <= {"c7i.xlarge", "m7a.2xlarge"}
    rates = world.session.ledger("count").read().rates
    learned = {sort for sort in rates if sort.startswith("rate#throughput#")}
    assert learned
    assert learned <= {"rate#throughput#c7i vCPU#4", "rate#throughput#m7a vCPU#8"}


def test_plan_and_doctor_know_such_machines(world: Deployed) -> None:
    plan = world.spindown("plan", "count").stdout
    doctor = world.spindown("doctor").stdout

    assert "c7i.xlarge/us-east-1a/spot" in plan
    assert "g4dn" not in plan
    assert "Standard/Spot" in doctor
    assert "G/Spot" not in doctor
    assert "rehearsal of count: EC2 would launch" in doctor


def test_a_second_up_brings_changed_code_and_keeps_results(
    background: tuple[Deployed, SystemStatus],
) -> None:
    world, up = background
    path, state = world.directory / "spindown.toml", world.directory / ".spindown"
    with pytest.raises(BadInput) as refused:
        daemon.start(path, scenario="demo", state=state)
    world.send("count", {"items": ["abc"], "job_id": "before"})
    assert world.finished("before").state == "completed"
    steps: list[str] = []
    daemon.start(path, state=state, tell=steps.append)
    unchanged = len(steps)

    code = world.directory / "count" / "count.py"
    text = code.read_text(encoding="utf-8")
    code.write_text(text.replace('"length"', '"signs"'), encoding="utf-8")
    again = daemon.start(path, state=state, tell=steps.append)
    world.send("count", {"items": ["abcd"], "job_id": "after"})

    assert world.finished("after").state == "completed"
    assert refused.value.field == "--scenario"
    assert (again.pid, unchanged) == (up.pid, 1)
    assert len(steps) > 2
    assert [one["result"]["signs"] for one in world.records("after")] == [4]
    assert [one["result"]["length"] for one in world.records("before")] == [3]
    assert "count" in daemon.with_jobs(state)
