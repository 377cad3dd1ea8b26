"""Keep the books: charge what the fleet costs, learn from it, clear away what is finished."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from spindown.contract import row as rows
from spindown.contract.codec import replace_fields
from spindown.contract.row import SpendRow
from spindown.control.market import CATALOGUE_KEY, PriceList, price_of
from spindown.control.plan.action import Action, ActionKind, ChargeWorker, PlanDraft, StoreCatalogue
from spindown.control.plan.backlog import learn
from spindown.control.plan.breaker import forget_silence
from spindown.control.plan.budget import add_to_budget
from spindown.control.plan.image import image_of
from spindown.control.plan.outcome import ADOPTED, UNANSWERED
from spindown.control.plan.wind_down import has_budget, needs_of
from spindown.control.spend import charge, mark_charged
from spindown.domain.boot import BootPhase
from spindown.domain.budget import WorkerNeed
from spindown.domain.cost_rise import WEEKS
from spindown.domain.fleet import Launch, Worker, WorkerState, longest_memory
from spindown.domain.offer import CapacityType
from spindown.domain.reaping import GONE, UNSEEN_FOR
from spindown.port import Key, When, Write

#: How often a worker that runs is charged; one that has ended is charged at once. Each charge
#: writes a row of the worker (ADR 48).
CHARGED_EVERY = timedelta(minutes=5)
#: Finished rows stay in sight this long, for whoever watches.
_SHOWN_FOR = timedelta(minutes=15)
#: A launch that had no answer has others ask its region last for so long.
_SILENT_FOR = timedelta(hours=1)
#: Days of spend that one query brings along: today, a week, and those that it is compared with.
_DAYS_KEPT = 1 + 7 * (1 + WEEKS)
#: Rows that one tick clears away.
_ROWS_AT_ONCE = 30
#: Of those that workers have written and nobody reads; a dozen transactions.
_IGNORED_AT_ONCE = 900
#: No message lives longer than this (SQS, maximum retention).
_MESSAGE_LIVES = timedelta(days=14)


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
        sort = rows.launch_sort(launch.launch_id)
        writes = (draft.rows.change(sort, {"reserved_usd": 0.0}, when=as_read), *_give_back(launch))
        actions.append(Action(kind=ActionKind.RELEASE, subject=launch.launch_id, writes=writes))
        launches[launch.launch_id] = replace_fields(launch, {"reserved_usd": 0.0})
    return draft.act(actions, launches=launches) if actions else draft


def move_reservations(draft: PlanDraft) -> PlanDraft:
    """Set aside in this month what workers that run over its beginning still need of it.

    Else other workloads would take it for free until it is charged, hour by hour.
    """
    if not has_budget(draft):
        return draft
    month, launches, actions = rows.budget_sort(draft.now), dict(draft.fleet.launches), []
    running = {worker.launch_id for worker in draft.fleet.present}
    for launch_id, launch in draft.fleet.launches.items():
        is_kept = launch.is_open or launch_id not in running
        if is_kept or not launch.reserved_usd or rows.budget_sort(launch.reserved_at) == month:
            continue
        sort, moved = rows.launch_sort(launch_id), {"moved_at": draft.now}
        as_read = When(exists=True, equals={"reserved_usd": launch.reserved_usd})
        writes = (
            draft.rows.change(sort, moved, when=as_read),
            *_give_back(launch),
            add_to_budget(draft.now, {"committed": launch.reserved_usd}),
        )
        actions.append(Action(kind=ActionKind.RELEASE, subject=launch_id, writes=writes))
        launches[launch_id] = replace_fields(launch, moved)
    return draft.act(actions, launches=launches) if actions else draft


def learn_boots(draft: PlanDraft) -> PlanDraft:
    """Learn from the workers that have checked in since the last tick."""
    booted = [
        worker
        for worker in draft.fleet.present
        if _has_just(draft, worker, _as_written(draft, worker).checked_in_at)
    ]
    most = draft.facts.policy.max_lifetime
    samples: dict[str, list[float]] = {}
    for worker in booted:
        # One that was adopted may have waited for its row, or was asked for more than once.
        if worker.checked_in_at is not None and not _was_adopted(draft, worker):
            seconds = min(worker.checked_in_at - worker.launched_at, most).total_seconds()
            rate = rows.BAKED_RATE if _was_baked(draft, worker) else rows.BOOT_RATE
            samples.setdefault(rate, []).append(seconds)
    draft = draft.act([learn(draft, rate, found) for rate, found in sorted(samples.items())])
    draft = draft.act(_learn_phases(draft))
    for worker in booted:
        draft = forget_silence(draft, worker)
    return draft


def _learn_phases(draft: PlanDraft) -> list[Action]:
    """Return what teaches the phases of boots that are over since the last tick."""
    polled = [
        (rows.BAKED_PHASE if _was_baked(draft, worker) else rows.BOOT_PHASE, worker.boot_phases)
        for worker in draft.fleet.present
        if _has_just(draft, worker, _as_written(draft, worker).polled_at)
        and not _was_adopted(draft, worker)
    ]
    most = draft.facts.policy.max_lifetime.total_seconds()
    samples: dict[str, list[float]] = {}
    for phase in BootPhase:
        for phases, taken in polled:
            if phase in taken:
                samples.setdefault(f"{phases}{phase}", []).append(min(taken[phase], most))
    return [learn(draft, sort, taken) for sort, taken in samples.items()]


def _was_baked(draft: PlanDraft, worker: Worker) -> bool:
    """Tell whether a worker's launch took an image that the functions had baked."""
    if draft.facts.settings.bake is None:
        return False
    return bool(image_of(draft.fleet.launch_of(worker)))


def _as_written(draft: PlanDraft, worker: Worker) -> Worker:
    """Return a worker as its row tells, before anything was corrected."""
    return draft.facts.view.workers.get(worker.instance_id, worker)


def _has_just(draft: PlanDraft, worker: Worker, at: datetime | None) -> bool:
    """Tell whether something was since the last tick, by the clock of neither in future."""
    last_tick = draft.facts.view.backlog.seen_at or worker.launched_at
    return at is not None and max(last_tick, worker.launched_at) <= at <= draft.now


def _was_adopted(draft: PlanDraft, worker: Worker) -> bool:
    launch = draft.fleet.launch_of(worker)
    return launch is not None and launch.reason.code in ADOPTED


def record_vram(draft: PlanDraft) -> PlanDraft:
    """Keep the most GPU memory that any worker has used today."""
    sort = rows.spend_sort(draft.now)
    today = draft.facts.view.spend.get(sort.removeprefix(rows.SPEND), SpendRow())
    most = max((w.vram_gib or 0.0 for w in draft.fleet.workers.values()), default=0.0)
    if most <= today.vram_gib_max:
        return draft
    write = draft.rows.change(sort, {"vram_gib_max": most})
    return draft.act([Action(kind=ActionKind.LEARN, subject=sort, writes=(write,))])


def store_catalogue(draft: PlanDraft, prices: PriceList | None) -> PlanDraft:
    """Store the first catalogue of a deployment, for others and for the next tick."""
    if prices is None or prices.unstored is None:
        return draft
    action = StoreCatalogue(
        kind=ActionKind.STORE_CATALOGUE, subject=CATALOGUE_KEY, refreshed=prices.unstored
    )
    return draft.act([action])


def collect_garbage(draft: PlanDraft) -> PlanDraft:
    """Move finished rows to the history, and drop what nothing remembers any more."""
    surplus = [
        Action(kind=ActionKind.CLEAN_UP, subject=sort, writes=(_remove_ignored(draft, sort),))
        for sort in draft.facts.view.ignored_rows[:_IGNORED_AT_ONCE]
        # An adopted one has its machine's row from this tick on.
        if sort.removeprefix(rows.WORKER) not in draft.fleet.workers
    ]
    units = [
        *_old_workers(draft),
        *_old_launches(draft),
        *_old_pools(draft),
        *_old_days(draft),
        *_old_jobs(draft),
    ]
    clean_up = [
        Action(kind=ActionKind.CLEAN_UP, subject=unit[0].key.sort, writes=unit)
        for unit in units[:_ROWS_AT_ONCE]
    ]
    return draft.act([*clean_up, *surplus])


def _remove_ignored(draft: PlanDraft, sort: str) -> Write:
    """Return the removal of a row that lies among those of workers, under any key."""
    return Write(key=Key(rows.worker_partition(draft.facts.workload), sort), delete=True)


def _old_workers(draft: PlanDraft) -> list[tuple[Write, ...]]:
    view, workers, now = draft.facts.view, draft.fleet.workers, draft.now
    return [
        (
            *draft.rows.move_to_history(rows.worker_sort(w.instance_id), w, now=now),
            draft.rows.delete(rows.machine_sort(w.instance_id)),
        )
        for w in {**view.machines, **view.workers}.values()
        if w.ended_at is not None
        and _is_past(w.ended_at, now)
        # This very tick may have found that it runs.
        and workers.get(w.instance_id, w).ended_at is not None
    ]


def _old_launches(draft: PlanDraft) -> list[tuple[Write, ...]]:
    # A machine is charged to its launch though the row of its worker cannot be read.
    machines = draft.facts.view.machines.values()
    used = {w.launch_id for w in (*draft.fleet.workers.values(), *machines)}
    return [
        (
            *draft.rows.move_to_history(rows.launch_sort(x.launch_id), x, now=draft.now),
            *_give_back(x),
        )
        for x in draft.facts.view.launches.values()
        if not x.is_open
        and x.launch_id not in used
        and draft.now - x.intended_at > (_SILENT_FOR if x.reason.code in UNANSWERED else _SHOWN_FOR)
    ]


def _give_back(launch: Launch) -> tuple[Write, ...]:
    """Return the release of what a launch had set aside and its workers never cost."""
    if not launch.reserved_usd:
        return ()
    return (add_to_budget(launch.reserved_at, {"committed": -launch.reserved_usd}),)


def _old_pools(draft: PlanDraft) -> list[tuple[Write, ...]]:
    policy = draft.facts.policy
    return [
        (draft.rows.delete(rows.unavailable_sort(u.pool)),)
        for u in draft.facts.view.unavailable.values()
        if draft.now - u.until > longest_memory(u.reason, policy)
        and draft.fleet.unavailable.get(u.pool) == u
    ]


def _old_days(draft: PlanDraft) -> list[tuple[Write, ...]]:
    spend = draft.facts.view.spend
    kept = sorted(spend)[-_DAYS_KEPT:]
    return [
        (
            *draft.rows.move_to_history(f"{rows.SPEND}{day}", row, now=draft.now),
            draft.rows.delete(f"{rows.DONE}{day}"),
        )
        for day, row in spend.items()
        if day not in kept
    ]


def _old_jobs(draft: PlanDraft) -> list[tuple[Write, ...]]:
    """Forget jobs that somebody holds again, or whose message must be gone."""
    held = {lease.job_id for lease in draft.fleet.leases}
    empty_since = draft.fleet.remembered.empty_since
    is_empty = empty_since is not None and draft.now - empty_since > _SHOWN_FOR
    return [
        (draft.rows.delete(rows.requeued_sort(job.job_id)),)
        for job in draft.facts.view.requeued_jobs.values()
        if is_empty or job.job_id in held or draft.now - job.sent_at > _MESSAGE_LIVES
    ]


def _is_past(at: datetime, now: datetime) -> bool:
    return now - at > _SHOWN_FOR
