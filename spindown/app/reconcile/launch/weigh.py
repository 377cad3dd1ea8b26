"""Decide how many workers are missing, by the queue and the ledger alone."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from spindown.app.reconcile.deadline import look_ahead
from spindown.app.reconcile.launch.closure import closed_regions
from spindown.app.reconcile.tick import Tick
from spindown.app.reconcile.track import waiting_of
from spindown.domain.deadline import Course, Outlook, hurry
from spindown.domain.fleet import Backlog
from spindown.domain.learning import usual_throughput
from spindown.domain.offer import CapacityType
from spindown.domain.ranking import CandidateList, Closure, Demand
from spindown.domain.sizing import (
    Capacity,
    Patience,
    Sizing,
    Waiting,
    ask_patiently,
    capacity,
    missing,
    patience,
    size,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How many, of what, and why not now."""

    demand: Demand
    capacity: Capacity
    #: None: as many messages are visible as make a launch due at once.
    patience: Patience | None
    sizing: Sizing
    #: What deadlines ask for; None: there are none, or nothing is known of how long work takes.
    outlook: Outlook | None = None
    #: What of the ladder is open, whatever has waited how long; None: what the wait has opened.
    opens: Course | CapacityType | None = None
    #: Workers that may be bought on demand; None: as many as are wanted.
    on_demand_at_most: int | None = None
    #: Whether it is for workers that take over from others, and what an item may cost on them in
    #: USD; None: whatever it costs.
    is_relief: bool = False
    item_at_most: float | None = None
    #: None: prices were not looked at, since no launch is due.
    candidates: CandidateList | None = None
    #: Why no launch may happen although one is due; "": it may.
    stopped: str = ""
    #: When the stop, the hold or the dry spell may end.
    retry_at: datetime | None = None

    @property
    def is_due(self) -> bool:
        """Tell whether workers are wanted now, whatever may prevent them."""
        return self.sizing.unbounded > 0

    @property
    def is_open(self) -> bool:
        """Tell whether workers are wanted now and nothing known prevents them."""
        return self.is_due and not self.stopped


def weigh(tick: Tick) -> Choice:
    """Size the fleet by the queue and the ledger alone."""
    work = waiting_work(tick)
    present = _present(tick)
    demand = missing(backlog=work, capacity=present, knowledge=tick.knowledge, policy=tick.policy)
    patient = _patience(tick, work, present, demand)
    if patient is not None:
        demand = ask_patiently(demand, patient, tick.knowledge, tick.policy)
    outlook = look_ahead(tick, work)
    short = 0 if outlook is None else min(outlook.urgent, work.visible) - present.free_slots
    if short > 0:
        usual = usual_throughput(tick.knowledge, tick.policy)
        demand, patient = hurry(demand, patient, short, usual=usual)
    weighed = _sized(tick, demand, present, patient)
    opens = None if outlook is None else outlook.course
    return replace(
        weighed,
        outlook=outlook,
        # What is urgent has its slot already, or else is all that on demand is bought for.
        opens=Course.SPOT if opens and short <= 0 else opens,
        on_demand_at_most=short if short > 0 else None,
    )


def weigh_demand(
    tick: Tick,
    demand: Demand,
    *,
    opens: CapacityType,
    outlook: Outlook | None,
    item_at_most: float | None,
) -> Choice:
    """Size the fleet for a demand of its own, of one capacity type: workers that take over."""
    return replace(
        _sized(tick, demand, _present(tick), None),
        opens=opens,
        outlook=outlook,
        is_relief=True,
        item_at_most=item_at_most,
    )


def _present(tick: Tick) -> Capacity:
    return capacity(
        workers=list(tick.workers.values()),
        leases=tick.leases,
        launches=list(tick.launches.values()),
        knowledge=tick.knowledge,
        policy=tick.policy,
        now=tick.now,
    )


def _sized(tick: Tick, demand: Demand, present: Capacity, patient: Patience | None) -> Choice:
    sizing = size(
        backlog=waiting_work(tick),
        backlog_since=tick.seen.backlog_since,
        demand=demand,
        capacity=present,
        best=None,
        knowledge=tick.knowledge,
        policy=tick.policy,
        now=tick.now,
        patience=patient,
    )
    stopped, until = _stop(tick, present) if sizing.unbounded > 0 else ("", None)
    return Choice(
        demand=demand,
        capacity=present,
        patience=patient,
        sizing=sizing,
        stopped=stopped,
        retry_at=until or sizing.hold_until,
    )


def _patience(tick: Tick, work: Backlog, present: Capacity, demand: Demand) -> Patience | None:
    """Return what can wait, while fewer messages are visible than make a launch due at once.

    From that many on the backlog is sized by ``drain_within``, or by the promise of a start where
    that asks for more: what is on its way for the one may be far too late for the other.
    """
    waiting = waiting_of(tick.seen)
    returning = work.visible - sum(group.jobs for group in waiting)
    if returning > 0:
        waiting = (*waiting, Waiting(since=tick.now, jobs=returning))
    patient = patience(
        waiting,
        present,
        knowledge=tick.knowledge,
        policy=tick.policy,
        now=tick.now,
        margin=timedelta(seconds=tick.seen.margin or 0.0),
    )
    if work.visible < tick.policy.scale_up_threshold:
        return patient
    promised = patient.slots * patient.items_per_hour
    return patient if promised > demand.need_items_per_hour else None


def waiting_work(tick: Tick) -> Backlog:
    """Return the queue, with what interrupted workers hold counted as visible already.

    Their jobs come back within two minutes, less than any boot takes: the replacement is due
    at the notice, not at the deadline.
    """
    leaving = {w.instance_id for w in tick.workers.values() if w.is_interrupting and w.is_live}
    if not leaving:
        return tick.backlog
    soon = sum(lease.instance_id in leaving for lease in tick.leases)
    return replace(
        tick.backlog,
        visible=tick.backlog.visible + soon,
        in_flight=max(0, tick.backlog.in_flight - soon),
    )


def _stop(tick: Tick, present: Capacity) -> tuple[str, datetime | None]:
    if present.workers >= tick.policy.max_workers:
        return f"max_workers is {tick.policy.max_workers}", None
    closed = closed_regions(tick)
    if closed.keys() >= tick.settings.outposts.keys():
        first = next(iter(closed.values()), Closure(reason="no outpost can be read"))
        return first.reason, min((c.until for c in closed.values() if c.until), default=None)
    return "", None
