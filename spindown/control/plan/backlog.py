"""What ticks remember of the queue: since when work waits, and since when there is none."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from spindown.contract.codec import replace_fields
from spindown.contract.row import (
    GAP_RATE,
    NEXT_LOOKS,
    BacklogRow,
    ClaimsRow,
    names_of,
)
from spindown.control.plan.action import PlanDraft
from spindown.control.plan.learn_boot import learn
from spindown.domain.fleet import Backlog, Lease
from spindown.domain.schedule import Waiting, next_margin
from spindown.domain.termination import watch_from

#: SQS's numbers are approximate: only after so long did an empty queue hold nothing.
_SURELY_EMPTY = timedelta(minutes=10)
#: Ticks whose messages are kept apart; older ones count as of the oldest.
_GROUPS_AT_MOST = 60
#: A longer gap teaches no more: no idle timeout is near it.
_GAP_AT_MOST = timedelta(days=14)


def remember_queue(draft: PlanDraft) -> PlanDraft:
    """Bring up to date what the ticks remember of the queue; learn an ended gap."""
    before, policy = draft.fleet.remembered, draft.facts.policy
    margin = next_margin(
        None if before.margin is None else timedelta(seconds=before.margin),
        started=before.claims - before.claims_seen,
        late=before.late - before.late_seen,
        policy=policy,
    )
    after = replace_fields(
        next_backlog(before, draft.fleet.queue, draft.now, draft.fleet.leases),
        {
            "margin": margin.total_seconds(),
            "watched_since": watch_from(before.watched_since, before.seen_at, policy, draft.now),
        },
    )
    learned = []
    if before.empty_since is not None and after.empty_since is None:
        gap = min(draft.now - before.empty_since, _GAP_AT_MOST).total_seconds()
        learned.append(learn(draft, GAP_RATE, [gap]))
    return draft.act(learned, remembered=after)


def next_backlog(
    before: BacklogRow, backlog: Backlog, now: datetime, leases: Iterable[Lease] = ()
) -> BacklogRow:
    """Return the backlog row after a look at the queue.

    The clock of ``start_within`` runs from the first tick that saw visible work, and starts anew
    with every claim: a claim shows that the work is being served.
    """
    since = before.backlog_since
    if backlog.visible == 0:
        since = None
    elif since is None or before.claims != before.claims_seen:
        since = now
    waiting = _waiting(before, backlog.visible, now, leases)
    empty_since = (before.empty_since or now) if backlog.is_empty else None
    filled_since = before.filled_since
    if not backlog.is_empty and (filled_since is None or _was_empty_for_long(before, now)):
        filled_since = now
    changes = {
        "backlog_since": since,
        "empty_since": empty_since,
        "filled_since": filled_since,
        "visible": backlog.visible,
        "in_flight": backlog.in_flight,
        "seen_at": now,
        "claims_seen": before.claims,
        "late_seen": before.late,
        "waiting_since": tuple(group.since for group in waiting),
        "waiting_jobs": tuple(group.jobs for group in waiting),
    }
    return replace_fields(before, changes)


def waiting_of(row: BacklogRow) -> tuple[Waiting, ...]:
    """Return what waits, oldest first."""
    pairs = zip(row.waiting_since, row.waiting_jobs, strict=False)
    return tuple(Waiting(since=since, jobs=jobs) for since, jobs in pairs)


def _waiting(
    before: BacklogRow, visible: int, now: datetime, leases: Iterable[Lease]
) -> list[Waiting]:
    """Return the visible messages by the tick that saw them first.

    SQS tells no message's age without a receive and keeps order only roughly, so a claim takes what
    its lease says was sent when. Of a job that is over already by this tick nobody knows: it
    counts as one of the oldest. What is more than was left has just come.
    """
    groups, since = list(waiting_of(before)), before.seen_at
    claims = before.claims - before.claims_seen
    for lease in leases:
        if claims > 0 and (since is None or lease.claimed_at > since):
            _take_sent(groups, lease.sent_at)
            claims -= 1
    _take(groups, claims)
    left = sum(group.jobs for group in groups)
    _take(groups, left - visible)
    if visible > left:
        groups.append(Waiting(since=now, jobs=visible - left))
    while len(groups) > _GROUPS_AT_MOST:
        first, second, *groups = groups
        groups.insert(0, replace(first, jobs=first.jobs + second.jobs))
    return groups


def _take_sent(groups: list[Waiting], sent_at: datetime) -> None:
    """Take one of the first group that a tick has seen since; none, if no tick has."""
    place = next((at for at, group in enumerate(groups) if group.since >= sent_at), None)
    if place is not None:
        head = [groups[place]]
        _take(head, 1)
        groups[place : place + 1] = head


def _take(groups: list[Waiting], jobs: int) -> None:
    while jobs > 0 and groups:
        taken = min(jobs, groups[0].jobs)
        jobs -= taken
        if taken == groups[0].jobs:
            del groups[0]
        else:
            groups[0] = replace(groups[0], jobs=groups[0].jobs - taken)


def _was_empty_for_long(before: BacklogRow, now: datetime) -> bool:
    return before.empty_since is not None and now - before.empty_since >= _SURELY_EMPTY


def tick_fields(row: BacklogRow) -> dict[str, object]:
    """Return what a tick writes of the backlog row with its decision."""
    return {name: getattr(row, name) for name in _OF_TICK}


#: Workers write their claims, and others when they look again; ``workers_elsewhere`` is written
#: where they are counted.
_OF_TICK = names_of(BacklogRow, but={*names_of(ClaimsRow), *NEXT_LOOKS, "workers_elsewhere"})
