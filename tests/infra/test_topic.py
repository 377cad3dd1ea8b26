"""One topic carries to people what alarms and functions have to say, and nobody else's words."""

import json
from pathlib import Path

import pytest

from spindown.infra.shared.resources import teller
from tests.infra.assembly import PLAIN, Assembly, synthesise, synthesise_core, words, write_project
from tests.infra.ruled import HOME_KEY


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
    told_to = f'alarm_email = "{email}"\nzones' if email else "zones"
    project = write_project(tmp_path, PLAIN.format(image="").replace("zones", told_to))

    core = synthesise_core(project, tmp_path / "out")

    subscribed = core.all_of("AWS::SNS::Subscription")
    assert [(one["Protocol"], one["Endpoint"]) for one in subscribed] == told


@pytest.mark.parametrize(
    ("secret", "sid", "arn"),
    [
        ("/lab/slack", "ReadParameters", ":parameter/lab/slack"),
        ("slack", "ReadSecrets", ":secret:slack-??????"),
    ],
)
def test_a_webhook_is_told_by_a_function_that_reads_one_secret(
    tmp_path: Path, secret: str, sid: str, arn: str
) -> None:
    told_to = f'kms_key_arn = "{HOME_KEY}"\nalarm_webhook = "{secret}"\nzones'
    project = write_project(tmp_path, PLAIN.format(image="").replace("zones", told_to))

    core = synthesise_core(project, tmp_path / "out")

    (subscribed,) = core.all_of("AWS::SNS::Subscription")
    assert subscribed["Protocol"] == "lambda"
    assert words(subscribed["Endpoint"]).startswith("<ControlWebhookFunction")
    function = core.one_of("AWS::Lambda::Function", FunctionName="lab--webhook")
    # Its name, as the address is known to nobody here.
    assert function["Environment"]["Variables"]["SPINDOWN_WEBHOOK"] == secret
    statements = core.statements("ControlWebhookRole")
    assert words(statements[sid]["Resource"]).endswith(arn)
    # The account may have all secrets encrypted by its own key.
    assert statements["DecryptSecrets"]["Resource"] == HOME_KEY
    assert set(statements["DecryptSecrets"]["Condition"]["StringEquals"]["kms:ViaService"]) == {
        "secretsmanager.eu-west-1.amazonaws.com",
        "ssm.eu-west-1.amazonaws.com",
    }
    assert "TellPeople" not in statements


@pytest.mark.parametrize(
    ("region", "home", "principal"),
    [
        ("eu-west-1", "eu-west-1", "sns.amazonaws.com"),
        ("us-west-2", "eu-west-1", "sns.amazonaws.com"),
        ("ap-east-1", "ap-east-1", "sns.amazonaws.com"),
        ("ap-east-1", "eu-west-1", "sns.ap-east-1.amazonaws.com"),
        ("eu-west-1", "ap-east-1", ""),
        ("me-south-1", "ap-east-1", ""),
    ],
)
def test_a_topic_of_an_opt_in_region_is_another_principal(
    region: str, home: str, principal: str
) -> None:
    assert teller(region, home=home) == principal


def test_a_webhook_that_fails_rings_once_an_hour_at_most(tmp_path: Path) -> None:
    told = PLAIN.format(image="").replace("zones", 'alarm_webhook = "slack"\nzones')
    made = synthesise(write_project(tmp_path, told), tmp_path / "out")

    (alarm,) = (
        one["Properties"]
        for one in made.stacks["lab-insight"].values()
        if one.get("Properties", {}).get("AlarmName") == "lab--webhook-errors"
    )
    assert (alarm["MetricName"], alarm["Dimensions"]) == (
        "Errors",
        [{"Name": "FunctionName", "Value": "lab--webhook"}],
    )
    assert (alarm["Period"], alarm["EvaluationPeriods"], alarm["Threshold"]) == (3600, 1, 1)
    assert len(alarm["AlarmActions"]) == 1
    # Or its end would be told too, and its telling fail.
    assert not alarm.get("OKActions")
    assert alarm["TreatMissingData"] == "notBreaching"


def test_an_event_that_no_function_took_rings(tmp_path: Path) -> None:
    told = PLAIN.format(image="").replace("zones", 'alarm_email = "a@example.com"\nzones')
    made = synthesise(write_project(tmp_path, told), tmp_path / "out")

    (alarm,) = (
        one["Properties"]
        for one in made.stacks["lab-insight"].values()
        if one.get("Properties", {}).get("AlarmName") == "lab--failed-events"
    )
    assert (alarm["Namespace"], alarm["MetricName"], alarm["Statistic"]) == (
        "AWS/SQS",
        "ApproximateNumberOfMessagesVisible",
        "Maximum",
    )
    (dimension,) = alarm["Dimensions"]
    assert "ControlFailedEvents" in str(dimension["Value"])
    assert (alarm["Threshold"], alarm["TreatMissingData"]) == (1, "notBreaching")
    assert len(alarm["AlarmActions"]) == 1


def test_without_a_webhook_there_is_no_function_for_one(assembly: Assembly) -> None:
    names = [one.get("FunctionName") for one in assembly.all_of("AWS::Lambda::Function")]

    assert "lab--webhook" not in names


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
    assert json.loads(settings)["topic"].startswith("<AlarmsTopic")
