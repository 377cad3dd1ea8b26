"""Messages that nobody claims are sent anew before SQS drops them."""

import json
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from spindown.contract.job.message import derived_id, stored_key
from spindown.error import Unreachable
from spindown.job.message import first_sent_at
from spindown.job.old_message import Resent, resend, resend_all
from spindown.memory import MemoryJobQueue, PortCall
from spindown.port import Outgoing
from tests.control import WORKLOAD, ControlWorld

DAY = timedelta(days=1)


class World(ControlWorld):
    """A deployment whose budget is spent, over a queue that forgets as SQS does."""

    def __post_init__(self) -> None:
        self.budget = 0.0
        super().__post_init__()
        self.queue = MemoryJobQueue(self.clock, Random(1), retention=12 * DAY, disorder=10)

    def resend(self) -> Resent | None:
        until = self.now + timedelta(minutes=2)
        return resend(WORKLOAD, self.ports, store=self.objects, until=until)

    def pass_days(self, days: float, *, is_resent: bool = True) -> int:
        """Let every hour tick and resend; return how often a message was received for it."""
        before = self.calls["queue.receive"]
        for _ in range(round(days * 24)):
            self.tick(timedelta(hours=1))
            if is_resent:
                self.resend()
        return self.calls["queue.receive"] - before


def test_nothing_is_lost_in_thirty_days_without_a_budget() -> None:
    world = World()
    bodies: list[dict[str, Any]] = [{"job_id": f"j{n}", "items": [n]} for n in range(30)]
    bodies += [{"items": [n]} for n in range(30, 40)]
    for body in bodies:
        world.queue.send([Outgoing(body=json.dumps(body), tenant="t", attributes={"a": "b"})])
        last_sent_at = world.now
        world.tick(timedelta(hours=1))

    world.pass_days(30)

    found = [json.loads(body) for body in world.queue.bodies()]
    assert sorted(body["items"][0] for body in found) == list(range(40))
    assert len({body["job_id"] for body in found}) == 40
    message = world.queue.receive(wait=timedelta(0), visibility=timedelta(0))
    assert message is not None
    assert (message.tenant, message.receive_count < 20) == ("t", True)
    # Of its attributes a copy keeps none that a sender has written.
    assert "a" not in message.attributes
    assert first_sent_at(message) <= last_sent_at


def test_it_would_all_be_lost_without() -> None:
    world = World()
    world.send(3)

    world.pass_days(30, is_resent=False)

    assert world.queue.bodies() == []


def test_an_id_that_a_claimer_has_given_stays_the_same() -> None:
    world = World()
    world.send()
    message = world.queue.receive(wait=timedelta(0), visibility=timedelta(minutes=5))
    assert message is not None

    world.pass_days(8)

    (body,) = world.queue.bodies()
    assert json.loads(body)["job_id"] == derived_id(message.message_id)


def test_a_young_queue_costs_one_look_at_the_ledger() -> None:
    world = World()
    world.send(3)
    world.tick()
    world.calls.clear()

    assert world.resend() is None
    assert world.calls == {"table.get": 1}


def test_a_queue_that_was_empty_meanwhile_holds_nothing_old() -> None:
    world = World()
    world.send()
    world.pass_days(6)
    message = world.queue.receive(wait=timedelta(0), visibility=timedelta(minutes=5))
    assert message is not None
    world.queue.delete(message.receipt_handle)
    world.pass_days(0.5)
    world.send()

    assert world.pass_days(4.9) == 0
    # And then it is looked at in time.
    assert world.pass_days(1) > 0


def test_young_messages_are_read_daily_and_left_visible() -> None:
    world = World()
    world.send(3)
    world.pass_days(8)

    # Four messages, with the answer that there is none: less than two looks.
    assert world.pass_days(1) <= 8
    assert world.queue.backlog().visible == 3


def test_a_long_queue_is_resent_in_several_looks() -> None:
    world = World()
    world.send(300)
    world.tick()
    world.clock.advance(8 * DAY)

    def slowly(call: PortCall, proceed: Any) -> Any:
        if call.method == "receive":
            world.clock.advance(timedelta(seconds=1))
        return proceed()

    world.interfere = slowly
    looks = []
    for _ in range(5):
        looks.append(world.resend())
        world.clock.advance(timedelta(hours=1))

    found = [look.resent for look in looks if look]
    assert sum(found) == 300
    assert max(found) <= 120
    # Then the next look waits until something may be old again.
    assert looks[-1] is None
    world.clock.advance(timedelta(minutes=5))
    assert world.queue.backlog().visible == 300


def test_items_that_leave_no_room_for_an_id_lie_beside() -> None:
    world = World()
    body = json.dumps({"items": ["x" * (1024 * 1024 - 20)]})
    world.queue.send([Outgoing(body=body)])

    world.pass_days(8)

    (copy,) = (json.loads(text) for text in world.queue.bodies())
    stored = world.objects.get(stored_key(copy["job_id"], copy["stored"]))
    assert len(stored.data) > 1_000_000


def test_a_later_version_s_message_keeps_the_id_of_its_first() -> None:
    world = World()
    world.queue.send([Outgoing(body=json.dumps({"schema": 99, "things": []}))])
    first = world.queue.receive(wait=timedelta(0), visibility=timedelta(0))
    assert first is not None
    world.tick()

    world.pass_days(20)

    (body,) = world.queue.bodies()
    assert json.loads(body) == {
        "schema": 99,
        "things": [],
        "job_id": derived_id(first.message_id),
    }


@pytest.mark.parametrize("body", ["no job", json.dumps({"schema": 99, "job_id": "j"})])
def test_what_is_no_job_is_kept_for_whoever_can_tell(body: str) -> None:
    world = World()
    world.queue.send([Outgoing(body=body)])
    world.tick()
    world.clock.advance(8 * DAY)

    look = world.resend()

    assert look is not None
    assert (look.resent, look.left) == (1, 0)
    assert world.queue.bodies() == [body]
    message = world.queue.receive(wait=timedelta(0), visibility=timedelta(minutes=1))
    assert message is not None
    assert message.sent_at == world.clock.now()


@pytest.mark.parametrize("fault", [Unreachable("no answer"), ValueError("no answer")])
def test_a_fault_of_one_workload_is_told_and_stops_no_other(fault: Exception) -> None:
    world = World()
    world.settings._deployment = replace(world.settings._deployment, workloads=("gone", WORKLOAD))
    world.send()
    world.tick()
    world.clock.advance(8 * DAY)

    def interfere(call: PortCall, proceed: Any) -> Any:
        if call.port == "table" and call.method == "get" and "gone" in call.args[0].partition:
            raise fault
        return proceed()

    world.interfere = interfere
    looks = resend_all(
        world.ports, store_of=lambda _: world.objects, until=world.now + timedelta(minutes=1)
    )

    assert [(look.workload, look.resent, look.why) for look in looks] == [
        ("gone", 0, "no answer"),
        (WORKLOAD, 1, ""),
    ]


def test_a_queue_without_end_leaves_the_others_their_time() -> None:
    world = World()
    world.settings._deployment = replace(
        world.settings._deployment, workloads=(WORKLOAD, "another", "a-third")
    )
    world.send(50)
    world.tick()
    world.clock.advance(8 * DAY)

    def slow(call: PortCall, proceed: Any) -> Any:
        if call.method == "receive":
            world.clock.advance(timedelta(seconds=5))
        return proceed()

    world.interfere = slow
    begun = world.now
    resend_all(world.ports, store_of=lambda _: world.objects, until=begun + timedelta(minutes=1))

    assert world.now - begun <= timedelta(seconds=25)
