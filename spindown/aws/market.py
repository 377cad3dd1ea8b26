"""What EC2 offers and at what price: EC2's own descriptions, Price List, Service Quotas."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict

from spindown.aws.error import translated
from spindown.domain.offer import NEURON_MAKER, CapacityType, InstanceType, Quota, SpotPrice
from spindown.error import BadInput, NotFound
from spindown.port import Clock

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import (
        GpuDeviceInfoTypeDef,
        InstanceTypeInfoTypeDef,
        SpotPriceTypeDef,
    )
    from mypy_boto3_pricing import PricingClient
    from mypy_boto3_service_quotas import ServiceQuotasClient


#: Linux with nothing on it, on machines that others may use too, without a reservation.
_PLAIN_LINUX = {
    "serviceCode": "AmazonEC2",
    "operatingSystem": "Linux",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
    "tenancy": "Shared",
}
#: The Price List keeps types of bare metal apart (as aws/karpenter-provider-aws asks for them,
#: pkg/providers/pricing).
_FAMILIES = ("Compute Instance", "Compute Instance (bare metal)")
#: The GiB-months of a gp3 volume, without the throughput and operations that cost extra.
_VOLUMES = {
    "serviceCode": "AmazonEC2",
    "productFamily": "Storage",
    "volumeApiName": "gp3",
    "locationType": "AWS Region",
}
_SPOT_PRODUCTS = ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"]
#: Types of one question for spot prices: as many as EC2 takes where it describes types. It says
#: nothing of a limit here.
_NAMES_AT_MOST = 100
#: Of a history: 90 days of a hundred pools that move ten times a day, and as much again.
CHANGES_AT_MOST = 200_000


class Ec2Market:
    """Market on EC2, Price List and Service Quotas; the first and last are regional."""

    def __init__(
        self,
        ec2: "Callable[[str], EC2Client]",
        pricing: "Callable[[], PricingClient]",
        quotas: "Callable[[str], ServiceQuotasClient]",
        clock: Clock,
    ) -> None:
        self._ec2 = ec2
        self._pricing = pricing
        self._quotas = quotas
        self._clock = clock

    def instance_types(self, *, region: str) -> Sequence[InstanceType]:
        """Return every type with a GPU of any maker, with Neuron, or of a usual CPU family."""
        pages = self._ec2(region).get_paginator("describe_instance_types").paginate()
        with translated():
            found = [parse_type(info) for page in pages for info in page["InstanceTypes"]]
        sold = (instance_type for instance_type in found if instance_type.is_sold)
        return sorted(sold, key=lambda instance_type: instance_type.name)

    def offerings(self, *, region: str) -> Mapping[str, frozenset[str]]:
        """Return zone -> names of types offered there, with or without a GPU."""
        pages = (
            self._ec2(region)
            .get_paginator("describe_instance_type_offerings")
            .paginate(LocationType="availability-zone")
        )
        zones: dict[str, set[str]] = {}
        with translated():
            for page in pages:
                for offering in page["InstanceTypeOfferings"]:
                    zones.setdefault(offering["Location"], set()).add(offering["InstanceType"])
        return {zone: frozenset(names) for zone, names in zones.items()}

    def on_demand_prices(self, *, region: str) -> Mapping[str, float]:
        """Return type -> USD per hour, Linux, shared tenancy."""
        return {
            product["product"]["attributes"]["instanceType"]: price
            for family in _FAMILIES
            for product in self._products(
                _PLAIN_LINUX | {"productFamily": family, "regionCode": region}
            )
            for price in _prices(product)
        }

    def volume_price(self, *, region: str) -> float:
        """Return USD per GiB-month of gp3 (raises NotFound)."""
        products = self._products(_VOLUMES | {"regionCode": region})
        found = [price for product in products for price in _prices(product)]
        if not found:
            raise NotFound(f"the Price List has no gp3 volume in {region}")
        return max(found)

    def transfer_prices(self, *, region: str) -> Mapping[str, float]:
        """Return other region -> USD per GiB that leaves this region for it.

        The Price List says GB and means GiB (aws.amazon.com/ec2/pricing). What goes to an edge, or
        by way of an access point, has no region that it goes to, or is another usage.
        """
        found: dict[str, float] = {}
        wanted = {"transferType": "InterRegion Outbound", "fromRegionCode": region}
        for product in self._products(wanted, service="AWSDataTransfer"):
            attributes = product["product"]["attributes"]
            other, usage = attributes.get("toRegionCode"), attributes.get("usagetype", "")
            if other and usage.endswith("-AWS-Out-Bytes"):
                found[other] = max([*_prices(product), found.get(other, 0.0)])
        return found

    def _products(
        self, wanted: Mapping[str, str], *, service: str = "AmazonEC2"
    ) -> list[dict[str, Any]]:
        """Return the products of a service in the Price List that match all fields."""
        pages = (
            self._pricing()
            .get_paginator("get_products")
            .paginate(
                ServiceCode=service,
                FormatVersion="aws_v1",
                Filters=[
                    {"Type": "TERM_MATCH", "Field": field, "Value": value}
                    for field, value in wanted.items()
                ],
            )
        )
        with translated():
            return [json.loads(text) for page in pages for text in page["PriceList"]]

    def spot_prices(self, *, region: str, instance_types: Sequence[str]) -> Sequence[SpotPrice]:
        """Return the present price of each type in each zone that has one."""
        if not instance_types:
            return []
        latest: dict[tuple[str, str], SpotPrice] = {}
        # From now on: EC2 puts the last change before the start first.
        for seen in self._price_changes(region, instance_types, StartTime=self._clock.now()):
            key = (seen.instance_type, seen.zone)
            if key not in latest or latest[key].seen_at < seen.seen_at:
                latest[key] = seen
        return list(latest.values())

    def spot_history(
        self, *, region: str, instance_types: Sequence[str], since: datetime
    ) -> Sequence[SpotPrice]:
        """Return the price of each pool at ``since`` and every change up to now, oldest first.

        EC2 keeps 90 days, newest first, and puts the last change before the start at the end.

        Raises:
            BadInput: more changes than ``CHANGES_AT_MOST``.
        """
        if not instance_types:
            return []
        span = {"StartTime": since, "EndTime": self._clock.now()}
        found: list[SpotPrice] = []
        for seen in self._price_changes(region, instance_types, **span):
            found.append(seen)
            if len(found) > CHANGES_AT_MOST:
                remedy = "name fewer instance types in [workload.NAME.requirements]"
                raise BadInput("spot price changes", len(found), remedy)
        return sorted(found, key=lambda seen: seen.seen_at)

    def _price_changes(
        self, region: str, instance_types: Sequence[str], **span: datetime
    ) -> Iterator[SpotPrice]:
        """Yield the changes of spot prices in a span: newest first for each part of the types."""
        paginator = self._ec2(region).get_paginator("describe_spot_price_history")
        for first in range(0, len(instance_types), _NAMES_AT_MOST):
            asked: dict[str, Any] = {
                "InstanceTypes": list(instance_types[first : first + _NAMES_AT_MOST]),
                "ProductDescriptions": _SPOT_PRODUCTS,
                **span,
            }
            with translated():
                for page in paginator.paginate(**asked):
                    yield from map(_spot_price, page["SpotPriceHistory"])

    def quotas(self, *, region: str) -> Mapping[str, Quota]:
        """Return class -> quota, for those that count the vCPUs of instances."""
        pages = (
            self._quotas(region).get_paginator("list_service_quotas").paginate(ServiceCode="ec2")
        )
        with translated():
            return {
                counted["Class"]: Quota(code=quota["QuotaCode"], vcpus=quota["Value"])
                for page in pages
                for quota in page["Quotas"]
                if (counted := quota.get("UsageMetric", {}).get("MetricDimensions", {})).get(
                    "Resource"
                )
                == "vCPU"
                and "Class" in counted
            }


def _spot_price(row: "SpotPriceTypeDef") -> SpotPrice:
    return SpotPrice(
        instance_type=row["InstanceType"],
        zone=row["AvailabilityZone"],
        price=float(row["SpotPrice"]),
        seen_at=row["Timestamp"],
    )


def parse_type(info: "InstanceTypeInfoTypeDef") -> InstanceType:
    """Return what EC2 says of an instance type."""
    architectures = info["ProcessorInfo"]["SupportedArchitectures"]
    usage = info.get("SupportedUsageClasses", [])
    return InstanceType(
        name=info["InstanceType"],
        vcpus=info["VCpuInfo"]["DefaultVCpus"],
        memory_mib=info["MemoryInfo"]["SizeInMiB"],
        architecture="arm64" if "arm64" in architectures else "x86_64",
        **_accelerator(info),
        capacity_types=frozenset(kind for kind in CapacityType if kind.value in usage),
        bare_metal=info.get("BareMetal", False),
    )


class _Accelerator(TypedDict, total=False):
    """The fields of an instance type that tell of its GPUs, or of what stands for them."""

    gpu_name: str
    gpu_manufacturer: str
    gpu_count: float
    gpu_memory_mib: int


def _accelerator(info: "InstanceTypeInfoTypeDef") -> _Accelerator:
    """Return what computes besides the vCPUs: GPUs, or Neuron devices; empty: nothing does."""
    gpus = info.get("GpuInfo", {}).get("Gpus")
    if gpus:
        return _Accelerator(
            gpu_name=gpus[0].get("Name", ""),
            gpu_manufacturer=gpus[0].get("Manufacturer", ""),
            gpu_count=_gpu_count(gpus[0]),
            gpu_memory_mib=gpus[0].get("MemoryInfo", {}).get("SizeInMiB", 0),
        )
    devices = info.get("NeuronInfo", {}).get("NeuronDevices")
    if devices:
        return _Accelerator(
            gpu_name=devices[0].get("Name", ""),
            gpu_manufacturer=NEURON_MAKER,
            gpu_count=float(devices[0].get("Count", 0)),
            gpu_memory_mib=devices[0].get("MemoryInfo", {}).get("SizeInMiB", 0),
        )
    return _Accelerator()


def _gpu_count(gpu: "GpuDeviceInfoTypeDef") -> float:
    """Return GPUs; a partitioned one has Count 0 and says its share of a GPU instead."""
    count = gpu.get("Count", 0)
    return float(count or gpu.get("LogicalGpuCount", 0) * gpu.get("GpuPartitionSize", 0.0))


def _prices(product: Mapping[str, Any]) -> Iterator[float]:
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term["priceDimensions"].values():
            price = float(dimension["pricePerUnit"].get("USD", 0))
            # What is priced at nothing is not sold this way.
            if price > 0:
                yield price
