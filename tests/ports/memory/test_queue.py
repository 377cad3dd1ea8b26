"""What the queue in memory is stricter in than any emulator, as SQS itself is."""

from collections import Counter
from datetime import timedelta
from random import Random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    rule,
)

from spindown.domain.fleet import Backlog
from spindown.error import StaleHandle
from spindown.memory import MemoryClock, MemoryJobQueue
from spindown.port import Message, Outgoing

NOW = timedelta(0)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def queue(clock: MemoryClock) -> MemoryJobQueue:
    return MemoryJobQueue(clock, Random(1))


def _take(queue: MemoryJobQueue, visibility: timedelta = MINUTE) -> Message:
    message = queue.receive(wait=NOW, visibility=visibility)
    assert message is not None
    return message


def test_a_handle_is_stale_once_its_timeout_has_passed(
    queue: MemoryJobQueue, clock: MemoryClock
) -> None:
    queue.send([Outgoing(body="a")])
    message = _take(queue)
    clock.advance(MINUTE)

    with pytest.raises(StaleHandle):
        queue.extend(message.receipt_handle, MINUTE)
    with pytest.raises(StaleHandle):
        queue.delete(message.receipt_handle)
    assert queue.backlog() == Backlog(visible=1, in_flight=0)


def test_a_handle_is_stale_once_the_message_was_received_again(
    queue: MemoryJobQueue, clock: MemoryClock
) -> None:
    queue.send([Outgoing(body="a")])
    old = _take(queue)
    clock.advance(MINUTE)
    new = _take(queue)

    with pytest.raises(StaleHandle):
        queue.delete(old.receipt_handle)
    queue.delete(new.receipt_handle)
    with pytest.raises(StaleHandle):
        queue.delete(new.receipt_handle)


def test_a_message_put_back_cannot_be_extended_any_more(queue: MemoryJobQueue) -> None:
    queue.send([Outgoing(body="a")])
    message = _take(queue)
    queue.extend(message.receipt_handle, NOW)

    with pytest.raises(StaleHandle):
        queue.extend(message.receipt_handle, MINUTE)


def test_an_extension_counts_from_now(queue: MemoryJobQueue, clock: MemoryClock) -> None:
    queue.send([Outgoing(body="a")])
    message = _take(queue)
    clock.advance(MINUTE / 2)
    queue.extend(message.receipt_handle, MINUTE)

    clock.advance(MINUTE - timedelta(microseconds=1))
    assert queue.receive(wait=NOW, visibility=MINUTE) is None
    clock.advance(timedelta(microseconds=1))
    assert _take(queue).receive_count == 2


def test_the_twelve_hours_count_from_the_receive(queue: MemoryJobQueue, clock: MemoryClock) -> None:
    queue.send([Outgoing(body="a")])
    message = _take(queue, timedelta(hours=6))
    clock.advance(timedelta(hours=5))

    with pytest.raises(StaleHandle):
        queue.extend(message.receipt_handle, timedelta(hours=7, seconds=1))
    queue.extend(message.receipt_handle, timedelta(hours=7))


def test_a_delayed_message_appears_when_its_delay_has_passed(
    queue: MemoryJobQueue, clock: MemoryClock
) -> None:
    queue.send([Outgoing(body="a", delay=MINUTE)])
    clock.advance(MINUTE)

    assert queue.backlog() == Backlog(visible=1, in_flight=0)
    assert _take(queue).receive_count == 1


def test_a_message_is_lost_after_its_retention(clock: MemoryClock) -> None:
    queue = MemoryJobQueue(clock, Random(1), retention=timedelta(days=12))
    queue.send([Outgoing(body="old"), Outgoing(body="held")])
    held = _take(queue, timedelta(hours=12))
    clock.advance(timedelta(days=1))
    queue.send([Outgoing(body="new")])
    clock.advance(timedelta(days=11))

    assert queue.bodies() == ["new"]
    with pytest.raises(StaleHandle):
        queue.delete(held.receipt_handle)


def test_dead_letters_keep_the_age_of_the_message(clock: MemoryClock) -> None:
    dead = MemoryJobQueue(clock, Random(1), name="dead", retention=timedelta(days=14))
    queue = MemoryJobQueue(clock, Random(1), dead_letter=dead, max_receive_count=1)
    queue.send([Outgoing(body="a")])
    sent_at = clock.now()
    _take(queue)
    clock.advance(timedelta(days=13))
    assert queue.receive(wait=NOW, visibility=MINUTE) is None

    assert _take(dead).sent_at == sent_at
    clock.advance(timedelta(days=1))
    assert dead.backlog().is_empty


def test_hands_messages_out_in_no_order(queue: MemoryJobQueue) -> None:
    queue.send([Outgoing(body=str(number)) for number in range(20)])
    received = [_take(queue).body for _ in range(20)]

    assert sorted(received, key=int) == [str(number) for number in range(20)]
    assert received != sorted(received, key=int)


class AnyUse(RuleBasedStateMachine):
    """However it is used, the queue loses nothing and gives a message to one at a time."""

    messages = Bundle("messages")

    def __init__(self) -> None:
        super().__init__()
        self.clock = MemoryClock()
        self.queue = MemoryJobQueue(self.clock, Random(7))
        self.sent = 0
        self.deleted: set[str] = set()
        self.held: dict[str, Message] = {}
        self.until: dict[str, object] = {}

    @rule(delay=st.sampled_from([NOW, MINUTE]), count=st.integers(1, 3))
    def send(self, delay: timedelta, count: int) -> None:
        self.queue.send([Outgoing(body="x", delay=delay)] * count)
        self.sent += count

    @rule(target=messages)
    def receive(self) -> Message | None:
        message = self.queue.receive(wait=NOW, visibility=MINUTE)
        if message is not None:
            assert self.until.get(message.message_id, self.clock.now()) <= self.clock.now()  # type: ignore[operator]
            assert message.message_id not in self.deleted
            self.held[message.message_id] = message
            self.until[message.message_id] = self.clock.now() + MINUTE
        return message

    @rule(message=messages, visibility=st.sampled_from([NOW, MINUTE, 3 * MINUTE]))
    def extend(self, message: Message | None, visibility: timedelta) -> None:
        if message is None:
            return
        if self._controls(message):
            self.queue.extend(message.receipt_handle, visibility)
            self.until[message.message_id] = self.clock.now() + visibility
        else:
            with pytest.raises(StaleHandle):
                self.queue.extend(message.receipt_handle, visibility)

    @rule(message=consumes(messages))
    def delete(self, message: Message | None) -> None:
        if message is None:
            return
        if self._controls(message):
            self.queue.delete(message.receipt_handle)
            self.deleted.add(message.message_id)
        else:
            with pytest.raises(StaleHandle):
                self.queue.delete(message.receipt_handle)

    @rule(seconds=st.integers(1, 90))
    def wait(self, seconds: int) -> None:
        self.clock.advance(timedelta(seconds=seconds))

    @invariant()
    def every_message_is_there_until_it_is_deleted(self) -> None:
        backlog = self.queue.backlog()
        present = backlog.visible + backlog.in_flight + backlog.delayed
        assert present == self.sent - len(self.deleted)
        hidden = Counter(self._controls(m) for m in self.held.values())
        assert backlog.in_flight == hidden[True]
        assert len(self.queue.bodies()) == present

    def _controls(self, message: Message) -> bool:
        """Tell whether this receipt still holds its message."""
        return (
            message.message_id not in self.deleted
            and self.held[message.message_id] is message
            and self.until[message.message_id] > self.clock.now()  # type: ignore[operator]
        )


TestAnyUse = AnyUse.TestCase


def test_order_is_kept_as_roughly_as_asked_for(clock: MemoryClock) -> None:
    queue = MemoryJobQueue(clock, Random(1), disorder=3)
    for number in range(50):
        queue.send([Outgoing(body=str(number))])
        clock.advance(timedelta(seconds=1))
    first = _take(queue, timedelta(minutes=5))
    queue.extend(first.receipt_handle, NOW)
    taken = [int(_take(queue, timedelta(minutes=5)).body) for _ in range(50)]

    assert sorted(taken) == list(range(50))
    assert all(number <= place + 2 for place, number in enumerate(taken))
    assert taken != sorted(taken)
