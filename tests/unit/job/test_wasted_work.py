"""What interruptions cost a job that makes no progress, from one holder to the next."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spindown.contract.codec import decode
from spindown.contract.job.manifest import JobState
from spindown.contract.row import requeued_sort_key, worker_partition
from spindown.domain.fleet import RequeuedJob
from spindown.domain.offer import CapacityType
from spindown.domain.policy import Policy, Rung
from spindown.domain.reason import ReasonCode
from spindown.domain.wasted_work import NOTHING_WASTED, Attempts, SpotTerms, WastedWork
from spindown.job.claim import ClaimOutcome, Declined
from spindown.job.claimed_job import ClaimedJob, LocalFile, SlotId
from spindown.job.commit import Portion, commit
from spindown.job.redrive import redrive
from spindown.job.release import dead_letter_job, release, settle_failure, settle_release
from spindown.port import Key, Write
from tests.work import WORKLOAD, WorkWorld, a_portion, a_slot_id, items

HOUR = timedelta(hours=1)
JOB = {"job_id": "j", "items": items(5)}
SPOT = SpotTerms(price=0.20, listed=0.50, speed=1.0, rate=0.01)
SPOT_ONLY = Policy(
    ladder=(Rung(after=timedelta(0), capacity_types=frozenset({CapacityType.SPOT})),)
)
DEAR = WastedWork(attempts=3, hours=4.0, boot=0.05, dollars=3.0)


def on_spot(instance_id: str = "i-1", **changes: Any) -> SlotId:
    return a_slot_id(instance_id, spot=SPOT, boot=0.1, **changes)


def interrupted(
    world: WorkWorld,
    held: ClaimedJob,
    *,
    slot_id: SlotId | None = None,
    portion: Portion | None = None,
    policy: Policy | None = None,
) -> ClaimedJob:
    """End an attempt as a worker does that EC2 takes back."""
    slot_id, policy = slot_id or on_spot(), policy or Policy()
    held = settle_release(
        held,
        portion or a_portion(held, 0),
        interrupted=True,
        slot_id=slot_id,
        ports=world.ports,
        policy=policy,
    )
    worker_row = world.worker_row(slot_id.instance_id)
    if held.manifest.state is JobState.FAILED:
        dead_letter_job(held, slot_id=slot_id, worker_row=worker_row, ports=world.ports)
    else:
        release(held, slot_id=slot_id, worker_row=worker_row, ports=world.ports, policy=policy)
    return held


def remembered(world: WorkWorld) -> RequeuedJob | None:
    key = Key(partition=worker_partition(WORKLOAD), sort=requeued_sort_key("j"))
    row = world.table.get(key)
    return None if row is None else decode(RequeuedJob, row)


def begun(world: WorkWorld, hours: float, wasted_work: WastedWork = NOTHING_WASTED) -> ClaimedJob:
    """Let a worker hold the job for so long."""
    held = world.hold(JOB, slot_id=on_spot())
    world.clock.advance(hours * HOUR)
    return replace(held, manifest=replace(held.manifest, wasted_work=wasted_work))


def test_an_attempt_that_moved_nothing_counts_with_its_boot() -> None:
    world = WorkWorld()
    wasted_work = interrupted(world, begun(world, 2.0)).manifest.wasted_work

    assert (wasted_work.attempts, wasted_work.hours, wasted_work.boot) == (1, 2.0, 0.1)
    assert wasted_work.dollars == pytest.approx(0.42)


def test_items_begin_anew() -> None:
    world = WorkWorld()
    held = begun(world, 2.0, DEAR)
    released = interrupted(world, held, portion=a_portion(held, 1))

    assert released.manifest.wasted_work == NOTHING_WASTED


@pytest.mark.parametrize("is_early", [True, False])
def test_new_state_begins_anew(tmp_path: Path, *, is_early: bool) -> None:
    """Saved while the attempt ran, or with its last commit."""
    world = WorkWorld()
    held = begun(world, 2.0, DEAR)
    (tmp_path / "step").write_text("7")
    saved = replace(a_portion(held, 0), state=(LocalFile(path="step", local=tmp_path / "step"),))
    if is_early:
        held = commit(held, saved, slot_id=on_spot(), ports=world.ports)
    released = interrupted(world, held, portion=None if is_early else saved)

    assert released.manifest.user_state
    assert released.manifest.wasted_work.attempts == 0


def fail(world: WorkWorld, held: ClaimedJob) -> ClaimedJob:
    return settle_failure(
        held,
        a_portion(held, 0),
        "boom",
        slot_id=on_spot(),
        ports=world.ports,
        policy=world.policy,
    )


def drain(world: WorkWorld, held: ClaimedJob) -> ClaimedJob:
    return settle_release(
        held,
        a_portion(held, 0),
        interrupted=False,
        slot_id=on_spot(),
        ports=world.ports,
        policy=world.policy,
    )


def on_demand(world: WorkWorld, held: ClaimedJob) -> ClaimedJob:
    return interrupted(world, held, slot_id=a_slot_id())


@pytest.mark.parametrize("end", [fail, drain, on_demand])
def test_what_is_no_reclaim_does_not_count(
    end: Callable[[WorkWorld, ClaimedJob], ClaimedJob],
) -> None:
    world = WorkWorld()

    found = end(world, begun(world, 2.0)).manifest.wasted_work
    assert replace(found, item_hours=0.0) == NOTHING_WASTED


def test_a_reclaim_without_a_word_counts_by_the_ledger() -> None:
    world = WorkWorld()
    begun(world, 2.0)
    world.change_worker("i-1", interrupted_at=world.clock.now(), on_demand_price=0.5)
    world.clock.advance(HOUR)
    wasted_work = world.hold(slot_id=a_slot_id("i-2")).manifest.wasted_work

    assert (wasted_work.attempts, wasted_work.hours) == (1, 2.0)


def test_one_that_was_silent_but_did_items_does_not_count() -> None:
    world = WorkWorld()
    begun(world, 2.0)
    world.table.write(Write(key=on_spot().lease_key, set={"items_done": 1}))
    world.change_worker("i-1", interrupted_at=world.clock.now())
    world.clock.advance(HOUR)

    assert world.hold(slot_id=on_spot("i-2")).manifest.wasted_work == NOTHING_WASTED


def test_other_code_begins_anew() -> None:
    world = WorkWorld()
    world.hold(JOB, slot_id=on_spot(code_version="1"))
    world.put_manifest(wasted_work=DEAR, owner="", released=True, code_version="1")
    world.clock.advance(HOUR)
    held = world.hold(slot_id=a_slot_id("i-2", code_version="2"))

    assert held.manifest.wasted_work == NOTHING_WASTED


def test_the_ledger_hears_once_a_stable_machine_is_wanted() -> None:
    world = WorkWorld()
    interrupted(world, begun(world, 2.0))
    row = remembered(world)
    assert row is not None
    assert row.wasted_work is None

    held = world.hold(slot_id=on_spot())
    world.clock.advance(HOUR)
    interrupted(world, held)
    row = remembered(world)
    assert row is not None
    assert row.wasted_work is not None
    assert row.wasted_work.attempts == 2


def test_spot_leaves_it_to_a_stable_machine() -> None:
    world = WorkWorld()
    interrupted(world, begun(world, 4.0, DEAR))
    declined = world.claim(on_spot("i-2"))

    assert isinstance(declined, Declined)
    assert declined.outcome is ClaimOutcome.PUT_BACK
    row = remembered(world)
    assert row is not None
    assert row.wasted_work is not None
    world.clock.advance(timedelta(minutes=2))
    held = world.hold(slot_id=a_slot_id("i-3"))
    assert held.lease.is_pinned
    assert held.manifest.epoch == 2


def test_whoever_finds_it_so_lets_the_ledger_know() -> None:
    """The control plane freed the job, and knew no more than its lease."""
    world = WorkWorld()
    begun(world, 2.0)
    world.put_manifest(wasted_work=DEAR, released=True, owner="")
    world.clock.advance(HOUR)

    assert isinstance(world.claim(on_spot("i-2")), Declined)
    row = remembered(world)
    assert row is not None
    assert row.wasted_work == DEAR


def test_where_only_spot_is_allowed_it_is_given_up() -> None:
    world = WorkWorld()
    held = interrupted(world, begun(world, 4.0, DEAR), policy=SPOT_ONLY)

    assert held.manifest.code == ReasonCode.NEVER_DONE
    letter = world.dead_letters.receive(wait=timedelta(0), visibility=HOUR)
    assert letter is not None
    assert letter.attributes["code"] == ReasonCode.NEVER_DONE
    assert float(letter.attributes["dollars"]) == pytest.approx(held.manifest.wasted_work.dollars)
    assert remembered(world) is None


def test_a_claimer_gives_it_up_too() -> None:
    world = WorkWorld(policy=SPOT_ONLY)
    begun(world, 2.0)
    world.put_manifest(wasted_work=replace(DEAR, dollars=4.0), released=True, owner="")
    world.clock.advance(HOUR)
    declined = world.claim(on_spot("i-2"))

    assert isinstance(declined, Declined)
    assert declined.outcome is ClaimOutcome.DEAD_LETTERED
    assert world.manifest("j").code == ReasonCode.NEVER_DONE


def test_redriven_it_begins_anew() -> None:
    world = WorkWorld(policy=SPOT_ONLY)
    interrupted(world, begun(world, 4.0, DEAR), policy=SPOT_ONLY)
    list(redrive(WORKLOAD, world.ports, jobs=()))

    manifest = world.hold(slot_id=on_spot("i-2")).manifest
    assert (manifest.wasted_work, manifest.code) == (NOTHING_WASTED, "")


def left_to_stable(world: WorkWorld) -> None:
    """Let the job wait for a stable machine."""
    interrupted(world, begun(world, 4.0, replace(DEAR, dollars=2.0)))
    world.claim(on_spot("i-2"))


def test_what_waits_a_day_for_a_sure_machine_goes_on_without() -> None:
    world = WorkWorld()
    left_to_stable(world)
    world.clock.advance(timedelta(hours=23))
    assert isinstance(world.claim(on_spot("i-3")), Declined)

    world.clock.advance(timedelta(hours=2))
    held = world.hold(slot_id=on_spot("i-4"))
    assert held.manifest.wasted_work.has_waited_in_vain
    world.clock.advance(4 * HOUR)
    ended = interrupted(world, held, slot_id=on_spot("i-4"))
    assert ended.manifest.code == ReasonCode.NEVER_DONE


def test_a_sure_machine_that_comes_late_is_waited_for_again() -> None:
    world = WorkWorld()
    left_to_stable(world)
    world.clock.advance(timedelta(hours=25))
    held = world.hold(slot_id=a_slot_id("i-5"))

    assert not held.manifest.wasted_work.has_waited_in_vain
    assert held.lease.is_pinned


def test_attempts_that_saved_state_count_for_the_item(tmp_path: Path) -> None:
    world = WorkWorld()
    held = begun(world, 2.0)
    (tmp_path / "step").write_text("7")
    state = (LocalFile(path="step", local=tmp_path / "step"),)
    released = interrupted(world, held, portion=replace(a_portion(held, 0), state=state))

    found = released.manifest.wasted_work
    assert (found.attempts, found.of_item.attempts, found.of_item.hours) == (0, 1, 2.0)
    assert (
        interrupted(
            world,
            world.hold(slot_id=on_spot("i-2")),
            slot_id=on_spot("i-2"),
            portion=a_portion(released, 1),
        ).manifest.wasted_work
        == NOTHING_WASTED
    )


#: State was saved whenever it was interrupted; twice 6 hours on demand are nearly spent.
SAVED = replace(NOTHING_WASTED, of_item=Attempts(attempts=9, hours=2.0, boot=0.05, dollars=6.0))


def test_where_state_brings_no_item_it_goes_to_a_sure_machine() -> None:
    world = WorkWorld()
    begun(world, 2.0)
    world.put_manifest(wasted_work=SAVED, released=True, owner="")
    world.clock.advance(HOUR)

    assert isinstance(world.claim(on_spot("i-2")), Declined)
    row = remembered(world)
    assert row is not None
    assert row.wasted_work == SAVED
    world.clock.advance(timedelta(minutes=2))
    assert world.hold(slot_id=a_slot_id("i-3")).lease.is_pinned


def test_where_only_spot_is_allowed_state_keeps_it_there() -> None:
    world = WorkWorld(policy=SPOT_ONLY)
    begun(world, 2.0)
    world.put_manifest(wasted_work=SAVED, released=True, owner="")
    world.clock.advance(HOUR)

    assert world.hold(slot_id=on_spot("i-2")).manifest.state is JobState.RUNNING


ENDS = pytest.mark.parametrize("end", [interrupted, drain, fail])


def worked(world: WorkWorld, hours: float, wasted_work: WastedWork = NOTHING_WASTED) -> ClaimedJob:
    """Let a worker save state after so long, and hold the job for a quarter of an hour more."""
    held = begun(world, hours, wasted_work)
    saved = Portion(busy=hours * HOUR, worked=hours * HOUR)
    held = commit(held, saved, slot_id=on_spot(), ports=world.ports)
    world.clock.advance(HOUR / 4)
    return held


@ENDS
def test_time_of_every_attempt_counts_for_the_item(
    end: Callable[[WorkWorld, ClaimedJob], ClaimedJob],
) -> None:
    world = WorkWorld()
    before = replace(NOTHING_WASTED, item_hours=5.0)
    hours = end(world, worked(world, 2.0, before)).manifest.wasted_work.item_hours

    # What came after the last commit is known of an interruption alone.
    assert hours == pytest.approx(7.25 if end is interrupted else 7.0, abs=0.01)


def test_time_of_an_attempt_that_ended_silently_counts() -> None:
    world = WorkWorld()
    worked(world, 2.0)
    world.change_worker("i-1", interrupted_at=world.clock.now())
    world.clock.advance(HOUR)

    hours = world.hold(slot_id=a_slot_id("i-2")).manifest.wasted_work.item_hours
    assert hours == pytest.approx(2.25, abs=0.01)


@ENDS
def test_an_item_that_takes_too_long_is_given_up(
    end: Callable[[WorkWorld, ClaimedJob], ClaimedJob],
) -> None:
    policy = Policy(max_item_time=7 * HOUR)
    world = WorkWorld(policy=policy)
    held = worked(world, 2.0, replace(NOTHING_WASTED, item_hours=5.0))
    held = interrupted(world, held, policy=policy) if end is interrupted else end(world, held)

    assert held.manifest.state is JobState.FAILED
    assert held.manifest.code == ReasonCode.ITEM_TOO_LONG
    if end is interrupted:
        letter = world.dead_letters.receive(wait=timedelta(0), visibility=HOUR)
        assert letter is not None
        assert letter.attributes["code"] == ReasonCode.ITEM_TOO_LONG
        assert float(letter.attributes["dollars"]) == pytest.approx(held.manifest.cost_usd)


def test_nobody_begins_what_has_taken_too_long() -> None:
    world = WorkWorld()
    worked(world, 2.0)
    too_long = replace(NOTHING_WASTED, item_hours=Policy().max_item_time / HOUR)
    world.put_manifest(wasted_work=too_long, released=True, owner="")
    world.clock.advance(HOUR)
    declined = world.claim(on_spot("i-2"))

    assert isinstance(declined, Declined)
    assert declined.outcome is ClaimOutcome.DEAD_LETTERED
    assert world.manifest("j").code == ReasonCode.ITEM_TOO_LONG


def test_an_item_that_is_done_had_time_enough() -> None:
    world = WorkWorld(policy=Policy(max_item_time=HOUR))
    held = worked(world, 2.0)
    done = interrupted(world, held, portion=a_portion(held, 1), policy=world.policy)

    assert done.manifest.state is JobState.RUNNING
    assert done.manifest.wasted_work == NOTHING_WASTED
