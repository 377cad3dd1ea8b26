"""Rows that say how things stand: the lock, the backlog, a quota, a breaker, the policy."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from spindown.contract.decision import DecisionSummary, Outcome
from spindown.domain.reason import NO_REASON, Reason

#: The lock frees itself after this; longer than the scaler may run (``SCALER_TIMEOUT``).
LOCK_LEASE = timedelta(seconds=180)

#: Timeout of the scaler function; longer than a tick's own bound on its calls.
SCALER_TIMEOUT = timedelta(seconds=150)


@dataclass(frozen=True, slots=True, kw_only=True)
class LockRow:
    """Who may reconcile: a fence that only grows, and until when."""

    fence: int
    holder: str
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """EC2's calls are counted by region: no launch there before this, and how often in a row."""

    until: datetime
    throttles: int = 1


@dataclass(frozen=True, kw_only=True)
class BacklogRow:
    """What the ticks have seen of the queue."""

    #: First tick that saw visible work and no claim since; None while there is none.
    backlog_since: datetime | None = None
    #: First tick that saw the queue empty without a break.
    empty_since: datetime | None = None
    #: First tick that saw it filled after it had been empty for long: no message is older.
    filled_since: datetime | None = None
    #: When to look again for messages that must be sent anew (``app.batch.renew``).
    renew_at: datetime | None = None
    visible: int = 0
    in_flight: int = 0
    seen_at: datetime | None = None
    #: Since when ticks have reached the ledger without a break (``domain.reaping.watch_from``).
    watched_since: datetime | None = None
    #: Raised by every claim; a change between two ticks is progress.
    claims: int = 0
    #: Claims of jobs that had waited for longer than ``start_within``.
    late: int = 0
    #: ``claims`` and ``late`` as the last tick saw them.
    claims_seen: int = 0
    late_seen: int = 0
    #: Visible messages by the tick that saw them first, oldest first: when, and how many.
    waiting_since: tuple[datetime, ...] = ()
    waiting_jobs: tuple[int, ...] = ()
    #: Seconds by which launches are planned to be earlier than the promise asks for; None: not
    #: learned yet.
    margin: float | None = None
    #: When EC2 was last asked for our instances, and for spot requests that end.
    described_at: datetime | None = None
    reclaims_seen_at: datetime | None = None
    #: When every region was last asked for instances that no row knows.
    swept_at: datetime | None = None
    #: Region -> since EC2 asked there to slow down.
    backoffs: Mapping[str, Backoff] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaRow:
    """A quota class that EC2 said is full."""

    quota_class: str
    code: str
    until: datetime
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerRow:
    """Useless launches in a row of one launch version, or an account error."""

    #: Instances that never checked in.
    strikes: int = 0
    #: Instances that checked in and ended without a job, though work waited.
    unclaimed: int = 0
    #: Instances that ended since all their last jobs had failed, while no item was done.
    failed: int = 0
    #: Items of the days at hand that were done when the last of those was counted.
    items_done: int = 0
    open_until: datetime | None = None
    reason: Reason = NO_REASON
    #: Template versions, subnets and code digest that the strikes belong to.
    launch_version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    """The last policy that was valid, so that an invalid edit changes nothing."""

    #: JSON of the edit; empty: the policy as deployed.
    text: str = ""
    #: JSON of the codec's row of the whole ``domain.policy.Policy`` in force: what workers read.
    effective: str = ""
    #: What ``idle_timeout = "auto"`` has come to; None: not learned yet.
    idle_timeout: timedelta | None = None
    #: Digest of the code as deployed; "": not known. Workers of other code take no new job.
    code_digest: str = ""
    version: int = 0
    refused_version: int = 0
    refusal: str = ""
    #: Raised by every edit, so that a tick knows that what it remembers is out of date.
    edits: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRow:
    """The last decision, small; the whole of it lies in S3 under ``key``."""

    at: datetime
    digest: str
    key: str
    outcome: Outcome
    summary: DecisionSummary = field(default_factory=DecisionSummary)
    notes: tuple[Reason, ...] = ()
    held_until: datetime | None = None
    counts: Mapping[str, float] = field(default_factory=dict)


#: Finished rows are swept by TTL this long after their end.
HISTORY_FOR = timedelta(days=90)
