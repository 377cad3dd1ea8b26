"""A deployment of two regions goes: what runs abroad ends before what it stands on."""

from pathlib import Path

import pytest

from spindown.ec2sim import EndReason, InstanceState
from spindown.local.system import LocalSystem
from tests.e2e.region import AWAY, HOME, dry_at_home, write_deployment
from tests.e2e.world import deployed

pytestmark = pytest.mark.proof


def stacks(system: LocalSystem, region: str) -> set[str]:
    listed = system.client("cloudformation", region).list_stacks()["StackSummaries"]
    return {one["StackName"] for one in listed if one["StackStatus"] != "DELETE_COMPLETE"}


def test_nothing_runs_in_any_region_once_the_deployment_is_gone(tmp_path: Path) -> None:
    with deployed(write_deployment(tmp_path), dry_at_home()) as world:
        system = world.system
        assert stacks(system, AWAY) == {f"e2e-outpost-{AWAY}"}
        world.send("slow", {"items": list(range(1000)), "job_id": "endless"})
        running = world.worker_at_work("slow")

        system.destroy()

        assert stacks(system, HOME) | stacks(system, AWAY) == set()
        ended = {one.instance_id: one for one in system.market.instances()}
        assert {one.state for one in ended.values()} == {InstanceState.TERMINATED}
        assert ended[running.instance_id].reason is EndReason.TERMINATED_BY_CALL
