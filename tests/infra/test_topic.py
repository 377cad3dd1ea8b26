"""One topic carries to people what alarms and functions have to say, and nobody else's words."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Stack

from spindown.infra.flag import FLAGS
from spindown.infra.shared.resources import AlarmTopic
from tests.infra.assembly import Assembly, words


def make(directory: Path, email: str | None) -> Mapping[str, Mapping[str, Any]]:
    """Return the resources of a topic alone."""
    app = App(outdir=str(directory), context=FLAGS, analytics_reporting=False)
    AlarmTopic(Stack(app, "alone"), "Alarms", deployment="lab", email=email)
    resources: Mapping[str, Mapping[str, Any]]
    resources = app.synth().get_stack_by_name("alone").template["Resources"]
    return resources


@pytest.mark.parametrize(
    ("email", "told"),
    [
        pytest.param("ops@example.com", [("email", "ops@example.com")], id="an address"),
        pytest.param(None, [], id="none"),
    ],
)
def test_it_writes_to_the_address_in_the_configuration(
    tmp_path: Path, email: str | None, told: list[tuple[str, str]]
) -> None:
    resources = make(tmp_path, email)

    assert [
        (one["Properties"]["Protocol"], one["Properties"]["Endpoint"])
        for one in resources.values()
        if one["Type"] == "AWS::SNS::Subscription"
    ] == told


def test_it_takes_alarms_of_this_account_over_tls_only(assembly: Assembly) -> None:
    policy = assembly.one_of("AWS::SNS::TopicPolicy")
    statements = {one["Sid"]: one for one in policy["PolicyDocument"]["Statement"]}

    assert statements["TakeAlarms"]["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert statements["TakeAlarms"]["Condition"] == {
        "StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
    }
    refusal = statements["AllowPublishThroughSSLOnly"]
    assert (refusal["Effect"], refusal["Condition"]) == (
        "Deny",
        {"Bool": {"aws:SecureTransport": "false"}},
    )


def test_functions_are_told_where_it_is(assembly: Assembly) -> None:
    topic = assembly.one_of("AWS::SNS::Topic")
    (settings,) = (
        words(one["Value"])
        for one in assembly.all_of("AWS::SSM::Parameter")
        if one["Name"] == "/spindown/lab/deployment"
    )

    assert topic["TopicName"] == "lab--alarms"
    assert '"topic": "<AlarmsTopic' in settings
