"""Events: the real ones are read, everything else is refused with a reason."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.contract.event import (
    ALARM,
    InterruptionWarning,
    Leaving,
    RebalanceRecommendation,
    StackChange,
    StateChange,
    WakeUp,
    parse_instance_event,
    parse_stack_event,
    parse_wake_up,
)
from spindown.contract.name import queue_name
from spindown.error import ContractError

EVENTS = Path(__file__).parents[2] / "events"
AT = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
INSTANCE: dict[str, Any] = {"instance_id": "i-0123456789abcdef0", "region": "us-west-2", "at": AT}


def load(name: str) -> Any:
    return json.loads((EVENTS / f"{name}.json").read_text())


@pytest.mark.parametrize(
    ("name", "wake_up"),
    [
        ("tick", WakeUp(source="spindown.tick", workload="classify")),
        ("nudge", WakeUp(source="spindown.nudge", workload="classify")),
        ("queue_alarm", WakeUp(source=ALARM, workload="classify")),
    ],
)
def test_reads_what_wakes_the_scaler(name: str, wake_up: WakeUp) -> None:
    assert parse_wake_up(load(name), deployment="demo") == wake_up


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01"])
def test_an_event_of_no_plausible_time_is_refused(time: str) -> None:
    with pytest.raises(ContractError):
        parse_instance_event({**load("instance_state_change"), "time": time})


def test_reads_that_a_deployment_goes() -> None:
    event = parse_stack_event(load("stack_delete"))

    assert event.change is StackChange.DELETE
    assert event.answer_to.startswith("https://cloudformation-custom-resource-response.")
    assert event.leaving == Leaving(
        deployment="demo",
        home="us-west-2",
        regions=("us-west-2",),
        workloads=("classify",),
        is_whole=True,
        table="demo--ledger",
    )
    assert event.stands_for == "fleet"


@pytest.mark.parametrize(
    ("change", "before", "leaving"),
    [
        ("Update", ["subnet-a", "subnet-b"], ("subnet-b",)),
        ("Update", ["subnet-a"], ()),
        ("Create", None, ()),
        # The fleet ends with the stack, and has a resource of its own.
        ("Delete", None, ()),
    ],
)
def test_of_the_subnets_those_go_that_an_update_leaves_out(
    change: str, before: list[str] | None, leaving: tuple[str, ...]
) -> None:
    event = load("stack_delete")
    new = {
        **event["ResourceProperties"],
        "Subnets": ["subnet-a"],
        "Region": "us-west-2",
        "Staying": ["classify"],
    }
    old = {} if before is None else {"OldResourceProperties": {**new, "Subnets": before}}

    found = parse_stack_event({**event, "RequestType": change, "ResourceProperties": new, **old})

    assert found.stands_for == "subnets"
    assert found.leaving == Leaving(
        deployment="demo",
        home="us-west-2",
        regions=("us-west-2",),
        workloads=(),
        is_whole=False,
        table="demo--ledger",
        subnets=leaving,
        staying=("classify",),
    )


def test_of_an_update_only_the_workloads_go_that_are_left_out() -> None:
    event = load("stack_delete")
    before = {**event["ResourceProperties"], "Workloads": ["classify", "ocr"]}

    update = {**event, "RequestType": "Update", "OldResourceProperties": before}
    leaving = parse_stack_event(update).leaving

    assert (leaving.workloads, leaving.is_whole) == (("ocr",), False)


@pytest.mark.parametrize(
    "change",
    [
        {"RequestType": "Destroy"},
        {"ResponseURL": ""},
        {"ResourceProperties": {}},
        {"ResourceProperties": {"Deployment": "d", "Regions": "us-west-2", "Workloads": []}},
        {"ResourceProperties": None},
    ],
    ids=repr,
)
def test_refuses_what_cloudformation_does_not_send(change: dict[str, Any]) -> None:
    with pytest.raises(ContractError):
        parse_stack_event({**load("stack_delete"), **change})


@pytest.mark.parametrize(
    ("name", "event"),
    [
        ("spot_interruption", InterruptionWarning(**INSTANCE)),
        ("rebalance_recommendation", RebalanceRecommendation(**INSTANCE)),
        ("instance_state_change", StateChange(**INSTANCE, state="terminated")),
    ],
)
def test_reads_the_events_of_instances(name: str, event: object) -> None:
    assert parse_instance_event(load(name)) == event


def test_a_warning_gives_two_minutes_from_its_own_time() -> None:
    event = parse_instance_event(load("spot_interruption"))

    assert isinstance(event, InterruptionWarning)
    assert event.deadline == datetime(2026, 11, 20, 12, 2, tzinfo=UTC)


def test_a_workload_may_have_dashes_in_its_name() -> None:
    event = load("queue_alarm")
    dimensions = event["alarmData"]["configuration"]["metrics"][0]["metricStat"]["metric"]
    dimensions["dimensions"]["QueueName"] = queue_name("demo", "classify-big-files")

    assert parse_wake_up(event, deployment="demo").workload == "classify-big-files"


@pytest.mark.parametrize(
    "queue",
    ["other--classify", "demo--", "demo--classify--dlq", "democlassify", "demo-a--classify"],
)
def test_an_alarm_on_another_queue_wakes_nobody(queue: str) -> None:
    event = load("queue_alarm")
    metric = event["alarmData"]["configuration"]["metrics"][0]["metricStat"]["metric"]
    metric["dimensions"]["QueueName"] = queue

    with pytest.raises(ContractError, match="demo-"):
        parse_wake_up(event, deployment="demo")


def test_a_composite_alarm_names_no_queue() -> None:
    event = load("queue_alarm")
    event["alarmData"]["configuration"] = {"alarmRule": "ALARM(a)"}

    with pytest.raises(ContractError):
        parse_wake_up(event, deployment="demo")


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("detail", "instance-id"), "../../etc"),
        (("detail", "instance-id"), None),
        (("detail",), "i-1"),
        (("time",), "yesterday"),
        (("region",), ""),
        (("detail-type",), "EC2 Spot Instance Request Fulfillment"),
    ],
    ids=str,
)
def test_says_which_field_of_an_event_is_wrong(path: tuple[str, ...], value: object) -> None:
    event = load("spot_interruption")
    at = event
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value

    with pytest.raises(ContractError) as refused:
        parse_instance_event(event)

    assert path[-1] in refused.value.field


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
KEYS = st.sampled_from(
    [
        "source",
        "workload",
        "detail",
        "detail-type",
        "time",
        "region",
        "alarmData",
        "configuration",
        "metrics",
    ]
)
SHAPED = st.dictionaries(KEYS, JSON | st.dictionaries(KEYS, JSON), max_size=6)
SOURCES = st.sampled_from(["spindown.tick", "aws.cloudwatch", "aws.ec2"])


@given(JSON | SHAPED, SOURCES)
def test_any_json_is_an_event_or_a_reason(value: Any, source: str) -> None:
    if isinstance(value, dict):
        value = {**value, "source": source}
    for parse in (parse_instance_event, lambda event: parse_wake_up(event, deployment="demo")):
        try:
            assert parse(value) is not None
        except ContractError as reason:
            assert str(reason)  # noqa: PT017 - either way is right, and both are checked


@pytest.mark.parametrize("name", ["\ud800", "classify\n", "\x1b[2J", "\u202eclassify"])
def test_a_workload_that_no_log_line_takes_is_refused(name: str) -> None:
    alarm = load("queue_alarm")
    (metric,) = (
        one["metricStat"]["metric"] for one in alarm["alarmData"]["configuration"]["metrics"]
    )
    metric["dimensions"]["QueueName"] = queue_name("demo", name)

    for event in ({"source": "spindown.tick", "workload": name}, alarm):
        with pytest.raises(ContractError) as caught:
            parse_wake_up(event, deployment="demo")
        assert str(caught.value).isprintable()
