"""A redrive sends given-up jobs back with a clean count, whatever happens in between."""

import itertools
import json
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from typing import Any

import pytest

from spindown.contract.job.manifest import JobState, manifest_key
from spindown.contract.job.message import derived_id
from spindown.domain.fleet import Backlog
from spindown.domain.reason import NO_REASON, Reason, ReasonCode
from spindown.error import Unreachable
from spindown.job import claim as claiming
from spindown.job.cancel import CancelOutcome, cancel
from spindown.job.claim import Declined
from spindown.job.claimed_job import ClaimedJob
from spindown.job.commit import commit, complete
from spindown.job.item import settle_items
from spindown.job.manifest_store import load_manifest, save_manifest
from spindown.job.redrive import Redriven, RedriveOutcome, find_dead_letters, redrive
from spindown.job.release import dead_letter_job, release, settle_failure, settle_rejection
from spindown.job.result import read_progress
from spindown.job.split import split
from spindown.memory import PortCall
from spindown.port import Outgoing, Write
from tests.work import BUCKET, NEWER_MANIFEST, WORKLOAD, WorkWorld, a_portion, a_slot_id, items

JOB = {"job_id": "j", "items": items(4)}


def give_up(world: WorkWorld, body: dict[str, Any], *, done: int = 0) -> str:
    """Let a job fail for good after some of its items; return its id."""
    held = world.hold(body)
    if done:
        held = commit(held, a_portion(held, done), slot_id=a_slot_id(), ports=world.ports)
    failed = settle_rejection(held, "no such model", ports=world.ports)
    dead_letter_job(failed, slot_id=a_slot_id(), worker_row=world.worker_row(), ports=world.ports)
    return failed.job_id


def redriven(world: WorkWorld, *jobs: str) -> list[Redriven]:
    return list(redrive(WORKLOAD, world.ports, jobs=jobs))


def work_off(world: WorkWorld) -> int:
    """Complete whatever can be claimed; return how many jobs that was."""
    count = 0
    while world.queue.backlog().visible:
        held = world.claim(a_slot_id("i-2"))
        if isinstance(held, Declined):
            # A second message of a job that is completed by now.
            assert held.outcome is claiming.ClaimOutcome.OVER
            continue
        held = held.with_items(len(settle_items(held.job, world.ports)))
        held = commit(held, a_portion(held), slot_id=a_slot_id("i-2"), ports=world.ports)
        complete(
            held, slot_id=a_slot_id("i-2"), worker_row=world.worker_row("i-2"), ports=world.ports
        )
        count += 1
    return count


def test_a_job_goes_on_where_it_was_with_a_clean_count() -> None:
    world = WorkWorld()
    give_up(world, JOB, done=3)

    assert redriven(world) == [
        Redriven(
            job_id="j", outcome=RedriveOutcome.SENT, message_id="queue-1", reason="no such model"
        )
    ]

    manifest = world.manifest("j")
    assert (manifest.state, manifest.reason, manifest.next_item) == (JobState.RUNNING, "", 3)
    assert world.dead_letters.bodies() == []
    assert work_off(world) == 1
    assert [record.index for record in world.records("j")] == [0, 1, 2, 3]
    assert world.manifest("j").epoch == 2


def test_a_job_that_fails_again_at_once_is_sent_back_once() -> None:
    world = WorkWorld()
    give_up(world, JOB)
    count = 0
    for _ in islice(redrive(WORKLOAD, world.ports), 9):
        count += 1
        held = world.claim()
        assert isinstance(held, ClaimedJob)
        failed = settle_rejection(held, "no such model", ports=world.ports)
        dead_letter_job(
            failed, slot_id=a_slot_id(), worker_row=world.worker_row(), ports=world.ports
        )

    assert count == 1
    assert len(world.dead_letters.bodies()) == 1
    assert [one.outcome for one in redriven(world)] == [RedriveOutcome.SENT]


def test_failures_and_losses_are_forgotten() -> None:
    policy = replace(WorkWorld().policy, max_failures=2)
    world = WorkWorld(policy=policy)
    world.send(JOB)
    for attempt in range(2):
        held = world.hold(slot_id=a_slot_id(f"i-{attempt}"))
        slot_id = a_slot_id(f"i-{attempt}")
        held = settle_failure(
            held, a_portion(held, 0), "boom", slot_id=slot_id, ports=world.ports, policy=policy
        )
        worker_row, ports = world.worker_row(slot_id.instance_id), world.ports
        if held.manifest.state is JobState.FAILED:
            dead_letter_job(held, slot_id=slot_id, worker_row=worker_row, ports=ports)
        else:
            release(held, slot_id=slot_id, worker_row=worker_row, ports=ports, policy=policy)
    assert len(world.manifest("j").failures) == 2

    redriven(world)

    assert world.manifest("j").failures == ()
    assert work_off(world) == 1


def test_only_the_jobs_that_are_named_go_back() -> None:
    world = WorkWorld()
    for name in ("a", "b", "c"):
        give_up(world, {**JOB, "job_id": name})
    world.dead_letters.send([Outgoing(body="not a job")])

    assert [one.job_id for one in redriven(world, "b")] == ["b"]

    assert world.manifest("a").state is JobState.FAILED
    # What was left is there for the next look at once.
    assert world.dead_letters.backlog().visible == 3


def test_of_a_split_job_that_is_named_the_children_go_back() -> None:
    world = WorkWorld(policy=replace(WorkWorld().policy, max_items_per_job=2))
    give_up(world, {**JOB, "job_id": "p.1"})
    held = split(
        world.hold({**JOB, "job_id": "p"}), items(4), ports=world.ports, policy=world.policy
    )
    complete(held, slot_id=a_slot_id(), worker_row=world.worker_row(), ports=world.ports)
    for _ in range(2):
        held = settle_rejection(world.hold(), "no such model", ports=world.ports)
        dead_letter_job(held, slot_id=a_slot_id(), worker_row=world.worker_row(), ports=world.ports)
    given_up = read_progress("p", world.objects)

    found = redriven(world, "p")

    assert given_up.is_given_up
    assert sorted(one.job_id or "" for one in found) == ["p.00000", "p.00001"]
    assert {one.outcome for one in found} == {RedriveOutcome.SENT}
    assert world.manifest("p.1").state is JobState.FAILED


def test_a_letter_whose_body_is_gone_tells_its_job() -> None:
    world = WorkWorld()
    attributes = {"job_id": "j", "reason": "boom"}
    world.dead_letters.send([Outgoing(body='{"body_key": "jobs/x"}', attributes=attributes)])

    (found,) = redriven(world, "j")

    assert (found.job_id, found.outcome) == ("j", RedriveOutcome.UNREADABLE)
    assert redriven(world, "k") == []


def many_letters(world: WorkWorld) -> None:
    """Let there be more dead letters than can be looked at while the first one is hidden."""
    receives = itertools.count(1)
    for number in range(400):
        body = json.dumps({**JOB, "job_id": f"d{number}"})
        world.dead_letters.send([Outgoing(body=body)])
        world.dead_letters.send([Outgoing(body=f"no job {number}")])

    def take_long(call: PortCall) -> None:
        if (call.port, call.method) == ("dead_letters", "receive"):
            world.clock.advance(timedelta(seconds=3))
            assert next(receives) < 50_000

    world.before = take_long


@pytest.mark.parametrize(("name", "sent"), [("d7", ["d7"]), ("absent", [])])
def test_a_redrive_of_a_job_among_very_many_ends(name: str, sent: list[str]) -> None:
    world = WorkWorld()
    many_letters(world)

    assert [one.job_id for one in redriven(world, name)] == sent

    assert world.dead_letters.backlog() == Backlog(visible=800 - len(sent), in_flight=0)


def test_a_job_that_is_found_ends_the_search() -> None:
    world = WorkWorld()
    many_letters(world)
    redriven(world, "d7")
    world.calls.clear()
    redriven(world, "d8")

    assert world.calls["dead_letters.receive"] < 2000


def test_of_very_many_malformed_letters_each_is_told_once() -> None:
    world = WorkWorld()
    many_letters(world)

    found = [one.body for one in find_dead_letters(world.ports, unsendable=True)]

    assert len(found) == len(set(found))
    assert len(found) > 390
    assert world.dead_letters.backlog().visible == 800


def test_what_is_no_job_stays_and_is_told_of_once() -> None:
    world = WorkWorld()
    world.dead_letters.send([Outgoing(body="not a job"), Outgoing(body='{"body_key": "jobs/x"}')])

    found = redriven(world)

    assert [one.outcome for one in found] == [RedriveOutcome.UNREADABLE] * 2
    assert world.dead_letters.backlog().visible == 2
    assert world.queue.bodies() == []


@pytest.mark.parametrize(
    "state", [JobState.COMPLETED, JobState.CANCELLED, JobState.SPLIT], ids=lambda state: state.value
)
def test_a_job_that_is_over_is_not_sent_again(state: JobState) -> None:
    world = WorkWorld()
    give_up(world, JOB)
    fence = load_manifest("j", world.objects)
    assert fence is not None
    save_manifest(replace(fence.manifest, state=state), fence.etag, world.ports)

    assert [one.outcome for one in redriven(world)] == [RedriveOutcome.OVER]

    assert (world.queue.bodies(), world.dead_letters.bodies()) == ([], [])
    assert world.manifest("j").state is state


def test_a_message_that_sqs_itself_moved_keeps_its_job() -> None:
    world = WorkWorld()
    body = json.dumps({"items": items(2)})
    world.dead_letters.send([Outgoing(body=body)])
    letter = world.dead_letters.receive(wait=timedelta(0), visibility=timedelta(0))
    assert letter is not None

    assert [one.job_id for one in redriven(world)] == [derived_id(letter.message_id)]
    assert work_off(world) == 1


def test_a_body_that_lies_in_s3_is_found_there() -> None:
    world = WorkWorld()
    # Fills a message so that neither an id nor attributes have room beside it.
    world.send({"items_uri": f"{BUCKET}a", "params": {"text": "x" * 1_048_400}})
    world.sources[f"{BUCKET}a"] = b"1\n2\n"
    held = world.hold()
    failed = settle_rejection(held, "no such model", ports=world.ports)
    dead_letter_job(failed, slot_id=a_slot_id(), worker_row=world.worker_row(), ports=world.ports)
    assert "stored" in world.dead_letters.bodies()[0]

    assert [(one.job_id, one.outcome) for one in redriven(world)] == [
        (held.job_id, RedriveOutcome.SENT)
    ]
    assert work_off(world) == 1


def test_a_job_that_is_at_work_again_is_not_fenced_off() -> None:
    world = WorkWorld()
    give_up(world, JOB)
    letters = world.dead_letters.bodies()
    redriven(world)
    held = world.hold(slot_id=a_slot_id("i-2"))
    # The same dead letter is there again: the one who sent it back died before it could delete it.
    world.dead_letters.send([Outgoing(body=body) for body in letters])

    redriven(world)

    held = commit(held, a_portion(held), slot_id=a_slot_id("i-2"), ports=world.ports)
    assert held.manifest.state is JobState.COMPLETED


def test_a_job_of_a_later_version_stays_and_keeps_no_other_back() -> None:
    world = WorkWorld()
    for name in ("a", "b", "c"):
        give_up(world, {**JOB, "job_id": name})
    world.objects.put(manifest_key("b"), NEWER_MANIFEST)

    found = redriven(world)

    assert sorted(one.job_id or "" for one in found) == ["a", "b", "c"]
    (unread,) = (one for one in found if one.outcome is RedriveOutcome.UNREADABLE)
    assert unread.reason.startswith("manifest.schema is 2: ")
    assert redriven(world, "b") == [unread]
    assert len(world.dead_letters.bodies()) == 1


def test_a_lease_row_that_cannot_be_read_holds_no_job_back() -> None:
    world = WorkWorld()
    give_up(world, JOB)
    letters = world.dead_letters.bodies()
    redriven(world)
    world.hold(slot_id=a_slot_id("i-2"))
    world.table.write(Write(key=a_slot_id("i-2").lease_key, set={"deadline": "soon"}))
    world.dead_letters.send([Outgoing(body=body) for body in letters])

    assert [one.outcome for one in redriven(world)] == [RedriveOutcome.SENT]


@pytest.mark.parametrize("has_effect", [False, True], ids=["before its effect", "after it"])
def test_a_crash_at_any_call_loses_no_job_and_doubles_none(has_effect: bool) -> None:
    points = 0
    while True:
        world = WorkWorld()
        give_up(world, JOB, done=2)
        crashed = _crash_at(world, points, has_effect=has_effect)
        world.clock.advance(timedelta(minutes=20))
        redriven(world)
        assert world.dead_letters.bodies() == []
        work_off(world)
        assert world.queue.bodies() == []
        manifest = world.manifest("j")
        assert (manifest.state, manifest.failures) == (JobState.COMPLETED, ())
        assert [record.index for record in world.records("j")] == [0, 1, 2, 3]
        if not crashed:
            break
        points += 1
    assert points >= 6


def _crash_at(world: WorkWorld, point: int, *, has_effect: bool) -> bool:
    """Redrive with a fault at one call, before it has an effect or after; tell whether it came."""
    left = point

    def fail(call: PortCall) -> None:
        nonlocal left
        left -= 1
        if left == -1:
            raise KeyboardInterrupt

    if has_effect:
        world.after = fail
    else:
        world.before = fail
    try:
        redriven(world)
    except KeyboardInterrupt:
        return True
    finally:
        world.before = world.after = None
    return False


def test_an_outage_leaves_the_letter_where_it_can_be_seen() -> None:
    def fail(call: PortCall) -> None:
        if call.port == "queue":
            raise Unreachable("no answer")

    world = WorkWorld()
    give_up(world, JOB)
    world.before = fail
    with pytest.raises(Unreachable):
        redriven(world)
    assert world.dead_letters.backlog().visible == 1


def test_a_job_that_is_cancelled_takes_its_dead_letter_along() -> None:
    world = WorkWorld()
    give_up(world, JOB, done=3)
    others = [json.dumps({**JOB, "items": ["other"]}), json.dumps({**JOB, "job_id": "k"})]
    world.dead_letters.send([Outgoing(body=one) for one in others])

    (told,) = cancel(WORKLOAD, ["j"], world.ports)

    assert (told.outcome, told.items_done) == (CancelOutcome.CANCELLED, 3)
    assert told.was_given_up
    assert world.queue.bodies() == []
    assert sorted(world.dead_letters.bodies()) == sorted(others)
    assert world.dead_letters.backlog().visible == len(others)
    assert world.manifest("j").state is JobState.CANCELLED


def test_what_can_never_go_back_is_listed_and_removed() -> None:
    world = WorkWorld()
    give_up(world, JOB)
    stuck = ["not a job", '{"body_key": "jobs/x"}', json.dumps({**JOB, "items": ["other"]})]
    newer = json.dumps({"schema": 99, "items": [1]})
    world.dead_letters.send([Outgoing(body=body) for body in (*stuck, newer)])
    letters = world.dead_letters.bodies()

    def found(*messages: str, remove: bool = False) -> dict[str, str]:
        listed = find_dead_letters(world.ports, unsendable=True, remove=remove, messages=messages)
        return {one.message_id: one.body for one in listed}

    listed = found()
    assert sorted(listed.values()) == sorted(stuck)
    assert world.dead_letters.backlog().visible == len(letters)
    one = next(iter(listed))
    assert found(one, remove=True) == {one: listed.pop(one)}
    assert found(remove=True) == listed
    left = [body for body in letters if body not in stuck]
    assert world.dead_letters.bodies() == left
    assert world.dead_letters.backlog().visible == len(left)


def test_what_is_still_forbidden_stays_where_it_is() -> None:
    world = WorkWorld()
    for name in ("a", "b"):
        give_up(world, {**JOB, "job_id": name})
    why = Reason(ReasonCode.TYPE_UNKNOWN, {"type": "huge", "known": "small"})

    found = list(
        redrive(
            WORKLOAD,
            world.ports,
            forbids=lambda job: why if job.job_id == "a" else NO_REASON,
        )
    )

    assert {one.job_id: one.outcome for one in found} == {
        "a": RedriveOutcome.FORBIDDEN,
        "b": RedriveOutcome.SENT,
    }
    assert world.manifest("a").state is JobState.FAILED
    assert world.dead_letters.backlog().visible == 1


def test_every_dead_letter_is_listed_with_its_job_and_reason() -> None:
    world = WorkWorld()
    give_up(world, JOB)
    world.dead_letters.send([Outgoing(body="not a job")])

    found = {one.job_id: one for one in find_dead_letters(world.ports)}

    assert (found["j"].letter_reason, found["j"].reason) == ("no such model", "")
    assert found[""].reason
    assert world.dead_letters.backlog().visible == 2
