"""Empty a workload's fleet and lose nothing: no launch, no new job, and an end to the last one.

The live policy says it, with no room for a worker: the scaler launches nothing by it, and each
worker ends after the jobs that it holds. So it goes on when nobody watches, and an edit ends it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from spindown.contract import tag
from spindown.contract.codec import from_json
from spindown.control.policy import edit_policy
from spindown.domain.fleet import all_of
from spindown.error import ContractError, SpindownError
from spindown.job.policy import read_standing
from spindown.job.shape_queue import backlogs, queues_of
from spindown.ledger import Ledger
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

    @property
    def is_empty(self) -> bool:
        """Tell whether nothing runs and nothing more will."""
        return self.is_heard and not (self.launching or self.workers or self.instances)


def begin_drain(workload: str, ports: ControlPorts) -> tuple[str, ...]:
    """Leave no room for a worker in the live policy; return the commands that give it back.

    Raises:
        ConfigError: another key of the live policy is not valid, so that it cannot be edited.
    """
    _, edit = ports.settings.workload(workload)
    edit_policy(workload, NO_WORKER, settings=ports.settings, table=ports.table)
    return _way_back(workload, edit)


def read_remainder(workload: str, ports: ControlPorts) -> Remainder:
    """Return what is left, by the ledger and by EC2, in every region of the workload."""
    settings, _ = ports.settings.workload(workload)
    # In this order: what was launched before the edit was heard of is in what is read after.
    standing = read_standing(ports.table, workload)
    view = Ledger(ports.table, workload).read()
    queue = all_of(backlogs(queues_of(ports, settings)))
    ours = {tag.DEPLOYMENT: ports.name, tag.WORKLOAD: workload}
    return Remainder(
        workload=workload,
        at=ports.clock.now(),
        is_heard=standing.policy.max_workers == 0,
        launching=sum(x.is_open for x in view.launches.values()),
        workers=tuple(
            WorkerStatus(worker=worker, leases=view.leases_of(worker.instance_id))
            for worker in view.workers.values()
            if worker.is_live
        ),
        instances=tuple(
            instance
            for region in sorted(settings.deployed_regions)
            for instance in ports.compute.instances(region=region, tags=ours)
            if instance.state not in _ENDED
        ),
        waiting=queue.visible + queue.delayed,
    )


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


def _way_back(workload: str, edit: LiveEdit | None) -> tuple[str, ...]:
    before = _read(edit)
    # Where there was no room before, an earlier drain has left none: its zeros are nobody's wish.
    ours = (0, None) if before.get("max_workers") == 0 else (None,)
    kept = [f"{key}={json.dumps(before[key])}" for key in NO_WORKER if before.get(key) not in ours]
    deployed = [key for key in NO_WORKER if before.get(key) in ours]
    return (
        *([f"spindown policy set {workload} {' '.join(kept)}"] if kept else []),
        *([f"spindown policy reset {workload} {' '.join(deployed)}"] if deployed else []),
    )


def _read(edit: LiveEdit | None) -> Mapping[str, object]:
    try:
        before = from_json("live policy", edit.text) if edit is not None else {}
    except ContractError:
        return {}
    return before if isinstance(before, dict) else {}
