"""A standard SQS queue in memory that keeps every promise and every threat of the real one.

A visibility timeout really runs out, a receipt handle is worth nothing after it, messages come
in random order, and one that was received too often goes to the dead-letter queue.
"""

import heapq
import threading
from bisect import insort
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from random import Random

from spindown.domain.fleet import Backlog
from spindown.error import ContractError, NotFound, StaleHandle, Throttled
from spindown.port import Clock, Message, Outgoing

#: After a queue was deleted SQS may take messages for so long, and drops them with it. There can be
#: no new one of its name until then (Amazon SQS API Reference, "DeleteQueue").
REMOVED_WITHIN = timedelta(minutes=1)
#: SQS quotas: the longest wait, delay and visibility (which counts from the receive), the size of a
#: message with its attributes, and how many these are.
WAIT_MAX = timedelta(seconds=20)
DELAY_MAX = timedelta(minutes=15)
VISIBILITY_MAX = timedelta(hours=12)
MESSAGE_BYTES_MAX = 1024 * 1024
ATTRIBUTES_MAX = 10

_ZERO = timedelta(0)
_GONE = -1


@dataclass(slots=True, eq=False)
class _Entry:
    message_id: str
    body: str
    sent_at: datetime
    tenant: str | None
    attributes: Mapping[str, str]
    receives: int = 0
    #: Raised by every change, so that an entry of the heap made before it is void.
    turn: int = 0
    #: Hidden by its own delay, not by a receive.
    delayed: bool = False
    visible: bool = False
    received_at: datetime | None = None


class MemoryJobQueue:
    """JobQueue in memory. ``receive`` never waits: nothing arrives while the clock stands."""

    def __init__(
        self,
        clock: Clock,
        random: Random,
        *,
        name: str = "queue",
        dead_letter: "MemoryJobQueue | None" = None,
        max_receive_count: int = 100,
        retention: timedelta = timedelta(days=14),
        disorder: int | None = None,
        exists: bool = True,
    ) -> None:
        """Begin empty.

        Args:
            clock: what delays, visibility and retention follow.
            random: draws the message that a receive takes.
            name: begins the ids of its messages.
            dead_letter: where messages go that were received too often; None: nowhere.
            max_receive_count: receives after which a message goes there.
            retention: how long a message is kept.
            disorder: a receive takes one of so many oldest; None: any one. SQS promises no
                order and keeps it roughly, so None finds faults and a number tells waits.
            exists: whether it is there already; False: it is yet to be made.
        """
        self._exists = exists
        self._removed_at: datetime | None = None
        self._clock = clock
        self._random = random
        self._name = name
        self._dead_letter = dead_letter
        self._max_receive_count = max_receive_count
        self._retention = retention
        self._disorder = disorder
        self._lock = threading.RLock()
        self._turns = 0
        self._visible: list[_Entry] = []
        #: (instant, turn, entry): when hidden messages appear and when messages expire.
        self._hidden: list[tuple[datetime, int, _Entry]] = []
        self._expiries: list[tuple[datetime, int, _Entry]] = []
        self._by_handle: dict[str, _Entry] = {}
        self._in_flight = 0
        self._delayed = 0

    def send(self, messages: Sequence[Outgoing]) -> None:
        """Send messages; all are checked before the first is sent."""
        for outgoing in messages:
            _check_outgoing(outgoing)
        with self._lock:
            now = self._clock.now()
            if self._is_going(now):
                return
            self._check()
            for outgoing in messages:
                entry = _Entry(
                    message_id=f"{self._name}-{self._turns + 1}",
                    body=outgoing.body,
                    sent_at=now,
                    tenant=outgoing.tenant,
                    attributes=dict(outgoing.attributes),
                )
                self._add(entry, now + outgoing.delay)

    def receive(self, *, wait: timedelta, visibility: timedelta) -> Message | None:
        """Take one message at random; None when none is visible."""
        if not _ZERO <= wait <= WAIT_MAX:
            raise ContractError("wait", str(wait), "wait at most 20 seconds")
        _check_visibility(visibility)
        with self._lock:
            self._check()
            now = self._clock.now()
            self._settle(now)
            entry = self._draw()
            if entry is None:
                return None
            entry.receives += 1
            entry.received_at = now
            handle = _handle(entry)
            self._by_handle[handle] = entry
            self._hide(entry, now + visibility)
            return Message(
                message_id=entry.message_id,
                body=entry.body,
                receipt_handle=handle,
                receive_count=entry.receives,
                sent_at=entry.sent_at,
                received_at=now,
                tenant=entry.tenant,
                attributes=entry.attributes,
            )

    def has_visible(self) -> bool:
        """Tell whether there is a message to receive now."""
        with self._lock:
            hidden, now = self._hidden, self._clock.now()
            if hidden and hidden[0][0] <= now:
                self._settle(now)
            return bool(self._visible)

    def extend(self, receipt_handle: str, visibility: timedelta) -> None:
        """Hide a message for ``visibility`` from now, at most 12 hours after its receive."""
        _check_visibility(visibility)
        with self._lock:
            now = self._clock.now()
            entry = self._held(receipt_handle, now)
            if now + visibility > (entry.received_at or now) + VISIBILITY_MAX:
                raise StaleHandle(f"{receipt_handle}: beyond 12 hours from its receive")
            self._in_flight -= 1
            self._hide(entry, now + visibility)

    def show(self, receipt_handles: Sequence[str]) -> None:
        """Requeue messages; a handle that has lost its message is left out."""
        for receipt_handle in receipt_handles:
            with suppress(StaleHandle):
                self.extend(receipt_handle, _ZERO)

    def delete(self, receipt_handle: str) -> None:
        """Delete a message for good."""
        with self._lock:
            entry = self._held(receipt_handle, self._clock.now())
            self._remove(entry)

    def backlog(self) -> Backlog:
        """Return the exact numbers of messages."""
        with self._lock:
            self._check()
            self._settle(self._clock.now())
            return Backlog(
                visible=len(self._visible), in_flight=self._in_flight, delayed=self._delayed
            )

    def create(
        self,
        *,
        dead_letters: str,  # noqa: ARG002 - it was given at the start
        tags: Mapping[str, str],  # noqa: ARG002 - nobody asks for them here
    ) -> None:
        """Make the queue; one that is there stays as it is."""
        with self._lock:
            if self._is_going(self._clock.now()):
                raise Throttled(f"a queue {self._name} was deleted less than a minute ago")
            self._exists, self._removed_at = True, None

    @property
    def is_there(self) -> bool:
        """Tell whether it is made."""
        return self._exists

    def remove(self) -> None:
        """Delete the queue with all its messages."""
        with self._lock:
            for *_, entry in self._expiries:
                if entry.turn != _GONE:
                    self._remove(entry)
            if self._exists:
                self._exists, self._removed_at = False, self._clock.now()

    def _is_going(self, now: datetime) -> bool:
        """Tell whether it was deleted a moment ago, so that SQS still takes messages."""
        return self._removed_at is not None and now - self._removed_at < REMOVED_WITHIN

    def _check(self) -> None:
        if not self._exists:
            raise NotFound(f"there is no queue {self._name}")

    def next_visible_at(self) -> datetime | None:
        """Return when the next hidden message becomes visible; None: none is hidden."""
        with self._lock:
            hidden = self._hidden
            while hidden and hidden[0][2].turn != hidden[0][1]:
                heapq.heappop(hidden)
            return hidden[0][0] if hidden else None

    def bodies(self) -> list[str]:
        """Return the body of every message there is, visible or not, oldest first."""
        with self._lock:
            self._settle(self._clock.now())
            present = sorted(e[1:] for e in self._expiries if e[2].turn != _GONE)
            return [entry.body for _, entry in present]

    def _add(self, entry: _Entry, visible_at: datetime) -> None:
        now = self._clock.now()
        self._turns += 1
        heapq.heappush(self._expiries, (entry.sent_at + self._retention, self._turns, entry))
        if visible_at > now:
            entry.delayed = True
            self._hide(entry, visible_at)
        else:
            self._show(entry)

    def _show(self, entry: _Entry) -> None:
        self._turns += 1
        entry.turn = self._turns
        entry.visible = True
        entry.delayed = False
        if self._disorder is None:
            self._visible.append(entry)
        else:
            insort(self._visible, entry, key=_sent_at)

    def _hide(self, entry: _Entry, until: datetime) -> None:
        self._turns += 1
        entry.turn = self._turns
        if entry.delayed:
            self._delayed += 1
        else:
            self._in_flight += 1
        heapq.heappush(self._hidden, (until, self._turns, entry))

    def _settle(self, now: datetime) -> None:
        """Show what has become visible, drop what has expired."""
        hidden = self._hidden
        while hidden and hidden[0][0] <= now:
            _, turn, entry = heapq.heappop(hidden)
            if entry.turn == turn:
                self._unhide(entry)
                self._show(entry)
        expiries = self._expiries
        while expiries and (expiries[0][0] <= now or expiries[0][2].turn == _GONE):
            entry = heapq.heappop(expiries)[2]
            if entry.turn != _GONE:
                self._remove(entry)

    def _unhide(self, entry: _Entry) -> None:
        if entry.delayed:
            self._delayed -= 1
        else:
            self._in_flight -= 1
            self._by_handle.pop(_handle(entry), None)

    def _remove(self, entry: _Entry) -> None:
        if entry.visible:
            self._visible.remove(entry)
        else:
            self._unhide(entry)
        entry.turn = _GONE

    def _draw(self) -> _Entry | None:
        visible = self._visible
        while visible:
            entry = self._take_one(visible)
            entry.visible = False
            if self._dead_letter is None or entry.receives < self._max_receive_count:
                return entry
            entry.turn = _GONE
            self._dead_letter.take_over(entry)
        return None

    def _take_one(self, visible: list[_Entry]) -> _Entry:
        if self._disorder is not None:
            return visible.pop(int(self._random.random() * min(self._disorder, len(visible))))
        index = int(self._random.random() * len(visible))
        entry, visible[index] = visible[index], visible[-1]
        visible.pop()
        return entry

    def take_over(self, entry: _Entry) -> None:
        """Accept a message that was received too often elsewhere; it keeps its id and age."""
        moved = replace(entry, turn=0, delayed=False, visible=False, received_at=None)
        with self._lock:
            self._add(moved, self._clock.now())

    def _held(self, receipt_handle: str, now: datetime) -> _Entry:
        self._check()
        self._settle(now)
        entry = self._by_handle.get(receipt_handle)
        if entry is None:
            raise StaleHandle(f"{receipt_handle}: received again, timed out or deleted")
        return entry


def _sent_at(entry: _Entry) -> datetime:
    return entry.sent_at


def _handle(entry: _Entry) -> str:
    return f"{entry.message_id}/{entry.receives}"


def _check_visibility(visibility: timedelta) -> None:
    if not _ZERO <= visibility <= VISIBILITY_MAX:
        raise ContractError("visibility", str(visibility), "hide a message for at most 12 hours")


def _check_outgoing(outgoing: Outgoing) -> None:
    if len(outgoing.attributes) > ATTRIBUTES_MAX:
        raise ContractError("message", f"{len(outgoing.attributes)} attributes", "send at most 10")
    if outgoing.bytes > MESSAGE_BYTES_MAX:
        raise ContractError("message", f"{outgoing.bytes} bytes", "send at most 1 MiB")
    if not _ZERO <= outgoing.delay <= DELAY_MAX:
        raise ContractError("delay", str(outgoing.delay), "delay by at most 15 minutes")
