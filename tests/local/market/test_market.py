"""The market as its owner uses it: from several threads, with guests that answer back."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from spindown.domain.offer import CapacityType, Pool
from spindown.ec2sim import LaunchOrder, LaunchTemplate, Subnet
from spindown.local.market import LocalMarket, load_scenario
from spindown.local.market.market import NoGuests
from tests.local.market.world import START, World, a_world, an_override


def test_racing_callers_with_one_token_launch_once() -> None:
    world = a_world()
    with ThreadPoolExecutor(8) as callers:
        answers = list(callers.map(lambda _: world.fleet(ClientToken="t"), range(24)))
    assert len({answer["FleetId"] for answer in answers}) == 1
    assert len(world.market.instances()) == 1


def test_racing_callers_never_get_more_than_the_pool_holds() -> None:
    world = a_world('\n[[dry]]\ntype = "g6.xlarge"\ncapacity = 5\n')
    with ThreadPoolExecutor(8) as callers:
        answers = list(callers.map(lambda _: world.fleet(), range(24)))
    assert sum(bool(answer["Instances"]) for answer in answers) == 5


class _Suicidal(NoGuests):
    """A guest that powers off the moment it starts, in the market's own call."""

    market: LocalMarket

    def __init__(self) -> None:
        self.calls: list[str] = []

    def start(self, instance_id: str, *, speed: float) -> None:
        self.calls.append("start")
        self.market.guest_powered_off(instance_id)

    def stop(self, instance_id: str) -> None:
        self.calls.append("stop")


def test_a_guest_may_power_off_from_within_its_start() -> None:
    now = [START]
    driver = _Suicidal()
    market = LocalMarket(load_scenario("demo"), clock=lambda: now[0], driver=driver)
    driver.market = market
    zone = "us-east-1a"
    order = LaunchOrder(
        pool=Pool(instance_type="g6.xlarge", zone=zone, capacity_type=CapacityType.ON_DEMAND),
        region="us-east-1",
        subnet=Subnet(subnet_id="subnet-1", vpc_id="vpc-1", zone=zone),
        template=LaunchTemplate(template_id="lt-1", version="1", shutdown_behaviour="terminate"),
        image_id="ami-1",
    )
    market.create_fleet([order], count=1, region=order.region, request=None, token="", tags={})
    now[0] += timedelta(seconds=30)
    market.run_due()
    (instance,) = market.instances()
    assert instance.state == "shutting-down"
    assert driver.calls == ["start", "stop"]


def test_what_falls_due_together_happens_in_order_of_time() -> None:
    world = a_world('\n[[interruption]]\nafter = "10s"\nnotice = "5s"\n')
    world.launch()
    world.now += timedelta(minutes=10)
    world.market.run_due()
    told = [event["detail"].get("state", event["detail-type"]) for event in world.events.seen]
    assert told == [
        "pending",
        "running",
        "EC2 Spot Instance Interruption Warning",
        "shutting-down",
        "terminated",
    ]
    (instance,) = world.market.instances()
    assert instance.ended_at == START + timedelta(seconds=16)
    assert [call for call, _ in world.guests.calls] == ["start", "stop"]


def test_a_market_opened_anew_gives_new_ids() -> None:
    first, second = a_world(), a_world()
    second.now += timedelta(seconds=1)
    later = LocalMarket(second.market.scenario, clock=lambda: second.now)
    assert first.market.new_id("i") == second.market.new_id("i")
    assert later.new_id("i") != a_world().market.new_id("i")


def test_a_storm_breaks_no_rule_of_ec2() -> None:
    world = World(load_scenario("storm").model_copy(update={"fault": (), "api_rate": None}))
    types = ("g4dn.xlarge", "g5.xlarge", "g6.xlarge")
    for _ in range(60):
        world.fleet(*(an_override(name) for name in types), target=2)
        world.wait(10)
        counted = [one for one in world.market.instances() if one.state != "terminated"]
        assert sum(one.hardware.vcpus for one in counted) <= 24
    starts = [name for verb, name in world.guests.calls if verb == "start"]
    stops = [name for verb, name in world.guests.calls if verb == "stop"]
    assert len(set(starts)) == len(starts) > 20
    assert len(set(stops)) == len(stops)
    for line in world.market.bill():
        instance = world.market.find(line.instance_id)
        assert instance is not None
        has_run = instance.runs_at < (instance.ended_at or world.now)
        assert (line.dollars == 0) == (line.is_free or not has_run)
