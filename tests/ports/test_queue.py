"""What every JobQueue promises, on SQS as in memory."""

import itertools
from collections.abc import Callable
from datetime import timedelta
from random import Random

import boto3
import pytest

from spindown.aws.wiring import Aws
from spindown.domain.fleet import Backlog
from spindown.error import ContractError, NotFound, StaleHandle
from spindown.memory import MemoryClock, MemoryJobQueue
from spindown.memory.queue import REMOVED_WITHIN
from spindown.port import JobQueue, Outgoing
from tests.ports.conftest import ComesTo
from tests.ports.real_account import PREFIX, TAGS

NOW = timedelta(0)
MINUTES = timedelta(minutes=5)

_names = (f"{PREFIX}-{number}" for number in itertools.count())


class Memory:
    def __init__(self, clock: MemoryClock) -> None:
        self.clock = clock
        self.dead_letter = MemoryJobQueue(clock, Random(2), name="dead")
        self.queue: JobQueue = MemoryJobQueue(
            clock, Random(1), dead_letter=self.dead_letter, max_receive_count=2
        )
        missing = MemoryJobQueue(clock, Random(3), name="missing", exists=False)
        self.missing: tuple[JobQueue, str] = (missing, "dead")

    def let_pass(self, time: timedelta) -> None:
        self.clock.advance(time)

    def let_be_removed(self) -> None:
        self.clock.advance(REMOVED_WITHIN)


class Sqs:
    def __init__(self, session: boto3.Session, aws: Aws) -> None:
        client = session.client("sqs")
        dead = client.create_queue(QueueName=next(_names), tags=TAGS)["QueueUrl"]
        arn = client.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])
        redrive = (
            f'{{"deadLetterTargetArn": "{arn["Attributes"]["QueueArn"]}", "maxReceiveCount": 2}}'
        )
        url = client.create_queue(
            QueueName=next(_names), Attributes={"RedrivePolicy": redrive}, tags=TAGS
        )
        self.dead_letter: JobQueue = aws.queue(dead)
        self.queue: JobQueue = aws.queue(url["QueueUrl"])
        self.missing = (aws.queue(f"{dead.rpartition('/')[0]}/{next(_names)}"), dead)

    def let_pass(self, time: timedelta) -> None:
        # Real time passes while `receive` waits.
        assert time < timedelta(seconds=2)

    def let_be_removed(self) -> None:
        """Wait for nothing: what answers here for SQS removes at once."""


@pytest.fixture(params=["memory", "sqs"])
def world(request: pytest.FixtureRequest) -> Memory | Sqs:
    make: dict[str, Callable[[], Memory | Sqs]] = {
        "memory": lambda: Memory(request.getfixturevalue("clock")),
        "sqs": lambda: Sqs(request.getfixturevalue("session"), request.getfixturevalue("aws")),
    }
    return make[str(request.param)]()


@pytest.fixture(scope="session")
def poll(request: pytest.FixtureRequest) -> timedelta:
    """Return how long to wait for a message that is there: SQS itself asks few servers at once."""
    return timedelta(seconds=20 if request.config.getoption("--world") == "account" else 0)


@pytest.fixture
def queue(world: Memory | Sqs) -> JobQueue:
    return world.queue


def test_gives_back_a_message_as_it_was_sent(queue: JobQueue, poll: timedelta) -> None:
    queue.send([Outgoing(body='{"items": []}', tenant="acme", attributes={"reason": "none, yet"})])
    message = queue.receive(wait=poll, visibility=MINUTES)

    assert message is not None
    assert message.body == '{"items": []}'
    assert message.tenant == "acme"
    assert message.attributes == {"reason": "none, yet"}
    assert message.receive_count == 1
    assert message.sent_at.utcoffset() == timedelta(0)
    assert message.received_at.utcoffset() == timedelta(0)


def test_an_empty_queue_gives_nothing(queue: JobQueue) -> None:
    assert queue.receive(wait=NOW, visibility=MINUTES) is None


def test_hides_a_message_that_was_received(
    queue: JobQueue, poll: timedelta, comes_to: ComesTo
) -> None:
    queue.send([Outgoing(body="a")])
    queue.receive(wait=poll, visibility=MINUTES)

    assert queue.receive(wait=NOW, visibility=MINUTES) is None
    comes_to(queue.backlog, Backlog(visible=0, in_flight=1))


def test_shows_a_message_again_once_its_timeout_has_passed(
    world: Memory | Sqs, poll: timedelta
) -> None:
    world.queue.send([Outgoing(body="a")])
    first = world.queue.receive(wait=poll, visibility=timedelta(seconds=1))
    world.let_pass(timedelta(seconds=1))
    again = world.queue.receive(wait=timedelta(seconds=5), visibility=MINUTES)

    assert first is not None
    assert again is not None
    assert again.message_id == first.message_id
    assert again.receipt_handle != first.receipt_handle
    assert again.receive_count == 2


def test_a_message_extended_by_nothing_is_visible_at_once(
    queue: JobQueue, poll: timedelta, comes_to: ComesTo
) -> None:
    queue.send([Outgoing(body="a")])
    message = queue.receive(wait=poll, visibility=MINUTES)
    assert message is not None
    queue.extend(message.receipt_handle, NOW)

    comes_to(queue.backlog, Backlog(visible=1, in_flight=0))
    again = queue.receive(wait=poll, visibility=MINUTES)
    assert again is not None
    assert again.receive_count == 2


def test_shows_more_messages_than_one_batch_holds(
    queue: JobQueue, poll: timedelta, comes_to: ComesTo
) -> None:
    queue.send([Outgoing(body=str(number)) for number in range(12)])
    held = [queue.receive(wait=poll, visibility=MINUTES) for _ in range(12)]
    handles = [message.receipt_handle for message in held if message is not None]
    queue.delete(handles[4])

    queue.show([*handles, "no handle at all"])

    comes_to(queue.backlog, Backlog(visible=11, in_flight=0))
    queue.show([])


def test_a_deleted_message_is_gone(queue: JobQueue, poll: timedelta, comes_to: ComesTo) -> None:
    queue.send([Outgoing(body="a")])
    message = queue.receive(wait=poll, visibility=MINUTES)
    assert message is not None
    queue.delete(message.receipt_handle)

    comes_to(queue.backlog, Backlog(visible=0, in_flight=0))
    with pytest.raises(StaleHandle):
        queue.extend(message.receipt_handle, MINUTES)


def test_a_handle_that_never_was_one_is_stale(queue: JobQueue) -> None:
    with pytest.raises(StaleHandle):
        queue.extend("no such handle", MINUTES)


def test_never_extends_past_twelve_hours_from_the_receive(queue: JobQueue, poll: timedelta) -> None:
    queue.send([Outgoing(body="a")])
    message = queue.receive(wait=poll, visibility=MINUTES)
    assert message is not None

    with pytest.raises((StaleHandle, ContractError)):
        queue.extend(message.receipt_handle, timedelta(hours=12, seconds=1))


def test_keeps_a_delayed_message_out_of_sight(queue: JobQueue, comes_to: ComesTo) -> None:
    queue.send([Outgoing(body="a", delay=timedelta(minutes=15))])

    assert queue.receive(wait=NOW, visibility=MINUTES) is None
    comes_to(queue.backlog, Backlog(visible=0, in_flight=0, delayed=1))


def test_dead_letters_a_message_that_was_received_too_often(
    world: Memory | Sqs, poll: timedelta, comes_to: ComesTo
) -> None:
    world.queue.send([Outgoing(body="a", attributes={"reason": "kept"})])
    for _ in range(2):
        message = world.queue.receive(wait=poll, visibility=MINUTES)
        assert message is not None
        world.queue.extend(message.receipt_handle, NOW)

    assert world.queue.receive(wait=poll, visibility=MINUTES) is None
    dead = world.dead_letter.receive(wait=poll, visibility=MINUTES)
    assert dead is not None
    assert message is not None
    assert dead.message_id == message.message_id
    assert dead.body == "a"
    assert dead.attributes == {"reason": "kept"}
    comes_to(world.queue.backlog, Backlog(visible=0, in_flight=0))


def test_sends_more_messages_than_one_batch_holds(queue: JobQueue, comes_to: ComesTo) -> None:
    queue.send([Outgoing(body=str(number)) for number in range(23)])

    comes_to(queue.backlog, Backlog(visible=23, in_flight=0))


def test_sends_messages_that_together_pass_the_size_of_a_batch(
    queue: JobQueue, comes_to: ComesTo
) -> None:
    queue.send([Outgoing(body="x" * 600_000) for _ in range(3)])

    comes_to(queue.backlog, Backlog(visible=3, in_flight=0))


@pytest.mark.parametrize(
    "outgoing",
    [
        pytest.param(Outgoing(body="x" * (1024 * 1024 + 1)), id="larger than 1 MiB"),
        pytest.param(Outgoing(body="é" * (512 * 1024 + 1)), id="larger in bytes, not in letters"),
        pytest.param(Outgoing(body="x", delay=timedelta(minutes=16)), id="delayed too long"),
    ],
)
def test_refuses_a_message_that_sqs_does_not_take(
    queue: JobQueue, outgoing: Outgoing, comes_to: ComesTo
) -> None:
    with pytest.raises(ContractError):
        queue.send([outgoing])
    comes_to(queue.backlog, Backlog(visible=0, in_flight=0))


def test_sending_nothing_is_no_error(queue: JobQueue, comes_to: ComesTo) -> None:
    queue.send([])
    comes_to(queue.backlog, Backlog(visible=0, in_flight=0))


@pytest.fixture
def missing(world: Memory | Sqs) -> tuple[JobQueue, str]:
    """Return a queue that is not made yet, and the URL of that for its dead letters."""
    return world.missing


def test_a_queue_that_is_not_there_is_not_found(missing: tuple[JobQueue, str]) -> None:
    queue, _ = missing
    for ask in (
        lambda: queue.send([Outgoing(body="{}")]),
        lambda: queue.receive(wait=NOW, visibility=MINUTES),
        queue.backlog,
    ):
        with pytest.raises(NotFound):
            ask()
    queue.remove()


def test_a_queue_is_made_once_and_keeps_what_it_holds(
    missing: tuple[JobQueue, str], poll: timedelta, comes_to: ComesTo
) -> None:
    queue, dead_letters = missing
    queue.create(dead_letters=dead_letters, tags=TAGS)
    queue.send([Outgoing(body='{"items": []}')])
    queue.create(dead_letters=dead_letters, tags=TAGS)

    comes_to(queue.backlog, Backlog(visible=1, in_flight=0))
    message = queue.receive(wait=poll, visibility=MINUTES)
    assert message is not None
    queue.delete(message.receipt_handle)


def test_a_queue_is_removed_with_all_that_it_holds(world: Memory | Sqs, comes_to: ComesTo) -> None:
    queue, dead_letters = world.missing
    queue.create(dead_letters=dead_letters, tags=TAGS)
    queue.send([Outgoing(body="{}"), Outgoing(body="{}")])
    queue.remove()
    with pytest.raises(NotFound):
        queue.backlog()
    world.let_be_removed()
    queue.create(dead_letters=dead_letters, tags=TAGS)

    comes_to(queue.backlog, Backlog(visible=0, in_flight=0))


def test_a_message_goes_to_one_of_several_queues(
    queue: JobQueue, missing: tuple[JobQueue, str], comes_to: ComesTo
) -> None:
    other, dead_letters = missing
    other.create(dead_letters=dead_letters, tags=TAGS)
    other.send([Outgoing(body="{}")])

    comes_to(other.backlog, Backlog(visible=1, in_flight=0))
    comes_to(queue.backlog, Backlog(visible=0, in_flight=0))
