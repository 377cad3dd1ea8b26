"""An outpost stack, and that it and core refer to each other by names that are there."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spindown.contract import tag
from tests.infra.assembly import (
    AWAY,
    CONFIG,
    PLAIN,
    SPREAD,
    Assembly,
    listed,
    synthesise,
    synthesise_once,
    words,
    write_project,
)
from tests.infra.dependency import depends_on, of_type


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    return synthesise_once(
        tmp_path_factory, "spread", lambda directory: write_project(directory, SPREAD)
    )


@pytest.fixture(scope="module")
def outpost(core: Assembly) -> Assembly:
    return replace(core, stack_name=f"lab-outpost-{AWAY}")


def policy(outpost: Assembly, role: str) -> Mapping[str, Mapping[str, Any]]:
    """Return the statements that an outpost attaches to a role, by their id."""
    return {
        statement["Sid"]: statement
        for made in outpost.all_of("AWS::IAM::ManagedPolicy")
        if role in made["Roles"]
        for statement in made["PolicyDocument"]["Statement"]
    }


def actions(statements: Mapping[str, Mapping[str, Any]]) -> set[str]:
    return {action for one in statements.values() for action in listed(one["Action"])}


def test_one_region_needs_no_outpost_and_no_fixed_names(assembly: Assembly) -> None:
    assert not list(assembly.directory.glob("lab-outpost-*"))
    assert not [role for role in assembly.all_of("AWS::IAM::Role") if "RoleName" in role]
    assert len(assembly.all_of("AWS::IAM::InstanceProfile")) == 2
    settings = assembly.one_of("AWS::SSM::Parameter", Name=_settings("rich"))["Value"]
    assert "outposts" not in json.loads(words(settings))


def _settings(workload: str) -> str:
    return f"/spindown/lab/workload/{workload}"


def test_home_lists_its_regions_and_the_outpost_says_what_it_is(
    core: Assembly, outpost: Assembly
) -> None:
    home = words(core.one_of("AWS::SSM::Parameter", Name=_settings("rich"))["Value"])
    away = json.loads(
        words(outpost.one_of("AWS::SSM::Parameter", Name="/spindown/lab/outpost/rich")["Value"])
    )

    assert json.loads(home)["outposts"] == [AWAY]
    assert list(away["subnets"]) == ["us-west-2b", "us-west-2d"]
    assert list(away["templates"]) == ["arm64", "x86_64"]
    for template in away["templates"].values():
        name = template["id"].removeprefix("<").removesuffix(".LaunchTemplateId>")
        assert outpost.resources[name]["Type"] == "AWS::EC2::LaunchTemplate"
        assert template["version"] == f"<{name}.LatestVersionNumber>"


def test_what_the_outpost_names_at_home_is_there(core: Assembly, outpost: Assembly) -> None:
    roles = {role.get("RoleName") for role in core.all_of("AWS::IAM::Role")}
    profiles = {one.get("InstanceProfileName") for one in core.all_of("AWS::IAM::InstanceProfile")}

    named = {role for made in outpost.all_of("AWS::IAM::ManagedPolicy") for role in made["Roles"]}
    used = {
        words(one["LaunchTemplateData"]["IamInstanceProfile"]["Arn"]).rpartition("/")[2]
        for one in outpost.all_of("AWS::EC2::LaunchTemplate")
    }

    assert named == {f"lab--eu-west-1--{one}" for one in ("scaler", "interruption", "offers")}
    assert named <= roles
    assert used == {"lab--eu-west-1--plain", "lab--eu-west-1--rich"}
    assert used <= profiles
    assert all(len(name) <= 64 for name in named)


def test_an_outpost_s_templates_differ_only_in_regional_parts(
    core: Assembly, outpost: Assembly
) -> None:
    for template in outpost.all_of("AWS::EC2::LaunchTemplate"):
        name, away = template["LaunchTemplateName"], dict(template["LaunchTemplateData"])
        home = dict(
            core.one_of("AWS::EC2::LaunchTemplate", LaunchTemplateName=name)["LaunchTemplateData"]
        )
        for regional in ("IamInstanceProfile", "TagSpecifications"):
            assert away.pop(regional) != home.pop(regional)
        assert away == home


def test_the_launch_says_what_its_templates_cannot_know(outpost: Assembly) -> None:
    for template in outpost.all_of("AWS::EC2::LaunchTemplate"):
        for specification in template["LaunchTemplateData"]["TagSpecifications"]:
            keys = {one["Key"] for one in specification["Tags"]}
            assert keys >= {tag.DEPLOYMENT, tag.WORKLOAD, "Name"}
            assert not keys & tag.HOME


def test_it_sends_home_the_events_that_home_has_rules_for(
    core: Assembly, outpost: Assembly
) -> None:
    def patterns(stack: Assembly) -> list[str]:
        rules = [one for one in stack.all_of("AWS::Events::Rule") if "EventPattern" in one]
        return sorted(json.dumps(rule["EventPattern"], sort_keys=True) for rule in rules)

    assert patterns(outpost) == patterns(core)
    for rule in outpost.all_of("AWS::Events::Rule"):
        (target,) = rule["Targets"]
        bus = words(target["Arn"])
        assert bus == "arn:<AWS::Partition>:events:eu-west-1:<AWS::AccountId>:event-bus/default"
        (role,) = target["RoleArn"]["Fn::GetAtt"][:1]
        statements = outpost.statements(role.removesuffix(role[-8:]))
        assert words(statements["SendEventsHome"]["Resource"]) == bus


def test_an_event_that_does_not_come_home_is_kept(outpost: Assembly) -> None:
    queue = outpost.one_of("AWS::SQS::Queue")
    kept = {words(one["Targets"][0]["DeadLetterConfig"]["Arn"]) for one in rules(outpost).values()}
    retries = [one["Targets"][0]["RetryPolicy"] for one in rules(outpost).values()]

    assert queue["QueueName"] == "lab--failed-events"
    assert queue["SqsManagedSseEnabled"] is True
    assert len(kept) == 1
    assert kept.pop().startswith("<StayFailedEvents")
    # A notice is of no use after its machine is gone.
    assert retries == [{"MaximumEventAgeInSeconds": 120, "MaximumRetryAttempts": 2}] * 3


def test_only_the_rules_put_events_there(outpost: Assembly) -> None:
    policy = outpost.one_of("AWS::SQS::QueuePolicy")["PolicyDocument"]["Statement"]
    (gives,) = (one for one in policy if one["Effect"] == "Allow")

    assert gives["Principal"] == {"Service": "events.amazonaws.com"}
    assert gives["Action"] == "sqs:SendMessage"
    assert {words(one) for one in gives["Condition"]["ArnEquals"]["aws:SourceArn"]} == {
        f"<{name}.Arn>" for name in rules(outpost)
    }


def rules(stack: Assembly) -> Mapping[str, Mapping[str, Any]]:
    return {
        name: one["Properties"]
        for name, one in stack.resources.items()
        if one["Type"] == "AWS::Events::Rule"
    }


def test_who_is_told_hears_of_events_that_do_not_come(tmp_path: Path) -> None:
    told = 'alarm_email = "a@example.com"\nalarm_webhook = "slack"\nzones'
    made = synthesise(write_project(tmp_path, SPREAD.replace("zones", told, 1)), tmp_path / "out")
    there = replace(made, stack_name=f"lab-outpost-{AWAY}")

    alarm = there.one_of("AWS::CloudWatch::Alarm")
    assert alarm["AlarmName"] == "lab--failed-events"
    assert alarm["Dimensions"] == [{"Name": "QueueName", "Value": "lab--failed-events"}]
    (topic,) = alarm["AlarmActions"]
    subscribed = {one["Protocol"]: one for one in there.all_of("AWS::SNS::Subscription")}
    assert {words(one["TopicArn"]) for one in subscribed.values()} == {words(topic)}
    assert subscribed["email"]["Endpoint"] == "a@example.com"
    function = words(subscribed["lambda"]["Endpoint"])
    assert function.endswith(":eu-west-1:<AWS::AccountId>:function:lab--webhook")
    # At home the function lets that topic invoke it.
    allowed = {
        words(one.get("SourceArn")): one["Principal"]
        for one in made.all_of("AWS::Lambda::Permission")
    }
    topic_arn = f"arn:<AWS::Partition>:sns:{AWAY}:<AWS::AccountId>:lab--alarms"
    assert allowed[topic_arn] == "sns.amazonaws.com"


def test_who_must_opt_in_to_a_region_hears_of_it_too(tmp_path: Path) -> None:
    spread = SPREAD.replace("zones", 'alarm_webhook = "slack"\nzones', 1).replace(AWAY, "ap-east-1")
    made = synthesise(write_project(tmp_path, spread), tmp_path / "out")

    principals = [one["Principal"] for one in made.all_of("AWS::Lambda::Permission")]

    assert "sns.ap-east-1.amazonaws.com" in principals


def test_where_nobody_is_told_no_alarm_is_billed(outpost: Assembly) -> None:
    kinds = {one["Type"] for one in outpost.resources.values()}

    assert not kinds & {"AWS::CloudWatch::Alarm", "AWS::SNS::Topic"}


@pytest.mark.parametrize("role", ["scaler", "interruption"])
def test_reconcile_has_the_same_rights_over_instances_there(
    core: Assembly, outpost: Assembly, role: str
) -> None:
    away, home = (
        policy(outpost, f"lab--eu-west-1--{role}"),
        core.statements(f"Control{role.title()}"),
    )

    regional = {one for one in actions(home) if one.startswith(("ec2:", "ssm:"))}
    assert actions(away) == regional
    # Whatever bounds it at home bounds it there, since both say "this region".
    for sid in away.keys() & home.keys():
        assert away[sid].get("Condition", {}).keys() == home[sid].get("Condition", {}).keys()


def test_the_catalogue_is_read_there_and_nothing_else(outpost: Assembly) -> None:
    assert actions(policy(outpost, "lab--eu-west-1--offers")) == {
        "ec2:DescribeInstanceTypeOfferings",
        "ec2:DescribeInstanceTypes",
        "ec2:DescribeSpotPriceHistory",
        "ssm:GetParameters",
    }


def test_no_grant_reaches_beyond_its_region(outpost: Assembly) -> None:
    for made in outpost.all_of("AWS::IAM::ManagedPolicy"):
        for statement in made["PolicyDocument"]["Statement"]:
            for resource in map(words, listed(statement["Resource"])):
                bounded = re.match(r"arn:<AWS::Partition>:\w+:<AWS::Region>:", resource)
                assert bounded or statement["Condition"] == {
                    "StringEquals": {"aws:RequestedRegion": {"Ref": "AWS::Region"}}
                }


def test_it_is_deployed_after_core(core: Assembly) -> None:
    manifest = json.loads((core.directory / "manifest.json").read_text())["artifacts"]

    stack = manifest[f"lab-outpost-{AWAY}"]
    assert "lab-core" in stack["dependencies"]
    assert stack["environment"] == f"aws://unknown-account/{AWAY}"


def test_an_existing_network_needs_none_of_ours(tmp_path: Path) -> None:
    network = 'network = { vpc_id = "vpc-0a", subnets = { us-west-2b = "subnet-b" } }'
    table = f'outpost.{AWAY} = {{ zones = ["us-west-2b"], {network} }}\nbudget_per_month'
    project = write_project(tmp_path, CONFIG.replace("budget_per_month", table))
    made = replace(synthesise(project, tmp_path / "out"), stack_name=f"lab-outpost-{AWAY}")

    assert not made.all_of("AWS::EC2::VPC")
    assert made.one_of("AWS::EC2::SecurityGroup")["VpcId"] == "vpc-0a"


def test_instances_end_after_launchers_and_before_their_network(
    outpost: Assembly,
) -> None:
    (fleet,) = of_type(outpost, "Custom::SpindownFleet")
    stays = depends_on(outpost, fleet)

    needed = ("AWS::EC2::LaunchTemplate", "AWS::EC2::Subnet", "AWS::EC2::VPC", "AWS::Events::Rule")
    assert of_type(outpost, *needed) <= stays
    for name in of_type(outpost, "AWS::IAM::ManagedPolicy", "AWS::SSM::Parameter"):
        assert fleet in depends_on(outpost, name)
    properties = outpost.resources[fleet]["Properties"]
    assert properties["Regions"] == [{"Ref": "AWS::Region"}]
    assert properties["Workloads"] == ["plain", "rich"]


def test_a_subnet_goes_after_home_is_told_and_it_is_empty(
    outpost: Assembly,
) -> None:
    (subnets,) = of_type(outpost, "Custom::SpindownSubnets")
    told = of_type(outpost, "AWS::IAM::ManagedPolicy", "AWS::SSM::Parameter")

    assert told <= depends_on(outpost, subnets)
    assert len(outpost.resources[subnets]["Properties"]["Subnets"]) == len(
        of_type(outpost, "AWS::EC2::Subnet")
    )


def test_its_teardown_ends_only_what_has_our_tag(outpost: Assembly) -> None:
    statements = outpost.statements("TeardownFunctionRole")

    assert set(statements) == {"FindInstances", "EndWorkers", "WriteLog"}


@pytest.mark.parametrize(
    ("own", "port"), [("", 443), ('egress = ["0.0.0.0/0:443", "10.0.0.0/8:5432"]', 5432)]
)
def test_workers_abroad_send_where_those_at_home_may(tmp_path: Path, own: str, port: int) -> None:
    place = f'[deployment.outpost.{AWAY}]\nzones = ["{AWAY}b"]\n{own}\n[workload.plain.run]'
    text = PLAIN.format(image="").replace("zones =", 'egress = ["0.0.0.0/0:443"]\nzones =', 1)
    project = write_project(tmp_path, text.replace("[workload.plain.run]", place))
    made = replace(synthesise(project, tmp_path / "out"), stack_name=f"lab-outpost-{AWAY}")

    *_, last = made.one_of("AWS::EC2::SecurityGroup")["SecurityGroupEgress"]
    assert (last["IpProtocol"], last["FromPort"]) == ("tcp", port)
