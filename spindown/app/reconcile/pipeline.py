"""Compare what is wanted with what is there, and repair: the whole pipeline, told once.

1. Take the lock; whoever finds it taken leaves at once (``ledger``).
2. Gather: the ledger, the settings, the queue itself, never an event's payload (``tick``).
3. Follow the queue: since when work waits, since when there is none (``track``).
4. Adopt launches whose answer was lost (``launch.adopt``).
5. Weigh what is missing by what is known already (``launch.weigh``).
6. Look at EC2, in turns and not in a tick that launches (``look``); end what breaks its own
   contract, free the jobs of what is gone (``reap``).
7. Charge the fleet (``charge``), clear away what is finished (``tidy``), weigh again, rank what
   is on sale if a launch is due (``launch.choose``), walk the list (``launch.walk``); move jobs
   whose deadline asks for it, or allows it (``deadline``, ``launch.relieve``).
8. Write down what was decided (``report``) and give the lock back, in one transaction with all
   that this tick has learned (``journal``).
9. Tell people of what they must fix (``app.alarm``).

It is idempotent and driven by the level: doing it twice, or not at all for a while, changes
only how soon. A tick that launches nothing makes at most three calls besides the lock's two
(the ledger, the queue, EC2); a launch that succeeds first time adds three (intent, request,
decision). What is older than a few minutes costs a call more now and then: settings, prices,
catalogue, what all workloads share; and so does a decision that differs from the last one.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import lru_cache

from spindown.app.alarm.operation import AlertInput, find, over
from spindown.app.alarm.tell import remember, tell
from spindown.app.control import ControlPorts
from spindown.app.ledger import FencingToken, Ledger
from spindown.app.port import Datum, InstanceView
from spindown.app.reconcile.charge import charge_fleet, watch_month
from spindown.app.reconcile.journal import FenceLost
from spindown.app.reconcile.launch.adopt import adopt
from spindown.app.reconcile.launch.choose import choose
from spindown.app.reconcile.launch.outcome import forget_backoff
from spindown.app.reconcile.launch.relieve import relieve
from spindown.app.reconcile.launch.walk import launch
from spindown.app.reconcile.launch.weigh import Choice, weigh
from spindown.app.reconcile.look import look
from spindown.app.reconcile.reap import reap_fleet
from spindown.app.reconcile.report import decide, measure
from spindown.app.reconcile.tick import Tick, gather
from spindown.app.reconcile.tidy import tidy
from spindown.app.reconcile.track import follow_backlog, seen_changes
from spindown.contract import row as rows
from spindown.contract.codec import encode
from spindown.contract.decision import Decision, Outcome, summary_counts
from spindown.contract.metric import DEPLOYMENT, WORKLOAD
from spindown.contract.row import BreakerRow, DecisionRow, PolicyRow, QuotaRow
from spindown.domain.alert import review
from spindown.domain.policy import Policy
from spindown.error import (
    AccessDenied,
    SpindownError,
    Unreachable,
    WriteConflict,
)


def reconcile(workload: str, ports: ControlPorts, *, holder: str, source: str = "") -> Decision:
    """Bring the fleet of one workload to what its queue and policy ask for.

    Args:
        workload: whose.
        ports: the world.
        holder: who asks, unique among those who may ask at once.
        source: what woke it, for the record only.

    Raises:
        NotFound: there is no such workload.
        SpindownError: the ledger, the settings or the queue could not be read; the next tick
            tries again.

    Whatever it raises, the lock is given back, so that the next tick need not wait for its lease.
    """
    now = ports.clock.now()
    ledger = Ledger(ports.table, workload)
    try:
        fence = ledger.take_lock(holder=holder, now=now)
    except WriteConflict:
        # A transaction of whoever holds it is under way.
        fence = None
    if fence is None:
        return _locked_out(workload, ports, source)
    try:
        tick = gather(workload, ports, fence=fence, ledger=ledger, source=source, now=now)
        return _carry_out(tick)
    except FenceLost:
        return _locked_out(workload, ports, source)
    except Exception:
        # A fault of our own, too: intents and conditions make good what a crash leaves at the same
        # place, and whoever has taken the lock meanwhile has raised its fence.
        _let_go(ledger, fence)
        raise


def _carry_out(tick: Tick) -> Decision:
    follow_backlog(tick)
    _patiently(tick, "adopting launches", adopt)
    weighed, grounds = weigh(tick), tick.grounds
    _repair(tick, is_launch_due=weighed.is_open)
    charge_fleet(tick)
    tidy(tick)
    choice, ended_early = _launch(tick, weighed if tick.grounds == grounds else weigh(tick))
    choice = _relieve(tick, choice)
    _patiently(tick, "reading the month", watch_month)
    decision = decide(tick, choice, ended_early)
    _remember(tick, decision)
    _raise_alerts(tick, decision, choice)
    tick.journal.flush(release=True)
    tick.untold = tell(tick.alerts, tick.workload, tick.ports, tick.ledger)
    tick.ports.metrics.emit(measure(tick, decision))
    return decision


def _repair(tick: Tick, *, is_launch_due: bool) -> None:
    """End what breaks its contract, as far as can be seen: by the rows, where EC2 says nothing."""
    seen: list[Sequence[InstanceView] | None] = []
    _patiently(tick, "looking at EC2", lambda t: seen.append(look(t, is_launch_due=is_launch_due)))
    instances = seen[0] if seen else None
    _patiently(tick, "ending instances", lambda t: reap_fleet(t, instances))


def _launch(tick: Tick, weighed: Choice) -> tuple[Choice, str]:
    try:
        choice = choose(tick, weighed)
    except SpindownError as exc:
        return replace(weighed, stopped=f"prices could not be read: {exc}"), ""
    ended_early = launch(tick, choice)
    given = {i for attempt in tick.attempts for i in attempt.instances}
    forget_backoff(tick, {w.region for w in tick.workers.values() if w.instance_id in given})
    return choice, ended_early


def _relieve(tick: Tick, choice: Choice) -> Choice:
    try:
        return relieve(tick, choice)
    except FenceLost:
        raise
    except SpindownError as exc:
        tick.notes.append(f"moving jobs: {exc}")
        return choice


def _patiently(tick: Tick, what: str, step: Callable[[Tick], None]) -> None:
    """Carry out a step that may fail without stopping the rest.

    Which region asks to slow down only the step can tell, and has heeded.
    """
    try:
        step(tick)
    except FenceLost:
        raise
    except Unreachable as exc:
        tick.notes.append(f"{what}: no answer ({exc})")
    except AccessDenied as exc:
        tick.notes.append(f"{what}: a grant is missing ({exc})")
    except SpindownError as exc:
        tick.notes.append(f"{what}: {exc}")


def _remember(tick: Tick, decision: Decision) -> None:
    """Keep the decision: whole in S3 if it differs from the last one, in short in its row."""
    digest, key, trouble = _store(tick, decision)
    row = DecisionRow(
        at=decision.at,
        digest=digest,
        key=key,
        summary=decision.summary,
        notes=decision.notes + trouble,
        held_until=decision.held_until,
        counts=summary_counts(decision),
    )
    ledger = tick.ledger
    tick.journal.note(ledger.put(rows.DECISION, row))
    tick.journal.note(ledger.change(rows.BACKLOG, seen_changes(tick.seen)))
    policy = _policy_row(tick)
    if policy != tick.view.policy:
        changes = {f.name: getattr(policy, f.name) for f in fields(policy) if f.name != "edits"}
        tick.journal.note(ledger.change(rows.POLICY, changes))


def _raise_alerts(tick: Tick, decision: Decision, choice: Choice) -> None:
    stopped = tick.open_breakers
    first = next(iter(stopped), "")
    allowed = tick.policy.regions or tick.settings.outposts.keys()
    alert_input = AlertInput(
        deployment=tick.deployment.name,
        decision=decision,
        policy=tick.policy,
        breaker=stopped.get(first, BreakerRow()),
        stopped_in=first if allowed - stopped.keys() else "",
        quotas=_quotas_met(tick, choice),
        held_back=tick.held_back,
    )
    found = list(find(alert_input))
    tick.alerts = review(found, tick.view.alerts, tick.now, over=over(alert_input))
    tick.journal.note(*remember(tick.alerts, tick.ledger))


def _quotas_met(tick: Tick, choice: Choice) -> Sequence[QuotaRow] | None:
    """Return the full quotas that this workload has met: others fill classes of their own."""
    if tick.account is None:
        return None
    met = set(tick.quotas_met)
    if choice.candidates is not None:
        left_out = (r.offer for r in choice.candidates.rejected if r.constraint == "quota")
        met |= {offer.quota_class for offer in left_out}
    return tuple(row for row in tick.account.quotas if row.quota_class in met)


def _policy_row(tick: Tick) -> PolicyRow:
    """Return the policy in force as workers read it, who cannot read settings."""
    return replace(
        tick.effective.row,
        effective=_policy_text(tick.policy),
        idle_timeout=tick.idle_timeout,
        code_digest=tick.settings.run.code_digest,
    )


@lru_cache(maxsize=8)
def _policy_text(policy: Policy) -> str:
    return json.dumps(encode(policy), sort_keys=True)


def _store(tick: Tick, decision: Decision) -> tuple[str, str, tuple[str, ...]]:
    """Return digest and key of the decision as stored, and why it was not.

    What cannot be stored is tried again by the next tick, and keeps nothing else from being done.
    """
    known, digest = tick.view.decision, decision.digest
    if known is not None and known.digest == digest:
        return digest, known.key, ()
    key = decision.key_of(digest)
    try:
        tick.ports.objects.put(key, decision.to_json())
    except SpindownError as exc:
        return "", known.key if known else "", (f"the whole decision was not stored: {exc}",)
    return digest, key, ()


def _locked_out(workload: str, ports: ControlPorts, source: str) -> Decision:
    now = ports.clock.now()
    deployment = ports.deployment().name
    ports.metrics.emit(
        [
            Datum(
                name="LockBusy",
                value=1,
                dimensions={DEPLOYMENT: deployment, WORKLOAD: workload},
            )
        ]
    )
    return Decision(
        workload=workload,
        at=now,
        outcome=Outcome.LOCKED,
        summary="another reconcile is at work",
        source=source,
    )


def _let_go(ledger: Ledger, fence: FencingToken) -> None:
    """Give the lock back after a fault, as far as that can be reached."""
    try:
        ledger.apply(fence, (), release=True)
    except SpindownError:
        return
