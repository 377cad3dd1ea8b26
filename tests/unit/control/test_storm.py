"""EC2 takes a whole fleet at once: few round trips, in an order that a crash does not harm."""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from spindown.contract.event import InstanceEvent, InterruptionWarning, StateChange
from spindown.contract.row import (
    LOCK,
    LOCK_LEASE,
    lease_sort_key,
    machine_sort_key,
    pool_sort_key,
    worker_sort_key,
)
from spindown.control.instance_event import react
from spindown.domain.fleet import WorkerState
from spindown.error import SpindownError
from spindown.memory import PortCall
from spindown.port import Write
from tests.builders import minutes
from tests.control import REGION
from tests.storm import Storm

#: A round trip to AWS within a region, and what a storm may take.
TRIP = timedelta(milliseconds=15)
LIMIT = timedelta(seconds=10)
#: More than one transaction frees.
SOME = 35


class Crashed(BaseException):
    """The process is gone: no code of ours may catch it."""


def all_is_booked(world: Storm) -> None:
    """Check that every instance is booked as reclaimed once, and every job waits again."""
    view = world.view()
    gone = [w for w in view.workers.values() if w.state is WorkerState.ENDED]
    assert len(gone) == world.size
    assert view.leases == ()
    assert len(view.requeued_jobs) == world.size
    assert world.queue.backlog().in_flight == 0
    assert sum(day.interruptions for day in view.spend.values()) == world.size
    counted = sum(view.rates[pool_sort_key(pool)].count for pool in {w.pool for w in gone})
    assert counted == world.size


def test_a_tick_that_finds_1000_gone_makes_few_round_trips() -> None:
    world = Storm()
    world.take_all(timedelta(0))

    world.tick(minutes(1))

    all_is_booked(world)
    assert world.trips * TRIP < LIMIT / 2


def test_a_tick_that_sees_1000_notices_makes_few_round_trips() -> None:
    world = Storm()
    # EC2 was asked for the instances a moment ago: spot requests are what it is asked for next.
    world.tick()
    world.trips = 0
    world.take_all(minutes(2))

    world.tick(minutes(1))

    view = world.view()
    assert sum(w.is_interrupting for w in view.workers.values()) == world.size
    assert all(x.not_after <= world.now + minutes(2) for x in view.leases)
    assert world.trips * TRIP < LIMIT / 2


def test_workers_that_write_meanwhile_delay_only_themselves() -> None:
    world = Storm(size=200)
    world.take_all(timedelta(0))
    late = [w.instance_id for w in world.workers()][::40]

    def write() -> None:
        for instance_id in late:
            world.change(instance_id, heartbeat_at=world.now)

    world.just_before("transact", write)
    decision = world.tick(minutes(1))

    assert len(decision.ended) == world.size - len(late)
    assert {w.instance_id for w in world.workers(WorkerState.BUSY)} == set(late)
    assert {x.instance_id for x in world.view().leases} == set(late)
    # Each end writes the row that tells of the worker and the one that decides.
    assert world.trips < 80
    world.run(2)
    all_is_booked(world)


def test_leases_that_changed_meanwhile_keep_nobody_else_s() -> None:
    world = Storm(size=SOME)
    world.take_all(timedelta(0))
    taken = world.view().leases[3]

    def claim() -> None:
        world.put(lease_sort_key(taken.instance_id, taken.slot), receipt_handle="newer")

    def interfere(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "transact" and world.workers(WorkerState.ENDED):
            world.interfere = None
            claim()
        return proceed()

    world.interfere = interfere
    world.tick(minutes(1))

    assert [x.job_id for x in world.view().leases] == [taken.job_id]
    assert world.queue.backlog().in_flight == 1


def notices(world: Storm) -> list[InterruptionWarning]:
    return [
        InterruptionWarning(instance_id=w.instance_id, region=REGION, at=world.now)
        for w in world.workers()
    ]


def ends(world: Storm) -> list[StateChange]:
    return [
        StateChange(instance_id=w.instance_id, region=REGION, at=world.now, state="shutting-down")
        for w in world.workers()
    ]


@pytest.mark.parametrize("make", [notices, ends], ids=["notices", "ends"])
def test_an_event_of_a_storm_waits_for_nobody(
    make: Callable[[Storm], list[InstanceEvent]],
) -> None:
    world = Storm(size=SOME)
    world.take_all(minutes(2) if make is notices else timedelta(0))
    world.clock.advance(timedelta(seconds=1))
    world.put(LOCK, until=world.now + minutes(1), holder="tick", fence=99)
    written: list[Write] = []

    def watch(call: PortCall, proceed: Callable[[], Any]) -> Any:
        # No settings, no EC2, no queue: a thousand at once would be throttled.
        assert call.port == "table"
        if call.method in {"write", "transact"}:
            written.extend(call.args[0] if call.method == "transact" else call.args)
        return proceed()

    for event in make(world):
        world.interfere, world.trips = watch, 0
        written.clear()
        react(event, world.ports, holder=f"event-{event.instance_id}")
        own = {sort(event.instance_id) for sort in (machine_sort_key, worker_sort_key)}
        own |= {lease_sort_key(event.instance_id, 0), LOCK}
        assert {write.key.sort for write in written} <= own
        assert world.trips <= 8

    world.interfere = None
    world.trips = 0
    world.tick(minutes(2))
    assert world.trips < 40
    world.run(3)
    all_is_booked(world)


@pytest.mark.parametrize("make", [notices, ends], ids=["notices", "ends"])
def test_1000_events_are_booked_by_one_tick(make: Callable[[Storm], list[InstanceEvent]]) -> None:
    world = Storm()
    world.take_all(minutes(2) if make is notices else timedelta(0))
    events = make(world)
    # The first one's tick is under way while all the others come.
    world.put(LOCK, until=world.now + minutes(1), holder="tick", fence=99)
    for event in events:
        react(event, world.ports, holder="event")
    world.trips = 0

    world.tick(minutes(1))

    assert world.trips * TRIP < LIMIT / 2
    view = world.view()
    assert sum(day.interruptions for day in view.spend.values()) == world.size
    if make is ends:
        all_is_booked(world)


def trips_of_a_storm() -> int:
    world = Storm(size=SOME)
    world.take_all(timedelta(0))
    before = world.calls.total()
    world.tick(minutes(1))
    return world.calls.total() - before


@pytest.mark.parametrize("after", [False, True], ids=["before-its-effect", "after-its-effect"])
@pytest.mark.parametrize("number", range(1, trips_of_a_storm() + 1))
def test_a_crash_at_any_call_of_a_storm_is_made_good(number: int, after: bool) -> None:
    world = Storm(size=SOME)
    world.take_all(timedelta(0))
    made = [0]

    def interfere(call: PortCall, proceed: Callable[[], Any]) -> Any:
        made[0] += 1
        if made[0] != number:
            return proceed()
        if after:
            with suppress(SpindownError):
                proceed()
        raise Crashed

    world.interfere = interfere
    with pytest.raises(Crashed):
        world.tick(minutes(1))
    world.interfere = None
    world.tick(LOCK_LEASE)
    # The message of a lease that was freed is hidden until its visibility ends at the latest.
    world.run(2)

    all_is_booked(world)
