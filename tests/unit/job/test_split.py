"""A large job is split into children once, however often somebody crashes."""

import json
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from spindown.contract.codec import encode, to_json
from spindown.contract.job.manifest import JobState
from spindown.contract.job.message import (
    JobMessage,
    encode_job,
    encode_stored,
    stored_key,
    stored_prefix,
)
from spindown.domain.policy import JobNeeds, JobType, Policy
from spindown.domain.reason import ReasonCode
from spindown.domain.shape import Sized
from spindown.error import Unreachable
from spindown.job.cancel import cancel
from spindown.job.claim import ClaimOutcome, Declined
from spindown.job.claimed_job import ClaimedJob
from spindown.job.commit import commit, complete
from spindown.job.item import settle_items
from spindown.job.message import SIZED
from spindown.job.result import read_progress
from spindown.job.split import is_too_large, split
from spindown.memory import MemoryClock, MemoryJobQueue
from spindown.memory.interception import PortCall
from spindown.port import Outgoing
from tests.unit.job.listed import a_world, conflict
from tests.work import WORKLOAD, WorkWorld, a_portion, a_slot_id, items


@pytest.mark.parametrize(
    "source",
    [
        {"items": items(10)},
        {"items_uri": "s3://inputs/list.jsonl"},
        {"prefix_uri": "s3://inputs/images/"},
    ],
    ids=lambda source: next(iter(source)),
)
def test_children_of_a_large_job_hold_every_item_once(source: dict[str, Any]) -> None:
    world = a_world()
    do_split(world, {"job_id": "p", **source, "params": {"size": 64}, "batch_id": "b"})
    parent = world.manifest("p")
    assert (parent.state, parent.released, parent.items) == (JobState.SPLIT, True, 10)
    assert parent.finished_at == world.clock.now()
    assert parent.children == ("p.00000", "p.00001", "p.00002")
    found = work_off(world)
    assert sorted(found) == ["p.00000", "p.00001", "p.00002"]
    assert [len(found[child]) for child in sorted(found)] == [3, 3, 4]
    assert [i for child in sorted(found) for i in found[child]] == expected(source)
    child = world.manifest("p.00001")
    assert (child.parent, child.batch_id) == ("p", "b")


@pytest.mark.parametrize("effect", ["before", "after"])
def test_a_crash_at_any_call_neither_loses_nor_doubles_an_item(effect: str) -> None:
    whole = a_world()
    points: list[PortCall] = []
    setattr(whole, effect, points.append)
    do_split(whole, {"job_id": "p", "items_uri": "s3://inputs/list.jsonl"})
    assert len(points) > 10
    for k in range(len(points)):
        world = a_world()
        crash_at(world, k, effect)
        with pytest.raises(Unreachable, match="crash"):
            do_split(world, {"job_id": "p", "items_uri": "s3://inputs/list.jsonl"})
        world.before = world.after = None
        world.clock.advance(2 * world.policy.lease_duration)
        found = work_off(world)
        assert sorted(found) == ["p.00000", "p.00001", "p.00002"], k
        assert [i for child in sorted(found) for i in found[child]] == items(10), k


def test_goes_on_with_a_split_begun_under_another_policy() -> None:
    world = a_world()
    crash_at_method(world, "send")
    with pytest.raises(Unreachable):
        do_split(world, {"job_id": "p", "items": items(10)})
    world.before = None
    world.policy = Policy(max_items_per_job=1000)
    world.clock.advance(2 * world.policy.lease_duration)
    assert sorted(work_off(world)) == ["p.00000", "p.00001", "p.00002"]
    assert len(list(world.objects.list(stored_prefix("p.00001")))) == 1, "both store the same"


def test_repeats_writes_that_meet_others_under_way() -> None:
    world = a_world()
    _, child = encode_stored(JobMessage(items=tuple(items(10)[3:6]), job_id="p.00001", parent="p"))
    world.before = conflict(stored_key("p.00001", child.stored or ""), times=2)

    do_split(world, {"job_id": "p", "items": items(10)})

    world.before = None
    assert sorted(work_off(world)) == ["p.00000", "p.00001", "p.00002"]


def test_a_job_sent_under_a_child_s_id_does_not_pass_for_it() -> None:
    world = a_world()
    world.send({"job_id": "p.00001", "items": ["another"]})
    declined = world.claim()
    assert isinstance(declined, Declined)
    assert declined.outcome is ClaimOutcome.MALFORMED
    letter = world.dead_letters.receive(wait=timedelta(0), visibility=timedelta(minutes=1))
    assert letter is not None
    assert "message.job_id is 'p.00001'" in letter.attributes["reason"]

    do_split(world, {"job_id": "p", "items": items(10)})

    found = work_off(world)
    assert [i for child in sorted(found) for i in found[child]] == items(10)


@pytest.mark.parametrize("params", [{}, {"evil": 1}])
def test_a_child_named_before_its_split_does_not_keep_it_out(params: dict[str, Any]) -> None:
    world = a_world()
    share = tuple(items(10)[3:6])
    body = JobMessage(items=share, job_id="p.00001", parent="p", params=params)
    _, child = encode_stored(body)
    world.send(encode_job(child))
    declined = world.claim()
    assert isinstance(declined, Declined)
    assert declined.code is ReasonCode.BODY_NOT_STORED

    do_split(world, {"job_id": "p", "items": items(10)})
    # Of the very body that the split has stored it is a second message; of another it is nothing.
    world.send(encode_job(child))

    found = work_off(world)
    assert [i for child in sorted(found) for i in found[child]] == items(10)
    assert len(world.dead_letters.bodies()) == (2 if params else 1)


def test_a_child_cancelled_before_its_claim_is_its_parent_s() -> None:
    world = a_world()
    do_split(world, {"job_id": "p", "items": items(10)})
    list(cancel(WORKLOAD, ["p.00001"], world.ports))

    assert sorted(work_off(world)) == ["p.00000", "p.00002"]
    assert world.dead_letters.bodies() == []
    assert read_progress("p", world.objects).state is JobState.CANCELLED


def expected(source: dict[str, Any]) -> list[str]:
    if "prefix_uri" in source:
        return [f"s3://inputs/images/{n}.png" for n in range(10, 20)]
    return list(items(10))


def do_split(world: WorkWorld, body: dict[str, Any]) -> None:
    world.send(body)
    held = world.claim()
    assert isinstance(held, ClaimedJob)
    found = settle_items(held.job, world.ports)
    assert is_too_large(held, found, world.policy)
    held = split(held, found, ports=world.ports, policy=world.policy)
    complete(held, slot_id=a_slot_id(), worker_row=world.worker_row(), ports=world.ports)


def work_off(world: WorkWorld) -> dict[str, list[Any]]:
    """Work until the queue is empty; return the items of each job that was completed."""
    slot_id = replace(a_slot_id("i-2"), workload=WORKLOAD)
    found: dict[str, list[Any]] = {}
    while world.queue.bodies():
        message = world.receive()
        if message is None:
            world.clock.advance(world.policy.lease_duration)
            continue
        held = world.claim_message(message, slot_id)
        if isinstance(held, Declined):
            continue
        settled = settle_items(held.job, world.ports)
        worker_row = world.worker_row("i-2")
        if is_too_large(held, settled, world.policy):
            held = split(held, settled, ports=world.ports, policy=world.policy)
            complete(held, slot_id=slot_id, worker_row=worker_row, ports=world.ports)
            continue
        held = held.with_items(len(settled))
        assert held.job_id not in found
        held = commit(held, a_portion(held), slot_id=slot_id, ports=world.ports)
        complete(held, slot_id=slot_id, worker_row=worker_row, ports=world.ports)
        found[held.job_id] = list(settled)
    return found


def crash_at(world: WorkWorld, k: int, effect: str) -> None:
    seen = iter(range(k + 1))

    def crash(call: PortCall) -> None:
        # Once dead, a process makes no further call.
        if next(seen, None) in {k, None}:
            raise Unreachable("crash")

    setattr(world, effect, crash)


def crash_at_method(world: WorkWorld, method: str) -> None:
    def crash(call: PortCall) -> None:
        if call.method == method:
            raise Unreachable("crash")

    world.before = crash


def test_a_child_keeps_its_parent_s_parameters_and_tenant() -> None:
    world = WorkWorld(policy=replace(WorkWorld().policy, max_items_per_job=2))
    job = {"job_id": "j", "items": items(3), "params": {"width": 16}, "tenant": "t"}
    held = world.hold(job)
    held = split(held, items(3), ports=world.ports, policy=world.policy)
    complete(held, slot_id=a_slot_id(), worker_row=world.worker_row(), ports=world.ports)

    child = world.hold()

    assert (child.job.params, child.job.tenant, child.message.tenant) == ({"width": 16}, "t", "t")
    assert (child.manifest.parent, child.manifest.tenant) == ("j", "t")


def test_a_child_fits_where_its_parent_was_sent_by_size() -> None:
    usual = JobNeeds(memory_gib=16)
    policy = Policy(max_items_per_job=2, types=(JobType(name="t", needs=usual),))
    world, entry = WorkWorld(policy=policy), MemoryJobQueue(MemoryClock(), Random(3), name="entry")
    world.ports = replace(world.ports, queue_of=lambda _: entry)
    learned = to_json(encode(Sized(of=usual, needs=JobNeeds(memory_gib=8))))
    body = json.dumps({"job_id": "j", "items": items(3), "type": "t"})
    world.queue.send([Outgoing(body=body, attributes={SIZED: learned})])
    slot_id = a_slot_id(shape="c0m8")
    held = world.hold(slot_id=slot_id)
    held = split(held, items(3), ports=world.ports, policy=policy)
    complete(held, slot_id=slot_id, worker_row=world.worker_row(), ports=world.ports)

    child = world.hold(slot_id=slot_id)

    assert (child.manifest.parent, child.manifest.sized) == ("j", held.manifest.sized)
    assert entry.bodies() == []
