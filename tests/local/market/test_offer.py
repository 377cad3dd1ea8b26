"""What could be bought: types, offerings, spot prices, list prices, quotas, over real clients."""

import json
from datetime import timedelta
from typing import Any

import pytest

from spindown.aws.advisor import parse_advice
from spindown.aws.market import Ec2Market
from spindown.domain.offer import Quota
from spindown.local.market.operation.offer import spot_advisor_data
from spindown.local.market.scenario import parse_scenario
from spindown.memory import MemoryClock
from tests.local.market.world import PLAIN, START, World, a_world, refused

MOVES = """
[[price]]
at = "60s"
type = "g6.xlarge"
zone = "us-east-1a"
spot = 0.40
[[price]]
at = "120s"
type = "g6.xlarge"
zone = "us-east-1a"
spot = 0.25
"""


def _prices(world: World, **asked: Any) -> list[tuple[str, str, str]]:
    pages = world.ec2.get_paginator("describe_spot_price_history").paginate(**asked)
    return [
        (row["InstanceType"], row["AvailabilityZone"], row["SpotPrice"])
        for page in pages
        for row in page["SpotPriceHistory"]
    ]


def test_start_time_now_gives_the_present_price_of_every_pool() -> None:
    world = a_world(MOVES)
    world.wait(90)
    found = _prices(world, StartTime=world.now, ProductDescriptions=["Linux/UNIX"])
    assert len(found) == 7
    assert ("g6.xlarge", "us-east-1a", "0.400000") in found
    assert ("g6.xlarge", "us-east-1b", "0.340000") in found


def test_history_holds_the_changes_since_start_and_one_before() -> None:
    world = a_world(MOVES)
    world.wait(150)
    asked = {"InstanceTypes": ["g6.xlarge"], "AvailabilityZone": "us-east-1a"}
    everything = _prices(world, StartTime=START + timedelta(seconds=30), **asked)
    assert [price for _, _, price in everything] == ["0.250000", "0.400000", "0.320000"]
    late = _prices(world, StartTime=START + timedelta(seconds=130), **asked)
    assert [price for _, _, price in late] == ["0.250000"]
    early = _prices(
        world,
        StartTime=START + timedelta(seconds=30),
        EndTime=START + timedelta(seconds=90),
        **asked,
    )
    assert [price for _, _, price in early] == ["0.400000", "0.320000"]


def test_history_never_tells_the_future() -> None:
    world = a_world(MOVES)
    world.wait(30)
    end = START + timedelta(hours=1)
    found = _prices(world, StartTime=START, EndTime=end, InstanceTypes=["g6.xlarge"])
    assert {price for _, _, price in found} == {"0.320000", "0.340000"}


def test_history_pages_and_ends_with_an_empty_token() -> None:
    world = a_world()
    first = world.ec2.describe_spot_price_history(MaxResults=5)
    assert len(first["SpotPriceHistory"]) == 5
    last = world.ec2.describe_spot_price_history(MaxResults=5, NextToken=first["NextToken"])
    assert len(last["SpotPriceHistory"]) == 2
    assert last["NextToken"] == ""


def test_other_products_and_filters_leave_prices_out() -> None:
    world = a_world()
    assert _prices(world, ProductDescriptions=["Windows"]) == []
    zone = [{"Name": "availability-zone", "Values": ["us-east-1b"]}]
    assert {zone for _, zone, _ in _prices(world, Filters=zone)} == {"us-east-1b"}


def test_a_walk_stays_in_bounds_and_repeats_from_its_seed() -> None:
    walk = '\n[walk]\nstep = "1m"\nvolatility = 0.5\nfloor = 0.2\nceiling = 0.9\n'
    histories = []
    for _ in range(2):
        world = a_world(walk)
        world.wait(1800)
        histories.append(_prices(world, StartTime=START, InstanceTypes=["g6.xlarge"]))
    assert histories[0] == histories[1]
    prices = [float(price) for _, _, price in histories[0]]
    assert len(set(prices)) > 10
    assert all(0.2 * 0.8048 - 1e-4 <= price <= 0.9 * 0.8048 + 1e-4 for price in prices)


def test_instance_types_are_real() -> None:
    world = a_world()
    types = world.ec2.describe_instance_types(InstanceTypes=["g6f.xlarge", "p5.4xlarge"])
    by_name = {one["InstanceType"]: one for one in types["InstanceTypes"]}
    assert by_name["p5.4xlarge"]["GpuInfo"]["Gpus"][0]["Name"] == "H100"
    assert by_name["g6f.xlarge"]["GpuInfo"]["Gpus"][0]["Count"] == 0
    with refused("InvalidInstanceType"):
        world.ec2.describe_instance_types(InstanceTypes=["zz9.huge"])


def test_instance_types_are_filtered_and_paged() -> None:
    filters = [
        {"Name": "instance-type", "Values": ["g5*"]},
        {"Name": "processor-info.supported-architecture", "Values": ["arm64"]},
        {"Name": "bare-metal", "Values": ["false"]},
    ]
    pager = a_world().ec2.get_paginator("describe_instance_types")
    pages = list(pager.paginate(Filters=filters, PaginationConfig={"PageSize": 5}))
    names = [one["InstanceType"] for page in pages for one in page["InstanceTypes"]]
    assert names == ["g5g.16xlarge", "g5g.2xlarge", "g5g.4xlarge", "g5g.8xlarge", "g5g.xlarge"]
    whole = pager.paginate(PaginationConfig={"PageSize": 100})
    assert sum(len(page["InstanceTypes"]) for page in whole) > 1000


def test_offerings_tell_the_zones() -> None:
    pager = a_world().ec2.get_paginator("describe_instance_type_offerings")
    filters = [{"Name": "instance-type", "Values": ["g7e.*"]}]
    pages = pager.paginate(LocationType="availability-zone", Filters=filters)
    zones = {one["Location"] for page in pages for one in page["InstanceTypeOfferings"]}
    assert zones == {"us-east-1a", "us-east-1c"}


def test_only_what_the_scenario_sells_is_offered() -> None:
    found = a_world().ec2.describe_instance_type_offerings(LocationType="region")
    names = {one["InstanceType"] for one in found["InstanceTypeOfferings"]}
    assert names == {"g4dn.xlarge", "g5.xlarge", "g6.xlarge", "g7e.2xlarge"}


def _careful_filters(**more: str) -> list[dict[str, str]]:
    wanted = {
        "regionCode": "us-east-1",
        "operatingSystem": "Linux",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        "tenancy": "Shared",
        "productFamily": "Compute Instance",
        **more,
    }
    return [{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in wanted.items()]


def _products(filters: list[dict[str, str]]) -> list[dict[str, Any]]:
    pager = a_world().client("pricing").get_paginator("get_products")
    pages = pager.paginate(
        ServiceCode="AmazonEC2", Filters=filters, PaginationConfig={"PageSize": 3}
    )
    return [json.loads(text) for page in pages for text in page["PriceList"]]


def _usd(product: dict[str, Any]) -> float:
    (term,) = product["terms"]["OnDemand"].values()
    (dimension,) = term["priceDimensions"].values()
    return float(dimension["pricePerUnit"]["USD"])


def test_careful_filters_find_one_price_for_each_type() -> None:
    prices = {
        one["product"]["attributes"]["instanceType"]: _usd(one)
        for one in _products(_careful_filters())
    }
    assert prices == {
        "g4dn.xlarge": 0.526,
        "g5.xlarge": 1.006,
        "g6.xlarge": 0.8048,
        "g7e.2xlarge": 3.363,
    }


def test_careless_filters_find_other_products_too() -> None:
    by_type = [{"Type": "TERM_MATCH", "Field": "instanceType", "Value": "g6.xlarge"}]
    assert min(_usd(one) for one in _products(by_type)) == 0
    assert len(_products(by_type)) > len(_products(_careful_filters(instanceType="g6.xlarge")))


def test_the_product_reads_prices_of_volumes_and_quotas_from_it() -> None:
    world = a_world(quota={"L-3819A6DF": 64})
    market = Ec2Market(
        lambda _: world.ec2,
        lambda: world.client("pricing"),
        lambda region: world.client("service-quotas", region),
        MemoryClock(START),
    )

    assert market.volume_price(region="us-east-1") == 0.08
    assert market.on_demand_prices(region="us-east-1")["g6.xlarge"] == 0.8048
    assert market.quotas(region="us-east-1")["G/Spot"] == Quota(code="L-3819A6DF", vcpus=64)
    assert market.quotas(region="us-east-1")["G/OnDemand"].vcpus == 0


RECLAIMS = """
[[interruption]]
type = "g5.*"
rate_per_hour = 0.0002
[[interruption]]
type = "g7e.*"
zone = "us-east-1a"
rate_per_hour = 0.5
"""


def test_the_advisor_s_file_tells_the_scenario_s_reclaim_rate() -> None:
    file = json.loads(spot_advisor_data(parse_scenario(PLAIN + RECLAIMS, origin="test")))

    shares = parse_advice(file, "us-east-1")

    # 1 - e^(-0.0002 x 730) = 13.6 % a month is in the bucket up to 16 %.
    assert shares == pytest.approx(
        {"g4dn.xlarge": 0.05, "g5.xlarge": 0.16, "g6.xlarge": 0.05, "g7e.2xlarge": 0.33}
    )
    assert file["spot_advisor"]["us-east-1"]["Linux"]["g4dn.xlarge"]["s"] == 60


def test_what_leaves_a_region_has_a_price_for_each_other_one() -> None:
    filters = [
        {"Type": "TERM_MATCH", "Field": "transferType", "Value": "InterRegion Outbound"},
        {"Type": "TERM_MATCH", "Field": "fromRegionCode", "Value": "us-west-2"},
    ]
    pricing = a_world(regions=["us-east-1", "us-west-2", "eu-west-1"]).client("pricing")

    answer = pricing.get_products(ServiceCode="AWSDataTransfer", Filters=filters)

    found = [json.loads(text) for text in answer["PriceList"]]
    others = [one["product"]["attributes"]["toRegionCode"] for one in found]
    assert sorted(others) == ["eu-west-1", "us-east-1"]
    assert {_usd(one) for one in found} == {0.02}


def test_prices_are_served_only_where_aws_serves_them() -> None:
    with refused("InvalidSignatureException"):
        a_world().client("pricing", "us-west-2").get_products(ServiceCode="AmazonEC2")


def test_quotas_are_listed_with_the_class_of_their_usage() -> None:
    quotas = a_world().client("service-quotas")
    pager = quotas.get_paginator("list_service_quotas")
    pages = pager.paginate(ServiceCode="ec2", PaginationConfig={"PageSize": 2})
    listed = {
        one["UsageMetric"]["MetricDimensions"]["Class"]: one["Value"]
        for page in pages
        for one in page["Quotas"]
    }
    assert listed["G/Spot"] == 400
    assert listed["P/OnDemand"] == 0


def test_quotas_of_another_service_are_no_such_resource() -> None:
    with refused("NoSuchResourceException"):
        a_world().client("service-quotas").list_service_quotas(ServiceCode="lambda")
