"""What becomes of messages: of jobs that are over, malformed ones, old ones."""

import json
from datetime import timedelta

import pytest

from spindown.app.port import Outgoing
from spindown.app.work.claim import Declined, Outcome
from spindown.app.work.commit import commit, complete
from spindown.app.work.held import Held
from spindown.contract.job.manifest import JobState
from spindown.contract.job.message import derived_id
from spindown.error import Unreachable
from tests.work import BUCKET, WorkWorld, a_portion, a_seat, items

JOB = {"job_id": "j", "items": items(4)}


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.CANCELLED, JobState.SPLIT])
def test_deletes_the_message_of_a_job_that_is_over(state: JobState) -> None:
    world = WorkWorld()
    world.put_manifest(state=state)
    world.send(JOB)
    declined = world.claim()
    assert isinstance(declined, Declined)
    assert (declined.outcome, declined.reason) == (Outcome.OVER, state.value)
    assert world.queue.bodies() == []


def test_repeats_the_move_of_a_failed_job_whose_message_comes_again() -> None:
    world = WorkWorld()
    world.put_manifest(state=JobState.FAILED, reason="it was bad")
    world.send(JOB)
    declined = world.claim()
    assert isinstance(declined, Declined)
    assert declined.outcome is Outcome.DEAD_LETTERED
    assert (len(world.queue.bodies()), len(world.dead_letters.bodies())) == (0, 1)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("{", "write one JSON object"),
        ("[1]", "write a JSON object such as"),
        ('{"itens": [1]}', "did you mean items?"),
        ('{"items": 3}', "write a list"),
        ('{"items": [], "job_id": "../x"}', "message.job_id is '../x'"),
        ('{"items": [], "job_id": ".."}', "message.job_id is '..'"),
        ('{"items": [], "items_uri": "s3://bucket/k"}', "exactly one"),
        ('{"items_uri": "http://169.254.169.254/"}', "write it as s3://"),
        ("[" * 100_000, "too deeply nested"),
        ('{"items": [NaN]}', "NaN is no finite number"),
    ],
    ids=lambda value: value[:24],
)
def test_buries_a_malformed_message_with_the_reason_and_its_id(body: str, says: str) -> None:
    world = WorkWorld()
    world.send(body)
    declined = world.claim()
    assert isinstance(declined, Declined)
    assert declined.outcome is Outcome.MALFORMED
    letter = world.dead_letters.receive(wait=timedelta(0), visibility=timedelta(minutes=1))
    assert letter is not None
    assert letter.body == body
    assert says in letter.attributes["reason"]
    assert letter.attributes["original_message_id"] == "queue-1"
    assert world.queue.bodies() == []


def test_buries_a_malformed_message_of_one_mebibyte_with_its_body_in_the_bucket() -> None:
    world = WorkWorld()
    body = "x" * 1_048_576
    world.send(body)
    assert isinstance(world.claim(), Declined)
    letter = json.loads(world.dead_letters.bodies()[0])
    assert world.objects.get(letter["body_key"]).data.decode() == body


def test_puts_a_newer_message_back_untouched() -> None:
    world = WorkWorld()
    world.send({"schema": 2, "tasks": []})
    declined = world.claim()
    assert isinstance(declined, Declined)
    assert declined.outcome is Outcome.NEWER_SCHEMA
    assert world.queue.backlog().in_flight == 1
    assert world.dead_letters.bodies() == []


def test_gives_a_message_without_an_id_the_same_one_at_every_receive() -> None:
    world = WorkWorld()
    held = world.hold({"items": items(1)})
    assert held.job_id == derived_id("queue-1")
    world.clock.advance(timedelta(minutes=6))
    assert world.hold(seat=a_seat("i-2")).job_id == held.job_id


def test_sends_a_message_older_than_a_week_anew_under_the_same_job() -> None:
    world = WorkWorld()
    world.send({"items": items(1)})
    world.clock.advance(timedelta(days=7))
    declined = world.claim()
    assert isinstance(declined, Declined)
    assert declined.outcome is Outcome.SENT_ANEW
    [body] = world.queue.bodies()
    assert json.loads(body)["job_id"] == derived_id("queue-1")
    assert isinstance(world.claim(), Held)


def test_a_crash_between_the_copy_and_the_deletion_leaves_one_job() -> None:
    world = WorkWorld()
    world.send({"items": items(1)})
    world.clock.advance(timedelta(days=7))

    def crash(call: object) -> None:
        if getattr(call, "method", "") == "send":
            raise Unreachable("the machine is gone")

    world.after = crash
    with pytest.raises(Unreachable):
        world.claim()
    world.after = None
    held = world.hold()
    done = commit(held, a_portion(held), seat=a_seat(), ports=world.ports)
    complete(done, seat=a_seat(), presence=world.presence(), ports=world.ports)
    world.clock.advance(timedelta(minutes=6))
    while world.queue.backlog().visible:
        assert isinstance(world.claim(), Declined)
    assert world.queue.bodies() == []
    assert world.manifest(held.job_id).epoch == 1


def test_sends_a_message_anew_before_the_queue_would_bury_it() -> None:
    world = WorkWorld()
    world.send(JOB)
    for _ in range(49):
        message = world.receive()
        assert message is not None
        world.queue.extend(message.receipt_handle, timedelta(0))
    declined = world.claim()
    assert isinstance(declined, Declined)
    assert declined.outcome is Outcome.SENT_ANEW
    assert isinstance(world.claim(), Held)


def test_sends_a_full_message_anew_with_its_items_in_the_bucket() -> None:
    world = WorkWorld()
    body = json.dumps({"items": ["x" * (1_048_576 - 20)]})
    world.send(body + " " * (1_048_576 - len(body)))
    world.clock.advance(timedelta(days=8))
    assert isinstance(world.claim(), Declined)
    held = world.hold()
    assert held.job.stored
    assert held.manifest.items == 1


def test_works_on_a_worn_message_that_has_no_room_for_an_id() -> None:
    world = WorkWorld()
    world.send({"items_uri": f"{BUCKET}a", "params": {"text": "x" * 1_048_510}})
    world.clock.advance(timedelta(days=8))

    assert isinstance(world.claim(), Held)


def test_a_malformed_message_keeps_its_tenant_in_the_dead_letters() -> None:
    world = WorkWorld()
    world.queue.send([Outgoing(body="not a job", tenant="t")])
    world.claim()

    letter = world.dead_letters.receive(wait=timedelta(0), visibility=timedelta(0))

    assert letter is not None
    assert (letter.body, letter.tenant) == ("not a job", "t")
