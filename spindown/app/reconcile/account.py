"""Charge what the fleet has cost since the last tick, and clear away what is finished."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from spindown.app.offers import price_now
from spindown.app.port import When, Write
from spindown.app.reconcile.journal import Bundle
from spindown.app.reconcile.reap import close_breaker
from spindown.app.reconcile.tick import ACCOUNT, Tick
from spindown.app.reconcile.track import add_sample
from spindown.app.spend import Charge, add_to_budget, charge, join_charges
from spindown.contract import row as rows
from spindown.contract.row import SpendRow
from spindown.domain.fleet import Launch, LaunchState, Worker, WorkerState
from spindown.error import SpindownError

#: Finished rows stay in sight this long, for whoever watches.
_SHOWN_FOR = timedelta(minutes=15)
#: Days of the account that one query brings along, and rows that one tick clears away.
_DAYS_KEPT = 40
_ROWS_AT_ONCE = 30
#: Workers charged in one bundle: each brings three rows of its own at the most.
_CHARGES_AT_ONCE = 25


def charge_fleet(tick: Tick) -> None:
    """Charge every worker that bills up to now; learn from those that have just checked in."""
    charges: list[Charge] = []
    for worker in list(tick.workers.values()):
        if worker.state is WorkerState.ENDED:
            continue
        _learn_boot(tick, worker)
        launch = tick.launch_of(worker)
        due = charge(worker, launch, until=tick.now, ledger=tick.ledger)
        if tick.now <= (worker.accrued_until or worker.launched_at):
            continue
        charges.append(due)
        tick.tally.dollars += due.dollars
        tick.tally.on_demand_dollars += due.on_demand_dollars
        tick.tally.idle_seconds += due.idle_seconds
        if launch is not None and due.released_usd:
            left = launch.reserved_usd - due.released_usd
            tick.launches[launch.launch_id] = replace(launch, reserved_usd=left)
    for first in range(0, len(charges), _CHARGES_AT_ONCE):
        tick.journal.note_bundle(_bundle(charges[first : first + _CHARGES_AT_ONCE]))
    _note_vram(tick)
    _stamp_ends(tick)


def _bundle(charges: Sequence[Charge]) -> Bundle:
    return Bundle(
        together=join_charges(charges),
        apart=lambda: [(due.worker_write, *due.writes) for due in charges],
    )


def _stamp_ends(tick: Tick) -> None:
    """Stamp what its pool costs on each worker that has just ended, as its launch did."""
    for worker in list(tick.workers.values()):
        if worker.state is not WorkerState.ENDED or worker.end_price_per_hour is not None:
            continue
        try:
            price = price_now(
                worker.pool,
                region=worker.region,
                settings=tick.settings,
                ports=tick.ports,
                now=tick.now,
            )
        except SpindownError:
            # As long as its row is in sight the next tick tries again.
            return
        if price is not None:
            tick.workers[worker.instance_id] = replace(worker, end_price_per_hour=price)
            sort = rows.worker_sort(worker.instance_id)
            stamp = tick.ledger.change(sort, {"end_price_per_hour": price}, when=When(exists=True))
            tick.journal.note(stamp)


def _note_vram(tick: Tick) -> None:
    """Keep the most GPU memory that any worker has used today."""
    sort = rows.spend_sort(tick.now)
    today = tick.view.spend.get(sort.removeprefix(rows.SPEND), SpendRow())
    most = max((w.vram_gib or 0.0 for w in tick.workers.values()), default=0.0)
    if most > today.vram_gib_max:
        tick.journal.note(tick.ledger.change(sort, {"vram_gib_max": most}))


def _learn_boot(tick: Tick, worker: Worker) -> None:
    """Learn a boot time at the first charge after the check-in."""
    checked_in = worker.checked_in_at
    if checked_in is None or (worker.accrued_until or worker.launched_at) > checked_in:
        return
    add_sample(tick, rows.BOOT_RATE, (checked_in - worker.launched_at).total_seconds())
    close_breaker(tick, worker.region)


def watch_month(tick: Tick) -> None:
    """Read the month's account now and then while something bills, for its metrics."""
    if tick.account is None and any(w.is_live for w in tick.workers.values()):
        tick.account = tick.ports.cache.recall(ACCOUNT, "", tick.now, tick.ledger.read_account)


def tidy(tick: Tick) -> None:
    """Move finished rows to the history, and drop what nothing remembers any more."""
    units = [*_old_workers(tick), *_old_launches(tick), *_old_pools(tick), *_old_days(tick)]
    for unit in units[:_ROWS_AT_ONCE]:
        tick.journal.note(*unit)


def _old_workers(tick: Tick) -> list[tuple[Write, ...]]:
    return [
        tick.ledger.move_to_history(rows.worker_sort(w.instance_id), w, now=tick.now)
        for w in tick.view.workers.values()
        if w.ended_at is not None and _is_past(w.ended_at, tick.now)
    ]


def _old_launches(tick: Tick) -> list[tuple[Write, ...]]:
    used = {w.launch_id for w in tick.workers.values()}
    return [
        (
            *tick.ledger.move_to_history(rows.launch_sort(x.launch_id), x, now=tick.now),
            *_give_back(x),
        )
        for x in tick.view.launches.values()
        if x.state is not LaunchState.INTENDED
        and x.launch_id not in used
        and _is_past(x.intended_at, tick.now)
    ]


def _give_back(launch: Launch) -> tuple[Write, ...]:
    """Return the release of what a launch had set aside and its workers never cost."""
    if not launch.reserved_usd:
        return ()
    return (add_to_budget(launch.intended_at, {"committed": -launch.reserved_usd}),)


def _old_pools(tick: Tick) -> list[tuple[Write, ...]]:
    forgotten_after = tick.policy.unavailable_at_most
    return [
        (tick.ledger.delete(rows.unavailable_sort(u.pool)),)
        for u in tick.view.unavailable.values()
        if tick.now - u.until > forgotten_after and tick.unavailable.get(u.pool) == u
    ]


def _old_days(tick: Tick) -> list[tuple[Write, ...]]:
    kept = sorted(tick.view.spend)[-_DAYS_KEPT:]
    return [
        tick.ledger.move_to_history(f"{rows.SPEND}{day}", row, now=tick.now)
        for day, row in tick.view.spend.items()
        if day not in kept
    ]


def _is_past(at: datetime, now: datetime) -> bool:
    return now - at > _SHOWN_FOR
