"""Say for people what a tick saw, decided and did."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from spindown.app.alarm.deadline import name_of
from spindown.app.reconcile.deadline import record_deadlines
from spindown.app.reconcile.launch.weigh import Choice
from spindown.app.reconcile.tick import Tick
from spindown.contract.decision import (
    CandidateRecord,
    DeadlineRecord,
    Decision,
    Outcome,
    RejectionRecord,
    SizingRecord,
)
from spindown.domain.fleet import WorkerState
from spindown.domain.ranking import Candidate, CandidateList, Rejection
from spindown.domain.reason import Reason, ReasonCode
from spindown.wording import say

#: Candidates that a decision spells out.
_SHOWN = 50
#: Deadlines of which the notes tell.
_TIGHT = 3
#: Verbs of one job, and of several.
_ONE = ("was", "is", "takes", "waits")
_MANY = ("were", "are", "take", "wait")


def decide(tick: Tick, choice: Choice, ended_early: str) -> Decision:
    """Return the whole decision of a tick."""
    outcome = _outcome(tick, choice, ended_early)
    candidates = choice.candidates
    nearest = candidates.nearest if candidates is not None and not len(candidates) else None
    deadlines = record_deadlines(choice.forecast)
    notes = [*tick.notes, *_tight(deadlines, tick.now)]
    if nearest is not None:
        notes.append(f"nearest is {nearest.offer}: {say(nearest.reason)}")
    if lost := len(tick.journal.dropped):
        notes.append(f"{lost} writes lost a race; the next tick looks again")
    budget = tick.account.budget_at(tick.now) if tick.account else None
    return Decision(
        workload=tick.workload,
        at=tick.now,
        outcome=outcome,
        summary=_summary(tick, choice, outcome, ended_early),
        source=tick.source,
        fence=tick.journal.fence,
        policy_version=tick.effective.version,
        policy_refusal=tick.effective.refusal,
        visible=tick.backlog.visible,
        in_flight=tick.backlog.in_flight,
        delayed=tick.backlog.delayed,
        backlog_since=tick.seen.backlog_since,
        workers=by_state(tick),
        sizing=SizingRecord(
            need_items_per_hour=choice.sizing.need_items_per_hour,
            wanted=choice.sizing.wanted,
            waited_seconds=choice.sizing.waited.total_seconds(),
            reason=say(choice.sizing.reason),
        ),
        held_until=choice.sizing.hold_until,
        next_try_at=_next_try(tick, choice, outcome),
        candidates=_candidates(candidates),
        rejections=_rejections(candidates),
        attempts=tuple(tick.attempts),
        condemned=tuple(tick.condemned),
        ended=tuple(tick.ended),
        deadlines=deadlines,
        notes=tuple(notes),
        bad_rows=tick.view.bad_rows + (tick.account.bad_rows if tick.account else ()),
        month_dollars=budget.dollars if budget else None,
        month_committed=budget.committed if budget else None,
    )


def _tight(deadlines: Sequence[DeadlineRecord], now: datetime) -> Iterator[str]:
    """Say of the tightest deadlines what does not change with every tick."""
    for each in deadlines[:_TIGHT]:
        name, due = name_of(each), f"{each.due_at:%Y-%m-%d %H:%M} UTC"
        was, is_, takes, waits = _MANY if each.jobs > 1 else _ONE
        if each.due_at < now:
            yield f"{name} {was} due {due} and {is_} not finished"
        elif each.slack_seconds < 0:
            yield f"{name} {is_} due {due} and {takes} longer"
        elif each.waits_until is not None:
            until = f"{each.waits_until:%H:%M} UTC"
            yield f"{name} {waits} for spot until {until}, to be done by {due}"
        elif each.mode:
            yield f"{name} {is_} due {due}: {say(Reason(ReasonCode(each.mode)))}"


def _outcome(tick: Tick, choice: Choice, ended_early: str) -> Outcome:
    if any(attempt.instances for attempt in tick.attempts):
        return Outcome.LAUNCHED
    if choice.sizing.hold_until is not None:
        return Outcome.HELD
    if choice.is_due:
        if choice.stopped:
            return Outcome.STOPPED
        if choice.candidates is not None and choice.candidates.best is None:
            return Outcome.HELD if choice.retry_at else Outcome.NOTHING_FITS
        return Outcome.REFUSED if tick.attempts else Outcome.STOPPED
    is_idle = tick.backlog.is_empty and not any(w.is_live for w in tick.workers.values())
    return Outcome.IDLE if is_idle and not ended_early else Outcome.ENOUGH


def _summary(tick: Tick, choice: Choice, outcome: Outcome, ended_early: str) -> str:
    match outcome:
        case Outcome.LAUNCHED:
            said = ", ".join(filter(None, (_given(tick, how) for how in ("launched", "adopted"))))
        case Outcome.HELD if choice.sizing.hold_until is None:
            said = f"no offer may be taken before {_clock(choice.retry_at)}"
            if choice.candidates is not None and choice.candidates.best is None:
                said += f": {say(choice.candidates.why_none())}"
        case Outcome.STOPPED:
            said = choice.stopped or ended_early or "no offer of the list could be asked for"
        case Outcome.NOTHING_FITS:
            found = choice.candidates
            said = f"no offer fits: {'none is known' if found is None else say(found.why_none())}"
        case Outcome.REFUSED:
            said = f"EC2 gave nothing in {len(tick.attempts)} requests"
        case Outcome.IDLE:
            return "nothing waits and nothing runs"
        case _:
            return say(choice.sizing.reason)
    more = f"; {ended_early}" if ended_early and ended_early != said else ""
    return f"{said} ({say(choice.sizing.reason)}){more}"


def _given(tick: Tick, how: str) -> str:
    """Say what was launched, or adopted; "" if nothing was."""
    attempts = (attempt for attempt in tick.attempts if attempt.outcome == how)
    pools = Counter(pool for attempt in attempts for pool in attempt.instances.values())
    said = ", ".join(f"{count} {pool}" for pool, count in sorted(pools.items()))
    return f"{how} {said}" if said else ""


def _clock(at: datetime | None) -> str:
    return f"{at:%H:%M:%S}" if at else "now"


def _next_try(tick: Tick, choice: Choice, outcome: Outcome) -> datetime | None:
    if outcome in {Outcome.LAUNCHED, Outcome.IDLE, Outcome.ENOUGH}:
        return None
    return choice.retry_at or tick.now + tick.policy.tick


def by_state(tick: Tick) -> Mapping[str, int]:
    """Return how many workers are in each state that is not ended."""
    counts = Counter(w.state for w in tick.workers.values())
    del counts[WorkerState.ENDED]
    return {state.value: counts[state] for state in sorted(counts)}


def _candidates(candidates: CandidateList | None) -> tuple[CandidateRecord, ...]:
    if candidates is None:
        return ()
    return tuple(record_candidate(c) for c in candidates.top(_SHOWN))


def record_candidate(candidate: Candidate) -> CandidateRecord:
    """Return a candidate as a decision spells it out."""
    parts = candidate.parts
    return CandidateRecord(
        offer=str(candidate.offer),
        region=candidate.offer.region,
        price_per_hour=candidate.offer.price,
        cost_per_item=candidate.cost_per_item,
        parts={
            "work": parts.work,
            "boot": parts.boot,
            "redo": parts.redo,
            "idle": parts.idle,
            "refund": -parts.refund,
            "transfer": parts.transfer,
        },
        items_per_hour=candidate.items_per_hour,
        measured=candidate.measured,
        interruptions_per_hour=candidate.interruption_rate,
    )


def _rejections(candidates: CandidateList | None) -> tuple[RejectionRecord, ...]:
    if candidates is None:
        return ()
    counts: Counter[str] = Counter()
    first: dict[str, Rejection] = {}
    for rejection in candidates.rejected:
        counts[rejection.constraint] += 1
        first.setdefault(rejection.constraint, rejection)
    return tuple(
        RejectionRecord(
            reason=constraint,
            offers=counts[constraint],
            example=f"{each.offer}: {say(each.reason)}",
        )
        for constraint, each in sorted(first.items())
    )
