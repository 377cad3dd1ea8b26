"""The queues of a workload with types: which there are, and removing those that nobody uses.

Each has a row in the ledger, since a queue that no tick knows of would be served by nobody. A queue
is removed in three steps, an hourly run each: first its row says that it is closing. Then the row
says that it is being removed, and the queue is deleted. Last the row goes. ``intake`` reopens one
that is closing before it sends there, and sends nothing to one that is being removed. So nothing
was sent for long when the numbers of its messages are read, which are a minute late.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from spindown.contract.codec import Row, decode, encode
from spindown.contract.queue import queue_of_shape
from spindown.contract.row import (
    SHAPE,
    ShapeRow,
    control_partition,
    shape_backlog_sort_key,
    shape_sort_key,
)
from spindown.contract.settings import WorkloadSettings
from spindown.domain.fleet import NOTHING_WAITS, Backlog
from spindown.domain.shape import Shape, is_possible, own_shapes, parse_shape
from spindown.error import ContractError, NotFound, PreconditionFailed, SpindownError
from spindown.job.message import delete
from spindown.job.policy_in_force import read_standing
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
    read_backlogs,
)

#: A queue that nothing was routed to for so long, and that is empty, is removed.
UNUSED_FOR = timedelta(days=30)
#: The same where so many shapes have queues that senders may have made up: others need the room.
_CROWDED_FROM = 12
_UNUSED_IF_CROWDED = timedelta(days=2)
#: How exactly the ledger knows when a shape was last used.
_NOTED_EVERY = timedelta(days=1)
#: Nobody sends to a queue for so long once its row says that it is being removed. The hourly
#: function, which wrote that, has deleted it within 15 minutes, or was ended. SQS takes messages
#: for a minute more, and drops them (Amazon SQS API Reference, "DeleteQueue").
REMOVED_WITHIN = timedelta(minutes=20)
#: Longer than a run of ``intake`` that has read the row before it said so.
_CLOSING_FOR = timedelta(minutes=30)
#: Of one queue in one run of the hourly function.
_SEND_BACK_FOR = timedelta(minutes=1)


class BeingRemoved(SpindownError):
    """The queue of a shape is just being removed: nothing is sent there for so long."""

    def __init__(self, shape: str, wait: timedelta) -> None:
        super().__init__(f"the queue of {shape} is being removed")
        self.wait = wait


def read_shapes(table: Table, workload: str) -> Mapping[str, ShapeRow]:
    """Return the shapes that have a queue, by name."""
    found = table.query(control_partition(workload), SHAPE)
    return Partition(found).named(ShapeRow, SHAPE)


def queues_of(ports: ControlPorts, settings: WorkloadSettings) -> list[JobQueue]:
    """Return all queues in which messages of a workload may wait, the entry queue first."""
    shapes = read_shapes(ports.table, settings.name)
    urls = [settings.queue_url, *(queue_of_shape(settings.queue_url, shape) for shape in shapes)]
    return [ports.queue(url) for url in urls]


def backlogs(queues: Iterable[JobQueue]) -> list[Backlog]:
    """Return what queues hold; one that is not made yet holds nothing."""
    return [found or NOTHING_WAITS for found in read_backlogs(list(queues))]


def note_use(
    ports: WorkPorts,
    workload: str,
    shape: str,
    url: str,
    job_type: str,
    *,
    is_made_up: bool = False,
) -> None:
    """Note in the ledger that jobs of a type use a shape, whose queue has this URL.

    Args:
        ports: the world.
        workload: whose.
        shape: its name.
        url: of its queue, which may not be made yet.
        job_type: "": the job has no type.
        is_made_up: no type gets the shape, as declared or learned.

    Raises:
        BeingRemoved: its queue is.
    """
    key, now = Key(control_partition(workload), shape_sort_key(shape)), ports.clock.now()
    known = _read_row(ports.table.get(key))
    removing_at = None if known is None else known.removing_at
    if removing_at is not None and now - removing_at < REMOVED_WITHIN:
        raise BeingRemoved(shape, removing_at + REMOVED_WITHIN - now)
    row = ShapeRow(shape=shape, url=url, used_at=now, types=(job_type,), is_made_up=is_made_up)
    is_open = removing_at is None and known is not None and known.closing_at is None
    if known is not None and is_open and now - known.used_at < _NOTED_EVERY:
        types = tuple(sorted({job_type, *known.types}))
        if (types, is_made_up) == (known.types, known.is_made_up):
            return
        row = replace(known, url=url, types=types, is_made_up=is_made_up)
    # Who removes a queue changes this field first.
    unchanged = (
        When(absent=frozenset({"removing_at"}))
        if removing_at is None
        else When(equals={"removing_at": encode(removing_at)})
    )
    try:
        ports.table.write(Write(key=key, when=unchanged, set=encode(row)))
    except PreconditionFailed as exc:
        raise BeingRemoved(shape, REMOVED_WITHIN) from exc


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
    own = {shape.name for shape in own_shapes(policy)}
    is_crowded = len(shapes.keys() - own) >= _CROWDED_FROM
    for name, row in shapes.items():
        queue = ports.queue(queue_of_shape(settings.queue_url, name))
        if not settings.policy.types:
            _send_back(queue, ports.queue(settings.queue_url), ports.clock)
        try:
            is_there, is_empty = True, queue.backlog().is_empty
        except NotFound:
            is_there, is_empty = False, True
        is_over = not is_possible(parse_shape(name) or Shape(), policy, row.types)
        if not is_empty:
            _keep_open(workload, row, ports)
        elif row.closing_at is None and row.removing_at is None:
            unused_for = _UNUSED_IF_CROWDED if is_crowded and name not in own else UNUSED_FOR
            _close(workload, row, ports, timedelta(0) if is_over else unused_for)
        else:
            removed += _remove(workload, row, ports, queue if is_there else None)
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


def _keep_open(workload: str, row: ShapeRow, ports: ControlPorts) -> None:
    """Begin anew with a queue that is closing and holds something all the same."""
    if row.closing_at is not None or row.removing_at is not None:
        _change(workload, row, ports, {"closing_at": None, "removing_at": None})


def _close(workload: str, row: ShapeRow, ports: ControlPorts, unused_for: timedelta) -> None:
    """Say that a queue is closing that nobody has used for so long."""
    now = ports.clock.now()
    if now - row.used_at >= unused_for:
        _change(workload, row, ports, {"closing_at": now})


def _remove(workload: str, row: ShapeRow, ports: ControlPorts, queue: JobQueue | None) -> bool:
    """Delete a queue that is closing, and in a later run its row; tell whether that is gone.

    Args:
        workload: whose.
        row: as it was before the queue was found empty.
        ports: the world.
        queue: None: there is none, or none any more.
    """
    now = ports.clock.now()
    if row.removing_at is None:
        if row.closing_at is None or now - row.closing_at < _CLOSING_FOR:
            return False
    elif now - row.removing_at < REMOVED_WITHIN:
        return False
    elif queue is None:
        backlog = Key(control_partition(workload), shape_backlog_sort_key(row.shape))
        ports.table.write(Write(key=backlog, delete=True))
        return _change(workload, row, ports, None)
    if _change(workload, row, ports, {"removing_at": now}) and queue is not None:
        queue.remove()
    return False


def _change(
    workload: str, row: ShapeRow, ports: ControlPorts, values: Mapping[str, datetime | None] | None
) -> bool:
    """Change a shape's row, or delete it, unless somebody has used the shape meanwhile.

    Return whether that was done.
    """
    since = {"used_at": row.used_at, "closing_at": row.closing_at, "removing_at": row.removing_at}
    known = {name: encode(at) for name, at in since.items() if at is not None}
    unchanged = When(equals=known, absent=frozenset(since.keys() - known.keys()))
    key = Key(control_partition(workload), shape_sort_key(row.shape))
    write = Write(key=key, when=unchanged, set=encode(values or {}), delete=values is None)
    try:
        ports.table.write(write)
    except PreconditionFailed:
        return False
    return True
