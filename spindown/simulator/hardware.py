"""What instance types are, by EC2's name alone: a price file or a made-up market says no more."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from spindown.domain.offer import InstanceType

_MIB_PER_GIB = 1024
_SIZE = re.compile(r"(\d*)xlarge")
_VCPUS_OF_XLARGE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Family:
    gpu: str
    #: Of one GPU.
    gpu_memory_mib: int
    gib_per_vcpu: float = 4.0
    architecture: str = "x86_64"
    #: Size -> GPUs; 1 for those that are not named.
    gpus: Mapping[str, int] = field(default_factory=dict)
    #: Size -> memory in GiB, where it does not follow the vCPUs.
    odd_gib: Mapping[str, float] = field(default_factory=dict)


_EIGHT = {"24xlarge": 8, "48xlarge": 8}
_FOUR_AND_EIGHT = {"12xlarge": 4, "24xlarge": 4, "48xlarge": 8}
_TWO_TO_EIGHT = {"12xlarge": 2, "24xlarge": 4, "48xlarge": 8}

#: The GPU instance types. Facts of DescribeInstanceTypes, read in 2026 (also: AWS, "Amazon EC2
#: instance types, accelerated computing"). Within a family memory follows the vCPUs, and a size
#: says the vCPUs.
_FAMILIES = {
    "g4dn": _Family(gpu="T4", gpu_memory_mib=16_384, gpus={"12xlarge": 4}),
    "g5": _Family(gpu="A10G", gpu_memory_mib=22_888, gpus=_FOUR_AND_EIGHT),
    "g5g": _Family(
        gpu="T4g",
        gpu_memory_mib=16_384,
        gib_per_vcpu=2.0,
        architecture="arm64",
        gpus={"16xlarge": 2},
    ),
    "g6": _Family(gpu="L4", gpu_memory_mib=22_888, gpus=_FOUR_AND_EIGHT),
    "gr6": _Family(gpu="L4", gpu_memory_mib=22_888, gib_per_vcpu=8.0),
    "g6e": _Family(gpu="L40S", gpu_memory_mib=45_776, gib_per_vcpu=8.0, gpus=_FOUR_AND_EIGHT),
    "g7": _Family(gpu="RTX PRO 4500", gpu_memory_mib=32_768, gpus=_TWO_TO_EIGHT),
    "g7e": _Family(
        gpu="RTX PRO Server 6000",
        gpu_memory_mib=98_304,
        gib_per_vcpu=8.0,
        gpus=_TWO_TO_EIGHT,
        odd_gib={"12xlarge": 512, "24xlarge": 1024, "48xlarge": 2048},
    ),
    "p3": _Family(
        gpu="V100", gpu_memory_mib=16_384, gib_per_vcpu=7.625, gpus={"8xlarge": 4, "16xlarge": 8}
    ),
    "p3dn": _Family(gpu="V100", gpu_memory_mib=32_768, gib_per_vcpu=8.0, gpus=_EIGHT),
    "p4d": _Family(gpu="A100", gpu_memory_mib=40_960, gib_per_vcpu=12.0, gpus=_EIGHT),
    "p4de": _Family(gpu="A100", gpu_memory_mib=81_920, gib_per_vcpu=12.0, gpus=_EIGHT),
    "p5": _Family(
        gpu="H100",
        gpu_memory_mib=81_920,
        gib_per_vcpu=2048 / 192,
        gpus=_EIGHT,
        odd_gib={"4xlarge": 256},
    ),
    "p5e": _Family(gpu="H200", gpu_memory_mib=144_384, gib_per_vcpu=2048 / 192, gpus=_EIGHT),
    "p5en": _Family(gpu="H200", gpu_memory_mib=144_384, gib_per_vcpu=2048 / 192, gpus=_EIGHT),
    "p6-b200": _Family(gpu="B200", gpu_memory_mib=183_359, gib_per_vcpu=2048 / 192, gpus=_EIGHT),
}


#: GiB a vCPU of c, m and r types, from the 5th generation on (as above). Others, such as c5n, have
#: memory of their own and are not known.
_CPU_FAMILY = re.compile(r"(?P<letter>[cmr])([5-9])(?P<maker>[aig]?)d?")
_GIB_PER_VCPU = {"c": 2, "m": 4, "r": 8}
_SMALL_VCPUS = {"large": 2}


def find_type(name: str) -> InstanceType | None:
    """Return a type by EC2's name; None: one that these tables do not know."""
    family_name, _, size = name.partition(".")
    if matched := _CPU_FAMILY.fullmatch(family_name):
        return _find_cpu_type(name, size, matched)
    family, matched = _FAMILIES.get(family_name), _SIZE.fullmatch(size)
    if family is None or matched is None:
        return None
    vcpus = _VCPUS_OF_XLARGE * int(matched[1] or 1)
    return InstanceType(
        name=name,
        vcpus=vcpus,
        memory_mib=round(family.odd_gib.get(size, vcpus * family.gib_per_vcpu) * _MIB_PER_GIB),
        architecture=family.architecture,
        gpu_name=family.gpu,
        gpu_manufacturer="NVIDIA",
        gpu_count=float(family.gpus.get(size, 1)),
        gpu_memory_mib=family.gpu_memory_mib,
    )


def _find_cpu_type(name: str, size: str, family: re.Match[str]) -> InstanceType | None:
    matched = _SIZE.fullmatch(size)
    if matched is None and size not in _SMALL_VCPUS:
        return None
    vcpus = _VCPUS_OF_XLARGE * int(matched[1] or 1) if matched else _SMALL_VCPUS[size]
    return InstanceType(
        name=name,
        vcpus=vcpus,
        memory_mib=vcpus * _GIB_PER_VCPU[family["letter"]] * _MIB_PER_GIB,
        architecture="arm64" if family["maker"] == "g" else "x86_64",
    )
