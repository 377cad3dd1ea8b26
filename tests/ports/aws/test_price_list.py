"""How AWS's price list is read: instances, volumes, transfer."""

import json
from typing import Any

import pytest

from spindown.domain.offer import pricing_region
from spindown.error import NotFound
from tests.ports.market import Answers


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


def _asked(family: str) -> dict[str, Any]:
    wanted = {
        "serviceCode": "AmazonEC2",
        "operatingSystem": "Linux",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        "tenancy": "Shared",
        "productFamily": family,
        "regionCode": "eu-west-1",
    }
    return {
        "ServiceCode": "AmazonEC2",
        "FormatVersion": "aws_v1",
        "Filters": [
            {"Type": "TERM_MATCH", "Field": field, "Value": value}
            for field, value in wanted.items()
        ],
    }


def test_reads_the_price_list(answers: Answers) -> None:
    asked = _asked("Compute Instance")
    answers.pricing.add_response(
        "get_products",
        {"PriceList": [_product("g6.xlarge", "0.8048000000")], "NextToken": "more"},
        asked,
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
        {**asked, "NextToken": "more"},
    )
    answers.pricing.add_response(
        "get_products",
        {"PriceList": [_product("g4dn.metal", "7.824")]},
        _asked("Compute Instance (bare metal)"),
    )

    assert answers.market.on_demand_prices(region="eu-west-1") == {
        "g6.xlarge": 0.8048,
        "g5.xlarge": 1.006,
        "g4dn.metal": 7.824,
    }


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


@pytest.mark.parametrize(
    ("home", "asked"),
    [
        ("eu-west-1", "eu-central-1"),
        ("ap-northeast-2", "ap-south-1"),
        ("us-west-2", "us-east-1"),
        ("sa-east-1", "us-east-1"),
    ],
)
def test_prices_are_asked_in_one_s_own_part_of_the_world(home: str, asked: str) -> None:
    assert pricing_region(home) == asked
