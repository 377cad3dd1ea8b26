"""What one tick saw, decided and did, whole: kept in S3, printed by ``spindown why``.

``decisions/{workload}/{day}/{time}-{digest}.json``, written only when the digest changes, so
that an idle month leaves no objects behind.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from spindown.contract.codec import encode
from spindown.domain.reason import NO_REASON, Reason, ReasonCode

SCHEMA = 1


class Outcome(StrEnum):
    """What came of a tick."""

    #: Another tick is at work.
    LOCKED = "locked"
    #: Nothing waits and no worker takes jobs; one that has drained may still power off.
    IDLE = "idle"
    #: What runs or boots is enough.
    ENOUGH = "enough"
    #: A launch waits for more work, or for the next rung of the price ladder.
    HELD = "held"
    LAUNCHED = "launched"
    #: EC2 gave nothing this time; the next tick tries on.
    REFUSED = "refused"
    #: No offer may be taken.
    NOTHING_FITS = "nothing-fits"
    #: Budget, breaker, back-off or a limit keeps a launch from being made.
    BLOCKED = "blocked"


class RequestOutcome(StrEnum):
    """What came of a launch request: instances, or the gravest of its refusals."""

    LAUNCHED = "launched"
    #: Its answer was lost, and its instances have been found.
    ADOPTED = "adopted"

    # As ``port.RefusalKind``.
    ACCOUNT = "account"
    THROTTLE = "throttle"
    QUOTA = "quota"
    CAPACITY = "capacity"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateRecord:
    """One offer of the candidate list, in its order. USD and hours."""

    offer: str
    region: str
    price_per_hour: float
    cost_per_item: float
    #: Parts of the cost per item, by name; they add up to it.
    parts: Mapping[str, float] = field(default_factory=dict)
    items_per_hour: float = 0.0
    measured: bool = False
    #: Where ``items_per_hour`` comes from: "measured", or an ``EstimateSource``.
    speed_source: str = ""
    interruptions_per_hour: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectionRecord:
    """Offers that one constraint rules out: how many, and why the first of them."""

    constraint: str
    offers: int
    #: The first of them, as text.
    example: str
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalRecord:
    """One refusal of EC2's."""

    kind: str
    code: str
    message: str
    #: Pool as text; "": the whole request.
    pool: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequestRecord:
    """One launch request and what came of it."""

    launch_id: str
    #: Pools in order of preference.
    pools: tuple[str, ...]
    count: int
    outcome: RequestOutcome
    #: Instance id -> the pool that it came from.
    instances: Mapping[str, str] = field(default_factory=dict)
    refusals: tuple[RefusalRecord, ...] = ()
    reserved_usd: float = 0.0
    #: Whose queue it is for; "": the workload declares no types.
    shape: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndingRecord:
    """A worker that was condemned, or whose row was ended."""

    instance_id: str
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRecord:
    """One thing that a tick did."""

    #: ``control.plan.action.ActionKind``.
    kind: str
    #: An instance, a launch, a pool or a region.
    subject: str
    reason: Reason = NO_REASON


@dataclass(frozen=True, slots=True, kw_only=True)
class SizingRecord:
    """How many workers, and why that many."""

    need_items_per_hour: float
    wanted: int
    waited_seconds: float
    reason: Reason = NO_REASON


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeRecord:
    """The queue and the fleet of one shape, and what was wanted of it."""

    shape: str
    visible: int
    in_flight: int
    #: Workers that live.
    workers: int
    wanted: int
    #: Why that many.
    reason: Reason = NO_REASON
    #: Why none was launched although some were wanted; NO_REASON: nothing prevented it.
    blocked_by: Reason = NO_REASON


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionSummary:
    """What a sentence about a decision is made of (``reason_text.say_outcome``)."""

    #: Why that many workers are wanted.
    sizing: Reason = NO_REASON
    #: Why nothing was launched although something is wanted.
    why: Reason = NO_REASON
    #: Why launching ended before the need was met.
    ended_early: Reason = NO_REASON
    #: Pool -> instances that it gave, and that were found to be ours.
    launched: Mapping[str, int] = field(default_factory=dict)
    adopted: Mapping[str, int] = field(default_factory=dict)
    requests: int = 0
    #: Until when no offer may be taken; None: until something changes.
    retry_at: datetime | None = None
    #: The shape of which it tells; "": the workload declares no types.
    shape: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlineRecord:
    """One unfinished job with a deadline, or several that nobody has claimed yet."""

    #: "": never claimed.
    job_id: str
    due_at: datetime
    #: What it still takes, and what would be left of the time then.
    work_seconds: float
    slack_seconds: float
    jobs: int = 1
    #: Capacity type that works on it; "": it waits.
    on: str = ""
    #: What may be bought for it while it waits, and until when only spot is.
    mode: str = ""
    waits_until: datetime | None = None
    #: Capacity type that it is moved to while it runs; "": it stays.
    moves_to: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """One tick."""

    workload: str
    at: datetime
    outcome: Outcome
    summary: DecisionSummary = field(default_factory=DecisionSummary)
    #: "spindown.tick", "spindown.nudge", the alarm, an interruption.
    source: str = ""
    fence: int = 0
    policy_version: int = 0
    policy_refusal: str = ""
    visible: int = 0
    in_flight: int = 0
    delayed: int = 0
    backlog_since: datetime | None = None
    #: Worker state -> how many.
    workers: Mapping[str, int] = field(default_factory=dict)
    sizing: SizingRecord | None = None
    held_until: datetime | None = None
    #: When the next try is due.
    next_try_at: datetime | None = None
    candidates: tuple[CandidateRecord, ...] = ()
    rejections: tuple[RejectionRecord, ...] = ()
    requests: tuple[LaunchRequestRecord, ...] = ()
    #: What else was done, in its order; bookkeeping is left out.
    actions: tuple[ActionRecord, ...] = ()
    #: Of a workload with types: each shape in use.
    shapes: tuple[ShapeRecord, ...] = ()
    #: The least slack first.
    deadlines: tuple[DeadlineRecord, ...] = ()
    #: What was held back, skipped, or is out of date.
    notes: tuple[Reason, ...] = ()
    bad_rows: tuple[str, ...] = ()
    #: USD of the month, spent and with reservations; None: not looked at.
    month_dollars: float | None = None
    month_committed: float | None = None
    schema: int = SCHEMA

    @property
    def ended(self) -> tuple[EndingRecord, ...]:
        """Return the workers whose rows were ended."""
        return tuple(_ending(each) for each in self.actions if each.kind == _END)

    @property
    def condemned(self) -> tuple[EndingRecord, ...]:
        """Return the workers that were condemned, and instances that no row knows."""
        return tuple(
            _ending(each)
            for each in self.actions
            if each.kind == _CONDEMN or each.reason.code is ReasonCode.NO_ROW
        )

    @property
    def digest(self) -> str:
        """Return a digest of what was decided, leaving out what every tick changes anyway."""
        stable = {name: encode(getattr(self, name)) for name in _STABLE}
        stable["sizing"] = None if self.sizing is None else self.sizing.wanted
        stable["candidates"] = [candidate.offer for candidate in self.candidates]
        text = json.dumps(stable, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def key(self) -> str:
        """Return the S3 key under which it is kept."""
        return self.key_of(self.digest)

    def key_of(self, digest: str) -> str:
        """Return the key, for whoever has the digest already."""
        return f"{decision_prefix(self.workload)}{self.at:%Y-%m-%d/%H%M%S.%f}-{digest}.json"

    def to_json(self) -> bytes:
        """Return the whole decision as JSON."""
        return json.dumps(encode(self), sort_keys=True).encode()


_END, _CONDEMN = "end", "condemn"


def _ending(action: ActionRecord) -> EndingRecord:
    return EndingRecord(instance_id=action.subject, reason=action.reason)


def decision_prefix(workload: str) -> str:
    """Return the S3 prefix of a workload's decisions."""
    return f"decisions/{workload}/"


def summary_counts(decision: Decision) -> Mapping[str, Any]:
    """Return the few numbers that the ledger keeps of the last decision."""
    return {
        "visible": decision.visible,
        "in_flight": decision.in_flight,
        "requests": len(decision.requests),
        "instances": sum(len(request.instances) for request in decision.requests),
        **{f"workers_{state}": number for state, number in decision.workers.items()},
    }


_VOLATILE = frozenset(
    {
        "at",
        "fence",
        "source",
        "visible",
        "in_flight",
        "delayed",
        "backlog_since",
        "workers",
        "month_dollars",
        "month_committed",
        "summary",
        "next_try_at",
        "deadlines",
    }
)

_STABLE = tuple(
    f.name for f in fields(Decision) if f.name not in {*_VOLATILE, "sizing", "candidates"}
)
