"""How every call of a port can be put through one function."""

import re
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from spindown.error import PreconditionFailed, Unreachable
from spindown.memory import (
    MemoryClock,
    MemoryJobQueue,
    MemoryObjectStore,
    PortCall,
    intercept,
)
from spindown.port import Absent, JobQueue, ObjectStore, Outgoing


def test_sees_every_call_by_name(clock: MemoryClock) -> None:
    seen: list[PortCall] = []

    def record(call: PortCall, proceed: Callable[[], Any]) -> Any:
        seen.append(call)
        return proceed()

    queue: JobQueue = intercept(MemoryJobQueue(clock, Random(1)), "queue", record)
    queue.send([Outgoing(body="a")])
    message = queue.receive(wait=timedelta(0), visibility=timedelta(minutes=1))

    assert message is not None
    assert message.body == "a"
    assert [(call.port, call.method) for call in seen] == [("queue", "send"), ("queue", "receive")]
    assert seen[0].args == ([Outgoing(body="a")],)
    assert seen[1].kwargs == {"wait": timedelta(0), "visibility": timedelta(minutes=1)}


def test_a_write_with_a_lost_answer_meets_itself_on_repeat(clock: MemoryClock) -> None:
    def repeat(call: PortCall, proceed: Callable[[], Any]) -> Any:
        proceed()
        return proceed()

    real = MemoryObjectStore(clock)
    store: ObjectStore = intercept(real, "objects", repeat)

    with pytest.raises(PreconditionFailed):
        store.put("a", b"one", condition=Absent())
    assert real.get("a").data == b"one"


def test_a_call_may_never_be_carried_out(clock: MemoryClock) -> None:
    def break_connection(call: PortCall, proceed: Callable[[], Any]) -> Any:
        raise Unreachable(f"{call.port}.{call.method}")

    real = MemoryObjectStore(clock)
    with pytest.raises(Unreachable, match=r"objects\.put"):
        intercept(real, "objects", break_connection).put("a", b"one")
    assert list(real.list("")) == []


def test_the_clock_never_goes_back(clock: MemoryClock) -> None:
    with pytest.raises(ValueError, match=re.escape(str(clock.now()))):
        clock.advance(timedelta(seconds=-1))
