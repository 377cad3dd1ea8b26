"""Look at EC2, at most once a tick and region: what lives, and what is being taken away.

A region in which no row expects anything is asked now and then. One that does not answer hides
the others from nobody: what its rows say is taken to be so.

Events say the same sooner; this is for the event that never came. Two questions take turns,
since each costs a call: are our instances still there, and does a spot request say that EC2 is
taking one away. A tick that launches leaves both out, unless they have been left out for long.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from spindown.app.ending import bound_leases, note_interruption, remember_interruption
from spindown.app.port import InstanceView
from spindown.app.reconcile.launch.adopt import decode_request
from spindown.app.reconcile.launch.outcome import back_off
from spindown.app.reconcile.tick import Tick, deployed_regions
from spindown.contract import tag
from spindown.domain.fleet import LaunchState, Worker, WorkerState
from spindown.domain.interruption import deadline_after
from spindown.domain.offer import CapacityType
from spindown.error import SpindownError, Throttled

T = TypeVar("T")

#: How long launching ticks may leave the look out.
_AT_LATEST = timedelta(minutes=10)
#: How often EC2 is asked for instances that no row knows, while no row expects any.
_ORPHANS_EVERY = timedelta(minutes=15)
#: Ticks come a little early at times.
_EARLY = timedelta(seconds=10)


def look(tick: Tick, *, is_launch_due: bool) -> Sequence[InstanceView] | None:
    """Ask EC2 what is due; return our instances, or None if that was not asked."""
    question = _due(tick, is_launch_due=is_launch_due)
    if question == "reclaims":
        _look_for_reclaims(tick)
    if question != "instances":
        return None
    tick.seen = replace(tick.seen, described_at=tick.now)
    tags = {tag.DEPLOYMENT: tick.deployment.name, tag.WORKLOAD: tick.workload}
    described = each_region(
        tick,
        _regions_to_see(tick),
        lambda region: tick.ports.compute.instances(region=region, tags=tags),
    )
    instances = [instance for found in described.values() for instance in found]
    # Where nothing is deployed any more, nothing runs: the outpost's end saw to that.
    unseen = deployed_regions(tick).difference(described)
    return [*instances, *(assumed(w) for w in tick.workers.values() if w.region in unseen)]


def each_region(tick: Tick, regions: Collection[str], ask: Callable[[str], T]) -> dict[str, T]:
    """Return region -> answer for those that answer; the others are noted.

    Raises:
        SpindownError: none answers.
    """
    answers: dict[str, T] = {}
    refused: dict[str, SpindownError] = {}
    for region in sorted(regions):
        try:
            answers[region] = ask(region)
        except SpindownError as exc:
            refused[region] = exc
            if isinstance(exc, Throttled):
                back_off(tick, region)
    if refused and not answers:
        raise next(iter(refused.values()))
    tick.notes += [f"EC2 in {region} gave no answer: {exc}" for region, exc in refused.items()]
    return answers


def _regions_to_see(tick: Tick) -> frozenset[str]:
    """Return where rows expect something; every so often, all regions."""
    requests = [
        decode_request(launch)
        for launch in tick.launches.values()
        if launch.state is LaunchState.INTENDED
    ]
    expecting = {w.region for w in tick.workers.values() if w.state is not WorkerState.ENDED}
    expecting |= {request.region for request in requests if request is not None}
    expecting &= deployed_regions(tick)
    if expecting and not _is_older(tick.seen.swept_at, _ORPHANS_EVERY, tick.now):
        return frozenset(expecting)
    tick.seen = replace(tick.seen, swept_at=tick.now)
    return frozenset(expecting | tick.settings.outposts.keys())


def assumed(worker: Worker) -> InstanceView:
    """Return a worker's instance as if it were running, for a tick that has not looked."""
    return InstanceView(
        instance_id=worker.instance_id,
        instance_type=worker.instance_type,
        region=worker.region,
        zone=worker.zone,
        capacity_type=worker.capacity_type,
        state="running",
        launched_at=worker.launched_at,
    )


def _due(tick: Tick, *, is_launch_due: bool) -> str:
    """Return the question that has not been asked for longest, or "" if none is due."""
    described = tick.seen.described_at
    if not _expected(tick):
        return "instances" if _is_older(described, _ORPHANS_EVERY, tick.now) else ""
    # What nobody has asked yet counts from the first launch that it could be about.
    begun = min((w.launched_at for w in tick.workers.values()), default=tick.now)
    asked = {"instances": max(described or begun, begun)}
    if _watched(tick):
        asked["reclaims"] = max(tick.seen.reclaims_seen_at or begun, begun)
    question, at = min(asked.items(), key=lambda item: item[1])
    if tick.now - asked["instances"] >= _AT_LATEST:
        # After ticks that did not come: what has ended meanwhile must be charged no further.
        question, at = "instances", asked["instances"]
    least = _AT_LATEST if is_launch_due else tick.policy.tick - _EARLY
    return question if tick.now - at >= least else ""


def _expected(tick: Tick) -> bool:
    return any(w.state is not WorkerState.ENDED for w in tick.workers.values()) or any(
        x.state is LaunchState.INTENDED for x in tick.launches.values()
    )


def _watched(tick: Tick) -> list[Worker]:
    return [
        w
        for w in tick.workers.values()
        if w.is_live and w.capacity_type is CapacityType.SPOT and not w.is_interrupting
    ]


def _is_older(at: datetime | None, least: timedelta, now: datetime) -> bool:
    return at is None or now - at >= least


def _look_for_reclaims(tick: Tick) -> None:
    tick.seen = replace(tick.seen, reclaims_seen_at=tick.now)
    ids: dict[str, list[str]] = {}
    for worker in _watched(tick):
        ids.setdefault(worker.region, []).append(worker.instance_id)
    reclaimed = each_region(
        tick,
        ids,
        lambda region: tick.ports.compute.reclaimed(region=region, instance_ids=ids[region]),
    )
    for instance_id in sorted(frozenset().union(*reclaimed.values())):
        _note_reclaim(tick, tick.workers[instance_id])


def _note_reclaim(tick: Tick, worker: Worker) -> None:
    deadline = deadline_after(tick.now)
    unit = note_interruption(
        worker,
        deadline,
        unavailable=tick.unavailable.get(worker.pool),
        now=tick.now,
        policy=tick.policy,
        ledger=tick.ledger,
    )
    if tick.journal.commit(*unit):
        tick.tally.interruptions += 1
        # The launch of this very tick must not ask the same pool again.
        known = tick.unavailable.get(worker.pool)
        tick.unavailable[worker.pool] = remember_interruption(worker, known, tick.now, tick.policy)
        tick.notes.append(f"{worker.instance_id}: its spot request says that EC2 takes it away")
        bound_leases(tick.leases_of(worker.instance_id), deadline, tick.ledger)
    tick.workers[worker.instance_id] = replace(
        worker, interrupted_at=deadline, interruption_counted=True
    )
