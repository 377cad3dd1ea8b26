"""The deployed template, run on this machine."""

from datetime import timedelta
from pathlib import Path

#: How long a minute of alarms and schedules lasts here, unless it is told otherwise.
TICK = timedelta(seconds=2)

#: The directory for logs and generated files, where nobody names another.
STATE = Path(".spindown")
