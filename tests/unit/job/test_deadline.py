"""Jobs that are put down: the ledger remembers them while nobody holds them, and no longer."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spindown.contract.codec import decode, encode
from spindown.contract.job.manifest import (
    JobState,
    Manifest,
    encode_manifest,
    manifest_key,
)
from spindown.contract.job.message import encode_job, encode_stored, parse_job, stored_key
from spindown.contract.row import lease_sort_key, requeued_sort_key, worker_partition
from spindown.control.free_lease import free_leases
from spindown.domain.fleet import RequeuedJob
from spindown.domain.policy import Policy
from spindown.domain.retry_or_dead_letter import Failure
from spindown.job.cancel import cancel
from spindown.job.claim import ClaimOutcome, Declined
from spindown.job.claimed_job import ClaimedJob
from spindown.job.commit import commit, complete
from spindown.job.heartbeat import extend_lease
from spindown.job.release import release, settle_rejection, settle_release
from spindown.ledger import Ledger
from spindown.memory.interception import PortCall
from spindown.port import Key, Write
from tests.work import WORKLOAD, WorkWorld, a_portion, a_slot_id, items

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
JOB = {"job_id": "j", "items": items(4)}
LONG_AGO = datetime(2024, 1, 1, tzinfo=UTC)
PARENT = Manifest(job_id="p", epoch=1, owner="i-9/0", state=JobState.SPLIT)
KEY = Key(partition=worker_partition(WORKLOAD), sort=requeued_sort_key("j"))


def a_world(within: timedelta | None = DAY) -> WorkWorld:
    return WorkWorld(policy=Policy(finish_within=within))


def due(world: WorkWorld) -> RequeuedJob | None:
    row = world.table.get(KEY)
    return None if row is None else decode(RequeuedJob, row)


def requeued(world: WorkWorld, held: ClaimedJob, done: int) -> None:
    settled = settle_release(
        held,
        a_portion(held, done),
        interrupted=False,
        slot_id=a_slot_id(),
        ports=world.ports,
        policy=Policy(),
    )
    release(
        settled,
        slot_id=a_slot_id(),
        worker_row=world.worker_row(),
        ports=world.ports,
        policy=Policy(),
    )


def remember(world: WorkWorld) -> RequeuedJob:
    now = world.clock.now()
    known = RequeuedJob(job_id="j", sent_at=now, items=4, items_done=2, at=now)
    world.table.write(Write(key=KEY, set=encode(known)))
    return known


@pytest.mark.parametrize("within", [None, DAY])
def test_a_released_job_is_remembered_with_or_without_deadline(
    within: timedelta | None,
) -> None:
    world = a_world(within)
    sent_at = world.clock.now()
    world.send(JOB)
    world.clock.advance(MINUTE)
    held = world.hold()
    claimed_at = world.clock.now()
    world.clock.advance(MINUTE)

    requeued(world, held, 2)

    assert held.lease.sent_at == sent_at
    assert held.manifest.sent_at == (None if within is None else sent_at)
    known = due(world)
    assert known == held.lease.requeued(2, world.clock.now())
    assert known is not None
    assert (known.sent_at, known.items, known.items_done) == (sent_at, 4, 2)
    assert known.at - claimed_at == MINUTE


@pytest.mark.parametrize("within", [None, DAY])
def test_a_new_claim_forgets_the_requeued_job_and_resumes_it(
    within: timedelta | None,
) -> None:
    world = a_world(within)
    requeued(world, world.hold(JOB), 2)
    assert due(world) is not None

    held = world.hold(slot_id=a_slot_id("i-2"))

    assert due(world) is None
    assert (held.lease.first_item, held.lease.items_done) == (2, 2)


@pytest.mark.parametrize(
    ("within", "epoch", "rows"), [(DAY, 0, 2), (DAY, 1, 3), (None, 0, 2), (None, 1, 3)]
)
def test_only_a_claim_that_may_find_it_there_writes_a_row_more(
    within: timedelta | None, epoch: int, rows: int
) -> None:
    world = a_world(within)
    world.worker_row()
    if epoch:
        world.put_manifest(epoch=epoch, released=True)
    world.send(JOB)
    written: list[int] = []

    def count(call: PortCall) -> None:
        if call.method == "transact":
            written.append(len(call.args[0]))

    world.before = count
    world.hold()

    assert written == [rows]


def test_a_copy_of_its_message_does_not_give_a_job_more_time() -> None:
    world = a_world()
    sent_at = world.clock.now()
    requeued(world, world.hold(JOB), 2)
    message = world.receive()
    assert message is not None
    world.queue.delete(message.receipt_handle)
    world.clock.advance(MINUTE)
    world.send(JOB)

    held = world.hold()

    assert (held.message.sent_at, held.manifest.sent_at) == (sent_at + MINUTE, sent_at)
    assert held.lease.sent_at == sent_at


@pytest.mark.parametrize(("parent", "is_parents"), [
    (replace(PARENT, sent_at=LONG_AGO), True),
    (PARENT, False),
    (None, False),
    (replace(PARENT, schema=3), False),
])  # fmt: skip
def test_a_part_of_a_split_job_has_the_time_of_the_whole(
    parent: Manifest | None, is_parents: bool
) -> None:
    world = a_world()
    if parent is not None:
        world.objects.put(manifest_key("p"), encode_manifest(parent))
    sent_at = world.clock.now()
    data, child = encode_stored(replace(parse_job(json.dumps(JOB)), parent="p"))
    world.objects.put(stored_key(child.job_id or "", child.stored or ""), data)
    world.send(encode_job(child))

    assert world.hold().manifest.sent_at == (LONG_AGO if is_parents else sent_at)


@pytest.mark.parametrize(("claimed_with", "told", "known"), [(0, 0, 0), (0, 9, 9), (4, 9, 4)])
def test_a_heartbeat_tells_the_item_count_a_claim_did_not_know(
    claimed_with: int, told: int, known: int
) -> None:
    world = a_world()
    held = world.hold(JOB)
    lease = replace(held.lease, items=claimed_with)
    world.table.write(Write(key=a_slot_id().lease_key, set=encode(lease)))
    more: dict[str, Any] = {"items": told} if told else {}

    extended = extend_lease(
        lease, items_done=1, slot_id=a_slot_id(), ports=world.ports, policy=world.policy, **more
    )

    assert extended.items == known


def test_a_claim_does_not_know_items_that_are_read_after_it() -> None:
    world = a_world()
    world.sources["s3://inputs/list.jsonl"] = b'"a"\n"b"\n"c"\n'

    assert world.hold({"job_id": "j", "items_uri": "s3://inputs/list.jsonl"}).lease.items == 0


def test_what_an_instance_held_that_is_gone_is_remembered() -> None:
    world = a_world()
    held = world.hold(JOB)
    ledger = Ledger(world.table, WORKLOAD)
    ledger.write(ledger.change(lease_sort_key("i-1", 0), {"items_done": 3}))
    lease, now = replace(held.lease, items_done=3), world.clock.now()

    free_leases((lease,), ledger, world.queue, now=now)

    assert due(world) == lease.requeued(3, now)


def test_a_job_finished_by_another_is_forgotten_for_its_first() -> None:
    world = a_world()
    silent = world.hold(JOB).lease
    world.clock.advance(world.policy.lease_duration + MINUTE)
    held = world.hold(slot_id=a_slot_id("i-2"))
    held = commit(held, a_portion(held), slot_id=a_slot_id("i-2"), ports=world.ports)
    complete(held, slot_id=a_slot_id("i-2"), worker_row=world.worker_row("i-2"), ports=world.ports)

    free_leases((silent,), Ledger(world.table, WORKLOAD), world.queue, now=world.clock.now())

    assert world.manifest("j").state is JobState.COMPLETED
    assert due(world) is None


@pytest.mark.parametrize("end", ["completed", "given up by its owner", "lost once too often"])
def test_a_job_over_when_received_again_is_not_remembered(end: str) -> None:
    world = a_world()
    held = world.hold(JOB)
    silent = held.lease
    if end == "completed":
        commit(held, a_portion(held), slot_id=a_slot_id(), ports=world.ports)
    elif end == "given up by its owner":
        settle_rejection(held, "it is no good", ports=world.ports)
    else:
        world.policy = replace(world.policy, max_failures=1)
    world.clock.advance(world.policy.lease_duration + MINUTE)
    assert isinstance(world.claim(a_slot_id("i-2")), Declined)

    free_leases((silent,), Ledger(world.table, WORKLOAD), world.queue, now=world.clock.now())

    assert world.manifest("j").state in {JobState.COMPLETED, JobState.FAILED}
    assert due(world) is None


def test_a_completed_job_s_owner_clears_its_own_lease() -> None:
    world = a_world()
    held = world.hold(JOB)
    held = commit(held, a_portion(held), slot_id=a_slot_id(), ports=world.ports)
    world.queue.extend(held.lease.receipt_handle, timedelta(0))

    assert isinstance(world.claim(a_slot_id("i-2")), Declined)

    assert world.lease() == held.lease
    complete(held, slot_id=a_slot_id(), worker_row=world.worker_row(), ports=world.ports)
    assert world.lease() is None


def test_a_job_cancelled_while_it_waits_is_forgotten() -> None:
    world = a_world()
    requeued(world, world.hold(JOB), 2)
    assert due(world) is not None

    list(cancel(WORKLOAD, ["j"], world.ports))

    assert due(world) is None


@pytest.mark.parametrize(
    ("state", "outcome"),
    [
        (JobState.COMPLETED, ClaimOutcome.OVER),
        (JobState.CANCELLED, ClaimOutcome.OVER),
        (JobState.FAILED, ClaimOutcome.DEAD_LETTERED),
    ],
)
def test_a_finished_job_is_forgotten_when_its_message_returns(
    state: JobState, outcome: ClaimOutcome
) -> None:
    world = a_world()
    world.put_manifest(state=state)
    remember(world)
    world.send(JOB)

    declined = world.claim()

    assert isinstance(declined, Declined)
    assert declined.outcome is outcome
    assert due(world) is None


def test_a_claim_that_fails_leaves_what_is_remembered() -> None:
    world = a_world()
    requeued(world, world.hold(JOB), 2)
    known = due(world)
    world.worker_row("i-2")
    world.change_worker("i-2", state="condemned")

    declined = world.claim(a_slot_id("i-2"))

    assert isinstance(declined, Declined)
    assert declined.outcome is ClaimOutcome.CONDEMNED
    assert known is not None
    assert due(world) == known


def test_a_job_that_is_put_back_stays_remembered() -> None:
    world = a_world()
    now = world.clock.now()
    failure = Failure(at=now, instance_id="i-1", epoch=1, kind="failure", reason="bad")
    world.put_manifest(owner="i-1/0", released=True, failures=(failure,))
    known = remember(world)
    world.send(JOB)

    declined = world.claim()

    assert isinstance(declined, Declined)
    assert declined.outcome is ClaimOutcome.PUT_BACK
    left = due(world)
    assert left is not None
    assert left.next_try_at is not None
    assert replace(left, next_try_at=None) == known


def test_a_worker_without_its_lease_row_leaves_nothing_behind() -> None:
    world = a_world()
    held = world.hold(JOB)
    others = replace(held.lease, job_id="k")
    world.table.write(Write(key=a_slot_id().lease_key, set=encode(others)))

    requeued(world, held, 2)

    assert due(world) is None
    assert world.lease() == others
