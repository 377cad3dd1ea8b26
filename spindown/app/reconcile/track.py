"""Follow the queue from tick to tick: since when work waits, and since when there is none."""

from dataclasses import replace
from datetime import datetime

from spindown.app.reconcile.tick import Tick
from spindown.contract.row import GAP_RATE, BacklogRow, RateRow
from spindown.domain.fleet import Backlog

#: Samples that a learned quantity keeps.
SAMPLES_AT_MOST = 50


def follow_backlog(tick: Tick) -> None:
    """Bring the backlog row up to date; a gap that has just ended is learned."""
    before = tick.seen
    tick.seen = follow(before, tick.backlog, tick.now)
    if before.empty_since is not None and tick.seen.empty_since is None:
        gap = (tick.now - before.empty_since).total_seconds()
        add_sample(tick, GAP_RATE, gap)


def follow(before: BacklogRow, backlog: Backlog, now: datetime) -> BacklogRow:
    """Return the backlog row after a look at the queue.

    The clock of ``start_within`` runs from the first tick that saw visible work, and starts anew
    with every claim: a claim shows that the work is being served.
    """
    since = before.backlog_since
    if backlog.visible == 0:
        since = None
    elif since is None or before.claims != before.claims_seen:
        since = now
    empty_since = (before.empty_since or now) if backlog.is_empty else None
    return replace(
        before,
        backlog_since=since,
        empty_since=empty_since,
        visible=backlog.visible,
        in_flight=backlog.in_flight,
        seen_at=now,
        claims_seen=before.claims,
    )


def add_sample(tick: Tick, sort: str, value: float) -> None:
    """Let the journal append to the samples of a learned quantity that only ticks write."""
    known = tick.tally.samples.get(sort, tick.view.rates.get(sort, RateRow()).samples)
    samples = tick.tally.samples[sort] = (*known, value)[-SAMPLES_AT_MOST:]
    tick.journal.note(tick.ledger.change(sort, {"samples": samples, "updated_at": tick.now}))


def seen_changes(row: BacklogRow) -> dict[str, object]:
    """Return the fields of the backlog row that a tick writes; ``claims`` are the workers'."""
    return {
        name: getattr(row, name)
        for name in (
            "backlog_since",
            "empty_since",
            "visible",
            "in_flight",
            "seen_at",
            "claims_seen",
            "described_at",
            "reclaims_seen_at",
            "swept_at",
            "backoff_until",
            "throttles",
        )
    }
