"""A slot in memory that is driven step by step, with a runner that follows a script."""

import io
import json
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from spindown.domain.offer import CapacityType
from spindown.domain.policy import Policy
from spindown.domain.worker_lifecycle import (
    CheckedIn,
    Habits,
    PolicySeen,
    RowSeen,
    Standing,
    Stop,
)
from spindown.job.policy_in_force import OUTDATED_FOR
from spindown.job.work_done import Reporter
from spindown.memory.metadata import MemoryMetadata
from spindown.user import Item
from spindown.worker.action import WorkerActions
from spindown.worker.child.runner import BatchDone, Event, ItemDone, Task
from spindown.worker.job_ending import SlotContext
from spindown.worker.lease_renewer import LeaseRenewer
from spindown.worker.lifecycle import SharedLifecycle
from spindown.worker.log import EventLog, open_log
from spindown.worker.machine.leftover import Leftovers
from spindown.worker.settings import WorkerSettings
from spindown.worker.slot import Slot
from spindown.worker.watch import Watch
from tests.work import WORKLOAD, WorkWorld, a_slot_id, identity_of, items

MINUTE = timedelta(minutes=1)
JOB = {"job_id": "j", "items": items(5)}

#: Answers a batch with events; None is a poll that finds nothing yet.
Script = Callable[[Task, Sequence[Item]], Sequence[Event | None]]


def square(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
    """Answer every item with its index squared."""
    return [ItemDone(index=item.index, value=item.index**2) for item in batch] + [BatchDone()]


@dataclass
class ScriptedRunner:
    """Runner that answers from a script; each poll may be preceded by a happening."""

    script: Script = square
    before_poll: Callable[[int], None] | None = None
    batches: list[list[int]] = field(default_factory=list)
    paths: list[Path | None] = field(default_factory=list)
    kills: int = 0
    pid: int | None = None
    group: Path | None = None
    polls: int = 0
    _events: list[Event | None] = field(default_factory=list)

    @property
    def has_begun(self) -> bool:
        """Tell whether there is a batch: a script is always ready."""
        return bool(self._events)

    def warm(self) -> None:
        """Do nothing: a script is always ready."""

    def begin(self, task: Task, batch: Sequence[Item]) -> None:
        self.batches.append([item.index for item in batch])
        self.paths += [item.path for item in batch]
        self._events = list(self.script(task, batch))

    def poll(self, timeout: timedelta) -> Event | None:
        self.polls += 1
        if self.before_poll is not None:
            self.before_poll(self.polls)
        return self._events.pop(0) if self._events else None

    def stop(self, grace: timedelta) -> Sequence[ItemDone]:
        self.kill()
        return ()

    def kill(self) -> None:
        self.kills += 1
        self._events = []


class SlotWorld:
    """A slot, its watch and the world that they live in."""

    def __init__(
        self,
        scratch: Path,
        *,
        runner: ScriptedRunner | None = None,
        policy: Policy | None = None,
        batch_size: int = 2,
        instance_id: str = "i-1",
        world: WorkWorld | None = None,
        shape: str = "",
        leftovers: Leftovers | None = None,
    ) -> None:
        self.world = world or WorkWorld(policy=policy or Policy())
        self.runner = runner or ScriptedRunner()
        scratch.mkdir(exist_ok=True)
        self.output = io.StringIO()
        ports, clock = self.world.ports, self.world.clock
        worker_row = self.world.worker_row(instance_id)
        slot_id = replace(a_slot_id(instance_id), code_version="v", shape=shape)
        self.log: EventLog = open_log(self.output)
        self.life = a_lifecycle(self.world, self.log, code_digest="d")
        # No test of one slot ends because it is idle.
        warm_until = clock.now() + timedelta(days=365)
        self.world.change_worker(instance_id, warm_until=warm_until)
        self.life.tell(CheckedIn, clock.now(), CapacityType.SPOT, 1)
        self.life.tell(RowSeen, warm_until)
        self.actions = WorkerActions(self.life, worker_row, ports, self.log)
        self.renewer = LeaseRenewer(slot_id, worker_row, ports)
        self.reporter = Reporter(
            deployment="test",
            workload=WORKLOAD,
            worker=self.world.worker(instance_id),
            ports=ports,
        )
        self.context = SlotContext(
            slot_id=slot_id,
            worker_row=worker_row,
            ports=ports,
            runner=self.runner,
            life=self.life,
            reporter=self.reporter,
            renewer=self.renewer,
            log=self.log,
            batch_size=batch_size,
            transfers=ThreadPoolExecutor(2),
            scratch=scratch,
            leftovers=leftovers,
        )
        self.slot = Slot(self.context)
        self.metadata = MemoryMetadata(identity_of(self.world.worker(instance_id)))
        self.watch = Watch(
            life=self.life,
            worker_row=worker_row,
            renewers=[self.renewer],
            metadata=self.metadata,
            ports=ports,
            reporter=self.reporter,
            settings=WorkerSettings(scratch=scratch, python="python", alive=scratch / "alive"),
            log=self.log,
        )

    def step(self) -> bool:
        """Let the slot deal with one message, if there is one; tell whether there was."""
        try:
            return self.slot.step()
        finally:
            self.act()

    def act(self) -> None:
        """Carry out what is commanded of the worker as a whole, but for the power-off."""
        while (command := self.life.take_worker_command()) is not None:
            self.actions.carry_out(command)

    def run(self) -> None:
        """Let the slot's thread work until the worker ends."""
        self.slot.thread.start()
        while self.slot.thread.is_alive():
            command = self.life.await_worker_command()
            if command is not None:
                self.actions.carry_out(command)
        self.act()

    def finish(self) -> None:
        """Let no new job be taken; the present one goes on."""
        standing = self.life.state.standing
        full = replace(standing, policy=replace(standing.policy, max_workers=0))
        self.life.tell(PolicySeen, full)

    def leave(self) -> None:
        """Let no new job be taken, and the present one be given back now."""
        self.life.tell(Stop)

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the log's events of one name."""
        lines = [json.loads(line) for line in self.output.getvalue().splitlines()]
        return [line for line in lines if line["event"] == name]


def a_lifecycle(world: WorkWorld, log: EventLog, *, code_digest: str = "") -> SharedLifecycle:
    """Return the lifecycle of a worker that may be told to stop at once."""
    habits = Habits(
        code_digest=code_digest,
        outdated_for=OUTDATED_FOR,
        stop_grace=timedelta(0),
        shortest_rest=timedelta(seconds=0.01),
    )
    standing = Standing(policy=world.policy, idle_timeout=10 * MINUTE)
    return SharedLifecycle(world.clock, standing, habits, log)


class InLine(Executor):
    """Does what it is given at once, so that a test knows when it is done."""

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(call(*args, **kwargs))
        return future


def in_line(slot: SlotWorld) -> None:
    slot.context = replace(slot.context, transfers=InLine())
    slot.slot = Slot(slot.context)
