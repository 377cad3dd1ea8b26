"""What every Market promises, on EC2 as in memory, and how EC2's answers are read."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import boto3
import pytest
from botocore.stub import Stubber

from spindown.app.port import Market, PriceHistory
from spindown.aws.market import CHANGES_AT_MOST, Ec2Market
from spindown.aws.wiring import Aws
from spindown.domain.offer import CapacityType, InstanceType, Quota, SpotPrice, quota_class
from spindown.error import BadInput, NotFound
from spindown.memory import MemoryClock, MemoryMarket, quota_code

REGION = "us-east-1"
SPOT, ON_DEMAND = CapacityType.SPOT, CapacityType.ON_DEMAND
G6 = InstanceType(
    name="g6.xlarge",
    vcpus=4,
    memory_mib=16384,
    architecture="x86_64",
    gpu_name="L4",
    gpu_manufacturer="NVIDIA",
    gpu_count=1,
    gpu_memory_mib=22888,
)
M7 = InstanceType(name="m7i.large", vcpus=2, memory_mib=8192, architecture="x86_64")


@pytest.fixture(params=["memory", "ec2"])
def market(request: pytest.FixtureRequest) -> Market:
    if request.param == "ec2":
        found: Market = request.getfixturevalue("aws").market()
        return found
    market = MemoryMarket(request.getfixturevalue("clock"))
    zones = [f"us-east-1{letter}" for letter in "abc"]
    market.offer(G6, region=REGION, zones=zones, on_demand=0.8048, spot=0.4)
    market.offer(M7, region=REGION, zones=zones, on_demand=0.1, spot=0.05)
    return market


def test_knows_the_gpu_types(market: Market) -> None:
    types = {found.name: found for found in market.instance_types(region=REGION)}

    assert types["g6.xlarge"] == G6
    assert "m7i.large" not in types
    assert list(types) == sorted(types)


def test_knows_where_a_type_is_offered(market: Market) -> None:
    offerings = market.offerings(region=REGION)

    assert {"g6.xlarge", "m7i.large"} <= offerings["us-east-1a"]
    assert all(zone.startswith(REGION) for zone in offerings)


def test_knows_the_spot_price_of_each_zone(market: Market) -> None:
    prices = market.spot_prices(region=REGION, instance_types=["g6.xlarge"])

    assert {"us-east-1a", "us-east-1b"} <= {seen.zone for seen in prices}
    assert len({seen.zone for seen in prices}) == len(prices)
    assert {seen.instance_type for seen in prices} == {"g6.xlarge"}
    assert all(seen.price > 0 for seen in prices)


def test_asked_for_no_type_it_knows_no_price(market: Market) -> None:
    assert list(market.spot_prices(region=REGION, instance_types=[])) == []


@pytest.fixture(scope="module")
def real_types(session: boto3.Session, aws: Aws) -> Mapping[str, InstanceType]:
    found = aws.market().instance_types(region=REGION)
    return {instance_type.name: instance_type for instance_type in found}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("p4d.24xlarge", ("A100", 8, 40960, "x86_64"), id="A100 of 40 GB"),
        pytest.param("p4de.24xlarge", ("A100", 8, 81920, "x86_64"), id="A100 of 80 GB"),
        pytest.param("g5g.xlarge", ("T4g", 1, 16384, "arm64"), id="arm64"),
        pytest.param("g6f.large", ("L4", 0.125, 2861, "x86_64"), id="an eighth of a GPU"),
        pytest.param("g4dn.metal", ("T4", 8, 16384, "x86_64"), id="bare metal"),
    ],
)
def test_reads_the_odd_types(
    real_types: Mapping[str, InstanceType], name: str, expected: tuple[str, float, int, str]
) -> None:
    found = real_types[name]

    assert (
        found.gpu_name,
        found.gpu_count,
        found.gpu_memory_mib,
        found.architecture,
    ) == expected
    assert found.bare_metal is name.endswith(".metal")
    assert found.gpu_manufacturer == "NVIDIA"


def test_takes_an_accelerator_without_gpu_for_none(
    real_types: Mapping[str, InstanceType],
) -> None:
    assert len(real_types) > 50
    assert not [name for name in real_types if name.startswith(("inf", "trn", "m", "c"))]
    assert all(found.gpu_count > 0 for found in real_types.values())


class Answers:
    """An Ec2Market whose services are answered here."""

    def __init__(self, session: boto3.Session, clock: MemoryClock) -> None:
        ec2, pricing = session.client("ec2"), session.client("pricing")
        quotas = session.client("service-quotas")
        self.ec2, self.pricing, self.quotas = Stubber(ec2), Stubber(pricing), Stubber(quotas)
        self.market = Ec2Market(lambda _: ec2, lambda: pricing, lambda _: quotas, clock)


@pytest.fixture
def answers(session: boto3.Session, clock: MemoryClock) -> Iterator[Answers]:
    answers = Answers(session, clock)
    with answers.ec2, answers.pricing, answers.quotas:
        yield answers
        answers.ec2.assert_no_pending_responses()
        answers.pricing.assert_no_pending_responses()
        answers.quotas.assert_no_pending_responses()


def _described(name: str, gpus: list[dict[str, Any]] | None, **more: Any) -> dict[str, Any]:
    """Return a DescribeInstanceTypes entry in the words of the API."""
    base: dict[str, Any] = {
        "InstanceType": name,
        "CurrentGeneration": True,
        "SupportedUsageClasses": ["on-demand", "spot"],
        "BareMetal": False,
        "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
        "VCpuInfo": {"DefaultVCpus": 8},
        "MemoryInfo": {"SizeInMiB": 32768},
    }
    if gpus is not None:
        base["GpuInfo"] = {"Gpus": gpus, "TotalGpuMemoryInMiB": 1}
    return base | more


def _gpu(name: str, maker: str, count: int, mib: int, **more: Any) -> dict[str, Any]:
    return {
        "Name": name,
        "Manufacturer": maker,
        "Count": count,
        "MemoryInfo": {"SizeInMiB": mib},
    } | more


@pytest.mark.parametrize(
    ("description", "expected"),
    [
        pytest.param(
            _described("g4ad.4xlarge", [_gpu("Radeon Pro V520", "AMD", 1, 8192)]),
            {"gpu_manufacturer": "AMD", "gpu_count": 1.0, "gpu_memory_mib": 8192},
            id="AMD",
        ),
        pytest.param(
            _described(
                "gr6f.4xlarge",
                [_gpu("L4", "NVIDIA", 0, 11444, LogicalGpuCount=1, GpuPartitionSize=0.5)],
            ),
            {"gpu_name": "L4", "gpu_count": 0.5, "gpu_memory_mib": 11444},
            id="a fraction, whose Count is 0",
        ),
        pytest.param(
            _described(
                "g5g.metal",
                [_gpu("T4g", "NVIDIA", 2, 16384)],
                BareMetal=True,
                ProcessorInfo={"SupportedArchitectures": ["arm64"]},
            ),
            {"architecture": "arm64", "bare_metal": True, "gpu_count": 2.0},
            id="arm64 and bare metal",
        ),
        pytest.param(
            _described(
                "p5e.48xlarge",
                [_gpu("H200", "NVIDIA", 8, 144384)],
                SupportedUsageClasses=["on-demand", "capacity-block"],
            ),
            {"capacity_types": frozenset({ON_DEMAND})},
            id="not sold as spot",
        ),
        pytest.param(
            _described(
                "p6e-gb200.36xlarge",
                [_gpu("GB200", "NVIDIA", 4, 190000)],
                SupportedUsageClasses=["capacity-block"],
            ),
            {"capacity_types": frozenset()},
            id="capacity blocks alone",
        ),
        pytest.param(
            _described("p4d.24xlarge", [_gpu("A100", "NVIDIA", 8, 40960)]),
            {"gpu_name": "A100", "gpu_memory_mib": 40960},
            id="A100 of 40 GB",
        ),
        pytest.param(
            _described("p4de.24xlarge", [_gpu("A100", "NVIDIA", 8, 81920)]),
            {"gpu_name": "A100", "gpu_memory_mib": 81920},
            id="A100 of 80 GB",
        ),
    ],
)
def test_reads_real_descriptions(
    answers: Answers, description: dict[str, Any], expected: Mapping[str, Any]
) -> None:
    no_gpu = _described("m7i.2xlarge", None)
    neuron = _described("inf2.8xlarge", None, NeuronInfo={"NeuronDevices": []})
    answers.ec2.add_response(
        "describe_instance_types", {"InstanceTypes": [no_gpu, description, neuron]}
    )

    (found,) = answers.market.instance_types(region=REGION)

    assert found.name == description["InstanceType"]
    assert {name: getattr(found, name) for name in expected} == expected


def _spot(zone: str, price: str, minute: int) -> Mapping[str, Any]:
    return {
        "AvailabilityZone": zone,
        "InstanceType": "g6.xlarge",
        "SpotPrice": price,
        "Timestamp": datetime(2026, 1, 1, 0, minute, tzinfo=UTC),
    }


def test_takes_the_latest_spot_price_of_each_zone(answers: Answers, clock: MemoryClock) -> None:
    first = [_spot("us-east-1a", "0.41", 5), _spot("us-east-1b", "0.30", 1)]
    second = [_spot("us-east-1a", "0.40", 4), _spot("us-east-1b", "0.31", 2)]
    answers.ec2.add_response(
        "describe_spot_price_history",
        {"SpotPriceHistory": first, "NextToken": "more"},
        {
            "InstanceTypes": ["g6.xlarge"],
            "ProductDescriptions": ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"],
            "StartTime": clock.now(),
        },
    )
    answers.ec2.add_response(
        "describe_spot_price_history", {"SpotPriceHistory": [], "NextToken": "still more"}
    )
    answers.ec2.add_response(
        "describe_spot_price_history", {"SpotPriceHistory": second, "NextToken": ""}
    )
    prices = answers.market.spot_prices(region=REGION, instance_types=["g6.xlarge"])

    assert {(seen.zone, seen.price, seen.seen_at.minute) for seen in prices} == {
        ("us-east-1a", 0.41, 5),
        ("us-east-1b", 0.31, 2),
    }


def _product(name: str, *prices: str) -> str:
    dimensions = {
        str(number): {"pricePerUnit": {"USD": price}} for number, price in enumerate(prices)
    }
    return json.dumps(
        {
            "product": {"attributes": {"instanceType": name}},
            "terms": {"OnDemand": {"SKU.TERM": {"priceDimensions": dimensions}}},
        }
    )


def test_reads_the_price_list(answers: Answers) -> None:
    wanted = {
        "serviceCode": "AmazonEC2",
        "operatingSystem": "Linux",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        "tenancy": "Shared",
        "productFamily": "Compute Instance",
        "regionCode": "eu-west-1",
    }
    answers.pricing.add_response(
        "get_products",
        {"PriceList": [_product("g6.xlarge", "0.8048000000")], "NextToken": "more"},
        {
            "ServiceCode": "AmazonEC2",
            "FormatVersion": "aws_v1",
            "Filters": [
                {"Type": "TERM_MATCH", "Field": field, "Value": value}
                for field, value in wanted.items()
            ],
        },
    )
    answers.pricing.add_response(
        "get_products",
        {
            "PriceList": [
                _product("g5.xlarge", "0.0000000000", "1.006"),
                _product("p5e.48xlarge", "0.0000000000"),
                json.dumps({"product": {"attributes": {"instanceType": "old"}}}),
            ]
        },
    )

    assert answers.market.on_demand_prices(region="eu-west-1") == {
        "g6.xlarge": 0.8048,
        "g5.xlarge": 1.006,
    }


def test_reads_the_quotas_of_vcpus(answers: Answers) -> None:
    def quota(code: str, value: float, resource: str | None, usage: str = "") -> Mapping[str, Any]:
        dimensions = {"Resource": resource, "Class": usage, "Type": "Resource", "Service": "EC2"}
        metric = {"UsageMetric": {"MetricDimensions": dimensions}} if resource else {}
        return {"QuotaCode": code, "Value": value, **metric}

    answers.quotas.add_response(
        "list_service_quotas",
        {
            "Quotas": [
                quota("L-3819A6DF", 64, "vCPU", "G/Spot"),
                quota("L-DB2E81BA", 0, "vCPU", "G/OnDemand"),
                # A family that this code has never heard of brings its own code.
                quota("L-00000006", 192, "vCPU", "P6/Spot"),
                quota("L-0263D0A3", 5, "ElasticIP"),
                quota("L-70015FFA", 2, None),
            ]
        },
        {"ServiceCode": "ec2"},
    )

    assert answers.market.quotas(region=REGION) == {
        "G/Spot": Quota(code="L-3819A6DF", vcpus=64),
        "G/OnDemand": Quota(code="L-DB2E81BA", vcpus=0),
        "P6/Spot": Quota(code="L-00000006", vcpus=192),
    }
    assert quota_class("p6-b200.48xlarge", REGION, SPOT) == f"{REGION}/P6/Spot"


@pytest.mark.parametrize("prices", [("0.0960000000",), ("0.0000000000", "0.096")])
def test_reads_the_price_of_a_volume(answers: Answers, prices: tuple[str, ...]) -> None:
    wanted = {
        "serviceCode": "AmazonEC2",
        "productFamily": "Storage",
        "volumeApiName": "gp3",
        "locationType": "AWS Region",
        "regionCode": "eu-west-1",
    }
    answers.pricing.add_response(
        "get_products",
        {"PriceList": [_product("gp3", *prices)]},
        {
            "ServiceCode": "AmazonEC2",
            "FormatVersion": "aws_v1",
            "Filters": [
                {"Type": "TERM_MATCH", "Field": field, "Value": value}
                for field, value in wanted.items()
            ],
        },
    )

    assert answers.market.volume_price(region="eu-west-1") == 0.096


def test_says_when_the_price_list_knows_no_volume(answers: Answers) -> None:
    answers.pricing.add_response("get_products", {"PriceList": []})

    with pytest.raises(NotFound, match="no gp3 volume in eu-west-1"):
        answers.market.volume_price(region="eu-west-1")


def test_reads_what_leaving_a_region_costs(answers: Answers) -> None:
    def product(destination: str | None, usage: str, price: str) -> str:
        made = json.loads(_product("", price))
        made["product"]["attributes"] = {"usagetype": usage}
        if destination:
            made["product"]["attributes"]["toRegionCode"] = destination
        return json.dumps(made)

    wanted = {"transferType": "InterRegion Outbound", "fromRegionCode": "sa-east-1"}
    answers.pricing.add_response(
        "get_products",
        {
            "PriceList": [
                product("us-east-1", "SAE1-USE1-AWS-Out-Bytes", "0.138"),
                product("eu-west-1", "SAE1-EU-AWS-Out-Bytes", "0.138"),
                product("us-east-1", "SAE1-USE1-S3RTC-Out-Bytes", "0.015"),
                product(None, "SAE1-MRAP-Out-Bytes", "0.0033"),
            ]
        },
        {
            "ServiceCode": "AWSDataTransfer",
            "FormatVersion": "aws_v1",
            "Filters": [
                {"Type": "TERM_MATCH", "Field": field, "Value": value}
                for field, value in wanted.items()
            ],
        },
    )

    found = answers.market.transfer_prices(region="sa-east-1")

    assert found == {"us-east-1": 0.138, "eu-west-1": 0.138}


HISTORY = [("us-east-1a", "0.41", 5), ("us-east-1b", "0.30", 20), ("us-east-1a", "0.39", 40)]
BEGIN = datetime(2026, 1, 1, 0, 10, tzinfo=UTC)


@pytest.fixture(params=["memory", "ec2"])
def history(request: pytest.FixtureRequest, clock: MemoryClock) -> PriceHistory:
    """A pool that was priced before the begin and moved after it, and one that came later."""
    if request.param == "memory":
        clock.advance_to(BEGIN - timedelta(minutes=10))
        market = MemoryMarket(clock)
        market.offer(G6, region=REGION, zones=["us-east-1a", "us-east-1b"])
        for zone, price, minute in HISTORY:
            clock.advance_to(BEGIN.replace(minute=minute))
            market.move_spot_price("g6.xlarge", zone, float(price))
        return market
    clock.advance_to(BEGIN.replace(minute=50))
    answers: Answers = request.getfixturevalue("answers")
    rows = [_spot(zone, price, minute) for zone, price, minute in reversed(HISTORY)]
    for token, page in (("more", rows[:1]), ("still more", []), ("", rows[1:])):
        answers.ec2.add_response(
            "describe_spot_price_history", {"SpotPriceHistory": page, "NextToken": token}
        )
    return answers.market


def test_knows_what_spot_capacity_cost_from_a_day_on(history: PriceHistory) -> None:
    seen = history.spot_history(region=REGION, instance_types=["g6.xlarge"], since=BEGIN)

    assert [(one.zone, one.price, one.seen_at.minute) for one in seen] == [
        ("us-east-1a", 0.41, 5),
        ("us-east-1b", 0.30, 20),
        ("us-east-1a", 0.39, 40),
    ]


def test_a_history_of_no_type_is_empty(market: Market) -> None:
    history = cast("PriceHistory", market)
    assert list(history.spot_history(region=REGION, instance_types=[], since=BEGIN)) == []


def test_asks_for_the_changes_between_the_begin_and_now(
    answers: Answers, clock: MemoryClock
) -> None:
    answers.ec2.add_response(
        "describe_spot_price_history",
        {"SpotPriceHistory": []},
        {
            "InstanceTypes": ["g6.xlarge"],
            "ProductDescriptions": ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"],
            "StartTime": BEGIN,
            "EndTime": clock.now(),
        },
    )

    assert (
        answers.market.spot_history(region=REGION, instance_types=["g6.xlarge"], since=BEGIN) == []
    )


def test_a_history_without_end_is_refused_before_it_fills_the_memory(answers: Answers) -> None:
    half = [_spot("us-east-1a", "0.41", 5)] * (CHANGES_AT_MOST // 2 + 1)
    for token in ("more", "still more"):
        answers.ec2.add_response(
            "describe_spot_price_history", {"SpotPriceHistory": half, "NextToken": token}
        )

    with pytest.raises(BadInput, match="name fewer instance types"):
        answers.market.spot_history(region=REGION, instance_types=["g6.xlarge"], since=BEGIN)


def test_memory_moves_prices_with_the_clock(clock: MemoryClock) -> None:
    market = MemoryMarket(clock)
    market.offer(G6, region=REGION, zones=["us-east-1a"], on_demand=0.8, spot={"us-east-1a": 0.4})
    clock.advance(timedelta(minutes=1))
    market.move_spot_price("g6.xlarge", "us-east-1a", 0.5)
    market.move_on_demand_price("g6.xlarge", REGION, 0.9)

    assert market.spot_prices(region=REGION, instance_types=["g6.xlarge", "g5.xlarge"]) == [
        SpotPrice(instance_type="g6.xlarge", zone="us-east-1a", price=0.5, seen_at=clock.now())
    ]
    assert market.on_demand_prices(region=REGION) == {"g6.xlarge": 0.9}
    market.move_spot_price("g6.xlarge", "us-east-1a", None)
    assert market.spot_prices(region=REGION, instance_types=["g6.xlarge"]) == []


@pytest.mark.parametrize(
    ("name", "capacity_type", "code"),
    [
        ("g6.xlarge", SPOT, "L-3819A6DF"),
        ("g6.xlarge", ON_DEMAND, "L-DB2E81BA"),
        ("gr6.4xlarge", SPOT, "L-3819A6DF"),
        ("p4d.24xlarge", SPOT, "L-7212CCBC"),
        ("p5.48xlarge", SPOT, "L-C4BD4855"),
        ("p5.48xlarge", ON_DEMAND, "L-417A185B"),
        ("m7i.large", SPOT, "L-34B43A08"),
    ],
)
def test_memory_books_a_type_under_its_quota(
    name: str, capacity_type: CapacityType, code: str
) -> None:
    assert quota_code(name, capacity_type) == code
