"""What the threads of a worker tell each other: go on, finish, or leave by a certain time."""

import threading
from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from spindown.app.port import Clock, Message
from spindown.app.work.policy import Standing
from spindown.domain.interruption import commit_by
from spindown.domain.reason import ReasonCode

#: Jobs that are remembered to judge the machine by.
_OUTCOMES = 32


@dataclass(slots=True)
class Life:
    """The common state of a worker's threads. Every change wakes those who wait.

    A worker goes on until somebody says ``finish`` (take no new job, end the present ones) or
    ``leave`` (besides, commit and release what is held by a certain time).
    """

    clock: Clock
    standing: Standing
    #: Which version of the user's code the worker runs.
    code_digest: str = ""
    #: Held while a message is received, so that an idle worker asks with one poll, not with one
    #: for each slot, and so that nobody receives between the last poll and the end.
    polling: threading.Lock = field(default_factory=threading.Lock)
    #: Messages received for whichever slot is free.
    inbox: list[Message] = field(default_factory=list)
    #: (job id, failed) of the last jobs that a slot has ended, oldest first.
    outcomes: deque[tuple[str, bool]] = field(default_factory=lambda: deque(maxlen=_OUTCOMES))
    #: When EC2 takes the instance, once it has said so.
    deadline: datetime | None = None
    #: By when held jobs must be committed and released.
    leave_by: datetime | None = None
    #: Until when the worker stays though it is idle.
    warm_until: datetime | None = None
    #: Since when EC2 sees a higher risk of an interruption; None: it has not said so.
    risk_since: datetime | None = None
    #: Why no new job is taken; NONE while jobs are taken.
    reason: ReasonCode = ReasonCode.NONE
    #: EC2 announced the interruption; or it is ours to leave.
    interrupted: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _changed: threading.Event = field(default_factory=threading.Event)

    @property
    def is_finishing(self) -> bool:
        """Tell whether no new job may be taken."""
        return self.reason is not ReasonCode.NONE

    @property
    def is_warm(self) -> bool:
        """Tell whether reconcile keeps the worker for whatever comes."""
        return self.warm_until is not None and self.clock.now() < self.warm_until

    def finish(self, reason: ReasonCode) -> bool:
        """Take no new job; tell whether this was news."""
        with self._lock:
            is_news = not self.is_finishing
            self.reason = self.reason or reason
        self._changed.set()
        return is_news

    def leave(self, by: datetime, reason: ReasonCode) -> bool:
        """Take no new job and give back what is held by ``by``; tell whether this was news."""
        with self._lock:
            is_news = self.leave_by is None or by < self.leave_by
            self.leave_by = min(by, self.leave_by or by)
            self.reason = self.reason or reason
        self._changed.set()
        return is_news

    def interrupt(self, deadline: datetime) -> bool:
        """Note when EC2 takes the instance and leave before; tell whether this was news."""
        with self._lock:
            is_news = self.deadline is None
            self.deadline = min(deadline, self.deadline or deadline)
            self.interrupted = True
        self.leave(commit_by(deadline, self.standing.policy), ReasonCode.INTERRUPTED)
        return is_news

    def rebalance(self) -> bool:
        """Take no new job, since EC2 advises to leave; tell whether this was news."""
        with self._lock:
            self.risk_since = self.risk_since or self.clock.now()
        return self.finish(ReasonCode.REBALANCE)

    def is_at_risk_since(self, committed_at: datetime) -> bool:
        """Tell whether EC2 has seen a higher risk after a commit."""
        return self.risk_since is not None and self.risk_since >= committed_at

    def must_leave(self, *, ahead: timedelta = timedelta(0)) -> bool:
        """Tell whether held jobs must be given back in ``ahead`` from now."""
        return self.leave_by is not None and self.clock.now() + ahead >= self.leave_by

    def wake(self) -> None:
        """Wake whoever waits."""
        self._changed.set()

    def wait(self, length: timedelta) -> None:
        """Wait, at most until something changes."""
        if self._changed.wait(max(length.total_seconds(), 0)):
            self._changed.clear()
