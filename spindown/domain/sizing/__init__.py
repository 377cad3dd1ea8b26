"""How much throughput is missing, how many workers that is, and whether to wait with them."""

from spindown.domain.sizing.capacity import (
    Capacity,
    SlotAhead,
    capacity,
    headroom_slots,
    unanswered_dollars,
    window,
)
from spindown.domain.sizing.size import (
    Bounds,
    Sizing,
    latest_launch,
    limit_to_plan,
    missing,
    size,
    vcpus_left,
    waited_for,
)
from spindown.domain.sizing.start_plan import (
    StartPlan,
    Waiting,
    mark_requeued,
    next_margin,
    plan_starts,
)

__all__ = [
    "Bounds",
    "Capacity",
    "Sizing",
    "SlotAhead",
    "StartPlan",
    "Waiting",
    "capacity",
    "headroom_slots",
    "latest_launch",
    "limit_to_plan",
    "mark_requeued",
    "missing",
    "next_margin",
    "plan_starts",
    "size",
    "unanswered_dollars",
    "vcpus_left",
    "waited_for",
    "window",
]
