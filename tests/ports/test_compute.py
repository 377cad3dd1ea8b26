"""What every Compute promises, on EC2 as in memory."""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

import boto3
import pytest

from spindown.aws.wiring import Aws
from spindown.contract.settings import TemplateRef
from spindown.domain.offer import CapacityType, InstanceType
from spindown.error import NotFound
from spindown.memory import MemoryClock, MemoryCompute, MemoryMarket
from spindown.port import Compute, LaunchOverride, LaunchRequest

REGION = "us-east-1"
SPOT, ON_DEMAND = CapacityType.SPOT, CapacityType.ON_DEMAND
NOWHERE = "i-0fffffffffffffff0"

_tokens = (f"token-{number}" for number in itertools.count())


@dataclass
class World:
    compute: Compute
    template: TemplateRef
    subnets: Mapping[str, str]


def _in_memory(clock: MemoryClock) -> World:
    subnets = {"us-east-1a": "subnet-a", "us-east-1b": "subnet-b"}
    market = MemoryMarket(clock)
    for name in ("g4dn.xlarge", "g6.xlarge"):
        market.offer(
            InstanceType(name=name, vcpus=4, memory_mib=16384, architecture="x86_64"),
            region=REGION,
            zones=subnets,
            on_demand=1.0,
            spot=0.4,
        )
    compute = MemoryCompute(
        clock,
        market,
        ending=timedelta(minutes=1),
        template_tags={"lt-1": {"spindown:workload": "ocr"}},
    )
    return World(compute, TemplateRef(id="lt-1", version="3"), subnets)


def _on_ec2(session: boto3.Session, aws: Aws) -> World:
    client = session.client("ec2")
    made = client.create_launch_template(
        LaunchTemplateName=f"workers-{next(_tokens)}",
        LaunchTemplateData={
            "ImageId": "ami-12c6146b",
            "TagSpecifications": [
                {
                    "ResourceType": "instance",
                    "Tags": [{"Key": "spindown:workload", "Value": "ocr"}],
                }
            ],
        },
    )
    subnets = {
        subnet["AvailabilityZone"]: subnet["SubnetId"]
        for subnet in client.describe_subnets()["Subnets"]
    }
    template = TemplateRef(id=made["LaunchTemplate"]["LaunchTemplateId"], version="1")
    return World(aws.compute(), template, subnets)


@pytest.fixture(params=["memory", "ec2"])
def world(request: pytest.FixtureRequest) -> World:
    fixture = request.getfixturevalue
    make: dict[str, Callable[[], World]] = {
        "memory": lambda: _in_memory(fixture("clock")),
        "ec2": lambda: _on_ec2(fixture("session"), fixture("aws")),
    }
    return make[str(request.param)]()


def _request(
    world: World, *, capacity_type: CapacityType = SPOT, count: int = 1, launch: str = "l-1"
) -> LaunchRequest:
    return LaunchRequest(
        client_token=next(_tokens),
        region=REGION,
        template=world.template,
        capacity_type=capacity_type,
        overrides=tuple(
            LaunchOverride(instance_type=name, zone=zone, subnet_id=world.subnets[zone])
            for name, zone in (("g6.xlarge", "us-east-1b"), ("g4dn.xlarge", "us-east-1a"))
        ),
        count=count,
        tags={"spindown:launch": launch},
    )


@pytest.mark.parametrize("capacity_type", CapacityType)
def test_launches_the_first_override_that_has_capacity(
    world: World, capacity_type: CapacityType
) -> None:
    answer = world.compute.launch(_request(world, capacity_type=capacity_type))

    (given,) = answer.instances
    assert answer.refusals == ()
    assert (given.instance_type, given.zone) == ("g6.xlarge", "us-east-1b")
    assert given.capacity_type is capacity_type


def test_describes_what_it_launched(world: World) -> None:
    (given,) = world.compute.launch(_request(world, launch="l-described")).instances
    seen = world.compute.instance(region=REGION, instance_id=given.instance_id)

    assert (seen.instance_type, seen.region, seen.zone) == ("g6.xlarge", REGION, "us-east-1b")
    assert seen.capacity_type is SPOT
    assert seen.state in {"pending", "running"}
    assert seen.launched_at.tzinfo is not None
    assert (
        seen.tags.items()
        >= {
            "spindown:workload": "ocr",
            "spindown:launch": "l-described",
        }.items()
    )


def test_tells_on_demand_from_spot(world: World) -> None:
    (given,) = world.compute.launch(_request(world, capacity_type=ON_DEMAND)).instances

    seen = world.compute.instance(region=REGION, instance_id=given.instance_id)
    assert seen.capacity_type is ON_DEMAND


def test_launches_several_at_once(world: World) -> None:
    answer = world.compute.launch(_request(world, count=3))

    assert len({given.instance_id for given in answer.instances}) == 3


def test_finds_instances_by_all_of_their_tags(world: World) -> None:
    tags = {"spindown:workload": "ocr", "spindown:launch": "l-found"}
    launched = world.compute.launch(_request(world, count=2, launch="l-found")).instances
    world.compute.launch(_request(world, launch="l-other"))
    found = world.compute.instances(region=REGION, tags=tags)

    assert {seen.instance_id for seen in found} == {given.instance_id for given in launched}
    assert not world.compute.instances(region=REGION, tags={**tags, "spindown:workload": "x"})
    assert not world.compute.instances(region="eu-west-1", tags=tags)


def test_describes_by_id_whatever_else_is_asked(world: World) -> None:
    launched = world.compute.launch(_request(world, count=2)).instances
    ids = {given.instance_id for given in launched}
    found = world.compute.described(region=REGION, instance_ids=[*ids, NOWHERE])

    assert {seen.instance_id for seen in found} == ids
    assert not world.compute.described(region="eu-west-1", instance_ids=[*ids])
    assert not world.compute.described(region=REGION, instance_ids=[])


def test_an_instance_that_never_was_is_not_found(world: World) -> None:
    with pytest.raises(NotFound):
        world.compute.instance(region=REGION, instance_id=NOWHERE)


def test_terminates_what_is_there_whatever_else_is_asked(world: World) -> None:
    launched = world.compute.launch(_request(world, count=2)).instances
    ids = [given.instance_id for given in launched]
    said = dict(world.compute.terminate(region=REGION, instance_ids=[ids[0], NOWHERE, ids[1]]))
    assert said.keys() == {*ids, NOWHERE}
    assert said.pop(NOWHERE) == ""
    assert {*said.values()} <= {"shutting-down", "terminated"}
    said = dict(world.compute.terminate(region=REGION, instance_ids=ids))
    assert said.keys() == {*ids}
    assert {*said.values()} <= {"shutting-down", "terminated"}
    assert world.compute.terminate(region=REGION, instance_ids=[NOWHERE]) == {NOWHERE: ""}
    assert world.compute.terminate(region=REGION, instance_ids=[]) == {}

    for instance_id in ids:
        seen = world.compute.instance(region=REGION, instance_id=instance_id)
        assert seen.state in {"shutting-down", "terminated"}
        assert seen.state_reason == "Client.UserInitiatedShutdown"


def test_takes_nothing_away_by_itself(world: World) -> None:
    (given,) = world.compute.launch(_request(world)).instances

    assert (
        world.compute.reclaimed(region=REGION, instance_ids=[given.instance_id, NOWHERE])
        == frozenset()
    )
    assert world.compute.reclaimed(region=REGION, instance_ids=[]) == frozenset()


def test_a_template_that_is_not_there_refuses_the_whole_request(world: World) -> None:
    world.template = TemplateRef(id="lt-0123456789abcdef0", version="1")
    answer = world.compute.launch(_request(world))

    assert answer.instances == ()
    (refusal,) = answer.refusals
    assert refusal.kind == "account"
    assert refusal.code == "InvalidLaunchTemplateId.NotFound"
    assert (refusal.instance_type, refusal.zone) == (None, None)


def test_an_instance_and_its_fleet_on_ec2_bear_their_tags(session: boto3.Session, aws: Aws) -> None:
    world, client = _on_ec2(session, aws), session.client("ec2")
    tags = {"team": "vision", "cost:center": "12/34 Köln"}
    request = replace(_request(world, launch="l-tagged"), tags=tags)

    (given,) = world.compute.launch(request).instances

    found = client.describe_fleets()["Fleets"]
    fleets = [{one["Key"]: one["Value"] for one in each.get("Tags", ())} for each in found]
    (instance,) = client.describe_instances(InstanceIds=[given.instance_id])["Reservations"]
    assert tags in fleets
    (made,) = instance["Instances"]
    assert {one["Key"]: one["Value"] for one in made["Tags"]}.items() >= tags.items()


def _rehearsed(world: World) -> LaunchRequest:
    request = _request(world)
    return replace(request, overrides=request.overrides[:1])


def test_a_rehearsal_of_a_good_launch_is_not_refused(world: World) -> None:
    assert world.compute.rehearse(_rehearsed(world)) is None


@pytest.mark.parametrize("capacity_type", CapacityType)
def test_a_rehearsal_makes_no_instance(world: World, capacity_type: CapacityType) -> None:
    launch = f"l-rehearsed-{capacity_type}"
    request = replace(
        _rehearsed(world), capacity_type=capacity_type, tags={"spindown:launch": launch}
    )

    world.compute.rehearse(request)

    assert not world.compute.instances(region=REGION, tags={"spindown:launch": launch})
