"""EventBridge at the local pace: deployed schedules, and rules by rate, with a shorter minute.

Only what Spindown deploys is played: rate() expressions on functions. Anything else is logged
once. A firing is left out while the one before it still runs, which on AWS would be long over.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from spindown.local import emulator

_LOGGER = logging.getLogger(__name__)
_MINUTE_SECONDS = 60
_PULSE_SECONDS = 0.05
#: The golden ratio: schedules begin so far apart, in shares of their time, that however many there
#: are none comes close to another.
_APART = 0.618

#: Invokes a function (region, ARN, payload) and returns when it has answered.
InvokeAndWait = Callable[[str, str, bytes], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """What a schedule does when its time has come, and how often that is."""

    schedule: str
    region: str
    function: str
    payload: bytes
    seconds: float


class Ticker:
    """Fires the schedules that are due, on the event loop of the emulator."""

    def __init__(
        self, *, tick: timedelta, invoke: InvokeAndWait, clock: Callable[[], datetime]
    ) -> None:
        """Play one minute of a schedule in one `tick`."""
        self._pace = tick.total_seconds() / _MINUTE_SECONDS
        self._invoke = invoke
        self._clock = clock
        self._fired_at: dict[str, float] = {}
        self._running: set[str] = set()
        self._refused: set[str] = set()
        self._is_over = False

    def stop(self) -> None:
        """Fire no more; a firing under way may fail without a word."""
        self._is_over = True

    def fire(self) -> None:
        """Fire every enabled schedule whose time has come."""
        if self._is_over:
            return
        for firing in self.due(self._clock().timestamp()):
            self._running.add(firing.schedule)
            threading.Thread(target=self._run, args=(firing,), name="schedule", daemon=True).start()

    def due(self, now: float) -> Iterator[Firing]:
        """Yield what fires at `now`, in seconds since the epoch, and count its next time from then.

        Schedules take turns, as in an account, where no two were made in the same moment: all at
        once they would ask for as many processes of their function.
        """
        for firing in self.firings():
            seconds = firing.seconds * self._pace
            turn = len(self._fired_at) * _APART % 1.0
            last = self._fired_at.setdefault(firing.schedule, now - turn * seconds)
            if now - last >= seconds and firing.schedule not in self._running:
                self._fired_at[firing.schedule] = now
                yield firing

    def firings(self) -> list[Firing]:
        """Return the enabled schedules that can be played, the rarest first."""
        found = []
        for region, schedule in emulator.schedules():
            target: Mapping[str, Any] = schedule.get("Target") or {}
            seconds = emulator.rate_seconds(schedule["ScheduleExpression"])
            is_function = target.get("Arn", "").startswith("arn:aws:lambda:")
            if seconds is None or not is_function:
                self._refuse(schedule["Arn"])
            elif schedule.get("State") == "ENABLED":
                firing = Firing(
                    schedule=schedule["Arn"],
                    region=region,
                    function=target["Arn"],
                    payload=target.get("Input", "{}").encode(),
                    seconds=seconds,
                )
                found.append(firing)
        return sorted(found, key=lambda firing: -firing.seconds)

    def _run(self, firing: Firing) -> None:
        try:
            self._invoke(firing.region, firing.function, firing.payload)
        except Exception:
            # The thread's edge: Scheduler drops a firing whose retries are used up.
            if not self._is_over:
                _LOGGER.exception("schedule failed: %s", firing.schedule)
        finally:
            self._running.discard(firing.schedule)

    def _refuse(self, arn: str) -> None:
        if arn not in self._refused:
            self._refused.add(arn)
            _LOGGER.warning("schedule is not played, only rate() on a function is: %s", arn)


@contextmanager
def pulse(step: Callable[[], None]) -> Iterator[None]:
    """Call `step` every few hundredths of a second, in one thread, until the context is left."""
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(_PULSE_SECONDS):
            try:
                step()
            except Exception:
                # The thread's edge: one guest that cannot start must not stop the others.
                _LOGGER.exception("the market or a guest failed")

    thread = threading.Thread(target=beat, name="pulse", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
