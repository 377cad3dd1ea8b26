"""What the use cases need from the world, named for the role it plays.

``spindown.memory`` keeps every one of them in memory, ``spindown.aws`` on AWS; one contract
suite a port (tests/ports) runs over both. Errors are those of ``spindown.error``; every port
may raise Throttled, AccessDenied and Unreachable besides those it names.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import reduce
from pathlib import Path
from random import Random
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from spindown.contract.codec import Row
from spindown.contract.job.event import JobEvent
from spindown.contract.settings import DeploymentSettings, TemplateRef, WorkloadSettings
from spindown.domain.fleet import Backlog
from spindown.domain.offer import CapacityType, InstanceType, Quota, SpotPrice
from spindown.error import NotFound

# The queue that carries jobs.


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
    """A standard SQS queue: at least once, in no order.

    All but ``create`` and ``remove`` raise NotFound where there is no such queue.
    """

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

    def show(self, receipt_handles: Sequence[str]) -> None:
        """Requeue any number of messages; a handle that has lost its message is left out."""
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

    def create(self, *, dead_letters: str, tags: Mapping[str, str]) -> None:
        """Make the queue, as all queues of jobs are; one that is there stays as it is.

        Args:
            dead_letters: URL of the queue that gets what is received too often.
            tags: what it bears.

        Raises:
            Throttled: a queue of this name was deleted less than a minute ago.
        """
        ...

    def remove(self) -> None:
        """Delete the queue with all its messages; one that is not there is no error."""
        ...


#: From so many queues on, several are read at once.
_FEW = 10
_READS_AT_ONCE = 8


def read_backlogs(queues: Sequence[JobQueue]) -> list[Backlog | None]:
    """Return what each queue holds; None: it is not made yet."""
    if len(queues) < _FEW:
        return [_read_backlog(queue) for queue in queues]
    with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
        return list(pool.map(_read_backlog, queues))


def _read_backlog(queue: JobQueue) -> Backlog | None:
    with suppress(NotFound):
        return queue.backlog()
    return None


# The bucket, and the inputs that a workload may read.


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
    """The deployment's own versioned bucket, or one workload's part of it.

    Every key is relative to what the store stands for.
    """

    def get(
        self, key: str, *, version: str | None = None, at_most_bytes: int | None = None
    ) -> StoredObject:
        """Read an object.

        Raises:
            NotFound: there is none.
            ContractError: it is larger than ``at_most_bytes``, and was not downloaded.
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

    def delete(self, key: str) -> None:
        """Take the current object away, whether there is one or not; its versions stay."""
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


# The table under the ledger: rows, conditions, writes.


class Key(NamedTuple):
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


ALWAYS = When()


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One conditional change of one row. ``delete`` excludes ``set`` and ``add``.

    A change creates the row if there is none. Without any change it only checks the condition.
    """

    key: Key
    when: When = ALWAYS
    set: Mapping[str, Any] = field(default_factory=dict)
    #: Numbers added atomically; a missing attribute counts as 0.
    add: Mapping[str, float] = field(default_factory=dict)
    delete: bool = False

    def __post_init__(self) -> None:
        """Refuse what no table can carry out: a change beside a delete, one attribute twice."""
        if self.delete:
            if self.set or self.add:
                raise ValueError(f"{self.key}: a write deletes the row or changes it, not both")
        elif self.set and self.add and not self.set.keys().isdisjoint(self.add):
            raise ValueError(f"{self.key}: a write changes each attribute once")

    @property
    def is_check(self) -> bool:
        """Tell whether it only checks the condition."""
        return not (self.delete or self.set or self.add)

    @property
    def is_sum(self) -> bool:
        """Tell whether it adds to numbers, whatever the row is, and does nothing else."""
        return not (self.delete or self.set) and self.when is ALWAYS


#: MiB of rows that ``Table.query_each`` reads: DynamoDB's pages, each of a MiB (Amazon DynamoDB
#: Developer Guide, "Paginating table query results").
PAGES_AT_MOST = 16
#: The same of a query for the first rows.
PAGES_OF_FEW = 4
#: Of rows that are read by their keys. One that a worker of ours writes has some hundred.
CHARACTERS_OF_EACH, CHARACTERS_OF_FEW = 4_000, 4_000_000


class Table(Protocol):
    """The DynamoDB table. Rows are JSON-like dicts without their keys; reads are consistent.

    A null value in ``set`` is stored as null. ``instance_id`` is indexed on its own. Every method
    raises LedgerMissing where there is no table.
    """

    def get(self, key: Key) -> Row | None:
        """Read one row."""
        ...

    def get_each(self, keys: Sequence[Key]) -> Mapping[Key, Row]:
        """Read rows by their keys; one that is not there is left out.

        Nor are the last ones read once they hold more than ``CHARACTERS_OF_EACH`` for each key, and
        ``CHARACTERS_OF_FEW`` besides.
        """
        ...

    def query(
        self, partition: str, prefix: str = "", *, at_most: int | None = None
    ) -> Mapping[str, Row]:
        """Read the rows of a partition whose sort key begins with ``prefix``, by sort key.

        ``at_most``: the first so many, and no more than ``PAGES_OF_FEW`` MiB; None: all.
        """
        ...

    def query_each(
        self, partitions: Sequence[str], *, at_most: int
    ) -> Sequence[Mapping[str, Row]] | None:
        """Read all rows of some partitions by one request, each partition by sort key.

        None: they hold more rows than ``at_most``, or more than ``PAGES_AT_MOST`` MiB.
        """
        ...

    def write(self, write: Write) -> Row | None:
        """Change one row; return it as it is now (None once deleted).

        Raises:
            PreconditionFailed: the condition does not hold; names the row.
        """
        ...

    def transact(self, writes: Sequence[Write]) -> None:
        """Change up to 100 rows, all or none.

        Raises:
            PreconditionFailed: conditions do not hold; names the rows.
        """
        ...

    def find_machine(self, instance_id: str) -> Sequence[Key]:
        """Return the keys of the machine rows of an instance, eventually consistent.

        There is one at most: no worker writes where they lie, and rows under other sort keys do
        not count, whatever they name.
        """
        ...


def merge(writes: Iterable[Write]) -> list[Write]:
    """Return writes as one transaction takes them, with each row once."""
    by_row: dict[Key, list[Write]] = {}
    for write in writes:
        by_row.setdefault(write.key, []).append(write)
    return [_join_all(of_row) for of_row in by_row.values()]


def _join_all(writes: Sequence[Write]) -> Write:
    first = writes[0]
    if len(writes) == 1:
        return first
    if not all(write.is_sum for write in writes):
        return reduce(_join, writes)
    # The many additions to one account or pool.
    sums: dict[str, float] = {}
    for write in writes:
        for name, number in write.add.items():
            sums[name] = sums.get(name, 0) + number
    return Write(key=first.key, add=sums)


def _join(first: Write, second: Write) -> Write:
    """Return one write with the effect of both, the second after the first.

    A row that is deleted and then put keeps the fields that the put does not name: no write both
    deletes and puts.
    """
    when = _join_conditions(first.when, second.when)
    if first.when.exists is False and not (first.is_check or first.delete):
        # That it is there is what the first sees to.
        when = replace(when, exists=False)
    if first.delete or second.delete:
        return replace(second, when=when)
    changed = {**first.set, **second.set}
    sums = {name: number for name, number in first.add.items() if name not in second.set}
    for name, number in second.add.items():
        if name in first.set:
            changed[name] = first.set[name] + number
        else:
            sums[name] = sums.get(name, 0) + number
    return Write(
        key=first.key,
        when=when,
        set=changed,
        add=sums,
    )


def _join_conditions(first: When, second: When) -> When:
    if second is ALWAYS or second == ALWAYS:
        return first
    return When(
        exists=first.exists if second.exists is None else second.exists,
        equals={**second.equals, **first.equals},
        differs={**second.differs, **first.differs},
        at_most={**second.at_most, **first.at_most},
        absent=first.absent | second.absent,
    )


# EC2: launching, describing and terminating, and what its market offers.


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
    #: The image to start from; "": the one that the template names.
    image: str = ""


class RefusalKind(StrEnum):
    """What a refusal means for what to try next; the table is in ``spindown.aws.error``."""

    #: This pool has none: let it cool down, take the next offer.
    CAPACITY = "capacity"
    #: This quota class is full.
    QUOTA = "quota"
    #: Account or configuration: nothing will launch until a person acts; of a single pool, nothing
    #: of that pool.
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

    @property
    def is_of_request(self) -> bool:
        """Tell whether it is about the whole request."""
        return self.instance_type is None and self.zone is None


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
class InstanceView(LaunchedInstance):
    """An instance as EC2 describes it."""

    region: str
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

    def rehearse(self, request: LaunchRequest) -> Refusal | None:
        """Have EC2 check a launch of one override, and make nothing; None: it would be tried.

        EC2 checks what the caller may do and what the request names, not whether there is capacity.

        Raises:
            Throttled: EC2 asks to slow down.
            Unreachable: no answer.
        """
        ...

    def instances(self, *, region: str, tags: Mapping[str, str]) -> Sequence[InstanceView]:
        """Return the instances that carry all these tags, terminated ones as long as EC2 has."""
        ...

    def described(self, *, region: str, instance_ids: Sequence[str]) -> Sequence[InstanceView]:
        """Return those of these instances that EC2 describes, asked for by their ids."""
        ...

    def instance(self, *, region: str, instance_id: str) -> InstanceView:
        """Return one instance (raises NotFound, which right after a launch proves nothing)."""
        ...

    def terminate(self, *, region: str, instance_ids: Sequence[str]) -> Mapping[str, str]:
        """Terminate instances; return id -> EC2's state of each after that.

        Those that are gone already are no error. "": EC2 does not know it. One of which it says
        nothing is missing.
        """
        ...

    def reclaimed(self, *, region: str, instance_ids: Sequence[str]) -> frozenset[str]:
        """Return those whose spot request says that EC2 is taking them away."""
        ...


class Market(Protocol):
    """What EC2 offers and at what price."""

    def instance_types(self, *, region: str) -> Sequence[InstanceType]:
        """Return every type that workers may be bought of (``InstanceType.is_sold``), by name."""
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


# The AWS account, as far as a launch depends on it: what doctor asks before a launch has to.


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks."""

    account: str
    arn: str


class AccountPlan(StrEnum):
    """How AWS lets an account use what costs money."""

    #: Limited to what is eligible for it: a few small types, none with a GPU.
    FREE = "free"
    PAID = "paid"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageView:
    """A machine image as EC2 describes it."""

    image_id: str
    #: "x86_64" or "arm64".
    architecture: str
    #: "available" once instances can be launched from it.
    state: str
    #: Size of the snapshot that its root volume is made from; no root volume can be smaller.
    root_gib: int
    #: What its root volume is called, such as "/dev/sda1".
    root_device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetView:
    """A subnet as EC2 describes it."""

    subnet_id: str
    zone: str
    free_addresses: int
    vpc_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SubnetWay:
    """What instances in a subnet reach beyond their VPC."""

    subnet_id: str
    #: Whether it gives instances public addresses at their launch.
    is_public: bool
    #: What its default route leads to, as ``igw-1`` or ``nat-1``; "": it has none; None: that of a
    #: subnet which another account shares may not be seen.
    default_route: str | None
    #: Services with an endpoint there, as the names of endpoints end: ``sqs``, ``ecr.api``.
    endpoints: frozenset[str]
    #: What VPC Block Public Access closes there: "off", "block-ingress" or "block-bidirectional".
    gateway_block: str = "off"

    @property
    def is_public_route(self) -> bool:
        """Tell whether its default route serves only who has a public address."""
        return (self.default_route or "").startswith("igw-")

    @property
    def reaches_internet(self) -> bool:
        """Tell whether its instances reach the internet, as far as its routes tell.

        Whichever way traffic is blocked, no internet gateway serves an instance; a NAT gateway may
        be in a subnet that is left out (Amazon VPC User Guide, "Block public access to VPCs and
        subnets").
        """
        by_gateway = self.is_public and self.gateway_block == "off"
        return bool(self.default_route) and (by_gateway or not self.is_public_route)


#: The quota of VPCs in a region (Service Quotas, service code vpc).
VPC_CODE = "L-F678F1CE"


@dataclass(frozen=True, slots=True, kw_only=True)
class VpcCount:
    """How many VPCs there are in a region, and how many there may be."""

    there: int
    quota: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmView:
    """An alarm as CloudWatch describes it."""

    #: "OK", "ALARM" or "INSUFFICIENT_DATA", and since when.
    state: str
    since: datetime
    #: Whether its actions are on.
    acts: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """Who is told what a topic carries."""

    #: "email", "lambda" and the like.
    protocol: str
    endpoint: str
    #: Whether it gets anything: an address confirms first that it wants to.
    is_confirmed: bool


class Account(Protocol):
    """What the account is, has and allows. Nothing here changes anything."""

    def caller(self) -> Caller:
        """Return whose credentials these are (raises AccessDenied: nobody's that are valid)."""
        ...

    def plan(self) -> AccountPlan | None:
        """Return the account's plan; None: it has none, as accounts from before there were any."""
        ...

    def has_spot_role(self) -> bool:
        """Tell whether EC2's service-linked role for spot requests is there."""
        ...

    def concurrency(self, *, region: str) -> int:
        """Return how many executions Lambda runs at once for the whole account."""
        ...

    def parameter(self, name: str, *, region: str) -> str:
        """Return the value of an SSM parameter (raises NotFound)."""
        ...

    def image(self, image_id: str, *, region: str) -> ImageView:
        """Return an image (raises NotFound: it is gone, or not ours to use)."""
        ...

    def subnets(self, subnet_ids: Sequence[str], *, region: str) -> Sequence[SubnetView]:
        """Return those of the subnets that exist."""
        ...

    def ways_out(self, subnet_ids: Sequence[str], *, region: str) -> Mapping[str, SubnetWay]:
        """Return what those of the subnets reach that exist, by their ids."""
        ...

    def vpcs(self, *, region: str) -> VpcCount:
        """Count the VPCs of a region against their quota."""
        ...

    def try_input(self, uri_prefix: str) -> None:
        """List a prefix and look at its first object (raises NotFound, AccessDenied)."""
        ...

    def sends_events(self, bucket: str) -> bool:
        """Tell whether a bucket sends its events to EventBridge (raises NotFound, AccessDenied)."""
        ...

    def try_secret(self, name: str, *, region: str) -> None:
        """See that a secret is there, unread (raises NotFound, AccessDenied)."""
        ...

    def try_key(self, arn: str) -> None:
        """See that a KMS key is there and enabled (raises NotFound, AccessDenied)."""
        ...

    def lends_key_to_spot(self, arn: str) -> bool:
        """Tell whether EC2's role for spot may use a KMS key, by a grant or the key's policy.

        Raises:
            NotFound: there is no such key.
            AccessDenied: its grants and its policy may not be read.
        """
        ...

    def is_scheduled(self, name: str, *, region: str) -> bool:
        """Tell whether a schedule of EventBridge Scheduler is on (raises NotFound)."""
        ...

    def is_rule_on(self, name: str, *, region: str) -> bool:
        """Tell whether a rule of EventBridge's default bus is on (raises NotFound)."""
        ...

    def alarms(self, prefix: str, *, region: str) -> Mapping[str, AlarmView]:
        """Return the alarms whose names begin so, by their names."""
        ...

    def subscribers(self, topic_arn: str) -> Sequence[Subscriber]:
        """Return who has subscribed to a topic (raises NotFound)."""
        ...


# What has been: messages that were sent to a queue, and spot prices that were in force.


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """Messages that reached a queue within one period."""

    #: Begin of the period.
    at: datetime
    #: Length of the period, seconds: the older, the coarser.
    period: float
    messages: int


class TrafficHistory(Protocol):
    """How many messages came to a queue, and when."""

    def sent(self, queue: str, *, since: datetime, until: datetime) -> Sequence[Sent]:
        """Return the periods in which messages came, oldest first; quiet ones are left out.

        Args:
            queue: name of the queue.
            since: begin; what is older than the history reaches is not in it.
            until: end, not included.
        """
        ...


class PriceHistory(Protocol):
    """What spot capacity cost."""

    def spot_history(
        self, *, region: str, instance_types: Sequence[str], since: datetime
    ) -> Sequence[SpotPrice]:
        """Return the price of each pool at ``since`` and every change up to now, oldest first.

        A pool that had no price at ``since`` begins with its first one.

        Raises:
            BadInput: more changes than anybody can use; names what to leave out.
        """
        ...


# What surrounds a use case: the clock, settings, metrics, and the instance that we run on.


class Clock(Protocol):
    """The time now."""

    def now(self) -> datetime:
        """Return the present instant, aware, in UTC."""
        ...

    def elapsed(self) -> timedelta:
        """Return the time since some fixed instant; to set the clock does not change it."""
        ...


#: What stands for "as deployed", so that versions go on counting and the past is kept.
NO_EDIT = "{}"


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

    def put_live(self, name: str, text: str) -> int:
        """Store a live edit, whatever is there; "{}": as deployed. Return its version: one more."""
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


# What workers have written to the log of their workload.


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEvent:
    """One event of a log group; a sender that had no answer may have written it again."""

    #: The instance that wrote it.
    stream: str
    #: When it happened there, to a millisecond.
    at: datetime
    message: str


class LogSource(Protocol):
    """One log group, read as it is written."""

    def read(
        self, *, since: datetime, jobs: Collection[str] = (), stream: str = ""
    ) -> Iterator[LogEvent]:
        """Yield the events from ``since`` on, oldest first, as they are asked for.

        Args:
            since: the earliest; one that arrives late is found only by asking again.
            jobs: only events of these (``contract.log.is_of``); empty: of all.
            stream: only this one's; "": all.

        Raises:
            NotFound: there is no such group.
        """
        ...


# Where people are told of what they should fix.


class Topic(Protocol):
    """What carries a text to whoever has subscribed."""

    def publish(self, subject: str, text: str) -> None:
        """Tell everybody; a subject has at most 100 printable ASCII characters.

        Raises:
            NotFound: there is no such topic.
        """
        ...


# What `spindown verify` asks besides: interruptions on purpose, and what the alarms say.


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """An interruption that was asked for."""

    #: As AWS Fault Injection Service calls it, such as "running".
    state: str
    #: Whether it has ended without an interruption, and what was said of it.
    has_failed: bool
    said: str = ""


class FaultInjector(Protocol):
    """What interrupts a spot instance on purpose, by a template made by the deploy."""

    def find(self, tags: Mapping[str, str]) -> str:
        """Return the id of the template that has these tags; "": there is none."""
        ...

    def start(self, template_id: str, *, token: str, tags: Mapping[str, str]) -> str:
        """Start an experiment that bears these tags, once for each token; return its id."""
        ...

    def read(self, experiment_id: str) -> Experiment:
        """Return how an experiment stands."""
        ...


class AlarmStates(Protocol):
    """What the alarms of a deployment say."""

    def states(self, prefix: str) -> Mapping[str, str]:
        """Return name -> "OK", "ALARM" or "INSUFFICIENT_DATA" of the alarms that begin so."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricSeries:
    """The values of one line of a graph, oldest first."""

    query_id: str
    label: str
    #: (begin of the period, value).
    points: tuple[tuple[datetime, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageBuild:
    """How the build of an image stands."""

    #: As EC2 Image Builder calls it, such as "BUILDING".
    state: str
    #: Region -> id of the image that is there; empty until all are.
    images: Mapping[str, str] = field(default_factory=dict)
    #: Whether it has ended without an image, and what was said of it.
    has_failed: bool = False
    said: str = ""
    #: What tells what it was baked with; "": nothing does.
    stamp: str = ""


class ImageBuilder(Protocol):
    """What bakes images, by pipelines made by the deploy."""

    def start(self, pipeline: str, *, token: str) -> str:
        """Start a build, once for each token of 64 characters at most; return its name.

        Raises:
            NotFound: there is no such pipeline.
        """
        ...

    def read(self, build: str) -> ImageBuild:
        """Return how a build stands (raises NotFound)."""
        ...


class Waker(Protocol):
    """What starts a function for a workload."""

    def wake(self, workload: str) -> None:
        """Start it now, without waiting for its end."""
        ...


class Nobody:
    """A topic without a reader, or what wakes nobody, where there is none."""

    def publish(self, subject: str, text: str) -> None:
        """Do nothing."""

    def wake(self, workload: str) -> None:
        """Do nothing."""


# What the control plane's use cases are given: their ports, and what they may remember. An entry
# point passes it in (``spindown.aws.wiring``, a test); a function's container keeps one
# ``ControlPorts`` from one event to the next.


T = TypeVar("T")

#: How long an answer is used again. Settings: an edit by ``spindown policy`` is seen at once
#: all the same, through the ledger. Prices: what the offers are ranked by may be this old.
SETTINGS_FOR = timedelta(minutes=5)
CATALOGUE_FOR = timedelta(minutes=10)
SPOT_PRICES_FOR = timedelta(minutes=5)


@dataclass(slots=True)
class Cache:
    """Answers kept between events, each with the time at which it was read. Not thread-safe."""

    _kept: dict[tuple[str, ...], tuple[datetime, object]] = field(default_factory=dict)

    def recall(self, kind: "AnswerKind[T]", key: str, now: datetime, read: Callable[[], T]) -> T:
        """Return what was read no longer ago than its kind allows, else read it now."""
        kept = self._kept.get((kind.name, key))
        if kept is None or now - kept[0] >= kind.keep_for or now < kept[0]:
            kept = (now, read())
            self._kept[kind.name, key] = kept
        return kept[1]  # type: ignore[return-value]  # written under the same kind

    def last(self, kind: "AnswerKind[T]", key: str) -> tuple[datetime, T] | None:
        """Return what was read last and when, however long ago; None: nothing yet."""
        kept = self._kept.get((kind.name, key))
        return None if kept is None else (kept[0], kept[1])  # type: ignore[return-value]  # as above

    def keep(self, kind: "AnswerKind[T]", key: str, now: datetime, value: T) -> T:
        """Remember what was read for another reason; return it."""
        self._kept[kind.name, key] = (now, value)
        return value

    def forget(self, kind: "AnswerKind[T]", key: str) -> None:
        """Read it anew the next time."""
        self._kept.pop((kind.name, key), None)


@dataclass(frozen=True, slots=True)
class AnswerKind(Generic[T]):
    """A kind of answer, and how long it may be used again."""

    name: str
    keep_for: timedelta


DEPLOYMENT: AnswerKind[DeploymentSettings] = AnswerKind("deployment", SETTINGS_FOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPorts:
    """The ports of the scaler, interruption and offers."""

    #: Of the deployment.
    name: str
    clock: Clock
    random: Random
    table: Table
    objects: ObjectStore
    settings: SettingsStore
    compute: Compute
    market: Market
    metrics: MetricSink
    #: Queue URL -> queue.
    queue: Callable[[str], JobQueue]
    #: Whom to tell of what only a person can fix.
    topic: Topic = field(default_factory=Nobody)
    #: Wakes what routes messages; nobody does for a workload without types.
    router: Waker = field(default_factory=Nobody)
    cache: Cache = field(default_factory=Cache)
    #: Bakes images; None: nobody does.
    builder: ImageBuilder | None = None
    #: None: nothing published is read, and the prior of every pool stands.
    advisor: Advisor | None = None

    def deployment(self) -> DeploymentSettings:
        """Return the deployment's settings, remembered for a while."""
        return self.cache.recall(DEPLOYMENT, "", self.clock.now(), self.settings.deployment)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkPorts:
    """The ports of a worker. Shared by its threads, so each must be safe to share."""

    clock: Clock
    random: Random
    #: Waits between tries of a conditional write.
    pause: Callable[[timedelta], None]
    queue: JobQueue
    dead_letters: JobQueue
    objects: ObjectStore
    inputs: InputSource
    table: Table
    metrics: MetricSink
    #: For whoever looks through all messages: by shape the queues beside ``queue``.
    shapes: Mapping[str, JobQueue] = field(default_factory=dict)
    #: Opens the queue of a shape; "": that which people know. None: ``queue`` is the only one.
    queue_of: Callable[[str], JobQueue] | None = None
