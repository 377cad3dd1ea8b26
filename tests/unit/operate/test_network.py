"""Subnets of one's own: what their instances reach, and what they would need to."""

from dataclasses import replace
from typing import Any

import pytest

from spindown.error import AccessDenied
from spindown.operate.doctor.finding import Finding, Severity
from spindown.port import SubnetView, SubnetWay
from tests.unit.operate.examined import IMAGE, REGION, ZONES, Examined, a_config, subnet_of

ALWAYS = {"s3", "dynamodb", "sqs", "logs", "events"}
#: Nothing but its VPC.
CLOSED = SubnetWay(
    subnet_id=subnet_of(ZONES[0]), is_public=False, default_route="", endpoints=frozenset()
)


def examined(way: SubnetWay, *, is_deployed: bool = True, **workload: Any) -> Examined:
    """Return an examination of a network whose first subnet has this way out."""
    config = a_config(**workload)
    subnets = {zone: subnet_of(zone) for zone in ZONES}
    config["deployment"]["network"] = {"vpc_id": "vpc-1", "subnets": subnets}
    world = Examined(config=config, is_deployed=is_deployed)
    world.account.ways[REGION, way.subnet_id] = way
    return world


def told(world: Examined) -> Finding:
    return world.finding(f"way out of {CLOSED.subnet_id}")


def found(way: SubnetWay, **workload: Any) -> Finding:
    return told(examined(way, **workload))


@pytest.mark.parametrize(
    ("route", "is_public", "severity"),
    [
        ("igw-1", True, Severity.GOOD),
        ("igw-1", False, Severity.WARNING),
        ("nat-1", False, Severity.GOOD),
        ("tgw-1", False, Severity.GOOD),
        ("", True, Severity.WARNING),
    ],
)
def test_an_address_needs_a_gateway_and_a_gateway_an_address(
    route: str, *, is_public: bool, severity: Severity
) -> None:
    way = replace(CLOSED, default_route=route, is_public=is_public)

    assert found(way).severity is severity


def test_an_address_that_nobody_wants_is_a_fault() -> None:
    way = replace(CLOSED, default_route="igw-1", is_public=True)
    world = examined(way)
    what = f"addresses of {CLOSED.subnet_id}"
    assert what not in {one.what for one in world.report().findings}

    world.config["deployment"]["public_addresses"] = False

    assert world.finding(what).severity is Severity.BLOCKED


def test_endpoints_are_enough_for_an_image_that_holds_all() -> None:
    assert found(replace(CLOSED, endpoints=frozenset(ALWAYS))).severity is Severity.GOOD


@pytest.mark.parametrize("missing", sorted(ALWAYS))
def test_the_endpoint_that_is_missing_is_named(missing: str) -> None:
    finding = found(replace(CLOSED, endpoints=frozenset(ALWAYS - {missing})))

    assert finding.severity is Severity.WARNING
    assert missing in finding.found
    assert all(one in finding.needed for one in ALWAYS)


@pytest.mark.parametrize(
    ("run", "more"),
    [
        ({"secrets": {"TOKEN": "/hub/token"}}, {"ssm"}),
        ({"secrets": {"TOKEN": "hub/token"}}, {"secretsmanager"}),
        (
            {"image": "111122223333.dkr.ecr.us-west-2.amazonaws.com/box:1"},
            {"ecr.api", "ecr.dkr"},
        ),
    ],
)
def test_what_a_workload_uses_needs_endpoints_too(run: dict[str, Any], more: set[str]) -> None:
    code = {} if "image" in run else {"entrypoint": "job:run", "code": "."}
    finding = found(replace(CLOSED, endpoints=frozenset(ALWAYS)), run={**code, **run})

    assert finding.severity is Severity.WARNING
    assert all(one in finding.found for one in more)
    assert not any(f" {one}" in finding.found for one in ALWAYS)


def test_a_shell_on_workers_needs_endpoints_too() -> None:
    world = examined(replace(CLOSED, endpoints=frozenset(ALWAYS)))
    world.config["deployment"]["session_manager"] = True

    assert "ssmmessages" in told(world).found


@pytest.mark.parametrize(
    "workload",
    [
        {"image": {"mode": "bootstrap"}},
        {"image": {"mode": "bake"}},
        {"run": {"image": "docker.io/box:1"}},
    ],
)
def test_what_is_installed_or_pulled_needs_the_internet(workload: dict[str, Any]) -> None:
    finding = found(replace(CLOSED, endpoints=frozenset(ALWAYS)), **workload)

    assert finding.severity is Severity.BLOCKED
    assert "classify: " in finding.needed


def test_before_a_deploy_it_is_told_as_well() -> None:
    world = examined(CLOSED, is_deployed=False)

    assert told(world).severity is Severity.WARNING


def test_a_network_that_the_deploy_makes_has_all_it_needs() -> None:
    world = Examined()
    world.account.ways[REGION, CLOSED.subnet_id] = CLOSED

    assert not [one for one in world.report().findings if one.what.startswith("way out")]


@pytest.mark.parametrize("block", ["block-ingress", "block-bidirectional"])
@pytest.mark.parametrize(
    ("route", "severity"), [("igw-1", Severity.BLOCKED), ("nat-1", Severity.GOOD)]
)
def test_an_account_may_close_internet_gateways(block: str, route: str, severity: Severity) -> None:
    way = replace(CLOSED, default_route=route, is_public=True, gateway_block=block)

    finding = found(way, image={"mode": "bootstrap"})

    assert finding.severity is severity
    assert (block in finding.found) is (severity is Severity.BLOCKED)


def test_a_closed_gateway_of_a_made_network_is_told() -> None:
    world = Examined(config=a_config(image={"mode": "bootstrap"}))
    world.account.ways[REGION, CLOSED.subnet_id] = replace(
        CLOSED, is_public=True, default_route="igw-1", gateway_block="block-ingress"
    )

    assert told(world).severity is Severity.BLOCKED


@pytest.mark.parametrize(
    ("image", "egress", "is_told"),
    [
        ({"mode": "bootstrap"}, ["0.0.0.0/0:443"], True),
        ({"mode": "bake"}, ["0.0.0.0/0:443"], True),
        ({"mode": "ami", "parameters": {"x86_64": IMAGE}}, ["0.0.0.0/0:443"], False),
        ({"mode": "bootstrap"}, ["0.0.0.0/0:443", "10.1.0.0/16:80"], False),
        ({"mode": "bootstrap"}, [], False),
    ],
)
def test_installing_needs_the_port_of_the_packages(
    image: dict[str, Any], egress: list[str], *, is_told: bool
) -> None:
    world = examined(CLOSED, image=image)
    world.config["deployment"]["egress"] = egress

    findings = [one for one in world.report().findings if one.what.startswith("egress")]

    assert [one.severity for one in findings] == [Severity.WARNING] * is_told


def test_routes_that_may_not_be_read_stop_nothing() -> None:
    world = examined(CLOSED)
    world.account.faults["ways_out"] = AccessDenied("not you")

    assert world.finding("routes in").severity is Severity.WARNING


@pytest.mark.parametrize(
    ("route", "is_public", "severity"),
    [
        ("nat-1", False, Severity.GOOD),
        ("tgw-1", True, Severity.GOOD),
        ("igw-1", True, Severity.BLOCKED),
        ("", False, Severity.BLOCKED),
    ],
)
@pytest.mark.parametrize("is_deployed", [True, False])
def test_functions_need_a_way_out_that_takes_no_address(
    route: str, *, is_public: bool, severity: Severity, is_deployed: bool
) -> None:
    subnet = "subnet-0fac"
    world = examined(CLOSED, is_deployed=is_deployed)
    world.config["deployment"]["network"]["function_subnets"] = [subnet]
    way = replace(CLOSED, subnet_id=subnet, default_route=route, is_public=is_public)
    world.account.ways[REGION, subnet] = way

    (found,) = ways_told(world, subnet)
    assert found.severity is severity


def ways_told(world: Examined, subnet: str) -> list[Finding]:
    findings = [one for one in world.report().findings if one.what.startswith("way out")]
    return [one for one in findings if one.what.endswith(subnet)]


def test_routes_of_a_shared_subnet_stop_nothing() -> None:
    way = replace(CLOSED, default_route=None)
    world = examined(way, image={"mode": "bootstrap"})
    world.config["deployment"]["network"]["function_subnets"] = [way.subnet_id]

    found = ways_told(world, way.subnet_id)
    assert [one.severity for one in found] == [Severity.WARNING] * 2


@pytest.mark.parametrize("is_deployed", [True, False])
@pytest.mark.parametrize(
    ("free", "severity"),
    [(None, Severity.BLOCKED), (0, Severity.WARNING), (1, Severity.GOOD)],
    ids=["not there", "full", "has room"],
)
def test_functions_need_a_subnet_that_is_there(
    free: int | None, severity: Severity, *, is_deployed: bool
) -> None:
    world = examined(CLOSED, is_deployed=is_deployed)
    world.config["deployment"]["network"]["function_subnets"] = ["subnet-0fac"]
    if free is not None:
        world.account.networks[REGION, "subnet-0fac"] = SubnetView(
            subnet_id="subnet-0fac", zone=ZONES[0], free_addresses=free, vpc_id="vpc-1"
        )

    assert world.finding("functions' subnet subnet-0fac").severity is severity


def test_a_subnet_of_another_vpc_is_found() -> None:
    world = examined(CLOSED)
    assert not [one for one in world.report().findings if one.what.startswith("VPC of")]
    there = world.account.networks[REGION, CLOSED.subnet_id]
    world.account.networks[REGION, CLOSED.subnet_id] = replace(there, vpc_id="vpc-2")

    assert world.finding(f"VPC of {CLOSED.subnet_id}").severity is Severity.BLOCKED


def test_a_region_that_only_the_file_names_is_not_asked() -> None:
    world = examined(CLOSED)
    deployment = world.config["deployment"]
    deployment["network"]["function_subnets"] = ["subnet-0fac"]
    abroad = {"vpc_id": "vpc-2", "subnets": {"us-east-1a": "subnet-0b"}}
    deployment["outpost"] = {
        "us-east-1": {
            "zones": ["us-east-1a"],
            "network": {**abroad, "function_subnets": ["subnet-0c"]},
        }
    }

    assert not [one for one in world.report().findings if "subnet-0c" in one.what]
