"""Virtual time: a clock that is moved by hand, and a heap of what is planned.

Two events at one instant come in the order of their ``Turn``, then in the order in which they
were planned, so that a run depends on nothing but its input.
"""

import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import IntEnum

Action = Callable[[], None]


class MemoryClock:
    """Tells the instant that it was last moved to; goes back only if somebody sets it."""

    def __init__(self, at: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        #: The present instant.
        self.at = at
        self._begun_at = at

    def now(self) -> datetime:
        """Return the present instant."""
        return self.at

    def elapsed(self) -> timedelta:
        """Return the time since it began, however it was set."""
        return self.at - self._begun_at

    def set_by(self, by: timedelta) -> None:
        """Set it ahead or back, while no time passes."""
        self.at += by
        self._begun_at += by

    def advance(self, by: timedelta) -> datetime:
        """Move on by a stretch of time and return the new instant."""
        return self.advance_to(self.at + by)

    def advance_to(self, at: datetime) -> datetime:
        """Move on to an instant and return it.

        Raises:
            ValueError: it lies in the past.
        """
        if at < self.at:
            raise ValueError(f"a clock does not go back from {self.at} to {at}")
        self.at = at
        return at


class Turn(IntEnum):
    """Who comes first at one instant: what the world does, then workers, then control."""

    #: An instance is gone.
    END = 0
    #: A price or a capacity changes, EC2 takes an instance away.
    MARKET = 1
    ARRIVAL = 2
    #: Hidden messages become visible.
    QUEUE = 3
    WORKER = 4
    #: An event of EC2's reaches its function.
    EVENT = 5
    TICK = 6


class Planned:
    """One event that is still to come, unless it is called off."""

    __slots__ = ("action",)

    def __init__(self, action: Action) -> None:
        self.action: Action | None = action

    def call_off(self) -> None:
        """Let it not happen."""
        self.action = None


class Agenda:
    """Planned events in order, and the time."""

    def __init__(self, start: datetime) -> None:
        self.start = start
        self.clock = MemoryClock(start)
        #: Events that have happened.
        self.events = 0
        self._heap: list[tuple[datetime, int, int, Planned]] = []
        self._planned = 0

    @property
    def now(self) -> datetime:
        """Return the present instant."""
        return self.clock.at

    @property
    def seconds(self) -> float:
        """Return the present in seconds since the start."""
        return (self.now - self.start).total_seconds()

    def plan(self, at: datetime, turn: Turn, action: Action) -> Planned:
        """Let something happen at an instant; what is past happens now."""
        planned, now = Planned(action), self.clock.at
        self._planned += 1
        due = max(now, at)
        heapq.heappush(self._heap, (due, turn, self._planned, planned))
        return planned

    def plan_at(self, seconds: float, turn: Turn, action: Action) -> Planned:
        """Let something happen so many seconds after the start."""
        return self.plan(self.start + timedelta(seconds=seconds), turn, action)

    def plan_in(self, seconds: float, turn: Turn, action: Action) -> Planned:
        """Let something happen so many seconds from now."""
        return self.plan(self.now + timedelta(seconds=seconds), turn, action)

    def next_at(self) -> datetime | None:
        """Return when the next event comes; None: there is none."""
        heap = self._heap
        while heap and heap[0][3].action is None:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def step(self) -> bool:
        """Let the next event happen; False if there is none."""
        heap = self._heap
        while heap:
            at, _, _, planned = heapq.heappop(heap)
            action, planned.action = planned.action, None
            if action is not None:
                self.clock.advance_to(at)
                self.events += 1
                action()
                return True
        return False

    def run_to(self, now: datetime) -> None:
        """Let everything happen that is planned up to an instant, which is the present then."""
        while (due := self.next_at()) is not None and due <= now:
            self.step()
        self.clock.advance_to(max(now, self.now))
