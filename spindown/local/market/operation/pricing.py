"""The JSON services: the Price List API, and Service Quotas.

GetProducts lists products beside the ones that a careful filter wants.
"""

import hashlib
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from spindown.domain.offer import GP3_PRICE_PER_GIB_MONTH, REGION_TRANSFER_PRICE_PER_GIB
from spindown.ec2sim import QUOTAS, VcpuQuota
from spindown.local.market.catalogue import instance_types
from spindown.local.market.operation.call import Answer, ApiCall, Operation, page
from spindown.local.market.wire.protocol import ApiError

#: The Price List API has endpoints only here.
REGIONS = frozenset({"us-east-1", "eu-central-1", "ap-south-1"})

_PLAIN = {
    "operatingSystem": "Linux",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "tenancy": "Shared",
    "usagetype": "BoxUsage",
}
#: What the same type costs in other guises, as a factor; without filters a reader trips on them.
_VARIANTS: tuple[tuple[Mapping[str, str], float], ...] = (
    ({}, 1.0),
    ({"operatingSystem": "Windows"}, 1.4),
    ({"tenancy": "Dedicated", "usagetype": "DedicatedUsage"}, 1.1),
    ({"capacitystatus": "AllocatedCapacityReservation", "usagetype": "Reservation"}, 0.0),
)

_TESTS: dict[str, Callable[[str, str], bool]] = {
    "TERM_MATCH": lambda found, wanted: found == wanted,
    "EQUALS": lambda found, wanted: found == wanted,
    "CONTAINS": lambda found, wanted: wanted in found,
    "ANY_OF": lambda found, wanted: found in wanted.split(","),
    "NONE_OF": lambda found, wanted: found not in wanted.split(","),
}


def get_products(call: ApiCall) -> Answer:
    """List the products of EC2 that match every filter, as JSON texts."""
    asked = call.parameters
    list_products = _SERVICES.get(asked["ServiceCode"])
    if list_products is None:
        message = f"The local market has no prices of {asked['ServiceCode']}."
        raise ApiError("InvalidParameterException", message)
    filters = asked.get("Filters", [])
    texts = [json.dumps(product) for product in list_products(call) if _matches(product, filters)]
    rows, token = page(texts, asked, largest=100)
    answer: Answer = {"FormatVersion": "aws_v1", "PriceList": list(rows)}
    return {**answer, "NextToken": token} if token else answer


def _matches(product: Mapping[str, Any], filters: Sequence[Mapping[str, str]]) -> bool:
    fields = {
        "servicecode": product["serviceCode"],
        "productfamily": product["product"]["productFamily"],
        **{key.lower(): value for key, value in product["product"]["attributes"].items()},
    }
    return all(
        _TESTS[one["Type"]](fields.get(one["Field"].lower(), ""), one["Value"]) for one in filters
    )


def _products(call: ApiCall) -> Iterator[dict[str, Any]]:
    for region in call.market.scenario.regions:
        yield _volume(region)
        for name, market in sorted(call.market.scenario.type.items()):
            price = market.on_demand_in(region)
            if price is None:
                continue
            for differences, factor in _VARIANTS:
                yield _product(name, region, {**_PLAIN, **differences}, price * factor)


def _volume(region: str) -> dict[str, Any]:
    """Return the GiB-months of gp3; the local market sells them at the price of us-east-1."""
    described = {
        "servicecode": "AmazonEC2",
        "regionCode": region,
        "locationType": "AWS Region",
        "volumeApiName": "gp3",
        "volumeType": "General Purpose",
        "usagetype": "EBS:VolumeUsage.gp3",
    }
    sku = _sku(described)
    return {
        "product": {"productFamily": "Storage", "attributes": described, "sku": sku},
        "serviceCode": "AmazonEC2",
        "terms": {"OnDemand": _term(sku, "GB-month", GP3_PRICE_PER_GIB_MONTH, unit="GB-Mo")},
        "version": "1",
    }


def _transfers(call: ApiCall) -> Iterator[dict[str, Any]]:
    """Yield what leaves each region for each other, at the usual price."""
    regions = call.market.scenario.regions
    for origin, destination in itertools.permutations(regions, 2):
        described = {
            "servicecode": "AWSDataTransfer",
            "transferType": "InterRegion Outbound",
            "fromRegionCode": origin,
            "toRegionCode": destination,
            "operation": "",
            "usagetype": f"{origin}-{destination}-AWS-Out-Bytes",
        }
        sku = _sku(described)
        term = _term(sku, "GB", REGION_TRANSFER_PRICE_PER_GIB, unit="GB")
        yield {
            "product": {"productFamily": "Data Transfer", "attributes": described, "sku": sku},
            "serviceCode": "AWSDataTransfer",
            "terms": {"OnDemand": term},
            "version": "1",
        }


_SERVICES = {"AmazonEC2": _products, "AWSDataTransfer": _transfers}


def _sku(described: Mapping[str, str]) -> str:
    digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
    return digest[:16].upper()


def _product(name: str, region: str, attributes: Mapping[str, str], price: float) -> dict[str, Any]:
    facts = instance_types()[name]
    described = {
        **attributes,
        "servicecode": "AmazonEC2",
        "instanceType": name,
        "regionCode": region,
        "locationType": "AWS Region",
        "marketoption": "OnDemand",
        "operation": "RunInstances",
        "licenseModel": "No License required",
        "vcpu": str(facts.vcpus),
        "memory": f"{facts.memory_mib / 1024:g} GiB",
        "gpu": f"{facts.gpu_count:g}",
        "usagetype": f"{attributes['usagetype']}:{name}",
    }
    sku = _sku(described)
    family = "Compute Instance (bare metal)" if facts.bare_metal else "Compute Instance"
    return {
        "product": {"productFamily": family, "attributes": described, "sku": sku},
        "serviceCode": "AmazonEC2",
        "terms": {"OnDemand": _term(sku, name, price)},
        "version": "1",
    }


def _term(sku: str, name: str, price: float, *, unit: str = "Hrs") -> dict[str, Any]:
    """Return an on-demand term; the codes of hourly terms are the same for every product."""
    term, rate = f"{sku}.JRTCKXETXF", f"{sku}.JRTCKXETXF.6YS6EN2CT7"
    dimension = {
        "rateCode": rate,
        "unit": unit,
        "beginRange": "0",
        "endRange": "Inf",
        "description": f"${price:.10f} per {name} hour",
        "appliesTo": [],
        "pricePerUnit": {"USD": f"{price:.10f}"},
    }
    return {
        term: {
            "sku": sku,
            "offerTermCode": "JRTCKXETXF",
            "priceDimensions": {rate: dimension},
            "termAttributes": {},
        }
    }


def list_service_quotas(call: ApiCall) -> Answer:
    """List the vCPU quotas of EC2."""
    if call.parameters["ServiceCode"] != "ec2":
        message = "The request failed because the specified service does not exist."
        raise ApiError("NoSuchResourceException", message)
    rows, token = page(QUOTAS, call.parameters, largest=100)
    answer: Answer = {"Quotas": [_described(call, one) for one in rows]}
    return {**answer, "NextToken": token} if token else answer


def _described(call: ApiCall, quota: VcpuQuota) -> Answer:
    account = call.market.account
    return {
        "ServiceCode": "ec2",
        "ServiceName": "Amazon Elastic Compute Cloud (Amazon EC2)",
        "QuotaArn": f"arn:aws:servicequotas:{call.region}:{account}:ec2/{quota.code}",
        "QuotaCode": quota.code,
        "QuotaName": quota.name,
        "Value": call.market.scenario.quota.get(quota.code, quota.default),
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
        "UsageMetric": {
            "MetricNamespace": "AWS/Usage",
            "MetricName": "ResourceCount",
            "MetricDimensions": {
                "Class": quota.usage_class,
                "Resource": "vCPU",
                "Service": "EC2",
                "Type": "Resource",
            },
            "MetricStatisticRecommendation": "Maximum",
        },
    }


PRICING: dict[str, Operation] = {"GetProducts": get_products}

QUOTA: dict[str, Operation] = {
    "ListServiceQuotas": list_service_quotas,
}
