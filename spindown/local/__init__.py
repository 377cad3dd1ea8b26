"""The deployed template, run on this machine."""

from datetime import timedelta

#: How long a minute of alarms and schedules lasts here, unless it is told otherwise.
TICK = timedelta(seconds=2)
