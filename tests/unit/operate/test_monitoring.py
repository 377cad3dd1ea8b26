"""Whether ticks come and people hear of trouble, long after the deploy."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.contract.settings import RegionSettings
from spindown.error import AccessDenied, SpindownError, Unreachable
from spindown.operate.doctor.finding import Severity
from tests.builders import NOW
from tests.unit.operate.examined import (
    ADA,
    REGION,
    SPARE_TICK,
    TEMPLATE,
    TOPIC,
    WELL,
    Examined,
    a_config,
)

AWAY = RegionSettings(subnets={"eu-west-1a": "subnet-e"}, templates={"x86_64": TEMPLATE})
TICK = "demo--classify--tick"
ALARM = "demo--classify--tick-missing"


def told_by(email: str) -> Examined:
    config = a_config()
    config["deployment"]["alarm_email"] = email
    return Examined(config=config)


def test_what_is_well_is_told_in_a_line_each() -> None:
    world = Examined()

    for what in ("schedules", "spare ticks", f"alarms in {REGION}", f"topic {TOPIC}"):
        assert world.severity(what) is Severity.GOOD


def test_before_a_deploy_nothing_is_asked() -> None:
    what = [one.what for one in Examined(is_deployed=False).report().findings]

    assert not [one for one in what if "schedule" in one or "alarm" in one]


@pytest.mark.parametrize("is_there", [True, False], ids=["off", "gone"])
def test_ticks_that_come_by_no_way_block(*, is_there: bool) -> None:
    world = Examined()
    if is_there:
        world.account.schedules[REGION, TICK] = False
    else:
        del world.account.schedules[REGION, TICK]

    assert world.severity(f"schedule {TICK}") is Severity.WARNING
    world.account.rules[REGION, SPARE_TICK] = False
    assert world.severity(f"schedule {TICK}") is Severity.BLOCKED


def test_a_refresh_that_never_comes_is_a_warning() -> None:
    world = Examined()
    world.account.schedules[REGION, "demo--offers"] = False

    assert world.severity("schedule demo--offers") is Severity.WARNING


@pytest.mark.parametrize("is_there", [True, False], ids=["off", "gone"])
def test_a_spare_tick_that_never_comes_is_a_warning(*, is_there: bool) -> None:
    world = Examined()
    if is_there:
        world.account.rules[REGION, SPARE_TICK] = False
    else:
        del world.account.rules[REGION, SPARE_TICK]

    assert world.severity(f"rule {SPARE_TICK}") is Severity.WARNING


@pytest.mark.parametrize("method", ["is_scheduled", "is_rule_on", "alarms", "subscribers"])
@pytest.mark.parametrize(
    ("error", "asks_for_right"),
    [(AccessDenied("not granted"), True), (Unreachable("no answer"), False)],
)
def test_what_cannot_be_seen_blocks_nothing(
    method: str, error: SpindownError, *, asks_for_right: bool
) -> None:
    world = Examined()
    world.account.faults[method] = error

    report = world.report()

    assert report.can_launch
    told = [one.remedy for one in report.findings if str(error) in one.found]
    assert told
    assert all(one.startswith("grant ") is asks_for_right for one in told)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"acts": False}, "enable-alarm-actions"),
        ({"state": "INSUFFICIENT_DATA"}, "spindown deploy"),
    ],
    ids=["turned off", "blind"],
)
def test_an_alarm_that_cannot_ring_is_named(changes: dict[str, Any], words: str) -> None:
    world = Examined()
    world.account.alarm_views[REGION, ALARM] = replace(WELL, **changes)

    found = world.finding("alarms")

    assert found.severity is Severity.WARNING
    assert ALARM in found.found
    assert words in found.remedy


def test_a_new_alarm_has_time_to_find_data() -> None:
    world = Examined()
    new = replace(WELL, state="INSUFFICIENT_DATA", since=NOW - timedelta(hours=2))
    world.account.alarm_views[REGION, ALARM] = new

    assert world.severity("alarms") is Severity.GOOD


def test_an_alarm_that_somebody_deleted_is_named() -> None:
    world = Examined()
    del world.account.alarm_views[REGION, ALARM]

    assert ALARM in world.finding("alarms").found


@pytest.mark.parametrize(
    "subscribers",
    [(replace(ADA, is_confirmed=False),), (), (replace(ADA, endpoint="eve@example.com"),)],
    ids=["pending", "lapsed", "another's"],
)
def test_an_address_that_gets_no_mail_is_told(subscribers: tuple[Any, ...]) -> None:
    world = told_by("ada@example.com")
    world.account.topics[TOPIC] = subscribers

    found = world.finding(f"topic {TOPIC}")

    assert found.severity is Severity.WARNING
    assert f"--topic-arn {TOPIC}" in found.remedy
    assert "ada@example.com" in found.remedy


def test_an_address_that_has_confirmed_is_well() -> None:
    assert told_by("ada@example.com").severity(f"topic {TOPIC}") is Severity.GOOD


def test_a_deployment_that_tells_nobody_says_so() -> None:
    world = Examined()
    world.account.topics[TOPIC] = ()

    assert "alarm_email" in world.finding(f"topic {TOPIC}").remedy


def test_each_further_region_has_an_address_to_confirm() -> None:
    world = told_by("ada@example.com")
    there = TOPIC.replace(REGION, "eu-west-1")
    settings, _ = world.settings.workload("classify")
    world.settings.deploy(replace(settings, regions={**settings.regions, "eu-west-1": AWAY}))
    world.account.topics[there] = (replace(ADA, is_confirmed=False),)

    found = world.finding(f"topic {there}")

    assert found.severity is Severity.WARNING
    assert "--region eu-west-1" in found.remedy


def test_an_alarm_s_name_is_quoted_in_a_command() -> None:
    world = Examined()
    name = f"{ALARM}$(touch x); echo"
    world.account.alarm_views[REGION, name] = replace(WELL, acts=False)

    assert world.finding("alarms").remedy.endswith(f" --alarm-names '{name}'")
