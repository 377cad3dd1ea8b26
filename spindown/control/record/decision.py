"""Write down what a tick saw, planned and did; tell people; give the lock back."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from spindown.contract import metric as names
from spindown.contract import row as rows
from spindown.contract.codec import encode, replace_fields
from spindown.contract.decision import (
    ActionRecord,
    CandidateRecord,
    DeadlineRecord,
    Decision,
    DecisionSummary,
    LaunchRequestRecord,
    Outcome,
    RejectionRecord,
    RequestOutcome,
    ShapeRecord,
    SizingRecord,
    summary_counts,
)
from spindown.contract.row import BreakerRow, ClaimsRow, DecisionRow, PolicyRow, QuotaRow
from spindown.control.alert.tell import Untold, remember, tell
from spindown.control.alert.tick_alert import AlertInput, find, over
from spindown.control.execute.executor import TickRecord
from spindown.control.execute.journal import Journal
from spindown.control.observe.observation import Observation
from spindown.control.plan.action import (
    BOOKKEEPING,
    Action,
    ActionKind,
    ChargeWorker,
    EndRow,
    ReopenRow,
    Terminate,
)
from spindown.control.plan.backlog import tick_fields
from spindown.control.plan.breaker import open_breakers
from spindown.control.plan.offers import LaunchChoice, none_fits, ruled_out
from spindown.control.plan.plan import Plan
from spindown.control.policy_edit import policy_text
from spindown.control.record.metric import (
    TickResult,
    count_states,
    find_unended,
    full_quotas,
    is_held_back,
    measure,
)
from spindown.control.spend import Charge, items_since_yesterday, last_days
from spindown.domain.alert import Review, review
from spindown.domain.batch import EndsTold
from spindown.domain.fleet import Worker
from spindown.domain.ranking import Candidate, CandidateList, Rejection
from spindown.domain.reason import NO_REASON, Reason, ReasonCode
from spindown.domain.schedule import DeadlineForecast, JobForecast
from spindown.domain.spot_or_on_demand import PurchaseMode
from spindown.error import SpindownError
from spindown.port import ControlPorts, Datum

#: Candidates and deadlines that a decision spells out.
_CANDIDATES = 50
_DEADLINES = 20
#: Within it a tick has seen what was counted, be they spare ones.
_LAST_SEEN = timedelta(minutes=10)

_log = logging.getLogger(__name__)


def write_down(
    seen: Observation, plan: Plan, record: TickRecord, ports: ControlPorts, journal: Journal
) -> Decision:
    """Keep the decision, tell people, emit metrics, and give the lock back.

    All that this tick has learned is written in one transaction with the lock's end, whatever
    fails of what people are told: that is logged, and told as a text that did not reach them.
    """
    decision = decide(seen, plan, record, journal)
    _keep(decision, seen, plan, record, ports, journal)
    alerts, unfound = _find_alerts(decision, seen, plan, record)
    journal.write_later(tuple(remember(alerts, journal.ledger)))
    journal.flush(release=True)
    untold = _tell(alerts, seen.facts.workload, ports, journal) or unfound
    try:
        result = TickResult(
            seen=seen,
            plan=plan,
            record=record,
            decision=decision,
            charges=_charges(record, journal),
            refused=journal.refused,
            alerts=alerts,
            untold=untold,
            seconds=(ports.clock.now() - seen.facts.now).total_seconds(),
        )
        ports.metrics.emit(measure(result))
    except Exception:  # noqa: BLE001 - the edge of the tick; an alarm tells of uncounted ticks
        _log.exception("the metrics of the tick could not be emitted")
    return decision


def record_locked(workload: str, ports: ControlPorts, source: str) -> Decision:
    """Return the decision of a tick that found another one at work, and count it."""
    dimensions = {names.DEPLOYMENT: ports.name, names.WORKLOAD: workload}
    ports.metrics.emit([Datum(name="LockBusy", value=1, dimensions=dimensions)])
    return Decision(workload=workload, at=ports.clock.now(), outcome=Outcome.LOCKED, source=source)


def _find_alerts(
    decision: Decision, seen: Observation, plan: Plan, record: TickRecord
) -> tuple[Review, Untold | None]:
    """Return the alerts, and what could not be told since they could not be found."""
    try:
        return _review_alerts(decision, seen, plan, record), None
    except Exception as exc:  # noqa: BLE001 - the edge of the tick: what it has done must be kept
        _log.exception("alerts could not be found")
        return Review(), Untold(number=1, reason=repr(exc))


def _tell(alerts: Review, workload: str, ports: ControlPorts, journal: Journal) -> Untold | None:
    try:
        return tell(alerts, workload, ports, journal.ledger)
    except Exception as exc:  # noqa: BLE001 - the edge of the tick: what it has done must be kept
        _log.exception("alerts could not be told")
        return Untold(number=len(alerts.due), reason=repr(exc))


def _charges(record: TickRecord, journal: Journal) -> list[Charge]:
    """Return what was charged, without what lost a race."""
    lost = {id(unit) for unit in journal.dropped}
    charging = (a for a in record.done if isinstance(a, ChargeWorker | EndRow | ReopenRow))
    return [action.charge for action in charging if id(action.writes) not in lost]


def decide(seen: Observation, plan: Plan, record: TickRecord, journal: Journal) -> Decision:
    """Return the whole decision of a tick."""
    facts, choice = seen.facts, _main_choice(plan, record)
    outcome = _outcome(plan, choice, record)
    candidates, backlog = choice.candidates, plan.fleet.remembered
    need = _need(plan, choice)
    budget = seen.account and record.account and record.account.budget_at(facts.now)
    return Decision(
        workload=facts.workload,
        at=facts.now,
        outcome=outcome,
        summary=_summary(choice, record, outcome, need),
        source=facts.source,
        fence=journal.fence,
        policy_version=facts.effective.version,
        policy_refusal=facts.effective.refusal,
        visible=plan.fleet.queue.visible,
        in_flight=plan.fleet.queue.in_flight,
        delayed=plan.fleet.queue.delayed,
        backlog_since=backlog.backlog_since,
        workers=count_states(record.workers.values()),
        sizing=SizingRecord(
            need_items_per_hour=choice.sizing.need_items_per_hour,
            wanted=choice.sizing.allowed,
            waited_seconds=choice.sizing.waited.total_seconds(),
            reason=need,
        ),
        held_until=choice.sizing.hold_until,
        next_try_at=(
            None
            if outcome in {Outcome.LAUNCHED, Outcome.IDLE, Outcome.ENOUGH}
            else choice.retry_at or facts.now + facts.policy.tick
        ),
        candidates=tuple(record_candidate(c) for c in candidates.top(_CANDIDATES))
        if candidates is not None
        else (),
        rejections=_rejections(candidates),
        requests=record.requests,
        actions=tuple(entry for action in record.done for entry in record_action(action)),
        shapes=record_shapes(plan, record.workers.values()),
        deadlines=record_deadlines(choice.need.forecast),
        notes=tuple(_notes(plan, record, candidates, journal)),
        bad_rows=facts.view.bad_rows + (record.account.bad_rows if record.account else ()),
        month_dollars=budget.dollars if budget else None,
        month_committed=budget.committed if budget else None,
    )


def record_shapes(plan: Plan, workers: Iterable[Worker]) -> tuple[ShapeRecord, ...]:
    """Return each shape that is in use as a decision spells it out; none without types."""
    live = Counter(worker.shape for worker in workers if worker.is_live)
    choices = {x.need.shape: x for x in (plan.choice, *plan.others)}
    return tuple(
        ShapeRecord(
            shape=name,
            visible=known.queue.visible,
            in_flight=known.queue.in_flight,
            workers=live[name],
            wanted=choices[name].sizing.allowed,
            reason=choices[name].sizing.reason,
            blocked_by=choices[name].blocked_by or none_fits(choices[name].candidates),
        )
        for name, known in sorted(plan.fleet.shapes.items())
        if name in choices
    )


def _main_choice(plan: Plan, record: TickRecord) -> LaunchChoice:
    """Return the choice to tell of: that for particular jobs, if only that gave something.

    Where nothing else is wanted, that of jobs that need a stable machine.
    """
    new = {request.launch_id for _, made in record.launched for request in made}
    if any(request.instances for request in record.requests if request.launch_id not in new):
        return plan.choice
    gave = [action.choice for action, made in record.launched if any(a.instances for a in made)]
    stable = (
        []
        if plan.choice.sizing.is_wanted
        else [x for x in plan.for_particular_jobs if x.need.wasted_work is not None]
    )
    return (*gave, *stable, plan.choice)[0]


def _outcome(plan: Plan, choice: LaunchChoice, record: TickRecord) -> Outcome:
    if any(request.instances for request in record.requests):
        return Outcome.LAUNCHED
    if choice.sizing.hold_until is not None:
        return Outcome.HELD
    if choice.sizing.is_wanted:
        if choice.blocked_by:
            return Outcome.BLOCKED
        if choice.candidates is not None and choice.candidates.best is None:
            return Outcome.HELD if choice.retry_at else Outcome.NOTHING_FITS
        return Outcome.REFUSED if record.requests else Outcome.BLOCKED
    is_idle = plan.fleet.queue.is_empty and not any(w.is_live for w in record.workers.values())
    return Outcome.IDLE if is_idle and not record.ended_early else Outcome.ENOUGH


def _need(plan: Plan, choice: LaunchChoice) -> Reason:
    """Return why so many workers are wanted; what is yet to be routed waits, too."""
    reason = choice.sizing.reason
    if reason.code is not ReasonCode.NOTHING_WAITS:
        return reason
    return next((x.reason for x in plan.actions if x.kind is ActionKind.ROUTE), reason)


def _summary(
    choice: LaunchChoice, record: TickRecord, outcome: Outcome, need: Reason
) -> DecisionSummary:
    why = NO_REASON
    match outcome:
        case Outcome.HELD | Outcome.NOTHING_FITS:
            why = none_fits(choice.candidates)
        case Outcome.BLOCKED:
            why = choice.blocked_by or record.ended_early
    return DecisionSummary(
        sizing=need,
        why=why,
        ended_early=record.ended_early if record.ended_early != why else NO_REASON,
        launched=_given(record.requests, RequestOutcome.LAUNCHED),
        adopted=_given(record.requests, RequestOutcome.ADOPTED),
        requests=len(record.requests),
        retry_at=choice.retry_at,
        shape=choice.need.shape,
    )


def _given(requests: Sequence[LaunchRequestRecord], outcome: RequestOutcome) -> Mapping[str, int]:
    found = (request for request in requests if request.outcome == outcome)
    return dict(sorted(Counter(p for each in found for p in each.instances.values()).items()))


def record_action(action: Action) -> Iterator[ActionRecord]:
    """Yield an action as a decision spells it out; nothing of what only keeps the books."""
    if isinstance(action, Terminate):
        for instance_id in action.instance_ids:
            known = ReasonCode.NO_ROW if instance_id in action.orphans else ReasonCode.CONDEMNED
            reason = action.outstayed.get(instance_id) or Reason(known)
            yield ActionRecord(kind=action.kind.value, subject=instance_id, reason=reason)
    elif action.kind not in BOOKKEEPING:
        yield ActionRecord(kind=action.kind.value, subject=action.subject, reason=action.reason)


def _notes(
    plan: Plan, record: TickRecord, candidates: CandidateList | None, journal: Journal
) -> Iterator[Reason]:
    if journal.is_lock_repaired:
        yield Reason(ReasonCode.LOCK_DAMAGED)
    yield from plan.notes
    yield from record.notes
    main = _main_choice(plan, record)
    yield from (
        x.sizing.reason
        for x in plan.for_particular_jobs
        if x.need.wasted_work is not None and x is not main
    )
    nearest = candidates.nearest if candidates is not None and candidates.best is None else None
    if nearest is not None:
        yield ruled_out(nearest)
    if lost := len(journal.dropped):
        yield Reason(ReasonCode.WRITES_LOST, {"writes": lost})


def record_candidate(candidate: Candidate) -> CandidateRecord:
    """Return a candidate as a decision spells it out."""
    return CandidateRecord(
        offer=str(candidate.offer),
        region=candidate.offer.region,
        price_per_hour=candidate.offer.price,
        cost_per_item=candidate.cost_per_item,
        parts=candidate.parts.signed(),
        items_per_hour=candidate.items_per_hour,
        measured=candidate.measured,
        speed_source=candidate.speed_source,
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
            constraint=constraint,
            offers=counts[constraint],
            example=str(each.offer),
            reason=each.reason,
        )
        for constraint, each in sorted(first.items())
    )


def record_deadlines(forecast: DeadlineForecast | None) -> tuple[DeadlineRecord, ...]:
    """Return the tightest deadlines as a decision spells them out."""
    if forecast is None:
        return ()
    return tuple(_record_deadline(each) for each in forecast.jobs[:_DEADLINES])


def _record_deadline(forecast: JobForecast) -> DeadlineRecord:
    job = forecast.job
    waits = job.on is None and forecast.mode is PurchaseMode.SPOT
    return DeadlineRecord(
        job_id=job.job_id,
        jobs=job.jobs,
        due_at=job.due,
        work_seconds=round(job.work.total_seconds()),
        slack_seconds=round(forecast.slack.total_seconds()),
        on="" if job.on is None else job.on.value,
        mode="" if job.on is not None else forecast.mode.value,
        waits_until=forecast.waits_until if waits else None,
        moves_to="" if forecast.moves_to is None else forecast.moves_to.value,
    )


def _keep(
    decision: Decision,
    seen: Observation,
    plan: Plan,
    record: TickRecord,
    ports: ControlPorts,
    journal: Journal,
) -> None:
    """Keep the decision: whole in S3 if it differs from the last one, in short in its row."""
    facts, ledger = seen.facts, journal.ledger
    digest, key, trouble = _store(decision, facts.view.decision, ports)
    row = DecisionRow(
        at=decision.at,
        digest=digest,
        key=key,
        outcome=decision.outcome,
        summary=decision.summary,
        notes=decision.notes + trouble,
        held_until=decision.held_until,
        counts=summary_counts(decision),
    )
    journal.write_later((ledger.put(rows.DECISION, row),))
    backlog = replace_fields(plan.fleet.remembered, {"backoffs": record.backoffs})
    # One that could not be read stays so until all of it is replaced.
    is_bad = rows.BACKLOG in facts.view.bad_rows
    changes = encode(backlog) if is_bad else tick_fields(backlog)
    journal.write_later((ledger.change(rows.BACKLOG, changes),))
    for name, known in plan.fleet.shapes.items():
        seen_of = encode(rows.queue_fields(known.remembered))
        journal.write_later((ledger.change(rows.shape_backlog_sort_key(name), seen_of),))
    if rows.CLAIMS in facts.view.bad_rows:
        claims = ClaimsRow(claims=backlog.claims, late=backlog.late)
        journal.write_later((ledger.put(rows.CLAIMS, claims),))
    # The policy in force, for workers: they cannot read settings.
    policy = replace_fields(
        facts.effective.row,
        {
            "effective": policy_text(facts.policy),
            "idle_timeout": facts.idle_timeout,
            "code_digest": facts.settings.run.code_digest,
            "code_version": facts.settings.run.code_version,
        },
    )
    if policy != facts.view.policy:
        names = rows.names_of(PolicyRow, but={"edits"})
        journal.write_later((ledger.change(rows.POLICY, {n: getattr(policy, n) for n in names}),))


def _store(
    decision: Decision, known: DecisionRow | None, ports: ControlPorts
) -> tuple[str, str, tuple[Reason, ...]]:
    """Return digest and key of the decision as stored, and why it was not.

    What cannot be stored is tried again by the next tick, and keeps nothing else from being done.
    """
    digest = decision.digest
    if known is not None and known.digest == digest:
        return digest, known.key, ()
    key = decision.key_of(digest)
    try:
        ports.objects.put(key, decision.to_json())
    except SpindownError as exc:
        why = Reason(ReasonCode.DECISION_UNSTORED, {"said": str(exc)})
        return "", known.key if known else "", (why,)
    return digest, key, ()


def _review_alerts(decision: Decision, seen: Observation, plan: Plan, record: TickRecord) -> Review:
    facts = seen.facts
    breakers = open_breakers(facts, record.breakers)
    first = next(iter(breakers), "")
    allowed = facts.policy.regions or facts.settings.regions.keys()
    given = AlertInput(
        deployment=facts.deployment.name,
        decision=decision,
        policy=facts.policy,
        breaker=breakers.get(first, BreakerRow()),
        open_in=first if allowed - breakers.keys() else "",
        quotas=_quotas_met(seen, plan, record),
        held_back=is_held_back(plan),
        unended=_unended(plan, record, facts.now),
        is_described=facts.ec2.instances is not None,
        last_day=last_days(facts.view.spend, facts.now),
        failed_alone=_failed_alone(seen),
        items_of_two_days=items_since_yesterday(facts.view.spend, facts.now),
    )
    return review(list(find(given)), facts.view.alerts, facts.now, over=over(given))


def _failed_alone(seen: Observation) -> float:
    """Return what has failed today of jobs without a batch; 0 where nobody is to be told.

    Just after midnight yesterday's failures count as well: no tick may have seen its last ones.
    """
    facts = seen.facts
    if facts.deployment.batches_told is EndsTold.NONE:
        return 0.0
    days = {facts.now.date(), (facts.now - _LAST_SEEN).date()}
    rows = (facts.view.spend.get(day.isoformat()) for day in days)
    return sum(row.failed_alone for row in rows if row is not None)


def _unended(plan: Plan, record: TickRecord, now: datetime) -> Sequence[str]:
    """Return the instances that are to be ended and still run; those without a row come last."""
    orphans = (i for a in plan.actions if isinstance(a, Terminate) for i in a.orphans)
    return [*(w.instance_id for w in find_unended(record.workers.values(), now)), *orphans]


def _quotas_met(seen: Observation, plan: Plan, record: TickRecord) -> Sequence[QuotaRow] | None:
    """Return the full quotas that this workload has met: others fill classes of their own."""
    if record.account is None:
        return None
    full = full_quotas(seen, plan, record)
    met = set(record.quotas_met)
    for choice in plan.choices if full else ():
        if choice.candidates is not None:
            rejected = choice.candidates.rejected
            met |= {r.offer.quota_class for r in rejected if r.constraint == "quota"}
    return tuple(row for row in full if row.quota_class in met)
