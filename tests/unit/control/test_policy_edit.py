"""The policy in force: deployed, plus a live edit if that is valid."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from spindown.contract import row as rows
from spindown.contract.row import PolicyRow
from spindown.control.policy_edit import (
    differences,
    edit_policy,
    effective_policy,
    policy_text,
    stored_keys,
)
from spindown.domain.policy import JobNeeds, JobType
from spindown.error import ConfigError
from spindown.ledger import Ledger
from spindown.memory.interception import PortCall, intercept
from spindown.port import LiveEdit, SettingsStore
from tests.builders import AT_ONCE, NOW
from tests.control import WORKLOAD, ControlWorld


def an_edit(text: str) -> LiveEdit:
    return LiveEdit(text=text, version=2, edited_at=NOW)


def crossed_by(world: ControlWorld, changes: Mapping[str, object]) -> SettingsStore:
    """Return the settings, in which another edit comes between the next one's read and write."""

    def race(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "put_live" and not raced:
            raced.append(call)
            edit_policy(WORKLOAD, changes, settings=world.settings, table=world.table)
        return proceed()

    raced: list[PortCall] = []
    return intercept(cast("SettingsStore", world.settings), "settings", race)


_SQL = JobType(name="sql", needs=JobNeeds(memory_gib=2.0, disk_gib=10.0))
GOOD = PolicyRow(text='{"max_workers": 7}', version=1)


def test_an_edit_changes_only_its_keys() -> None:
    settings = ControlWorld().workload_settings()

    found = effective_policy(settings, an_edit('{"idle_timeout": "2m"}'), PolicyRow())

    changed = differences(settings.policy, found.policy)
    assert [(d.key, d.in_force) for d in changed] == [("idle_timeout", timedelta(minutes=2))]
    assert (found.version, found.refusal) == (2, "")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"max_workers": -1}', id="a-value-out-of-range"),
        pytest.param('{"max_wrokers": 1}', id="an-unknown-key"),
        pytest.param('{"idle_timeout": 10}', id="a-number-without-unit"),
        pytest.param("[]", id="no-object"),
        pytest.param("{", id="no-json"),
        pytest.param("", id="nothing"),
    ],
)
def test_an_invalid_edit_leaves_the_last_good_one_in_force(text: str) -> None:
    settings = ControlWorld().workload_settings()

    found = effective_policy(settings, an_edit(text), GOOD)

    assert found.policy.max_workers == 7
    assert found.version == 1
    assert found.refusal
    assert found.row.text == GOOD.text


def test_a_lowered_limit_survives_a_deploy_against_it() -> None:
    world = ControlWorld()
    ports = {"settings": world.settings, "table": world.table}
    edit_policy(WORKLOAD, {"max_workers": 1, "max_price_per_hour": 0.3}, **ports)  # type: ignore[arg-type]
    settings, edit = world.settings.workload(WORKLOAD)
    known = effective_policy(settings, edit, PolicyRow()).row
    deployed = replace(settings, policy=replace(settings.policy, warm_workers=2))

    for _ in range(2):
        found = effective_policy(deployed, edit, known)
        assert found.refusal
        assert (found.policy.max_workers, found.policy.max_price_per_hour) == (1, 0.3)
        known = found.row


def test_a_deploy_that_lowers_limits_is_heard_beside_an_edit() -> None:
    world = ControlWorld()
    edit_policy(WORKLOAD, {"warm_workers": 2}, settings=world.settings, table=world.table)
    settings, edit = world.settings.workload(WORKLOAD)
    known = effective_policy(settings, edit, PolicyRow()).row
    lowered = replace(settings.policy, max_workers=1, max_dollars_per_hour=0.25)

    found = effective_policy(replace(settings, policy=lowered), edit, known)

    assert found.refusal
    in_force = found.policy
    assert (in_force.max_workers, in_force.warm_workers) == (1, 1)
    assert in_force.max_dollars_per_hour == 0.25
    assert in_force.max_price_per_hour == settings.policy.max_price_per_hour


@pytest.mark.parametrize("between", [{"max_workers": 0}, {"band": 0.1, "max_workers": 2}])
def test_an_edit_that_came_between_is_kept(between: dict[str, object]) -> None:
    world = ControlWorld()
    edit_policy(WORKLOAD, {"idle_timeout": "9m"}, settings=world.settings, table=world.table)

    slow = crossed_by(world, between)
    edit_policy(WORKLOAD, {"idle_timeout": "3m"}, settings=slow, table=world.table)

    _, stored = world.settings.workload(WORKLOAD)
    assert stored is not None
    assert json.loads(stored.text) == {**between, "idle_timeout": "3m"}


def test_an_edit_against_one_that_came_between_changes_nothing() -> None:
    world = ControlWorld()
    drain = {"max_workers": 0, "warm_workers": 0}

    slow = crossed_by(world, drain)
    with pytest.raises(ConfigError, match="warm_workers"):
        edit_policy(WORKLOAD, {"warm_workers": 2}, settings=slow, table=world.table)

    _, stored = world.settings.workload(WORKLOAD)
    assert stored is not None
    assert json.loads(stored.text) == drain


@pytest.mark.parametrize("key", ["max_price_per_hour", "alarm_cost_rise"])
@pytest.mark.parametrize("value", [math.inf, math.nan, NOW.date()])
def test_an_edit_that_json_lacks_is_refused_by_its_key(key: str, value: object) -> None:
    world = ControlWorld()

    with pytest.raises(ConfigError) as caught:
        edit_policy(
            WORKLOAD, {key: value, "max_workers": 2}, settings=world.settings, table=world.table
        )

    assert caught.value.field == key
    assert world.settings.history(WORKLOAD) == ()


SQL = {"name": "sql", "memory_gib": 2.0, "disk_gib": 10.0}


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param({"dispatch": "shared", "shared_slots": 16}, id="a-share-of-the-disk"),
        pytest.param({"types": [{**SQL, "disk_gib": 500}]}, id="more-than-the-disk"),
        pytest.param({"types": [{**SQL, "architectures": ["arm64"]}]}, id="an-architecture"),
        pytest.param({"types": [{**SQL, "name": WORKLOAD}]}, id="the-workload-s-name"),
        pytest.param({"types": []}, id="none-any-more"),
    ],
)
def test_types_that_a_deploy_refuses_are_no_edit(edit: dict[str, Any]) -> None:
    policy = replace(AT_ONCE, types=(_SQL,), max_workers=5)
    world = ControlWorld(policy=policy)
    settings = world.workload_settings()

    with pytest.raises(ConfigError, match="types"):
        edit_policy(WORKLOAD, edit, settings=world.settings, table=world.table)
    found = effective_policy(settings, an_edit(json.dumps(edit)), GOOD)

    assert (found.policy.types, found.policy.max_workers) == ((_SQL,), 7)
    assert found.refusal


def test_types_that_a_deploy_left_no_disk_are_those_deployed() -> None:
    good = replace(AT_ONCE, types=(_SQL,), max_workers=2)
    row = PolicyRow(text=json.dumps({"types": [SQL]}), good=policy_text(good), version=1)
    deployed = ControlWorld(policy=replace(AT_ONCE, types=(JobType(name="ocr"),)))
    settings = deployed.workload_settings()
    smaller = replace(settings, run=replace(settings.run, root_volume_gib=8))

    found = effective_policy(smaller, an_edit(row.text), row)

    assert [each.name for each in found.policy.types] == ["ocr"]
    assert found.policy.max_workers == 2


def test_an_edit_longer_than_a_parameter_changes_nothing() -> None:
    world = ControlWorld(policy=replace(AT_ONCE, types=(JobType(name="ocr"),)))
    types = [{"name": f"type-{number}", "memory_gib": 4} for number in range(250)]

    edit_policy(WORKLOAD, {"types": types[:150]}, settings=world.settings, table=world.table)
    with pytest.raises(ConfigError, match=r"edit of 8,.*at most 8,192 bytes"):
        edit_policy(WORKLOAD, {"types": types}, settings=world.settings, table=world.table)

    settings, edit = world.settings.workload(WORKLOAD)
    assert len(effective_policy(settings, edit, PolicyRow()).policy.types) == 150


def test_an_invalid_first_edit_leaves_the_deployed_policy() -> None:
    settings = ControlWorld().workload_settings()

    assert effective_policy(settings, an_edit("{"), PolicyRow()).policy == settings.policy


def test_taking_the_edit_back_restores_the_deployed_policy() -> None:
    settings = ControlWorld().workload_settings()

    found = effective_policy(settings, None, GOOD)

    assert found.policy == settings.policy
    assert found.row.text == ""


def test_an_edit_adds_to_the_one_before_and_gives_keys_back() -> None:
    world = ControlWorld()
    ports = {"settings": world.settings, "table": world.table}
    edit_policy(WORKLOAD, {"max_workers": 7, "idle_timeout": "2m"}, **ports)  # type: ignore[arg-type]

    edit_policy(WORKLOAD, {"band": 0.1}, clear=["max_workers"], **ports)  # type: ignore[arg-type]

    settings, edit = world.settings.workload(WORKLOAD)
    found = effective_policy(settings, edit, PolicyRow())
    assert {d.key for d in differences(settings.policy, found.policy)} == {"idle_timeout", "band"}
    assert len(world.settings.history(WORKLOAD)) == 2


def test_a_refused_edit_stores_nothing() -> None:
    world = ControlWorld()

    with pytest.raises(ConfigError, match="max_workers"):
        edit_policy(WORKLOAD, {"max_workers": -1}, settings=world.settings, table=world.table)

    assert world.settings.workload(WORKLOAD)[1] is None


def test_an_edit_against_the_one_before_takes_nothing_back() -> None:
    world = ControlWorld()
    ports = {"settings": world.settings, "table": world.table}
    edit_policy(WORKLOAD, {"start_within": "8h"}, **ports)  # type: ignore[arg-type]

    with pytest.raises(ConfigError, match="finish_within"):
        edit_policy(WORKLOAD, {"finish_within": "6h"}, **ports)  # type: ignore[arg-type]

    _, stored = world.settings.workload(WORKLOAD)
    assert stored is not None
    assert json.loads(stored.text) == {"start_within": "8h"}


def test_a_remedy_replaces_an_edit_that_cannot_be_read() -> None:
    world = ControlWorld()
    world.settings.put_live(WORKLOAD, "{")

    edit_policy(WORKLOAD, {"max_workers": 3}, settings=world.settings, table=world.table)

    settings, edit = world.settings.workload(WORKLOAD)
    assert effective_policy(settings, edit, PolicyRow()).policy.max_workers == 3


@pytest.mark.parametrize(
    ("broken", "changes", "clear", "edit"),
    [
        pytest.param(
            '{"band": 0.2, "max_workers": "many"}',
            {"max_workers": 3},
            [],
            {"band": 0.2, "max_workers": 3},
            id="the change fixes it",
        ),
        pytest.param(
            '{"band": 0.2, "max_wrokers": 3}',
            {},
            ["max_wrokers"],
            {"band": 0.2},
            id="the key that does not exist is given back",
        ),
        pytest.param(
            '{"max_workers": "many"}',
            {"band": 0.2},
            [],
            {"max_workers": 7, "band": 0.2},
            id="the change is of another key",
        ),
        pytest.param(
            "{", {"band": 0.2}, [], {"max_workers": 7, "band": 0.2}, id="it cannot be read"
        ),
        pytest.param(
            '{"max_wrokers": 3}', {}, ["max_workers"], None, id="the good one is given back"
        ),
    ],
)
def test_a_change_to_a_broken_edit_fixes_it_or_starts_in_force(
    broken: str, changes: dict[str, object], clear: list[str], edit: dict[str, object] | None
) -> None:
    world = ControlWorld()
    ledger = Ledger(world.table, WORKLOAD)
    ledger.write(ledger.put(rows.POLICY, GOOD))
    world.settings.put_live(WORKLOAD, broken)

    edit_policy(WORKLOAD, changes, clear=clear, settings=world.settings, table=world.table)

    _, stored = world.settings.workload(WORKLOAD)
    assert (json.loads(stored.text) if stored else None) == edit


@pytest.mark.parametrize(
    ("edit", "keys"),
    [
        (None, set()),
        (an_edit("{"), set()),
        (an_edit('{"max_wrokers": 1, "band": 0.1}'), {"max_wrokers", "band"}),
    ],
    ids=["no edit", "an unreadable one", "an unknown key"],
)
def test_the_keys_of_an_edit_are_those_that_can_be_given_back(
    edit: LiveEdit | None, keys: set[str]
) -> None:
    assert stored_keys(edit) == keys


def test_giving_the_last_key_back_deletes_the_edit() -> None:
    world = ControlWorld()
    edit_policy(WORKLOAD, {"max_workers": 3}, settings=world.settings, table=world.table)
    edit_policy(WORKLOAD, {}, clear=["max_workers"], settings=world.settings, table=world.table)

    settings, edit = world.settings.workload(WORKLOAD)
    assert edit is None
    assert effective_policy(settings, edit, PolicyRow()).policy == AT_ONCE


def test_a_region_that_is_none_of_the_deployment_s_is_refused() -> None:
    world = ControlWorld(away=(("g4dn.xlarge", 0.1),))

    with pytest.raises(ConfigError, match=r"us-west-1.*eu-west-1, us-west-2"):
        edit_policy(
            WORKLOAD, {"regions": ["us-west-1"]}, settings=world.settings, table=world.table
        )

    found = edit_policy(
        WORKLOAD, {"regions": ["eu-west-1"]}, settings=world.settings, table=world.table
    )
    assert found.policy.regions == frozenset({"eu-west-1"})


@pytest.mark.parametrize("changes", [{"max_workers": 0}, {"idle_timeout": "2m"}])
def test_a_region_that_a_deploy_removed_holds_up_no_edit(changes: dict[str, object]) -> None:
    world = ControlWorld(away=(("g4dn.xlarge", 0.1),))
    ports = {"settings": world.settings, "table": world.table}
    edit_policy(WORKLOAD, {"regions": ["eu-west-1"]}, **ports)  # type: ignore[arg-type]
    world.settings.deploy(ControlWorld().workload_settings())

    edit_policy(WORKLOAD, changes, **ports)  # type: ignore[arg-type]

    _, stored = world.settings.workload(WORKLOAD)
    assert stored is not None
    assert json.loads(stored.text) == {"regions": ["eu-west-1"], **changes}


def test_types_that_a_deploy_removed_hold_up_no_edit() -> None:
    world = ControlWorld(policy=replace(AT_ONCE, types=(_SQL,)))
    ports = {"settings": world.settings, "table": world.table}
    edit = {"types": [SQL], "max_price_per_hour": 0.3, "max_workers": 4, "idle_timeout": "2m"}
    edit_policy(WORKLOAD, edit, **ports)  # type: ignore[arg-type]
    ledger = Ledger(world.table, WORKLOAD)
    ledger.write(ledger.put(rows.POLICY, PolicyRow(text=json.dumps(edit), version=1)))
    world.settings.deploy(ControlWorld().workload_settings())

    edit_policy(WORKLOAD, {"warm_workers": 0, "max_workers": 0}, **ports)  # type: ignore[arg-type]

    settings, stored = world.settings.workload(WORKLOAD)
    assert stored is not None
    assert json.loads(stored.text) == {
        "max_price_per_hour": 0.3,
        "max_workers": 0,
        "warm_workers": 0,
    }
    assert effective_policy(settings, stored, PolicyRow()).policy.max_workers == 0
