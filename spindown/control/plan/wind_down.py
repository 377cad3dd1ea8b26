"""Tell workers to end for which the month's budget does not pay, or the limits leave no room.

``domain.budget`` and ``domain.surplus`` decide which these are. ``divide_budget`` also returns what
the budget then leaves to launches. A worker hears it at its next heartbeat. With ``spent_at`` in
its row it ends as ``when_spent`` says, with ``surplus_at`` after the jobs in hand, both by
``domain.worker_lifecycle``; one that boots is condemned.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from spindown.contract import row as rows
from spindown.contract.codec import replace_fields
from spindown.control.plan.action import Action, ActionKind, ChargeWorker, PlanDraft
from spindown.control.plan.launch_allowance import used
from spindown.control.plan.launch_need import waiting_work
from spindown.control.plan.terminate import change_worker, condemn_and_terminate
from spindown.domain.account_pricing import open_to_paid
from spindown.domain.budget import (
    ROUNDING,
    LaunchBudget,
    WorkerNeed,
    divide,
    left_for_workers,
    remaining_costs,
    worker_lifetimes,
)
from spindown.domain.fleet import Launch, WorkerState
from spindown.domain.learning import items_per_job
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.surplus import find_surplus
from spindown.domain.termination import Condemnation, Terminations
from spindown.ledger import AccountView, account_key


def has_budget(draft: PlanDraft) -> bool:
    """Tell whether the deployment has a budget."""
    return draft.facts.deployment.budget_per_month is not None


def needs_of(draft: PlanDraft) -> Mapping[str, WorkerNeed]:
    """Return instance id -> what each worker that bills will still cost."""
    return remaining_costs(
        draft.fleet.workers.values(),
        draft.fleet.leases,
        visible=waiting_work(draft).visible,
        knowledge=draft.facts.knowledge,
        policy=draft.facts.policy,
        now=draft.now,
    )


def divide_budget(
    draft: PlanDraft, account: AccountView | None
) -> tuple[PlanDraft, LaunchBudget | None]:
    """Tell the workers to end that the budget does not pay for; return what is left for launches.

    None: there is no budget, or nobody knows what is spent of it.

    The month's row has what all workloads have spent and set aside. Where workers need more by now
    than their launches have set aside, that counts instead.
    """
    whole, month = draft.facts.deployment.budget_per_month, rows.budget_sort_key(draft.now)
    if whole is None or account is None or month in account.bad_rows:
        return draft, None
    needs = _uncharged_only_once(draft, needs_of(draft))
    # Instance -> its launch; only launches with a worker that bills are in ``running``.
    owners = {i: draft.fleet.workers[i].launch_id for i in needs}
    launches = draft.fleet.launches
    running = {i: launches[i] for i in owners.values() if i in launches}
    added_now = sum(
        write.add.get("committed", 0.0)
        for action in draft.actions
        for write in action.writes
        if write.key == account_key(month)
    )
    month_used = used(account, draft.now) + added_now
    reserved_before = sum(
        x.reserved_usd
        for x in launches.values()
        if rows.budget_sort_key(x.reserved_at) != month and x.launch_id not in running
    )
    reserved_by_own = sum(
        x.reserved_usd for x in running.values() if rows.budget_sort_key(x.reserved_at) == month
    )
    left = left_for_workers(
        whole, used=month_used, reserved_before=reserved_before, reserved_by_own=reserved_by_own
    )
    ends, left = divide(needs.values(), left)
    spent = account.budget_at(draft.now).dollars
    about = {"budget_per_month": whole, "spent": spent}
    ended = dict.fromkeys(ends, Reason(ReasonCode.BUDGET_ENDS_WORKER, about))
    draft = _wind_down(draft, ended, "spent_at")
    left -= sum(_beyond_need(x, needs, owners, ends) for x in running.values())
    return draft, LaunchBudget(
        month_usd=whole,
        left_usd=left,
        lifetimes=worker_lifetimes(draft.facts.knowledge, draft.facts.policy),
        items_waiting=_unserved(draft),
        committed_at_most_usd=left + month_used + ROUNDING,
    )


def end_surplus(draft: PlanDraft) -> PlanDraft:
    """Tell the workers to end that the policy's limits have no room for."""
    live = [worker for worker in draft.fleet.workers.values() if worker.is_live]
    surplus = find_surplus(
        live,
        for_particular_jobs={
            worker.instance_id
            for worker in live
            if worker.claimed_at is None
            and (launch := draft.fleet.launch_of(worker)) is not None
            and launch.is_for_particular_jobs
        },
        knowledge=draft.facts.knowledge,
        policy=open_to_paid(
            draft.facts.policy,
            draft.facts.settings.pricing,
            draft.facts.settings.run.root_volume_gib,
        ),
    )
    return _wind_down(draft, surplus, "surplus_at")


def _wind_down(draft: PlanDraft, ends: Mapping[str, Reason], since: str) -> PlanDraft:
    """Tell workers to end, each for a reason, by a field of their rows; condemn those that boot."""
    if not ends:
        return draft
    workers, change = draft.fleet.workers, {since: draft.now}
    booting = [i for i in ends if workers[i].state is WorkerState.BOOTING]
    at_work = [i for i in ends if workers[i].state is not WorkerState.BOOTING]
    draft = draft.with_workers(
        [replace_fields(workers[i], change) for i in at_work],
        [
            Action(
                kind=ActionKind.WIND_DOWN,
                subject=instance_id,
                reason=ends[instance_id],
                writes=(change_worker(draft, instance_id, change),),
            )
            for instance_id in at_work
        ],
    )
    condemned = (Condemnation(instance_id=i, reason=ends[i]) for i in booting)
    return condemn_and_terminate(draft, Terminations(condemn=tuple(condemned)))


def _uncharged_only_once(
    draft: PlanDraft, needs: Mapping[str, WorkerNeed]
) -> dict[str, WorkerNeed]:
    """Return the needs without what this very tick charges."""
    charged = {a.subject for a in draft.actions if isinstance(a, ChargeWorker)}
    return {i: replace(n, uncharged=0.0) if i in charged else n for i, n in needs.items()}


def _beyond_need(
    launch: Launch,
    needs: Mapping[str, WorkerNeed],
    owners: Mapping[str, str],
    ends: Collection[str],
) -> float:
    """Return the USD that a launch has set aside for work beyond what its workers need now."""
    own = [(i, need) for i, need in needs.items() if owners[i] == launch.launch_id]
    need = sum(n.uncharged + (n.at_least if i in ends else n.whole) for i, n in own)
    return max(launch.reserved_usd - need, 0.0)


def _unserved(draft: PlanDraft) -> float:
    """Return the items that wait, if nobody of ours is there or on the way to take them."""
    is_served = any(w.takes_jobs for w in draft.fleet.workers.values()) or any(
        x.is_open for x in draft.fleet.launches.values()
    )
    if is_served:
        return 0.0
    per_job = items_per_job(draft.facts.knowledge, draft.facts.policy)
    return waiting_work(draft).visible * per_job
