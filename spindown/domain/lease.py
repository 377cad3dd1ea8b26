"""Who may take a job, and for how long; what becomes of a message, a duplicate's too.

The job's manifest is the fence, the lease row is the lease. Both are read through the protocols
below, so that this module knows nothing of how they are stored. A message is hidden, and its job
leased, for ``lease_duration`` from the receive on (``worker.slot``); ``worker.watch`` has
``job.heartbeat`` extend both every ``heartbeat_interval``. A holder whose lease is over may still
write; ``job.commit.commit_as`` fails for it, since a new holder has changed the manifest.

What is done with a message that was received is told by ``claim_verdict``: its job is claimed, or
the message is deleted since its job is over, moved to the dead letters, or put back.

Also decided in: ``domain.policy`` (``lease_duration``, five minutes by default).
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from spindown.domain.fleet import Lease
from spindown.domain.policy import Policy
from spindown.domain.reason import UNTIL_CHANGED
from spindown.domain.retry_or_dead_letter import Failure


class JobRecord(Protocol):
    """The fence: what a job's manifest says of its ownership and progress."""

    @property
    def job_id(self) -> str:
        """The job."""
        ...

    @property
    def epoch(self) -> int:
        """How often it has been claimed."""
        ...

    @property
    def owner(self) -> str:
        """``{instance_id}/{slot}`` of the present epoch."""
        ...

    @property
    def state(self) -> str:
        """One of running, completed, failed, cancelled, split."""
        ...

    @property
    def code(self) -> str:
        """The code of the reason why it has ended; "": none is kept."""
        ...

    @property
    def ran_out_gib(self) -> float:
        """The memory in which its last attempt ran out of it; 0: in none."""
        ...

    @property
    def failures(self) -> Sequence[Failure]:
        """What has counted so far, oldest first."""
        ...


def is_claimable(job: JobRecord | None, lease: Lease | None, now: datetime) -> bool:
    """Tell whether a job may be claimed.

    Unless its owner's lease row holds this job *and* this epoch *and* a deadline in the future.

    Args:
        job: its manifest; None: never claimed.
        lease: the lease row of ``job.owner``, read consistently; None: there is none.
        now: the present.
    """
    if job is None or lease is None:
        return True
    holds = lease.job_id == job.job_id and lease.epoch == job.epoch
    return not (holds and lease.deadline > now)


class ClaimVerdict(StrEnum):
    """What to do with a message once its job's manifest is known."""

    #: Claim it: raise the epoch.
    CLAIM = "claim"
    #: The job is over: delete the message.
    DELETE = "delete"
    #: It has failed for good: repeat the move to the DLQ, then delete.
    DEAD_LETTER = "dead-letter"
    #: Somebody holds it, or this instance should leave it to another: put it back.
    PUT_BACK = "put-back"


#: A worker leaves a job that it has failed to others for this long.
LEAVE_FOR = timedelta(minutes=10)


def claim_verdict(
    job: JobRecord | None, lease: Lease | None, *, instance_id: str, now: datetime
) -> ClaimVerdict:
    """Decide what the receiver of a message does with it.

    So a redelivered message is taken from its holder once the holder's lease is over. Before and
    after this, ``job.claim`` leaves a message to others that was begun by newer code, that is not
    for this machine, or whose job only a newer version can read.

    A split job whose message comes again is over too, since its children do the work.
    """
    if job is None or _was_refused(job):
        return ClaimVerdict.CLAIM
    if job.state == "failed":
        return ClaimVerdict.DEAD_LETTER
    if job.state in {"completed", "cancelled", "split"}:
        return ClaimVerdict.DELETE
    if not is_claimable(job, lease, now) or is_left_to_others(job, instance_id, now):
        return ClaimVerdict.PUT_BACK
    return ClaimVerdict.CLAIM


def _was_refused(job: JobRecord) -> bool:
    """Tell whether a job has failed for what a message of its id asks for (``job.route``).

    That may have been another message than this one, which is refused again if it asks for as much.
    A job that has run out of memory on the largest size has failed by itself.
    """
    asked = job.code in UNTIL_CHANGED and not job.ran_out_gib
    return job.state == "failed" and (not job.epoch or asked)


def is_left_to_others(job: JobRecord, instance_id: str, now: datetime) -> bool:
    """Tell whether this instance has just failed the job, and nobody has had it since."""
    if not job.failures:
        return False
    last = job.failures[-1]
    ours = last.instance_id == instance_id and last.epoch == job.epoch
    return ours and now - last.at < LEAVE_FOR


#: Shortest and longest time that a message is put back for. SQS allows 12 h from the receive.
PUT_BACK_AT_LEAST = timedelta(seconds=60)
PUT_BACK_AT_MOST = timedelta(hours=11)
#: Random part, so that messages that wait for one job do not come back together.
JITTER = timedelta(seconds=30)


def put_back_for(lease: Lease | None, now: datetime, jitter: float) -> timedelta:
    """Return the visibility of a message whose job cannot be claimed yet.

    Args:
        lease: of the job's holder; None: nobody holds it, it is left to other workers.
        now: the present.
        jitter: a random number of [0, 1).
    """
    rest = timedelta(0) if lease is None else lease.deadline - now
    return min(max(PUT_BACK_AT_LEAST, rest) + JITTER * jitter, PUT_BACK_AT_MOST)


#: After an outage, a message is tried again after this time at the latest.
OUTAGE_WAIT_AT_MOST = timedelta(minutes=30)


def outage_wait(receive_count: int, jitter: float) -> timedelta:
    """Return how long a message stays hidden after an outage ended its attempt.

    A minute at first, doubled by each further receive up to half an hour.

    Args:
        receive_count: how often the message was received, this time included.
        jitter: a random number of [0, 1).
    """
    doublings = min(max(receive_count, 1) - 1, _DOUBLINGS)
    return min(PUT_BACK_AT_LEAST * 2.0**doublings, OUTAGE_WAIT_AT_MOST) + JITTER * jitter


_DOUBLINGS = 10

#: A worker of the later version can read it; such workers come with the deploy under way.
UNREADABLE_WAIT = timedelta(minutes=5)


def unreadable_wait(receive_count: int, *, is_noted: bool) -> timedelta:
    """Return how long to hide a message that a later version wrote.

    Each time it is back, it is taken for work and may buy a machine. If the ledger knows of it,
    the tick shows it once it can be read. Else five minutes, doubled by each further receive.

    Args:
        receive_count: how often it was received, this time included.
        is_noted: whether the ledger knows of it.
    """
    if is_noted:
        return PUT_BACK_AT_MOST
    doublings = min(max(receive_count, 1) - 1, _DOUBLINGS)
    return min(UNREADABLE_WAIT * 2.0**doublings, PUT_BACK_AT_MOST)


def extended_until(now: datetime, not_after: datetime, policy: Policy) -> datetime:
    """Return the deadline that a heartbeat gives a lease: never past ``not_after``."""
    return min(now + policy.lease_duration, not_after)


#: SQS ends every visibility 12 h after the receive; an hour before, the job is released.
VISIBILITY_CAP = timedelta(hours=12)
RELEASE_AFTER = timedelta(hours=11)


def visibility_not_after(received_at: datetime) -> datetime:
    """Return the time past which no heartbeat can hide a message that was received then."""
    return received_at + VISIBILITY_CAP


def must_release(received_at: datetime, now: datetime) -> bool:
    """Tell whether a job has been held so long that it must be committed and released."""
    return now - received_at >= RELEASE_AFTER
