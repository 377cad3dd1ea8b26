"""``[pricing]``: what is paid other than EC2's prices."""

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from spindown.config.form import (
    AtLeastOne,
    FamilyName,
    InstanceTypeName,
    Name,
    Positive,
    Region,
    TomlTable,
    remedy,
)
from spindown.domain.account_pricing import Discount, PaidMachines, Pricing
from spindown.domain.offer import CapacityType

#: Taxes and a reseller's margin may add to EC2's price, but do not double it.
_MULTIPLIER_AT_MOST = 2


def _be_a_share(value: float) -> float:
    """Refuse what is most likely meant as a percentage."""
    if value > _MULTIPLIER_AT_MOST:
        raise ValueError(
            f"write what you pay of a dollar, {_MULTIPLIER_AT_MOST} at most: 0.8 where 20 % is off"
        )
    return value


class DiscountConfig(TomlTable):
    """A ``[[pricing.discount]]`` entry."""

    multiplier: Annotated[Positive, AfterValidator(_be_a_share)]
    families: frozenset[FamilyName] = frozenset()
    regions: frozenset[Region] = frozenset()
    capacity_types: frozenset[CapacityType] = frozenset()


class PaidConfig(TomlTable):
    """A ``[[pricing.paid]]`` entry."""

    instance_type: InstanceTypeName
    count: AtLeastOne
    #: None: home.
    region: Region | None = None
    #: None: any zone of the region.
    zone: str | None = None
    #: Whose machines they are; None: those of the only workload.
    workload: Name | None = None

    def place(self, home: str) -> str:
        """Return the region of the machines."""
        return self.region or (self.zone[:-1] if self.zone else home)


class PricingConfig(TomlTable):
    """``[pricing]``."""

    discount: tuple[DiscountConfig, ...] = Field(default=(), max_length=50)
    paid: tuple[PaidConfig, ...] = Field(default=(), max_length=50)

    @model_validator(mode="after")
    def _stay_in_a_region(self) -> "PricingConfig":
        for number, one in enumerate(self.paid):
            region = one.region
            if one.zone is not None and region is not None and one.zone[:-1] != region:
                raise remedy(f"paid.{number}.zone", f"name a zone of {region}, or leave it out")
        return self

    def of(self, workload: str, home: str, *, has_addresses: bool = True) -> Pricing | None:
        """Return what a workload goes by; None: EC2's prices."""
        found = Pricing(
            discounts=tuple(Discount(**dict(one)) for one in self.discount),
            paid=tuple(
                PaidMachines(
                    instance_type=one.instance_type,
                    count=one.count,
                    region=one.place(home),
                    zone=one.zone or "",
                )
                for one in self.paid
                if one.workload in {None, workload}
            ),
            has_addresses=has_addresses,
        )
        return None if found == Pricing() else found
