"""The alarm under way: late, once for each change of state, or stuck."""

from collections.abc import Callable
from random import Random

from spindown.simulator.agenda import Agenda, Turn
from spindown.simulator.fault.kind import Alarm

_MINUTE = 60.0


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
        """Begin in peace, unless it is stuck.

        Args:
            kind: how late it is.
            agenda: where its looks are planned.
            random: draws how late.
            visible: how many messages wait now.
            wake: invokes the scaler.
        """
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
