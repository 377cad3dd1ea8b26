"""Other systems hear of every job that is over, also when nobody listened for a while."""

import io
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from spindown.contract.job.event import FAILED, JobEvent
from spindown.contract.job.manifest import JobState
from spindown.domain.worker_lifecycle import PolicySeen
from spindown.error import Unreachable
from spindown.memory import MemoryJobEvents, PortCall
from spindown.worker.child.failure_cause import Broken, FailureCause
from spindown.worker.child.runner import BatchDone, Event, ItemDone
from spindown.worker.log import open_log
from spindown.worker.slot import Slot
from spindown.worker.transfer.outbox import Outbox
from tests.slot import ScriptedRunner, SlotWorld
from tests.work import items

NO_LICENCE = Broken(FailureCause.ENDED, "no licence")

JOB = {"job_id": "j", "items": items(2), "batch_id": "b"}


class SilentBus(MemoryJobEvents):
    """A bus that takes nothing until it answers."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = threading.Event()
        self.answers = threading.Event()
        self.batches: list[list[str]] = []

    def send(self, events: Sequence[JobEvent]) -> None:
        """Record events once it answers."""
        self.batches.append([event.job_id for event in events])
        self.is_asked.set()
        assert self.answers.wait(20)
        super().send(events)


def telling(slot: SlotWorld, events: MemoryJobEvents | None = None) -> MemoryJobEvents:
    events = events or MemoryJobEvents()
    outbox = Outbox(events, open_log(io.StringIO()))
    slot.context = replace(slot.context, outbox=outbox, deployment="lab")
    slot.slot = Slot(slot.context)
    return events


def settle(slot: SlotWorld) -> None:
    """Wait until what is being sent beside the slot is over, and send the rest."""
    assert slot.context.outbox is not None
    slot.context.outbox.flush()


def test_a_job_that_is_completed_is_told_at_once(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    events = telling(slot)
    slot.world.send(JOB)
    slot.step()
    settle(slot)
    [event] = events.sent
    assert (event.job_id, event.batch_id, event.state) == ("j", "b", "completed")
    assert (event.deployment, event.workload, event.items) == ("lab", "classify", 2)


def test_a_job_with_a_failed_item_is_told_as_failed(tmp_path: Path) -> None:
    one_fails: list[Event | None] = [
        ItemDone(index=0, error="no"),
        ItemDone(index=1, value=1),
        BatchDone(),
    ]
    slot = SlotWorld(tmp_path, runner=ScriptedRunner(script=lambda *_: one_fails))
    events = telling(slot)
    slot.world.send(JOB)
    slot.step()
    settle(slot)
    [event] = events.sent
    assert (event.state, event.items_failed, event.detail_type) == ("failed", 1, FAILED)
    assert slot.world.manifest("j").state is JobState.COMPLETED


def test_a_completed_job_is_told_though_the_ledger_is_silent(
    tmp_path: Path,
) -> None:
    def fail(call: PortCall) -> None:
        if call.method == "transact" and slot.world.calls["table.transact"] == 2:
            raise Unreachable("no answer")

    slot = SlotWorld(tmp_path)
    events = telling(slot)
    slot.world.before = fail
    slot.world.send(JOB)
    slot.step()
    settle(slot)
    assert [event.state for event in events.sent] == ["completed"]


def test_a_job_that_is_given_up_is_told_with_its_reason(tmp_path: Path) -> None:
    slot = SlotWorld(
        tmp_path,
        runner=ScriptedRunner(script=lambda *_: [NO_LICENCE]),
    )
    slot.world.policy = replace(slot.world.policy, max_failures=1, max_failures_on_two=1)
    slot.life.tell(PolicySeen, replace(slot.life.state.standing, policy=slot.world.policy))
    events = telling(slot)
    slot.world.send(JOB)
    slot.step()
    settle(slot)
    [event] = events.sent
    assert (event.state, event.failures) == ("failed", 1)
    assert "no licence" in event.reason
    # The move to the dead-letter queue is repeated when the message comes again; so is this.
    slot.world.send(JOB)
    slot.step()
    settle(slot)
    assert [event.state for event in events.sent] == ["failed", "failed"]


def test_a_job_that_is_refused_is_told_and_not_who_has_its_id(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    events = telling(slot)
    for job in ({**JOB, "type": "t"}, {**JOB, "job_id": "k"}, {**JOB, "job_id": "k", "type": "t"}):
        slot.world.send(job)
        slot.step()
    settle(slot)

    told = [(event.job_id, event.state) for event in events.sent]
    assert told == [("j", "failed"), ("k", "completed")]
    assert "t" in events.sent[0].reason
    assert len(slot.world.dead_letters.bodies()) == 2


def test_what_could_not_be_sent_goes_the_next_time_in_order(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    events = telling(slot)
    events.is_reachable = False
    for name in ("a", "b"):
        slot.world.send({**JOB, "job_id": name})
        slot.step()
    settle(slot)
    assert not events.sent
    events.is_reachable = True
    settle(slot)
    assert sorted(one.job_id for one in list(events.sent)) == ["a", "b"]


def test_a_bus_without_answer_holds_up_no_inputs_and_commits(tmp_path: Path) -> None:
    slot, bus = SlotWorld(tmp_path), SilentBus()
    telling(slot, bus)
    try:
        for name in "abcd":
            slot.world.send({**JOB, "job_id": name})
            slot.step()
            assert bus.is_asked.wait(20)
        slot.context.transfers.submit(lambda: None).result(5)
    finally:
        bus.answers.set()
    settle(slot)
    # Those that had to wait went together.
    assert bus.batches == [["a"], ["b", "c", "d"]]
