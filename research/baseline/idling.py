"""How long an idle machine waits for work: always alike, by chance, or as its gaps teach.

A gap is the time for which one machine more than at work would not have been needed: from when one
falls idle to the job for which it, the last that did, is called again, be it still there or not.
So the machines are a stack, the last to idle the first to work (Lu and Chen, arXiv 1112.0442).
"""

import math
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Protocol

from spindown.domain.idle import LEARN_FROM, cheapest_timeout

#: Gaps that are remembered: more would be slow to weigh and old.
_GAPS_KEPT = 500


class Idling(Protocol):
    """Says how long a machine that falls idle waits; may learn from when the next job comes."""

    def begin(self, at: float) -> float:
        """Return the seconds that a machine waits which falls idle at a second."""
        ...

    def needed(self, at: float) -> None:
        """Hear that a job has come which no machine at work has room for."""
        ...


#: Made from the seconds of a boot, and the seed's own stream of chance.
IdlingFactory = Callable[[float, Random], Idling]


class SteadyIdling:
    """Always as long."""

    def __init__(self, seconds: float) -> None:
        """Wait so many seconds each time."""
        self._seconds = seconds

    def begin(self, _at: float) -> float:
        """Return the one timeout."""
        return self._seconds

    def needed(self, _at: float) -> None:
        """Learn nothing."""


class RandomIdling:
    """By chance, at most as long as a boot, a long wait likelier than a short one.

    Karlin, Manasse, McGeoch and Owicki, "Competitive randomized algorithms for nonuniform
    problems" (Algorithmica 11, 1994): density e^(x/B) / (B (e - 1)) from 0 to the break-even time
    B. Whatever the gap, idle time and boot cost e / (e - 1) of what knowing it would, in the mean.
    """

    def __init__(self, boot: float, random: Random) -> None:
        """Draw from a stream of one's own; a boot of so many seconds breaks even."""
        self._boot = boot
        self._random = random

    def begin(self, _at: float) -> float:
        """Draw a timeout: the inverse of its distribution, (e^(x/B) - 1) / (e - 1)."""
        return self._boot * math.log1p(self._random.random() * (math.e - 1.0))

    def needed(self, _at: float) -> None:
        """Learn nothing."""


class LearnedIdling:
    """The timeout that would have cost least over the gaps so far; a boot until there are some.

    Least mean cost: Augustine, Irani and Swamy (FOCS 2004), for a known distribution. That it is
    learned from the workload's own gaps is as in "Serverless in the Wild" (Shahrad et al., ATC
    2020), which keeps a function for a high percentile of them instead, since there a cold start
    and not a boot's price is what hurts.
    """

    def __init__(self, boot: float) -> None:
        """Begin without a gap; a boot takes so many seconds."""
        self._boot = boot
        self._gaps: deque[float] = deque(maxlen=_GAPS_KEPT)
        self._idle_since: list[float] = []

    def begin(self, at: float) -> float:
        """Return the cheapest timeout by now."""
        self._idle_since.append(at)
        if len(self._gaps) < LEARN_FROM:
            return self._boot
        return cheapest_timeout(tuple(self._gaps), self._boot)

    def needed(self, at: float) -> None:
        """Note the gap of the machine that fell idle last."""
        if self._idle_since:
            self._gaps.append(at - self._idle_since.pop())
