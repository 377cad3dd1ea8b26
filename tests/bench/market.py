"""A market of any size for benches: the GPU families of AWS in many regions, prices drawn."""

import itertools
import random
from dataclasses import replace

from spindown.domain.offer import Catalogue, InstanceType, Offer, SpotPrice, build_offers
from tests.builders import NOW, a_type

#: Family -> GPU, VRAM, and (size, GPUs, vCPUs, USD per hour on demand in us-east-1).
_FAMILIES: dict[str, tuple[str, int, list[tuple[str, float, int, float]]]] = {
    "g4dn": ("T4", 16384, [("xlarge", 1, 4, 0.526), ("2xlarge", 1, 8, 0.752),
                           ("4xlarge", 1, 16, 1.204), ("8xlarge", 1, 32, 2.176),
                           ("16xlarge", 1, 64, 4.352), ("12xlarge", 4, 48, 3.912),
                           ("metal", 8, 96, 7.824)]),
    "g5": ("A10G", 22888, [("xlarge", 1, 4, 1.006), ("2xlarge", 1, 8, 1.212),
                           ("4xlarge", 1, 16, 1.624), ("8xlarge", 1, 32, 2.448),
                           ("16xlarge", 1, 64, 4.096), ("12xlarge", 4, 48, 5.672),
                           ("24xlarge", 4, 96, 8.144), ("48xlarge", 8, 192, 16.288)]),
    "g5g": ("T4g", 16384, [("xlarge", 1, 4, 0.42), ("2xlarge", 1, 8, 0.556),
                           ("4xlarge", 1, 16, 0.828), ("8xlarge", 1, 32, 1.372),
                           ("16xlarge", 2, 64, 2.744)]),
    "g6": ("L4", 22888, [("xlarge", 1, 4, 0.8048), ("2xlarge", 1, 8, 0.9776),
                         ("4xlarge", 1, 16, 1.3232), ("8xlarge", 1, 32, 2.0144),
                         ("16xlarge", 1, 64, 3.3968), ("12xlarge", 4, 48, 4.6016),
                         ("24xlarge", 4, 96, 6.6752), ("48xlarge", 8, 192, 13.3504)]),
    "g6f": ("L4", 2861, [("large", 0.125, 2, 0.202), ("xlarge", 0.125, 4, 0.2375)]),
    "g6e": ("L40S", 45776, [("xlarge", 1, 4, 1.861), ("2xlarge", 1, 8, 2.242),
                            ("4xlarge", 1, 16, 3.004), ("8xlarge", 1, 32, 4.529),
                            ("16xlarge", 1, 64, 7.577), ("12xlarge", 4, 48, 10.493),
                            ("24xlarge", 4, 96, 15.066), ("48xlarge", 8, 192, 30.131)]),
    "g7e": ("RTX PRO Server 6000", 98304, [("2xlarge", 1, 8, 3.363), ("4xlarge", 1, 16, 3.998),
                                           ("8xlarge", 1, 32, 5.268), ("12xlarge", 2, 48, 8.286),
                                           ("24xlarge", 4, 96, 16.572)]),
    "p3": ("V100", 16384, [("2xlarge", 1, 8, 3.06), ("8xlarge", 4, 32, 12.24),
                           ("16xlarge", 8, 64, 24.48)]),
    "p4d": ("A100", 40960, [("24xlarge", 8, 96, 21.958)]),
    "p4de": ("A100", 81920, [("24xlarge", 8, 96, 27.447)]),
    "p5": ("H100", 81920, [("4xlarge", 1, 16, 6.88), ("48xlarge", 8, 192, 55.04)]),
    "p5en": ("H200", 144384, [("48xlarge", 8, 192, 63.296)]),
}  # fmt: skip
_SHARES = (0.05, 0.11, 0.16, 0.22, 0.3)


def the_types() -> tuple[dict[str, InstanceType], dict[str, float]]:
    """Return all types and their prices on demand in us-east-1, by name."""
    types: dict[str, InstanceType] = {}
    listed: dict[str, float] = {}
    for family, (gpu, memory, sizes) in _FAMILIES.items():
        for size, count, vcpus, price in sizes:
            name = f"{family}.{size}"
            types[name] = a_type(
                name,
                gpu_name=gpu,
                gpu_memory_mib=memory,
                gpu_count=float(count),
                vcpus=vcpus,
                memory_mib=vcpus * 4096,
                architecture="arm64" if family == "g5g" else "x86_64",
                bare_metal=size == "metal",
            )
            listed[name] = price
    return types, listed


#: Sizes of today's families without a GPU -> vCPUs.
_SIZES = {"large": 2, "xlarge": 4, **{f"{n}xlarge": 4 * n for n in (2, 4, 8, 12, 16, 24, 48)}}
_GIB_PER_VCPU = {"c": 2, "m": 4, "r": 8}


def the_cpu_types() -> tuple[dict[str, InstanceType], dict[str, float]]:
    """Return c, m and r types of four generations, and prices of the order that they have."""
    types: dict[str, InstanceType] = {}
    listed: dict[str, float] = {}
    for letter, gib in _GIB_PER_VCPU.items():
        for generation, maker in itertools.product("5678", "aig"):
            for size, vcpus in _SIZES.items():
                name = f"{letter}{generation}{maker}.{size}"
                arch = "arm64" if maker == "g" else "x86_64"
                types[name] = InstanceType(
                    name=name, vcpus=vcpus, memory_mib=vcpus * gib * 1024, architecture=arch
                )
                listed[name] = vcpus * (0.03 + 0.005 * gib)
    return types, listed


def a_market(
    offers: int,
    *,
    zones: int = 3,
    seed: int = 1,
    sold: tuple[dict[str, InstanceType], dict[str, float]] | None = None,
) -> tuple[Offer, ...]:
    """Return about ``offers`` offers: regions are added until there are enough, then cut.

    ``sold`` are types, and their prices on demand; None: those with a GPU.
    """
    draw = random.Random(seed)
    types, listed = sold or the_types()
    each = 2 * zones * len(types)
    regions = [f"region-{n:03d}" for n in range(-(-offers // each))]
    places = {region: [f"{region}{chr(97 + n)}" for n in range(zones)] for region in regions}
    catalogue = Catalogue(
        taken_at=NOW,
        instance_types=types,
        offerings={r: dict.fromkeys(places[r], frozenset(types)) for r in regions},
        on_demand={
            r: {name: round(price * draw.uniform(1.0, 1.4), 4) for name, price in listed.items()}
            for r in regions
        },
        reclaim_share={r: {name: draw.choice(_SHARES) for name in types} for r in regions},
    )
    spot = [
        SpotPrice(
            instance_type=name,
            zone=zone,
            price=round(catalogue.on_demand[region][name] * draw.uniform(0.16, 0.97), 4),
            seen_at=NOW,
        )
        for region in regions
        for zone in places[region]
        for name in types
    ]
    built = build_offers(
        catalogue, spot, zones=places, spot_price_ratio_estimate=0.5, volume_gib=100
    )
    # Values as a live catalogue has them: each offer is its own object.
    return tuple(replace(offer) for offer in built[:offers])
