"""Why something was decided, as data: a code and its numbers.

Decisions read codes. Words for people are made in ``spindown.wording`` and nowhere else.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class ReasonCode(StrEnum):
    """What a reason is about; stored in rows, records and logs."""

    #: No reason is known, or none is needed.
    NONE = ""

    # Why a worker takes no new job and ends.
    IDLE = "idle"
    #: Idle, and the ledger did not answer when it asked to end.
    IDLE_UNHEARD = "idle-unheard"
    LIFETIME = "lifetime"
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

    # How an instance was found to have ended.
    #: EC2 says why: ``state_reason`` is its StateReason.Code.
    EC2_SAID = "ec2-said"
    #: EC2 says only that it is gone: ``state``.
    EC2_STATE = "ec2-state"
    EC2_RECLAIMED = "ec2-reclaimed"
    #: EC2 does not describe it any more.
    UNKNOWN_TO_EC2 = "unknown-to-ec2"

    # Why the scaler ended an instance.
    #: ``within_seconds``.
    NEVER_CHECKED_IN = "never-checked-in"
    NEVER_POWERED_OFF = "never-powered-off"
    #: ``age_seconds``.
    TOO_OLD = "too-old"
    #: ``idle_seconds``.
    IDLE_TOO_LONG = "idle-too-long"
    #: ``silent_seconds``.
    SILENT = "silent"
    #: An instance of ours that no row knows.
    NO_ROW = "no-row"

    # What became of a launch.
    #: Its answer was lost; its instances were found by their tag.
    ADOPTED = "adopted"
    #: Likewise, but some of those asked for may have ended before anybody looked.
    ADOPTED_IN_PART = "adopted-in-part"
    NEVER_REACHED_EC2 = "never-reached-ec2"
    #: Nobody asked EC2 while it would still have told.
    FATE_UNKNOWN = "fate-unknown"
    #: ``said``: EC2's codes and messages.
    REFUSED = "refused"
    REQUEST_UNREADABLE = "request-unreadable"
    #: Nothing is deployed in ``region`` any more.
    REGION_REMOVED = "region-removed"

    # Why a pool is left alone.
    #: EC2 took an instance of it back.
    POOL_INTERRUPTED = "pool-interrupted"
    #: EC2 refused: ``refusal`` is its code.
    POOL_REFUSED = "pool-refused"
    #: An instance of it never checked in; ``ended`` is the code of its end and the rest of the
    #: parameters are those of that code; "": it was ended for its silence.
    POOL_NEVER_CHECKED_IN = "pool-never-checked-in"

    # Why launching is stopped in a region.
    #: ``refusal`` is EC2's code, ``message`` its text.
    ACCOUNT_REFUSED = "account-refused"
    #: ``count`` instances in a row were of no use, the last one ``instance_id``; ``fault`` is what
    #: is known of why.
    STRIKES_SILENT = "strikes-silent"
    STRIKES_UNCLAIMED = "strikes-unclaimed"
    STRIKES_FAILED = "strikes-failed"


@dataclass(frozen=True, slots=True)
class Reason:
    """A code with its parameters, by name; instants are ISO 8601 text."""

    code: ReasonCode = ReasonCode.NONE
    about: Mapping[str, str | int | float] = field(default_factory=dict, hash=False)

    def __bool__(self) -> bool:
        return self.code is not ReasonCode.NONE


NO_REASON = Reason()
