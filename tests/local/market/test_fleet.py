"""CreateFleet: order, errors, idempotency, tags."""

from typing import Any

import pytest

from spindown.ec2sim import LaunchTemplate
from tests.local.market.world import TEMPLATE_ID, a_world, an_override, refused

DRY_G6 = """
[[dry]]
type = "g6.*"
capacity_type = "spot"
until = "30s"
"""


def _types(answer: dict[str, Any]) -> list[str]:
    return [one["InstanceType"] for one in answer["Instances"]]


def _codes(answer: dict[str, Any]) -> list[tuple[str, str]]:
    return [
        (one["LaunchTemplateAndOverrides"]["Overrides"]["InstanceType"], one["ErrorCode"])
        for one in answer["Errors"]
    ]


def test_launches_the_lowest_priority_whatever_order_and_price() -> None:
    answer = a_world().fleet(
        an_override("g4dn.xlarge", Priority=2.0),
        an_override("g5.xlarge", Priority=0.0),
        an_override("g6.xlarge", Priority=1.0),
    )
    assert _types(answer) == ["g5.xlarge"]
    assert answer["Errors"] == []


def test_goes_on_in_priority_order_and_reports_a_dry_pool() -> None:
    world = a_world(DRY_G6)
    overrides = (
        an_override("g5.xlarge", Priority=2.0),
        an_override("g4dn.xlarge", Priority=1.0),
        an_override("g6.xlarge", Priority=0.0),
    )
    answer = world.fleet(*overrides)
    assert _types(answer) == ["g4dn.xlarge"]
    assert _codes(answer) == [("g6.xlarge", "InsufficientInstanceCapacity")]

    world.wait(30)
    assert _types(world.fleet(*overrides)) == ["g6.xlarge"]


def test_takes_the_lowest_price_without_a_strategy() -> None:
    answer = a_world().fleet(
        an_override("g6.xlarge", Priority=0.0),
        an_override("g4dn.xlarge", Priority=1.0),
        SpotOptions={},
    )
    assert _types(answer) == ["g4dn.xlarge"]


def test_a_fleet_that_finds_nothing_answers_without_instances() -> None:
    answer = a_world(DRY_G6).fleet(an_override("g6.xlarge"), an_override("g6.xlarge", "b"))
    assert answer["Instances"] == []
    assert _codes(answer) == [("g6.xlarge", "InsufficientInstanceCapacity")] * 2
    assert answer["ResponseMetadata"]["HTTPStatusCode"] == 200


def test_fills_a_target_from_the_next_pool_when_one_is_short() -> None:
    extra = '[[dry]]\ntype = "g6.xlarge"\ncapacity = 2\n'
    answer = a_world(extra).fleet(
        an_override("g6.xlarge", Priority=0.0), an_override("g5.xlarge", Priority=1.0), target=3
    )
    counts = {one["InstanceType"]: len(one["InstanceIds"]) for one in answer["Instances"]}
    assert counts == {"g6.xlarge": 2, "g5.xlarge": 1}
    assert _codes(answer) == [("g6.xlarge", "InsufficientInstanceCapacity")]


@pytest.mark.parametrize(
    ("override", "changes", "code"),
    [
        pytest.param(an_override("g7e.2xlarge", "b"), {}, "InvalidFleetConfiguration", id="zone"),
        pytest.param(an_override("p5.4xlarge"), {}, "UnfulfillableCapacity", id="no-spot-market"),
        pytest.param(an_override(MaxPrice="0.1"), {}, "SpotMaxPriceTooLow", id="max-price"),
    ],
)
def test_reports_the_reason_of_each_override(
    override: dict[str, Any], changes: dict[str, Any], code: str
) -> None:
    answer = a_world().fleet(override, an_override("g4dn.xlarge", MaxPrice="0.15"), **changes)
    assert answer["Instances"] == []
    assert _codes(answer) == [
        (override["InstanceType"], code),
        ("g4dn.xlarge", "SpotMaxPriceTooLow"),
    ]


@pytest.mark.parametrize(
    ("capacity_type", "quota", "code"),
    [
        ("spot", "L-3819A6DF", "MaxSpotInstanceCountExceeded"),
        ("on-demand", "L-DB2E81BA", "VcpuLimitExceeded"),
    ],
)
def test_a_full_quota_stops_its_own_class_only(capacity_type: str, quota: str, code: str) -> None:
    limits: dict[str, float] = {"L-3819A6DF": 400, "L-DB2E81BA": 400, quota: 8}
    world = a_world(quota=limits)
    answer = world.fleet(target=3, capacity_type=capacity_type)
    assert len(answer["Instances"][0]["InstanceIds"]) == 2
    assert _codes(answer) == [("g6.xlarge", code)]

    other = "on-demand" if capacity_type == "spot" else "spot"
    assert world.launch(capacity_type=other)


def test_an_instance_counts_against_its_quota_until_terminated() -> None:
    world = a_world(quota={"L-3819A6DF": 4})
    first = world.launch()
    world.wait(5)
    world.ec2.terminate_instances(InstanceIds=[first])
    assert _codes(world.fleet()) == [("g6.xlarge", "MaxSpotInstanceCountExceeded")]

    world.wait(2)
    assert world.launch()


def test_the_same_token_repeats_the_answer_and_launches_nothing() -> None:
    world = a_world()
    first = world.fleet(ClientToken="t-1")
    again = world.fleet(ClientToken="t-1")
    assert again["FleetId"] == first["FleetId"]
    assert again["Instances"] == first["Instances"]
    assert len(world.market.instances()) == 1


def test_the_same_token_repeats_a_failure_despite_new_capacity() -> None:
    world = a_world(DRY_G6)
    world.fleet(ClientToken="t-1")
    world.wait(31)
    assert world.fleet(ClientToken="t-1")["Instances"] == []


def test_the_same_token_with_other_parameters_is_a_mismatch() -> None:
    world = a_world()
    world.fleet(ClientToken="t-1")
    with refused("IdempotentParameterMismatch"):
        world.fleet(an_override("g5.xlarge"), ClientToken="t-1")
    assert len(world.market.instances()) == 1


def test_tags_come_from_template_and_call_and_ec2_adds_its_own() -> None:
    world = a_world()
    tags = [{"Key": "tier", "Value": "call"}, {"Key": "launch", "Value": "7"}]
    answer = world.fleet(
        TagSpecifications=[
            {"ResourceType": "instance", "Tags": tags},
        ]
    )
    instance = world.market.find(answer["Instances"][0]["InstanceIds"][0])
    assert instance is not None
    assert instance.tags == {
        "project": "spindown",
        "tier": "call",
        "launch": "7",
        "aws:ec2:fleet-id": answer["FleetId"],
        "aws:ec2launchtemplate:id": TEMPLATE_ID,
        "aws:ec2launchtemplate:version": "3",
    }


def test_tags_for_a_spot_request_stop_an_on_demand_launch() -> None:
    template = LaunchTemplate(
        template_id=TEMPLATE_ID, version="3", image_id="ami-0123", spot_request_tags={"bill": "7"}
    )
    world = a_world(template=template)

    answer = world.fleet(capacity_type="on-demand")

    assert answer["Instances"] == []
    assert _codes(answer) == [("g6.xlarge", "InvalidParameterValue")]
    assert world.launch()


def test_an_answer_names_zone_subnet_and_override_as_sent() -> None:
    sent = an_override("g6.xlarge", "b", AvailabilityZone="us-east-1b", Priority=1.0)
    instance = a_world().fleet(sent)["Instances"][0]
    assert instance["AvailabilityZone"] == "us-east-1b"
    assert instance["SubnetId"] == "subnet-b"
    assert instance["Lifecycle"] == "spot"
    assert instance["LaunchTemplateAndOverrides"] == {
        "LaunchTemplateSpecification": {"LaunchTemplateId": TEMPLATE_ID, "Version": "3"},
        "Overrides": sent,
    }


def test_an_override_may_name_a_zone_with_a_default_subnet() -> None:
    override = {"InstanceType": "g6.xlarge", "AvailabilityZone": "us-east-1b"}
    assert a_world().fleet(override)["Instances"][0]["SubnetId"] == "subnet-b"


@pytest.mark.parametrize(
    ("code", "overrides", "changes"),
    [
        pytest.param(
            "InvalidFleetConfig",
            [an_override(), an_override("g5.xlarge", "a2")],
            {},
            id="two-subnets",
        ),
        pytest.param("InvalidFleetConfig", [an_override(), an_override()], {}, id="same-pool"),
        pytest.param(
            "InvalidFleetConfig", [an_override(AvailabilityZone="us-east-1b")], {}, id="other-zone"
        ),
        pytest.param("InvalidParameterValue", [an_override("zz9.huge")], {}, id="unknown-type"),
        pytest.param("InvalidParameterValue", [an_override(MaxPrice="0")], {}, id="max-price-zero"),
        pytest.param("InvalidSubnetID.NotFound", [an_override(zone="q")], {}, id="no-subnet"),
        pytest.param("InvalidParameterValue", [], {"target": 0}, id="no-target"),
        pytest.param("UnsupportedOperation", [], {"Type": "maintain"}, id="maintain"),
        pytest.param(
            "UnsupportedOperation", [an_override(WeightedCapacity=2.0)], {}, id="not-modelled"
        ),
        pytest.param(
            "InvalidFleetConfig",
            [],
            {"SpotOptions": {"InstanceInterruptionBehavior": "stop"}},
            id="stop-at-interruption",
        ),
        pytest.param(
            "InvalidParameterValue",
            [],
            {
                "TagSpecifications": [
                    {"ResourceType": "instance", "Tags": [{"Key": "aws:x", "Value": "y"}]}
                ]
            },
            id="reserved-tag",
        ),
        pytest.param("DryRunOperation", [], {"DryRun": True}, id="dry-run"),
        pytest.param(
            "InvalidParameterValue",
            [],
            {"SpotOptions": {"AllocationStrategy": "cheapest"}},
            id="unknown-strategy",
        ),
    ],
)
def test_refuses_a_fleet_as_a_whole(
    code: str, overrides: list[dict[str, Any]], changes: dict[str, Any]
) -> None:
    world = a_world()
    with refused(code):
        world.fleet(*overrides, **changes)
    assert world.market.instances() == ()


def test_a_launch_template_needs_its_version_and_must_exist() -> None:
    world = a_world()
    for specification, code in [
        ({"LaunchTemplateId": TEMPLATE_ID}, "MissingParameter"),
        (
            {"LaunchTemplateId": "lt-00000000000000000", "Version": "1"},
            "InvalidLaunchTemplateId.NotFound",
        ),
        ({"Version": "1"}, "InvalidLaunchTemplate"),
    ]:
        with refused(code):
            world.fleet(
                LaunchTemplateConfigs=[
                    {"LaunchTemplateSpecification": specification, "Overrides": [an_override()]}
                ]
            )


def _instance(**changes: Any) -> dict[str, Any]:
    return {
        "MinCount": 1,
        "MaxCount": 1,
        "InstanceType": "g6.xlarge",
        "SubnetId": "subnet-a",
        "LaunchTemplate": {"LaunchTemplateId": TEMPLATE_ID, "Version": "3"},
        "InstanceMarketOptions": {"MarketType": "spot"},
        "DryRun": True,
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({}, "DryRunOperation"),
        ({"InstanceType": "zz9.huge"}, "InvalidParameterValue"),
        ({"SubnetId": "subnet-z"}, "InvalidSubnetID.NotFound"),
        (
            {"LaunchTemplate": {"LaunchTemplateId": "lt-00000000000000000", "Version": "3"}},
            "InvalidLaunchTemplateId.NotFound",
        ),
        ({"DryRun": False}, "UnsupportedOperation"),
    ],
)
def test_of_one_instance_it_only_checks_the_launch(changes: dict[str, Any], code: str) -> None:
    world = a_world()
    with refused(code):
        world.ec2.run_instances(**_instance(**changes))
    assert world.market.instances() == ()
