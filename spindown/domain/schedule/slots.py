"""The slots that there are: when each is free, what it does, and how soon work is done on them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from spindown.domain.fleet import Launch, Lease, Worker, WorkerState
from spindown.domain.learning import (
    Knowledge,
    boot_p50,
    check_in_within,
    items_per_job,
    usual_slots,
    worker_throughput,
)
from spindown.domain.offer import Processor
from spindown.domain.policy import Dispatch, Policy
from spindown.domain.value_range import span

_HOUR = timedelta(hours=1)
#: How long a launch without an answer counts against ``max_workers`` while ticks ask EC2 for it. By
#: then its workers have checked in late, or their own timers have ended them. If it counted longer,
#: a region that never answers again would keep all others from launching.
_UNANSWERED_FOR = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotAhead:
    """One slot of the fleet, and when it takes its next job."""

    #: Time until then: the rest of its boot or of its present job.
    free_in: timedelta
    items_per_hour: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What the fleet will do with the backlog by itself. Booting workers and intents count."""

    #: Throughput; each slot counts with the share of the window that is left to it.
    items_per_hour: float
    #: Slots that will take a job without waiting for another to end.
    free_slots: int
    #: Workers that count against ``max_workers``, open intents included.
    workers: int
    #: Time until the first busy slot is free; None: no slot is busy.
    next_free: timedelta | None
    #: Every slot that takes jobs.
    slots: tuple[SlotAhead, ...] = ()
    #: Those of ``workers`` that take no such jobs, since they are of other shapes.
    of_other_shapes: int = 0


def window(knowledge: Knowledge, policy: Policy) -> timedelta:
    """Return the working time in which the backlog is planned to be worked off.

    ``max(drain_within - boot, boot)``. Without the second term, a ``drain_within`` of about one
    boot would leave workers no time, and ask for any number of them.
    """
    boot = boot_p50(knowledge, policy)
    return max(policy.drain_within - boot, boot, timedelta(seconds=1))


def capacity(
    *,
    workers: Sequence[Worker],
    leases: Sequence[Lease] = (),
    launches: Sequence[Launch] = (),
    knowledge: Knowledge,
    policy: Policy,
    now: datetime,
    watched_since: datetime | None = None,
) -> Capacity:
    """Return what is launching, booting, idle or busy, less what is leaving.

    A worker that EC2 takes away does not count at all. One that drains, or says itself that it is
    taken away, takes no new job, but counts against ``max_workers`` until it has ended.

    Each slot counts with a = (window + boot - x) / window, at most 1. x is the time until it can
    take a job: the rest of its boot or of its present job. A worker that was launched just now has
    x = boot and counts in full; otherwise the next tick would launch it again. A machine that was
    launched for one job counts until it has it. ``watched_since`` is as ``places`` has it.
    """
    boot, span = boot_p50(knowledge, policy), window(knowledge, policy)
    total, free, busy_ends = 0.0, 0, []
    slots: list[SlotAhead] = []
    serving = [w for w in workers if w.takes_jobs]
    speeds, usual = _slot_speeds(serving, knowledge, policy), items_per_job(knowledge, policy)
    held = _by_instance(leases, now)
    for worker in serving:
        per_slot = speeds[worker.processor, worker.slots]
        rests = _rests(worker, held.get(worker.instance_id, []), per_slot, usual, policy, now)
        if worker.state is WorkerState.BOOTING:
            rests = [max(boot - (now - worker.launched_at), timedelta(0))] * worker.slots
            free += worker.slots
        else:
            free += worker.slots - len(rests)
            busy = [] if policy.dispatch is Dispatch.DEDICATED else rests
            busy_ends += busy
            rests = busy + [timedelta(0)] * (worker.slots - len(rests))
        total += sum(per_slot * _share(rest, boot, span) for rest in rests)
        slots += [SlotAhead(free_in=rest, items_per_hour=per_slot) for rest in rests]
    for launch in _pending(launches, check_in_within(knowledge, policy), now):
        rest = max(boot - (now - launch.intended_at), timedelta(0))
        total += launch.count * launch.items_per_hour
        free += launch.count * launch.slots
        coming = SlotAhead(free_in=rest, items_per_hour=launch.items_per_hour / launch.slots)
        slots += [coming] * (launch.count * launch.slots)
    return Capacity(
        items_per_hour=total,
        free_slots=free,
        workers=places(workers, launches, now, watched_since),
        next_free=min(busy_ends, default=None),
        slots=tuple(slots),
    )


def places(
    workers: Sequence[Worker],
    launches: Sequence[Launch],
    now: datetime,
    watched_since: datetime | None = None,
) -> int:
    """Return the places of ``max_workers`` that are taken, by launches without an answer too.

    ``watched_since`` tells since when ticks have come without a break (``termination.watch_from``):
    before that nobody could ask EC2 for a launch. None: always.
    """
    asked = sum(launch.count for launch in _unanswered(launches, now, watched_since))
    return sum(worker.holds_place for worker in workers) + asked


def rests_in_hand(
    workers: Sequence[Worker],
    leases: Sequence[Lease],
    *,
    knowledge: Knowledge,
    policy: Policy,
    now: datetime,
) -> dict[str, list[timedelta]]:
    """Return instance id -> the time that each of a worker's jobs in hand still needs."""
    speeds, usual = _slot_speeds(workers, knowledge, policy), items_per_job(knowledge, policy)
    held = _by_instance(leases, now)
    return {
        worker.instance_id: _rests(
            worker,
            held.get(worker.instance_id, []),
            speeds[worker.processor, worker.slots],
            usual,
            policy,
            now,
        )
        for worker in workers
    }


def headroom_slots(
    present: Capacity,
    *,
    knowledge: Knowledge,
    policy: Policy,
    headroom_per_hour: float | None = None,
    price_per_hour: float | None = None,
) -> int:
    """Return how many slots of the usual kind the ceilings still allow to launch.

    Worked: 10 workers at most, 3 are there, 1 USD/h is left at 0.23 each: 4 workers with one slot
    each.

    Args:
        present: what ``capacity`` found.
        knowledge: slots of a worker.
        policy: ``max_workers``, and what a worker costs at most.
        headroom_per_hour: USD per hour that the fleet may grow by; None: no such ceiling.
        price_per_hour: USD per hour of a worker lately; None: there was none.
    """
    workers = max(policy.max_workers - present.workers, 0)
    if headroom_per_hour is not None:
        price = price_per_hour or policy.max_price_per_hour
        workers = min(workers, math.floor(headroom_per_hour / price))
    return workers * usual_slots(knowledge)


def unanswered_dollars(
    launches: Sequence[Launch], now: datetime, watched_since: datetime | None = None
) -> float:
    """Return the USD per hour that launches without an answer cost, as ``places`` counts them."""
    return sum(
        launch.count * max((each.price_per_hour for each in launch.offered.values()), default=0.0)
        for launch in _unanswered(launches, now, watched_since)
    )


def _slot_speeds(
    workers: Sequence[Worker], knowledge: Knowledge, policy: Policy
) -> dict[tuple[Processor, int], float]:
    """Return the items an hour of one slot of each kind of worker in the fleet."""
    kinds = {(worker.processor, worker.slots): worker for worker in workers}
    return {
        kind: worker_throughput(knowledge, one, policy).items_per_hour / one.slots
        for kind, one in kinds.items()
    }


def _by_instance(leases: Sequence[Lease], now: datetime) -> dict[str, list[Lease]]:
    held: dict[str, list[Lease]] = {}
    for lease in leases:
        if lease.deadline > now:
            held.setdefault(lease.instance_id, []).append(lease)
    return held


def _share(rest: timedelta, boot: timedelta, span: timedelta) -> float:
    return min(max((span + boot - rest) / span, 0.0), 1.0)


def _rests(
    worker: Worker,
    leases: Sequence[Lease],
    per_slot: float,
    usual: float,
    policy: Policy,
    now: datetime,
) -> list[timedelta]:
    """Return the time that each busy slot still needs; ``usual`` is the items of a job."""
    rests = []
    for lease in leases[: worker.slots]:
        # A job of unknown size is assumed to be half done.
        if lease.items:
            rests.append(_rest(lease, lease.items, per_slot, policy, now))
        else:
            rests.append(span(usual / 2 / per_slot))
    unknown = min(worker.busy_slots, worker.slots) - len(rests)
    return rests + [span(usual / 2 / per_slot)] * max(0, unknown)


def _rest(lease: Lease, items: int, usual: float, policy: Policy, now: datetime) -> timedelta:
    """Return the time that a running job still needs, by its pace up to its last heartbeat.

    Items that were done before it was claimed say nothing about its pace. Until it has done
    one itself, its first item is assumed to need as long again as it is late by now. Otherwise a
    job of one long item would always seem to be about to end. Worked: an item that usually takes
    1 min and has taken 10 is 9 late, so it needs 9 more.
    """
    beat_at = min(now, max(lease.deadline - policy.lease_duration, lease.claimed_at))
    hours, left = (beat_at - lease.claimed_at) / _HOUR, items - lease.items_done
    done = lease.items_done - lease.first_item
    if left <= 0:
        rest = 0.0
    elif done > 0 and hours > 0.0:
        rest = left / min(usual, done / hours)
    else:
        rest = abs(1.0 / usual - hours) + (left - 1) / usual
    return max(span(rest) - (now - beat_at), timedelta(0))


def _unanswered(
    launches: Sequence[Launch], now: datetime, watched_since: datetime | None
) -> list[Launch]:
    """Return the intents of unknown outcome that may still have given machines."""
    is_new_watch = watched_since is not None and now - watched_since <= _UNANSWERED_FOR
    return _pending(launches, timedelta.max if is_new_watch else _UNANSWERED_FOR, now)


def _pending(launches: Sequence[Launch], within: timedelta, now: datetime) -> list[Launch]:
    """Return the intents of unknown outcome that are not older than ``within``."""
    return [launch for launch in launches if launch.is_open and now - launch.intended_at <= within]


def slot_times(capacity: Capacity, items: float) -> list[tuple[float, float]]:
    """Return when each slot is free, and how long it takes for a job, both in seconds."""
    return [
        (slot.free_in.total_seconds(), 3600.0 * items / slot.items_per_hour)
        for slot in capacity.slots
        if slot.items_per_hour > 0.0
    ]


def jobs_started(left: float, takes: float) -> int:
    """Return how many jobs a slot starts in the seconds that are left to it.

    Worked: 200 s are left and a job takes 80 s: three, after 0, 80 and 160 s.
    """
    return 0 if left < 0.0 else math.floor(left / takes) + 1


def done_within(work: timedelta, longest: timedelta, slots: int) -> timedelta:
    """Return in what time jobs are done at the latest, in whatever order the slots take them.

    W / m + (1 - 1 / m) p: the work W of all jobs, the longest of them p, m slots (Graham, 1969).
    Worked: four jobs of 3 h on two slots: 7 h 30 min.
    """
    return work / slots + (1.0 - 1.0 / slots) * longest
