"""What stands when ``cdk destroy`` ends the instances, and what is gone by then."""

import pytest

from tests.infra.assembly import Assembly
from tests.infra.dependency import depends_on, of_type

#: What an instance runs by, or what holds what it does: CloudFormation resource types.
STAYS = {
    "AWS::DynamoDB::GlobalTable",
    "AWS::EC2::LaunchTemplate",
    "AWS::EC2::SecurityGroup",
    "AWS::EC2::Subnet",
    "AWS::EC2::VPC",
    "AWS::IAM::InstanceProfile",
    "AWS::S3::Bucket",
    "AWS::SQS::Queue",
}
#: What launches without being asked to.
GOES_FIRST = {"AWS::CloudWatch::Alarm", "AWS::Events::Rule", "AWS::Scheduler::Schedule"}


@pytest.fixture
def fleet(assembly: Assembly) -> str:
    (name,) = of_type(assembly, "Custom::SpindownFleet")
    return name


def test_all_that_instances_need_stays_until_they_are_gone(assembly: Assembly, fleet: str) -> None:
    stays = depends_on(assembly, fleet)

    assert of_type(assembly, *STAYS) <= stays
    workers = {name for name in of_type(assembly, "AWS::IAM::Role") if "FleetRole" in name}
    assert len(workers) == 2
    assert workers <= stays


def test_the_teardown_keeps_its_rights_and_log_to_the_end(assembly: Assembly, fleet: str) -> None:
    own = {name for name in assembly.resources if name.startswith("ControlTeardownFunction")}

    assert {assembly.resources[name]["Type"] for name in own} >= {
        "AWS::IAM::Policy",
        "AWS::IAM::Role",
        "AWS::Lambda::Function",
        "AWS::Logs::LogGroup",
    }
    assert own <= depends_on(assembly, fleet)


def test_what_launches_by_itself_is_gone_before(assembly: Assembly, fleet: str) -> None:
    first = of_type(assembly, *GOES_FIRST)

    assert len(first) >= 10
    for name in first:
        assert fleet in depends_on(assembly, name)


def test_nothing_that_must_stay_depends_on_the_end_of_the_fleet(
    assembly: Assembly, fleet: str
) -> None:
    for name in of_type(assembly, *STAYS, "AWS::Lambda::Function"):
        assert fleet not in depends_on(assembly, name)


def test_the_fleet_is_never_replaced_by_an_update(assembly: Assembly) -> None:
    properties = assembly.one_of("Custom::SpindownFleet")

    assert set(properties) == {
        "ServiceToken",
        "ServiceTimeout",
        "Deployment",
        "Home",
        "Regions",
        "Table",
        "Workloads",
    }
    assert properties["Workloads"] == ["plain", "rich"]


def test_an_update_names_leaving_subnets_after_the_settings(assembly: Assembly, fleet: str) -> None:
    properties = assembly.one_of("Custom::SpindownSubnets")
    (name,) = of_type(assembly, "Custom::SpindownSubnets")

    assert len(properties["Subnets"]) == len(of_type(assembly, "AWS::EC2::Subnet"))
    assert properties["Staying"] == ["plain", "rich"]
    assert of_type(assembly, "AWS::SSM::Parameter", "AWS::EC2::Subnet") <= depends_on(
        assembly, name
    )
    assert name not in depends_on(assembly, fleet)


def test_no_tick_comes_before_the_settings_that_it_reads(assembly: Assembly) -> None:
    settings = of_type(assembly, "AWS::SSM::Parameter")

    assert settings
    for name in of_type(assembly, "AWS::Scheduler::Schedule", "AWS::Events::Rule"):
        assert settings <= depends_on(assembly, name)
