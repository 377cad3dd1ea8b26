"""Messages with attributes that nobody honest would send.

Some fill them: a copy has an id more, and SQS takes no more than 1 MiB. Others tell of a time that
is none.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from spindown.contract.job.message import MESSAGE_BYTES_MAX, JobMessage, parse_job, with_id
from spindown.domain.policy import JobNeeds, JobType, Policy
from spindown.domain.retry_or_dead_letter import RENEW_RECEIVES
from spindown.error import ContractError, SpindownError, Unreachable
from spindown.job.cancel import CancelOutcome, cancel, cancel_unclaimed
from spindown.job.claim import ClaimOutcome, Declined
from spindown.job.claimed_job import ClaimedJob
from spindown.job.message import resend
from spindown.job.old_message import resend_all
from spindown.job.route import Routed
from spindown.memory import MemoryJobQueue, PortCall
from spindown.port import Outgoing
from tests.builders import minutes
from tests.control import ControlWorld
from tests.work import WORKLOAD, WorkWorld, a_slot_id

BODY = json.dumps({"items": [1]})
TYPES = (JobType(name="small", needs=JobNeeds(memory_gib=5)),)


def filled(body: str, name: str = "a") -> Outgoing:
    """Return a message with an attribute that takes all the room that its body leaves."""
    room = MESSAGE_BYTES_MAX - Outgoing(body=body, attributes={name: ""}).bytes
    return Outgoing(body=body, attributes={name: "x" * room})


@pytest.fixture
def world() -> ControlWorld:
    return ControlWorld(policy=replace(Policy(), types=TYPES))


@pytest.mark.parametrize("name", ["a", "sized", "first_sent"])
def test_messages_that_are_full_are_routed_like_any(world: ControlWorld, name: str) -> None:
    world.queue.send([filled(BODY, name)] * 8)
    world.ask("honest", type="small")

    assert world.route() == Routed(routed=9)
    assert world.queue.backlog().is_empty
    assert len(world.queue_of("c0m0").bodies()) == 8


def test_ten_attributes_of_a_sender_s_leave_room(world: ControlWorld) -> None:
    attributes = {f"a{n}": "x" for n in range(10)}
    world.queue.send([Outgoing(body=BODY, attributes=attributes)])
    world.route()

    copy = world.queue_of("c0m0").receive(wait=timedelta(0), visibility=minutes(1))
    assert copy is not None
    assert not copy.attributes.keys() & attributes.keys()


@pytest.mark.parametrize("name", ["a", "sized", "first_sent"])
def test_a_full_message_is_sent_anew_before_it_expires(name: str) -> None:
    world = WorkWorld()
    world.queue.send([filled(BODY, name)])
    message = world.queue.receive(wait=timedelta(0), visibility=minutes(1))
    assert message is not None

    resend(message, with_id(parse_job(message.body), message.message_id), world.ports)

    [body] = world.queue.bodies()
    assert parse_job(body) == JobMessage(items=(1,), job_id=parse_job(body).job_id)


def refusing(world: ControlWorld, error: SpindownError, *, marked: str) -> None:
    """Let every send fail of a message that says some text."""

    def fail(call: PortCall, proceed: Callable[[], Any]) -> Any:
        sent = call.args[0] if call.method == "send" else []
        if any(marked in each.body and "reason" not in each.attributes for each in sent):
            raise error
        return proceed()

    world.interfere = fail


def test_what_sqs_will_never_take_is_a_dead_letter(world: ControlWorld) -> None:
    refused = ContractError("message", "odd", "send another")
    refusing(world, refused, marked="poison")
    for number in range(8):
        world.ask(f"poison{number}")
    world.ask("honest", type="small")

    assert world.route() == Routed(routed=1, rejected={"malformed": 8})
    letter = world.dead_letters.receive(wait=timedelta(0), visibility=minutes(1))
    assert letter is not None
    assert letter.attributes["reason"] == str(refused)
    assert letter.attributes["job_id"].startswith("poison")


def test_a_run_ends_by_what_fails_for_all_alone(world: ControlWorld) -> None:
    for number in range(12):
        world.ask(f"poison{number}")
    refusing(world, SpindownError("of this message"), marked="poison")
    one_by_one = world.route()
    world.clock.advance(minutes(3))
    refusing(world, Unreachable("no answer"), marked="poison")
    given_up = world.route()

    assert (one_by_one.postponed, given_up.postponed) == (12, 5)


#: What may be in the attribute that tells when a job was first sent.
NO_TIMES = [
    "0001-01-01T00:00:00+14:00",
    "0001-01-01T00:00:00-14:00",
    "9999-12-31T23:59:59.999999-14:00",
    "9999-12-31T23:59:59+14:00",
    "2026-11-20T12:00:00",
    "2026-11-20T12:00:00+23:59:59.999999",
    "20261120",
    "\ud7ff",
    "9" * 5000,
]
DAY = timedelta(days=1)


def sent_at(text: str, **body: Any) -> Outgoing:
    """Return a message that says when it was first sent."""
    return Outgoing(body=json.dumps({"items": [1], **body}), attributes={"first_sent": text})


@pytest.mark.parametrize("text", NO_TIMES)
def test_no_time_of_a_message_keeps_a_worker_from_it(text: str) -> None:
    world = WorkWorld()
    cancel_unclaimed("cancelled", world.ports)
    world.clock.advance(minutes(1))
    world.queue.send([sent_at(text, job_id="cancelled"), sent_at(text, job_id="j")])

    declined, claimed = world.claim(), world.claim(a_slot_id("i-2"))

    assert isinstance(declined, Declined)
    assert declined.outcome in {ClaimOutcome.OTHER_BODY, ClaimOutcome.OVER}
    assert isinstance(claimed, ClaimedJob)


@pytest.mark.parametrize("text", NO_TIMES)
def test_no_time_of_a_message_keeps_others_from_machines(world: ControlWorld, text: str) -> None:
    world.queue.send([sent_at(text)])
    world.ask("honest", type="small")

    assert world.route() == Routed(routed=2)


@pytest.mark.parametrize("text", NO_TIMES)
def test_no_time_of_a_message_lets_others_expire(text: str) -> None:
    world = ControlWorld(budget=0.0)
    world.queue = MemoryJobQueue(world.clock, Random(1), retention=12 * DAY)
    world.queue.send([sent_at(text), *(sent_at("", job_id=f"j{n}") for n in range(3))])
    for _ in range(13):
        world.tick(DAY)
        until = world.now + minutes(2)
        resend_all(world.ports, store_of=lambda _: world.objects, until=until)

    assert len(world.queue.bodies()) == 4


@pytest.mark.parametrize("text", NO_TIMES)
def test_no_time_of_a_message_stops_a_cancel(text: str) -> None:
    world = WorkWorld()
    world.queue.send([sent_at(text, job_id="other")])
    for _ in range(RENEW_RECEIVES):
        message = world.receive()
        assert message is not None
        world.queue.extend(message.receipt_handle, timedelta(0))
    world.queue.send([sent_at(text, job_id="j")])

    [cancelled] = cancel(WORKLOAD, ["j"], world.ports)

    assert cancelled.outcome is CancelOutcome.CANCELLED
    assert [json.loads(body)["job_id"] for body in world.queue.bodies()] == ["other"]
