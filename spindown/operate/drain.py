"""Empty a workload's fleet and lose nothing: no launch, no new job, and an end to the last one.

The live policy says it, with no room for a worker: the scaler launches nothing by it, and each
worker ends after the jobs that it holds. So it goes on when nobody watches, and an edit ends it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from spindown.contract import tag
from spindown.contract.codec import from_json
from spindown.contract.settings import WorkloadSettings
from spindown.control.policy_edit import current_policy, edit_policy
from spindown.domain.fleet import NOTHING_WAITS, all_of
from spindown.error import ContractError, SpindownError
from spindown.job.policy_in_force import read_standing
from spindown.job.shape_queue import backlogs, queues_of
from spindown.ledger import Ledger, LedgerView
from spindown.operate.status import WorkerStatus
from spindown.port import ControlPorts, InstanceView, LiveEdit

#: The edit of the live policy under which a fleet empties itself.
NO_WORKER: Mapping[str, int] = {"max_workers": 0, "warm_workers": 0}

_ENDED = frozenset({"shutting-down", "terminated"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Remainder:
    """What is left of a fleet that is being emptied."""

    workload: str
    at: datetime
    #: Whether a tick has put the edit in force, so that no later one launches.
    is_heard: bool
    #: Launches whose answer is not known yet.
    launching: int
    #: Workers that live, as the ledger has them.
    workers: tuple[WorkerStatus, ...]
    #: Instances that bill, as EC2 has them, with or without a row.
    instances: tuple[InstanceView, ...]
    #: Jobs that stay in the queue; nobody takes them until there is room for a worker again.
    waiting: int = 0
    #: Whether the live policy has room for a worker: nobody drains, or the drain was taken back.
    has_room: bool = False
    #: What could not be read, a region or a part of the deployment -> why. More may run there.
    unread: Mapping[str, SpindownError] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing runs and nothing more will, as far as that can be known at all."""
        left = self.launching or self.workers or self.instances or self.unread
        return self.is_heard and not left

    def check_read(self) -> None:
        """Raise the first error of what could not be read, if there is one."""
        for error in self.unread.values():
            raise error


def begin_drain(workload: str, ports: ControlPorts) -> None:
    """Leave no room for a worker in the live policy.

    Raises:
        ConfigError: another key of the live policy is not valid, so that it cannot be edited.
    """
    edit_policy(workload, NO_WORKER, settings=ports.settings, table=ports.table)


def end_drain(workload: str, ports: ControlPorts) -> bool:
    """Give back the room that there was before the last drains; tell whether there was a drain.

    Raises:
        ConfigError: another key of the live policy is not valid, so that it cannot be edited.
    """
    edits = [_read(edit) for edit in reversed(ports.settings.history(workload))]
    if not edits or not _leaves_no_room(edits[0]):
        return False
    before = next((edit for edit in edits if not _leaves_no_room(edit)), {})
    kept = {key: before[key] for key in NO_WORKER if key in before}
    deployed = NO_WORKER.keys() - kept.keys()
    edit_policy(workload, kept, clear=deployed, settings=ports.settings, table=ports.table)
    return True


def read_remainder(workload: str, ports: ControlPorts) -> Remainder:
    """Return what is left, by the ledger and by EC2, in every region of the workload.

    Whatever cannot be read keeps nobody from the rest.
    """
    unread: dict[str, SpindownError] = {}
    settings: WorkloadSettings | None = None
    ours: Mapping[str, str] = {}
    is_heard, has_room, view, queue = False, False, LedgerView(), NOTHING_WAITS
    with _noted("settings", unread):
        deployment = ports.deployment()
        ours = tag.whose(deployment.name, workload, home=deployment.region)
        settings, _ = ports.settings.workload(workload)
    # In this order: what was launched before the edit was heard of is in what is read after.
    with _noted("ledger", unread):
        is_heard = read_standing(ports.table, workload).policy.max_workers == 0
        has_room = current_policy(workload, ports)[1].max_workers > 0
        view = Ledger(ports.table, workload).read()
    if settings is not None:
        with _noted("queue", unread):
            queue = all_of(backlogs(queues_of(ports, settings)))
    instances: list[InstanceView] = []
    for region in sorted(settings.deployed_regions) if settings is not None else ():
        with _noted(region, unread):
            instances += ports.compute.instances(region=region, tags=ours)
    return Remainder(
        workload=workload,
        at=ports.clock.now(),
        is_heard=is_heard,
        launching=sum(x.is_open for x in view.launches.values()),
        workers=tuple(
            WorkerStatus(worker=worker, leases=view.leases_of(worker.instance_id))
            for worker in view.workers.values()
            if worker.is_live
        ),
        instances=tuple(each for each in instances if each.state not in _ENDED),
        waiting=queue.visible + queue.delayed,
        has_room=has_room,
        unread=unread,
    )


@contextmanager
def _noted(what: str, unread: dict[str, SpindownError]) -> Iterator[None]:
    """Go on without an answer, and note why."""
    try:
        yield
    except SpindownError as exc:
        unread[what] = exc


def say_unread(unread: Mapping[str, SpindownError]) -> str:
    """Say what could not be read, and why."""
    return "; ".join(f"{what} cannot be read: {why}" for what, why in unread.items())


def terminate_all(remainder: Remainder, ports: ControlPorts) -> None:
    """Terminate what is left, busy or not; jobs in hand begin again from their last commit.

    Raises:
        SpindownError: of the first region that did not answer; those of the others are terminated.
    """
    by_region: dict[str, list[str]] = {}
    for instance in remainder.instances:
        by_region.setdefault(instance.region, []).append(instance.instance_id)
    failed: list[SpindownError] = []
    for region, instance_ids in by_region.items():
        try:
            ports.compute.terminate(region=region, instance_ids=instance_ids)
        except SpindownError as exc:
            failed.append(exc)
    if failed:
        raise failed[0]


def _leaves_no_room(edit: Mapping[str, object]) -> bool:
    return edit.get("max_workers") == 0


def _read(edit: LiveEdit) -> Mapping[str, object]:
    try:
        before = from_json("live policy", edit.text)
    except ContractError:
        return {}
    return before if isinstance(before, dict) else {}
