"""Claiming: who gets a job, and who does not."""

from dataclasses import replace
from datetime import timedelta

import pytest

from spindown.contract.codec import encode
from spindown.contract.job.manifest import JobState
from spindown.contract.row import CLAIMS, worker_partition
from spindown.domain.fleet import WorkerState
from spindown.domain.policy import Policy
from spindown.domain.reason import ReasonCode
from spindown.error import AccessDenied, SpindownError, Throttled, Unreachable
from spindown.job.claim import ClaimOutcome, Declined
from spindown.job.claimed_job import ClaimedJob
from spindown.job.commit import commit
from spindown.job.release import release
from spindown.job.worker_row import Condemned
from spindown.memory import PortCall
from spindown.port import Key, Message, When, Write
from tests.work import BUCKET, WORKLOAD, WorkWorld, a_portion, a_slot_id, items

JOB = {"job_id": "j", "items": items(4)}


def test_gives_a_new_job_to_the_first_who_claims_it() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    manifest = world.manifest("j")
    assert (manifest.epoch, manifest.owner, manifest.state) == (1, "i-1/0", JobState.RUNNING)
    assert manifest.items == 4
    assert world.lease() == held.lease
    assert world.worker().state is WorkerState.BUSY
    assert world.worker().busy_slots == 1
    backlog = world.table.get(Key(partition=worker_partition(WORKLOAD), sort=CLAIMS))
    assert backlog == {"claims": 1}


def test_one_of_two_has_a_job_whose_message_came_twice() -> None:
    world = WorkWorld()
    first = world.hold(JOB)
    world.send(JOB)
    second = world.claim(a_slot_id("i-2"))
    assert isinstance(second, Declined)
    assert (second.outcome, second.job_id, second.reason) == (ClaimOutcome.COPY, "j", "held")
    assert world.manifest("j").owner == first.manifest.owner
    assert len(world.queue.bodies()) == 1
    # The one that is left is the holder's: it returns if the holder is lost.
    world.clock.advance(timedelta(minutes=6))
    assert isinstance(world.claim(a_slot_id("i-2")), ClaimedJob)


@pytest.mark.parametrize("how", ["visible", "deleted"])
def test_a_copy_stays_unless_the_holder_s_message_is_held(how: str) -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    world.send(JOB)
    copy = world.receive()
    assert copy is not None
    if how == "visible":
        world.queue.extend(held.message.receipt_handle, timedelta(0))
    else:
        world.queue.delete(held.message.receipt_handle)

    declined = world.claim_message(copy, a_slot_id("i-2"))

    assert isinstance(declined, Declined)
    assert declined.outcome is ClaimOutcome.PUT_BACK
    lease = world.lease()
    assert lease is not None
    assert (lease.message_id, lease.receipt_handle) == (copy.message_id, copy.receipt_handle)
    # The copy is the job's message now, so the other is one too many.
    while world.queue.backlog().visible:
        assert isinstance(world.claim(a_slot_id("i-2")), Declined)
    assert len(world.queue.bodies()) == 1


def test_a_copy_whose_receipt_may_have_lapsed_is_not_deleted() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    world.send(JOB)
    copy = world.receive()
    assert copy is not None
    world.clock.advance(world.policy.lease_duration * 0.6)

    declined = world.claim_message(copy, a_slot_id("i-2"))

    assert isinstance(declined, Declined)
    assert declined.outcome is ClaimOutcome.PUT_BACK
    assert len(world.queue.bodies()) == 2
    lease = world.lease()
    assert lease is not None
    assert lease.message_id == held.message.message_id


def test_leaves_the_newer_receipt_handle_with_a_job_s_owner() -> None:
    world = WorkWorld(policy=replace(WorkWorld().policy, lease_duration=timedelta(minutes=5)))
    held = world.hold(JOB)
    world.queue.extend(held.message.receipt_handle, timedelta(0))
    again = world.receive()
    assert again is not None
    assert isinstance(world.claim_message(again, a_slot_id("i-2")), Declined)
    lease = world.lease()
    assert lease is not None
    assert lease.receipt_handle == again.receipt_handle != held.lease.receipt_handle


def test_leaves_no_handle_in_a_row_that_was_cleared_meanwhile() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    world.worker_row("i-2")
    world.queue.extend(held.message.receipt_handle, timedelta(0))
    again = world.receive()

    clear = Write(key=a_slot_id().lease_key, delete=True)
    world.just_before("write", lambda _: world.table.write(clear))
    assert again is not None
    assert isinstance(world.claim_message(again, a_slot_id("i-2")), Declined)
    assert world.table.get(a_slot_id().lease_key) is None


def test_a_lease_tells_no_item_count_before_it_is_known() -> None:
    world = WorkWorld()
    world.send({"job_id": "j", "prefix_uri": f"{BUCKET}images/"})

    held = world.claim()

    assert isinstance(held, ClaimedJob)
    assert (held.manifest.items, held.lease.items) == (None, 0)


def test_a_job_whose_manifest_names_no_slot_is_claimed() -> None:
    world = WorkWorld()
    world.put_manifest(owner="i-9/" + "9" * 5000)
    world.send(JOB)
    world.clock.advance(world.policy.lease_duration * 2)

    assert isinstance(world.claim(), ClaimedJob)


def test_puts_a_held_job_back_until_the_lease_has_run_out() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    world.queue.extend(held.message.receipt_handle, timedelta(0))
    world.claim(a_slot_id("i-2"))
    world.clock.advance(world.policy.lease_duration - timedelta(seconds=1))
    # The owner's message is hidden for at least as long as the lease.
    assert world.queue.backlog().visible == 0
    world.clock.advance(timedelta(seconds=32))
    assert world.queue.backlog().visible == 1


def test_takes_over_a_job_whose_lease_has_run_out() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    commit(held, a_portion(held, 2), slot_id=a_slot_id(), ports=world.ports)
    world.clock.advance(timedelta(minutes=6))
    taken = world.hold(slot_id=a_slot_id("i-2"))
    assert taken.manifest.epoch == 2
    assert taken.manifest.next_item == 2
    assert taken.manifest.epoch_first == 2


def test_clears_a_job_s_lapsed_lease_and_no_newer_one() -> None:
    world = WorkWorld()
    lapsed = world.hold(JOB).lease
    world.worker_row("i-2")
    world.clock.advance(timedelta(minutes=6))
    other = replace(lapsed, job_id="k", deadline=world.clock.now())

    def take_another(call: PortCall) -> None:
        if call.method == "write" and call.args[0].delete:
            world.table.write(Write(key=a_slot_id().lease_key, set=encode(other)))

    world.before = take_another
    world.hold(slot_id=a_slot_id("i-2"))

    assert world.lease() == other


def test_clears_a_lease_at_the_very_instant_that_it_lapses() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    world.worker_row("i-2")
    world.clock.advance(held.lease.deadline - world.clock.now())

    world.hold(slot_id=a_slot_id("i-2"))

    assert world.lease() is None


def test_leaves_the_lease_of_what_the_last_owner_works_on_now() -> None:
    world = WorkWorld()
    released = world.hold(JOB)
    release(
        released,
        slot_id=a_slot_id(),
        worker_row=world.worker_row(),
        ports=world.ports,
        policy=Policy(),
    )
    message = world.receive()
    assert message is not None
    now = world.hold({"job_id": "k", "items": items(4)}).lease

    assert isinstance(world.claim_message(message, a_slot_id("i-2")), ClaimedJob)

    assert world.lease() == now


def test_takes_a_job_over_though_its_old_lease_stays() -> None:
    def fail(call: PortCall) -> None:
        if call.method == "write" and call.args[0].delete:
            raise Unreachable("no answer")

    world = WorkWorld()
    lapsed = world.hold(JOB).lease
    world.worker_row("i-2")
    world.clock.advance(timedelta(minutes=6))
    world.before = fail

    assert world.hold(slot_id=a_slot_id("i-2")).manifest.epoch == 2
    assert world.lease() == lapsed


def test_gives_a_job_back_when_its_worker_is_condemned() -> None:
    world = WorkWorld()
    world.worker_row()
    world.change_worker("i-1", state=WorkerState.CONDEMNED)
    world.send(JOB)
    declined = world.claim()
    assert isinstance(declined, Declined)
    assert (declined.outcome, declined.reason) == (ClaimOutcome.CONDEMNED, "")
    assert world.lease() is None
    manifest = world.hold(slot_id=a_slot_id("i-2")).manifest
    assert (manifest.epoch, manifest.losses) == (2, 0)


def test_knows_its_own_claim_again_after_a_lost_answer() -> None:
    world = WorkWorld()
    world.send(JOB)
    lost = iter([True])

    def lose(call: object) -> None:
        if getattr(call, "method", "") == "put" and next(lost, False):
            raise Unreachable("the answer was lost")

    world.after = lose
    assert isinstance(world.claim(), ClaimedJob)
    assert world.manifest("j").epoch == 1


def test_a_broken_lease_row_does_not_block_its_job() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    world.table.write(
        Write(key=a_slot_id().lease_key, when=When(exists=True), set={"deadline": "soon"})
    )
    world.queue.extend(held.message.receipt_handle, timedelta(0))
    message = world.receive()
    assert isinstance(message, Message)
    assert isinstance(world.claim_message(message, a_slot_id("i-2")), ClaimedJob)


def test_a_refused_lease_counts_nothing_against_the_job() -> None:
    def fail(call: PortCall) -> None:
        if call.method == "transact":
            raise Unreachable("no answer")

    world = WorkWorld()
    world.send(JOB)
    world.worker_row()
    world.before = fail
    for _ in range(6):
        with pytest.raises(Unreachable):
            world.claim()
        assert world.queue.backlog().visible == 0
        world.clock.advance(world.policy.lease_duration)
    world.before = None

    held = world.hold()

    assert (held.manifest.losses, held.manifest.failures) == (0, ())


def test_an_instance_whose_row_has_ended_takes_nothing() -> None:
    world = WorkWorld()
    world.send(JOB)
    worker_row = world.worker_row()
    world.change_worker("i-1", state=WorkerState.ENDED, ended_at=world.clock.now())

    declined = world.claim()

    assert isinstance(declined, Declined)
    assert declined.outcome is ClaimOutcome.CONDEMNED
    assert world.worker().state is WorkerState.ENDED
    with pytest.raises(Condemned):
        worker_row.beat()


def lose_after_an_item(world: WorkWorld, instance_id: str, busy: float) -> None:
    """Let a worker that took 2 min to boot commit an item and end without a word."""
    slot_id = a_slot_id(instance_id)
    held = world.hold(slot_id=slot_id)
    now = world.clock.now()
    world.change_worker(instance_id, launched_at=now - timedelta(minutes=2), checked_in_at=now)
    commit(held, a_portion(held, 1, seconds=busy), slot_id=slot_id, ports=world.ports)
    world.clock.advance(timedelta(hours=1))


@pytest.mark.parametrize(("busy", "losses"), [(60.0, 1), (180.0, 0)])
def test_a_loss_counts_unless_its_work_outweighs_a_boot(busy: float, losses: int) -> None:
    world = WorkWorld()
    world.send({"job_id": "j", "items": items(9)})
    lose_after_an_item(world, "i-1", busy)
    manifest = world.hold(slot_id=a_slot_id("i-2")).manifest

    assert (manifest.next_item, manifest.losses, len(manifest.failures)) == (1, losses, losses)


def test_a_machine_lost_after_each_item_ends_the_job() -> None:
    world = WorkWorld()
    world.send({"job_id": "j", "items": items(9)})
    for instance_id in ("i-1", "i-2", "i-3"):
        lose_after_an_item(world, instance_id, 10.0)
    declined = world.claim(a_slot_id("i-4"))

    assert isinstance(declined, Declined)
    assert declined.outcome is ClaimOutcome.DEAD_LETTERED
    assert world.manifest("j").code == ReasonCode.FAILED_ON_SEVERAL


@pytest.mark.parametrize("error", [AccessDenied, Throttled, Unreachable])
def test_a_claim_without_an_answer_is_noted_once(error: type[SpindownError]) -> None:
    world = WorkWorld()
    world.worker_row()

    def refuse(call: PortCall) -> None:
        if call.method == "put":
            raise error("no answer")

    world.before = refuse
    noted = []
    for _ in range(2):
        world.send(JOB)
        with pytest.raises(error):
            world.claim()
        noted.append(world.worker().unanswered_at)
        world.clock.advance(timedelta(minutes=6))

    assert noted[0] is not None
    assert noted == [noted[0]] * 2
    assert world.worker().claimed_at is None


def test_a_claim_that_gets_an_answer_ends_the_note() -> None:
    world = WorkWorld()

    def refuse(call: PortCall) -> None:
        if call.method == "put":
            raise Unreachable("no answer")

    world.before = refuse
    world.send(JOB)
    with pytest.raises(Unreachable):
        world.claim()
    assert world.worker().unanswered_at is not None
    world.clock.advance(timedelta(minutes=6))
    world.before = None

    assert isinstance(world.claim(), ClaimedJob)
    assert world.worker().unanswered_at is None
