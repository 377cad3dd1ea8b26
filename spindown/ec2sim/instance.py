"""One EC2 instance: what it was launched from, and its life by the clock.

The life follows from a few instants: when the instance runs, when it begins to end and how long
the end takes. Its state is computed from them whenever somebody asks.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from spindown.domain.offer import CapacityType, InstanceType, Pool


class InstanceState(StrEnum):
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
        return self in {InstanceState.PENDING, InstanceState.RUNNING}


_STATE_CODES = {
    InstanceState.PENDING: 0,
    InstanceState.RUNNING: 16,
    InstanceState.SHUTTING_DOWN: 32,
    InstanceState.TERMINATED: 48,
    InstanceState.STOPPING: 64,
    InstanceState.STOPPED: 80,
}


class EndReason(StrEnum):
    """Why an instance ended (StateReason.Code)."""

    RECLAIMED = "Server.SpotInstanceTermination"
    TERMINATED_BY_CALL = "Client.UserInitiatedShutdown"
    POWERED_OFF = "Client.InstanceInitiatedShutdown"

    @property
    def text(self) -> str:
        """Return EC2's words for it."""
        return _REASON_TEXTS[self]


_REASON_TEXTS = {
    EndReason.RECLAIMED: "Spot instance termination",
    EndReason.TERMINATED_BY_CALL: "User initiated shutdown",
    EndReason.POWERED_OFF: "Instance initiated shutdown",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotNotice:
    """EC2's notice that it takes a spot instance back at an instant."""

    given_at: datetime
    due_at: datetime
    #: "no-capacity" or "price", as the status of the spot request will end.
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchTemplate:
    """What a launch takes from one version of a launch template."""

    template_id: str
    version: str
    image_id: str = ""
    user_data: bytes = b""
    profile_arn: str | None = None
    security_groups: tuple[str, ...] = ()
    #: InstanceInitiatedShutdownBehavior: "stop" or "terminate".
    shutdown_behaviour: str = "stop"
    #: Whether the metadata endpoint shows the tags (MetadataOptions.InstanceMetadataTags).
    metadata_tags: bool = False
    instance_tags: Mapping[str, str] = field(default_factory=dict)
    spot_request_tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subnet:
    """Where a launch lands."""

    subnet_id: str
    zone: str
    vpc_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOrder:
    """One instance to launch, with everything decided but whether EC2 has it."""

    pool: Pool
    region: str
    subnet: Subnet
    template: LaunchTemplate
    image_id: str = ""
    #: Decoded user data.
    user_data: bytes = b""
    tags: Mapping[str, str] = field(default_factory=dict)
    #: USD per hour: the most that the owner pays for spot capacity; None: whatever it costs.
    max_price: float | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class Ec2Instance:
    """One instance, as it is now by ``clock``."""

    instance_id: str
    order: LaunchOrder
    hardware: InstanceType
    tags: Mapping[str, str]
    clock: Callable[[], datetime]
    launched_at: datetime
    #: When it runs, unless it ends before.
    runs_at: datetime
    #: How long it takes to shut down or to stop.
    ending: timedelta
    #: USD per hour at the launch; spot prices move afterwards.
    price_per_hour: float
    #: InstanceInitiatedShutdownBehavior: "stop" or "terminate".
    shutdown_behaviour: str
    private_ip: str
    fleet_id: str = ""
    #: When it begins to shut down, which may lie ahead.
    ends_at: datetime | None = None
    #: When it began to stop.
    stops_at: datetime | None = None
    #: Why it ends, also while that lies ahead.
    ends_for: EndReason | None = None
    notice: SpotNotice | None = None
    #: When EC2 recommended to rebalance.
    rebalance_at: datetime | None = None

    def end(self, at: datetime, reason: EndReason) -> None:
        """Let it shut down at an instant, unless it does so before."""
        if self.ends_at is None or at < self.ends_at:
            self.ends_at, self.ends_for = at, reason

    def stop(self, at: datetime, reason: EndReason) -> None:
        """Let it stop: it keeps its disk and its id."""
        self.stops_at, self.ends_for = at, reason

    @property
    def state(self) -> InstanceState:
        """Return its state now."""
        now = self.clock()
        if self.ends_at is not None and now >= self.ends_at:
            is_over = now >= self.ends_at + self.ending
            return InstanceState.TERMINATED if is_over else InstanceState.SHUTTING_DOWN
        if self.stops_at is not None:
            is_over = now >= self.stops_at + self.ending
            return InstanceState.STOPPED if is_over else InstanceState.STOPPING
        return InstanceState.PENDING if now < self.runs_at else InstanceState.RUNNING

    @property
    def ended_at(self) -> datetime | None:
        """Return when it began to shut down or to stop, which ends its bill; None: it has not."""
        if self.stops_at is not None:
            return self.stops_at
        if self.ends_at is None or self.clock() < self.ends_at:
            return None
        return self.ends_at

    @property
    def terminated_at(self) -> datetime | None:
        """Return when it was gone; None: it is not."""
        return self.ends_at + self.ending if self.ends_at and self.is_gone(self.clock()) else None

    def is_gone(self, now: datetime, *, for_: timedelta = timedelta(0)) -> bool:
        """Tell whether it is terminated, for so long at least."""
        return self.ends_at is not None and now >= self.ends_at + self.ending + for_

    @property
    def reason(self) -> EndReason | None:
        """Return why it ended; None: it has not."""
        return None if self.ended_at is None else self.ends_for

    @property
    def pool(self) -> Pool:
        """Return the capacity pool that it was taken from."""
        return self.order.pool

    @property
    def instance_type(self) -> str:
        """Return the name of its type."""
        return self.order.pool.instance_type

    @property
    def zone(self) -> str:
        """Return its zone."""
        return self.order.pool.zone

    @property
    def region(self) -> str:
        """Return its region."""
        return self.order.region

    @property
    def capacity_type(self) -> CapacityType:
        """Return how it was sold."""
        return self.order.pool.capacity_type

    @property
    def is_spot(self) -> bool:
        """Tell whether EC2 may take it back."""
        return self.order.pool.capacity_type is CapacityType.SPOT

    @property
    def reservation_id(self) -> str:
        """Return the id of its reservation, which holds nothing else."""
        return f"r-{self.instance_id[2:]}"

    @property
    def spot_request_id(self) -> str | None:
        """Return the id of the one-time request behind a spot instance."""
        return f"sir-{self.instance_id[-8:]}" if self.is_spot else None
