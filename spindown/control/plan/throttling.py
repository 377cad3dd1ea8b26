"""Remember what EC2 was asked and when, and leave regions alone that asked to slow down."""

from datetime import datetime, timedelta

from spindown.contract.row import Backoff
from spindown.control.observe.fleet import Fleet
from spindown.control.plan.action import PlanDraft

#: Backing off from a throttle: this long, doubled by each further one, at most this.
_BACKOFF = timedelta(seconds=15)
_BACKOFF_AT_MOST = timedelta(minutes=5)


def remember_answers(draft: PlanDraft) -> PlanDraft:
    """Record when each question to EC2 was last answered, and begin the backoffs of this tick."""
    answers, now = draft.facts.ec2, draft.now
    changes: dict[str, object] = {}
    if answers.instances is not None:
        changes["described_at"] = now
    if answers.is_sweep:
        changes["swept_at"] = now
    if answers.reclaimed is not None:
        changes["reclaims_seen_at"] = now
    backoffs = dict(draft.fleet.remembered.backoffs)
    for region in sorted(answers.throttled):
        backoffs[region] = next_backoff(backoffs.get(region), now, answers.jitter)
    if answers.throttled:
        changes["backoffs"] = backoffs
    noted = draft.act(notes=answers.failures) if answers.failures else draft
    return noted.remember(**changes) if changes else noted


def next_backoff(known: Backoff | None, now: datetime, jitter: float) -> Backoff:
    """Return until when a region is left alone: doubled in a row, spread by ``jitter``, 0 to 1."""
    throttles = 1 if known is None else known.throttles + 1
    span = min(_BACKOFF * 2.0 ** min(throttles - 1, 10), _BACKOFF_AT_MOST)
    return Backoff(until=now + span * (0.5 + 0.5 * jitter), throttles=throttles)


def backing_off_until(fleet: Fleet, region: str, now: datetime) -> datetime | None:
    """Return until when EC2 is left alone there after a throttle; None: it is not."""
    known = fleet.remembered.backoffs.get(region)
    return known.until if known is not None and known.until > now else None
