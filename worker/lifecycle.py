"""The lifecycle of this process's worker, shared by its threads.

``domain.worker_lifecycle`` decides. Here is its state behind a lock, with a queue of commands for
each slot and one for the worker as a whole; whoever waits for a command is woken by it.
"""

import threading
from collections import defaultdict, deque
from collections.abc import Callable
from datetime import datetime, timedelta

from spindown.domain.policy import Policy
from spindown.domain.reason import ReasonCode
from spindown.domain.worker_lifecycle import (
    CutPoll,
    Habits,
    Lifecycle,
    Note,
    ReleaseJob,
    SlotCommand,
    Standing,
    TellNotice,
    TellRebalance,
    TimePassed,
    WorkerCommand,
    WorkerEvent,
    next_at,
    step,
)
from spindown.port import Clock, Message
from spindown.worker.log import EventLog

#: How often the clock is looked at: somebody may set it.
_LOOK_UP = timedelta(seconds=1)


class SharedLifecycle:
    """The state of the worker, and the commands that nobody has carried out yet."""

    def __init__(self, clock: Clock, standing: Standing, habits: Habits, log: EventLog) -> None:
        self.clock = clock
        #: What the last poll has brought, for the slot that is told to take it.
        self.last_message: Message | None = None
        self._log = log
        self._state = Lifecycle(habits=habits, standing=standing)
        self._changed = threading.Condition()
        self._of_slots: defaultdict[int, deque[SlotCommand]] = defaultdict(deque)
        self._of_worker: deque[WorkerCommand] = deque()

    @property
    def state(self) -> Lifecycle:
        """Return the state as it is now."""
        return self._state

    @property
    def policy(self) -> Policy:
        """Return the policy in force."""
        return self._state.policy

    @property
    def reason(self) -> ReasonCode:
        """Return why no new job is taken; NONE while jobs are taken."""
        return self._state.reason

    @property
    def is_finishing(self) -> bool:
        """Tell whether no new job may be taken."""
        return self._state.is_finishing

    def must_leave(self, *, ahead: timedelta = timedelta(0)) -> bool:
        """Tell whether held jobs must be given back in ``ahead`` from now."""
        return self._state.must_leave(self.clock.now(), ahead=ahead)

    def tell(
        self, event: Callable[..., WorkerEvent], *args: object, **more: object
    ) -> list[TellNotice | TellRebalance]:
        """Let an event happen now; return what its teller is to write down.

        The other commands wait for the slots and the worker.
        """
        answers, notes = list[TellNotice | TellRebalance](), list[Note]()
        with self._changed:
            self._state, commands = step(self._state, event(self.clock.now(), *args, **more))
            for command in commands:
                match command:
                    case Note():
                        notes.append(command)
                    case TellNotice() | TellRebalance():
                        answers.append(command)
                    case CutPoll() | ReleaseJob():
                        # A poll under way cannot be ended; attempts look at the time themselves.
                        continue
                    case SlotCommand():
                        self._of_slots[command.slot].append(command)
                    case _:
                        self._of_worker.append(command)
            self._changed.notify_all()
        for note in notes:
            write = self._log.warning if note.is_warning else self._log.info
            write(note.event, **dict(note.fields))
        return answers

    def has_slot_command(self, slot: int) -> bool:
        """Tell whether a slot is commanded to do something."""
        return bool(self._of_slots[slot])

    def take_slot_command(self, slot: int) -> SlotCommand | None:
        """Return the next command to a slot, if there is one."""
        with self._changed:
            return self._of_slots[slot].popleft() if self._of_slots[slot] else None

    def await_slot_command(self, slot: int) -> SlotCommand:
        """Return the next command to a slot, waiting for it."""
        with self._changed:
            while not self._of_slots[slot]:
                self._changed.wait()
            return self._of_slots[slot].popleft()

    def take_worker_command(self) -> WorkerCommand | None:
        """Return the next command to the worker as a whole, if there is one."""
        with self._changed:
            return self._of_worker.popleft() if self._of_worker else None

    def await_worker_command(self) -> WorkerCommand | None:
        """Wait for a command to the worker, while time passes; None: something has changed."""
        with self._changed:
            if not self._of_worker:
                self._changed.wait(self._until_next().total_seconds())
        self.tell(TimePassed)
        return self.take_worker_command()

    def _until_next(self) -> timedelta:
        at: datetime | None = next_at(self._state)
        if at is None:
            return _LOOK_UP
        return min(max(at - self.clock.now(), timedelta(0)), _LOOK_UP)
