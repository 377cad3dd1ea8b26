"""What a worker does with events of S3: each object is done once, whatever comes how often."""

from datetime import timedelta

import pytest

from spindown.contract.job.manifest import JobState, encode_manifest, manifest_key
from spindown.contract.job.message import parse_job
from spindown.error import NotFound
from spindown.job.claim import ClaimOutcome, Declined
from spindown.job.claimed_job import ClaimedJob
from spindown.job.commit import commit, complete
from spindown.job.manifest_store import SMALL_BYTES
from spindown.job.result import count_items, find_jobs, read_batch
from tests.unit.contract.test_s3_event import of_eventbridge, of_s3, parsed
from tests.work import WorkWorld, a_portion, a_slot_id

ID = parsed(of_s3()).job_id or ""


def test_an_event_is_a_job_of_its_object() -> None:
    world = WorkWorld()

    held = world.hold(of_eventbridge())

    assert held.job_id == ID
    assert held.job.items == ("s3://scans/in/a b+é.png",)


def test_a_job_of_an_event_is_found_by_its_object() -> None:
    world = WorkWorld()
    early = world.hold(of_eventbridge())
    late = world.hold(of_eventbridge(sequencer="0B"), slot_id=a_slot_id("i-2"))
    world.hold({"job_id": "s3-notes", "items": ["s3://scans/in/a b+é.png"]}, a_slot_id("i-3"))

    found = find_jobs("s3://scans/in/a b+é.png", world.objects)

    assert set(found) == {early.job_id, late.job_id}
    assert early.manifest.source == "s3://scans/in/a b+é.png"
    with pytest.raises(NotFound):
        find_jobs("s3://scans/in/b.png", world.objects)


def test_a_manifest_of_any_length_costs_a_search_nothing() -> None:
    world = WorkWorld()
    early = world.hold(of_eventbridge())
    key = manifest_key("s3-" + "0" * 32)
    world.objects.put(key, encode_manifest(early.manifest) + b" " * SMALL_BYTES)

    assert find_jobs("s3://scans/in/a b+é.png", world.objects) == (early.job_id,)


def test_an_address_is_no_batch_however_long_it_is() -> None:
    world = WorkWorld()

    with pytest.raises(NotFound):
        read_batch("s3://scans/" + "a" * 1024, world.objects)
    assert count_items("s3://scans/" + "a" * 1024, world.objects) is None


def test_an_event_that_comes_again_is_not_done_again() -> None:
    world = WorkWorld()
    held = world.hold(of_s3())
    world.send(of_s3(userAgent="another"))
    beside = world.claim(a_slot_id("i-2"))
    done = commit(held, a_portion(held, 1), slot_id=a_slot_id(), ports=world.ports)
    complete(done, slot_id=a_slot_id(), worker_row=world.worker_row(), ports=world.ports)
    world.send(of_eventbridge())
    late = world.claim(a_slot_id("i-3"))

    assert isinstance(beside, Declined)
    assert beside.outcome is ClaimOutcome.COPY
    assert done.manifest.state is JobState.COMPLETED
    assert isinstance(late, Declined)
    assert late.outcome is ClaimOutcome.OVER
    assert world.queue.bodies() == []


def test_an_object_written_again_after_its_job_is_done_again() -> None:
    world = WorkWorld()
    early = world.hold(of_eventbridge())
    done = commit(early, a_portion(early, 1), slot_id=a_slot_id(), ports=world.ports)
    complete(done, slot_id=a_slot_id(), worker_row=world.worker_row(), ports=world.ports)
    world.send(of_eventbridge(sequencer="0B"))

    again = world.claim(a_slot_id("i-2"))

    assert isinstance(again, ClaimedJob)
    assert again.job_id != early.job_id


def test_an_event_whose_worker_is_lost_is_done_by_another() -> None:
    world = WorkWorld()
    world.hold(of_s3())
    world.clock.advance(timedelta(minutes=6))

    again = world.claim(a_slot_id("i-2"))

    assert isinstance(again, ClaimedJob)
    assert (again.job_id, again.manifest.epoch) == (ID, 2)


def test_an_old_event_is_renewed_under_its_id() -> None:
    world = WorkWorld()
    world.send(of_s3())
    world.clock.advance(timedelta(days=8))

    declined = world.claim()

    assert isinstance(declined, Declined)
    assert declined.outcome is ClaimOutcome.SENT_ANEW
    (body,) = world.queue.bodies()
    assert parse_job(body).job_id == ID


def test_an_event_of_something_else_is_a_dead_letter_untouched() -> None:
    world = WorkWorld()
    row = of_eventbridge()
    row["detail-type"] = "Object Deleted"
    world.send(row)

    declined = world.claim()

    assert isinstance(declined, Declined)
    assert declined.outcome is ClaimOutcome.MALFORMED
    assert world.queue.bodies() == []
    assert len(world.dead_letters.bodies()) == 1
