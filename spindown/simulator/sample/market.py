"""A small market of our own making: five GPU types, regions, prices that wander.

The names are EC2's, so that hardware facts and quotas hold; prices, speeds, capacities and
reclaim rates are invented, of the order that a user meets.
"""

import math
from dataclasses import dataclass
from random import Random

from spindown.domain.offer import InstanceType
from spindown.simulator.scenario import DAY, Listing, Steps, Zone


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    gpu: str
    memory_mib: int
    #: USD per hour.
    on_demand: float
    #: Spot over on-demand, in the middle.
    ratio: float
    #: The T4 is 1.
    speed: float
    #: How often EC2 takes one away, per hour, in a calm zone.
    reclaims: float


_KINDS = {
    "g4dn.xlarge": _Kind(
        gpu="T4", memory_mib=16_384, on_demand=0.55, ratio=0.40, speed=1.0, reclaims=0.02
    ),
    "g6.xlarge": _Kind(
        gpu="L4", memory_mib=22_888, on_demand=0.80, ratio=0.50, speed=1.5, reclaims=0.03
    ),
    "g5.xlarge": _Kind(
        gpu="A10G", memory_mib=22_888, on_demand=1.00, ratio=0.55, speed=2.4, reclaims=0.05
    ),
    "g6e.xlarge": _Kind(
        gpu="L40S", memory_mib=45_776, on_demand=1.85, ratio=0.60, speed=4.5, reclaims=0.08
    ),
    "p3.2xlarge": _Kind(
        gpu="V100", memory_mib=16_384, on_demand=3.05, ratio=0.35, speed=3.0, reclaims=0.15
    ),
}
#: Prices beside those of ``_KINDS``, where a region has its own.
_LEVELS = {"us-west-2": 1.0, "us-east-1": 1.12}
_USUAL_LEVEL = 1.06
_ZONES = "abc"
#: A price moves this often, by a lognormal factor with this deviation, pulled to its middle.
_EVERY = DAY / 4
_WANDER = 0.06
_PULL = 0.1


def sample_market(
    *,
    seed: int,
    days: float = 30,
    reclaims: float = 1.0,
    regions: tuple[str, ...] = ("us-west-2",),
    instance_types: tuple[str, ...] = tuple(_KINDS),
) -> tuple[Listing, ...]:
    """Return the market over a number of days.

    Args:
        seed: of the prices' wandering.
        days: how long prices move.
        reclaims: factor of all reclaim rates; 0: none.
        regions: any; the first is home.
        instance_types: those that are sold.
    """
    random = Random(f"{seed}/prices")
    return tuple(
        _listing(name, region, random, days, reclaims)
        for region in regions
        for name in instance_types
    )


def _listing(name: str, region: str, random: Random, days: float, reclaims: float) -> Listing:
    kind, level = _KINDS[name], _LEVELS.get(region, _USUAL_LEVEL)
    on_demand = round(kind.on_demand * level, 4)
    size = 2 if name.endswith(".2xlarge") else 1
    return Listing(
        instance_type=InstanceType(
            name=name,
            vcpus=4 * size,
            memory_mib=16_384 * size,
            architecture="x86_64",
            gpu_name=kind.gpu,
            gpu_manufacturer="NVIDIA",
            gpu_count=1.0,
            gpu_memory_mib=kind.memory_mib,
        ),
        region=region,
        on_demand=on_demand,
        speed=kind.speed,
        zones={
            f"{region}{letter}": Zone(
                spot=_wander(on_demand, kind.ratio, random, days),
                reclaims_per_hour=kind.reclaims * reclaims * random.choice((1.0, 1.0, 3.0)),
            )
            for letter in _ZONES
        },
    )


def _wander(on_demand: float, ratio: float, random: Random, days: float) -> Steps:
    """Return a price that walks about its middle, never above on demand."""
    middle = math.log(ratio * random.uniform(0.9, 1.1))
    level, steps = middle, []
    for number in range(max(1, math.ceil(days * DAY / _EVERY))):
        steps.append((number * _EVERY, round(on_demand * min(math.exp(level), 1.0), 4)))
        level += random.gauss(0.0, _WANDER) + _PULL * (middle - level)
    return tuple(steps)
