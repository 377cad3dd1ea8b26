"""A batch is followed: each result once, in order or as it comes, and what is lost is told."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from typing import Any

import pytest

from spindown.contract.job.batch import Batch
from spindown.contract.job.manifest import JobState, decode_manifest, encode_manifest, manifest_key
from spindown.contract.job.message import child_id
from spindown.error import ContractError, Unreachable
from spindown.job.cancel import cancel
from spindown.job.claim import Declined
from spindown.job.claimed_job import ClaimedJob
from spindown.job.commit import commit, complete
from spindown.job.item import settle_items
from spindown.job.split import is_too_large, split
from spindown.job.submit import Draft, submit_items
from spindown.memory.interception import PortCall
from spindown.operate.result_stream import CommittedItem, LostItems, stream_results
from tests.work import WORKLOAD, WorkWorld, a_portion, a_slot_id, items


def submitted(world: WorkWorld, count: int, per_job: int) -> Batch:
    draft = Draft(workload=WORKLOAD, batch_id="b", items_per_job=per_job)
    return submit_items(items(count), draft, queue=world.queue, store=world.objects)


def claimed(world: WorkWorld, job_id: str) -> ClaimedJob:
    """Claim messages until one is of this job; the others are put back."""
    others = []
    while True:
        message = world.receive()
        assert message is not None
        if f'"{job_id}"' in message.body:
            break
        others.append(message)
    for other in others:
        world.queue.extend(other.receipt_handle, timedelta(0))
    held = world.claim_message(message)
    assert not isinstance(held, Declined)
    return held


def begin(world: WorkWorld, job_id: str) -> ClaimedJob:
    held = claimed(world, job_id)
    return held.with_items(len(settle_items(held.job, world.ports)))


def do(world: WorkWorld, held: ClaimedJob, count: int | None = None) -> ClaimedJob:
    held = commit(held, a_portion(held, count), slot_id=a_slot_id(), ports=world.ports)
    if count is None:
        complete(held, slot_id=a_slot_id(), worker_row=world.worker_row(), ports=world.ports)
    return held


def found(stream: Iterator[CommittedItem | LostItems | None]) -> list[int | None]:
    """Return the places of what comes until nothing new does, or the end."""
    seen: list[int | None] = []
    for one in stream:
        if one is None:
            break
        seen.append(one.position)
    return seen


def test_in_order_each_result_comes_once_as_it_is_committed() -> None:
    world = WorkWorld()
    batch = submitted(world, 5, per_job=2)
    stream = stream_results(batch, world.ports.objects, in_order=True)
    assert found(stream) == []

    do(world, begin(world, "b-00001"))
    first = do(world, begin(world, "b-00000"), count=1)
    assert found(stream) == [0]
    assert found(stream) == []

    do(world, first)
    do(world, begin(world, "b-00002"))
    assert found(stream) == [1, 2, 3, 4]
    assert next(stream, "over") == "over"


def test_in_any_order_a_later_job_comes_first() -> None:
    world = WorkWorld()
    batch = submitted(world, 5, per_job=2)
    stream = stream_results(batch, world.ports.objects, in_order=False)

    do(world, begin(world, "b-00002"))
    assert found(stream) == [4]
    first = do(world, begin(world, "b-00000"), count=1)
    assert found(stream) == [0]
    do(world, first)
    do(world, begin(world, "b-00001"))
    assert found(stream) == [1, 2, 3]


@pytest.mark.parametrize("in_order", [True, False], ids=["in order", "in any order"])
def test_a_job_that_was_split_gives_places_in_the_batch(in_order: bool) -> None:
    world = WorkWorld()
    world.policy = replace(world.policy, max_items_per_job=3)
    batch = submitted(world, 14, per_job=7)
    for job_id in batch.jobs:
        held = begin(world, job_id)
        values = settle_items(held.job, world.ports)
        assert is_too_large(held, values, world.policy)
        held = split(held, values, ports=world.ports, policy=world.policy)
        complete(held, slot_id=a_slot_id(), worker_row=world.worker_row(), ports=world.ports)
    for job_id in batch.jobs:
        for number in range(3):
            do(world, begin(world, f"{job_id}.{number:05d}"))

    stream = stream_results(batch, world.ports.objects, in_order=in_order)
    places = [one.position for one in stream if one is not None]

    assert sorted(places, key=str) == sorted(range(14), key=str)
    assert not in_order or places == list(range(14))


def test_what_a_job_has_not_done_is_told_when_it_is_given_up() -> None:
    world = WorkWorld()
    batch = submitted(world, 5, per_job=3)
    held = do(world, begin(world, "b-00000"), count=1)
    given_up = replace(held.manifest, state=JobState.FAILED, reason="it crashes")
    world.objects.put(manifest_key("b-00000"), encode_manifest(given_up))
    list(cancel(WORKLOAD, ["b-00001"], world.ports))

    given = [
        one for one in stream_results(batch, world.ports.objects, in_order=True) if one is not None
    ]

    done, failed, cancelled = given
    assert isinstance(done, CommittedItem)
    assert isinstance(failed, LostItems)
    assert isinstance(cancelled, LostItems)
    assert (failed.position, failed.count, failed.state) == (1, 2, JobState.FAILED)
    assert (cancelled.position, cancelled.count, cancelled.state) == (3, 2, JobState.CANCELLED)


def test_a_job_that_begins_anew_gives_no_item_twice() -> None:
    world = WorkWorld()
    batch = submitted(world, 3, per_job=3)
    held = do(world, begin(world, "b-00000"), count=2)
    stream = stream_results(batch, world.ports.objects, in_order=True)
    assert found(stream) == [0, 1]

    # As other code does that takes it over.
    anew = replace(world.manifest("b-00000"), parts=(), next_item=0)
    world.objects.put(manifest_key("b-00000"), encode_manifest(anew))
    assert found(stream) == []
    again = replace(held, manifest=anew, etag=world.objects.get(manifest_key("b-00000")).etag)
    do(world, again)
    assert found(stream) == [2]


def test_without_an_answer_it_asks_again() -> None:
    world = WorkWorld()
    batch = submitted(world, 1, per_job=1)
    do(world, begin(world, "b-00000"))

    def be_gone(call: PortCall) -> None:
        world.before = None
        raise Unreachable(call.method)

    world.before = be_gone
    stream = stream_results(batch, world.ports.objects, in_order=True)

    assert found(stream) == []
    assert found(stream) == [0]


def test_a_record_with_a_false_index_is_refused() -> None:
    world = WorkWorld()
    batch = submitted(world, 2, per_job=2)
    do(world, begin(world, "b-00000"))
    manifest = decode_manifest(world.objects.get(manifest_key("b-00000")).data)
    (part,) = manifest.parts
    data = world.objects.get(part.key).data.replace(b'"index":1', b'"index":0')
    world.objects.put(part.key, data)
    false = replace(part, sha256=hashlib.sha256(data).hexdigest())
    world.objects.put(manifest_key("b-00000"), encode_manifest(replace(manifest, parts=(false,))))

    with pytest.raises(ContractError):
        list(stream_results(batch, world.ports.objects, in_order=True))


def lie(world: WorkWorld, **told: Any) -> None:
    """Have the first job's manifest tell something else."""
    manifest = world.manifest("b-00000")
    world.objects.put(manifest_key("b-00000"), encode_manifest(replace(manifest, **told)))


def places_of(one: CommittedItem | LostItems) -> range:
    assert one.position is not None
    return range(one.position, one.position + (one.count if isinstance(one, LostItems) else 1))


CHILD = child_id("b-00000", 0)
CHILDREN = (CHILD, child_id("b-00000", 1), child_id("b-00000", 2))


@pytest.mark.parametrize("in_order", [True, False], ids=["in order", "in any order"])
@pytest.mark.parametrize(
    "told",
    [
        pytest.param({"parts": (), "next_item": 0, "items": 0}, id="nothing"),
        pytest.param({"parts": ()}, id="no part of what is done"),
        pytest.param({"parts": (), "items": None}, id="no number"),
        pytest.param({"items": 10**9}, id="a large number"),
        pytest.param({"parts": (), "state": JobState.SPLIT}, id="split into nothing"),
        pytest.param(
            {"parts": (), "state": JobState.SPLIT, "children": ("b-00001",)}, id="a foreign child"
        ),
        pytest.param(
            {"parts": (), "state": JobState.SPLIT, "children": (CHILD,)}, id="split into itself"
        ),
        pytest.param(
            {"parts": (), "state": JobState.SPLIT, "children": CHILDREN}, id="split beyond items"
        ),
        pytest.param(
            {"parts": (), "state": JobState.SPLIT, "children": CHILDREN[:2], "items": 10**9},
            id="split of a large number",
        ),
    ],
)
def test_each_place_has_one_outcome_whatever_a_manifest_says(
    in_order: bool, told: dict[str, Any]
) -> None:
    world = WorkWorld()
    batch = submitted(world, 6, per_job=2)
    for job_id in batch.jobs:
        do(world, begin(world, job_id))
    lie(world, **told)

    stream = stream_results(batch, world.ports.objects, in_order=in_order)
    given = [one for one in islice(stream, 100) if one is not None]

    assert sorted(place for one in given for place in places_of(one)) == list(range(6))
    assert [one.job_id for one in given if isinstance(one, LostItems)] == ["b-00000"]


@pytest.mark.parametrize("parts", [2, -1], ids=["more than its items", "with a gap"])
def test_parts_that_fit_no_items_are_not_read(parts: int) -> None:
    world = WorkWorld()
    batch = submitted(world, 6, per_job=2)
    for job_id in batch.jobs:
        do(world, begin(world, job_id))
    (part,) = world.manifest("b-00000").parts
    further = (part, replace(part, first=2, last=3)) if parts > 0 else (replace(part, first=1),)
    lie(world, parts=further)

    given = [
        one for one in stream_results(batch, world.ports.objects, in_order=True) if one is not None
    ]

    assert [list(places_of(one)) for one in given] == [[0, 1], [2], [3], [4], [5]]


def test_a_split_after_results_gives_none_of_them_again() -> None:
    world = WorkWorld()
    batch = submitted(world, 4, per_job=4)
    do(world, begin(world, "b-00000"), count=3)
    stream = stream_results(batch, world.ports.objects, in_order=True)
    assert found(stream) == [0, 1, 2]

    lie(world, parts=(), next_item=0, state=JobState.SPLIT, children=CHILDREN[:2])
    manifest = world.manifest("b-00000")
    for child in CHILDREN[:2]:
        own = replace(manifest, job_id=child, items=2, children=(), state=JobState.CANCELLED)
        world.objects.put(manifest_key(child), encode_manifest(own))

    (lost,) = [one for one in stream if one is not None]
    assert list(places_of(lost)) == [3]


def test_of_a_job_of_unknown_size_one_loss_is_told() -> None:
    world = WorkWorld()
    batch = replace(submitted(world, 2, per_job=2), items=None, items_per_job=None)
    begin(world, "b-00000")
    lie(world, state=JobState.FAILED, items=10**9)

    (lost,) = [
        one for one in stream_results(batch, world.ports.objects, in_order=True) if one is not None
    ]

    assert isinstance(lost, LostItems)
    assert lost.count == 1


@pytest.mark.parametrize("in_order", [True, False], ids=["in order", "in any order"])
@pytest.mark.parametrize(("room", "read"), [(10**6, 8), (0, 1)], ids=["room", "no room"])
def test_parts_are_read_ahead_as_far_as_there_is_room(in_order: bool, room: int, read: int) -> None:
    world = WorkWorld()
    batch = submitted(world, 8, per_job=2)
    for job_id in batch.jobs:
        held = do(world, begin(world, job_id), count=1)
        do(world, held)
    world.calls.clear()

    stream = stream_results(batch, world.ports.objects, in_order=in_order, ahead_bytes=room)
    assert next(stream) is not None
    # What was begun is waited for.
    del stream

    assert world.calls["objects.get"] == 4 + read
    again = stream_results(batch, world.ports.objects, in_order=in_order, ahead_bytes=room)
    assert len(list(again)) == 8


def test_what_gets_no_answer_amid_a_job_comes_later() -> None:
    world = WorkWorld()
    batch = submitted(world, 2, per_job=2)
    do(world, do(world, begin(world, "b-00000"), count=1))
    gone = world.manifest("b-00000").parts[1].key

    def be_gone(call: PortCall) -> None:
        if gone in call.args:
            raise Unreachable(call.method)

    world.before = be_gone
    stream = stream_results(batch, world.ports.objects, in_order=True)
    assert found(stream) == [0]
    world.before = None
    assert found(stream) == [1]


@pytest.mark.parametrize("in_order", [True, False], ids=["in order", "in any order"])
def test_a_look_at_a_large_batch_reads_few_manifests(in_order: bool) -> None:
    world = WorkWorld()
    batch = submitted(world, 500, per_job=1)
    stream = stream_results(batch, world.ports.objects, in_order=in_order)
    list(islice(stream, 1))

    world.calls.clear()
    list(islice(stream, 10))

    assert world.calls["objects.get"] <= (10 + 4 if in_order else 160)
