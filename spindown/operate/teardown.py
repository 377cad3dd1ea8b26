"""End what bills because the deployment itself goes, or a workload or a subnet leaves it.

CloudFormation asks for it before it removes anything else (``infra/control/teardown.py``): the
ticks are gone by then, and table, roles and network stay until this has succeeded. First each
workload's lock is taken and kept, so that whoever ticks has finished and nobody begins;
then every instance with our tag is terminated, until EC2 has shown none for two looks. Where only a
subnet goes, the locks are given back afterwards. Where all goes, a ledger that gives no answer
(its table or its key is gone) holds up the end of instances for ``_LEDGER_PATIENCE`` alone.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from spindown.contract import tag
from spindown.contract.event import Leaving
from spindown.contract.row import LOCK_LEASE
from spindown.error import SpindownError
from spindown.job.shape_queue import read_shapes
from spindown.ledger import FencingToken, Ledger
from spindown.port import Clock, Compute, InstanceView, JobQueue, Table

#: Between two looks at EC2, or at a lock that somebody holds.
LOOK_EVERY = timedelta(seconds=5)
#: EC2's descriptions lag behind its launches (Amazon EC2 API Reference, "Eventual consistency").
QUIET_LOOKS = 2
#: A lock that is kept frees itself after this, should the teardown die.
_KEPT_FOR = timedelta(minutes=16)
#: A ledger that has given no answer for so long keeps launches out by itself: whoever ran a
#: tick has ended by then, and nobody begins without a lock.
_LEDGER_PATIENCE = LOCK_LEASE


class StillRunning(SpindownError):
    """Something of ours runs, or may be launched, after all the time that there was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TeardownPorts:
    """What a teardown is given."""

    clock: Clock
    compute: Compute
    #: None: the ledger is elsewhere, and launches are stopped by other means.
    table: Table | None
    pause: Callable[[timedelta], None]
    #: URL -> queue, to remove those that no template has made.
    queue: Callable[[str], JobQueue]


def tear_down(
    leaving: Leaving, ports: TeardownPorts, *, holder: str, deadline: datetime
) -> frozenset[str]:
    """Stop launches and end instances; return the ids of those that were terminated.

    Raises:
        StillRunning: not all are gone by ``deadline``. It may be repeated.
    """
    with _without_launches(leaving, ports, holder=holder, deadline=deadline):
        ended = _end_all(leaving, ports, deadline)
    _remove_queues(leaving, ports)
    return ended


def _remove_queues(leaving: Leaving, ports: TeardownPorts) -> None:
    """Remove the queues of shapes, which cost nothing: what cannot be removed stays."""
    if ports.table is None:
        return
    # Once the ledger gives no answer, nobody waits for it again.
    with suppress(SpindownError):
        for workload in leaving.workloads:
            for row in read_shapes(ports.table, workload).values():
                with suppress(SpindownError):
                    ports.queue(row.url).remove()


@contextmanager
def _without_launches(
    leaving: Leaving, ports: TeardownPorts, *, holder: str, deadline: datetime
) -> Iterator[None]:
    """Keep every tick out of what leaves, for good; if the teardown fails, until it has."""
    kept: list[tuple[Ledger, FencingToken]] = []
    lent: list[tuple[Ledger, FencingToken]] = []
    silent_until = ports.clock.now() + _LEDGER_PATIENCE if leaving.is_whole else deadline
    try:
        if ports.table is not None:
            halted = leaving.staying if leaving.subnets else ()
            for workload in (*leaving.workloads, *halted):
                lock = _take_lock(ports.table, workload, ports, holder, deadline, silent_until)
                if lock is None:
                    # The time is for the instances: the other locks would have no answer either.
                    break
                (lent if workload in halted else kept).append(lock)
        yield
    except BaseException:
        _give_back(kept)
        raise
    finally:
        _give_back(lent)


def _give_back(locks: Sequence[tuple[Ledger, FencingToken]]) -> None:
    for ledger, fence in locks:
        with suppress(SpindownError):
            ledger.apply(fence, [], release=True)


def _take_lock(
    table: Table,
    workload: str,
    ports: TeardownPorts,
    holder: str,
    deadline: datetime,
    silent_until: datetime,
) -> tuple[Ledger, FencingToken] | None:
    """Take a lock; None: at ``silent_until`` or later, before ``deadline``, there is no answer."""
    ledger = Ledger(table, workload)
    said = "somebody else holds it"
    while (now := ports.clock.now()) < deadline:
        try:
            fence = ledger.take_lock(holder=holder, now=now, lease=_KEPT_FOR)
        except SpindownError as exc:
            said = str(exc)
            if now >= silent_until:
                return None
        else:
            if fence is not None:
                return ledger, fence
        ports.pause(LOOK_EVERY)
    raise StillRunning(f"the lock of {workload} was not to be had ({said}): try again")


def _end_all(leaving: Leaving, ports: TeardownPorts, deadline: datetime) -> frozenset[str]:
    ended = set[str]()
    quiet, left = 0, "EC2 was not asked"
    while ports.clock.now() < deadline:
        try:
            running = tuple(_running(leaving, ports.compute))
            _terminate(running, ports.compute)
        except SpindownError as exc:
            quiet, left = 0, str(exc)
        else:
            ended |= {one.instance_id for one in running}
            quiet = 0 if running else quiet + 1
            left = ", ".join(f"{one.instance_id} is {one.state}" for one in running)
        if quiet >= QUIET_LOOKS:
            return frozenset(ended)
        ports.pause(LOOK_EVERY)
    raise StillRunning(f"not all instances are gone ({left}): try again")


def _running(leaving: Leaving, compute: Compute) -> Iterator[InstanceView]:
    """Yield our instances that exist: even one that shuts down holds its network interface."""
    for region in leaving.regions:
        ours = {tag.DEPLOYMENT: leaving.deployment, tag.REGION: leaving.home}
        for one in compute.instances(region=region, tags=ours):
            is_leaving = (
                leaving.is_whole
                or one.tags.get(tag.WORKLOAD) in leaving.workloads
                or one.subnet_id in leaving.subnets
            )
            if is_leaving and one.state != "terminated":
                yield one


def _terminate(running: tuple[InstanceView, ...], compute: Compute) -> None:
    by_region: dict[str, list[str]] = {}
    for one in running:
        if one.state != "shutting-down":
            by_region.setdefault(one.region, []).append(one.instance_id)
    for region, instance_ids in by_region.items():
        compute.terminate(region=region, instance_ids=instance_ids)
