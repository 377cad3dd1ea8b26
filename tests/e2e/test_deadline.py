"""Jobs with a deadline, for real: one waits for spot and is done in time, one goes back to spot."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spindown.domain.offer import CapacityType
from spindown.ec2sim import Ec2Instance, EndReason
from spindown.job.result import read_progress
from spindown.local.market import Scenario
from spindown.local.market.scenario import DryPool
from tests.e2e.world import SWIFT, World, deployed, found
from tests.local.world import at_once, launch

pytestmark = pytest.mark.proof

WITHIN = timedelta(seconds=60)
NOTICE = timedelta(seconds=3)
ITEMS = 40
_CODE = """
import time
from spindown.user import Result

def run(batch, ctx):
    for item in batch:
        time.sleep(0.4)
        yield Result(item, item.value)
"""
#: Says which items it computes, and takes its time over them until it is told to make haste.
_CODE_THAT_TELLS = """
import time
from pathlib import Path
from spindown.user import Result

HERE = Path({here!r})

def run(batch, ctx):
    for item in batch:
        if not (HERE / "haste").exists():
            time.sleep(0.3)
        with (HERE / "computed").open("a") as told:
            told.write(str(item.value) + " ")
        yield Result(item, item.value)
"""
#: Long enough that two machines for a boot pay, also where boots are slow.
MANY_ITEMS = 400
#: One pool alone for each: once that is dry there is no spot. Without `finish_within` the ladder
#: would open after a second, since `start_within` has passed.
_CONFIG = f"""
[deployment]
name = "e2e"
region = "us-east-1"
zones = ["us-east-1a"]

[workload.slow.run]
entrypoint = "slow:run"
code = "slow"
batch_size = 1

[workload.slow.requirements]
instance_types = ["g6.xlarge"]

[workload.slow.policy]
{SWIFT.replace('idle_timeout = "3s"', 'idle_timeout = "20s"')}finish_within = "{WITHIN.seconds}s"
checkpoint_interval = "1s"
commit_margin = "1s"

[workload.back.run]
entrypoint = "back:run"
code = "back"
batch_size = 1

[workload.back.requirements]
instance_types = ["g5.xlarge"]

[workload.back.policy]
{SWIFT.replace("max_workers = 1", "max_workers = 2")}finish_within = "1h"
pool_cooldown = "1s"
pool_cooldown_at_most = "2s"
checkpoint_interval = "1s"
commit_margin = "1s"
"""


def a_market() -> Scenario:
    """Return a market that has one g5.xlarge as spot, at a twentieth of its price."""
    usual = at_once()
    cheap = usual.type["g5.xlarge"].model_copy(update={"spot": {"us-east-1a": 0.05}})
    one = DryPool(type="g5.xlarge", capacity_type=CapacityType.SPOT, capacity=1)
    return usual.model_copy(update={"type": {**usual.type, "g5.xlarge": cheap}, "dry": (one,)})


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("deadline")
    (directory / "slow").mkdir()
    (directory / "slow" / "slow.py").write_text(_CODE, encoding="utf-8")
    (directory / "back").mkdir()
    code = _CODE_THAT_TELLS.format(here=str(directory))
    (directory / "back" / "back.py").write_text(code, encoding="utf-8")
    path = directory / "spindown.toml"
    path.write_text(_CONFIG, encoding="utf-8")
    with deployed(path, a_market()) as world:
        yield world


def bought(world: World, workload: str, kind: CapacityType) -> list[Ec2Instance]:
    return [one for one in world.instances(workload) if one.capacity_type is kind]


def a_wait_for_spot(world: World) -> Any:
    """Wait until a decision says that the job may wait for spot, and until when."""

    def look() -> Any:
        (told,) = world.spindown_json("why", "slow", "--last", "1")
        deadlines = told["decisions"][0]["deadlines"]
        return next((each for each in deadlines if each["mode"] == "wait-for-spot"), None)

    return found(look)


def test_waits_for_spot_then_finishes_on_demand_in_time(
    world: World,
) -> None:
    # What is not measured is no reason to wait: a small job shows how long an item takes.
    world.send("slow", {"items": [0, 1], "job_id": "first"})
    assert world.finished("first").state == "completed"
    sent_at = datetime.now(UTC)
    world.send("slow", {"items": list(range(ITEMS)), "job_id": "due"})

    store = world.session.work_store("slow")
    found(lambda: read_progress("due", store).items_done > 20)
    (first,) = bought(world, "slow", CapacityType.SPOT)
    world.system.market.interrupt(first.instance_id, notice=NOTICE, dry_for=timedelta(hours=1))

    told = a_wait_for_spot(world)
    assert told["job_id"] == "due"
    assert bought(world, "slow", CapacityType.ON_DEMAND) == []
    done = world.finished("due")
    took = datetime.now(UTC) - sent_at

    assert (done.state, done.interruptions, took < WITHIN) == ("completed", 1, True)
    assert [record["item"] for record in world.records("due")] == list(range(ITEMS))
    (spot,), (last,) = (bought(world, "slow", kind) for kind in CapacityType)
    assert (spot.reason, spot.launched_at < sent_at) == (EndReason.RECLAIMED, True)
    # What is known of boots may have changed since, and with it what is held back for them.
    waits_until = datetime.fromisoformat(told["waits_until"])
    assert last.launched_at - waits_until > timedelta(seconds=-10)
    assert world.session.status("slow").troubles == ()


def test_a_job_on_demand_goes_back_to_spot_when_there_is_some(world: World) -> None:
    others = launch(world.system, "g5.xlarge")
    world.send("back", {"items": list(range(MANY_ITEMS)), "job_id": "back"})
    store = world.session.work_store("back")
    found(lambda: read_progress("back", store).items_done > 5)
    # Nothing is measured yet, so it does not wait for the spot that others have.
    (dear,) = world.instances("back")
    assert dear.capacity_type is CapacityType.ON_DEMAND

    world.system.market.terminate(others)
    found(lambda: read_progress("back", store).epoch == 2)
    (cheap,) = bought(world, "back", CapacityType.SPOT)
    (world.directory / "haste").touch()
    done = world.finished("back")

    assert (done.state, done.interruptions, done.losses, done.epoch) == ("completed", 0, 0, 2)
    assert [record["item"] for record in world.records("back")] == list(range(MANY_ITEMS))
    computed = (world.directory / "computed").read_text(encoding="utf-8").split()
    assert [int(each) for each in computed] == list(range(MANY_ITEMS))
    # It ended by itself, and only after the other machine was there; no third one was needed.
    (dear,) = bought(world, "back", CapacityType.ON_DEMAND)
    assert dear.reason is EndReason.POWERED_OFF
    assert dear.ended_at is not None
    assert dear.ended_at > cheap.launched_at
    assert len(world.instances("back")) == 2
    assert world.session.status("back").troubles == ()
