"""Stop launches in a region after three useless instances in a row, or after an account error.

Useless instances never checked in, or ended without a job although work waited, or ended because
all their jobs had failed. Each kind has its own count, which starts again at 0 when something shows
the contrary. What messages alone can bring about, whoever sent them, only slows launches down.

Also decided in: ``domain.useless_instance`` (which instances count, how many stop launches, for how
long), ``launch_need`` (an open breaker keeps a launch back), ``domain.useless_trait`` (which offers
are asked last).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Literal

from spindown.contract import row as rows
from spindown.contract.codec import replace_fields
from spindown.contract.row import BreakerRow
from spindown.control.observe.fleet import Fleet
from spindown.control.observe.observation import TickFacts
from spindown.control.plan.action import Action, ActionKind, PlanDraft
from spindown.control.plan.launch_image import give_up_silent
from spindown.control.plan.launch_outcome import ADOPTED
from spindown.domain.fleet import Worker, WorkerState
from spindown.domain.learning import check_in_within
from spindown.domain.offer import Pool
from spindown.domain.pool_cooldown import cool_down
from spindown.domain.reason import NO_REASON, About, Reason, ReasonCode
from spindown.domain.useless_instance import (
    ACCOUNT_RETRY_AFTER,
    PACE,
    PROVEN_FOR,
    STOPPED_FOR,
    STRIKES,
    could_check_in,
    could_not_claim,
    has_declined_all,
    has_failed_all,
    has_left_work,
    has_missed_check_in,
    is_fault_of_ec2,
    is_faulty,
    is_of_use,
    known_fault,
)
from spindown.domain.useless_trait import asked_last, clear_useful, count_useless
from spindown.port import Refusal, When

#: Instance types that its reason names.
_TYPES_NAMED = 8

_CLOSED = BreakerRow()

#: What an instance of no use is counted as: a field of BreakerRow.
Strike = Literal["silent", "unclaimed", "failed"]
_STRIKES: Mapping[Strike, ReasonCode] = {
    "silent": ReasonCode.STRIKES_SILENT,
    "unclaimed": ReasonCode.STRIKES_UNCLAIMED,
    "failed": ReasonCode.STRIKES_FAILED,
}


def breaker_of(facts: TickFacts, fleet: Fleet, region: str) -> BreakerRow:
    """Return a region's breaker, closed if it is about another launch version."""
    known = fleet.breakers.get(region)
    return (
        _CLOSED if known is None or known.launch_version != facts.launch_version(region) else known
    )


def open_breakers(facts: TickFacts, breakers: Mapping[str, BreakerRow]) -> Mapping[str, BreakerRow]:
    """Return the breakers to tell people of, of the present launch version, by region."""
    return {
        region: known
        for region, known in sorted(breakers.items())
        if known.open_until is not None
        and known.open_until > facts.now
        and known.launch_version == facts.launch_version(region)
        # Nobody need do anything about it.
        and known.reason.code is not ReasonCode.STRIKES_OF_MESSAGES
    }


def is_on_test(facts: TickFacts, fleet: Fleet, region: str) -> bool:
    """Tell whether one launch is to test the version, since its last instances all failed."""
    breaker = breaker_of(facts, fleet, region)
    return max(breaker.silent, breaker.unclaimed, breaker.failed) >= STRIKES


def tests_launch_version(
    worker: Worker, breaker: BreakerRow, now: datetime, *, is_other: bool
) -> bool:
    """Tell whether a worker is to show whether machines of this version are still of no use.

    One that is condemned is counted when it has ended. A job that takes long, or hangs, keeps
    others waiting no longer than one that failed. So does a machine of another shape that is up and
    finds no job (``is_other``), such as one that is kept warm.
    """
    if now - worker.launched_at < PACE:
        return True
    is_test = breaker.open_until is not None and worker.launched_at >= breaker.open_until
    if worker.claimed_at is not None:
        return is_test and now - worker.claimed_at < PACE
    may_show = not is_other or (is_test and worker.checked_in_at is None)
    return may_show and worker.state is not WorkerState.ENDED


def breaker_name(facts: TickFacts, region: str) -> str:
    """Return the sort key of a region's breaker."""
    return rows.breaker_sort_key("" if region == facts.deployment.region else region)


def open_for_account(
    facts: TickFacts, known: BreakerRow, region: str, error: Refusal, types: Collection[str]
) -> BreakerRow:
    """Return a region's breaker, opened by an error of the account.

    What is counted of the launch version stays: the account error says nothing about it.
    """
    version = facts.launch_version(region)
    counted = known if known.launch_version == version else BreakerRow()
    names = sorted(types)
    more = f" and {len(names) - _TYPES_NAMED} more" if len(names) > _TYPES_NAMED else ""
    named = ", ".join(names[:_TYPES_NAMED]) + more
    about = {"refusal": error.code, "message": error.message, "types": named}
    return replace(
        counted,
        open_until=facts.now + ACCOUNT_RETRY_AFTER,
        reason=Reason(ReasonCode.ACCOUNT_REFUSED, about),
        launch_version=version,
    )


def count_forbidden(
    facts: TickFacts, known: BreakerRow, region: str, refusals: Sequence[Refusal]
) -> BreakerRow:
    """Return a region's breaker after a launch that was refused every pool it asked for.

    A rule against the first types, or against spot, leaves others: only the third such launch in a
    row opens the breaker, since each asks for pools that the ones before did not.
    """
    version = facts.launch_version(region)
    counted = known if known.launch_version == version else BreakerRow(launch_version=version)
    counted = replace(counted, forbidden=counted.forbidden + 1)
    if counted.forbidden < STRIKES:
        return counted
    types = {refusal.instance_type for refusal in refusals if refusal.instance_type}
    return open_for_account(facts, counted, region, refusals[0], types)


def begin_breakers(draft: PlanDraft) -> PlanDraft:
    """Begin a closed breaker for each new launch version.

    Other readers look only at a row and would take an old one as open. Items that are done from
    now on speak for the version.
    """
    done = _items_done(draft)
    for region in sorted(draft.facts.settings.regions):
        known, version = draft.fleet.breakers.get(region), draft.facts.launch_version(region)
        if known is None or known.launch_version != version:
            draft = _set(draft, region, BreakerRow(launch_version=version, items_done=done))
    return draft


def traits_asked_last(facts: TickFacts, fleet: Fleet) -> Mapping[str, Mapping[str, int]]:
    """Return region -> traits of its pools that are asked last, and how much later each."""
    found = {}
    for region in facts.settings.regions:
        known = breaker_of(facts, fleet, region)
        if traits := asked_last(known.useless_traits, max(_counts(known).values()), facts.now):
            found[region] = traits
    return found


def count_useless_instances(draft: PlanDraft) -> PlanDraft:
    """Count once each instance that has ended and was of no use."""
    draft = _clear_useful_traits(draft)
    before, done = draft.facts.view.backlog, _items_done(draft)
    for region, known in draft.fleet.breakers.items():
        # Somebody takes jobs on this code.
        if before.claims != before.claims_seen:
            draft = _forget(draft, region, "unclaimed")
        # Somebody does items of them.
        if done > known.items_done:
            draft = _forget(draft, region, "failed")
        elif done < known.items_done:
            # A day has gone to history, with all that was done in it.
            now = draft.fleet.breakers[region]
            draft = _set(draft, region, replace_fields(now, {"items_done": done}))
    for worker in draft.fleet.workers.values():
        if worker.miss_counted:
            continue
        if has_missed_check_in(worker):
            draft = _count_miss(draft, worker)
        elif (
            has_declined_all(worker)
            or _could_not_claim(draft, worker)
            or has_left_work(worker, draft.fleet.waiting_since(worker.shape))
        ):
            draft = _strike(_note_counted(draft, worker), worker, "unclaimed")
        elif has_failed_all(worker):
            draft = _strike(_note_counted(draft, worker), worker, "failed")
    return draft


def _could_not_claim(draft: PlanDraft, worker: Worker) -> bool:
    """Tell whether a worker's claims got no answer, and since then nobody else's did either."""
    since = worker.unanswered_at
    if since is None or not could_not_claim(worker):
        return False
    others = (w.claimed_at for w in draft.fleet.workers.values())
    return not any(at is not None and at >= since for at in others)


def count_silence(draft: PlanDraft, worker: Worker) -> PlanDraft:
    """Count that a worker is condemned which never checked in."""
    if not _could_check_in(draft, worker):
        return draft
    why = Reason(ReasonCode.POOL_NEVER_CHECKED_IN, {"ended": ""})
    return _count_silent(cool_down_pool(draft, worker.pool, why, worker.instance_id), worker)


def forget_silence(draft: PlanDraft, worker: Worker) -> PlanDraft:
    """Forget who never checked in, since a worker has; that it is of use is yet to be seen."""
    return _forget(draft, worker.region, "silent")


def _clear_useful_traits(draft: PlanDraft) -> PlanDraft:
    """Clear the traits of machines that came up since then and are of use."""
    for region in sorted(draft.facts.settings.regions):
        known = breaker_of(draft.facts, draft.fleet, region)
        traits = known.useless_traits
        # Nearly always there are none.
        for worker in draft.fleet.workers.values() if traits else ():
            up_since = worker.checked_in_at
            if worker.region == region and up_since is not None and is_of_use(worker, draft.now):
                traits = clear_useful(traits, worker.pool, up_since)
        if traits != known.useless_traits:
            draft = _set(draft, region, replace(known, useless_traits=traits))
    return draft


def cool_down_pool(draft: PlanDraft, pool: Pool, reason: Reason, depends_on: str = "") -> PlanDraft:
    """Ask a pool for nothing for a while, longer with each time in a row."""
    begun = cool_down(
        pool,
        draft.fleet.pool_cooldowns.get(pool),
        reason=reason,
        now=draft.now,
        policy=draft.facts.policy,
    )
    action = Action(
        kind=ActionKind.COOL_DOWN,
        subject=str(pool),
        reason=reason,
        writes=(draft.rows.put(rows.pool_cooldown_sort_key(pool), begun),),
        depends_on=depends_on,
    )
    return draft.act([action], pool_cooldowns={**draft.fleet.pool_cooldowns, pool: begun})


def _count_miss(draft: PlanDraft, worker: Worker) -> PlanDraft:
    """Count once that an instance ended by itself before it checked in."""
    draft = _note_counted(draft, worker)
    if not _could_check_in(draft, worker):
        return draft
    ended = {"ended": worker.reason.code.value, **worker.reason.about}
    why = Reason(ReasonCode.POOL_NEVER_CHECKED_IN, ended)
    draft = cool_down_pool(draft, worker.pool, why, worker.instance_id)
    return draft if is_fault_of_ec2(worker) else _count_silent(draft, worker)


def _count_silent(draft: PlanDraft, worker: Worker) -> PlanDraft:
    draft = _strike(draft, worker, "silent")
    silent = breaker_of(draft.facts, draft.fleet, worker.region).silent
    return give_up_silent(draft, worker, silent)


def _note_counted(draft: PlanDraft, worker: Worker) -> PlanDraft:
    sort = rows.worker_sort_key(worker.instance_id)
    action = Action(
        kind=ActionKind.COUNT,
        subject=worker.instance_id,
        writes=(draft.rows.change(sort, {"miss_counted": True}, when=When(exists=True)),),
        depends_on=worker.instance_id,
    )
    return draft.act([action])


def _could_check_in(draft: PlanDraft, worker: Worker) -> bool:
    """Tell whether it had a row all the time, and the ledger was there for long enough."""
    launch = draft.fleet.launch_of(worker)
    if launch is not None and launch.reason.code in ADOPTED:
        return False
    return could_check_in(
        worker.launched_at,
        worker.ended_at or draft.now,
        draft.fleet.remembered.watched_since,
        check_in_within(draft.facts.knowledge, draft.facts.policy),
    )


def _items_done(draft: PlanDraft) -> int:
    return sum(day.items for day in draft.facts.view.spend.values())


def _strike(draft: PlanDraft, worker: Worker, what: Strike) -> PlanDraft:
    region = worker.region
    known = breaker_of(draft.facts, draft.fleet, region)
    count = _counts(known)[what] + 1
    version, done = draft.facts.launch_version(region), _items_done(draft)
    counted = replace_fields(known, {what: count, "launch_version": version, "items_done": done})
    if is_faulty(worker) or not (has_declined_all(worker) or has_failed_all(worker)):
        # What messages can bring about says nothing of the machine.
        traits = count_useless(known.useless_traits, worker.pool, draft.now)
        counted = replace(counted, useless_traits=traits)
    if known.launch_version == version and done > known.items_done:
        counted = replace(counted, proven_at=draft.now)
    if count >= STRIKES:
        counted = _opened(draft, counted, worker, what)
    struck = Reason(_STRIKES[what], {"instance_id": worker.instance_id, "count": count})
    return _set(draft, region, counted, struck, depends_on=worker.instance_id)


def _opened(draft: PlanDraft, counted: BreakerRow, worker: Worker, what: Strike) -> BreakerRow:
    """Return the breaker, open for an hour; shortly if messages can be at fault.

    Whether it is they or the code, nobody can tell before an item is done. Then a person is called,
    and it costs one machine at a time if jobs fail soon. The next may start 5 minutes after one has
    claimed a job, so jobs that fail after hours fill ``max_workers``. Each job that fails, and each
    message that cannot be read, ends as a dead letter.
    """
    proven_at, count = counted.proven_at, _counts(counted)[what]
    is_proven = proven_at is not None and draft.now - proven_at < PROVEN_FOR
    is_of_messages = is_proven or has_declined_all(worker) or has_failed_all(worker)
    if not is_of_messages or counted.silent >= STRIKES:
        reason = _reason_to_stop(worker, what, count)
        return replace(counted, open_until=draft.now + STOPPED_FOR, reason=reason)
    # The next tick sees it open, so that whoever is to be told is.
    open_until = max(worker.launched_at + PACE, draft.now + draft.facts.policy.tick)
    if is_proven:
        about: About = {"count": count, "instance_id": worker.instance_id}
        reason = Reason(ReasonCode.STRIKES_OF_MESSAGES, about)
    else:
        reason = _reason_to_stop(worker, what, count)
    return replace(counted, open_until=open_until, reason=reason)


def _reason_to_stop(worker: Worker, what: Strike, count: int) -> Reason:
    # That its jobs had failed is what happened; why they did is in their logs.
    fault = NO_REASON if what == "failed" else known_fault(worker)
    about: About = {
        **fault.about,
        "count": count,
        "instance_id": worker.instance_id,
        "fault_code": fault.code.value,
    }
    return Reason(_STRIKES[what], about)


def _forget(draft: PlanDraft, region: str, what: Strike) -> PlanDraft:
    """Count one kind from 0 again; whatever else stops launches, an account error too, goes on."""
    known = breaker_of(draft.facts, draft.fleet, region)
    counts = _counts(known)
    mine = counts.pop(what)
    # Instances of no use have stopped launches, and not an account error.
    is_of_instances = known.reason.code in {
        *_STRIKES.values(),
        ReasonCode.STRIKES_OF_MESSAGES,
    }
    if mine >= STRIKES > max(counts.values()) and is_of_instances:
        closed = {what: 0, "open_until": None, "reason": NO_REASON}
        return _set(draft, region, replace_fields(known, closed))
    return _set(draft, region, replace_fields(known, {what: 0})) if mine else draft


def _set(
    draft: PlanDraft,
    region: str,
    breaker: BreakerRow,
    reason: Reason = NO_REASON,
    *,
    depends_on: str = "",
) -> PlanDraft:
    action = Action(
        kind=ActionKind.COUNT,
        subject=region,
        reason=reason,
        writes=(draft.rows.put(breaker_name(draft.facts, region), breaker),),
        depends_on=depends_on,
    )
    return draft.act([action], breakers={**draft.fleet.breakers, region: breaker})


def _counts(breaker: BreakerRow) -> dict[Strike, int]:
    return {
        "silent": breaker.silent,
        "unclaimed": breaker.unclaimed,
        "failed": breaker.failed,
    }
