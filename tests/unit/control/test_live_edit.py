"""What is edited or deployed while the system runs is in force at the next tick."""

from contextlib import suppress
from dataclasses import fields, replace
from datetime import timedelta

import pytest

from spindown.config import merge_policy
from spindown.contract import row as rows
from spindown.contract.settings import RunSettings
from spindown.control.policy_edit import edit_policy
from spindown.domain.policy import Policy
from spindown.error import ConfigError
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


#: Of whatever form a key has, the least and the most that it may be.
_ENDS = ("0s", "1ms", "3650d", 0, 1, 10**9, 0.01, 1e9)


@pytest.mark.parametrize("key", [field.name for field in fields(Policy)])
def test_no_edit_that_is_taken_keeps_the_tick_from_its_work(key: str) -> None:
    for end in _ENDS:
        with suppress(ConfigError):
            world = ControlWorld(policy=merge_policy(Policy(), {key: end}))
            world.send(3)
            world.tick()
            for worker in world.workers()[:1]:
                world.check_in(worker.instance_id)
            world.run(3, beats=True)
            world.run(14)


def test_an_invalid_edit_keeps_the_last_good_one_and_is_said() -> None:
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


def test_tells_workers_which_code_is_deployed() -> None:
    world = ControlWorld()

    world.tick()
    first = (world.row(rows.POLICY) or {})["code_digest"]
    run = RunSettings(code_digest="new", code_version="v2")
    world.settings.deploy(replace(world.workload_settings(), run=run))
    world.run(6)

    row = world.row(rows.POLICY) or {}
    assert (first, row["code_digest"], row["code_version"]) == ("abc", "new", "v2")
