"""What only a later version reads buys no machine while it is hidden, and is shown in time."""

from datetime import timedelta
from typing import Any

import pytest

from spindown.contract import row as rows
from spindown.contract.codec import encode
from spindown.contract.decision import Outcome
from spindown.contract.job import manifest, message
from spindown.contract.row import NewerMessage
from spindown.domain.fleet import WorkerState
from spindown.domain.reason import Reason, ReasonCode
from tests.builders import minutes
from tests.control import ControlWorld, with_policy

HIDDEN_FOR = timedelta(hours=11)


def _leave_to_newer_version(world: ControlWorld, **changes: Any) -> NewerMessage:
    """Let a worker hide the message that is visible, and say so."""
    received = world.queue.receive(wait=timedelta(0), visibility=minutes(5))
    assert received is not None
    world.queue.extend(received.receipt_handle, HIDDEN_FOR)
    values = {
        "message_id": received.message_id,
        "field": "message.schema",
        "schema": message.SCHEMA + 1,
        "receipt_handle": received.receipt_handle,
        "receives": received.receive_count,
        "sent_at": received.sent_at,
        "until": world.now + HIDDEN_FOR,
        **changes,
    }
    known = NewerMessage(**values)
    world.put(rows.newer_message_sort_key(known.message_id), **encode(known))
    return known


def test_a_hidden_message_buys_nothing_and_people_are_told() -> None:
    world = ControlWorld()
    world.send()
    _leave_to_newer_version(world)

    decisions = world.run(60)

    assert world.workers() == []
    (note,) = decisions[-1].notes
    assert note.code is ReasonCode.NEWER_MESSAGES
    assert (note.about["messages"], note.about["schema"]) == (1, message.SCHEMA + 1)
    assert len([text for _, text in world.topic.said if "schema" in text]) == 1
    assert world.queue.backlog().in_flight == 1


@pytest.mark.parametrize(
    ("field", "schema"),
    [("message.schema", message.SCHEMA), ("manifest.schema", manifest.SCHEMA)],
)
def test_the_version_that_reads_it_shows_it(field: str, schema: int) -> None:
    world = ControlWorld()
    world.send()
    _leave_to_newer_version(world, field=field, schema=schema)

    shown, launched = world.tick(minutes(5)), world.tick(minutes(1))

    assert (shown.notes, world.view().newer_messages) == ((), ())
    assert launched.outcome is Outcome.LAUNCHED


def test_workers_older_than_the_deploy_are_asked_ever_later() -> None:
    world = ControlWorld()
    world.send()
    waits = []
    for _ in range(4):
        _leave_to_newer_version(world, schema=message.SCHEMA)
        since = world.now
        while not world.queue.backlog().visible:
            world.tick(minutes(1))
        waits.append((world.now - since) / minutes(1))

    assert waits == [5, 10, 20, 40]


def test_real_work_beside_hidden_messages_is_launched_for() -> None:
    world = ControlWorld()
    world.send()
    _leave_to_newer_version(world)
    world.send()

    assert world.tick().outcome is Outcome.LAUNCHED


@pytest.mark.parametrize("again", [False, True], ids=["gone", "received-again"])
def test_a_row_is_forgotten_once_its_message_was_due(again: bool) -> None:
    world = ControlWorld()
    world.send()
    known = _leave_to_newer_version(world)
    world.clock.advance(HIDDEN_FOR + minutes(16))
    sort = rows.newer_message_sort_key(known.message_id)
    if again:
        # Between what the tick reads and what it writes.
        world.just_before("backlog", lambda: world.put(sort, receipt_handle="newer"))

    world.tick()

    assert (world.row(sort) is not None) is again


def test_a_worker_that_declined_all_counts_for_the_breaker() -> None:
    world = with_policy(max_workers=1)
    for _ in range(3):
        worker = world.launched()
        world.change(worker.instance_id, declined_at=world.now)
        _leave_to_newer_version(world)
        world.change(
            worker.instance_id,
            state=WorkerState.DRAINED,
            reason=Reason(ReasonCode.IDLE),
        )
        world.compute.power_off(worker.instance_id)
        world.run(3)

    assert world.view().breaker.unclaimed == 3
    assert world.view().breaker.open_until is not None
