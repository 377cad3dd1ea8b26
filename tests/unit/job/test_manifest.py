"""A claim goes on from the manifest it finds: of another version, of other code, damaged."""

from datetime import timedelta

import pytest

from spindown.contract.job.manifest import StateFile, encode_manifest, manifest_key
from spindown.contract.run_spec import OnNewCode
from spindown.domain.policy import Policy
from spindown.error import Unreachable
from spindown.job.claim import ClaimOutcome, Declined
from spindown.job.claimed_job import ClaimedJob
from spindown.job.commit import Portion, commit
from spindown.job.release import release, settle_release
from spindown.ledger import Ledger
from spindown.memory import PortCall
from tests.work import (
    BUCKET,
    NEWER_MANIFEST,
    WORKLOAD,
    WorkWorld,
    a_portion,
    a_slot_id,
    items,
)

JOB = {"job_id": "j", "items": items(4)}


def test_puts_a_job_with_a_newer_manifest_back_untouched() -> None:
    world = WorkWorld()
    world.objects.put(manifest_key("j"), NEWER_MANIFEST)
    world.send(JOB)
    declined = world.claim()
    assert isinstance(declined, Declined)
    assert declined.outcome is ClaimOutcome.NEWER_SCHEMA
    assert declined.reason.startswith("manifest.schema is 2: ")
    assert world.objects.get(manifest_key("j")).data == NEWER_MANIFEST


@pytest.mark.parametrize("body", [{"schema": 2, "tasks": []}, JOB], ids=["message", "manifest"])
def test_what_no_code_reads_comes_seldom_and_ends(body: dict[str, object]) -> None:
    world = WorkWorld()
    world.objects.put(manifest_key("j"), NEWER_MANIFEST)
    world.send(body)
    began, received = world.clock.now(), 0
    while not world.dead_letters.bodies() and received < 100:
        if world.queue.backlog().visible:
            received += 1
            assert isinstance(world.claim(), Declined)
        else:
            world.clock.advance(timedelta(minutes=1))

    assert received <= 6
    assert timedelta(days=2) <= world.clock.now() - began < timedelta(days=3)
    assert world.queue.bodies() == []
    assert world.objects.get(manifest_key("j")).data == NEWER_MANIFEST


@pytest.mark.parametrize("body", [{"schema": 10**40}, JOB], ids=["message", "manifest"])
def test_what_no_code_reads_is_hidden_and_noted(body: dict[str, object]) -> None:
    world = WorkWorld()
    world.objects.put(manifest_key("j"), NEWER_MANIFEST)
    world.send(body)

    world.claim()

    (known,) = Ledger(world.table, WORKLOAD).read().newer_messages
    assert known.until == world.clock.now() + timedelta(hours=11)
    assert known.schema == min(int(str(body.get("schema", 2))), 10**9)
    assert world.worker().declined_at == world.clock.now()
    # By the handle of the row it is shown before its time.
    world.queue.extend(known.receipt_handle, timedelta(0))
    assert world.queue.backlog().visible == 1


@pytest.mark.parametrize("how", ["no answer", "too many"])
def test_what_is_not_noted_is_hidden_for_minutes(how: str) -> None:
    world = WorkWorld()
    world.worker_row()
    if how == "too many":
        for _ in range(100):
            world.send({"schema": 2})
            world.claim()
    else:

        def fail(call: PortCall) -> None:
            if call.method == "write":
                raise Unreachable("no answer")

        world.before = fail
    world.send({"schema": 2})
    world.claim()

    noted = len(Ledger(world.table, WORKLOAD).read().newer_messages)
    assert noted == (100 if how == "too many" else 0)
    world.clock.advance(timedelta(minutes=5))
    assert world.queue.backlog().visible == 1


def test_keeps_what_a_later_minor_version_wrote_into_a_manifest() -> None:
    world = WorkWorld()
    manifest = world.put_manifest(epoch=1, released=True, extra={"colour": "blue"})
    world.objects.put(manifest_key("j"), encode_manifest(manifest))
    world.send(JOB)
    held = world.hold()
    commit(held, a_portion(held), slot_id=a_slot_id(), ports=world.ports)
    assert world.manifest("j").extra == {"colour": "blue"}


def test_keeps_the_item_count_of_the_first_claimer() -> None:
    world = WorkWorld(sources={f"{BUCKET}images/{n}": b"" for n in range(5)})
    held = world.hold({"job_id": "j", "prefix_uri": f"{BUCKET}images/"})
    commit(held, a_portion(held, 2), slot_id=a_slot_id(), ports=world.ports)
    world.clock.advance(timedelta(minutes=6))

    taken = world.claim(a_slot_id("i-2"))

    assert isinstance(taken, ClaimedJob)
    assert (taken.manifest.items, taken.lease.items) == (5, 5)


@pytest.mark.parametrize("cut", [0, 1, 20, 200])
def test_falls_back_to_the_previous_manifest_at_a_higher_epoch(cut: int) -> None:
    world = WorkWorld()
    held = world.hold(JOB)
    held = commit(held, a_portion(held, 2), slot_id=a_slot_id(), ports=world.ports)
    whole = world.objects.get(manifest_key("j")).data
    world.clock.advance(timedelta(minutes=6))
    world.objects.put(manifest_key("j"), whole[:cut])
    taken = world.hold(slot_id=a_slot_id("i-2"))
    assert taken.manifest.next_item == 2
    # One corrupt version may have been a claim of epoch 2.
    assert taken.manifest.epoch == 3


def test_without_a_readable_manifest_it_starts_above_all_epochs() -> None:
    world = WorkWorld()
    world.objects.put("jobs/j/parts/00000007-00000000-00000001.jsonl", b"")
    world.objects.put(manifest_key("j"), b"{")
    world.send(JOB)
    message = world.receive()
    assert message is not None
    held = world.claim_message(message)
    assert isinstance(held, ClaimedJob)
    assert held.manifest.epoch == 8


def test_drops_results_of_other_code_rather_than_mix_them() -> None:
    world = WorkWorld()
    old, new = a_slot_id(code_version="old"), a_slot_id("i-2", code_version="new")
    held = world.hold(JOB, old)
    commit(held, a_portion(held, 2), slot_id=old, ports=world.ports)
    world.clock.advance(timedelta(minutes=6))
    taken = world.hold(slot_id=new)
    assert (taken.manifest.next_item, taken.manifest.parts) == (0, ())
    assert taken.manifest.code_version == "new"


def test_other_code_begins_anew_without_the_first_one_s_state() -> None:
    world = WorkWorld()
    file = StateFile(path="a", key="state/j/0", bytes=1, sha256="0", stored_at=world.clock.now())
    before = world.put_manifest(
        epoch=1,
        released=True,
        next_item=0,
        user_state=(file,),
        begun_seconds={"T4#1": 60.0},
        code_version="v1",
    )
    world.objects.put(manifest_key("j"), encode_manifest(before))
    world.send(JOB)

    held = world.hold(slot_id=a_slot_id(code_version="v2"))

    assert (held.manifest.user_state, held.manifest.code_version) == ((), "v2")
    assert held.manifest.begun_seconds == {}, "time of that state is lost too"


def test_code_that_gives_the_same_goes_on_if_told_to() -> None:
    world = WorkWorld()
    old = a_slot_id(code_version="old")
    new = a_slot_id("i-2", code_version="new", on_new_code=OnNewCode.KEEP)
    held = world.hold(JOB, old)
    commit(held, a_portion(held, 2), slot_id=old, ports=world.ports)
    world.clock.advance(timedelta(minutes=6))
    taken = world.hold(slot_id=new)
    assert (taken.manifest.next_item, len(taken.manifest.parts)) == (2, 1)
    assert taken.manifest.code_version == "new"


def test_two_versions_do_not_reset_each_other_in_a_deploy() -> None:
    world = WorkWorld()
    slots = [a_slot_id(name, code_version=name[:3]) for name in ("old-1", "new-1", "old-2")]
    world.send({"job_id": "j", "items": items(900)})
    done = []
    for turn in range(12):
        # Who deploys is heard of after the new worker's first job.
        world.set_policy(world.policy, code_version="old" if turn < 2 else "new")
        slot_id = slots[turn % 3]
        held = world.claim(slot_id)
        if isinstance(held, ClaimedJob):
            held = commit(held, a_portion(held, 90), slot_id=slot_id, ports=world.ports)
            held = settle_release(
                held,
                Portion(),
                interrupted=False,
                slot_id=slot_id,
                ports=world.ports,
                policy=Policy(),
            )
            worker_row = world.worker_row(slot_id.instance_id)
            release(
                held, slot_id=slot_id, worker_row=worker_row, ports=world.ports, policy=Policy()
            )
        world.clock.advance(timedelta(minutes=2))
        done.append((world.manifest("j").code_version, world.manifest("j").next_item))

    # The new worker leaves the job until it hears that its code is the deployed one. From then on
    # the old ones do.
    assert done == [
        *(("old", count) for count in (90, 90, 180, 270)),
        *(("new", count) for count in (90, 90, 90, 180, 180, 180, 270, 270)),
    ]


def test_a_deploy_back_lets_the_older_code_go_on() -> None:
    world = WorkWorld()
    world.put_manifest(released=True, next_item=2, code_version="v2")
    world.set_policy(world.policy, code_version="v1")
    world.send(JOB)

    assert world.hold(slot_id=a_slot_id(code_version="v1")).manifest.next_item == 0


def test_a_job_of_newer_code_waits_for_it() -> None:
    world = WorkWorld()
    world.put_manifest(released=True, next_item=2, code_version="v2")
    world.set_policy(world.policy, code_version="v2")
    world.send(JOB)

    declined = world.claim(a_slot_id(code_version="v1"))

    assert isinstance(declined, Declined)
    assert declined.outcome is ClaimOutcome.PUT_BACK
    assert world.queue.backlog().visible == 0
    assert (world.manifest("j").epoch, world.manifest("j").next_item) == (1, 2)


@pytest.mark.parametrize(("known", "ours", "goes_on"), [
    ("v1", "v1", True),
    ("v1", "v2", False),
    ("", "v2", True),
    ("v1", "", True),
])  # fmt: skip
def test_unknown_code_on_either_side_counts_as_the_same(
    known: str, ours: str, goes_on: bool
) -> None:
    world = WorkWorld()
    world.put_manifest(released=True, next_item=2, code_version=known)
    world.send(JOB)

    held = world.hold(slot_id=a_slot_id(code_version=ours))

    assert (held.manifest.next_item == 2) is goes_on
