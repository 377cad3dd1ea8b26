"""Why something was decided, as data: a code and its numbers.

Decisions read codes. Words for people are made in ``spindown.wording`` and nowhere else.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Code(StrEnum):
    """What a reason is about; stored in rows, records and logs."""

    #: No reason is known, or none is needed.
    NONE = ""

    # Why a worker takes no new job and ends.
    IDLE = "idle"
    #: Idle, and the ledger did not answer when it asked to end.
    IDLE_UNHEARD = "idle-unheard"
    LIFETIME_OVER = "lifetime-over"
    INTERRUPTED = "interrupted"
    REBALANCE = "rebalance"
    #: The operating system asked it to stop.
    STOPPED = "stopped"
    CONDEMNED = "condemned"
    #: The deployed code is not the code that it runs.
    OTHER_CODE = "other-code"
    #: ``max_workers`` is 0.
    NO_ROOM = "no-room"
    #: Another worker goes on with its jobs.
    RELIEVED = "relieved"
    #: The machine is not fit for the workload's jobs; ``fault`` says what is wrong.
    UNFIT = "unfit"
    #: Fault after fault of the machine or of our own code.
    FAULTY = "faulty"
    #: Its last jobs all failed.
    JOBS_FAILED = "jobs-failed"


@dataclass(frozen=True, slots=True)
class Reason:
    """A code with its parameters, by name; instants are ISO 8601 text."""

    code: Code = Code.NONE
    about: Mapping[str, str | int | float] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.code is not Code.NONE
