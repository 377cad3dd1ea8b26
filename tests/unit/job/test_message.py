"""What becomes of messages: of jobs that are over, malformed ones, old ones."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.contract.job.manifest import JobState
from spindown.contract.job.message import (
    MESSAGE_BYTES_MAX,
    JobMessage,
    derived_id,
    encode_job,
    parse_job,
    with_id,
)
from spindown.error import Unreachable
from spindown.job.claim import ClaimOutcome, Declined
from spindown.job.claimed_job import ClaimedJob
from spindown.job.commit import commit, complete
from spindown.job.message import copy_message, dead_letter, dead_letter_untouched, read_stored
from spindown.port import Message, Outgoing
from tests.work import BUCKET, WorkWorld, a_portion, a_slot_id, items

JOB = {"job_id": "j", "items": items(4)}


def a_message(world: WorkWorld, body: Mapping[str, Any] | str | None = None) -> Message:
    """Return the message that is received, of a body that is sent first if one is given."""
    if body is not None:
        world.send(body)
    message = world.receive()
    assert message is not None
    return message


def a_letter(world: WorkWorld) -> Message:
    letter = world.dead_letters.receive(wait=timedelta(0), visibility=timedelta(minutes=1))
    assert letter is not None
    return letter


def filled(body: Mapping[str, Any], size: int) -> str:
    """Return the body of a job whose parameters make it so long, its id included."""
    empty = json.dumps({**body, "params": {"text": ""}}, separators=(",", ":"))
    rest = size - len(encode_job(with_id(parse_job(empty), "queue-1")))
    return empty.replace('""', f'"{"x" * rest}"')


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.CANCELLED, JobState.SPLIT])
def test_deletes_the_message_of_a_job_that_is_over(state: JobState) -> None:
    world = WorkWorld()
    world.put_manifest(state=state)
    world.send(JOB)
    declined = world.claim()
    assert isinstance(declined, Declined)
    assert (declined.outcome, declined.reason) == (ClaimOutcome.OVER, state.value)
    assert world.queue.bodies() == []


def test_repeats_the_dead_letter_of_a_failed_job_seen_again() -> None:
    world = WorkWorld()
    world.put_manifest(state=JobState.FAILED, reason="it was bad")
    world.send(JOB)
    declined = world.claim()
    assert isinstance(declined, Declined)
    assert declined.outcome is ClaimOutcome.DEAD_LETTERED
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
    assert declined.outcome is ClaimOutcome.MALFORMED
    letter = world.dead_letters.receive(wait=timedelta(0), visibility=timedelta(minutes=1))
    assert letter is not None
    assert letter.body == body
    assert says in letter.attributes["reason"]
    assert says in declined.reason
    assert letter.attributes["original_message_id"] == "queue-1"
    assert world.queue.bodies() == []


def test_dead_letters_a_malformed_mebibyte_through_the_bucket() -> None:
    world = WorkWorld()
    body = "x" * 1_048_576
    world.send(body)
    assert isinstance(world.claim(), Declined)
    letter = json.loads(world.dead_letters.bodies()[0])
    assert letter == {"body_key": f"jobs/{derived_id('queue-1')}/message"}
    assert world.objects.get(letter["body_key"]).data.decode() == body


def test_puts_a_newer_message_back_untouched() -> None:
    world = WorkWorld()
    world.send({"schema": 2, "tasks": []})
    declined = world.claim()
    assert isinstance(declined, Declined)
    assert declined.outcome is ClaimOutcome.NEWER_SCHEMA
    assert declined.reason.startswith("message.schema is 2: ")
    assert world.queue.backlog().in_flight == 1
    assert world.dead_letters.bodies() == []


def test_a_message_without_an_id_gets_the_same_at_each_receive() -> None:
    world = WorkWorld()
    held = world.hold({"items": items(1)})
    assert held.job_id == derived_id("queue-1")
    world.clock.advance(timedelta(minutes=6))
    assert world.hold(slot_id=a_slot_id("i-2")).job_id == held.job_id


def test_resends_a_message_older_than_a_week_as_the_same_job() -> None:
    world = WorkWorld()
    world.send({"items": items(1)})
    world.clock.advance(timedelta(days=7))
    declined = world.claim()
    assert isinstance(declined, Declined)
    assert (declined.outcome, declined.job_id) == (ClaimOutcome.SENT_ANEW, derived_id("queue-1"))
    [body] = world.queue.bodies()
    assert json.loads(body)["job_id"] == derived_id("queue-1")
    assert isinstance(world.claim(), ClaimedJob)


def test_a_crash_between_copy_and_deletion_leaves_one_job() -> None:
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
    done = commit(held, a_portion(held), slot_id=a_slot_id(), ports=world.ports)
    complete(done, slot_id=a_slot_id(), worker_row=world.worker_row(), ports=world.ports)
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
    assert declined.outcome is ClaimOutcome.SENT_ANEW
    assert isinstance(world.claim(), ClaimedJob)


def test_sends_a_full_message_anew_with_its_items_in_the_bucket() -> None:
    world = WorkWorld()
    body = json.dumps({"items": ["x" * (1_048_576 - 20)]})
    world.send(body + " " * (1_048_576 - len(body)))
    world.clock.advance(timedelta(days=8))
    assert isinstance(world.claim(), Declined)
    held = world.hold()
    assert held.job.stored
    assert held.manifest.items == 1


def test_sends_parameters_that_fill_a_message_anew() -> None:
    world = WorkWorld()
    body = filled({"items": [1]}, MESSAGE_BYTES_MAX)
    world.send(body)
    world.clock.advance(timedelta(days=8))
    assert isinstance(world.claim(), Declined)
    held = world.hold()
    assert (held.job.items, held.job.params) == ((1,), json.loads(body)["params"])


@pytest.mark.parametrize(("room", "stored"), [(0, False), (-1, True)])
def test_a_copy_keeps_its_items_if_they_fit_to_the_byte(room: int, stored: bool) -> None:
    world = WorkWorld()
    job = parse_job(filled({"items": items(2), "job_id": "j"}, MESSAGE_BYTES_MAX - room))

    copy = copy_message(a_message(world, JOB), job, world.objects)

    assert (parse_job(copy.body).stored is not None) is stored


@pytest.mark.parametrize(("room", "is_aside"), [(0, False), (-1, True)])
def test_a_dead_letter_keeps_its_body_if_it_fits_to_the_byte(room: int, is_aside: bool) -> None:
    world = WorkWorld()
    attributes = sum(
        len(name) + len("String") + len(value)
        for name, value in {"reason": "bad", "original_message_id": "queue-1"}.items()
    )
    world.send("x" * (MESSAGE_BYTES_MAX - attributes - room))

    dead_letter_untouched(a_message(world), "bad", world.ports)

    assert ("body_key" in world.dead_letters.bodies()[0]) is is_aside


def test_a_failed_job_s_dead_letter_says_all_that_is_known() -> None:
    world = WorkWorld()
    message = a_message(world, JOB)
    reason = f"bad\x00 {'x' * 2000}"

    dead_letter(message, parse_job(message.body), reason, "group/stream", world.ports)

    letter = a_letter(world)
    assert json.loads(letter.body) == JOB
    assert letter.attributes == {
        "reason": f"bad? {'x' * 995}",
        "job_id": "j",
        "log": "group/stream",
        "original_message_id": "queue-1",
    }
    assert world.queue.bodies() == []


def test_a_dead_letter_keeps_tabs_and_lines_and_omits_the_empty() -> None:
    world = WorkWorld()
    message = a_message(world, JOB)

    dead_letter(message, parse_job(message.body), "a\tb\nc\rd\x7fe\u200bf", "", world.ports)

    attributes = a_letter(world).attributes
    assert attributes["reason"] == "a\tb\nc?d?e?f"
    assert "log" not in attributes


def test_a_full_failed_job_s_dead_letter_has_items_in_a_bucket() -> None:
    world = WorkWorld()
    body = json.dumps({"items": ["item-0", "x" * (MESSAGE_BYTES_MAX - 50)], "job_id": "j"})
    message = a_message(world, body)

    dead_letter(message, parse_job(body), "bad", "", world.ports)

    letter = parse_job(a_letter(world).body)
    assert (letter.job_id, letter.items) == ("j", None)
    found = read_stored(letter, world.objects)
    assert found == replace(parse_job(body), stored=letter.stored)


def test_a_job_with_huge_parameters_lies_whole_in_the_bucket() -> None:
    world = WorkWorld()
    body = filled({"items_uri": f"{BUCKET}a", "job_id": "j"}, MESSAGE_BYTES_MAX)
    message = a_message(world, body)

    dead_letter(message, parse_job(body), "bad", "", world.ports)

    letter = a_letter(world)
    assert letter.attributes["job_id"] == "j"
    found = read_stored(parse_job(letter.body), world.objects)
    assert (found.items_uri, found.params) == (f"{BUCKET}a", json.loads(body)["params"])


@pytest.mark.parametrize(("of_the_job", "of_the_message", "expected"), [
    (None, "m", "m"),
    ("j", "m", "j"),
    ("j", None, "j"),
    (None, None, None),
])  # fmt: skip
def test_a_copy_has_the_tenant_of_its_job_or_its_message(
    of_the_job: str | None, of_the_message: str | None, expected: str | None
) -> None:
    world = WorkWorld()
    world.queue.send([Outgoing(body="{}", tenant=of_the_message)])
    job = JobMessage(job_id="j", items=(1,), tenant=of_the_job)

    assert copy_message(a_message(world), job, world.objects).tenant == expected


def test_a_malformed_message_keeps_its_tenant_as_dead_letter() -> None:
    world = WorkWorld()
    world.queue.send([Outgoing(body="not a job", tenant="t")])
    world.claim()

    letter = world.dead_letters.receive(wait=timedelta(0), visibility=timedelta(0))

    assert letter is not None
    assert (letter.body, letter.tenant) == ("not a job", "t")
