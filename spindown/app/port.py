"""What the use cases need from the world, named for the role it plays.

``spindown.memory`` keeps every one of them in memory, ``spindown.aws`` on AWS; one contract
suite a port (tests/ports) runs over both. Errors are those of ``spindown.error``; every port
may raise Throttled, AccessDenied and Unreachable besides those it names.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from spindown.contract.codec import Row
from spindown.contract.settings import DeploymentSettings, TemplateRef, WorkloadSettings
from spindown.domain.fleet import Backlog
from spindown.domain.offer import CapacityType, InstanceType, SpotPrice


class Clock(Protocol):
    """The time now."""

    def now(self) -> datetime:
        """Return the present instant, aware, in UTC."""
        ...


# --- queue ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One receipt of one message."""

    message_id: str
    body: str
    receipt_handle: str
    receive_count: int
    #: When it was first sent; a re-sent copy starts anew.
    sent_at: datetime
    received_at: datetime
    tenant: str | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """One message to send."""

    body: str
    #: Fair-queue group (SQS MessageGroupId on a standard queue).
    tenant: str | None = None
    #: At most 15 minutes.
    delay: timedelta = timedelta(0)
    #: At most 10, sent as message attributes of type String.
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """Return its size as SQS counts it: body, and each attribute's name, type and value."""
        texts = [self.body]
        for name, value in self.attributes.items():
            texts += [name, "String", value]
        return sum(len(text.encode()) for text in texts)


class JobQueue(Protocol):
    """A standard SQS queue: at least once, in no order."""

    def send(self, messages: Sequence[Outgoing]) -> None:
        """Send any number of messages; raise if one was not accepted."""
        ...

    def receive(self, *, wait: timedelta, visibility: timedelta) -> Message | None:
        """Take one message, waiting at most 20 s; None when there is none."""
        ...

    def extend(self, receipt_handle: str, visibility: timedelta) -> None:
        """Hide the message for ``visibility`` from now; zero requeues it.

        Raises:
            StaleHandle: it was received again since, deleted, or its timeout has passed.
        """
        ...

    def delete(self, receipt_handle: str) -> None:
        """Delete the message for good.

        Raises:
            StaleHandle: as for ``extend`` (AWS itself may report success instead).
        """
        ...

    def backlog(self) -> Backlog:
        """Return the approximate numbers of messages."""
        ...


# --- objects ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """Write only if the key has no current object (``If-None-Match: *``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """Write only over the object with this ETag (``If-Match``)."""

    etag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """An object's bytes and identity."""

    data: bytes
    etag: str
    version: str
    modified_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectSummary:
    """One row of a listing."""

    key: str
    bytes: int
    modified_at: datetime


class ObjectStore(Protocol):
    """The deployment's own versioned bucket. Every key is relative to the bucket."""

    def get(self, key: str, *, version: str | None = None) -> StoredObject:
        """Read an object.

        Raises:
            NotFound: there is none.
        """
        ...

    def put(self, key: str, data: bytes, *, condition: Absent | Matches | None = None) -> str:
        """Write an object, return its ETag.

        Raises:
            PreconditionFailed: the condition does not hold (412, or 404 for ``Matches``).
            WriteConflict: another write was under way (409); repeat with the same condition.
        """
        ...

    def put_file(self, key: str, path: Path) -> None:
        """Upload a file unconditionally, in parts if it is large."""
        ...

    def get_file(self, key: str, path: Path) -> None:
        """Download an object into ``path`` (raises NotFound)."""
        ...

    def list(self, prefix: str) -> Iterator[ObjectSummary]:
        """List objects under a prefix in key order."""
        ...

    def versions(self, key: str) -> Sequence[str]:
        """Return the version ids of a key, newest first, without delete markers."""
        ...


class InputSource(Protocol):
    """What a workload was declared to be allowed to read, by ``s3://bucket/key``."""

    def read(self, uri: str, *, at_most_bytes: int) -> bytes:
        """Read an object.

        Raises:
            NotFound: it does not exist.
            AccessDenied: it lies outside the declared inputs.
            ContractError: it is larger than ``at_most_bytes``.
        """
        ...

    def list(self, uri_prefix: str) -> Iterator[str]:
        """Yield the URIs of the objects under a prefix, in key order."""
        ...

    def fetch(self, uri: str, path: Path) -> None:
        """Download an object to a local file."""
        ...


# --- ledger table -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """Where a row lies: partition and sort key."""

    partition: str
    sort: str


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """A condition on the row as it is; all parts must hold. An empty one always holds.

    Everywhere a missing attribute is the same as a null one, so that a row written before a
    field was known meets the same conditions as one written after.
    """

    #: True: the row must exist. False: it must not. None: either.
    exists: bool | None = None
    equals: Mapping[str, Any] = field(default_factory=dict)
    differs: Mapping[str, Any] = field(default_factory=dict)
    #: Attribute missing or null, or less than or equal to the value.
    at_most: Mapping[str, Any] = field(default_factory=dict)
    #: Attribute missing or null.
    absent: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One conditional change of one row. ``delete`` excludes ``set``, ``add`` and ``remove``.

    A change creates the row if there is none. Without any change it only checks the condition.
    """

    key: Key
    when: When = field(default_factory=When)
    set: Mapping[str, Any] = field(default_factory=dict)
    #: Numbers added atomically; a missing attribute counts as 0.
    add: Mapping[str, float] = field(default_factory=dict)
    remove: frozenset[str] = frozenset()
    delete: bool = False


class Table(Protocol):
    """The DynamoDB table. Rows are JSON-like dicts without their keys; reads are consistent.

    A null value in ``set`` is stored as null. ``instance_id`` is indexed on its own.
    """

    def get(self, key: Key) -> Row | None:
        """Read one row."""
        ...

    def query(self, partition: str, prefix: str = "") -> Mapping[str, Row]:
        """Read all rows of a partition whose sort key begins with ``prefix``, by sort key."""
        ...

    def write(self, write: Write) -> Row | None:
        """Change one row; return it as it is now (None once deleted).

        Raises:
            PreconditionFailed: the condition does not hold.
        """
        ...

    def transact(self, writes: Sequence[Write]) -> None:
        """Change up to 100 rows, all or none.

        Raises:
            PreconditionFailed: one of the conditions does not hold.
        """
        ...

    def find_instance(self, instance_id: str) -> Key | None:
        """Return the key of the worker row of an instance, eventually consistent."""
        ...


# --- compute ----------------------------------------------------------------------------------


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
    #: None: the whole request.
    instance_type: str | None = None
    zone: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedInstance:
    """One instance that a request gave."""

    instance_id: str
    instance_type: str
    zone: str
    capacity_type: CapacityType


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

    def quotas(self, *, region: str) -> Mapping[str, float]:
        """Return quota code -> vCPUs, for the instance quotas of EC2."""
        ...


# --- settings, metrics, the worker's surroundings ---------------------------------------------


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
        """Return a workload as deployed, and its live edit, in one read."""
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


class MetricSink(Protocol):
    """Where metrics go."""

    def emit(self, data: Sequence[Datum]) -> None:
        """Hand over metrics; never raises, since no work may fail for a metric."""
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
