"""What the ledger remembers of a job with a deadline while nobody holds it."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.app.ending import free_leases
from spindown.app.ledger import Ledger
from spindown.app.port import Key
from spindown.app.work.claim import Declined, Outcome
from spindown.app.work.heartbeat import extend_lease
from spindown.app.work.held import Held
from spindown.app.work.release import release, settle_release
from spindown.contract.codec import decode
from spindown.contract.job.manifest import JobState, encode_manifest, manifest_key
from spindown.contract.row import due_sort, lease_sort, workload_partition
from spindown.domain.fleet import Due
from spindown.domain.policy import Policy
from tests.work import WORKLOAD, WorkWorld, a_portion, a_seat, items

POLICY = Policy(finish_within=timedelta(hours=12))
HOUR = timedelta(hours=1)


def due_row(world: WorkWorld, job_id: str = "a") -> Due | None:
    row = world.table.get(Key(partition=workload_partition(WORKLOAD), sort=due_sort(job_id)))
    return None if row is None else decode(Due, row)


def give_back(world: WorkWorld, held: Held, count: int = 0) -> None:
    held = settle_release(
        held, a_portion(held, count), interrupted=False, seat=a_seat(), ports=world.ports
    )
    release(held, seat=a_seat(), presence=world.presence(), ports=world.ports)


def test_a_job_that_is_given_back_is_remembered_until_its_next_claim() -> None:
    world = WorkWorld(policy=POLICY)
    sent_at = world.clock.now()
    held = world.hold({"job_id": "a", "items": items(10)})
    world.clock.advance(HOUR)

    give_back(world, held, 4)

    due = due_row(world)
    assert due == Due(
        job_id="a",
        sent_at=sent_at,
        items=10,
        items_done=4,
        items_per_hour=5.0,
        at=world.clock.now(),
    )
    again = world.hold(seat=a_seat("i-2"))
    assert due_row(world) is None
    assert (again.lease.first_item, again.lease.items_done) == (4, 4)
    assert again.lease.sent_at == sent_at


def test_without_a_deadline_nothing_is_remembered() -> None:
    world = WorkWorld()
    held = world.hold({"job_id": "a", "items": items(10)})

    give_back(world, held, 4)

    assert due_row(world) is None
    assert world.manifest("a").sent_at is None


def test_a_message_that_was_sent_anew_keeps_the_deadline_of_the_first() -> None:
    world = WorkWorld(policy=POLICY)
    sent_at = world.clock.now()
    give_back(world, world.hold({"job_id": "a", "items": items(10)}))
    message = world.receive()
    assert message is not None
    world.queue.delete(message.receipt_handle)
    world.clock.advance(HOUR)
    world.send({"job_id": "a", "items": items(10)})

    held = world.hold()

    assert held.message.sent_at == sent_at + HOUR
    assert held.lease.sent_at == sent_at


def test_a_child_of_a_split_job_is_due_when_its_parent_is() -> None:
    world = WorkWorld(policy=POLICY)
    sent_at = world.clock.now()
    world.hold({"job_id": "a", "items": items(10)})
    world.clock.advance(HOUR)
    world.send({"job_id": "a.00001", "items": items(5), "parent": "a"})
    world.send({"job_id": "b.00001", "items": items(5), "parent": "b"})

    child, orphan = world.hold(seat=a_seat("i-2")), world.hold(seat=a_seat("i-3"))

    assert child.lease.sent_at == sent_at
    assert orphan.lease.sent_at == sent_at + HOUR


def test_how_large_a_job_is_whose_input_is_read_first_the_heartbeat_tells() -> None:
    world = WorkWorld(policy=POLICY)
    world.sources["s3://inputs/list.jsonl"] = b'"a"\n"b"\n"c"\n'
    held = world.hold({"job_id": "a", "items_uri": "s3://inputs/list.jsonl"})
    assert held.lease.items == 0

    ours: dict[str, Any] = {"seat": a_seat(), "ports": world.ports, "policy": world.policy}
    known = extend_lease(held.lease, items_done=1, items=3, **ours)

    assert (known.items, known.items_done) == (3, 1)
    assert extend_lease(known, items_done=2, **ours).items == 3


@pytest.mark.parametrize("has_deadlines", [True, False])
def test_what_an_instance_held_that_is_gone_is_remembered_if_there_are_deadlines(
    has_deadlines: bool,
) -> None:
    world = WorkWorld(policy=POLICY)
    held = world.hold({"job_id": "a", "items": items(10)})
    ledger = Ledger(world.table, WORKLOAD)
    ledger.write(ledger.change(lease_sort("i-1", 0), {"items_done": 6}))
    lease = replace(held.lease, items_done=6)

    now = world.clock.now()
    free_leases((lease,), ledger, world.queue, now=now, has_deadlines=has_deadlines)

    due = due_row(world)
    assert (due is not None) is has_deadlines
    if due is not None:
        assert (due.items_done, due.sent_at) == (6, lease.sent_at)


def test_a_job_that_is_over_is_forgotten_by_whoever_finds_it_so() -> None:
    world = WorkWorld(policy=POLICY)
    held = world.hold({"job_id": "a", "items": items(10)})
    give_back(world, held)
    manifest = world.manifest("a")
    cancelled = replace(manifest, state=JobState.CANCELLED)
    world.objects.put(manifest_key("a"), encode_manifest(cancelled))

    declined = world.claim()

    assert isinstance(declined, Declined)
    assert declined.outcome is Outcome.OVER
    assert due_row(world) is None


def test_a_claim_that_fails_leaves_what_is_remembered() -> None:
    world = WorkWorld(policy=POLICY)
    give_back(world, world.hold({"job_id": "a", "items": items(10)}))
    world.presence("i-2")
    world.change_worker("i-2", state="condemned")

    declined = world.claim(a_seat("i-2"))

    assert isinstance(declined, Declined)
    assert declined.outcome is Outcome.CONDEMNED
    assert due_row(world) is not None
