"""What a region offers for given requirements, to fill in a first spindown.toml."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from spindown.domain.offer import CapacityType, InstanceRequirements, Quota, quota_class
from spindown.domain.requirement import misfit
from spindown.port import Market


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaView:
    """A quota that launches count against."""

    #: ``G/Spot`` and the like.
    name: str
    code: str
    vcpus: float
    #: vCPUs of the smallest type that fits and counts.
    least: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What one region offers."""

    region: str
    #: zone -> types that fit, sorted; only zones that offer one.
    zones: Mapping[str, tuple[str, ...]]
    #: Zones that offer none.
    empty: tuple[str, ...]
    quotas: tuple[QuotaView, ...]


def survey(region: str, requirements: Sequence[InstanceRequirements], market: Market) -> Survey:
    """Find types that fit any of the requirements, zone by zone.

    Raises:
        SpindownError: types, zones or quotas cannot be read.
    """
    kinds = {
        kind.name: kind
        for kind in market.instance_types(region=region)
        if any(misfit(kind, each) is None for each in requirements)
    }
    offerings = market.offerings(region=region)
    fitting = {zone: tuple(sorted(kinds.keys() & offerings[zone])) for zone in sorted(offerings)}
    offered = [kinds[name] for name in sorted(set().union(*fitting.values()))]
    vcpus = [(kind.name, kind.vcpus) for kind in offered]
    return Survey(
        region=region,
        zones={zone: names for zone, names in fitting.items() if names},
        empty=tuple(zone for zone, names in fitting.items() if not names),
        quotas=tuple(_judge_quotas(region, vcpus, market.quotas(region=region))),
    )


def _judge_quotas(
    region: str, vcpus: Sequence[tuple[str, int]], quotas: Mapping[str, Quota]
) -> Iterable[QuotaView]:
    least: dict[str, int] = {}
    for name, count in vcpus:
        for capacity_type in CapacityType:
            kind = quota_class(name, region, capacity_type).partition("/")[2]
            least[kind] = min(count, least.get(kind, count))
    for kind, count in sorted(least.items()):
        if kind in quotas:
            known = quotas[kind]
            yield QuotaView(name=kind, code=known.code, vcpus=known.vcpus, least=count)
