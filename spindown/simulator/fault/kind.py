"""What may go wrong in a scenario, as values."""

from dataclasses import dataclass

#: (from, to), seconds.
Spans = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """The alarm on the queue's depth, which acts only when its state changes.

    SQS publishes its metrics by the minute, and the alarm looks at them after; a queue that nobody
    used for six hours stops publishing, and begins again as late as 15 minutes after (AWS,
    "Available CloudWatch metrics for Amazon SQS").
    """

    #: From a message to the alarm that knows of it, seconds: at random between these.
    late_at_least: float = 60.0
    late_at_most: float = 120.0
    #: Likewise for the first message after ``quiet_after`` seconds without any.
    late_after_quiet: float = 900.0
    quiet_after: float = 6 * 3600.0
    #: It is in alarm from the beginning on, and never leaves that state.
    is_stuck: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What goes wrong; by default nothing. The functions' own end is ``control_down``."""

    #: None: there is none, as if it were stuck; the tick alone wakes the scaler.
    alarm: Alarm | None = None
    #: The schedule does not tick.
    ticks_lost: Spans = ()
    #: Share of EC2's events that never reach the function.
    events_lost: float = 0.0
    #: Share of messages that come twice, and within how many seconds the copy comes.
    doubled: float = 0.0
    doubled_within: float = 900.0
