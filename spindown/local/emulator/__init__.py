"""MiniStack, embedded: every touch of its private API is in this package.

It has one state for the process, so there is one local system in a process at a time. What it
leaves out (queue metrics, alarms by dimensions, alarm actions on functions, metrics embedded in
log lines) is added by `monitor` and `schedule` through these functions, and what it does in
another way is switched off. All of them must be called on the event loop that serves the app.

Pinned: ministack==1.5.33. Each function has a test that fails when that API changes.
"""

from spindown.local.emulator.ministack import (
    QueueDepth,
    load,
    may_invoke,
    put_event,
    queue_depths,
    rate_seconds,
    schedules,
    settings,
    stop_functions,
)
from spindown.local.emulator.telemetry import (
    alarms,
    forget_before,
    put_metric,
    set_alarm_state,
    statistic,
)

__all__ = [
    "QueueDepth",
    "alarms",
    "forget_before",
    "load",
    "may_invoke",
    "put_event",
    "put_metric",
    "queue_depths",
    "rate_seconds",
    "schedules",
    "set_alarm_state",
    "settings",
    "statistic",
    "stop_functions",
]
