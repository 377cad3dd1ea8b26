"""Which end of an epoch counts against a job, and when it has failed too often."""

import json
from dataclasses import replace
from datetime import timedelta

from spindown.contract.job.manifest import JobState
from spindown.contract.row import lease_sort_key
from spindown.control.free_lease import free_leases
from spindown.domain.policy import Policy
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.retry_or_dead_letter import Failure
from spindown.job.claim import ClaimOutcome, Declined
from spindown.job.claimed_job import ClaimedJob
from spindown.job.commit import commit
from spindown.job.release import release, settle_release
from spindown.ledger import Ledger
from spindown.reason_text import say
from tests.work import WORKLOAD, WorkWorld, a_portion, a_slot_id, items

JOB = {"job_id": "j", "items": items(4)}


def settle(world: WorkWorld, held: ClaimedJob) -> ClaimedJob:
    """End an epoch in order, with nothing done."""
    return settle_release(
        held,
        a_portion(held, 0),
        interrupted=False,
        slot_id=a_slot_id(),
        ports=world.ports,
        policy=Policy(),
    )


def test_knows_how_far_a_lease_freed_by_the_control_plane_was() -> None:
    world = WorkWorld()
    held = world.hold({"items": items(9)})
    lease = replace(held.lease, items_done=6)
    ledger = Ledger(world.table, WORKLOAD)
    ledger.write(ledger.change(lease_sort_key("i-1", 0), {"items_done": 6}))
    free_leases((lease,), ledger, world.queue, now=world.clock.now())

    taken = world.hold(slot_id=a_slot_id("i-2"))

    assert world.lease() is None
    assert (taken.manifest.next_item, taken.lease.items_done) == (0, 6)


def test_a_lease_freed_in_another_epoch_says_nothing_of_this() -> None:
    world = WorkWorld()
    held = world.hold({"items": items(9)})
    ledger = Ledger(world.table, WORKLOAD)
    _, past = ledger.move_to_history(
        lease_sort_key("i-1", 0), replace(held.lease, epoch=7, items_done=6), now=world.clock.now()
    )
    ledger.write(past)
    ledger.write(ledger.delete(lease_sort_key("i-1", 0)))
    world.clock.advance(timedelta(minutes=6))

    assert world.hold(slot_id=a_slot_id("i-2")).lease.items_done == 0


def test_a_freed_lease_says_nothing_of_a_properly_released_job() -> None:
    world = WorkWorld()
    held = world.hold({"job_id": "j", "items": items(9)})
    ledger = Ledger(world.table, WORKLOAD)
    freed = replace(held.lease, items_done=6)
    _, past = ledger.move_to_history(lease_sort_key("i-1", 0), freed, now=world.clock.now())
    ledger.write(past)
    release(
        settle(world, held),
        slot_id=a_slot_id(),
        worker_row=world.worker_row(),
        ports=world.ports,
        policy=Policy(),
    )

    assert world.hold(slot_id=a_slot_id("i-2")).lease.items_done == 0


def test_a_worker_the_ledger_forgot_is_lost_not_interrupted() -> None:
    world = WorkWorld()
    world.put_manifest(owner="i-9/0")
    world.send(JOB)

    manifest = world.hold().manifest

    assert (manifest.losses, manifest.interruptions) == (1, 0)


def test_counts_a_loss_without_release_interruption_or_progress() -> None:
    world = WorkWorld()
    world.hold(JOB)
    world.clock.advance(timedelta(minutes=6))
    taken = world.hold(slot_id=a_slot_id("i-2"))
    assert taken.manifest.losses == 1
    assert [(f.kind, f.instance_id, f.epoch) for f in taken.manifest.failures] == [
        ("loss", "i-1", 1)
    ]


def test_does_not_count_a_loss_after_progress() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    commit(held, a_portion(held, 1, seconds=90.0), slot_id=a_slot_id(), ports=world.ports)
    world.clock.advance(timedelta(minutes=6))
    assert world.hold(slot_id=a_slot_id("i-2")).manifest.failures == ()


def test_counts_an_interruption_in_the_ledger_and_no_loss() -> None:
    world = WorkWorld()
    world.hold(JOB)
    world.change_worker("i-1", interrupted_at=world.clock.now())
    world.clock.advance(timedelta(minutes=6))
    manifest = world.hold(slot_id=a_slot_id("i-2")).manifest
    assert (manifest.interruptions, manifest.losses, manifest.failures) == (1, 0, ())
    assert manifest.lost_epochs == (1,)


def test_does_not_count_an_orderly_release() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    release(
        settle(world, held),
        slot_id=a_slot_id(),
        worker_row=world.worker_row(),
        ports=world.ports,
        policy=Policy(),
    )
    manifest = world.hold(slot_id=a_slot_id("i-2")).manifest
    assert (manifest.epoch, manifest.losses, manifest.interruptions) == (2, 0, 0)
    assert manifest.lost_epochs == ()


LOST = say(Reason(ReasonCode.FAILED_ON_SEVERAL, {"failures": 3, "instances": 2}))


def test_dead_letters_a_job_lost_three_times_on_two_instances() -> None:
    world = WorkWorld()
    world.send(JOB)
    for instance in ("i-1", "i-2", "i-1"):
        assert isinstance(world.claim(a_slot_id(instance)), ClaimedJob)
        world.clock.advance(timedelta(minutes=6))
    declined = world.claim(a_slot_id("i-2"))
    assert isinstance(declined, Declined)
    assert declined.outcome is ClaimOutcome.DEAD_LETTERED
    assert declined.reason == LOST
    manifest = world.manifest("j")
    assert (manifest.state, manifest.released) == (JobState.FAILED, True)
    assert manifest.finished_at == world.clock.now()
    assert world.queue.bodies() == []
    letter = world.dead_letters.receive(wait=timedelta(0), visibility=timedelta(minutes=1))
    assert letter is not None
    assert letter.attributes["reason"] == LOST
    assert letter.attributes["log"] == "log/i-2"
    assert json.loads(letter.body)["job_id"] == "j"


def test_leaves_a_job_that_it_failed_to_others_for_ten_minutes() -> None:
    world = WorkWorld()
    world.worker_row()
    failure = Failure(
        at=world.clock.now(), instance_id="i-1", epoch=1, kind="failure", reason="bad"
    )
    world.put_manifest(epoch=1, owner="i-1/0", released=True, failures=(failure,))
    world.send(JOB)
    assert isinstance(world.claim(), Declined)
    world.clock.advance(timedelta(minutes=2))
    assert isinstance(world.claim(), Declined)
    world.clock.advance(timedelta(minutes=9))
    assert isinstance(world.claim(), ClaimedJob)


def test_another_worker_may_try_a_failed_job_at_once() -> None:
    world = WorkWorld()
    failure = Failure(
        at=world.clock.now(), instance_id="i-1", epoch=1, kind="failure", reason="bad"
    )
    world.put_manifest(epoch=1, owner="i-1/0", released=True, failures=(failure,))
    world.send(JOB)
    assert isinstance(world.claim(a_slot_id("i-2")), ClaimedJob)


def test_a_job_left_to_others_touches_no_later_lease() -> None:
    world = WorkWorld()
    other = world.hold({"job_id": "k", "items": items(2)})
    failure = Failure(
        at=world.clock.now(), instance_id="i-1", epoch=1, kind="failure", reason="bad"
    )
    world.put_manifest(epoch=1, owner="i-1/0", released=True, failures=(failure,))
    world.send(JOB)

    declined = world.claim(a_slot_id("i-1", 1))

    assert isinstance(declined, Declined)
    assert declined.outcome is ClaimOutcome.PUT_BACK
    assert world.lease() == other.lease
    # About a minute, however long the other job is held.
    world.clock.advance(timedelta(seconds=91))
    assert world.queue.backlog().visible == 1
