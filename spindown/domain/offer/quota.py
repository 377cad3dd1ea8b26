"""How EC2 sells capacity, and the vCPU quotas that it counts against."""

from dataclasses import dataclass
from enum import StrEnum


class CapacityType(StrEnum):
    """How EC2 sells an instance."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """One vCPU quota of the account in a region."""

    #: Service Quotas' own name of it, for example "L-3819A6DF".
    code: str
    vcpus: float


#: Class of EC2's vCPU quotas -> quota code (AWS, "Amazon EC2 endpoints and quotas").
QUOTA_CODES = {
    "G/Spot": "L-3819A6DF",
    "P/Spot": "L-7212CCBC",
    "P5/Spot": "L-C4BD4855",
    "G/OnDemand": "L-DB2E81BA",
    "P/OnDemand": "L-417A185B",
}


def quota_class(instance_type: str, region: str, capacity_type: CapacityType) -> str:
    """Return ``{region}/{class}``: quotas are counted in vCPUs, per region and capacity type.

    The classes are those of CloudWatch's usage metrics: G and VT types share one; P2 to P4
    share one as spot, newer P generations have their own; all P share one on demand.
    """
    if instance_type.startswith(("g", "vt")):
        name = "G"
    elif instance_type.startswith("p"):
        generation = instance_type[1:2]
        shared = capacity_type is CapacityType.ON_DEMAND or generation in {"2", "3", "4"}
        name = "P" if shared else f"P{generation}"
    else:
        name = "Standard"
    return f"{region}/{name}/{'Spot' if capacity_type is CapacityType.SPOT else 'OnDemand'}"
