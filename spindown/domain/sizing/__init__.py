"""How much throughput is missing, how many workers that is, and whether to wait with them."""

from spindown.domain.sizing.capacity import (
    Capacity,
    SlotAhead,
    capacity,
    room,
    unanswered_dollars,
    window,
)
from spindown.domain.sizing.patience import Patience, Waiting, mark_put_down, next_margin, patience
from spindown.domain.sizing.size import (
    Bounds,
    Sizing,
    ask_patiently,
    latest_launch,
    missing,
    size,
    vcpus_left,
    waited_for,
)

__all__ = [
    "Bounds",
    "Capacity",
    "Patience",
    "Sizing",
    "SlotAhead",
    "Waiting",
    "ask_patiently",
    "capacity",
    "latest_launch",
    "mark_put_down",
    "missing",
    "next_margin",
    "patience",
    "room",
    "size",
    "unanswered_dollars",
    "vcpus_left",
    "waited_for",
    "window",
]
