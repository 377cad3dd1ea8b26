"""How EC2's answers about types, spot prices and quotas are read."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest

from spindown.aws.market import CHANGES_AT_MOST
from spindown.aws.wiring import Aws
from spindown.domain.offer import InstanceType, Quota, quota_class
from spindown.error import BadInput
from spindown.memory import MemoryClock
from tests.builders import ON_DEMAND, SPOT
from tests.ports.market import REGION, Answers, a_spot_entry

BEGIN = datetime(2026, 1, 1, 0, 10, tzinfo=UTC)


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


def test_reads_every_cpu_family_of_today(real_types: Mapping[str, InstanceType]) -> None:
    bare = {name: found for name, found in real_types.items() if found.is_without_gpu}

    families = {found.family for found in bare.values()}
    assert {"c7i", "c8g", "m8a", "r9g", "x8g", "i7ie", "im4gn", "is4gen", "hpc7a"} <= families
    assert not families & {"c4", "m4", "r4", "i2", "t3", "d3", "f2", "vt1", "u7i-12tb", "dl2q"}
    assert len(bare) > 1_000
    assert real_types["c7g.4xlarge"].processor == ("c7g vCPU", 16.0)
    assert real_types["c7g.4xlarge"].architecture == "arm64"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("inf2.24xlarge", ("Inferentia2", "AWS", 6.0, 32_768)),
        ("trn1.2xlarge", ("Trainium", "AWS", 1.0, 32_768)),
    ],
)
def test_reads_neuron_devices(
    real_types: Mapping[str, InstanceType], name: str, expected: tuple[str, str, float, int]
) -> None:
    found = real_types[name]

    assert found.is_neuron
    assert (
        found.gpu_name,
        found.gpu_manufacturer,
        found.gpu_count,
        found.gpu_memory_mib,
    ) == expected


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
    no_gpu = _described("t3.2xlarge", None)
    neuron = _described("inf2.8xlarge", None, NeuronInfo={"NeuronDevices": []})
    answers.ec2.add_response(
        "describe_instance_types", {"InstanceTypes": [no_gpu, description, neuron]}
    )

    (found,) = answers.market.instance_types(region=REGION)

    assert found.name == description["InstanceType"]
    assert {name: getattr(found, name) for name in expected} == expected


def test_takes_the_latest_spot_price_of_each_zone(answers: Answers, clock: MemoryClock) -> None:
    first = [a_spot_entry("us-east-1a", "0.41", 5), a_spot_entry("us-east-1b", "0.30", 1)]
    second = [a_spot_entry("us-east-1a", "0.40", 4), a_spot_entry("us-east-1b", "0.31", 2)]
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


def test_asks_for_a_hundred_types_at_a_time(answers: Answers, clock: MemoryClock) -> None:
    names = [f"c7i.{n}xlarge" for n in range(1, 151)]
    for part in (names[:100], names[100:]):
        answers.ec2.add_response(
            "describe_spot_price_history",
            {
                "SpotPriceHistory": [
                    {**a_spot_entry("us-east-1a", "0.41", 5), "InstanceType": part[0]}
                ]
            },
            {
                "InstanceTypes": part,
                "ProductDescriptions": ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"],
                "StartTime": clock.now(),
            },
        )

    found = answers.market.spot_prices(region=REGION, instance_types=names)

    assert [seen.instance_type for seen in found] == [names[0], names[100]]


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


def test_an_endless_history_is_refused_before_memory_is_full(answers: Answers) -> None:
    half = [a_spot_entry("us-east-1a", "0.41", 5)] * (CHANGES_AT_MOST // 2 + 1)
    for token in ("more", "still more"):
        answers.ec2.add_response(
            "describe_spot_price_history", {"SpotPriceHistory": half, "NextToken": token}
        )

    with pytest.raises(BadInput, match="name fewer instance types"):
        answers.market.spot_history(region=REGION, instance_types=["g6.xlarge"], since=BEGIN)
