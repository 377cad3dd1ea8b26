"""What comes to be for a deployment: the parts that must hold whatever else changes."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from ministack.services.cloudformation import provisioners

from spindown import config
from spindown.contract import tag
from spindown.contract.codec import decode
from spindown.contract.settings import DeploymentSettings, WorkloadSettings
from spindown.domain.offer import CapacityType
from tests.infra.assembly import CONFIG, PLAIN, Assembly, synthesise_core, words, write_project

MINUTE = 60
DAY = 24 * 60 * MINUTE
#: Characters of a parameter that costs nothing.
PARAMETER_MAX = 4096


def queue(assembly: Assembly, name: str) -> Any:
    return assembly.one_of("AWS::SQS::Queue", QueueName=name)


def test_a_job_is_kept_12_days_and_received_at_most_100_times(
    assembly: Assembly,
) -> None:
    jobs = queue(assembly, "lab--plain")

    assert jobs["MessageRetentionPeriod"] == 12 * DAY
    assert jobs["VisibilityTimeout"] == 5 * MINUTE
    assert jobs["ReceiveMessageWaitTimeSeconds"] == 20
    assert jobs["RedrivePolicy"]["maxReceiveCount"] == 100
    assert "FifoQueue" not in jobs


def test_a_dead_letter_outlives_the_queue_it_came_from(assembly: Assembly) -> None:
    for name in ("plain", "rich"):
        dead = queue(assembly, f"lab--{name}--dlq")
        assert dead["MessageRetentionPeriod"] == 14 * DAY > 12 * DAY


def test_no_queue_that_holds_work_takes_dead_letters_of_others(assembly: Assembly) -> None:
    """Else whoever makes a queue in the account sends messages without the right to."""
    for one in assembly.all_of("AWS::SQS::Queue"):
        takes = one.get("RedriveAllowPolicy", {}).get("redrivePermission", "allowAll")
        # Messages end in a queue without one for its own.
        assert (takes != "denyAll") is ("RedrivePolicy" not in one)


def test_dead_letters_come_from_the_workload_s_own_queue(assembly: Assembly) -> None:
    allowed = queue(assembly, "lab--plain--dlq")["RedriveAllowPolicy"]

    assert allowed["redrivePermission"] == "byQueue"
    assert [words(arn) for arn in allowed["sourceQueueArns"]] == [
        "arn:<AWS::Partition>:sqs:<AWS::Region>:<AWS::AccountId>:lab--plain"
    ]


def test_queues_made_later_send_dead_letters_where_types_are(tmp_path: Path) -> None:
    typed = '[[workload.plain.policy.types]]\nname = "large"\nmemory_gib = 64\n'
    text = PLAIN.format(image="") + typed
    made = synthesise_core(write_project(tmp_path, text), tmp_path / "out")

    allowed = queue(made, "lab--plain--dlq")["RedriveAllowPolicy"]
    assert allowed == {"redrivePermission": "allowAll"}


def test_every_queue_is_encrypted_and_refuses_plain_http(assembly: Assembly) -> None:
    queues = [name for name, one in assembly.resources.items() if one["Type"] == "AWS::SQS::Queue"]
    refused = {
        words(queue)
        for policy in assembly.all_of("AWS::SQS::QueuePolicy")
        for queue in policy["Queues"]
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Deny"
        and statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    }

    assert {f"<{name}>" for name in queues} == refused
    assert all(one["SqsManagedSseEnabled"] for one in assembly.all_of("AWS::SQS::Queue"))


def test_the_bucket_is_private_versioned_and_stays(assembly: Assembly) -> None:
    (bucket,) = (one for one in assembly.resources.values() if one["Type"] == "AWS::S3::Bucket")
    properties = bucket["Properties"]

    assert bucket["DeletionPolicy"] == bucket["UpdateReplacePolicy"] == "Retain"
    assert properties["VersioningConfiguration"] == {"Status": "Enabled"}
    assert set(properties["PublicAccessBlockConfiguration"].values()) == {True}
    assert "BucketEncryption" in properties
    rules = {rule["Id"]: rule for rule in properties["LifecycleConfiguration"]["Rules"]}
    assert rules["expire-old-versions"]["NoncurrentVersionExpiration"] == {"NoncurrentDays": 30}
    assert "Prefix" not in rules["expire-old-versions"]
    assert not any("ExpirationInDays" in rule for rule in rules.values() if "Prefix" not in rule)


def test_the_ledger_is_restorable_and_indexed_by_instance(assembly: Assembly) -> None:
    table = assembly.one_of("AWS::DynamoDB::GlobalTable", TableName="lab--ledger")

    assert table["BillingMode"] == "PAY_PER_REQUEST"
    assert [key["AttributeName"] for key in table["KeySchema"]] == ["pk", "sk"]
    assert table["TimeToLiveSpecification"] == {"AttributeName": "expires", "Enabled": True}
    (replica,) = table["Replicas"]
    assert replica["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    (index,) = table["GlobalSecondaryIndexes"]
    assert index["Projection"] == {"ProjectionType": "KEYS_ONLY"}
    assert [key["AttributeName"] for key in index["KeySchema"]] == ["instance_id", "sk"]


@pytest.mark.parametrize("kept", [None, 90])
def test_work_expires_where_it_is_asked(tmp_path: Path, kept: int | None) -> None:
    key = f'work_retention = "{kept}d"\n' if kept else ""
    text = PLAIN.format(image="").replace("zones =", f"{key}zones =")
    core = synthesise_core(write_project(tmp_path, text), tmp_path / "out")

    rules = core.one_of("AWS::S3::Bucket")["LifecycleConfiguration"]["Rules"]
    expired = {
        one.get("Prefix"): one["ExpirationInDays"] for one in rules if "ExpirationInDays" in one
    }
    assert expired.get("workloads/") == kept


def test_our_network_costs_nothing_while_no_worker_runs(assembly: Assembly) -> None:
    assert assembly.all_of("AWS::EC2::NatGateway") == []
    endpoints = assembly.all_of("AWS::EC2::VPCEndpoint")
    assert {one["VpcEndpointType"] for one in endpoints} == {"Gateway"}
    assert {one["ServiceName"] for one in endpoints} == {
        "com.amazonaws.eu-west-1.s3",
        "com.amazonaws.eu-west-1.dynamodb",
    }


def test_a_zone_keeps_its_addresses_when_others_come_and_go(
    assembly: Assembly, tmp_path: Path
) -> None:
    wider = CONFIG.replace('"eu-west-1a", ', '"eu-west-1b", ')
    other = synthesise_core(write_project(tmp_path, wider), tmp_path / "out")

    def blocks(of: Assembly) -> dict[str, str]:
        return {one["AvailabilityZone"]: one["CidrBlock"] for one in of.all_of("AWS::EC2::Subnet")}

    before, after = blocks(assembly), blocks(other)
    assert before["eu-west-1c"] == after["eu-west-1c"]
    assert len({*before.values(), *after.values()}) == 3


def test_a_named_network_is_used_and_none_is_made(tmp_path: Path) -> None:
    named = CONFIG + (
        '[deployment.network]\nvpc_id = "vpc-0abc"\n'
        'subnets = { eu-west-1a = "subnet-0a", eu-west-1c = "subnet-0c" }\n'
    )
    assembly = synthesise_core(write_project(tmp_path, named), tmp_path / "out")

    kinds = {one["Type"] for one in assembly.resources.values()}
    assert {kind for kind in kinds if kind.startswith("AWS::EC2::")} == {
        "AWS::EC2::LaunchTemplate",
        "AWS::EC2::SecurityGroup",
    }
    assert assembly.one_of("AWS::EC2::SecurityGroup")["VpcId"] == "vpc-0abc"
    regions = read_settings(assembly, "plain").regions
    assert regions["eu-west-1"].subnets == {"eu-west-1a": "subnet-0a", "eu-west-1c": "subnet-0c"}


def test_nothing_may_come_in_to_a_worker(assembly: Assembly) -> None:
    group = assembly.one_of("AWS::EC2::SecurityGroup")

    assert "SecurityGroupIngress" not in group
    assert assembly.all_of("AWS::EC2::SecurityGroupIngress") == []


def test_a_worker_may_reach_any_address(assembly: Assembly) -> None:
    (way,) = assembly.one_of("AWS::EC2::SecurityGroup")["SecurityGroupEgress"]

    assert (way["IpProtocol"], way["CidrIp"]) == ("-1", "0.0.0.0/0")


def read_settings(assembly: Assembly, workload: str) -> WorkloadSettings:
    name = f"/spindown/lab/workload/{workload}"
    parameter = assembly.one_of("AWS::SSM::Parameter", Name=name)
    return decode(WorkloadSettings, json.loads(words(parameter["Value"])))


def test_the_settings_of_a_workload_are_those_of_spindown_toml(assembly: Assembly) -> None:
    settings = read_settings(assembly, "rich")
    wanted = config.load(assembly.project).workload["rich"]

    assert settings.policy == wanted.to_policy()
    assert settings.policy.idle_timeout == timedelta(minutes=3)
    assert settings.policy.ladder[0].capacity_types == {CapacityType.SPOT}
    assert settings.requirements == wanted.to_requirements()
    assert (settings.run.slots, settings.run.root_volume_gib) == ("2", 60)
    assert settings.log_group.startswith("<WorkloadrichFleetLog")
    assert set(settings.regions["eu-west-1"].subnets) == {"eu-west-1a", "eu-west-1c"}


def test_workers_launch_from_the_deployed_template_version(assembly: Assembly) -> None:
    templates = read_settings(assembly, "rich").regions["eu-west-1"].templates

    assert set(templates) == {"arm64", "x86_64"}
    for architecture, ref in templates.items():
        short = architecture.replace("_", "")
        assert ref.id.startswith(f"<WorkloadrichFleetTemplate{short}")
        assert ref.version == ref.id.replace("LaunchTemplateId", "LatestVersionNumber")


def test_the_deployment_names_what_its_workloads_share(assembly: Assembly) -> None:
    parameter = assembly.one_of("AWS::SSM::Parameter", Name="/spindown/lab/deployment")
    settings = decode(DeploymentSettings, json.loads(words(parameter["Value"])))

    assert (settings.name, settings.region) == ("lab", "eu-west-1")
    assert settings.workloads == ("plain", "rich")
    assert settings.budget_per_month == 75.0
    assert settings.table.startswith("<Ledger")
    assert settings.bucket.startswith("<Store")


def test_no_template_knows_the_parameter_of_a_live_edit(assembly: Assembly) -> None:
    names = [one["Name"] for one in assembly.all_of("AWS::SSM::Parameter")]

    assert not [name for name in names if "/live/" in name]


def test_settings_fit_into_a_parameter_that_costs_nothing(assembly: Assembly) -> None:
    for parameter in assembly.all_of("AWS::SSM::Parameter"):
        assert len(words(parameter["Value"])) < PARAMETER_MAX


def test_core_holds_only_what_the_local_system_creates_too(assembly: Assembly) -> None:
    kinds = {one["Type"] for one in assembly.resources.values()}

    # A custom resource is what its function makes of it.
    kinds -= {"Custom::SpindownFleet", "Custom::SpindownSubnets"}
    assert kinds - set(provisioners._RESOURCE_HANDLERS) == set()


def test_all_that_takes_tags_names_its_deployment(assembly: Assembly) -> None:
    for kind in ("AWS::SQS::Queue", "AWS::S3::Bucket", "AWS::Lambda::Function", "AWS::EC2::VPC"):
        for properties in assembly.all_of(kind):
            assert {"Key": tag.DEPLOYMENT, "Value": "lab"} in properties["Tags"]


def test_logs_do_not_pile_up_for_ever(assembly: Assembly) -> None:
    groups = assembly.all_of("AWS::Logs::LogGroup")

    assert len(groups) == 6
    assert {group["RetentionInDays"] for group in groups} == {30}
