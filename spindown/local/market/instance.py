"""One instance as the market knows it, and what it needs from the outside world."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from spindown.domain.offer import CapacityType, Pool


class State(StrEnum):
    """EC2's instance states."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    SHUTTING_DOWN = "shutting-down"
    TERMINATED = "terminated"

    @property
    def code(self) -> int:
        """Return EC2's number for the state (InstanceState.Code)."""
        return _STATE_CODES[self]

    @property
    def is_alive(self) -> bool:
        """Tell whether EC2 runs the instance or is about to."""
        return self in {State.PENDING, State.RUNNING}


_STATE_CODES = {
    State.PENDING: 0,
    State.RUNNING: 16,
    State.SHUTTING_DOWN: 32,
    State.TERMINATED: 48,
    State.STOPPING: 64,
    State.STOPPED: 80,
}


class Reason(StrEnum):
    """Why an instance ended (StateReason.Code)."""

    RECLAIMED = "Server.SpotInstanceTermination"
    API_CALL = "Client.UserInitiatedShutdown"
    GUEST = "Client.InstanceInitiatedShutdown"

    @property
    def message(self) -> str:
        """Return StateReason.Message, which repeats the code as EC2 does."""
        return f"{self}: {_REASON_TEXTS[self]}"


_REASON_TEXTS = {
    Reason.RECLAIMED: "Spot instance termination",
    Reason.API_CALL: "User initiated shutdown",
    Reason.GUEST: "Instance initiated shutdown",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """EC2's word that it will take a spot instance at a moment."""

    given_at: datetime
    due_at: datetime
    #: "no-capacity" or "price", as the spot request's status will end.
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketInstance:
    """A snapshot of one instance; a later state is another value."""

    instance_id: str
    instance_type: str
    region: str
    zone: str
    capacity_type: CapacityType
    state: State
    launched_at: datetime
    running_at: datetime | None = None
    #: When billing ends: shutting-down or stopping began.
    ended_at: datetime | None = None
    terminated_at: datetime | None = None
    reason: Reason | None = None
    notice: Notice | None = None
    rebalance_at: datetime | None = None

    image_id: str
    subnet_id: str
    vpc_id: str
    private_ip: str
    profile_arn: str | None
    security_groups: tuple[str, ...]
    #: Decoded user data.
    user_data: bytes
    tags: Mapping[str, str]
    #: InstanceInitiatedShutdownBehavior: "stop" or "terminate".
    shutdown_behaviour: str
    #: Whether the metadata endpoint shows the tags (MetadataOptions.InstanceMetadataTags).
    metadata_tags: bool

    reservation_id: str
    fleet_id: str | None = None
    spot_request_id: str | None = None
    spot_request_tags: Mapping[str, str] = field(default_factory=dict)
    #: USD per hour: what the owner is at most willing to pay for spot capacity.
    max_price: float | None = None
    #: USD per hour at the launch; spot prices move afterwards.
    price_per_hour: float

    vcpus: int
    memory_mib: int
    gpu_name: str | None
    gpu_count: int
    gpu_memory_mib: int
    #: Computing speed relative to 1.0, for the hypervisor to enforce.
    speed: float

    @property
    def pool(self) -> Pool:
        """Return the capacity pool the instance was taken from."""
        return Pool(
            instance_type=self.instance_type, zone=self.zone, capacity_type=self.capacity_type
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTemplate:
    """What a launch takes from one version of a launch template."""

    template_id: str
    version: int
    image_id: str | None = None
    user_data: bytes = b""
    profile_arn: str | None = None
    security_groups: tuple[str, ...] = ()
    shutdown_behaviour: str = "stop"
    metadata_tags: bool = False
    instance_tags: Mapping[str, str] = field(default_factory=dict)
    spot_request_tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subnet:
    """Where a launch lands."""

    subnet_id: str
    vpc_id: str
    zone: str


class InstanceDriver(Protocol):
    """What runs the guests: in the local system the hypervisor.

    The market calls it without holding its own lock, in the order of the instance's life.
    """

    def start(self, instance: MarketInstance) -> None:
        """Boot the guest of an instance."""

    def stop(self, instance_id: str) -> None:
        """Take the hardware away at once; a guest that already ended is fine."""

    def console(self, instance_id: str) -> str:
        """Return what the guest has printed so far."""


class NoGuests:
    """A driver for markets without guests: tests and price studies."""

    def start(self, instance: MarketInstance) -> None:
        """Do nothing: there is no guest."""

    def stop(self, instance_id: str) -> None:
        """Do nothing: there is no guest."""

    def console(self, instance_id: str) -> str:
        """Return an empty console."""
        del instance_id
        return ""


class EmitEvent(Protocol):
    """Put one event on the account's default EventBridge bus."""

    def __call__(
        self, *, source: str, detail_type: str, detail: Mapping[str, str], resources: list[str]
    ) -> None:
        """Deliver the event; the market does not wait for targets."""


def no_events(
    *, source: str, detail_type: str, detail: Mapping[str, str], resources: list[str]
) -> None:
    """Drop the event: the `EmitEvent` of markets that nobody listens to."""
    del source, detail_type, detail, resources


def decoded(user_data: str | None) -> bytes:
    """Return user data as the guest reads it; EC2 carries it in base64."""
    return base64.b64decode(user_data) if user_data else b""
