"""Stop launching in a region after three instances in a row that were of no use there.

They never checked in, or ended without a job though work waited, or ended since all their jobs had
failed: each is counted apart, and forgotten by what shows the contrary.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Literal

from spindown.app.port import When
from spindown.app.reconcile.launch.outcome import ADOPTED, mark_unavailable
from spindown.app.reconcile.tick import Tick
from spindown.contract import row as rows
from spindown.contract.codec import replace_fields
from spindown.contract.row import BreakerRow
from spindown.domain.fleet import Worker
from spindown.domain.learning import check_in_within
from spindown.domain.reaping import (
    could_check_in,
    has_failed_all,
    has_left_work,
    has_missed_check_in,
    is_fault_of_image,
    known_fault,
)
from spindown.domain.reason import NO_REASON, Reason, ReasonCode

#: Instances of no use in a row on one image, from which launching stops.
STRIKES = 3
#: Then one launch is tried again, unless the image has changed before.
_BREAKER_FOR = timedelta(hours=1)

#: What an instance of no use is counted as: a field of BreakerRow.
Strike = Literal["strikes", "unclaimed", "failed"]
_STRIKES: Mapping[Strike, ReasonCode] = {
    "strikes": ReasonCode.STRIKES_SILENT,
    "unclaimed": ReasonCode.STRIKES_UNCLAIMED,
    "failed": ReasonCode.STRIKES_FAILED,
}


def count_failures(tick: Tick) -> None:
    """Count once each instance that has ended and was of no use."""
    before, done = tick.view.backlog, _items_done(tick)
    for region, known in list(tick.breakers.items()):
        # Somebody takes jobs on this code.
        if before.claims != before.claims_seen:
            _forget(tick, region, "unclaimed")
        # Somebody does items of them.
        if done > known.items_done:
            _forget(tick, region, "failed")
        elif done < known.items_done:
            # A day has gone to history, with all that was done in it.
            tick.set_breaker(region, replace_fields(known, {"items_done": done}))
    for worker in list(tick.workers.values()):
        if worker.miss_counted:
            continue
        if has_missed_check_in(worker):
            _count_miss(tick, worker)
        elif has_left_work(worker, tick.seen.backlog_since):
            _note_counted(tick, worker)
            _strike(tick, worker, "unclaimed")
        elif has_failed_all(worker):
            _note_counted(tick, worker)
            _strike(tick, worker, "failed")


def count_silence(tick: Tick, worker: Worker) -> None:
    """Count that a worker was condemned which never checked in."""
    if _could_check_in(tick, worker):
        mark_unavailable(tick, worker.pool, Reason(ReasonCode.POOL_NEVER_CHECKED_IN, {"ended": ""}))
        _strike(tick, worker, "strikes")


def forget_silence(tick: Tick, region: str) -> None:
    """Forget who never checked in, since an instance has; that it is of use is yet to be seen."""
    _forget(tick, region, "strikes")


def forget_other_images(tick: Tick) -> None:
    """Close the breakers that a deploy has fixed: whoever reads their rows takes them as open."""
    for region, known in list(tick.breakers.items()):
        image = tick.image(region)
        is_known = region in tick.settings.outposts
        if is_known and known.open_until is not None and known.image != image:
            tick.set_breaker(region, BreakerRow(image=image))


def _count_miss(tick: Tick, worker: Worker) -> None:
    """Count once that an instance ended by itself before it checked in."""
    _note_counted(tick, worker)
    if not _could_check_in(tick, worker):
        return
    ended = {"ended": worker.reason.code.value, **worker.reason.about}
    mark_unavailable(tick, worker.pool, Reason(ReasonCode.POOL_NEVER_CHECKED_IN, ended))
    if is_fault_of_image(worker):
        _strike(tick, worker, "strikes")


def _note_counted(tick: Tick, worker: Worker) -> None:
    sort = rows.worker_sort(worker.instance_id)
    tick.journal.note(tick.ledger.change(sort, {"miss_counted": True}, when=When(exists=True)))


def _could_check_in(tick: Tick, worker: Worker) -> bool:
    """Tell whether it had a row all the time, and the ledger was there for long enough."""
    launch = tick.launch_of(worker)
    if launch is not None and launch.reason.code in ADOPTED:
        return False
    return could_check_in(
        worker.launched_at,
        worker.ended_at or tick.now,
        tick.seen.watched_since,
        check_in_within(tick.knowledge, tick.policy),
    )


def _items_done(tick: Tick) -> int:
    return sum(day.items for day in tick.view.spend.values())


def _strike(tick: Tick, worker: Worker, what: Strike) -> None:
    region = worker.region
    known = tick.breaker(region)
    count = _counts(known)[what] + 1
    tick.tally.check_ins_missed += what == "strikes"
    changes = {what: count, "image": tick.image(region), "items_done": _items_done(tick)}
    counted = replace_fields(known, changes)
    if count >= STRIKES:
        reason = _reason_to_stop(worker, what, count)
        counted = replace(counted, open_until=tick.now + _BREAKER_FOR, reason=reason)
    tick.set_breaker(region, counted)


def _reason_to_stop(worker: Worker, what: Strike, count: int) -> Reason:
    # That its jobs had failed is what happened; why they did is in their logs.
    fault = NO_REASON if what == "failed" else known_fault(worker)
    about: dict[str, str | int | float] = {
        **fault.about,
        "count": count,
        "instance_id": worker.instance_id,
        "fault_code": fault.code.value,
    }
    return Reason(_STRIKES[what], about)


def _forget(tick: Tick, region: str, what: Strike) -> None:
    """Count one kind anew; whatever else stops launches, an account error too, goes on."""
    known = tick.breaker(region)
    counts = _counts(known)
    mine = counts.pop(what)
    if mine >= STRIKES > max(counts.values()) and _is_of_instances(known):
        tick.set_breaker(
            region, replace_fields(known, {what: 0, "open_until": None, "reason": NO_REASON})
        )
    elif mine:
        tick.set_breaker(region, replace_fields(known, {what: 0}))


def _is_of_instances(breaker: BreakerRow) -> bool:
    """Tell whether instances of no use have stopped launches, and not an account error."""
    return breaker.reason.code in _STRIKES.values()


def _counts(breaker: BreakerRow) -> dict[Strike, int]:
    return {
        "strikes": breaker.strikes,
        "unclaimed": breaker.unclaimed,
        "failed": breaker.failed,
    }
