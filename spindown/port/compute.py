"""EC2: launching, describing and terminating, and what its market offers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from spindown.contract.settings import TemplateRef
from spindown.domain.offer import CapacityType, InstanceType, Quota, SpotPrice


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOverride:
    """One pool of a launch request, in order of preference."""

    instance_type: str
    zone: str
    subnet_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """One CreateFleet(Type=instant), self-contained so that it can be replayed verbatim."""

    client_token: str
    region: str
    template: TemplateRef
    capacity_type: CapacityType
    overrides: tuple[LaunchOverride, ...]
    count: int
    #: Tags of instance and fleet, besides those of the template.
    tags: Mapping[str, str]


class RefusalKind(StrEnum):
    """What a refusal means for what to try next; the table is in ``spindown.aws.error``."""

    #: This pool is dry: remember it, take the next offer.
    CAPACITY = "capacity"
    #: This quota class is full.
    QUOTA = "quota"
    #: Account or configuration: nothing will launch until a person acts.
    ACCOUNT = "account"
    #: Too many calls: end the tick.
    THROTTLE = "throttle"
    #: A code that the table does not know: as capacity, counted and alarmed.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why one override, or the whole request, was not served."""

    kind: RefusalKind
    code: str
    message: str
    #: None: every type of the zone, whose subnet is at its end; without a zone the whole request.
    instance_type: str | None = None
    zone: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedInstance:
    """One instance that a request gave."""

    instance_id: str
    instance_type: str
    zone: str
    capacity_type: CapacityType
    #: When EC2 started it; None: it was not described.
    launched_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchAnswer:
    """What EC2 said: instances and refusals, either of which may be empty."""

    instances: tuple[LaunchedInstance, ...] = ()
    refusals: tuple[Refusal, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceView:
    """An instance as EC2 describes it."""

    instance_id: str
    instance_type: str
    region: str
    zone: str
    capacity_type: CapacityType
    #: pending, running, shutting-down, terminated, stopping, stopped.
    state: str
    launched_at: datetime
    tags: Mapping[str, str] = field(default_factory=dict)
    #: EC2's StateReason.Code, for example "Server.SpotInstanceTermination".
    state_reason: str = ""
    #: "": it is gone, or nobody has looked.
    subnet_id: str = ""


class Compute(Protocol):
    """EC2, in every region of the deployment."""

    def launch(self, request: LaunchRequest) -> LaunchAnswer:
        """Ask once; a refusal of any kind is an answer, not an error.

        Raises:
            Unreachable: no answer; the request may have been carried out.
        """
        ...

    def instances(self, *, region: str, tags: Mapping[str, str]) -> Sequence[InstanceView]:
        """Return the instances that carry all these tags, terminated ones as long as EC2 has."""
        ...

    def instance(self, *, region: str, instance_id: str) -> InstanceView:
        """Return one instance (raises NotFound, which right after a launch proves nothing)."""
        ...

    def terminate(self, *, region: str, instance_ids: Sequence[str]) -> None:
        """Terminate instances; those that are gone already are no error."""
        ...

    def reclaimed(self, *, region: str, instance_ids: Sequence[str]) -> frozenset[str]:
        """Return those whose spot request says that EC2 is taking them away."""
        ...


class Market(Protocol):
    """What EC2 offers and at what price."""

    def instance_types(self, *, region: str) -> Sequence[InstanceType]:
        """Return every type with a GPU."""
        ...

    def offerings(self, *, region: str) -> Mapping[str, frozenset[str]]:
        """Return zone -> names of types offered there."""
        ...

    def on_demand_prices(self, *, region: str) -> Mapping[str, float]:
        """Return type -> USD per hour, Linux, shared tenancy."""
        ...

    def spot_prices(self, *, region: str, instance_types: Sequence[str]) -> Sequence[SpotPrice]:
        """Return the present price of each type in each zone that has one."""
        ...

    def volume_price(self, *, region: str) -> float:
        """Return USD per GiB-month of gp3 (raises NotFound)."""
        ...

    def transfer_prices(self, *, region: str) -> Mapping[str, float]:
        """Return other region -> USD per GiB that leaves this region for it."""
        ...

    def quotas(self, *, region: str) -> Mapping[str, Quota]:
        """Return class -> quota, such as "G/Spot", for those that count the vCPUs of instances.

        The class is what Service Quotas itself says, so that a new family needs no new code.
        """
        ...


class Advisor(Protocol):
    """What AWS publishes about how often spot instances are reclaimed."""

    def reclaim_shares(self, *, region: str) -> Mapping[str, float]:
        """Return type -> share of its spot instances that EC2 reclaims in a month, 0 to 1.

        Raises:
            Unreachable: no answer in time.
            ContractError: an answer that says nothing of the region, or makes no sense.
        """
        ...
