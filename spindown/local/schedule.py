"""EventBridge Scheduler at the local pace: the deployed schedules, with a shorter minute.

Only what Spindown deploys is played: rate() expressions on functions. Anything else is logged
once. A firing is left out while the one before it still runs, which on AWS would be long over.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from spindown.local import emulator

_LOGGER = logging.getLogger(__name__)
_MINUTE_SECONDS = 60

#: Invokes a function (region, ARN, payload) and returns when it has answered.
InvokeAndWait = Callable[[str, str, bytes], None]


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

    def fire(self) -> None:
        """Fire every enabled schedule whose time has come."""
        now = self._clock().timestamp()
        for region, schedule in emulator.schedules():
            arn = schedule["Arn"]
            seconds = emulator.rate_seconds(schedule["ScheduleExpression"])
            target: Mapping[str, Any] = schedule.get("Target") or {}
            if schedule.get("State") != "ENABLED":
                continue
            if seconds is None or not target.get("Arn", "").startswith("arn:aws:lambda:"):
                self._refuse(arn)
                continue
            last = self._fired_at.setdefault(arn, now)
            if now - last < seconds * self._pace or arn in self._running:
                continue
            self._fired_at[arn] = now
            self._running.add(arn)
            threading.Thread(
                target=self._run,
                args=(arn, region, target["Arn"], target.get("Input", "{}").encode()),
                name="schedule",
                daemon=True,
            ).start()

    def _run(self, arn: str, region: str, function_arn: str, payload: bytes) -> None:
        try:
            self._invoke(region, function_arn, payload)
        except Exception:
            # The thread's edge: Scheduler drops a firing whose retries are used up.
            _LOGGER.exception("schedule failed: %s", arn)
        finally:
            self._running.discard(arn)

    def _refuse(self, arn: str) -> None:
        if arn not in self._refused:
            self._refused.add(arn)
            _LOGGER.warning("schedule is not played, only rate() on a function is: %s", arn)
