"""Files and spans of past traffic, for tests."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from spindown.cli.history.arrival import ArrivalHistory
from spindown.simulator import Arrival

MONDAY = datetime(2026, 6, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def a_file(root: Path, text: str, name: str = "traffic.csv") -> Path:
    path = root / name
    path.write_text(text, encoding="utf-8")
    return path


def a_traffic(
    *, start: datetime = MONDAY, hours: float = 24, is_dated: bool = True
) -> ArrivalHistory:
    return ArrivalHistory(
        source="here",
        arrivals=(Arrival(at=0.0, item_seconds=1.0),),
        start=start,
        length=hours * 3600,
        is_dated=is_dated,
    )
