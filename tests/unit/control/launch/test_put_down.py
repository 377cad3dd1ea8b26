"""A job that had started once waits for spot by the ladder; one that has not opens it in time."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from spindown.contract.codec import encode
from spindown.contract.decision import Decision
from spindown.contract.event import StateChange
from spindown.contract.row import lease_sort_key, requeued_sort_key, worker_sort_key
from spindown.control.instance_event import react
from spindown.domain.fleet import Lease, WorkerState
from spindown.domain.offer import CapacityType
from spindown.domain.policy import Rung
from spindown.domain.reason import ReasonCode
from tests.builders import minutes
from tests.control import REGION, STRICT, ControlWorld, codes, every_spot_pool, pools, with_policy

#: Spot alone for 20 minutes, under a promise of 12: with a margin of 1.2, a boot of 2 and a tick,
#: the ladder opens 7.8 minutes after a job has come.
_LADDER = (
    Rung(after=minutes(0), capacity_types=frozenset({CapacityType.SPOT})),
    Rung(after=minutes(20), capacity_types=frozenset(CapacityType)),
)


def a_world_without_spot(start_within: float = 12.0) -> tuple[ControlWorld, Lease]:
    """Return a world in which a job has run for a while on what is now the last spot there was."""
    world = with_policy(**STRICT, start_within=minutes(start_within), ladder=_LADDER)
    worker = world.launched()
    lease = world.claim(worker.instance_id)
    world.dry(*every_spot_pool())
    for _ in range(30):
        world.beat()
        world.tick(minutes(1))
    world.beat()
    return world, lease


def _is_gone(world: ControlWorld, lease: Lease) -> None:
    world.end(lease.instance_id)


def _is_known_to_be_gone(world: ControlWorld, lease: Lease) -> None:
    world.compute.reclaim(lease.instance_id)
    event = StateChange(
        instance_id=lease.instance_id, region=REGION, at=world.now, state="terminated"
    )
    react(event, world.ports, holder="event")


def _is_being_taken(world: ControlWorld, lease: Lease) -> None:
    world.put(worker_sort_key(lease.instance_id), interrupted_at=world.now + minutes(2))
    world.run(2)
    _is_gone(world, lease)


def _gives_it_back(world: ControlWorld, lease: Lease) -> None:
    due = lease.requeued(0, world.now)
    assert due is not None
    world.put(requeued_sort_key(lease.job_id), **encode(due))
    world.remove(lease_sort_key(lease.instance_id, lease.slot))
    world.put(worker_sort_key(lease.instance_id), state=WorkerState.DRAINED)
    world.queue.extend(lease.receipt_handle, timedelta(0))


def _is_silent(world: ControlWorld, lease: Lease) -> None:
    world.put(lease_sort_key(lease.instance_id, lease.slot), deadline=world.now)
    world.queue.extend(lease.receipt_handle, timedelta(0))
    world.put(worker_sort_key(lease.instance_id), draining_at=world.now)


_ENDS: dict[str, Callable[[ControlWorld, Lease], None]] = {
    "its worker is gone": _is_gone,
    "an event says that its worker is gone": _is_known_to_be_gone,
    "its worker is being taken": _is_being_taken,
    "its worker gives it back": _gives_it_back,
    "its worker says nothing any more": _is_silent,
}


def _bought(decisions: list[Decision]) -> Any:
    return [
        (decision.at, ReasonCode.LADDER_OPENED_EARLY in codes(decision))
        for decision in decisions
        if pools(decision)
    ]


@pytest.mark.parametrize("end", _ENDS.values(), ids=_ENDS.keys())
def test_a_job_that_had_started_has_no_promise_to_keep(
    end: Callable[[ControlWorld, Lease], None],
) -> None:
    world, lease = a_world_without_spot()
    end(world, lease)
    came_back = world.now

    decisions = [world.tick(), *world.run(14)]

    ((at, is_early), *_) = _bought(decisions)
    # All rungs are open once it has waited for start_within, whatever they say.
    assert at - came_back >= minutes(12)
    assert not is_early


def test_a_job_on_an_instance_being_taken_has_no_promise() -> None:
    # A boot and a tick take as long: for a new job the ladder would be open at once.
    world, lease = a_world_without_spot(start_within=3.0)
    world.put(worker_sort_key(lease.instance_id), interrupted_at=world.now + minutes(2))

    assert _bought([world.tick(), *world.run(1)]) == []


def test_beside_it_a_new_job_opens_the_ladder_in_time() -> None:
    world, lease = a_world_without_spot()
    _is_gone(world, lease)
    world.tick()
    world.clock.advance(minutes(2))
    world.send()
    sent_at = world.now

    decisions = [world.tick(), *world.run(9)]

    ((at, is_early), *_) = _bought(decisions)
    assert at - sent_at == minutes(9)
    assert is_early
