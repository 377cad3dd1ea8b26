"""Two regions: launched abroad while home is dry, interrupted there, billed there, done at home."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from spindown.contract import tag
from spindown.ec2sim import EndReason
from tests.e2e.region import AWAY, HOME, dry_at_home, write_deployment
from tests.e2e.world import World, deployed, found
from tests.local.waiting import is_quiet

pytestmark = pytest.mark.proof
ITEMS = 60


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("regions")
    with deployed(write_deployment(directory), dry_at_home()) as world:
        yield world


def rows(world: World) -> dict[str, Any]:
    view = world.session.ledger("slow").read()
    return {**world.session.ledger("slow").read_ended(), **view.workers}


def test_a_job_survives_an_interruption_in_another_region(world: World) -> None:
    world.send("slow", {"items": list(range(ITEMS)), "job_id": "abroad"})

    first = world.worker_at_work("slow")
    assert first.region == AWAY
    assert first.tags[tag.REGION] == HOME
    progress = world.session.work_store("slow")
    found(lambda: len(list(progress.list("jobs/abroad/parts/"))) > 2)
    world.system.market.interrupt(first.instance_id, notice=timedelta(seconds=4))

    second = world.worker_at_work("slow", first.instance_id)
    assert world.finished("abroad").state == "completed"

    assert second.region == AWAY
    # The event of the other region's bus came before the instance went.
    lost = rows(world)[first.instance_id]
    assert lost.interrupted_at is not None
    assert lost.region == AWAY
    assert [r["item"] for r in world.records("abroad")] == list(range(ITEMS))
    reasons = {one.instance_id: one.reason for one in world.instances("slow")}
    assert reasons[first.instance_id] is EndReason.RECLAIMED
    check_bill(world, first.instance_id)


def check_bill(world: World, lost: str) -> None:
    """Let all end; compare what the ledger was charged with what the market would bill."""
    found(lambda: is_quiet(world.session.status("slow")))
    lines = {line.instance_id: line for line in world.system.market.bill()}
    assert lines[lost].is_free
    for instance in world.instances("slow"):
        worker, line = rows(world)[instance.instance_id], lines[instance.instance_id]
        assert (worker.region, worker.zone) == (AWAY, instance.zone)
        assert line.is_free or line.dollars > 0.0
        # The root volume and the address come on top, as at home.
        assert 0.0 < worker.price_per_hour - instance.price_per_hour < 0.05


def test_a_plan_ranks_both_regions_with_their_transfer_cost(world: World) -> None:
    told = world.spindown_json("plan", "slow", "--backlog", "3")

    by_region: dict[str, list[Any]] = {}
    for candidate in told["candidates"]:
        by_region.setdefault(candidate["offer"]["region"], []).append(candidate)
    assert by_region.keys() == {HOME, AWAY}
    assert {c["parts"]["transfer"] for c in by_region[HOME]} == {0.0}
    assert min(c["parts"]["transfer"] for c in by_region[AWAY]) > 0.0
    costs = [c["cost_per_item"] for c in told["candidates"]]
    assert costs == sorted(costs)
