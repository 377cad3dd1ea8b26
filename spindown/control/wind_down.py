"""Which workers the month's budget still pays for, and what it leaves for launches.

The rule is in ``domain.budget``; here it meets the rows. A worker that is told hears it at its next
heartbeat (``spent_at`` in its row) and ends as ``when_spent`` says; one that boots is condemned.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from spindown.contract import row as rows
from spindown.control.budget import used
from spindown.control.plan import Action, ActionKind, ChargeWorker, PlanDraft
from spindown.control.reap import change_worker, condemn_and_terminate
from spindown.control.size import waiting_work
from spindown.domain.budget import (
    LaunchRoom,
    WorkerNeed,
    divide,
    foresee_workers,
    foresight,
)
from spindown.domain.fleet import Launch, LaunchState
from spindown.domain.learning import items_per_job
from spindown.domain.reaping import Condemnation, Reaping
from spindown.domain.reason import Reason, ReasonCode
from spindown.ledger import AccountView, account_key

#: A float's last digits, so that what was just found to fit is not refused when it is written.
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class MonthLeft:
    """What the month's budget leaves for launches; None: there is no budget, or nobody knows."""

    room: LaunchRoom | None = None
    #: USD that all workloads may have spent and set aside once a launch is reserved.
    at_most: float | None = None


def has_budget(draft: PlanDraft) -> bool:
    """Tell whether the deployment has a budget."""
    return draft.facts.deployment.budget_per_month is not None


def needs_of(draft: PlanDraft) -> Mapping[str, WorkerNeed]:
    """Return instance id -> what each worker that bills will still cost."""
    return foresee_workers(
        draft.fleet.workers.values(),
        draft.fleet.leases,
        visible=waiting_work(draft).visible,
        knowledge=draft.facts.knowledge,
        policy=draft.facts.policy,
        now=draft.now,
    )


def heed_budget(draft: PlanDraft, account: AccountView | None) -> tuple[PlanDraft, MonthLeft]:
    """Tell the workers to end that the budget does not pay for; return what it leaves.

    What all workloads have spent and set aside is in the month's row. What the workload's own
    launches have set aside gives way to what their workers need by now, where that is more.
    """
    whole, month = draft.facts.deployment.budget_per_month, rows.budget_sort(draft.now)
    if whole is None or account is None or month in account.bad_rows:
        return draft, MonthLeft()
    needs = _uncharged_only_once(draft, needs_of(draft))
    owners = {i: draft.fleet.workers[i].launch_id for i in needs}
    launches = draft.fleet.launches
    running = {i: launches[i] for i in owners.values() if i in launches}
    coming = sum(
        write.add.get("committed", 0.0)
        for action in draft.actions
        for write in action.writes
        if write.key == account_key(month)
    )
    taken = used(account, draft.now) + coming
    earlier = sum(
        x.reserved_usd
        for x in launches.values()
        if rows.budget_sort(x.intended_at) != month and x.launch_id not in running
    )
    own = sum(x.reserved_usd for x in running.values() if rows.budget_sort(x.intended_at) == month)
    ends, left = divide(needs.values(), whole - earlier - taken + own)
    spent = account.budget_at(draft.now).dollars
    draft = _wind_down(draft, ends, needs, {"budget_per_month": whole, "spent": spent})
    left -= sum(_beyond_need(x, needs, owners, ends) for x in running.values())
    room = LaunchRoom(
        whole=whole,
        left=left,
        ahead=foresight(draft.facts.knowledge, draft.facts.policy),
        items_waiting=_unserved(draft),
    )
    return draft, MonthLeft(room=room, at_most=left + taken + _ROUNDING)


def _wind_down(
    draft: PlanDraft,
    ends: Iterable[str],
    needs: Mapping[str, WorkerNeed],
    about: Mapping[str, float],
) -> PlanDraft:
    reason = Reason(ReasonCode.BUDGET_ENDS_WORKER, dict(about))
    booting = [i for i in ends if needs[i].is_booting]
    told = [i for i in ends if not needs[i].is_booting]
    draft = draft.with_workers(
        [replace(draft.fleet.workers[i], spent_at=draft.now) for i in told],
        [
            Action(
                kind=ActionKind.WIND_DOWN,
                subject=instance_id,
                reason=reason,
                writes=(change_worker(draft, instance_id, {"spent_at": draft.now}),),
            )
            for instance_id in told
        ],
    )
    condemned = (Condemnation(instance_id=i, reason=reason) for i in booting)
    return condemn_and_terminate(draft, Reaping(condemn=tuple(condemned))) if booting else draft


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
        x.state is LaunchState.INTENDED for x in draft.fleet.launches.values()
    )
    if is_served:
        return 0.0
    per_job = items_per_job(draft.facts.knowledge, draft.facts.policy)
    return waiting_work(draft).visible * per_job
