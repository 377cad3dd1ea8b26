"""When a job is a poison message and becomes a dead letter, and when a worker counts as at fault.

Failures and losses count; interruptions never do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from spindown.domain.bound import Tally
from spindown.domain.policy import Policy
from spindown.domain.reason import NO_REASON, Reason, ReasonCode

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
    #: EC2 took the instance away: this never counts against the job.
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
