"""The queues of a workload with types: which there are, and removing those that nobody uses.

Each has a row in the ledger, since a queue that no tick knows of would be served by nobody. A queue
is removed in three steps, an hourly run each: first its row says that it is closing, then that it
is being removed, and only then it is deleted. ``intake`` reopens one that is closing before it
sends there, and sends nothing to one that is being removed.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from spindown.contract.codec import Row, decode, encode
from spindown.contract.queue import shape_queue
from spindown.contract.row import (
    SHAPE,
    ShapeRow,
    control_partition,
    shape_backlog_sort_key,
    shape_sort_key,
)
from spindown.contract.settings import WorkloadSettings
from spindown.domain.fleet import NOTHING_WAITS, Backlog, all_of
from spindown.domain.job_type import Shape, is_possible, parse_shape
from spindown.error import ContractError, NotFound, PreconditionFailed, Throttled
from spindown.job.message import delete
from spindown.job.policy import read_standing
from spindown.ledger.partition import Partition
from spindown.port import (
    Clock,
    ControlPorts,
    JobQueue,
    Key,
    Outgoing,
    Table,
    When,
    WorkPorts,
    Write,
)

#: A queue that nothing was routed to for so long, and that is empty, is removed.
UNUSED_FOR = timedelta(days=30)
#: How exactly the ledger knows when a shape was last used.
_NOTED_EVERY = timedelta(days=1)
#: A queue that is being removed is gone after so long, or its removal has died.
_REMOVED_WITHIN = timedelta(minutes=15)
#: Longer than a run of ``intake`` that has read the row before it said so.
_CLOSING_FOR = timedelta(minutes=30)
#: Of one queue in one run of the hourly function.
_SEND_BACK_FOR = timedelta(minutes=1)


def read_shapes(table: Table, workload: str) -> Mapping[str, ShapeRow]:
    """Return the shapes that have a queue, by name."""
    found = table.query(control_partition(workload), SHAPE)
    return Partition(found).named(ShapeRow, SHAPE)


def queues_of(ports: ControlPorts, settings: WorkloadSettings) -> list[JobQueue]:
    """Return all queues in which messages of a workload may wait, the entry queue first."""
    shapes = read_shapes(ports.table, settings.name)
    urls = [settings.queue_url, *(shape_queue(settings.queue_url, shape) for shape in shapes)]
    return [ports.queue(url) for url in urls]


def backlogs(queues: Iterable[JobQueue]) -> Iterator[Backlog]:
    """Yield what queues hold; one that is not made yet holds nothing."""
    for queue in queues:
        try:
            yield queue.backlog()
        except NotFound:
            yield NOTHING_WAITS


def note_use(ports: WorkPorts, workload: str, shape: str, url: str, job_type: str) -> None:
    """Note in the ledger that jobs of a type use a shape, whose queue has this URL.

    Args:
        ports: the world.
        workload: whose.
        shape: its name.
        url: of its queue, which may not be made yet.
        job_type: "": the job has no type.

    Raises:
        Throttled: the queue is just being removed.
    """
    key, now = Key(control_partition(workload), shape_sort_key(shape)), ports.clock.now()
    known = _read_row(ports.table.get(key))
    removing_at = None if known is None else known.removing_at
    if removing_at is not None and now - removing_at < _REMOVED_WITHIN:
        raise Throttled(f"the queue of {shape} is being removed")
    row = ShapeRow(shape=shape, url=url, used_at=now, types=(job_type,))
    is_open = removing_at is None and known is not None and known.closing_at is None
    if known is not None and is_open and now - known.used_at < _NOTED_EVERY:
        if job_type in known.types:
            return
        row = replace(known, url=url, types=tuple(sorted({job_type, *known.types})))
    # Who removes a queue changes this field first.
    unchanged = (
        When(absent=frozenset({"removing_at"}))
        if removing_at is None
        else When(equals={"removing_at": encode(removing_at)})
    )
    try:
        ports.table.write(Write(key=key, when=unchanged, set=encode(row)))
    except PreconditionFailed as exc:
        raise Throttled(f"the queue of {shape} is being removed") from exc


def _read_row(row: Row | None) -> ShapeRow | None:
    """Return a shape's row; None: there is none, or none that this version can read."""
    with suppress(ContractError):
        return None if row is None else decode(ShapeRow, row)
    return None


def remove_unused(workload: str, ports: ControlPorts) -> int:
    """Take each unused queue of a workload a step nearer to its removal; return how many went."""
    shapes = read_shapes(ports.table, workload)
    if not shapes:
        return 0
    settings, _ = ports.settings.workload(workload)
    policy, removed = read_standing(ports.table, workload).policy, 0
    for name, row in shapes.items():
        queue = ports.queue(shape_queue(settings.queue_url, name))
        if not settings.policy.types:
            _send_back(queue, ports.queue(settings.queue_url), ports.clock)
        if all_of(backlogs([queue])).is_empty:
            is_over = not is_possible(parse_shape(name) or Shape(), policy)
            removed += _step(workload, row, queue, ports, is_over=is_over)
    return removed


def _send_back(queue: JobQueue, people: JobQueue, clock: Clock) -> None:
    """Send the messages of a shape back to the entry queue.

    Without types nobody routes, and every worker receives from that queue.
    """
    until = clock.now() + _SEND_BACK_FOR
    with suppress(NotFound):
        while clock.now() < until:
            message = queue.receive(wait=timedelta(0), visibility=_SEND_BACK_FOR)
            if message is None:
                return
            copy = Outgoing(body=message.body, tenant=message.tenant, attributes=message.attributes)
            people.send([copy])
            delete(message.receipt_handle, queue)


def _step(
    workload: str, row: ShapeRow, queue: JobQueue, ports: ControlPorts, *, is_over: bool
) -> bool:
    table, now = ports.table, ports.clock.now()
    key = Key(control_partition(workload), shape_sort_key(row.shape))
    seen = {"used_at": encode(row.used_at)}
    if row.closing_at is None and row.removing_at is None:
        if is_over or now - row.used_at >= UNUSED_FOR:
            unchanged = When(equals=seen, absent=frozenset({"closing_at", "removing_at"}))
            _write(table, Write(key=key, when=unchanged, set={"closing_at": encode(now)}))
        return False
    if row.removing_at is None:
        if row.closing_at is None or now - row.closing_at < _CLOSING_FOR:
            return False
        closing = {**seen, "closing_at": encode(row.closing_at)}
        unchanged = When(equals=closing, absent=frozenset({"removing_at"}))
        _write(table, Write(key=key, when=unchanged, set={"removing_at": encode(now)}))
        return False
    queue.remove()
    backlog = Key(control_partition(workload), shape_backlog_sort_key(row.shape))
    table.write(Write(key=backlog, delete=True))
    unchanged = When(equals={"removing_at": encode(row.removing_at)})
    return _write(table, Write(key=key, when=unchanged, delete=True))


def _write(table: Table, write: Write) -> bool:
    """Write, unless somebody has used the shape meanwhile; tell whether it was written."""
    try:
        table.write(write)
    except PreconditionFailed:
        return False
    return True
