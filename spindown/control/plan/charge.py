"""Charge the fleet: what each worker has cost, and what launches have set aside in the budget."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from spindown.contract import row as rows
from spindown.contract.codec import replace_fields
from spindown.control.market import PriceList, price_of
from spindown.control.plan.action import Action, ActionKind, ChargeWorker, PlanDraft
from spindown.control.plan.launch_allowance import add_to_budget
from spindown.control.plan.wind_down import has_budget, needs_of
from spindown.control.spend import charge, mark_charged
from spindown.domain.budget import WorkerNeed
from spindown.domain.fleet import Launch, Worker, WorkerState
from spindown.domain.offer import CapacityType
from spindown.domain.termination import GONE, UNSEEN_FOR
from spindown.port import When, Write

#: How often a worker that runs is charged; one that has ended is charged at once. Each charge
#: writes a row of the worker (ADR 48).
CHARGED_EVERY = timedelta(minutes=5)


def due_workers(draft: PlanDraft) -> list[Worker]:
    """Return the workers that bill and whose last charge is some minutes ago."""
    now = draft.now
    return [
        worker
        for worker in (*draft.fleet.present, *_unread(draft))
        if worker.state is WorkerState.ENDED
        or _bills_until(worker, now) - (worker.accrued_until or worker.launched_at) >= CHARGED_EVERY
    ]


def _bills_until(worker: Worker, now: datetime) -> datetime:
    """Return up to when it costs: one that is gone no more, though EC2 has not said why yet."""
    return min(now, worker.gone_at or now)


def charge_workers(draft: PlanDraft, prices: PriceList | None) -> PlanDraft:
    """Charge every worker that is due up to now, and note what its pool costs from here on.

    Where prices are not known the last one stands. What this tick may still launch is judged by the
    new prices.
    """
    launches, workers, actions = dict(draft.fleet.launches), dict(draft.fleet.workers), []
    due_now = due_workers(draft)
    needs = needs_of(draft) if due_now and has_budget(draft) else None
    for worker in due_now:
        launch = launches.get(worker.launch_id)
        keep = None if needs is None else _kept(draft, worker.launch_id, needs)
        until = _bills_until(worker, draft.now)
        due = charge(worker, launch, until=until, ledger=draft.rows, keep=keep)
        price = _price_now(worker, prices, draft)
        known = workers.get(worker.instance_id)
        if known is not None and price is not None and price != known.price_per_hour:
            workers[worker.instance_id] = replace_fields(known, {"price_per_hour": price})
        actions.append(
            ChargeWorker(
                kind=ActionKind.CHARGE,
                subject=worker.instance_id,
                writes=(mark_charged(worker, due, draft.rows, price=price), *due.writes),
                charge=due,
            )
        )
        if launch is not None and due.released_usd:
            left = launch.reserved_usd - due.released_usd
            launches[launch.launch_id] = replace_fields(launch, {"reserved_usd": left})
    return draft.act(actions, launches=launches, workers=workers) if actions else draft


def _price_now(worker: Worker, prices: PriceList | None, draft: PlanDraft) -> float | None:
    """Return the whole USD an hour of a spot worker's pool; None: not known, or it is fixed."""
    if prices is None or worker.capacity_type is not CapacityType.SPOT:
        return None
    return price_of(worker.pool, worker.region, prices, draft.facts.settings)


def _unread(draft: PlanDraft) -> list[Worker]:
    """Return the workers whose rows cannot be read, as they were launched, or as gone."""
    found, view = draft.facts.ec2.instances, draft.facts.view
    names = view.unreadable_workers
    unread = [x for name, x in view.machines.items() if name in names and x.ended_at is None]
    if found is None or not unread:
        return unread
    there = {x.instance_id for here in found.values() for x in here if x.state not in GONE}
    gone = {"state": WorkerState.ENDED, "ended_at": draft.now}
    return [
        worker
        if worker.instance_id in there
        or worker.region not in found
        or draft.now - worker.launched_at <= UNSEEN_FOR
        else replace_fields(worker, gone)
        for worker in unread
    ]


def _kept(draft: PlanDraft, launch_id: str, needs: Mapping[str, WorkerNeed]) -> tuple[float, float]:
    """Return the least and the most USD that a launch keeps reserved for its workers.

    No less than they need, and no more than the work in sight asks for.
    """
    workers = draft.fleet.workers
    own = [need for i, need in needs.items() if workers[i].launch_id == launch_id]
    least = sum(need.whole for need in own)
    return least, sum(max(need.in_sight, need.whole) for need in own)


def release_reservations(draft: PlanDraft) -> PlanDraft:
    """Give back at once what launches had set aside whose workers have all ended.

    Without a budget that has time until the launch goes to the history.
    """
    if not has_budget(draft):
        return draft
    launches, actions = dict(draft.fleet.launches), []
    workers = draft.fleet.workers
    for launch in draft.fleet.launches.values():
        own = [workers[i] for i in launch.instance_ids if i in workers]
        over = [worker for worker in own if worker.state is WorkerState.ENDED]
        if not launch.reserved_usd or not own or len(over) < len(launch.instance_ids):
            continue
        as_read = When(exists=True, equals={"reserved_usd": launch.reserved_usd})
        sort = rows.launch_sort_key(launch.launch_id)
        writes = (draft.rows.change(sort, {"reserved_usd": 0.0}, when=as_read), *give_back(launch))
        actions.append(Action(kind=ActionKind.RELEASE, subject=launch.launch_id, writes=writes))
        launches[launch.launch_id] = replace_fields(launch, {"reserved_usd": 0.0})
    return draft.act(actions, launches=launches) if actions else draft


def move_reservations(draft: PlanDraft) -> PlanDraft:
    """Set aside in this month what workers that run over its beginning still need of it.

    Else other workloads would take it for free until it is charged, hour by hour.
    """
    if not has_budget(draft):
        return draft
    month, launches, actions = rows.budget_sort_key(draft.now), dict(draft.fleet.launches), []
    running = {worker.launch_id for worker in draft.fleet.present}
    for launch_id, launch in draft.fleet.launches.items():
        is_kept = launch.is_open or launch_id not in running
        if is_kept or not launch.reserved_usd or rows.budget_sort_key(launch.reserved_at) == month:
            continue
        sort, moved = rows.launch_sort_key(launch_id), {"moved_at": draft.now}
        as_read = When(exists=True, equals={"reserved_usd": launch.reserved_usd})
        writes = (
            draft.rows.change(sort, moved, when=as_read),
            *give_back(launch),
            add_to_budget(draft.now, {"committed": launch.reserved_usd}),
        )
        actions.append(Action(kind=ActionKind.RELEASE, subject=launch_id, writes=writes))
        launches[launch_id] = replace_fields(launch, moved)
    return draft.act(actions, launches=launches) if actions else draft


def give_back(launch: Launch) -> tuple[Write, ...]:
    """Return the release of what a launch had set aside and its workers never cost."""
    if not launch.reserved_usd:
        return ()
    return (add_to_budget(launch.reserved_at, {"committed": -launch.reserved_usd}),)
