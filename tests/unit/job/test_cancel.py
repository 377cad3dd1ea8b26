"""A cancelled job is nobody's any more, whatever its owner and its messages do."""

import itertools
import json
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

from spindown.contract.codec import encode
from spindown.contract.job.batch import Batch, batch_key
from spindown.contract.job.manifest import JobState, Manifest, encode_manifest, manifest_key
from spindown.contract.job.message import derived_id
from spindown.domain.reason import ReasonCode
from spindown.error import LeaseLost, NotFound, Unreachable
from spindown.job import claim as claiming
from spindown.job.cancel import REASON, Cancelled, CancelOutcome, cancel
from spindown.job.claim import Declined
from spindown.job.commit import commit, complete
from spindown.job.heartbeat import extend_lease
from spindown.job.release import abandon
from spindown.job.result import find_jobs, read_progress
from spindown.job.split import split
from spindown.memory import MemoryClock, PortCall
from spindown.port import Outgoing, Write
from tests.work import NEWER_MANIFEST, PRICE, WORKLOAD, WorkWorld, a_portion, a_slot_id, items

JOB = {"job_id": "j", "items": items(4)}


def cancelled(world: WorkWorld, *jobs: str) -> list[Cancelled]:
    return list(cancel(WORKLOAD, jobs, world.ports))


def test_a_job_that_waits_is_never_claimed() -> None:
    world = WorkWorld()
    world.send(JOB)
    world.send({**JOB, "job_id": "other"})

    assert cancelled(world, "j") == [
        Cancelled(
            job_id="j",
            outcome=CancelOutcome.CANCELLED,
            state=JobState.CANCELLED,
            was_claimed=False,
        )
    ]

    assert [json.loads(body)["job_id"] for body in world.queue.bodies()] == ["other"]
    assert world.queue.backlog().visible == 1
    assert world.hold().job_id == "other"


def test_its_owner_commits_no_more_and_its_commits_stay() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    held = commit(held, a_portion(held, 3), slot_id=a_slot_id(), ports=world.ports)

    (told,) = cancelled(world, "j")
    assert (told.items_done, told.was_held) == (3, True)

    with pytest.raises(LeaseLost):
        extend_lease(
            held.lease, items_done=3, slot_id=a_slot_id(), ports=world.ports, policy=world.policy
        )
    with pytest.raises(LeaseLost):
        commit(held, a_portion(held), slot_id=a_slot_id(), ports=world.ports)
    abandon(held, slot_id=a_slot_id(), worker_row=world.worker_row())
    progress = read_progress("j", world.objects)
    assert (progress.state, progress.items_done, progress.reason) == (
        JobState.CANCELLED,
        3,
        REASON,
    )
    assert len(world.records("j")) == 3
    assert world.queue.bodies() == []
    assert world.table.get(a_slot_id().lease_key) is None


def a_cancel(world: WorkWorld, ahead: timedelta) -> Cancelled:
    """Cancel a job from a machine whose clock is so far ahead."""
    clock = MemoryClock(world.clock.now() + ahead)
    (told,) = cancel(WORKLOAD, ["j"], replace(world.ports, clock=clock))
    return told


WRONG_CLOCKS = pytest.mark.parametrize("ahead", [timedelta(hours=h) for h in (-1, 0, 1)])


@WRONG_CLOCKS
def test_a_job_sent_after_its_id_was_cancelled_is_a_dead_letter(ahead: timedelta) -> None:
    world = WorkWorld()
    told = a_cancel(world, ahead)
    assert not told.was_claimed
    world.clock.advance(timedelta(seconds=1))
    world.send(JOB)

    answer = world.claim()

    assert isinstance(answer, Declined)
    assert (answer.outcome, answer.code) == (
        claiming.ClaimOutcome.OTHER_BODY,
        ReasonCode.SENT_AFTER_CANCEL,
    )
    letter = world.dead_letters.receive(wait=timedelta(0), visibility=timedelta(0))
    assert letter is not None
    assert letter.attributes["code"] == ReasonCode.SENT_AFTER_CANCEL.value
    assert json.loads(letter.body) == JOB
    assert world.queue.bodies() == []
    assert world.manifest("j").state is JobState.CANCELLED


@WRONG_CLOCKS
def test_a_job_sent_before_its_id_was_cancelled_is_deleted(ahead: timedelta) -> None:
    world = WorkWorld()
    world.send(JOB)
    message = world.receive()
    assert message is not None
    world.clock.advance(timedelta(minutes=1))
    a_cancel(world, ahead)

    answer = world.claim_message(message)

    assert isinstance(answer, Declined)
    assert answer.outcome is claiming.ClaimOutcome.OVER
    assert world.queue.bodies() == world.dead_letters.bodies() == []


@pytest.mark.parametrize("is_late", [False, True])
def test_a_renewed_message_is_as_old_as_the_first(*, is_late: bool) -> None:
    world = WorkWorld()
    if not is_late:
        world.send(JOB)
    # Hidden, so that the cancel does not delete it.
    world.receive()
    world.clock.advance(timedelta(minutes=1))
    a_cancel(world, timedelta(0))
    world.clock.advance(timedelta(minutes=1))
    if is_late:
        world.send(JOB)
    for _ in range(2):
        world.clock.advance(timedelta(days=8))
        renewed = world.claim()
        assert isinstance(renewed, Declined)
        assert renewed.outcome is claiming.ClaimOutcome.SENT_ANEW

    world.claim()

    assert len(world.dead_letters.bodies()) == is_late
    assert world.queue.bodies() == []


def test_all_of_a_large_cancel_leave_the_queue() -> None:
    world = WorkWorld()
    names = [f"j{number}" for number in range(1100)]
    for name in ["other", *names]:
        world.send({**JOB, "job_id": name})

    cancelled(world, *names)

    assert [json.loads(body)["job_id"] for body in world.queue.bodies()] == ["other"]


def test_the_time_since_the_last_commit_is_in_the_cost() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    world.clock.advance(timedelta(seconds=10))
    commit(held, a_portion(held, 3, seconds=10.0), slot_id=a_slot_id(), ports=world.ports)
    world.clock.advance(timedelta(seconds=26))
    cancelled(world, "j")

    manifest = world.manifest("j")
    assert manifest.busy_seconds == pytest.approx(36.0)
    assert manifest.cost_usd == pytest.approx(PRICE / 100)


def test_a_copy_of_a_cancelled_job_is_deleted() -> None:
    world = WorkWorld()
    world.hold(JOB)
    (told,) = cancelled(world, "j")
    assert told.was_claimed
    world.clock.advance(timedelta(seconds=1))
    world.send(JOB)

    answer = world.claim()

    assert isinstance(answer, Declined)
    assert answer.outcome is claiming.ClaimOutcome.OVER
    assert world.dead_letters.bodies() == []


def test_many_cancels_move_nobody_elses_job_to_the_dead_letters() -> None:
    world = WorkWorld()
    world.send({**JOB, "job_id": "waits"})
    for number in range(120):
        cancelled(world, f"other-{number}")
        world.clock.advance(timedelta(seconds=3))

    (body,) = world.queue.bodies()

    assert json.loads(body)["job_id"] == "waits"
    message = world.receive()
    assert message is not None
    assert message.receive_count < 100
    assert world.dead_letters.bodies() == []


def test_an_unreadable_lease_row_keeps_no_other_job_alive() -> None:
    world = WorkWorld()
    world.hold(JOB)
    world.table.write(Write(key=a_slot_id().lease_key, set={"deadline": "soon"}))
    world.send({**JOB, "job_id": "k"})

    assert [one.outcome for one in cancelled(world, "j", "k")] == [CancelOutcome.CANCELLED] * 2

    assert [json.loads(body)["job_id"] for body in world.queue.bodies()] == ["j"]


def test_a_hidden_message_is_deleted_by_its_next_receiver() -> None:
    world = WorkWorld()
    world.send(JOB)
    message = world.receive()
    assert message is not None
    cancelled(world, "j")
    assert world.queue.bodies() != []

    answer = world.claim_message(message)

    assert isinstance(answer, Declined)
    assert answer.outcome is claiming.ClaimOutcome.OVER
    assert world.queue.bodies() == []


def test_a_message_without_an_id_is_found_by_the_given_one() -> None:
    world = WorkWorld()
    world.send({"items": items(2)})
    message = world.receive()
    assert message is not None
    job_id = derived_id(message.message_id)
    world.clock.advance(world.policy.lease_duration)

    cancelled(world, job_id)

    assert world.queue.bodies() == []


def test_the_children_of_a_split_are_cancelled_too() -> None:
    world = WorkWorld()
    held = world.hold({"job_id": "j", "items": items(2500)})
    held = split(held, items(2500), ports=world.ports, policy=world.policy)
    complete(held, slot_id=a_slot_id(), worker_row=world.worker_row(), ports=world.ports)
    first = world.hold()
    first = commit(first, a_portion(first), slot_id=a_slot_id(), ports=world.ports)
    complete(first, slot_id=a_slot_id(), worker_row=world.worker_row(), ports=world.ports)

    found = cancelled(world, "j")

    states = [JobState.SPLIT, JobState.CANCELLED, JobState.CANCELLED, JobState.COMPLETED]
    assert Counter(one.state for one in found) == Counter(states)
    progress = read_progress("j", world.objects)
    assert (progress.state, progress.items_done) == (JobState.CANCELLED, first.manifest.items)
    assert world.queue.bodies() == []


@pytest.mark.parametrize("at", range(1, 4))
def test_a_split_under_way_leaves_no_child_behind(at: int) -> None:
    world = WorkWorld()
    held = world.hold({"job_id": "j", "items": items(2500)})
    calls = [0]

    def interfere(call: PortCall) -> None:
        calls[0] += call.port in {"objects", "queue"} and call.method in {"put", "send"}
        if calls[0] == at:
            calls[0] = 99
            cancelled(world, "j")

    world.before = interfere
    with pytest.raises(LeaseLost):
        split(held, items(2500), ports=world.ports, policy=world.policy)
    world.before = None

    while world.queue.backlog().visible:
        answer = world.claim()
        assert isinstance(answer, Declined)
        assert answer.outcome is claiming.ClaimOutcome.OVER
    world.clock.advance(world.policy.lease_duration)
    assert world.queue.bodies() == []


def test_what_is_over_stays_as_it_is() -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    held = commit(held, a_portion(held), slot_id=a_slot_id(), ports=world.ports)

    assert [one.outcome for one in cancelled(world, "j")] == [CancelOutcome.OVER]
    assert [one.outcome for one in cancelled(world, "j")] == [CancelOutcome.OVER]

    assert world.manifest("j") == held.manifest


def test_gives_way_to_a_commit_that_comes_between() -> None:
    world = WorkWorld()
    held = [world.hold(JOB)]

    def commit_one(_: object) -> None:
        held[0] = commit(held[0], a_portion(held[0], 1), slot_id=a_slot_id(), ports=world.ports)

    world.just_before("put", commit_one)

    assert [one.items_done for one in cancelled(world, "j")] == [1]


def test_a_manifest_that_changes_all_the_time_is_told() -> None:
    world = WorkWorld()
    held = [world.hold(JOB)]

    def interfere(call: PortCall) -> None:
        if call.port == "objects" and call.method == "put":
            before, world.before = world.before, None
            held[0] = commit(held[0], a_portion(held[0], 0), slot_id=a_slot_id(), ports=world.ports)
            world.before = before

    world.before = interfere
    with pytest.raises(Unreachable, match=r"^j: "):
        cancelled(world, "j")


def test_a_job_that_a_later_version_wrote_stays_alone() -> None:
    world = WorkWorld()
    for name in "abc":
        world.send({**JOB, "job_id": name})
    world.objects.put(manifest_key("b"), NEWER_MANIFEST)

    found = [(one.job_id, one.outcome, one.state) for one in cancel(WORKLOAD, "abc", world.ports)]

    assert found == [
        ("a", CancelOutcome.CANCELLED, JobState.CANCELLED),
        ("b", CancelOutcome.NEWER_SCHEMA, None),
        ("c", CancelOutcome.CANCELLED, JobState.CANCELLED),
    ]
    assert world.objects.get(manifest_key("b")).data == NEWER_MANIFEST
    assert len(world.queue.bodies()) == world.queue.backlog().visible == 1


def test_a_call_that_breaks_off_leaves_no_cancelled_message() -> None:
    def fail(call: PortCall) -> None:
        if call.port == "objects" and call.args[0] == manifest_key("b"):
            raise Unreachable("no answer")

    world = WorkWorld()
    for name in "ab":
        world.send({**JOB, "job_id": name})
    world.before = fail

    with pytest.raises(Unreachable):
        list(cancel(WORKLOAD, "ab", world.ports))

    assert len(world.queue.bodies()) == world.queue.backlog().visible == 1


def test_several_jobs_are_cancelled_at_once() -> None:
    world, together = WorkWorld(), threading.Barrier(3, timeout=60)
    for name in "abc":
        world.send({**JOB, "job_id": name})

    def meet(call: PortCall) -> None:
        if (call.port, call.method) == ("objects", "put"):
            together.wait()

    world.before = meet

    assert [told.job_id for told in cancelled(world, *"abc")] == ["a", "b", "c"]
    assert world.queue.bodies() == []


def test_a_job_that_has_failed_can_keep_its_dead_letter() -> None:
    world = WorkWorld()
    failed = Manifest(job_id="j", epoch=1, owner="", state=JobState.FAILED)
    world.objects.put(manifest_key("j"), encode_manifest(failed))

    (told,) = cancel(WORKLOAD, ["j"], world.ports, failed=False)

    assert (told.outcome, told.state) == (CancelOutcome.OVER, JobState.FAILED)
    assert cancelled(world, "j")[0].state == JobState.CANCELLED


def give_up(world: WorkWorld, job_id: str) -> None:
    """Leave a job that has failed, with its dead letter."""
    failed = Manifest(job_id=job_id, epoch=1, owner="", state=JobState.FAILED)
    world.objects.put(manifest_key(job_id), encode_manifest(failed))
    world.dead_letters.send([Outgoing(body=json.dumps({**JOB, "job_id": job_id}))])


def test_a_dead_letter_is_told_as_deleted_once_it_is() -> None:
    world = WorkWorld()
    give_up(world, "j")

    found = [
        (told.job_id, told.is_letter_deleted, len(world.dead_letters.bodies()))
        for told in cancel(WORKLOAD, ["j", "k"], world.ports)
    ]

    # What has no letter does not wait for those that have.
    assert found == [("k", False, 1), ("j", True, 0)]


def test_a_hidden_dead_letter_is_deleted_by_a_second_cancel() -> None:
    world = WorkWorld()
    give_up(world, "j")
    give_up(world, "other")
    # Another reader of the queue has both.
    for _ in range(2):
        world.dead_letters.receive(wait=timedelta(0), visibility=timedelta(minutes=15))

    (first,) = cancelled(world, "j")
    world.clock.advance(timedelta(minutes=15))
    (second,) = cancelled(world, "j")

    assert (first.was_given_up, first.is_letter_deleted) == (True, False)
    assert (second.outcome, second.is_letter_deleted) == (CancelOutcome.OVER, True)
    assert [json.loads(one)["job_id"] for one in world.dead_letters.bodies()] == ["other"]


def test_a_cancel_looks_at_no_more_than_so_many_letters() -> None:
    world = WorkWorld()
    for number in range(1200):
        give_up(world, f"other-{number}")
    failed = Manifest(job_id="j", epoch=1, owner="", state=JobState.FAILED)
    world.objects.put(manifest_key("j"), encode_manifest(failed))
    looks = list[PortCall]()
    world.after = lambda call: looks.append(call) if call.method == "receive" else None

    (told,) = cancelled(world, "j")

    assert not told.is_letter_deleted
    assert len([one for one in looks if one.port == "dead_letters"]) <= 1001


def test_a_process_that_ends_can_cancel_jobs() -> None:
    program = """
import atexit
from spindown.job.cancel import cancel
from tests.work import WORKLOAD, WorkWorld, items

world = WorkWorld()
for name in "abc":
    world.send({"job_id": name, "items": items(1)})
end = lambda: list(cancel(WORKLOAD, "abc", world.ports))
atexit.register(lambda: print(len(end()), world.queue.bodies()))
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)

    assert done.stdout.decode() == "3 []\n"


def test_finds_batches_and_jobs_that_nobody_has_claimed() -> None:
    world = WorkWorld()
    batch = Batch(batch_id="b-1", workload=WORKLOAD, jobs=("b-1-00000", "b-1-00001"))
    world.objects.put(batch_key("b-1"), json.dumps(encode(batch)).encode())

    assert find_jobs("b-1", world.objects) == batch.jobs
    assert find_jobs("b-1-00001", world.objects) == ("b-1-00001",)
    for name in ("b-1-00002", "b-2", "x"):
        with pytest.raises(NotFound):
            find_jobs(name, world.objects)


def test_messages_beside_its_own_are_shown_again_together() -> None:
    world = WorkWorld()
    for number in range(30):
        world.send({**JOB, "job_id": f"other-{number}"})
    world.send(JOB)

    cancelled(world, "j")

    assert world.queue.backlog().visible == 30
    assert (world.calls["queue.show"], world.calls["queue.extend"]) == (1, 0)


def test_what_is_no_job_is_left_where_it_is() -> None:
    world = WorkWorld()
    world.queue.send([Outgoing(body="not a job")])

    cancelled(world, "j")

    assert world.queue.backlog().visible == 1


@pytest.mark.parametrize("children", [("j",), ("other",), ("j.00000", "j.00000")])
def test_children_that_no_split_makes_are_left_alone(children: tuple[str, ...]) -> None:
    world = WorkWorld()
    split_up = Manifest(job_id="j", epoch=1, owner="", state=JobState.SPLIT, children=children)
    world.objects.put(manifest_key("j"), encode_manifest(split_up))

    done = list(itertools.islice(cancel(WORKLOAD, ["j"], world.ports), 9))

    assert [one.job_id for one in done] == ["j", *sorted({"j.00000"} & set(children))]
