"""The slot of a worker's process, as shipped, in a thread that goes on only step by step.

It pauses when it has received a message, when it has claimed the job, when its code begins, and
after so many items. Between two steps the process may be killed, or stall while the world takes
it for dead and goes on; every step then does what the worker does on waking up.
"""

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from enum import Enum, auto
from pathlib import Path
from typing import Any

from spindown.error import SpindownError
from spindown.job.claimed_job import ClaimedJob
from spindown.port import Message
from spindown.user import Item
from spindown.worker.child.failure_cause import Broken, FailureCause
from spindown.worker.child.runner import Event, ItemDone, Task
from spindown.worker.job_ending import SlotContext
from spindown.worker.lease_renewer import LeaseRenewer
from spindown.worker.slot import Slot
from tests.proof.fault import Crashed
from tests.slot import ScriptedRunner


class At(Enum):
    """Where a slot's thread has paused."""

    REST = auto()
    RECEIVED = auto()
    CLAIMED = auto()
    BEGUN = auto()
    COMPUTING = auto()


class Steps:
    """A call in a thread of its own; of it and its caller, one goes on at a time."""

    def __init__(self, call: Callable[[], object]) -> None:
        self.is_over = False
        self._call = call
        self._error: BaseException | None = None
        self._is_abandoned = False
        self._go, self._paused = threading.Semaphore(0), threading.Semaphore(0)
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        self._go.acquire()
        try:
            self._call()
        except BaseException as exc:  # noqa: BLE001 - it is raised where the caller waits
            self._error = exc
        self.is_over = True
        self._paused.release()

    def go_on(self) -> None:
        """Let the call go on to its next pause, or its end; raise what it has raised."""
        self._go.release()
        self._paused.acquire()
        if self._error is not None:
            raise self._error

    def pause(self) -> None:
        """Let the caller go on; raises Crashed if it wants no more of the call."""
        self._paused.release()
        self._go.acquire()
        if self._is_abandoned:
            raise Crashed("the process is gone")

    def abandon(self) -> None:
        """Let the call unwind."""
        self._is_abandoned = True
        self._go.release()
        self._paused.acquire()


class Hand:
    """A slot and what it has in hand."""

    def __init__(self, context: SlotContext, shared: ScriptedRunner) -> None:
        self.runner = HandRunner(self, shared)
        queue = PausingQueue(self, context.ports.queue)
        renewer = PausingRenewer(self, context)
        ports = replace(context.ports, queue=queue)
        self.context = replace(context, ports=ports, runner=self.runner, renewer=renewer)
        self.slot = Slot(self.context)
        self.at = At.REST
        self.message: Message | None = None
        self.held: ClaimedJob | None = None
        #: Items that it computes before it pauses.
        self.budget = math.inf
        self.is_failing = False
        #: The next poll of the code finds nothing, so that the attempt looks up.
        self.looks_up = False
        #: Why the code breaks at the next poll.
        self.breaks: str | None = None
        self._steps: Steps | None = None
        self._pauses = True

    @property
    def is_free(self) -> bool:
        return self._steps is None

    def step(self, *, count: float = 2, failing: bool = False) -> None:
        """Do whatever comes next."""
        self.budget, self.is_failing = count, failing
        self._go_on(self._poll)

    @property
    def has_orders(self) -> bool:
        """Tell whether the slot is free and commanded to do something."""
        return self.is_free and self.context.life.has_slot_command(self.context.slot_id.slot)

    def settle(self) -> None:
        """Do what is commanded already, if the slot is free."""
        if self.has_orders:
            self.budget = 0
            self._go_on(self.slot.go_on)

    def checkpoint(self) -> None:
        """Let the attempt look whether a commit is due."""
        if self.at is At.COMPUTING:
            self.looks_up, self.budget = True, 0
            self._go_on(self._poll)

    def fail(self, reason: str) -> None:
        """Let the code break."""
        if self.at is At.COMPUTING:
            self.breaks = reason
            self.end()

    def end(self) -> None:
        """End what is in hand."""
        self._pauses, self.budget, self.is_failing = False, math.inf, False
        self.looks_up = self.at is At.COMPUTING
        while not self.is_free:
            self._go_on(self._poll)
        self._pauses = True

    def work(self) -> None:
        """Take and work off one job without a pause (raises SpindownError)."""
        self.end()
        self.budget = math.inf
        self._poll()

    def _poll(self) -> bool:
        # What a slot's own thread tells before it begins.
        self.context.on_ready()
        return self.slot.step()

    def die(self) -> None:
        """Be gone; who is in the middle of a step unwinds by itself."""
        steps, self._steps = self._steps, None
        if steps is not None and self.at is not At.REST:
            self.at = At.REST
            steps.abandon()

    def pause(self, at: At) -> None:
        if self._steps is not None and self._pauses:
            self.at = at
            self._steps.pause()
            self.at = At.REST

    def _go_on(self, call: Callable[[], object]) -> None:
        steps = self._steps = self._steps or Steps(call)
        try:
            steps.go_on()
        except SpindownError:
            # The slot has told the lifecycle, and backs off.
            pass
        finally:
            if steps.is_over:
                self._steps = self.message = self.held = None
                self.looks_up, self.breaks = False, None


class HandRunner:
    """Runs the script of its process, item by item."""

    pid: int | None = None
    group: Path | None = None

    def __init__(self, hand: Hand, shared: ScriptedRunner) -> None:
        self._hand = hand
        self._shared = shared
        self._events: list[Event | None] = []

    @property
    def has_begun(self) -> bool:
        """Tell whether there is a batch: a script is always ready."""
        return bool(self._events)

    def warm(self) -> None:
        """Do nothing: a script is always ready."""

    def begin(self, task: Task, batch: Sequence[Item]) -> None:
        self._events = list(self._shared.script(task, batch))
        self._hand.pause(At.BEGUN)

    def poll(self, timeout: timedelta) -> Event | None:
        hand = self._hand
        self._shared.polls += 1
        if self._shared.before_poll is not None:
            self._shared.before_poll(self._shared.polls)
        while hand.budget <= 0 and not hand.looks_up:
            hand.pause(At.COMPUTING)
        if hand.looks_up:
            hand.looks_up = False
            return None
        if hand.breaks is not None:
            return Broken(FailureCause.ENDED, hand.breaks)
        event = self._events.pop(0) if self._events else None
        if not isinstance(event, ItemDone):
            return event
        hand.budget -= 1
        return replace(event, value=None, error="no") if hand.is_failing else event

    def stop(self, grace: timedelta) -> Sequence[ItemDone]:
        self.kill()
        return ()

    def kill(self) -> None:
        self._events = []


class PausingQueue:
    """Pauses with a message in hand; everything else is the queue's own."""

    def __init__(self, hand: Hand, queue: Any) -> None:
        self._hand = hand
        self._queue = queue

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    def receive(self, *, wait: timedelta, visibility: timedelta) -> Message | None:
        message: Message | None = self._queue.receive(wait=wait, visibility=visibility)
        if message is not None:
            self._hand.message = message
            self._hand.pause(At.RECEIVED)
        return message


class PausingRenewer(LeaseRenewer):
    """Pauses with a job in hand."""

    def __init__(self, hand: Hand, context: SlotContext) -> None:
        super().__init__(context.slot_id, context.worker_row, context.ports)
        self._hand = hand

    def take(self, held: ClaimedJob, not_after: datetime | None) -> None:
        super().take(held, not_after)
        self._hand.message, self._hand.held = None, held
        self._hand.pause(At.CLAIMED)
