"""Giving a job back: visible at once, counted right, and never a second message."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from spindown.contract.job.manifest import JobState
from spindown.domain.fleet import WorkerState
from spindown.domain.policy import Policy
from spindown.domain.reason import Reason, ReasonCode
from spindown.error import LeaseLost
from spindown.job.claim import Declined
from spindown.job.claimed_job import ClaimedJob
from spindown.job.heartbeat import extend_lease
from spindown.job.release import (
    abandon,
    dead_letter_job,
    release,
    settle_failure,
    settle_rejection,
    settle_release,
)
from spindown.ledger import Ledger
from spindown.reason_text import say
from tests.work import WORKLOAD, WorkWorld, a_portion, a_slot_id, items

JOB = {"job_id": "j", "items": items(5)}


def test_makes_the_original_message_visible_at_once() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    held = settle_release(
        held,
        a_portion(held, 2),
        interrupted=True,
        slot_id=a_slot_id(),
        ports=world.ports,
        policy=Policy(),
    )
    release(
        held, slot_id=a_slot_id(), worker_row=world.worker_row(), ports=world.ports, policy=Policy()
    )
    assert world.queue.backlog().visible == 1
    assert world.lease() is None
    assert world.worker().state is WorkerState.IDLE
    taken = world.hold(slot_id=a_slot_id("i-2"))
    assert (taken.manifest.next_item, taken.manifest.interruptions) == (2, 1)
    assert taken.manifest.losses == 0


def test_a_job_given_back_for_later_says_when_it_comes() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    held = settle_release(
        held,
        a_portion(held, 2),
        interrupted=False,
        slot_id=a_slot_id(),
        ports=world.ports,
        policy=Policy(),
    )
    wait = timedelta(seconds=90)

    release(
        held,
        slot_id=a_slot_id(),
        worker_row=world.worker_row(),
        ports=world.ports,
        policy=Policy(),
        wait=wait,
    )

    view = Ledger(world.table, WORKLOAD).read()
    assert view.requeued_jobs["j"].next_try_at == world.clock.now() + wait
    assert world.queue.backlog().visible == 0


def test_a_job_left_to_others_says_when_it_comes() -> None:
    world = WorkWorld()
    fail(world, world.hold(JOB), "a crash")
    assert isinstance(world.claim(a_slot_id()), Declined)

    (job,) = Ledger(world.table, WORKLOAD).read().requeued_jobs.values()
    hidden = timedelta(seconds=60)
    assert job.failures == 1
    assert job.next_try_at is not None
    assert hidden <= job.next_try_at - world.clock.now() <= 1.5 * hidden
    assert world.queue.backlog().visible == 0
    world.clock.advance(job.next_try_at - world.clock.now())
    assert world.queue.backlog().visible == 1


def test_of_a_job_that_somebody_holds_no_try_is_noted() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    world.queue.extend(held.message.receipt_handle, timedelta(0))
    assert isinstance(world.claim(a_slot_id("i-2")), Declined)

    assert not Ledger(world.table, WORKLOAD).read().requeued_jobs


def test_releases_through_the_handle_that_was_left_in_the_row() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    world.queue.extend(held.message.receipt_handle, timedelta(0))
    assert isinstance(world.claim(a_slot_id("i-2")), Declined)
    assert world.queue.backlog().visible == 0
    release(
        held, slot_id=a_slot_id(), worker_row=world.worker_row(), ports=world.ports, policy=Policy()
    )
    assert world.queue.backlog().visible == 1


def test_a_release_that_finishes_the_job_completes_it() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    held = settle_release(
        held,
        a_portion(held),
        interrupted=True,
        slot_id=a_slot_id(),
        ports=world.ports,
        policy=Policy(),
    )
    assert held.manifest.state is JobState.COMPLETED


def test_keeps_what_was_done_before_a_failure() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    held = fail(world, held, "segmentation fault", done=2)
    assert held.manifest.next_item == 2
    assert held.manifest.state is JobState.RUNNING
    assert [(f.kind, f.reason) for f in held.manifest.failures] == [
        ("failure", "segmentation fault")
    ]
    taken = world.hold(slot_id=a_slot_id("i-2"))
    assert taken.manifest.epoch_first == 2


def test_fails_a_job_after_three_failures_on_two_instances() -> None:
    world = WorkWorld()
    world.send(JOB)
    for instance in ("i-1", "i-2"):
        held = world.hold(slot_id=a_slot_id(instance))
        held = fail(world, held, "bad input", instance=instance)
        assert held.manifest.state is JobState.RUNNING
    held = fail(world, world.hold(slot_id=a_slot_id("i-3")), "bad input", instance="i-3")
    assert held.manifest.state is JobState.FAILED
    letter = world.dead_letters.receive(wait=timedelta(0), visibility=timedelta(minutes=1))
    assert letter is not None
    verdict = Reason(ReasonCode.FAILED_ON_SEVERAL, {"failures": 3, "instances": 3})
    assert letter.attributes["reason"].startswith(say(verdict))
    assert letter.attributes["reason"].endswith("bad input")
    assert letter.attributes["log"] == "log/i-3"
    assert world.queue.bodies() == []
    assert world.lease_row("i-3/0") is None


def test_fails_a_job_after_five_failures_on_one_instance() -> None:
    world = WorkWorld()
    world.send(JOB)
    for _ in range(5):
        held = world.hold()
        held = fail(world, held, "bad input")
        world.clock.advance(timedelta(minutes=11))
    assert held.manifest.state is JobState.FAILED


def test_rejects_input_that_no_further_try_can_fix() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    held = settle_rejection(held, "s3://inputs/x is missing", ports=world.ports)
    dead_letter_job(held, slot_id=a_slot_id(), worker_row=world.worker_row(), ports=world.ports)
    manifest = world.manifest("j")
    assert (manifest.state, manifest.released) == (JobState.FAILED, True)
    assert manifest.finished_at == world.clock.now()
    [body] = world.dead_letters.bodies()
    assert json.loads(body)["job_id"] == "j"


def test_dead_letters_a_job_by_the_handle_left_in_the_row() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    world.queue.extend(held.message.receipt_handle, timedelta(0))
    assert isinstance(world.claim(a_slot_id("i-2")), Declined)
    held = settle_rejection(held, "s3://inputs/x is missing", ports=world.ports)

    dead_letter_job(held, slot_id=a_slot_id(), worker_row=world.worker_row(), ports=world.ports)

    assert world.queue.bodies() == []


def test_a_heartbeat_extends_the_row_and_the_message() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    lease = held.lease
    for minute in range(20):
        world.clock.advance(timedelta(minutes=1))
        lease = extend_lease(
            lease, items_done=minute, slot_id=a_slot_id(), ports=world.ports, policy=world.policy
        )
    assert world.queue.backlog().visible == 0
    assert lease.deadline == world.clock.now() + world.policy.lease_duration
    assert world.lease() == lease
    assert lease.items_done == 19


def test_a_heartbeat_never_extends_past_an_interruption() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    deadline = world.clock.now() + timedelta(minutes=2)
    world.worker_row().bound_lease(a_slot_id(), held.lease, deadline)
    lease = extend_lease(
        held.lease, items_done=0, slot_id=a_slot_id(), ports=world.ports, policy=world.policy
    )
    assert lease.deadline == deadline
    row = world.lease()
    assert row is not None
    assert row.deadline == deadline
    world.clock.advance_to(deadline)
    assert world.queue.backlog().visible == 1


def test_a_heartbeat_finds_out_that_the_lease_is_lost() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    later = replace(held.lease, epoch=held.lease.epoch - 1)
    with pytest.raises(LeaseLost, match=r"^j: epoch 0 "):
        extend_lease(
            later, items_done=0, slot_id=a_slot_id(), ports=world.ports, policy=world.policy
        )


def test_a_stale_handle_is_no_loss() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    world.queue.extend(held.message.receipt_handle, timedelta(0))
    extend_lease(
        held.lease, items_done=0, slot_id=a_slot_id(), ports=world.ports, policy=world.policy
    )


def test_abandoning_leaves_the_message_to_its_new_owner() -> None:
    world = WorkWorld()
    zombie = world.hold(JOB)
    world.clock.advance(timedelta(minutes=6))
    world.hold(slot_id=a_slot_id("i-2"))
    abandon(zombie, slot_id=a_slot_id(), worker_row=world.worker_row())
    assert world.queue.backlog().in_flight == 1
    assert world.lease() is None
    assert world.lease_row("i-2/0") is not None
    assert world.worker("i-1").state is WorkerState.IDLE


def fail(
    world: WorkWorld, held: ClaimedJob, reason: str, *, done: int = 0, instance: str = "i-1"
) -> ClaimedJob:
    slot_id = a_slot_id(instance)
    held = settle_failure(
        held,
        a_portion(held, done),
        reason,
        slot_id=slot_id,
        ports=world.ports,
        policy=world.policy,
    )
    if held.manifest.state is JobState.FAILED:
        dead_letter_job(
            held, slot_id=slot_id, worker_row=world.worker_row(instance), ports=world.ports
        )
    else:
        release(
            held,
            slot_id=slot_id,
            worker_row=world.worker_row(instance),
            ports=world.ports,
            policy=Policy(),
        )
    return held


def test_a_failure_after_the_last_item_leaves_the_job_complete() -> None:
    world = WorkWorld()
    held = world.hold({"job_id": "j", "items": items(2)})

    settled = settle_failure(
        held,
        a_portion(held),
        "too late",
        slot_id=a_slot_id(),
        ports=world.ports,
        policy=world.policy,
    )

    assert (settled.manifest.state, settled.manifest.failures) == (JobState.COMPLETED, ())
    assert len(world.records("j")) == 2


def lived(world: WorkWorld, instance: str, hours: float) -> ClaimedJob:
    """Let a worker of two hours hold the job for so long and give it back."""
    slot_id = a_slot_id(instance, boot=0.1)
    held = world.hold(slot_id=slot_id)
    world.clock.advance(timedelta(hours=hours))
    held = settle_release(
        held,
        a_portion(held, 0),
        interrupted=False,
        slot_id=slot_id,
        ports=world.ports,
        policy=Policy(max_lifetime=timedelta(hours=2)),
    )
    worker_row = world.worker_row(instance)
    if held.manifest.state is JobState.FAILED:
        dead_letter_job(held, slot_id=slot_id, worker_row=worker_row, ports=world.ports)
    else:
        release(held, slot_id=slot_id, worker_row=worker_row, ports=world.ports, policy=Policy())
    return held


def test_an_item_longer_than_three_workers_live_is_given_up() -> None:
    world = WorkWorld()
    world.send(JOB)

    ends = [lived(world, f"i-{n}", 2.12).manifest for n in range(3)]

    assert [len(each.failures) for each in ends] == [1, 2, 3]
    assert [each.state for each in ends] == [JobState.RUNNING, JobState.RUNNING, JobState.FAILED]
    assert ends[-1].code == ReasonCode.FAILED_ON_SEVERAL
    assert len(world.dead_letters.bodies()) == 1


@pytest.mark.parametrize(
    ("hours", "done"), [(2.05, 0), (2.12, 1)], ids=["it began late", "an item was done"]
)
def test_less_than_a_lifetime_wasted_is_no_failure(hours: float, done: int) -> None:
    world = WorkWorld()
    held = world.hold(JOB, slot_id=a_slot_id("i-1", boot=0.1))
    world.clock.advance(timedelta(hours=hours))

    held = settle_release(
        held,
        a_portion(held, done),
        interrupted=False,
        slot_id=a_slot_id("i-1", boot=0.1),
        ports=world.ports,
        policy=Policy(max_lifetime=timedelta(hours=2)),
    )

    assert held.manifest.failures == ()
