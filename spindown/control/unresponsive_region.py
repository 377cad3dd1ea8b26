"""Keep a region that hangs from taking the time of a tick, and so the work of all other regions.

A call that EC2 leaves without an answer ends after a minute: three tries of 20 s
(``spindown.aws.wiring``). A region that has kept a tick waiting is left alone for some minutes,
longer with each time in a row, and what is asked of EC2 begins while there is time for one more
such call. So one region costs a tick one such call at most, and most ticks none. It is remembered
beside the prices, in the container alone: another one finds out again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from spindown.contract.row import SCALER_TIMEOUT
from spindown.error import SpindownError, Unreachable
from spindown.port import AnswerKind, ControlPorts

T = TypeVar("T")

#: The longest call of EC2's: three tries to connect and to read, and the waits between them.
_CALL_AT_MOST = timedelta(seconds=70)
#: After this a tick asks EC2 nothing more that it plans by: there is time to plan, and to launch.
OBSERVE_WITHIN = timedelta(seconds=40)
#: After this a tick asks EC2 to do nothing more: what is under way ends within SCALER_TIMEOUT.
ACT_WITHIN = SCALER_TIMEOUT - _CALL_AT_MOST
#: A call that took longer than this for no answer has kept the tick waiting.
SLOW = timedelta(seconds=10)
#: A region that did is left alone this long, doubled by each further time in a row, at most this.
_LEFT_ALONE = timedelta(minutes=2)
_LEFT_ALONE_AT_MOST = timedelta(minutes=10)


@dataclass(frozen=True, slots=True, kw_only=True)
class _UnresponsiveRegion:
    """A region that has kept ticks waiting."""

    until: datetime
    #: How often in a row.
    times: int
    #: The last call took so long.
    waited: timedelta


_UNRESPONSIVE: AnswerKind[_UnresponsiveRegion | None] = AnswerKind(
    "unresponsive_region", _LEFT_ALONE_AT_MOST
)


def ask(
    ports: ControlPorts,
    region: str,
    question: Callable[[], T],
    *,
    tick: datetime,
    within: timedelta = OBSERVE_WITHIN,
) -> T:
    """Ask EC2 something in a region, unless that would keep a tick waiting.

    Args:
        ports: the clock, and what is remembered.
        region: where it is asked.
        question: the call.
        tick: when the tick has begun.
        within: how long after that the call may begin.

    Raises:
        Unreachable: it was not asked: the region has just kept a tick waiting, or time is up.
        SpindownError: what the call raises.
    """
    begun, last = ports.clock.now(), ports.cache.last(_UNRESPONSIVE, region)
    known = None if last is None else last[1]
    if known is not None and begun < known.until <= begun + _LEFT_ALONE_AT_MOST:
        seconds = round(known.waited.total_seconds())
        raise Unreachable(f"not asked until {known.until:%H:%M}: no answer in {seconds} s before")
    if begun - tick > within:
        raise Unreachable("not asked: other calls have taken the time of this tick")
    try:
        answer = question()
    except SpindownError:
        ended = ports.clock.now()
        if ended - begun > SLOW:
            times = 1 if known is None else known.times + 1
            span = min(_LEFT_ALONE * 2.0 ** min(times - 1, 10), _LEFT_ALONE_AT_MOST)
            silent = _UnresponsiveRegion(until=ended + span, times=times, waited=ended - begun)
            ports.cache.keep(_UNRESPONSIVE, region, ended, silent)
        raise
    if known is not None:
        ports.cache.forget(_UNRESPONSIVE, region)
    return answer
