"""Claiming: who gets a job, and what becomes of messages that nobody may work on."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from spindown.app.ending import free_leases
from spindown.app.ledger import Ledger
from spindown.app.port import Key, Message, Outgoing, When, Write
from spindown.app.work.claim import Declined, Outcome
from spindown.app.work.commit import commit, complete
from spindown.app.work.held import Held
from spindown.app.work.presence import Condemned
from spindown.app.work.release import release, settle_release
from spindown.contract.job.manifest import (
    Failure,
    JobState,
    Manifest,
    StateFile,
    decode_manifest,
    encode_manifest,
    manifest_key,
)
from spindown.contract.job.message import derived_id
from spindown.contract.row import BACKLOG, lease_sort, workload_partition
from spindown.domain.fleet import WorkerState
from spindown.error import Unreachable
from spindown.memory import PortCall
from tests.work import BUCKET, WORKLOAD, WorkWorld, a_portion, a_seat, items

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
    backlog = world.table.get(Key(partition=workload_partition(WORKLOAD), sort=BACKLOG))
    assert backlog == {"claims": 1}


def test_lets_only_one_of_two_have_a_job_whose_message_came_twice() -> None:
    world = WorkWorld()
    first = world.hold(JOB)
    world.send(JOB)
    second = world.claim(a_seat("i-2"))
    assert isinstance(second, Declined)
    assert second.outcome is Outcome.PUT_BACK
    assert world.manifest("j").owner == first.manifest.owner


def test_leaves_the_newer_receipt_handle_with_the_owner_of_a_job() -> None:
    world = WorkWorld(policy=replace(WorkWorld().policy, lease_duration=timedelta(minutes=5)))
    held = world.hold(JOB)
    world.queue.extend(held.message.receipt_handle, timedelta(0))
    again = world.receive()
    assert again is not None
    assert isinstance(world.claim_message(again, a_seat("i-2")), Declined)
    lease = world.lease()
    assert lease is not None
    assert lease.receipt_handle == again.receipt_handle != held.lease.receipt_handle


def test_puts_a_held_job_back_until_the_lease_has_run_out() -> None:
    world = WorkWorld()
    world.hold(JOB)
    world.send(JOB)
    world.claim(a_seat("i-2"))
    world.clock.advance(world.policy.lease_duration - timedelta(seconds=1))
    # The owner's message is hidden for the lease, the duplicate for at least as long.
    assert world.queue.backlog().visible == 0
    world.clock.advance(timedelta(seconds=32))
    assert world.queue.backlog().visible == 2


def test_takes_over_a_job_whose_lease_has_run_out() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    commit(held, a_portion(held, 2), seat=a_seat(), ports=world.ports)
    world.clock.advance(timedelta(minutes=6))
    taken = world.hold(seat=a_seat("i-2"))
    assert taken.manifest.epoch == 2
    assert taken.manifest.next_item == 2
    assert taken.manifest.epoch_first == 2


def test_knows_how_far_a_lease_was_that_the_control_plane_has_freed() -> None:
    world = WorkWorld()
    held = world.hold({"items": items(9)})
    lease = replace(held.lease, items_done=6)
    ledger = Ledger(world.table, WORKLOAD)
    ledger.write(ledger.change(lease_sort("i-1", 0), {"items_done": 6}))
    free_leases((lease,), ledger, world.queue, now=world.clock.now())

    taken = world.hold(seat=a_seat("i-2"))

    assert world.lease() is None
    assert (taken.manifest.next_item, taken.lease.items_done) == (0, 6)


def test_counts_a_loss_only_without_release_interruption_or_progress() -> None:
    world = WorkWorld()
    world.hold(JOB)
    world.clock.advance(timedelta(minutes=6))
    taken = world.hold(seat=a_seat("i-2"))
    assert taken.manifest.losses == 1
    assert [(f.kind, f.instance_id, f.epoch) for f in taken.manifest.failures] == [
        ("loss", "i-1", 1)
    ]


def test_does_not_count_a_loss_after_progress() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    commit(held, a_portion(held, 1), seat=a_seat(), ports=world.ports)
    world.clock.advance(timedelta(minutes=6))
    assert world.hold(seat=a_seat("i-2")).manifest.failures == ()


def test_counts_an_interruption_that_the_ledger_knows_instead_of_a_loss() -> None:
    world = WorkWorld()
    world.hold(JOB)
    world.change_worker("i-1", interrupted_at=world.clock.now())
    world.clock.advance(timedelta(minutes=6))
    manifest = world.hold(seat=a_seat("i-2")).manifest
    assert (manifest.interruptions, manifest.losses, manifest.failures) == (1, 0, ())


def test_does_not_count_an_orderly_release() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    released = settle_release(
        held, a_portion(held, 0), interrupted=False, seat=a_seat(), ports=world.ports
    )
    release(released, seat=a_seat(), presence=world.presence(), ports=world.ports)
    manifest = world.hold(seat=a_seat("i-2")).manifest
    assert (manifest.epoch, manifest.losses, manifest.interruptions) == (2, 0, 0)


def test_moves_a_job_lost_on_two_instances_three_times_to_the_dead_letters() -> None:
    world = WorkWorld()
    world.send(JOB)
    for instance in ("i-1", "i-2", "i-1"):
        assert isinstance(world.claim(a_seat(instance)), Held)
        world.clock.advance(timedelta(minutes=6))
    declined = world.claim(a_seat("i-2"))
    assert isinstance(declined, Declined)
    assert declined.outcome is Outcome.DEAD_LETTERED
    assert world.manifest("j").state is JobState.FAILED
    assert world.queue.bodies() == []
    letter = world.dead_letters.receive(wait=timedelta(0), visibility=timedelta(minutes=1))
    assert letter is not None
    assert letter.attributes["reason"] == "3 failures or losses on 2 instances"
    assert letter.attributes["log"] == "log/i-2"
    assert json.loads(letter.body)["job_id"] == "j"


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.CANCELLED, JobState.SPLIT])
def test_deletes_the_message_of_a_job_that_is_over(state: JobState) -> None:
    world = WorkWorld()
    a_manifest(world, state=state)
    world.send(JOB)
    declined = world.claim()
    assert isinstance(declined, Declined)
    assert declined.outcome is Outcome.OVER
    assert world.queue.bodies() == []


def test_repeats_the_move_of_a_failed_job_whose_message_comes_again() -> None:
    world = WorkWorld()
    a_manifest(world, state=JobState.FAILED, reason="it was bad")
    world.send(JOB)
    declined = world.claim()
    assert isinstance(declined, Declined)
    assert declined.outcome is Outcome.DEAD_LETTERED
    assert (len(world.queue.bodies()), len(world.dead_letters.bodies())) == (0, 1)


def test_leaves_a_job_that_it_failed_to_others_for_ten_minutes() -> None:
    world = WorkWorld()
    world.presence()
    failure = Failure(
        at=world.clock.now(), instance_id="i-1", epoch=1, kind="failure", reason="bad"
    )
    a_manifest(world, epoch=1, owner="i-1/0", released=True, failures=(failure,))
    world.send(JOB)
    assert isinstance(world.claim(), Declined)
    world.clock.advance(timedelta(minutes=2))
    assert isinstance(world.claim(), Declined)
    world.clock.advance(timedelta(minutes=9))
    assert isinstance(world.claim(), Held)


def test_another_worker_may_try_a_failed_job_at_once() -> None:
    world = WorkWorld()
    failure = Failure(
        at=world.clock.now(), instance_id="i-1", epoch=1, kind="failure", reason="bad"
    )
    a_manifest(world, epoch=1, owner="i-1/0", released=True, failures=(failure,))
    world.send(JOB)
    assert isinstance(world.claim(a_seat("i-2")), Held)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("{", "write one JSON object"),
        ("[1]", "write a JSON object such as"),
        ('{"itens": [1]}', "did you mean items?"),
        ('{"items": 3}', "write a list"),
        ('{"items": [], "job_id": "../x"}', "message.job_id is '../x'"),
        ('{"items": [], "job_id": ".."}', "message.job_id is '..'"),
        ('{"items": [], "items_uri": "s3://bucket/k"}', "exactly one"),
        ('{"items_uri": "http://169.254.169.254/"}', "write it as s3://"),
        ("[" * 100_000, "too deeply nested"),
        ('{"items": [NaN]}', "NaN is no finite number"),
    ],
    ids=lambda value: value[:24],
)
def test_buries_a_malformed_message_with_the_reason_and_its_id(body: str, says: str) -> None:
    world = WorkWorld()
    world.send(body)
    declined = world.claim()
    assert isinstance(declined, Declined)
    assert declined.outcome is Outcome.MALFORMED
    letter = world.dead_letters.receive(wait=timedelta(0), visibility=timedelta(minutes=1))
    assert letter is not None
    assert letter.body == body
    assert says in letter.attributes["reason"]
    assert letter.attributes["original_message_id"] == "queue-1"
    assert world.queue.bodies() == []


def test_buries_a_malformed_message_of_one_mebibyte_with_its_body_in_the_bucket() -> None:
    world = WorkWorld()
    body = "x" * 1_048_576
    world.send(body)
    assert isinstance(world.claim(), Declined)
    letter = json.loads(world.dead_letters.bodies()[0])
    assert world.objects.get(letter["body_key"]).data.decode() == body


def test_puts_a_newer_message_back_untouched() -> None:
    world = WorkWorld()
    world.send({"schema": 2, "tasks": []})
    declined = world.claim()
    assert isinstance(declined, Declined)
    assert declined.outcome is Outcome.NEWER_SCHEMA
    assert world.queue.backlog().in_flight == 1
    assert world.dead_letters.bodies() == []


def test_puts_a_job_with_a_newer_manifest_back_untouched() -> None:
    world = WorkWorld()
    newer = json.dumps({"schema": 2, "fence": "elsewhere"}).encode()
    world.objects.put(manifest_key("j"), newer)
    world.send(JOB)
    declined = world.claim()
    assert isinstance(declined, Declined)
    assert declined.outcome is Outcome.NEWER_SCHEMA
    assert world.objects.get(manifest_key("j")).data == newer


def test_keeps_what_a_later_minor_version_wrote_into_a_manifest() -> None:
    world = WorkWorld()
    manifest = a_manifest(world, epoch=1, released=True, extra={"colour": "blue"})
    world.objects.put(manifest_key("j"), encode_manifest(manifest))
    world.send(JOB)
    held = world.hold()
    commit(held, a_portion(held), seat=a_seat(), ports=world.ports)
    assert world.manifest("j").extra == {"colour": "blue"}


@pytest.mark.parametrize("cut", [0, 1, 20, 200])
def test_falls_back_to_the_previous_manifest_without_the_epoch_going_back(cut: int) -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    held = commit(held, a_portion(held, 2), seat=a_seat(), ports=world.ports)
    whole = world.objects.get(manifest_key("j")).data
    world.clock.advance(timedelta(minutes=6))
    world.objects.put(manifest_key("j"), whole[:cut])
    taken = world.hold(seat=a_seat("i-2"))
    assert taken.manifest.next_item == 2
    # One corrupt version may have been a claim of epoch 2.
    assert taken.manifest.epoch == 3


def test_starts_over_above_every_epoch_when_no_manifest_can_be_read() -> None:
    world = WorkWorld()
    world.objects.put("jobs/j/parts/00000007-00000000-00000001.jsonl", b"")
    world.objects.put(manifest_key("j"), b"{")
    world.send(JOB)
    message = world.receive()
    assert message is not None
    held = world.claim_message(message)
    assert isinstance(held, Held)
    assert held.manifest.epoch == 8


def test_gives_a_message_without_an_id_the_same_one_at_every_receive() -> None:
    world = WorkWorld()
    held = world.hold({"items": items(1)})
    assert held.job_id == derived_id("queue-1")
    world.clock.advance(timedelta(minutes=6))
    assert world.hold(seat=a_seat("i-2")).job_id == held.job_id


def test_sends_a_message_older_than_a_week_anew_under_the_same_job() -> None:
    world = WorkWorld()
    world.send({"items": items(1)})
    world.clock.advance(timedelta(days=7))
    declined = world.claim()
    assert isinstance(declined, Declined)
    assert declined.outcome is Outcome.SENT_ANEW
    [body] = world.queue.bodies()
    assert json.loads(body)["job_id"] == derived_id("queue-1")
    assert isinstance(world.claim(), Held)


def test_a_crash_between_the_copy_and_the_deletion_leaves_one_job() -> None:
    world = WorkWorld()
    world.send({"items": items(1)})
    world.clock.advance(timedelta(days=7))

    def crash(call: object) -> None:
        if getattr(call, "method", "") == "send":
            raise Unreachable("the machine is gone")

    world.after = crash
    with pytest.raises(Unreachable):
        world.claim()
    world.after = None
    held = world.hold()
    done = commit(held, a_portion(held), seat=a_seat(), ports=world.ports)
    complete(done, seat=a_seat(), presence=world.presence(), ports=world.ports)
    world.clock.advance(timedelta(minutes=6))
    while world.queue.backlog().visible:
        assert isinstance(world.claim(), Declined)
    assert world.queue.bodies() == []
    assert world.manifest(held.job_id).epoch == 1


def test_sends_a_message_anew_before_the_queue_would_bury_it() -> None:
    world = WorkWorld()
    world.send(JOB)
    for _ in range(49):
        message = world.receive()
        assert message is not None
        world.queue.extend(message.receipt_handle, timedelta(0))
    declined = world.claim()
    assert isinstance(declined, Declined)
    assert declined.outcome is Outcome.SENT_ANEW
    assert isinstance(world.claim(), Held)


def test_sends_a_full_message_anew_with_its_items_in_the_bucket() -> None:
    world = WorkWorld()
    body = json.dumps({"items": ["x" * (1_048_576 - 20)]})
    world.send(body + " " * (1_048_576 - len(body)))
    world.clock.advance(timedelta(days=8))
    assert isinstance(world.claim(), Declined)
    held = world.hold()
    assert held.job.stored
    assert held.manifest.items == 1


def test_gives_a_job_back_when_its_worker_is_condemned_meanwhile() -> None:
    world = WorkWorld()
    world.presence()
    world.change_worker("i-1", state=WorkerState.CONDEMNED)
    world.send(JOB)
    declined = world.claim()
    assert isinstance(declined, Declined)
    assert declined.outcome is Outcome.CONDEMNED
    assert world.lease() is None
    manifest = world.hold(seat=a_seat("i-2")).manifest
    assert (manifest.epoch, manifest.losses) == (2, 0)


def test_knows_its_own_claim_again_after_a_lost_answer() -> None:
    world = WorkWorld()
    world.send(JOB)
    lost = iter([True])

    def lose(call: object) -> None:
        if getattr(call, "method", "") == "put" and next(lost, False):
            raise Unreachable("the answer was lost")

    world.after = lose
    assert isinstance(world.claim(), Held)
    assert world.manifest("j").epoch == 1


def test_drops_results_of_other_code_rather_than_mix_them() -> None:
    world = WorkWorld()
    old, new = a_seat(code_digest="old"), a_seat("i-2", code_digest="new")
    held = world.hold(JOB, old)
    commit(held, a_portion(held, 2), seat=old, ports=world.ports)
    world.clock.advance(timedelta(minutes=6))
    taken = world.hold(seat=new)
    assert (taken.manifest.next_item, taken.manifest.parts) == (0, ())
    assert taken.manifest.code_digest == "new"


def a_manifest(world: WorkWorld, **changes: object) -> Manifest:
    values = {"job_id": "j", "epoch": 1, "owner": "i-9/0", "state": JobState.RUNNING, **changes}
    manifest = Manifest(**values)  # type: ignore[arg-type]
    world.objects.put(manifest_key("j"), encode_manifest(manifest))
    return decode_manifest(world.objects.get(manifest_key("j")).data)


def test_a_broken_lease_row_does_not_block_its_job() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    world.table.write(
        Write(key=a_seat().lease_key, when=When(exists=True), set={"deadline": "soon"})
    )
    world.queue.extend(held.message.receipt_handle, timedelta(0))
    message = world.receive()
    assert isinstance(message, Message)
    assert isinstance(world.claim_message(message, a_seat("i-2")), Held)


def test_a_ledger_that_refuses_the_lease_counts_nothing_against_the_job() -> None:
    def fail(call: PortCall) -> None:
        if call.method == "transact":
            raise Unreachable("no answer")

    world = WorkWorld()
    world.send(JOB)
    world.presence()
    world.before = fail
    for _ in range(6):
        with pytest.raises(Unreachable):
            world.claim()
        assert world.queue.backlog().visible == 0
        world.clock.advance(world.policy.lease_duration)
    world.before = None

    held = world.hold()

    assert (held.manifest.losses, held.manifest.failures) == (0, ())


def test_an_instance_whose_row_has_ended_takes_nothing_and_says_nothing() -> None:
    world = WorkWorld()
    world.send(JOB)
    presence = world.presence()
    world.change_worker("i-1", state=WorkerState.ENDED, ended_at=world.clock.now())

    declined = world.claim()

    assert isinstance(declined, Declined)
    assert declined.outcome is Outcome.CONDEMNED
    assert world.worker().state is WorkerState.ENDED
    with pytest.raises(Condemned):
        presence.beat()


def test_works_on_a_worn_message_that_has_no_room_for_an_id() -> None:
    world = WorkWorld()
    world.send({"items_uri": f"{BUCKET}a", "params": {"text": "x" * 1_048_510}})
    world.clock.advance(timedelta(days=8))

    assert isinstance(world.claim(), Held)


def test_other_code_begins_anew_without_the_users_state_of_the_first() -> None:
    world = WorkWorld()
    state = (StateFile(path="a", key="jobs/j/state/1/a", bytes=1, sha256="0" * 64),)
    before = a_manifest(
        world, epoch=1, released=True, next_item=0, user_state=state, code_digest="v1"
    )
    world.objects.put(manifest_key("j"), encode_manifest(before))
    world.send(JOB)

    held = world.hold(seat=a_seat(code_digest="v2"))

    assert (held.manifest.user_state, held.manifest.code_digest) == ((), "v2")


def test_a_malformed_message_keeps_its_tenant_in_the_dead_letters() -> None:
    world = WorkWorld()
    world.queue.send([Outgoing(body="not a job", tenant="t")])
    world.claim()

    letter = world.dead_letters.receive(wait=timedelta(0), visibility=timedelta(0))

    assert letter is not None
    assert (letter.body, letter.tenant) == ("not a job", "t")
