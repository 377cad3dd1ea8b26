"""What counts against a job and what does not, for one worker and for several."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from spindown.contract.job.manifest import JobState
from spindown.domain.fleet import WorkerState
from spindown.domain.reason import Reason, ReasonCode
from spindown.port import Message
from spindown.reason_text import say
from spindown.user import Item
from spindown.worker.child.failure_cause import Broken, FailureCause
from spindown.worker.child.runner import Event, Task
from tests.slot import ScriptedRunner, SlotWorld, square
from tests.work import WorkWorld, a_slot_id, items

JOB = {"job_id": "j", "items": items(6)}
MINUTE = timedelta(minutes=1)
KILLED = "SIGSEGV"


def on_several(failures: int, instances: int) -> Reason:
    return Reason(ReasonCode.FAILED_ON_SEVERAL, {"failures": failures, "instances": instances})


#: Workers that take turns -> epochs that a job may lose before it is given up.
UNTIL_GIVEN_UP = [
    pytest.param(1, 5, Reason(ReasonCode.FAILED_TOO_OFTEN, {"failures": 5}), id="one worker"),
    pytest.param(2, 3, on_several(3, 2), id="two workers"),
    pytest.param(4, 3, on_several(3, 3), id="four workers"),
]


def letter_of(world: WorkWorld) -> Message:
    assert len(world.dead_letters.bodies()) == 1
    letter = world.dead_letters.receive(wait=timedelta(0), visibility=MINUTE)
    assert letter is not None
    return letter


@pytest.mark.parametrize(("workers", "deaths", "reason"), UNTIL_GIVEN_UP)
def test_a_job_whose_process_keeps_dying_is_dead_lettered(
    tmp_path: Path, workers: int, deaths: int, reason: Reason
) -> None:
    world = WorkWorld()
    begun: list[str] = []

    def a_slot(instance_id: str) -> SlotWorld:
        def crash(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
            begun.append(instance_id)
            return [Broken(FailureCause.ENDED, KILLED)]

        runner = ScriptedRunner(script=crash)
        return SlotWorld(tmp_path, world=world, runner=runner, instance_id=instance_id)

    slots = [a_slot(f"i-{number}") for number in range(workers)]
    world.send(JOB)
    for turn in range(4 * deaths):
        slots[turn % workers].slot.step()
        world.clock.advance(11 * MINUTE)

    assert (world.manifest("j").state, len(begun)) == (JobState.FAILED, deaths)
    assert [f.kind for f in world.manifest("j").failures] == ["failure"] * deaths
    letter = letter_of(world)
    assert letter.attributes["reason"] == f"{say(reason)}; last: {KILLED}"
    assert letter.attributes["log"] == f"log/{begun[-1]}"
    assert world.queue.bodies() == []


@pytest.mark.parametrize(("workers", "deaths", "reason"), UNTIL_GIVEN_UP)
def test_a_job_that_keeps_killing_its_worker_is_dead_lettered(
    workers: int, deaths: int, reason: Reason
) -> None:
    world = WorkWorld()
    world.send(JOB)
    for turn in range(deaths):
        # Its worker says no more; the lease lapses.
        world.hold(slot_id=a_slot_id(f"i-{turn % workers}"))
        assert world.dead_letters.bodies() == []
        world.clock.advance(6 * MINUTE)

    world.claim(a_slot_id(f"i-{deaths % workers}"))

    manifest = world.manifest("j")
    assert (manifest.state, manifest.losses) == (JobState.FAILED, deaths)
    assert letter_of(world).attributes["reason"] == say(reason)
    assert world.queue.bodies() == []


@pytest.mark.parametrize("workers", [1, 3])
def test_a_job_that_interruptions_give_back_counts_nothing(tmp_path: Path, workers: int) -> None:
    world = WorkWorld()
    world.send(JOB)
    slots: list[SlotWorld] = []

    def a_slot(number: int) -> SlotWorld:
        def announce(polls: int) -> None:
            if polls == 1:
                slots[number].metadata.announce_interruption(world.clock.now() + 2 * MINUTE)
                slots[number].watch.look()
            world.clock.advance(MINUTE / 6)
            # The others poll meanwhile, and find nothing.
            assert not any(slot.step() for slot in slots[number + 1 : number + workers])

        runner = ScriptedRunner(script=lambda task, batch: [None] * 99, before_poll=announce)
        return SlotWorld(tmp_path, world=world, runner=runner, instance_id=f"i-{number}")

    slots += [a_slot(number) for number in range(11 + workers)]
    for slot in slots[:12]:
        assert slot.step()

    manifest = world.manifest("j")
    assert (manifest.interruptions, manifest.losses, manifest.failures) == (12, 0, ())
    assert world.dead_letters.bodies() == []
    SlotWorld(tmp_path, world=world, instance_id="i-last").slot.step()
    assert world.manifest("j").state is JobState.COMPLETED


def test_an_idle_second_worker_fences_nobody_before_a_deadline(
    tmp_path: Path,
) -> None:
    world = WorkWorld()
    second = SlotWorld(tmp_path, world=world, instance_id="i-2")
    found: list[bool] = []
    committed: list[int] = []

    def go_on(polls: int) -> None:
        if polls == 1:
            first.metadata.announce_interruption(world.clock.now() + 2 * MINUTE)
            first.watch.look()
        world.clock.advance(MINUTE / 12)
        first.watch.beat()
        found.append(second.step())
        committed.append(world.manifest("j").epoch)

    def one_then_stall(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        done = square(task, batch)
        return done if batch[0].index < 2 else [*done[:1], *[None] * 99]

    runner = ScriptedRunner(script=one_then_stall, before_poll=go_on)
    first = SlotWorld(tmp_path, world=world, runner=runner, instance_id="i-1")
    world.send(JOB)
    noticed_at = world.clock.now()

    first.step()

    # It had its job, and none else had anything, until it gave the job back by itself.
    assert 2 * MINUTE - timedelta(seconds=20) <= world.clock.now() - noticed_at < 2 * MINUTE
    assert (set(found), set(committed), runner.kills) == ({False}, {1}, 1)
    manifest = world.manifest("j")
    assert (manifest.next_item, manifest.interruptions, manifest.failures) == (3, 1, ())
    assert second.step()
    manifest = world.manifest("j")
    assert (manifest.state, manifest.epoch, manifest.losses) == (JobState.COMPLETED, 2, 0)
    assert [r.index for r in world.records("j")] == list(range(6))
    assert world.worker("i-2").state is WorkerState.IDLE
