"""What has been: messages that were sent to a queue, and spot prices that were in force."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from spindown.domain.offer import SpotPrice


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """Messages that reached a queue within one period."""

    #: Begin of the period.
    at: datetime
    #: Length of the period, seconds: the older, the coarser.
    period: float
    messages: int


class TrafficHistory(Protocol):
    """How many messages came to a queue, and when."""

    def sent(self, queue: str, *, since: datetime, until: datetime) -> Sequence[Sent]:
        """Return the periods in which messages came, oldest first; quiet ones are left out.

        Args:
            queue: name of the queue.
            since: begin; what is older than the history reaches is not in it.
            until: end, not included.
        """
        ...


class PriceHistory(Protocol):
    """What spot capacity cost."""

    def spot_history(
        self, *, region: str, instance_types: Sequence[str], since: datetime
    ) -> Sequence[SpotPrice]:
        """Return the price of each pool at ``since`` and every change up to now, oldest first.

        A pool that had no price at ``since`` begins with its first one.

        Raises:
            BadInput: more changes than anybody can use; names what to leave out.
        """
        ...
