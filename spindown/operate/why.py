"""Why there is what there is: the last decisions as carried out, and the one due when none runs.

Decisions are read from the bucket, where one lies for each change of mind; the ledger says until
when the newest of them still held. What blocks a launch is decided where it is planned:
``control.plan.launch_need`` and ``control.plan.offers``, of single offers ``domain.ranking``.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from spindown.contract.decision import Decision, decision_prefix
from spindown.contract.row import DecisionRow
from spindown.control.policy_edit import current_policy
from spindown.control.rightsizing import read_learned
from spindown.domain.fleet import Worker
from spindown.domain.policy import Rightsize
from spindown.domain.reason import NO_REASON, Reason
from spindown.error import SpindownError
from spindown.ledger import Ledger
from spindown.operate.decision import read_decision
from spindown.operate.plan import PlannedTick, plan_next_tick
from spindown.operate.status import next_tries, say_failing
from spindown.port import ControlPorts, ObjectStore

#: Days that are looked through one by one before all days are listed.
_DAYS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """The last decisions of a workload, and what stands between it and a worker now."""

    workload: str
    at: datetime
    #: Newest first.
    decisions: tuple[Decision, ...]
    #: Keys of decisions that cannot be read.
    unreadable: tuple[str, ...]
    #: When a tick last came to the newest decision, for the same reasons; None: none has since it
    #: was stored, or it is not in the bucket.
    confirmed_at: datetime | None
    #: What that tick counted (``DecisionRow.counts``).
    counts: Mapping[str, float]
    #: Instances that run or boot, and launches that are under way.
    running: int
    #: Instances that have ended lately although no worker of theirs had said so.
    lost: tuple[Worker, ...]
    #: What waits to be tried again after a failure, as ``status`` says it.
    failing: tuple[str, ...]
    #: Job that was put back for later -> before when nobody can receive it.
    next_tries: Mapping[str, datetime] = field(default_factory=dict)
    #: Messages of jobs that were given up, or that nobody may work on.
    dead_letters: int = 0
    #: What a tick would decide now; None: something runs, or it cannot be said.
    now: PlannedTick | None = None
    #: Why it cannot be said; "": it can.
    unknown: str = ""
    #: While nothing waits: why the next message would launch nothing; NO_REASON: it would launch.
    barred: Reason = NO_REASON
    #: Type -> why its jobs get another size than it asks for.
    sizes: Mapping[str, tuple[Reason, ...]] = field(default_factory=dict)


def explain(workload: str, ports: ControlPorts, *, last: int) -> Why:
    """Gather the last decisions, and, while nothing runs, what a tick would decide now."""
    at = ports.clock.now()
    view = Ledger(ports.table, workload).read()
    decisions, unreadable = read_decisions(workload, ports.objects, last=last, today=at)
    running = sum(worker.is_live for worker in view.workers.values())
    launches = view.launches.values()
    running += sum(launch.is_open for launch in launches)
    row = view.decision
    is_newest = row is not None and bool(decisions) and _is_same(row, decisions[0])
    made, barred, unknown = (None, NO_REASON, "") if running else _plan_next(workload, ports)
    return Why(
        workload=workload,
        at=at,
        decisions=decisions,
        unreadable=unreadable,
        confirmed_at=row.at if row is not None and is_newest else None,
        counts=row.counts if row is not None else {},
        running=running,
        lost=tuple(worker for worker in view.workers.values() if worker.is_lost),
        failing=tuple(say_failing(view, at)),
        next_tries=next_tries(view, at),
        dead_letters=_count_dead_letters(workload, ports),
        now=made,
        unknown=unknown,
        barred=barred,
        sizes=_sizes(workload, ports),
    )


def _is_same(row: DecisionRow, newest: Decision) -> bool:
    """Tell whether the last tick decided as in the newest decision, and for the same reasons.

    One that decides the same for another reason is not stored, as these change from tick to tick.
    """
    last, first = row.summary, newest.summary
    return (
        row.key == newest.key
        and row.outcome == newest.outcome
        and last.sizing.code == first.sizing.code
        and last.why.code == first.why.code
        and last.ended_early.code == first.ended_early.code
    )


def _count_dead_letters(workload: str, ports: ControlPorts) -> int:
    settings, _ = ports.settings.workload(workload)
    return ports.queue(settings.dlq_url).backlog().visible


def _sizes(workload: str, ports: ControlPorts) -> Mapping[str, tuple[Reason, ...]]:
    deployed, _ = ports.settings.workload(workload)
    if not deployed.policy.types:
        return {}
    _, policy = current_policy(workload, ports)
    if policy.rightsize is not Rightsize.APPLY:
        return {}
    known = read_learned(workload, ports.objects).sizes
    return {name: size.reasons for name, size in known.items() if size.reasons}


def _plan_next(workload: str, ports: ControlPorts) -> tuple[PlannedTick | None, Reason, str]:
    """Return what a tick would decide, what bars the next message, why it cannot be said."""
    try:
        made, barred = plan_next_tick(workload, ports), NO_REASON
        if made.queue.is_empty:
            # What stops launches shows only where one is due.
            barred = plan_next_tick(workload, ports, jobs=1).plan.choice.blocked_by
    except SpindownError as exc:
        return None, NO_REASON, str(exc)
    return made, barred, ""


def read_decisions(
    workload: str, objects: ObjectStore, *, last: int, today: datetime
) -> tuple[tuple[Decision, ...], tuple[str, ...]]:
    """Return the last decisions, newest first, and the keys of those that cannot be read."""
    found: list[Decision] = []
    unreadable: list[str] = []
    for key in _newest_keys(workload, objects, last=last, today=today):
        decision = read_decision(key, objects)
        if decision is None:
            unreadable.append(key)
        else:
            found.append(decision)
    return tuple(found), tuple(unreadable)


def _newest_keys(workload: str, objects: ObjectStore, *, last: int, today: datetime) -> list[str]:
    prefix = decision_prefix(workload)
    found: list[str] = []
    for back in range(_DAYS):
        day = f"{prefix}{today - timedelta(days=back):%Y-%m-%d}/"
        found += reversed([summary.key for summary in objects.list(day)])
        if len(found) >= last:
            return found[:last]
    listed = deque((summary.key for summary in objects.list(prefix)), maxlen=last)
    return list(reversed(listed))
