"""Clear away what is finished: rows go to the history, and what nothing remembers goes."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice, zip_longest

from spindown.contract import row as rows
from spindown.control.plan.action import Action, ActionKind, PlanDraft
from spindown.control.plan.charge import give_back
from spindown.control.plan.launch_outcome import UNANSWERED
from spindown.domain.cost_rise import WEEKS
from spindown.domain.pool_cooldown import longest_cooldown
from spindown.port import Key, Write

#: Finished rows stay in sight this long, for whoever watches.
_SHOWN_FOR = timedelta(minutes=15)
#: A launch that had no answer has others ask its region last for so long.
_SILENT_FOR = timedelta(hours=1)
#: Days of spend that one query brings along: today, a week, and those that it is compared with.
_DAYS_KEPT = 1 + 7 * (1 + WEEKS)
#: Units that one tick clears away, in two dozen transactions: more than come due in a minute.
_UNITS_AT_ONCE = 600
#: Of those that workers have written and nobody reads; a dozen transactions.
_IGNORED_AT_ONCE = 900
#: No message lives longer than this (SQS, maximum retention).
_MESSAGE_LIVES = timedelta(days=14)


def collect_garbage(draft: PlanDraft) -> PlanDraft:
    """Move finished rows to the history, and drop what nothing remembers any more."""
    surplus = [
        Action(kind=ActionKind.CLEAN_UP, subject=sort, writes=(_remove_ignored(draft, sort),))
        for sort in draft.facts.view.ignored_rows[:_IGNORED_AT_ONCE]
        # An adopted one has its machine's row from this tick on.
        if sort.removeprefix(rows.WORKER) not in draft.fleet.workers
    ]
    kinds = (
        _old_workers(draft),
        _old_launches(draft),
        _old_pools(draft),
        _old_days(draft),
        _old_jobs(draft),
    )
    # They take turns, so that many of one kind keep no other waiting.
    units = (unit for turn in zip_longest(*kinds, fillvalue=()) for unit in turn if unit)
    clean_up = [
        Action(kind=ActionKind.CLEAN_UP, subject=unit[0].key.sort, writes=unit)
        for unit in islice(units, _UNITS_AT_ONCE)
    ]
    return draft.act([*clean_up, *surplus])


def _remove_ignored(draft: PlanDraft, sort: str) -> Write:
    """Return the removal of a row that lies among those of workers, under any key."""
    return Write(key=Key(rows.worker_partition(draft.facts.workload), sort), delete=True)


def _old_workers(draft: PlanDraft) -> Iterator[tuple[Write, ...]]:
    view, workers, now = draft.facts.view, draft.fleet.workers, draft.now
    return (
        (
            *draft.rows.move_to_history(rows.worker_sort_key(w.instance_id), w, now=now),
            draft.rows.delete(rows.machine_sort_key(w.instance_id)),
        )
        for w in {**view.machines, **view.workers}.values()
        if w.ended_at is not None
        and _is_past(w.ended_at, now)
        # This very tick may have found that it runs.
        and workers.get(w.instance_id, w).ended_at is not None
    )


def _old_launches(draft: PlanDraft) -> Iterator[tuple[Write, ...]]:
    # A machine is charged to its launch though the row of its worker cannot be read.
    machines = draft.facts.view.machines.values()
    used = {w.launch_id for w in (*draft.fleet.workers.values(), *machines)}
    return (
        (
            *draft.rows.move_to_history(rows.launch_sort_key(x.launch_id), x, now=draft.now),
            *give_back(x),
        )
        for x in draft.facts.view.launches.values()
        if not x.is_open
        and x.launch_id not in used
        and draft.now - x.intended_at > (_SILENT_FOR if x.reason.code in UNANSWERED else _SHOWN_FOR)
    )


def _old_pools(draft: PlanDraft) -> Iterator[tuple[Write, ...]]:
    policy = draft.facts.policy
    return (
        (draft.rows.delete(rows.pool_cooldown_sort_key(x.pool)),)
        for x in draft.facts.view.pool_cooldowns.values()
        if draft.now - x.until > longest_cooldown(x.reason, policy)
        and draft.fleet.pool_cooldowns.get(x.pool) == x
    )


def _old_days(draft: PlanDraft) -> Iterator[tuple[Write, ...]]:
    spend = draft.facts.view.spend
    kept = sorted(spend)[-_DAYS_KEPT:]
    return (
        (
            *draft.rows.move_to_history(f"{rows.SPEND}{day}", row, now=draft.now),
            draft.rows.delete(f"{rows.DONE}{day}"),
        )
        for day, row in spend.items()
        if day not in kept
    )


def _old_jobs(draft: PlanDraft) -> Iterator[tuple[Write, ...]]:
    """Forget jobs that somebody holds again, or whose message must be gone."""
    held = {lease.job_id for lease in draft.fleet.leases}
    empty_since = draft.fleet.remembered.empty_since
    is_empty = empty_since is not None and draft.now - empty_since > _SHOWN_FOR
    return (
        (draft.rows.delete(rows.requeued_sort_key(job.job_id)),)
        for job in draft.facts.view.requeued_jobs.values()
        if is_empty or job.job_id in held or draft.now - job.sent_at > _MESSAGE_LIVES
    )


def _is_past(at: datetime, now: datetime) -> bool:
    return now - at > _SHOWN_FOR
