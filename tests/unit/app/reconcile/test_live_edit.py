"""What is edited or deployed while the system runs is in force at the next tick."""

from dataclasses import replace
from datetime import timedelta

from spindown.app.policy import edit_policy
from spindown.contract import row as rows
from spindown.contract.settings import RunSettings
from tests.builders import minutes
from tests.control import WORKLOAD, ControlWorld, with_policy


def test_a_live_edit_is_in_force_at_the_very_next_tick() -> None:
    world = with_policy(max_workers=1, drain_within=minutes(10))
    world.send(100)
    world.tick()

    edit_policy(WORKLOAD, {"max_workers": 3}, settings=world.settings, table=world.table)
    decision = world.tick(timedelta(seconds=5))

    assert decision.policy_version == 1
    assert len(world.workers()) == 3


def test_an_invalid_edit_leaves_the_last_good_one_in_force_and_is_said() -> None:
    world = with_policy(max_workers=1, drain_within=minutes(10))
    edit_policy(WORKLOAD, {"max_workers": 2}, settings=world.settings, table=world.table)
    world.tick()
    world.settings.put_live(WORKLOAD, '{"max_workers": "many"}')
    world.send(100)

    decision = world.tick(minutes(6))

    assert "max_workers" in decision.policy_refusal
    assert decision.policy_version == 1
    assert world.metric("PolicyInvalid") == 1
    assert len(world.workers()) == 2
    assert world.view().policy.refused_version == 2


def test_tells_workers_which_code_is_deployed() -> None:
    world = ControlWorld()

    world.tick()
    first = (world.row(rows.POLICY) or {})["code_digest"]
    world.settings.deploy(replace(world.workload_settings(), run=RunSettings(code_digest="new")))
    world.run(6)

    assert (first, (world.row(rows.POLICY) or {})["code_digest"]) == ("abc", "new")
