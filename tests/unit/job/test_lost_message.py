"""Jobs whose messages are gone are found by their batch, and sent again."""

import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.contract.job.batch import batch_key, name_job, submitted_key
from spindown.contract.job.manifest import JobState, Manifest, encode_manifest, manifest_key
from spindown.contract.job.message import child_id
from spindown.error import NotFound
from spindown.job.claim import ClaimOutcome, Declined
from spindown.job.claimed_job import ClaimedJob
from spindown.job.commit import commit, complete
from spindown.job.item import settle_items
from spindown.job.lost_message import count_lost, redrive_lost
from spindown.job.redrive import RedriveOutcome
from spindown.job.release import dead_letter_job, settle_rejection
from spindown.job.result import find_jobs
from spindown.job.split import is_too_large, split
from spindown.job.submit import Draft, submit_items
from spindown.memory import PortCall, intercept
from spindown.port import Message, Outgoing
from tests.work import WORKLOAD, WorkWorld, a_portion, a_slot_id, items

HOUR = timedelta(hours=1)


def submitted(count: int, *, per_job: int = 1, ago: timedelta = HOUR, **changes: Any) -> WorkWorld:
    """Return a world to which a batch ``b`` was submitted a while ago."""
    world = WorkWorld(**changes)
    draft = Draft(workload=WORKLOAD, batch_id="b", items_per_job=per_job, params={"size": 3})
    submit_items(items(count), draft, queue=world.queue, store=world.objects)
    world.clock.advance(ago)
    return world


def purge(world: WorkWorld) -> None:
    """Delete every message, as a purge of the queue does."""
    world.clock.advance(timedelta(hours=12))
    while message := world.receive():
        world.queue.delete(message.receipt_handle)


def lost(world: WorkWorld, batch: str | None = None, reads_at_most: int = 1000) -> int:
    return count_lost(
        WORKLOAD,
        objects=world.ports.objects,
        queues=[world.queue, world.ports.dead_letters],
        table=world.table,
        now=world.clock.now(),
        reads_at_most=reads_at_most,
        batch=batch,
    )


def sent_again(world: WorkWorld, *batches: str) -> list[str]:
    found = list(redrive_lost(WORKLOAD, world.ports, batches=batches))
    assert {one.outcome for one in found} <= {RedriveOutcome.SENT_AGAIN}
    return sorted(one.job_id or "" for one in found)


def work_off(world: WorkWorld, count: int = 1000) -> int:
    """Complete up to so many jobs; return how many there were."""
    done = 0
    while done < count and (message := world.receive()):
        held = world.claim_message(message)
        if isinstance(held, Declined):
            assert held.outcome is ClaimOutcome.OVER
            continue
        values = settle_items(held.job, world.ports)
        if is_too_large(held, values, world.policy):
            held = split(held, values, ports=world.ports, policy=world.policy)
        else:
            held = held.with_items(len(values))
            held = commit(held, a_portion(held), slot_id=a_slot_id(), ports=world.ports)
        complete(held, slot_id=a_slot_id(), worker_row=world.worker_row(), ports=world.ports)
        done += 1
    return done


def test_a_purged_queue_strands_no_job() -> None:
    world = submitted(40)
    assert lost(world) == 0
    assert work_off(world, 8) == 8
    purge(world)
    assert (lost(world), world.queue.bodies()) == (32, [])

    assert len(sent_again(world)) == 32

    assert lost(world) == 0
    assert sent_again(world) == []
    assert work_off(world) == 32
    states = {world.manifest(job).state for job in find_jobs("b", world.objects)}
    assert states == {JobState.COMPLETED}
    assert all(world.manifest(job).items == 1 for job in find_jobs("b", world.objects))


@given(st.sets(st.integers(0, 9)), st.integers(0, 10))
def test_only_what_is_gone_is_sent_again(gone: set[int], done: int) -> None:
    world = submitted(10)
    over = work_off(world, done)
    jobs = list(find_jobs("b", world.objects))
    deleted = set()
    while message := world.receive():
        job = next(job for job in jobs if f'"{job}"' in message.body)
        if jobs.index(job) in gone:
            world.queue.delete(message.receipt_handle)
            deleted.add(job)
    world.clock.advance(HOUR)

    assert lost(world) == len(deleted)
    assert sent_again(world) == sorted(deleted)
    assert work_off(world) == 10 - over


def test_another_batch_has_lost_nothing() -> None:
    world = submitted(4)
    purge(world)
    draft = Draft(workload=WORKLOAD, batch_id="c", items_per_job=1)
    submit_items(items(3), draft, queue=world.queue, store=world.objects)
    world.clock.advance(HOUR)

    found = [lost(world, name) for name in ("b", "c", "d")]

    # The three messages might be of the first batch, so only one of its jobs surely has none.
    assert found == [1, 0, 0]
    assert lost(world) == 4


def test_what_is_held_or_given_up_is_not_lost() -> None:
    world = submitted(2)
    failed = settle_rejection(world.hold(), "no such model", ports=world.ports)
    dead_letter_job(failed, slot_id=a_slot_id(), worker_row=world.worker_row(), ports=world.ports)
    held = world.claim(a_slot_id("i-2"))
    assert isinstance(held, ClaimedJob)

    assert (lost(world), sent_again(world)) == (0, [])


def test_a_job_that_was_begun_goes_on_where_it_was() -> None:
    world = submitted(4, per_job=4)
    held = world.hold()
    commit(held, a_portion(held, 2), slot_id=a_slot_id(), ports=world.ports)
    purge(world)

    assert len(sent_again(world)) == 1

    taken = world.hold(slot_id=a_slot_id("i-2"))
    assert (taken.manifest.next_item, taken.manifest.epoch) == (2, 2)
    assert taken.job.params == {"size": 3}


def test_children_of_a_split_job_are_sent_again() -> None:
    policy = replace(WorkWorld().policy, max_items_per_job=2)
    world = submitted(5, per_job=5, policy=policy)
    assert work_off(world, 2) == 2
    purge(world)
    assert lost(world) == 2

    children = sent_again(world)
    assert len(children) == 2
    assert set(children) < {f"b-00000.0000{number}" for number in range(3)}

    held = world.hold(slot_id=a_slot_id("i-2"))
    assert held.job.params == {"size": 3}
    world.clock.advance(HOUR)
    assert work_off(world) == 2
    assert lost(world) == 0


def test_a_submit_under_way_is_not_taken_for_lost() -> None:
    world = submitted(3, ago=timedelta(minutes=10))
    for message in iter(world.receive, None):
        world.queue.delete(message.receipt_handle)
    assert (lost(world), sent_again(world)) == (0, [])
    # Whoever names the batch knows.
    assert len(sent_again(world, "b")) == 3


def test_what_was_never_stored_is_told() -> None:
    world = submitted(2)
    world.objects.put(submitted_key("b", 0), b"")
    purge(world)

    outcomes = [one.outcome for one in redrive_lost(WORKLOAD, world.ports)]

    assert outcomes == [RedriveOutcome.NOT_STORED] * 2


def test_a_damaged_index_hides_no_other_batch() -> None:
    world = submitted(2)
    world.objects.put(batch_key("a"), b"{")
    world.clock.advance(HOUR)
    purge(world)

    assert lost(world) == 2
    outcomes = [one.outcome for one in redrive_lost(WORKLOAD, world.ports)]

    assert sorted(outcomes) == [*[RedriveOutcome.SENT_AGAIN] * 2, RedriveOutcome.UNREADABLE]


def put_index(world: WorkWorld, name: str, jobs: int, more: str = "") -> None:
    """Write an index of jobs that nobody has sent, as whoever submits may."""
    names = [name_job(name, number) for number in range(jobs)]
    index = {"batch_id": name, "workload": WORKLOAD, "jobs": names, "more": more}
    world.objects.put(batch_key(name), json.dumps(index).encode())


def put_split(world: WorkWorld, job_id: str, children: int) -> None:
    names = tuple(child_id(job_id, number) for number in range(children))
    split_one = Manifest(job_id=job_id, epoch=1, owner="", state=JobState.SPLIT, children=names)
    world.objects.put(manifest_key(job_id), encode_manifest(split_one))


@pytest.mark.parametrize("forged", ["jobs", "batches", "children", "grandchildren"])
def test_a_count_reads_no_more_than_it_may(forged: str) -> None:
    world = WorkWorld()
    put_index(world, "b", 3000 if forged == "jobs" else 1)
    if forged == "batches":
        for number in range(3000):
            put_index(world, f"c{number}", 0)
    if forged in {"children", "grandchildren"}:
        put_split(world, "b-00000", 3000)
    if forged == "grandchildren":
        for number in range(3000):
            put_split(world, child_id("b-00000", number), 50)
    world.clock.advance(HOUR)
    world.calls.clear()

    found = lost(world, reads_at_most=100)

    assert found == {"jobs": 99, "children": 98}.get(forged, 0)
    assert world.calls["objects.get"] == 100


def test_what_is_left_of_a_large_batch_is_counted() -> None:
    world = WorkWorld()
    put_index(world, "b", 40)
    for number in range(30):
        over = Manifest(job_id=f"b-{number}", epoch=1, owner="", state=JobState.COMPLETED)
        world.objects.put(manifest_key(over.job_id), encode_manifest(over))
    world.clock.advance(HOUR)

    assert lost(world, reads_at_most=11) == 10


@pytest.mark.parametrize("large", ["index", "manifest"])
def test_a_count_downloads_nothing_too_large(large: str) -> None:
    world = submitted(2)
    purge(world)
    text = "x" * 5_000_000
    put_index(world, "c", 1, text if large == "index" else "")
    huge = Manifest(job_id="c-00000", epoch=1, owner="", state=JobState.RUNNING, reason=text)
    world.objects.put(manifest_key("c-00000"), encode_manifest(huge))
    world.clock.advance(HOUR)
    world.calls.clear()

    assert lost(world) == 2
    # The indices that may be read, and the manifests of their jobs.
    assert world.calls["objects.get"] == (3 if large == "index" else 5)


def test_damaged_versions_without_end_are_read_once() -> None:
    world = submitted(1)
    purge(world)
    for number in range(50):
        world.objects.put(manifest_key("b-00000"), f"{number}".encode())
    world.calls.clear()

    assert lost(world) == 0
    assert (world.calls["objects.get"], world.calls["objects.versions"]) == (2, 0)


def test_splits_without_end_hide_no_other_job() -> None:
    world = submitted(2)
    purge(world)
    job_id = "b-00000"
    for _ in range(1200):
        put_split(world, job_id, 1)
        job_id = child_id(job_id, 0)

    assert lost(world) == 1
    found = list(redrive_lost(WORKLOAD, world.ports))

    assert [one.outcome for one in found] == [RedriveOutcome.UNREADABLE, RedriveOutcome.SENT_AGAIN]
    assert ".00000.00000" in found[0].reason


def test_a_line_that_is_no_message_hides_no_other_batch() -> None:
    world = submitted(1)
    put_index(world, "a", 1)
    world.objects.put(submitted_key("a", 0), b"x" * 2**20 + b"x\n")
    purge(world)
    world.clock.advance(HOUR)

    found = {one.job_id: one.outcome for one in redrive_lost(WORKLOAD, world.ports)}

    assert found == {"a-00000": RedriveOutcome.NOT_STORED, "b-00000": RedriveOutcome.SENT_AGAIN}


def test_no_body_is_kept_of_what_is_looked_at() -> None:
    world = submitted(2)
    for _ in range(40):
        body = json.dumps({"job_id": "other", "items": ["x" * 1_000_000]})
        world.queue.send([Outgoing(body=body)])

    def receive_anew(call: PortCall, proceed: Callable[[], Any]) -> Any:
        found = proceed()
        return replace(found, body=f"{found.body} ") if isinstance(found, Message) else found

    ports = replace(world.ports, queue=intercept(world.queue, "queue", receive_anew))
    tracemalloc.start()

    assert list(redrive_lost(WORKLOAD, ports)) == []

    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 12 * 1024**2
    assert world.queue.backlog().visible == 42


def test_a_batch_that_is_not_there_is_an_error() -> None:
    with pytest.raises(NotFound):
        sent_again(WorkWorld(), "b")
