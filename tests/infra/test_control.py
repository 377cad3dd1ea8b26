"""The functions, and what invokes them."""

import fnmatch
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from spindown.config.deployment import OUTPOSTS_AT_MOST
from spindown.contract.event import InterruptionWarning, parse_instance_event, parse_wake_up
from spindown.contract.row import LOCK_LEASE, SCALER_TIMEOUT
from spindown.domain.control_cost import REFRESH
from spindown.functions.offers import RESEND_FOR
from spindown.job.shape_queue import REMOVED_WITHIN
from tests.infra.assembly import ROOT, Assembly, words

FUNCTIONS = ["lab--interruption", "lab--offers", "lab--scaler", "lab--teardown"]
EVENTS = ROOT / "tests" / "events"


def function(assembly: Assembly, name: str) -> Any:
    return assembly.one_of("AWS::Lambda::Function", FunctionName=name)


def reference(assembly: Assembly, name: str) -> str:
    (logical_id,) = (
        key
        for key, one in assembly.resources.items()
        if one["Properties"].get("FunctionName") == name
    )
    return f"<{logical_id}.Arn>"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_run_on_the_newest_python_on_arm(assembly: Assembly, name: str) -> None:
    made = function(assembly, name)

    assert (made["Runtime"], made["Architectures"]) == ("python3.14", ["arm64"])
    assert made["Handler"] == f"spindown.functions.{name.removeprefix('lab--')}.handler"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_told_where_things_are_and_nothing_else(
    assembly: Assembly, name: str
) -> None:
    variables = function(assembly, name)["Environment"]["Variables"]

    assert variables.pop("SPINDOWN_DEPLOYMENT") == "lab"
    # A teardown outlives what the others are told of.
    places = {"SPINDOWN_TABLE", "SPINDOWN_BUCKET", "SPINDOWN_TOPIC"}
    assert variables.keys() == (set() if name == "lab--teardown" else places)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_reserve_no_concurrency(assembly: Assembly, name: str) -> None:
    assert "ReservedConcurrentExecutions" not in function(assembly, name)


@pytest.mark.parametrize("name", ["lab--scaler", "lab--interruption"])
def test_a_reconcile_is_cut_off_before_its_lock_frees_itself(assembly: Assembly, name: str) -> None:
    timeout = timedelta(seconds=function(assembly, name)["Timeout"])

    assert timeout == SCALER_TIMEOUT < LOCK_LEASE


def test_nobody_sends_while_a_queue_may_be_removed(assembly: Assembly) -> None:
    timeout = timedelta(seconds=function(assembly, "lab--offers")["Timeout"])

    # SQS drops a queue, with what it took meanwhile, a minute after it was asked to.
    assert timeout + timedelta(minutes=1) < REMOVED_WITHIN


def test_the_offers_function_has_time_for_every_region(
    assembly: Assembly,
) -> None:
    timeout = timedelta(seconds=function(assembly, "lab--offers")["Timeout"])
    regions = 1 + OUTPOSTS_AT_MOST

    # What reading one is estimated to take, and as much again.
    assert timeout >= RESEND_FOR + regions * 2 * timedelta(seconds=REFRESH.seconds)


def test_the_functions_share_a_package_but_the_one_with_duckdb(assembly: Assembly) -> None:
    packages = {name: json.dumps(function(assembly, name)["Code"]) for name in FUNCTIONS}
    with_duckdb = packages.pop("lab--offers")

    assert len(set(packages.values())) == 1
    assert with_duckdb not in packages.values()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_have_several_times_the_memory_they_need(assembly: Assembly, name: str) -> None:
    """Lambda gives processor time by memory: what is above the peak buys quick starts."""
    bench = json.loads((ROOT / "docs" / "bench" / "memory.json").read_text())
    peak = bench["figures"][f"{name.removeprefix('lab--')}_peak_mib"]

    assert 3 * peak <= function(assembly, name)["MemorySize"] <= 10 * peak


def async_config(assembly: Assembly, name: str) -> Mapping[str, Any]:
    logical_id = reference(assembly, name).removesuffix(".Arn>").removeprefix("<")
    return assembly.one_of("AWS::Lambda::EventInvokeConfig", FunctionName={"Ref": logical_id})


@pytest.mark.parametrize(
    ("name", "retries", "age", "is_kept"),
    [
        pytest.param("lab--scaler", 0, 60, False, id="the next tick does it again"),
        pytest.param("lab--interruption", 2, 120, True, id="worth nothing after the notice"),
        pytest.param("lab--offers", 1, 3600, True, id="until the next refresh"),
        pytest.param("lab--teardown", 2, 3600, True, id="CloudFormation waits that long"),
    ],
)
def test_an_event_is_not_retried_longer_than_it_is_worth(
    assembly: Assembly, name: str, retries: int, age: int, is_kept: bool
) -> None:
    found = async_config(assembly, name)

    assert found["MaximumRetryAttempts"] == retries
    assert found["MaximumEventAgeInSeconds"] == age
    assert ("OnFailure" in found.get("DestinationConfig", {})) is is_kept


@pytest.mark.parametrize("workload", ["plain", "rich"])
def test_every_minute_a_tick_comes_for_each_workload(assembly: Assembly, workload: str) -> None:
    schedule = assembly.one_of("AWS::Scheduler::Schedule", Name=f"lab--{workload}--tick")
    target = schedule["Target"]

    assert schedule["ScheduleExpression"] == "rate(1 minute)"
    assert schedule["FlexibleTimeWindow"] == {"Mode": "OFF"}
    assert target["RetryPolicy"] == {"MaximumEventAgeInSeconds": 60, "MaximumRetryAttempts": 0}
    assert words(target["Arn"]) == reference(assembly, "lab--scaler")
    wake_up = parse_wake_up(json.loads(target["Input"]), deployment="lab")
    assert (wake_up.source, wake_up.workload) == ("spindown.tick", workload)


@pytest.mark.parametrize("workload", ["plain", "rich"])
def test_another_service_ticks_every_5_minutes(assembly: Assembly, workload: str) -> None:
    rule = assembly.one_of("AWS::Events::Rule", Name=f"lab--{workload}--tick")
    (target,) = rule["Targets"]
    schedule = assembly.one_of("AWS::Scheduler::Schedule", Name=f"lab--{workload}--tick")

    assert rule["ScheduleExpression"] == "rate(5 minutes)"
    # A later one does everything; a role that breaks takes the schedule along, and not this.
    assert target["RetryPolicy"] == {"MaximumEventAgeInSeconds": 60, "MaximumRetryAttempts": 0}
    assert "RoleArn" not in target
    assert words(target["Arn"]) == reference(assembly, "lab--scaler")
    assert target["Input"] == schedule["Target"]["Input"]


def test_every_hour_the_catalogue_is_refreshed(assembly: Assembly) -> None:
    schedule = assembly.one_of("AWS::Scheduler::Schedule", Name="lab--offers")

    assert schedule["ScheduleExpression"] == "rate(1 hour)"
    assert words(schedule["Target"]["Arn"]) == reference(assembly, "lab--offers")


@pytest.mark.parametrize("workload", ["plain", "rich"])
def test_a_queue_wakes_the_scaler(assembly: Assembly, workload: str) -> None:
    alarm = assembly.one_of("AWS::CloudWatch::Alarm", AlarmName=f"lab--{workload}--backlog")

    assert (alarm["Namespace"], alarm["MetricName"], alarm["Statistic"], alarm["Period"]) == (
        "AWS/SQS",
        "ApproximateNumberOfMessagesVisible",
        "Maximum",
        60,
    )
    assert (alarm["ComparisonOperator"], alarm["Threshold"], alarm["EvaluationPeriods"]) == (
        "GreaterThanOrEqualToThreshold",
        1,
        1,
    )
    assert alarm["TreatMissingData"] == "notBreaching"
    assert [words(action) for action in alarm["AlarmActions"]] == [
        reference(assembly, "lab--scaler")
    ]
    (dimension,) = alarm["Dimensions"]
    assert dimension["Name"] == "QueueName"
    assert words(dimension["Value"]).startswith(f"<Workload{workload}JobsQueue")


def permission(assembly: Assembly, principal: str) -> Mapping[str, Any]:
    """Return the one permission that a service has to invoke the scaler."""
    (allowed,) = (
        one
        for one in assembly.all_of("AWS::Lambda::Permission")
        if words(one["FunctionName"]) == reference(assembly, "lab--scaler")
        and one["Principal"] == principal
    )
    return allowed


def test_one_permission_lets_every_alarm_invoke_the_scaler(assembly: Assembly) -> None:
    """Lambda takes 20 KB of them for a function: one for each alarm would fill it."""
    allowed = permission(assembly, "lambda.alarms.cloudwatch.amazonaws.com")

    assert words(allowed["SourceAccount"]) == "<AWS::AccountId>"
    at, _, pattern = words(allowed["SourceArn"]).rpartition(":")
    assert at == "arn:<AWS::Partition>:cloudwatch:<AWS::Region>:<AWS::AccountId>:alarm"
    names = [one["AlarmName"] for one in assembly.all_of("AWS::CloudWatch::Alarm")]
    assert len(names) == 2
    assert fnmatch.filter(names, pattern) == names


def test_one_permission_lets_spare_ticks_invoke_the_scaler(assembly: Assembly) -> None:
    allowed = permission(assembly, "events.amazonaws.com")

    assert words(allowed["SourceAccount"]) == "<AWS::AccountId>"
    at, _, pattern = words(allowed["SourceArn"]).partition("/")
    assert at == "arn:<AWS::Partition>:events:<AWS::Region>:<AWS::AccountId>:rule"
    rules = assembly.all_of("AWS::Events::Rule")
    names = [one["Name"] for one in rules if "ScheduleExpression" in one]
    assert len(names) == 2
    assert fnmatch.filter([*names, "lab--plain--other"], pattern) == names
    callers = assembly.all_of("AWS::Lambda::Permission")
    scaler = reference(assembly, "lab--scaler")
    assert len([one for one in callers if words(one["FunctionName"]) == scaler]) == 2


def matches(pattern: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
    """Tell whether EventBridge would take an event: every named field has a listed value."""
    return all(
        matches(wanted, event.get(field, {}))
        if isinstance(wanted, dict)
        else event.get(field) in wanted
        for field, wanted in pattern.items()
    )


@pytest.mark.parametrize(
    "name", ["instance_state_change", "rebalance_recommendation", "spot_interruption"]
)
def test_one_rule_takes_an_ec2_event_to_the_function(assembly: Assembly, name: str) -> None:
    event = json.loads((EVENTS / f"{name}.json").read_text())

    (rule,) = (
        one
        for one in assembly.all_of("AWS::Events::Rule")
        if "EventPattern" in one and matches(one["EventPattern"], event)
    )

    (target,) = rule["Targets"]
    assert words(target["Arn"]) == reference(assembly, "lab--interruption")
    assert target["RetryPolicy"] == {"MaximumEventAgeInSeconds": 120, "MaximumRetryAttempts": 2}
    # What reaches no function is kept where what a function fails on is.
    assert words(target["DeadLetterConfig"]["Arn"]).startswith("<ControlFailedEvents")
    assert parse_instance_event(event).instance_id.startswith("i-")


@pytest.mark.parametrize("state", ["pending", "running"])
def test_no_rule_takes_the_beginning_of_an_instance(assembly: Assembly, state: str) -> None:
    event = json.loads((EVENTS / "instance_state_change.json").read_text())
    event["detail"]["state"] = state

    rules = [one for one in assembly.all_of("AWS::Events::Rule") if "EventPattern" in one]

    assert rules
    assert not [one for one in rules if matches(one["EventPattern"], event)]


def test_a_notice_is_kept_as_long_as_it_lasts(assembly: Assembly) -> None:
    event = json.loads((EVENTS / "spot_interruption.json").read_text())
    warning = parse_instance_event(event)

    assert isinstance(warning, InterruptionWarning)
    age = async_config(assembly, "lab--interruption")["MaximumEventAgeInSeconds"]
    assert timedelta(seconds=age) == warning.deadline - warning.at
