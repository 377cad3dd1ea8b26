"""EC2 takes spot instances back: notices, events, the spot request, and what comes after."""

import json
from datetime import timedelta
from typing import Any

import pytest

from spindown.local.market.metadata import MetadataApp
from spindown.local.market.wire.asgi import call
from tests.local.market.world import World, a_world, an_override, asgi_scope, finished

WARNING = "EC2 Spot Instance Interruption Warning"
REBALANCE = "EC2 Instance Rebalance Recommendation"


def _rule(**keys: object) -> str:
    lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
    return "\n".join(["", "[[interruption]]", *lines, ""])


def _request(world: World, instance_id: str) -> dict[str, Any]:
    asked = [{"Name": "instance-id", "Values": [instance_id]}]
    found = world.ec2.describe_spot_instance_requests(Filters=asked)["SpotInstanceRequests"]
    request: dict[str, Any] = found[0]
    return request


def _metadata(world: World, instance_id: str, path: str) -> tuple[int, str]:
    app = MetadataApp(world.market)
    url = f"http://127.0.0.1/{instance_id}/latest/"
    ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    token = finished(call(app, asgi_scope("PUT", f"{url}api/token", ttl), b"")).body
    headers = {"X-aws-ec2-metadata-token": token}
    answer = finished(call(app, asgi_scope("GET", f"{url}meta-data/{path}", headers), b""))
    return answer.status, answer.body.decode()


def test_a_notice_reaches_bus_metadata_and_request_then_it_ends() -> None:
    world = a_world(_rule(after="10s", notice="8s"))
    instance_id = world.launch()
    world.wait(10)
    assert world.events.of(WARNING) == []
    assert _metadata(world, instance_id, "spot/instance-action")[0] == 404
    assert _request(world, instance_id)["Status"]["Code"] == "fulfilled"

    world.wait(1)
    assert world.events.of(WARNING) == [
        {"instance-id": instance_id, "instance-action": "terminate"}
    ]
    status, body = _metadata(world, instance_id, "spot/instance-action")
    assert status == 200
    assert json.loads(body) == {"action": "terminate", "time": "2026-03-01T12:00:19Z"}
    assert _metadata(world, instance_id, "spot/termination-time")[1] == "2026-03-01T12:00:19Z"
    assert _request(world, instance_id)["Status"]["Code"] == "instance-terminated-no-capacity"
    assert world.state(instance_id) == "running"
    assert ("stop", instance_id) not in world.guests.calls

    world.wait(8)
    assert world.state(instance_id) == "shutting-down"
    assert ("stop", instance_id) in world.guests.calls
    described = world.ec2.describe_instances(InstanceIds=[instance_id])
    reason = described["Reservations"][0]["Instances"][0]["StateReason"]["Code"]
    assert reason == "Server.SpotInstanceTermination"
    assert _request(world, instance_id)["State"] == "closed"


def test_without_notice_only_the_state_change_tells() -> None:
    world = a_world(_rule(after="10s", notice="0s"))
    instance_id = world.launch()
    world.wait(11)
    assert world.events.of(WARNING) == []
    assert world.state(instance_id) == "shutting-down"
    states = [one["state"] for one in world.events.of("EC2 Instance State-change Notification")]
    assert states == ["pending", "running", "shutting-down"]


def test_a_lost_event_leaves_the_metadata() -> None:
    world = a_world(_rule(after="10s", event=False))
    instance_id = world.launch()
    world.wait(12)
    assert world.events.of(WARNING) == []
    assert _metadata(world, instance_id, "spot/instance-action")[0] == 200


def test_a_rebalance_recommendation_comes_before_the_notice() -> None:
    world = a_world(_rule(after="30s", rebalance="10s"))
    instance_id = world.launch()
    world.wait(21)
    assert world.events.of(REBALANCE) == [{"instance-id": instance_id}]
    assert world.events.of(WARNING) == []
    path = "events/recommendations/rebalance"
    assert json.loads(_metadata(world, instance_id, path)[1]) == {
        "noticeTime": "2026-03-01T12:00:21Z"
    }


def test_only_the_nth_launch_is_meant() -> None:
    world = a_world(_rule(nth=2, after="5s", notice="0s"))
    first, second, third = (world.launch() for _ in range(3))
    world.wait(20)
    assert [world.state(one) for one in (first, second, third)] == [
        "running",
        "terminated",
        "running",
    ]


def test_a_rule_at_a_time_takes_the_oldest_of_its_pools() -> None:
    world = a_world(_rule(at="20s", type="g6.*", count=1, notice="0s"))
    other = world.launch(an_override("g5.xlarge"))
    old = world.launch()
    world.wait(5)
    young = world.launch()
    world.wait(20)
    states = {one: world.state(one) for one in (other, old, young)}
    assert states == {other: "running", old: "terminated", young: "running"}


def test_on_demand_instances_are_never_taken() -> None:
    world = a_world(_rule(rate_per_hour=3600.0, notice="0s"))
    spot, kept = world.launch(), world.launch(capacity_type="on-demand")
    world.wait(60)
    assert (world.state(spot), world.state(kept)) == ("terminated", "running")


def test_random_interruptions_come_at_about_their_rate() -> None:
    world = a_world(_rule(rate_per_hour=60.0, notice="0s"))
    for _ in range(80):
        world.launch()
    world.wait(61)
    taken = sum(not one.state.is_alive for one in world.market.instances())
    # 80 instances at one a minute each: 80 * (1 - 1/e) = 51 within the minute, give or take.
    assert 38 <= taken <= 64


def test_a_pool_stays_dry_for_a_while_after_a_reclaim() -> None:
    world = a_world(_rule(after="5s", notice="0s", dry_for="30s"))
    world.launch()
    world.wait(7)
    assert world.fleet()["Instances"] == []
    assert world.fleet(an_override("g6.xlarge", "b"))["Instances"] != []
    world.wait(30)
    assert world.fleet()["Instances"] != []


def test_a_price_above_the_maximum_takes_the_instance() -> None:
    world = a_world('\n[[price]]\nat = "10s"\ntype = "g6.*"\nspot = 0.5\n')
    cautious = world.launch(an_override(MaxPrice="0.4"))
    careless = world.launch(an_override())
    world.wait(11)
    assert _request(world, cautious)["Status"]["Code"] == "marked-for-termination"
    world.wait(120)
    assert _request(world, cautious)["Status"]["Code"] == "instance-terminated-by-price"
    assert world.state(careless) == "running"


def test_a_guest_that_powers_off_after_the_notice_ended_itself() -> None:
    world = a_world(_rule(after="10s"))
    instance_id = world.launch()
    world.wait(15)
    world.market.guest_powered_off(instance_id)
    world.wait(300)
    found = world.market.find(instance_id)
    assert found is not None
    assert found.reason == "Client.InstanceInitiatedShutdown"


@pytest.mark.parametrize("notice_seconds", [0, 30])
def test_an_instance_can_be_taken_by_hand(notice_seconds: int) -> None:
    world = a_world()
    instance_id = world.launch()
    world.wait(5)
    world.market.interrupt(instance_id, notice=timedelta(seconds=notice_seconds))
    assert len(world.events.of(WARNING)) == (1 if notice_seconds else 0)
    world.wait(notice_seconds + 2)
    assert world.state(instance_id) == "terminated"


def test_a_pool_stays_dry_after_its_instance_is_taken_by_hand() -> None:
    world = a_world()
    instance_id = world.launch()
    world.market.interrupt(instance_id, notice=timedelta(0), dry_for=timedelta(seconds=30))
    world.wait(2)
    assert world.fleet()["Instances"] == []
    world.wait(30)
    assert world.fleet()["Instances"] != []


def test_a_second_strike_does_not_move_the_first_deadline() -> None:
    world = a_world()
    instance_id = world.launch()
    world.wait(5)
    world.market.interrupt(instance_id, notice=timedelta(seconds=30))
    world.market.interrupt(instance_id, notice=timedelta(seconds=300))
    assert len(world.events.of(WARNING)) == 1
    world.wait(31)
    assert world.state(instance_id) == "shutting-down"
