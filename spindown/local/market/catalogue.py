"""Real instance types and zone offerings, read from the data files that moto ships.

Only the files are read: moto's backend is not thread-safe and invents launches. The data are
copies of DescribeInstanceTypes and DescribeInstanceTypeOfferings taken on AWS by moto's makers.
"""

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

Location = Literal["region", "availability-zone", "availability-zone-id"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeFacts:
    """The hardware facts that the market itself uses; the rest stays in `raw`."""

    name: str
    vcpus: int
    memory_mib: int
    architecture: str
    #: Whole GPUs; 0 for types that have none or only a slice of one (g6f).
    gpu_count: int
    gpu_name: str | None
    gpu_memory_mib: int
    #: One element of DescribeInstanceTypes, as EC2 answers it.
    raw: Mapping[str, Any]


def _resources() -> Path:
    spec = find_spec("moto")
    if spec is None or spec.origin is None:
        message = "The local market needs moto's data files; install spindown[local]."
        raise RuntimeError(message)
    return Path(spec.origin).parent / "ec2" / "resources"


def _read(path: Path) -> Any:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return json.load(lines)


@cache
def instance_types() -> Mapping[str, TypeFacts]:
    """Return every known instance type by name."""
    return {name: _facts(name, raw) for name, raw in _read(_type_file()).items()}


def _type_file() -> Path:
    return _resources() / "instance_types.json.gz"


def _facts(name: str, raw: Mapping[str, Any]) -> TypeFacts:
    gpus = raw.get("GpuInfo", {}).get("Gpus", [])
    return TypeFacts(
        name=name,
        vcpus=raw["VCpuInfo"]["DefaultVCpus"],
        memory_mib=raw["MemoryInfo"]["SizeInMiB"],
        architecture=raw["ProcessorInfo"]["SupportedArchitectures"][0],
        gpu_count=sum(gpu["Count"] for gpu in gpus),
        gpu_name=gpus[0]["Name"] if gpus else None,
        gpu_memory_mib=gpus[0]["MemoryInfo"]["SizeInMiB"] if gpus else 0,
        raw=raw,
    )


@cache
def offerings(region: str, location: Location) -> frozenset[tuple[str, str]]:
    """Return the (type, location) pairs offered in `region`; empty for an unknown region."""
    path = _resources() / "instance_type_offerings" / location / f"{region}.json.gz"
    if not path.is_file():
        return frozenset()
    return frozenset((row["InstanceType"], row["Location"]) for row in _read(path))


def is_offered(instance_type: str, zone: str) -> bool:
    """Tell whether EC2 offers the type in the zone."""
    return (instance_type, zone) in offerings(zone[:-1], "availability-zone")
