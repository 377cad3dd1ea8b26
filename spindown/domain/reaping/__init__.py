"""Which instances reconcile ends: only those that break their own contract.

The third of four nets. A worker that is at work and says so is never ended from outside; its own
timer and the dead-man timer on the instance bound its life.
"""

from spindown.domain.reaping.decision import (
    ASKED_FOR,
    DRAINED_FOR,
    UNSEEN_FOR,
    Condemnation,
    Reaping,
    reap,
)
from spindown.domain.reaping.ending import (
    Ending,
    Instance,
    ending_of,
    has_failed_all,
    has_left_work,
    has_missed_check_in,
    is_fault_of_image,
    known_fault,
)
from spindown.domain.reaping.watch import could_check_in, watch_from

__all__ = [
    "ASKED_FOR",
    "DRAINED_FOR",
    "UNSEEN_FOR",
    "Condemnation",
    "Ending",
    "Instance",
    "Reaping",
    "could_check_in",
    "ending_of",
    "has_failed_all",
    "has_left_work",
    "has_missed_check_in",
    "is_fault_of_image",
    "known_fault",
    "reap",
    "watch_from",
]
