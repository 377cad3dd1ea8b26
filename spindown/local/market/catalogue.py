"""Real instance types and zone offerings, read from the data files that moto ships.

Only the files are read: moto's backend is not thread-safe and invents launches. The data are
copies of DescribeInstanceTypes and DescribeInstanceTypeOfferings taken on AWS by moto's makers.
"""

import gzip
import json
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from spindown.aws.market import parse_type
from spindown.domain.offer import InstanceType
from spindown.installed import NotInstalled, how_to_get

Location = Literal["region", "availability-zone", "availability-zone-id"]


def _resources() -> Path:
    spec = find_spec("moto")
    if spec is None or spec.origin is None:
        message = f"The local market needs moto's data files: {how_to_get('local')}"
        raise NotInstalled(message)
    return Path(spec.origin).parent / "ec2" / "resources"


def _read(path: Path) -> Any:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return json.load(lines)


@cache
def described_types() -> Mapping[str, Any]:
    """Return every known instance type by name, as EC2's DescribeInstanceTypes answers it."""
    types: Mapping[str, Any] = _read(_resources() / "instance_types.json.gz")
    return types


@cache
def instance_types() -> Mapping[str, InstanceType]:
    """Return the hardware facts of every known instance type by name."""
    return {name: parse_type(described) for name, described in described_types().items()}


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
