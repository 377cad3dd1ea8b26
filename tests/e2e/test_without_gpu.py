"""Work that needs no GPU, deployed and run for real: bought, done, learned, told of."""

from collections.abc import Iterator

import pytest

from tests.e2e.world import World, deployed, found, write_deployment
from tests.local.waiting import is_quiet

pytestmark = pytest.mark.proof

_NO_GPU = """
[workload.count.requirements]
gpu_count_min = 0
vcpus_min = 4
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    path = write_deployment(tmp_path_factory.mktemp("cpu"), "count")
    path.write_text(path.read_text(encoding="utf-8") + _NO_GPU, encoding="utf-8")
    with deployed(path) as world:
        yield world


def test_a_job_is_done_on_a_machine_without_a_gpu(world: World) -> None:
    world.send("count", {"items": ["one", "three"], "job_id": "words"})

    assert world.finished("words").state == "completed"
    found(lambda: is_quiet(world.session.status("count")))

    assert [one["result"]["length"] for one in world.records("words")] == [3, 5]
    # c7g is arm64, which the workload does not allow.
    types = {instance.instance_type for instance in world.instances("count")}
    assert types <= {"c7i.xlarge", "m7a.2xlarge"}
    rates = world.session.ledger("count").read().rates
    (learned,) = (sort for sort in rates if sort.startswith("rate#throughput#"))
    assert learned in {"rate#throughput#c7i vCPU#4", "rate#throughput#m7a vCPU#8"}


def test_plan_and_doctor_know_such_machines(world: World) -> None:
    plan = world.spindown("plan", "count").stdout
    doctor = world.spindown("doctor").stdout

    assert "c7i.xlarge/us-east-1a/spot" in plan
    assert "g4dn" not in plan
    assert "Standard/Spot" in doctor
    assert "G/Spot" not in doctor
    assert "rehearsal of count: EC2 would launch" in doctor
