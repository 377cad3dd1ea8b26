"""The queues of a workload with types: which there are, and removing those that nobody uses.

A queue is removed in three steps, an hourly run each: first its row says that it is closing, then
that it is being removed, and only then it is deleted. ``intake`` reopens one that is closing before
it sends there, and sends nothing to one that is being removed.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta

from spindown.contract.codec import encode
from spindown.contract.queue import shape_queue
from spindown.contract.row import (
    SHAPE,
    ShapeRow,
    control_partition,
    shape_backlog_sort,
    shape_sort,
)
from spindown.contract.settings import WorkloadSettings
from spindown.domain.fleet import NOTHING_WAITS, Backlog, all_of
from spindown.domain.job_type import Shape, is_possible, parse_shape
from spindown.error import NotFound, PreconditionFailed, SpindownError
from spindown.job.message import delete
from spindown.job.policy import read_standing
from spindown.ledger.partition import Partition
from spindown.port import Clock, ControlPorts, JobQueue, Key, Outgoing, Table, When, Write

_log = logging.getLogger(__name__)
#: A queue that nothing was routed to for so long, and that is empty, is removed.
UNUSED_FOR = timedelta(days=30)
#: Longer than a run of ``intake`` that has read the row before it said so.
_CLOSING_FOR = timedelta(minutes=30)
#: Of one queue in one run of the hourly function.
_SEND_BACK_FOR = timedelta(minutes=1)


def read_shapes(table: Table, workload: str) -> Mapping[str, ShapeRow]:
    """Return the shapes that have a queue, by name."""
    found = table.query(control_partition(workload), SHAPE)
    return Partition(found).named(ShapeRow, SHAPE)


def queues_of(ports: ControlPorts, settings: WorkloadSettings) -> list[JobQueue]:
    """Return all queues in which messages of a workload may wait, that of people first."""
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


def remove_all_unused(ports: ControlPorts) -> Mapping[str, int]:
    """Do the same for every workload; return how many queues of each went.

    An error in one does not stop the others: the next run goes on.
    """
    removed = {}
    for workload in ports.deployment().workloads:
        try:
            removed[workload] = remove_unused(workload, ports)
        except SpindownError as exc:
            _log.warning("the queues of %s were not looked at: %s", workload, exc)
    return {workload: count for workload, count in removed.items() if count}


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
    """Send the messages of a shape back to the queue that people know.

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
    key = Key(control_partition(workload), shape_sort(row.shape))
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
    backlog = Key(control_partition(workload), shape_backlog_sort(row.shape))
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
