"""What goes wrong around the control plane, as values; and the alarm that is late or stuck."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from spindown.ec2sim import Agenda, Turn

#: (from, to), seconds.
Spans = tuple[tuple[float, float], ...]
_MINUTE = 60.0


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
    #: How often the second schedule ticks, seconds; None: there is none. It is left out while the
    #: first one ticks, to which it adds nothing.
    spare_tick: float | None = 300.0
    #: Share of EC2's events that never reach the function.
    events_lost: float = 0.0
    #: Share of messages that come twice, and within how many seconds the copy comes.
    doubled: float = 0.0
    doubled_within: float = 900.0


class SimAlarm:
    """Hears of messages and wakes the scaler when it goes off."""

    def __init__(
        self,
        kind: Alarm,
        agenda: Agenda,
        random: Random,
        *,
        visible: Callable[[], int],
        wake: Callable[[], None],
    ) -> None:
        """Begin in peace, unless it is stuck."""
        self._kind = kind
        self._agenda = agenda
        self._random = random
        self._visible = visible
        self._wake = wake
        self._is_on = kind.is_stuck
        self._is_hearing = False
        self._heard_at = agenda.seconds

    def hear(self) -> None:
        """Hear of a message that has just been sent."""
        kind, now = self._kind, self._agenda.seconds
        is_first = now - self._heard_at >= kind.quiet_after
        self._heard_at = now
        if self._is_on or self._is_hearing:
            return
        self._is_hearing = True
        late = self._random.uniform(kind.late_at_least, kind.late_at_most)
        late = kind.late_after_quiet if is_first else late
        self._agenda.plan_in(late, Turn.EVENT, self._go_off)

    def _go_off(self) -> None:
        self._is_hearing = False
        self._is_on = True
        self._wake()
        self._agenda.plan_in(_MINUTE, Turn.EVENT, self._look)

    def _look(self) -> None:
        """Go back to rest once nothing waits; only then it can go off again."""
        if self._visible():
            self._agenda.plan_in(_MINUTE, Turn.EVENT, self._look)
        else:
            self._is_on = False
