"""What surrounds a use case: the clock, settings, metrics, and the instance that we run on."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from spindown.contract.job.event import JobEvent
from spindown.contract.settings import DeploymentSettings, WorkloadSettings
from spindown.domain.offer import CapacityType


class Clock(Protocol):
    """The time now."""

    def now(self) -> datetime:
        """Return the present instant, aware, in UTC."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveEdit:
    """A live policy edit as stored: JSON text and where it came from."""

    text: str
    version: int
    edited_at: datetime
    edited_by: str = ""


class SettingsStore(Protocol):
    """Where the deployment is described and its policies are edited."""

    def deployment(self) -> DeploymentSettings:
        """Return the deployment (raises NotFound, ContractError)."""
        ...

    def workload(self, name: str) -> tuple[WorkloadSettings, LiveEdit | None]:
        """Return a workload as deployed with all its outposts, and its live edit.

        An outpost that cannot be read is left out and named in ``unread``.
        """
        ...

    def put_live(self, name: str, text: str) -> None:
        """Store a live edit."""
        ...

    def delete_live(self, name: str) -> None:
        """Go back to the policy as deployed."""
        ...

    def history(self, name: str) -> Sequence[LiveEdit]:
        """Return past live edits, oldest first."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Datum:
    """One metric value; name, unit and dimensions are those of ``spindown.contract.metric``."""

    name: str
    value: float
    dimensions: Mapping[str, str] = field(default_factory=dict)
    #: What is behind it, for whoever reads the log: no dimension.
    reason: str = ""


class MetricSink(Protocol):
    """Where metrics go."""

    def emit(self, data: Iterable[Datum]) -> None:
        """Hand over metrics, read once or not at all; never raises: no work may fail for one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who this instance is, from its metadata."""

    instance_id: str
    instance_type: str
    region: str
    zone: str
    capacity_type: CapacityType
    tags: Mapping[str, str]


class Metadata(Protocol):
    """The instance metadata of the instance that we run on."""

    def identity(self) -> Identity:
        """Return who we are."""
        ...

    def interruption(self) -> datetime | None:
        """Return when EC2 takes the instance away, once announced."""
        ...

    def rebalance(self) -> datetime | None:
        """Return when a rebalance recommendation was given, if one was."""
        ...


class JobEvents(Protocol):
    """Where other systems hear that jobs are over."""

    def send(self, events: Sequence[JobEvent]) -> None:
        """Send events; after an error some may have gone, and go again the next time."""
        ...
