"""When a failed job is tried again, or becomes a dead letter, and when a worker is at fault.

All ways into the dead-letter queue, and what decides each (``job.redrive`` finds those that are in
it, and ``cli.redrive`` lists them):

===============================================  =================================================
its failures and losses are too many             ``dead_letter_reason``
interruptions have cost it too much              ``never_done``, where ``wasted_work.goes_on`` says
                                                 that it may go on nowhere
one item takes too long, however attempts end    ``too_long``
its manifest says that it has failed             ``lease.claim_verdict``: the move is repeated
no machine may do it, or none is sold            ``job.route`` and ``job.claim``, when they take it
its message is no job, or not the one of its id  ``job.route`` and ``job.claim``, when they read it
only a later version, or nobody, can read it     ``is_unreadable_for_good``
nothing above saw it for 100 receives            SQS, by ``MAX_RECEIVE_COUNT``
===============================================  =================================================

*What counts.* A failure counts, unless an outage caused it (``is_excused``). An epoch that ended
without a word counts as a loss, unless it had made progress (``epoch_end``). An interruption, as of
spot, is no failure and no loss: it counts only as work wasted, which ends the job by ``never_done``
where no machine that stays may be bought. Every receive counts for SQS, also one after an
interruption; so a message is replaced by a copy after half of them (``RENEW_RECEIVES``), and the
count begins anew.

Also decided in: ``lease.is_left_to_others`` (another machine tries it first),
``out_of_memory.larger_needs`` (a larger machine), ``wasted_work`` (one that stays).
``job.redrive_item`` is about single items, which a person sends again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from spindown.domain.policy import Policy
from spindown.domain.reason import NO_REASON, Reason, ReasonCode
from spindown.domain.value_range import Tally
from spindown.domain.wasted_work import WastedWork, numbers_of

#: The limit of SQS, which counts every receive and never resets. The manifest counts failures, so
#: this limit only stops what nothing else counts.
MAX_RECEIVE_COUNT = 100
#: After so many receives a message is replaced by a copy, whose count begins at 0.
RENEW_RECEIVES = MAX_RECEIVE_COUNT // 2
#: An attempt that an outage ended does not count against a job until its message is this old. Then
#: perhaps only this job meets the outage, and it must not be tried for ever.
OUTAGE_EXCUSES_FOR = timedelta(hours=12)
#: A message that only a later version can read is nobody's once it is so old and was received so
#: often: no deploy takes so long.
UNREADABLE_FOR = timedelta(days=2)
UNREADABLE_RECEIVES = 4
_HOUR = 3600.0
#: EC2 bills each instance for a minute at least (EC2 User Guide, "Billing and purchasing options").
_BILLED_AT_LEAST = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One failure or loss that counted against a job."""

    at: datetime
    instance_id: str
    epoch: Tally
    #: "failure": the job's own; "loss": an epoch that ended without a word, and without progress
    #: that was worth a boot.
    kind: str
    #: What the worker said; "": of a loss nobody has said anything.
    reason: str = ""


def last_said(failures: Sequence[Failure]) -> str:
    """Return what the last failure said of which anything is known; "": none said anything."""
    return next((one.reason for one in reversed(failures) if one.reason), "")


class EpochRecord(Protocol):
    """What a manifest says of its present epoch."""

    @property
    def released(self) -> bool:
        """Its owner has given the job back."""
        ...

    @property
    def next_item(self) -> int:
        """The first item without a committed result."""
        ...

    @property
    def epoch_first(self) -> int:
        """``next_item`` as the epoch began."""
        ...

    @property
    def epoch_busy(self) -> float:
        """Seconds of slot time that the epoch has committed."""
        ...


class EpochEnd(StrEnum):
    """How an epoch ended, as its successor finds it."""

    RELEASED = "released"
    #: EC2 took the instance away: no failure, and no loss; ``wasted_work`` counts what it cost.
    INTERRUPTED = "interrupted"
    #: Without a release, but with progress that was worth a boot: another try is worth it.
    PROGRESSED = "progressed"
    #: No release, no recorded interruption, no progress that was worth a boot.
    LOST = "lost"


def epoch_end(job: EpochRecord, *, interrupted: bool, boot: float = 0.0) -> EpochEnd:
    """Return how the present epoch ended, once its lease has lapsed.

    Args:
        job: the manifest as the ended epoch left it.
        interrupted: an interruption of its owner is recorded.
        boot: hours that its owner took to boot. Each loss costs one, so code that brings its
            machine down after each item would otherwise pay mostly for boots, without end.
    """
    if job.released:
        return EpochEnd.RELEASED
    if interrupted:
        return EpochEnd.INTERRUPTED
    if job.next_item > job.epoch_first and job.epoch_busy > max(boot * _HOUR, _BILLED_AT_LEAST):
        return EpochEnd.PROGRESSED
    return EpochEnd.LOST


def dead_letter_reason(failures: Sequence[Failure], policy: Policy) -> Reason:
    """Return why a job becomes a dead letter; no reason while it is worth another try.

    After 3 losses or failures on at least 2 instances, or after 5 in all. So one bad instance alone
    does not fail a job soon, and a job that ends every instance is not tried for ever.

    Args:
        failures: failures and losses that counted, the newest included; no interruptions.
        policy: the three limits.
    """
    counted = len(failures)
    instances = len({failure.instance_id for failure in failures})
    losses = sum(failure.kind == "loss" for failure in failures)
    if counted >= policy.max_failures:
        return Reason(ReasonCode.FAILED_TOO_OFTEN, {"failures": counted})
    if instances > 1 and (losses >= policy.max_losses or counted >= policy.max_failures_on_two):
        about = {"failures": counted, "instances": instances}
        return Reason(ReasonCode.FAILED_ON_SEVERAL, about)
    return NO_REASON


def never_done(wasted_work: WastedWork) -> Reason:
    """Return why a job becomes a dead letter that goes on nowhere."""
    return Reason(
        ReasonCode.NEVER_DONE,
        {**numbers_of(wasted_work), "has_waited_in_vain": wasted_work.has_waited_in_vain},
    )


def too_long(wasted_work: WastedWork, dollars: float, policy: Policy) -> Reason:
    """Return why no further attempt at an item is begun; no reason while one is."""
    most = policy.max_item_time / timedelta(hours=1)
    if wasted_work.item_hours < most:
        return NO_REASON
    about = {"hours": wasted_work.item_hours, "most": most, "dollars": dollars}
    return Reason(ReasonCode.ITEM_TOO_LONG, about)


def is_unreadable_for_good(sent_at: datetime, receive_count: int, now: datetime) -> bool:
    """Tell whether nobody will read a message any more that could not be read so far."""
    return now - sent_at >= UNREADABLE_FOR and receive_count >= UNREADABLE_RECEIVES


def is_excused(sent_at: datetime, now: datetime) -> bool:
    """Tell whether an attempt that an outage ended does not count against its job."""
    return now - sent_at < OUTAGE_EXCUSES_FOR


def is_quarantined(outcomes: Sequence[tuple[str, bool]], policy: Policy) -> bool:
    """Tell whether a worker should drain and end: its last k different jobs all failed.

    Args:
        outcomes: (job id, failed) of each job it has ended, oldest first.
        policy: gives k.
    """
    failed_jobs: set[str] = set()
    for job, failed in reversed(outcomes):
        if len(failed_jobs) >= policy.failures_to_quarantine:
            break
        if job not in failed_jobs:
            if not failed:
                return False
            failed_jobs.add(job)
    return len(failed_jobs) >= policy.failures_to_quarantine
