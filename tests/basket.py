"""A shipment of log lines that is looked into instead of sent."""

import json
from datetime import datetime

from spindown.contract.codec import encode_instant


class Basket:
    """Shipment that keeps the names of events; it may be made to fail."""

    def __init__(self, *, dropped: int = 0, fault: Exception | None = None) -> None:
        self.waiting: list[str] = []
        self.sent: list[str] = []
        self._dropped = dropped
        self._fault = fault

    def add(self, message: str, at: datetime) -> None:
        assert json.loads(message)["time"] == encode_instant(at)
        self.waiting.append(json.loads(message)["event"])

    def flush(self) -> None:
        if self._fault is not None:
            raise self._fault
        self.sent += self.waiting
        self.waiting = []

    def take_dropped(self) -> int:
        dropped, self._dropped = self._dropped, 0
        return dropped
