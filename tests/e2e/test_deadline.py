"""A job with a deadline, for real: it loses its spot, waits for spot, and is done in time."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spindown.app.batch.result import read_progress
from spindown.domain.offer import CapacityType
from spindown.local.market import MarketInstance
from spindown.local.market.instance import Reason
from tests.e2e.world import SWIFT, World, deployed, found
from tests.local.world import at_once

pytestmark = [pytest.mark.proof, pytest.mark.xdist_group("e2e")]

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
#: One pool alone: once that is dry there is no spot. Without `finish_within` the ladder would open
#: after a second, since `start_within` has passed.
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
"""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("deadline")
    (directory / "slow").mkdir()
    (directory / "slow" / "slow.py").write_text(_CODE, encoding="utf-8")
    path = directory / "spindown.toml"
    path.write_text(_CONFIG, encoding="utf-8")
    with deployed(path, at_once()) as world:
        yield world


def bought(world: World, kind: CapacityType) -> list[MarketInstance]:
    return [one for one in world.instances("slow") if one.capacity_type is kind]


def a_wait_for_spot(world: World) -> Any:
    """Wait until a decision says that the job may wait for spot, and until when."""

    def look() -> Any:
        (told,) = world.spindown_json("why", "slow", "--last", "1")
        deadlines = told["decisions"][0]["deadlines"]
        return next((each for each in deadlines if each["course"] == "wait for spot"), None)

    return found(look)


def test_a_job_waits_for_spot_as_long_as_it_can_and_is_done_on_demand_in_time(
    world: World,
) -> None:
    # What is not measured is no reason to wait: a small job shows how long an item takes.
    world.send("slow", {"items": [0, 1], "job_id": "first"})
    assert world.finished("first").state == "completed"
    sent_at = datetime.now(UTC)
    world.send("slow", {"items": list(range(ITEMS)), "job_id": "due"})

    store = world.session.work_store("slow")
    found(lambda: read_progress("due", store).items_done > 20)
    (first,) = bought(world, CapacityType.SPOT)
    world.system.market.interrupt(first.instance_id, notice=NOTICE, dry_for=timedelta(hours=1))

    told = a_wait_for_spot(world)
    assert told["job_id"] == "due"
    assert bought(world, CapacityType.ON_DEMAND) == []
    done = world.finished("due")
    took = datetime.now(UTC) - sent_at

    assert (done.state, done.interruptions, took < WITHIN) == ("completed", 1, True)
    assert [record["item"] for record in world.records("due")] == list(range(ITEMS))
    (spot,), (last,) = (bought(world, kind) for kind in CapacityType)
    assert (spot.reason, spot.launched_at < sent_at) == (Reason.RECLAIMED, True)
    # What is known of boots may have changed since, and with it what is held back for them.
    waits_until = datetime.fromisoformat(told["waits_until"])
    assert last.launched_at - waits_until > timedelta(seconds=-10)
    assert world.session.status("slow").troubles == ()
