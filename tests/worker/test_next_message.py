"""One message is looked ahead: early enough to spare a wait, and kept from nobody for long."""

import threading
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from spindown.contract.job.manifest import JobState
from spindown.port import Outgoing
from spindown.worker.slot import Slot
from spindown.worker.transfer.next_message import NextMessage
from tests.local.waiting import until
from tests.slot import InLine, SlotWorld
from tests.work import items
from tests.worker.test_under_way import Gate

JOB = {"job_id": "j", "items": items(5)}
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


def looking_ahead(slot: SlotWorld, tmp_path: Path) -> NextMessage:
    ahead = NextMessage(
        life=slot.life,
        ports=slot.world.ports,
        batch_size=2,
        scratch=tmp_path,
        executor=InLine(),
        log=slot.log,
    )
    slot.context = replace(slot.context, next_message=ahead)
    slot.slot = Slot(slot.context)
    return ahead


def test_the_next_message_and_input_are_there_when_a_job_ends(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    looking_ahead(slot, tmp_path)
    slot.runner.before_poll = lambda _: slot.world.clock.advance(SECOND)
    slot.world.sources["s3://inputs/a"] = b"a"
    slot.world.sources["s3://inputs/b"] = b"b"
    for name in ("first", "second", "third"):
        body = {"job_id": name, "items": ["s3://inputs/a", "s3://inputs/b"]}
        slot.world.send(body)
    slot.step()
    slot.step()
    # The pace is known now: the third was received while the second computed.
    slot.world.sources.clear()
    assert slot.step()
    assert slot.world.manifest("third").state is JobState.COMPLETED
    assert [r.error for r in slot.world.records("third")] == [None, None]
    assert not list(tmp_path.glob("ahead-*"))


def test_what_was_received_ahead_goes_back_if_not_taken(
    tmp_path: Path,
) -> None:
    slot = SlotWorld(tmp_path)
    ahead = looking_ahead(slot, tmp_path)
    ahead.note_pace(10, SECOND)
    slot.world.send(JOB)
    ahead.begin(1)
    ahead.drop()
    assert slot.world.queue.backlog().visible == 1
    assert ahead.take() is None


@pytest.mark.parametrize(
    ("items_left", "pace"),
    [(400, timedelta(minutes=10)), (1, None)],
    ids=["long before the end", "nothing is known"],
)
def test_nothing_is_taken_from_others_too_early(
    tmp_path: Path, items_left: int, pace: timedelta | None
) -> None:
    slot = SlotWorld(tmp_path)
    ahead = looking_ahead(slot, tmp_path)
    if pace is not None:
        ahead.note_pace(1000, pace)
    slot.world.send(JOB)
    ahead.begin(items_left)
    assert ahead.take() is None
    assert slot.world.queue.backlog().visible == 1


@pytest.mark.parametrize("comes", [True, False], ids=["a message", "none"])
def test_a_slot_whose_next_message_is_on_its_way_is_not_idle(tmp_path: Path, comes: bool) -> None:
    slot = SlotWorld(tmp_path)
    ahead = looking_ahead(slot, tmp_path)
    ahead.note_pace(10, SECOND)
    gate = Gate("receive")
    slot.world.before = gate
    ahead._executor = slot.context.transfers
    if comes:
        slot.world.send(JOB)
    ahead.begin(1)
    assert gate.is_reached.wait(20)
    stepping = threading.Thread(target=slot.step)
    stepping.start()
    until(lambda: slot.life.state.poller == 0)
    gate.is_open.set()
    stepping.join(20)
    assert not stepping.is_alive()
    assert bool(slot.events("job_completed")) == comes


def test_a_message_that_waited_too_long_is_given_back(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    ahead = looking_ahead(slot, tmp_path)
    ahead.note_pace(10, SECOND)
    slot.world.send(JOB)
    ahead.begin(1)
    slot.world.clock.advance(5 * MINUTE)
    assert ahead.take() is None


def test_the_input_of_a_cancelled_job_does_not_stay(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    ahead = looking_ahead(slot, tmp_path)
    ahead.note_pace(10, SECOND)
    slot.world.sources["s3://inputs/a"] = b"a"
    slot.world.put_manifest(state=JobState.CANCELLED)
    slot.world.send({"job_id": "j", "items": ["s3://inputs/a"]})
    ahead.begin(1)
    assert list(tmp_path.glob("ahead-*"))
    assert slot.step()
    assert not slot.step()
    assert not list(tmp_path.glob("ahead-*"))


def test_a_message_that_is_no_job_is_left_to_the_claim(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    ahead = looking_ahead(slot, tmp_path)
    ahead.note_pace(10, SECOND)
    slot.world.queue.send([Outgoing(body="{")])
    ahead.begin(1)
    assert slot.step()
    assert slot.world.dead_letters.bodies() == ["{"]


def test_what_another_message_of_the_id_names_is_not_settled(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    ahead = looking_ahead(slot, tmp_path)
    ahead.note_pace(10, SECOND)
    slot.world.sources["s3://inputs/theirs.jsonl"] = b'"theirs"'
    slot.world.sources["s3://inputs/ours.jsonl"] = b'"ours"'
    slot.world.send({"job_id": "j", "items_uri": "s3://inputs/theirs.jsonl"})
    ahead.begin(1)
    ahead.drop()
    theirs = slot.world.receive()
    assert theirs is not None
    slot.world.send({"job_id": "j", "items_uri": "s3://inputs/ours.jsonl"})

    assert slot.step()

    assert [record.item for record in slot.world.records("j")] == ["ours"]


def test_a_list_that_changed_since_the_look_is_read_again(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    ahead = looking_ahead(slot, tmp_path)
    ahead.note_pace(10, SECOND)
    slot.world.sources["s3://inputs/list.jsonl"] = b'"before"'
    slot.world.send({"job_id": "j", "items_uri": "s3://inputs/list.jsonl"})
    ahead.begin(1)
    slot.world.sources["s3://inputs/list.jsonl"] = b'"after"'

    assert slot.step()

    assert [record.item for record in slot.world.records("j")] == ["after"]
