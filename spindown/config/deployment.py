"""The tables of ``[deployment]``: its home region, and further regions where workers may run."""

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, model_validator

from spindown.config.form import (
    EmailAddress,
    Flag,
    Name,
    Positive,
    Region,
    SubnetId,
    TomlTable,
    name_pattern,
    remedy,
)

#: A role takes ten managed policies (AWS, "IAM and AWS STS quotas"), one of each outpost.
OUTPOSTS_AT_MOST = 9


class NetworkConfig(TomlTable):
    """An existing network of a region; without it a small one is made."""

    vpc_id: Annotated[str, name_pattern("a VPC id", r"vpc-[0-9a-f]+", "the form vpc-0123abcd")]
    #: zone -> subnet id.
    subnets: dict[str, SubnetId] = Field(min_length=1)


class OutpostConfig(TomlTable):
    """``[deployment.outpost.REGION]``: where workers may run in another region."""

    zones: tuple[str, ...] = Field(min_length=1)
    network: NetworkConfig | None = None


class DeploymentConfig(TomlTable):
    """``[deployment]``."""

    name: Name
    region: Region
    zones: tuple[str, ...] = Field(min_length=1)
    budget_per_month: Positive | None = None
    #: Who gets the alarms; AWS asks this address to confirm. None: nobody is told.
    alarm_email: EmailAddress | None = None
    network: NetworkConfig | None = None
    #: Whether people with the right may open a shell on workers by SSM Session Manager.
    session_manager: Flag = False
    #: Further regions where workers may run.
    outpost: dict[Region, OutpostConfig] = Field(default_factory=dict, max_length=OUTPOSTS_AT_MOST)

    @model_validator(mode="after")
    def _be_in_regions(self) -> "DeploymentConfig":
        if self.region in self.outpost:
            raise remedy(f"outpost.{self.region}", "take it out: workers run at home anyway")
        for region, place in self.outposts.items():
            _check_place("" if region == self.region else f"outpost.{region}.", region, place)
        return self

    @property
    def outposts(self) -> Mapping[str, OutpostConfig]:
        """Return every region where workers may run; home comes first."""
        home = OutpostConfig.model_construct(zones=self.zones, network=self.network)
        return {self.region: home, **dict(sorted(self.outpost.items()))}


class DraftDeploymentConfig(DeploymentConfig):
    """``[deployment]`` of a file that nothing can be deployed from yet."""

    zones: tuple[str, ...] = ()


def _check_place(table: str, region: str, place: OutpostConfig) -> None:
    for zone in place.zones:
        if not re.fullmatch(re.escape(region) + "[a-z]", zone):
            raise remedy(f"{table}zones", f"list zones of {region}, such as {region}a")
    if len(set(place.zones)) < len(place.zones):
        raise remedy(f"{table}zones", "name each zone once")
    if place.network is not None and set(place.network.subnets) != set(place.zones):
        raise remedy(f"{table}network", "give one subnet for each of the zones")
