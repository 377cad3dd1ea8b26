"""Instances after their launch: describing, ending, tags, guests."""

from datetime import timedelta

import pytest

from spindown.ec2sim import LaunchTemplate
from spindown.local.market.scenario import Ec2Delays
from tests.local.market.world import TEMPLATE_ID, World, a_world, an_override, refused


def _ids(world: World, *filters: tuple[str, list[str]]) -> set[str]:
    asked = [{"Name": name, "Values": values} for name, values in filters]
    pages = world.ec2.get_paginator("describe_instances").paginate(Filters=asked)
    return {
        instance["InstanceId"]
        for page in pages
        for reservation in page["Reservations"]
        for instance in reservation["Instances"]
    }


def _reason(world: World, instance_id: str) -> str:
    answer = world.ec2.describe_instances(InstanceIds=[instance_id])
    reason: str = answer["Reservations"][0]["Instances"][0]["StateReason"]["Code"]
    return reason


def test_goes_through_the_states_of_ec2_in_time_and_tells_each() -> None:
    world = a_world()
    instance_id = world.launch()
    seen = [world.state(instance_id)]
    for _ in range(2):
        world.wait(1)
        seen.append(world.state(instance_id))
    world.ec2.terminate_instances(InstanceIds=[instance_id])
    seen.append(world.state(instance_id))
    world.wait(2)
    seen.append(world.state(instance_id))

    assert seen == ["pending", "running", "running", "shutting-down", "terminated"]
    assert world.events.of("EC2 Instance State-change Notification") == [
        {"instance-id": instance_id, "state": state}
        for state in ("pending", "running", "shutting-down", "terminated")
    ]
    assert world.events.seen[0]["resources"] == [
        f"arn:aws:ec2:us-east-1:111111111111:instance/{instance_id}"
    ]


def test_the_guest_starts_after_the_boot_and_is_stopped_once() -> None:
    world = a_world()
    instance_id = world.launch()
    world.wait(3)
    assert world.guests.calls == []
    world.wait(1)
    assert world.guests.calls == [("start", instance_id)]
    world.ec2.terminate_instances(InstanceIds=[instance_id])
    world.ec2.terminate_instances(InstanceIds=[instance_id])
    assert world.guests.calls == [("start", instance_id), ("stop", instance_id)]


def test_a_guest_that_was_ended_while_booting_never_starts() -> None:
    world = a_world()
    instance_id = world.launch()
    world.wait(2)
    world.ec2.terminate_instances(InstanceIds=[instance_id])
    world.wait(60)
    assert world.guests.calls == [("stop", instance_id)]


def test_the_driver_is_given_what_it_needs_to_run_the_guest() -> None:
    world = a_world()
    instance_id = world.launch(an_override("g6.xlarge"))
    world.wait(5)
    assert world.guests.started == {instance_id: 0.5}
    instance = world.market.find(instance_id)
    assert instance is not None
    gpu = instance.hardware
    assert (gpu.gpu_name, gpu.gpu_count, gpu.vcpus) == ("L4", 1, 4)
    assert instance.order.user_data == b"#!/bin/sh\n"
    assert instance.price_per_hour == 0.32


def test_filters_by_state_tag_lifecycle_and_wildcard() -> None:
    world = a_world()
    spot = world.launch(an_override("g6.xlarge"))
    on_demand = world.launch(an_override("g5.xlarge"), capacity_type="on-demand")
    world.wait(2)
    world.ec2.terminate_instances(InstanceIds=[on_demand])
    world.wait(5)

    assert _ids(world) == {spot, on_demand}
    assert _ids(world, ("instance-state-name", ["pending", "running"])) == {spot}
    assert _ids(world, ("tag:project", ["spin*"])) == {spot, on_demand}
    assert _ids(world, ("tag:project", ["other"])) == set()
    assert _ids(world, ("tag-key", ["tier"]), ("instance-id", [spot])) == {spot}
    assert _ids(world, ("instance-lifecycle", ["spot"])) == {spot}
    assert _ids(world, ("instance-type", ["g5.*"])) == {on_demand}
    with refused("InvalidParameterValue"):
        _ids(world, ("colour", ["red"]))


def test_describes_page_by_page() -> None:
    world = a_world()
    for _ in range(7):
        world.launch()
    pager = world.ec2.get_paginator("describe_instances")
    sizes = [
        sum(len(one["Instances"]) for one in page["Reservations"])
        for page in pager.paginate(PaginationConfig={"PageSize": 5})
    ]
    assert sizes == [5, 2]
    with refused("InvalidPaginationToken"):
        world.ec2.describe_instances(NextToken="mine")


def test_one_unknown_id_fails_the_whole_batch() -> None:
    world = a_world()
    instance_id = world.launch()
    with refused("InvalidInstanceID.NotFound"):
        world.ec2.terminate_instances(InstanceIds=[instance_id, "i-00000000000000000"])
    with refused("InvalidInstanceID.Malformed"):
        world.ec2.describe_instances(InstanceIds=["g6.xlarge"])
    assert world.state(instance_id) == "pending"


def test_a_terminated_instance_is_shown_for_an_hour() -> None:
    world = a_world()
    instance_id = world.launch()
    world.ec2.terminate_instances(InstanceIds=[instance_id])
    world.wait(3600)
    assert _ids(world) == {instance_id}
    world.wait(3)
    assert _ids(world) == set()
    with refused("InvalidInstanceID.NotFound"):
        world.ec2.terminate_instances(InstanceIds=[instance_id])


def test_a_new_instance_may_be_unknown_for_a_moment() -> None:
    world = a_world(delay=Ec2Delays(visible=timedelta(seconds=3)))
    instance_id = world.launch()
    with refused("InvalidInstanceID.NotFound"):
        world.ec2.describe_instances(InstanceIds=[instance_id])
    world.wait(3)
    assert _ids(world) == {instance_id}


@pytest.mark.parametrize(
    ("behaviour", "capacity_type", "end"),
    [
        ("terminate", "spot", "terminated"),
        ("terminate", "on-demand", "terminated"),
        pytest.param("stop", "spot", "terminated", id="one-time-spot-cannot-stop"),
        ("stop", "on-demand", "stopped"),
    ],
)
def test_poweroff_does_what_the_launch_template_says(
    behaviour: str, capacity_type: str, end: str
) -> None:
    template = LaunchTemplate(
        template_id=TEMPLATE_ID, version="3", image_id="ami-1", shutdown_behaviour=behaviour
    )
    world = a_world(template=template)
    instance_id = world.launch(capacity_type=capacity_type)
    world.wait(10)
    world.market.guest_powered_off(instance_id)
    assert _reason(world, instance_id) == "Client.InstanceInitiatedShutdown"
    world.wait(2)
    assert world.state(instance_id) == end
    assert ("stop", instance_id) in world.guests.calls


def test_the_reason_tells_who_ended_it() -> None:
    world = a_world()
    instance_id = world.launch()
    world.wait(5)
    world.ec2.terminate_instances(InstanceIds=[instance_id])
    world.market.guest_powered_off(instance_id)
    assert _reason(world, instance_id) == "Client.UserInitiatedShutdown"


def test_the_console_shows_what_the_guest_printed() -> None:
    world = a_world()
    instance_id = world.launch()
    output = world.ec2.get_console_output(InstanceId=instance_id)["Output"]
    assert output == f"guest of {instance_id} says hello\n"


def test_instances_of_another_region_are_not_there() -> None:
    world = a_world()
    instance_id = world.launch()
    elsewhere = world.client("ec2", "us-west-2")
    assert elsewhere.describe_instances()["Reservations"] == []
    with refused("InvalidInstanceID.NotFound"):
        elsewhere.terminate_instances(InstanceIds=[instance_id])


def test_what_starts_or_stops_instances_otherwise_is_refused() -> None:
    world = a_world()
    with refused("UnsupportedOperation"):
        world.ec2.stop_instances(InstanceIds=[world.launch()])
    with refused("UnsupportedOperation"):
        world.ec2.run_instances(MinCount=1, MaxCount=1, InstanceType="g6.xlarge", ImageId="ami-1")
