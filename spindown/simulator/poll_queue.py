"""SQS as pollers see it: a message that becomes visible goes to one of those who wait, at random.

Nothing is handed out in order of idleness; that work concentrates on few is the pollers' own
doing, by asking less often the longer they idle.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random

from spindown.ec2sim import Agenda, Planned, Turn
from spindown.memory import MemoryJobQueue
from spindown.port import Message

Taker = Callable[[Message | None], None]


class WaitingPoll:
    """One long poll under way."""

    __slots__ = ("ends", "taker")

    def __init__(self, taker: Taker, ends: Planned) -> None:
        self.taker = taker
        self.ends = ends


class PollQueue:
    """The polls that wait at one queue."""

    def __init__(self, agenda: Agenda, queue: MemoryJobQueue, random: Random) -> None:
        self._agenda = agenda
        self._queue = queue
        self._random = random
        self._visibility = timedelta(minutes=5)
        self._waiting: list[WaitingPoll] = []
        #: When the next hidden message becomes visible, as planned.
        self._due: datetime | None = None
        self._wake: Planned | None = None

    def receive(self, visibility: timedelta) -> Message | None:
        """Take a message that is visible now."""
        self._visibility = visibility
        return self._queue.receive(wait=timedelta(0), visibility=visibility)

    def wait(self, taker: Taker, length: timedelta) -> WaitingPoll:
        """Wait for a message; ``taker`` gets it, or None when the poll ends without one."""
        poll = WaitingPoll(
            taker, self._agenda.plan(self._agenda.now + length, Turn.WORKER, lambda: None)
        )
        poll.ends.action = lambda: self._expire(poll)
        self._waiting.append(poll)
        return poll

    def give_up(self, poll: WaitingPoll) -> None:
        """End a poll of which nobody shall hear."""
        poll.ends.call_off()
        if poll in self._waiting:
            self._waiting.remove(poll)

    def serve(self) -> None:
        """Hand out what has become visible; plan to look again when the next message does."""
        if not self._waiting and self._due is None:
            return
        while self._waiting and self._queue.has_visible():
            message = self.receive(self._visibility)
            if message is None:
                break
            poll = self._waiting.pop(int(self._random.random() * len(self._waiting)))
            poll.ends.call_off()
            poll.taker(message)
        due = self._queue.next_visible_at() if self._waiting else None
        if due == self._due:
            return
        if self._wake is not None:
            self._wake.call_off()
        self._due = due
        self._wake = None if due is None else self._agenda.plan(due, Turn.QUEUE, self._woken)

    def _woken(self) -> None:
        """Leave the rest to ``serve``, which follows every event."""
        self._due = self._wake = None

    def _expire(self, poll: WaitingPoll) -> None:
        self._waiting.remove(poll)
        poll.taker(None)
