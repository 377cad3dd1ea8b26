"""Clear away what is finished: into the history, or off the table."""

from datetime import datetime, timedelta

from spindown.app.port import Write
from spindown.app.reconcile.launch.adopt import UNANSWERED
from spindown.app.reconcile.tick import Tick
from spindown.app.spend import add_to_budget
from spindown.contract import row as rows
from spindown.domain.fleet import Launch, LaunchState

#: Finished rows stay in sight this long, for whoever watches.
_SHOWN_FOR = timedelta(minutes=15)
#: A launch that had no answer has others ask its region last for so long.
_SILENT_FOR = timedelta(hours=1)
#: Days of spend that one query brings along, and rows that one tick clears away.
_DAYS_KEPT = 40
_ROWS_AT_ONCE = 30
#: SQS drops a message after this; who works on it for longer sends it anew.
_MESSAGE_LIVES = timedelta(days=14)


def tidy(tick: Tick) -> None:
    """Move finished rows to the history, and drop what nothing remembers any more."""
    units = [
        *_old_workers(tick),
        *_old_launches(tick),
        *_old_pools(tick),
        *_old_days(tick),
        *_old_dues(tick),
    ]
    for unit in units[:_ROWS_AT_ONCE]:
        tick.journal.note(*unit)


def _old_workers(tick: Tick) -> list[tuple[Write, ...]]:
    return [
        tick.ledger.move_to_history(rows.worker_sort(w.instance_id), w, now=tick.now)
        for w in tick.view.workers.values()
        if w.ended_at is not None and _is_past(w.ended_at, tick.now)
    ]


def _old_launches(tick: Tick) -> list[tuple[Write, ...]]:
    used = {w.launch_id for w in tick.workers.values()}
    return [
        (
            *tick.ledger.move_to_history(rows.launch_sort(x.launch_id), x, now=tick.now),
            *_give_back(x),
        )
        for x in tick.view.launches.values()
        if x.state is not LaunchState.INTENDED
        and x.launch_id not in used
        and tick.now - x.intended_at > (_SILENT_FOR if x.reason.code in UNANSWERED else _SHOWN_FOR)
    ]


def _give_back(launch: Launch) -> tuple[Write, ...]:
    """Return the release of what a launch had set aside and its workers never cost."""
    if not launch.reserved_usd:
        return ()
    return (add_to_budget(launch.intended_at, {"committed": -launch.reserved_usd}),)


def _old_pools(tick: Tick) -> list[tuple[Write, ...]]:
    forgotten_after = tick.policy.unavailable_at_most
    return [
        (tick.ledger.delete(rows.unavailable_sort(u.pool)),)
        for u in tick.view.unavailable.values()
        if tick.now - u.until > forgotten_after and tick.unavailable.get(u.pool) == u
    ]


def _old_days(tick: Tick) -> list[tuple[Write, ...]]:
    kept = sorted(tick.view.spend)[-_DAYS_KEPT:]
    return [
        tick.ledger.move_to_history(f"{rows.SPEND}{day}", row, now=tick.now)
        for day, row in tick.view.spend.items()
        if day not in kept
    ]


def _old_dues(tick: Tick) -> list[tuple[Write, ...]]:
    """Forget jobs that somebody holds again, or whose message must be gone."""
    held = {lease.job_id for lease in tick.leases}
    empty_since = tick.seen.empty_since
    is_empty = empty_since is not None and tick.now - empty_since > _SHOWN_FOR
    return [
        (tick.ledger.delete(rows.requeued_sort(due.job_id)),)
        for due in tick.view.requeued_jobs.values()
        if is_empty or due.job_id in held or tick.now - due.sent_at > _MESSAGE_LIVES
    ]


def _is_past(at: datetime, now: datetime) -> bool:
    return now - at > _SHOWN_FOR
