"""Charge what the fleet has cost since the last tick."""

from collections.abc import Sequence
from dataclasses import replace

from spindown.app.offers import price_now
from spindown.app.port import When, Write
from spindown.app.reconcile.breaker import forget_silence
from spindown.app.reconcile.journal import Bundle
from spindown.app.reconcile.launch.outcome import ADOPTED
from spindown.app.reconcile.tick import ACCOUNT, Tick
from spindown.app.reconcile.track import add_sample
from spindown.app.spend import Charge, charge, charge_apart, charge_together, mark_charged
from spindown.contract import row as rows
from spindown.contract.codec import replace_fields
from spindown.contract.row import SpendRow
from spindown.domain.fleet import Worker, WorkerState
from spindown.error import SpindownError

#: Workers charged by their own rows in one bundle: each brings three rows at the most.
_APART_AT_ONCE = 25
#: Launches that a charge of the whole fleet gives reservations back to, and pools that it may come
#: from: it must fit into one transaction. What other launches have over is given back when they
#: are cleared away (``tidy``); workers of more pools are charged by their own rows.
_LAUNCHES_AT_ONCE = 40
_POOLS_AT_ONCE = 50


def charge_fleet(tick: Tick) -> None:
    """Charge every worker that bills up to now; learn from those that have just checked in."""
    apart: list[tuple[Write, Charge]] = []
    together: list[Charge] = []
    is_whole = _may_charge_together(tick)
    releasing: set[str] = set()
    for worker in list(tick.workers.values()):
        if worker.state is WorkerState.ENDED:
            continue
        _learn_boot(tick, worker)
        if tick.now <= (worker.accrued_until or worker.launched_at):
            continue
        with_fleet = is_whole and worker.accrued_until is not None
        launch = tick.launch_of(worker)
        if with_fleet and launch is not None and launch.reserved_usd > 0.0:
            if launch.launch_id in releasing or len(releasing) < _LAUNCHES_AT_ONCE:
                releasing.add(launch.launch_id)
            else:
                launch = None
        due = charge(worker, launch, until=tick.now, ledger=tick.ledger)
        if with_fleet:
            together.append(due)
        else:
            apart.append((mark_charged(worker, due.until, tick.ledger), due))
        if launch is not None and due.released_usd:
            left = launch.reserved_usd - due.released_usd
            tick.launches[launch.launch_id] = replace_fields(launch, {"reserved_usd": left})
    tick.tally.charged += apart
    for first in range(0, len(apart), _APART_AT_ONCE):
        tick.journal.note_bundle(_bundle(apart[first : first + _APART_AT_ONCE]))
    if together:
        fleet = charge_together(together, tick.seen, until=tick.now, ledger=tick.ledger)
        tick.journal.note(*fleet)
        tick.tally.charged += [(fleet[0], due) for due in together]
    _note_vram(tick)
    _stamp_ends(tick)


def _may_charge_together(tick: Tick) -> bool:
    # A worker whose row cannot be read now would miss what its fleet is charged; and nobody must
    # go on from a mark that cannot be read.
    if tick.view.unreadable_workers or rows.BACKLOG in tick.view.bad_rows:
        return False
    live = (w for w in tick.workers.values() if w.state is not WorkerState.ENDED)
    return len({worker.pool for worker in live}) <= _POOLS_AT_ONCE


def _bundle(charges: Sequence[tuple[Write, Charge]]) -> Bundle:
    return Bundle(
        together=charge_apart(charges),
        apart=lambda: [(mark, *due.writes) for mark, due in charges],
    )


def _stamp_ends(tick: Tick) -> None:
    """Stamp what its pool costs on each worker that has just ended, as its launch did."""
    silent: set[str] = set()
    for worker in list(tick.workers.values()):
        if worker.state is not WorkerState.ENDED or worker.end_price_per_hour is not None:
            continue
        if worker.region in silent:
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
            silent.add(worker.region)
            continue
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
    seen = tick.view.backlog.seen_at or worker.launched_at
    # The last tick has learned it, even if what it charged was not written.
    if checked_in is None or max(worker.accrued_until or seen, seen) > checked_in:
        return
    launch = tick.launch_of(worker)
    # One that was adopted may have waited for its row, or was asked for more than once.
    if launch is None or launch.reason.code not in ADOPTED:
        add_sample(tick, rows.BOOT_RATE, (checked_in - worker.launched_at).total_seconds())
    forget_silence(tick, worker.region)


def watch_month(tick: Tick) -> None:
    """Read what all workloads share now and then while something bills, for its metrics."""
    if tick.account is None and any(w.is_live for w in tick.workers.values()):
        tick.account = tick.ports.cache.recall(ACCOUNT, "", tick.now, tick.ledger.read_account)
