"""Failed items are sent again once, as jobs of their own, and no result changes."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from spindown.contract.job.batch import open_key, submitted_key
from spindown.contract.job.manifest import JobState
from spindown.contract.job.message import parse_job
from spindown.contract.job.result import ItemStatus
from spindown.error import BadInput, Unreachable
from spindown.job.cancel import cancel
from spindown.job.claimed_job import Finished
from spindown.job.commit import Portion, commit, complete
from spindown.job.lost_message import redrive_lost
from spindown.job.manifest_store import load_manifest, save_manifest
from spindown.job.redrive_item import send_failed_again
from spindown.job.submit import Draft, SendStage, Tell, submit_items
from spindown.memory import PortCall
from tests.work import WORKLOAD, WorkWorld, a_record, a_slot_id


def submit(world: WorkWorld, items: list[Any], **changes: Any) -> None:
    draft = Draft(workload=WORKLOAD, batch_id="b", items_per_job=3, **changes)
    submit_items(items, draft, queue=world.queue, store=world.objects)


def work_on(world: WorkWorld, is_good: Callable[[Any], bool]) -> None:
    """Complete the next job; items that are not good fail."""
    held = world.hold()
    statuses = {True: ItemStatus.OK, False: ItemStatus.FAILED}
    finished = tuple(
        Finished(record=a_record(held.job_id, n, item=item, status=statuses[is_good(item)]))
        for n, item in enumerate(held.job.items or ())
    )
    held = commit(held, Portion(finished=finished), slot_id=a_slot_id(), ports=world.ports)
    complete(held, slot_id=a_slot_id(), worker_row=world.worker_row(), ports=world.ports)


def work_off(world: WorkWorld, is_good: Callable[[Any], bool]) -> None:
    """Complete each job that waits; items that are not good fail."""
    while world.queue.backlog().visible:
        work_on(world, is_good)


def again(
    world: WorkWorld, name: str = "b", begun: Tell = lambda _batch, _stage: None
) -> tuple[str, ...]:
    return send_failed_again(
        name, WORKLOAD, queue=world.ports.queue, store=world.ports.objects, begun=begun
    ).jobs


def results(world: WorkWorld, *jobs: str) -> list[tuple[Any, str]]:
    return [(one.item, str(one.status)) for job in jobs for one in world.records(job)]


def test_only_failed_items_go_out_again_as_they_were_asked() -> None:
    world = WorkWorld()
    submit(world, list(range(5)), tenant="t", params={"w": "1"})
    work_off(world, lambda item: item not in {1, 4})

    jobs = again(world)

    (body,) = world.queue.bodies()
    job = parse_job(body)
    assert (job.items, job.tenant, job.params, job.batch_id) == ((1, 4), "t", {"w": "1"}, "b-again")
    work_off(world, lambda _: True)
    assert results(world, *jobs) == [(1, "ok"), (4, "ok")]
    assert dict(results(world, "b-00000", "b-00001")) == {
        0: "ok",
        1: "failed",
        2: "ok",
        3: "ok",
        4: "failed",
    }


def test_the_same_items_go_out_only_once() -> None:
    world = WorkWorld()
    submit(world, [0])
    work_off(world, lambda _: False)
    first = again(world)
    told: list[SendStage] = []

    assert again(world, begun=lambda _, stage: told.append(stage)) == first
    assert len(world.queue.bodies()) == 1
    work_off(world, lambda _: False)
    world.objects.delete(open_key("b-again"))
    assert again(world, begun=lambda _, stage: told.append(stage)) == first
    assert (world.queue.bodies(), told) == ([], [])
    # What fails again may go out again, under a name of its own.
    assert again(world, "b-again") == ("b-again-again-00000",)


@pytest.mark.parametrize("effect", ["before", "after"])
def test_a_call_that_was_broken_off_is_gone_on_with(effect: str) -> None:
    for point in range(4):
        world = WorkWorld()
        submit(world, list(range(7)))
        work_off(world, lambda _: False)
        # The index, the messages to keep, the mark, and the messages.
        setattr(world, effect, fail_at(point))
        with pytest.raises(Unreachable):
            again(world)
        setattr(world, effect, None)

        jobs = again(world)
        list(redrive_lost(WORKLOAD, world.ports, batches=["b-again"]))

        sent = [parse_job(body).items for body in world.queue.bodies()]
        assert sent == [(0, 1, 2), (3, 4, 5), (6,)]
        work_off(world, lambda _: True)
        assert results(world, *jobs) == [(item, "ok") for item in range(7)]


def fail_at(point: int) -> Callable[[PortCall], None]:
    """Return what fails at the write of this number."""
    writes = itertools.count()

    def fail(call: PortCall) -> None:
        if call.method in {"put", "send"} and next(writes) == point:
            raise Unreachable("no answer")

    return fail


@pytest.mark.parametrize("state", [None, JobState.RUNNING, JobState.FAILED])
def test_a_batch_of_which_more_items_may_fail_is_refused(state: JobState | None) -> None:
    world = WorkWorld()
    submit(world, list(range(6)))
    if state is None:
        world.hold()
    else:
        work_off(world, lambda _: False)
        fence = load_manifest("b-00001", world.objects)
        assert fence is not None
        save_manifest(replace(fence.manifest, state=state), fence.etag, world.ports)
    before = world.queue.bodies()

    with pytest.raises(BadInput):
        again(world)

    assert world.queue.bodies() == before


def test_what_was_cancelled_hinders_nothing() -> None:
    world = WorkWorld()
    submit(world, list(range(6)))
    work_on(world, lambda item: item not in {1, 4})
    list(cancel(WORKLOAD, ["b-00000", "b-00001"], world.ports))

    assert again(world) == ("b-again-00000",)


@pytest.mark.parametrize("name", ["nothing", "b"])
def test_a_batch_without_a_failed_item_is_refused(name: str) -> None:
    world = WorkWorld()
    submit(world, [0])
    work_off(world, lambda _: True)

    with pytest.raises(BadInput):
        again(world, name)


def test_large_items_are_cut_into_messages_that_hold_them() -> None:
    world = WorkWorld()
    large = [f"{n}" * 200_000 for n in range(4)]
    submit(world, large)
    work_off(world, lambda _: False)

    again(world)

    sent = [parse_job(body).items for body in world.queue.bodies()]
    assert [item for items in sent for item in items or ()] == large


@pytest.mark.parametrize("forged", [[0, 7], [0, 0], [{"s3": "s3://other/key"}, 1]])
def test_items_that_nobody_asked_for_are_not_sent(forged: list[Any]) -> None:
    world = WorkWorld()
    submit(world, [0, 1])
    held = world.hold()
    finished = tuple(
        Finished(record=a_record(held.job_id, n, item=item, status=ItemStatus.FAILED))
        for n, item in enumerate(forged)
    )
    held = commit(held, Portion(finished=finished), slot_id=a_slot_id(), ports=world.ports)
    complete(held, slot_id=a_slot_id(), worker_row=world.worker_row(), ports=world.ports)

    with pytest.raises(BadInput, match="b-00000"):
        again(world)

    assert world.queue.bodies() == []


def test_without_the_messages_nothing_is_guessed() -> None:
    world = WorkWorld()
    submit(world, [0])
    work_off(world, lambda _: False)
    world.objects.expire("submitted/")

    with pytest.raises(BadInput):
        again(world)

    assert world.queue.bodies() == []


def test_a_job_whose_message_is_stored_no_more_is_not_believed() -> None:
    world = WorkWorld()
    submit(world, list(range(6)))
    work_off(world, lambda _: False)
    key = submitted_key("b", 0)
    first, _ = world.objects.get(key).data.splitlines()
    world.objects.put(key, first)

    with pytest.raises(BadInput, match="b-00001"):
        again(world)

    assert world.queue.bodies() == []
