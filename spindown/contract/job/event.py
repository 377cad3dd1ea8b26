"""What other systems hear of a job that is over: an event on the account's default bus.

``source`` names deployment and workload, ``detail-type`` is one of the two below, ``detail`` a
JobEvent. IAM holds a worker to the source of its own workload, so whoever believes an event goes by
that and not by what the detail says. An event may come twice, or, if EventBridge does not answer
for long, not at all: the manifest is the truth.
"""

from dataclasses import dataclass
from datetime import datetime

from spindown.contract.codec import encode, to_json
from spindown.contract.job.manifest import JobState, Manifest, manifest_key
from spindown.contract.location import work_root
from spindown.domain.batch import end_of_job

COMPLETED = "Spindown Job Completed"
FAILED = "Spindown Job Failed"
DETAIL_TYPES = (COMPLETED, FAILED)

SCHEMA = 1


def event_source(deployment: str, workload: str) -> str:
    """Return the source of a workload's events; no name holds a dot."""
    return f"spindown.{deployment}.{workload}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEvent:
    """How a job ended."""

    deployment: str
    workload: str
    job_id: str
    #: "completed" or "failed"; failed too if one of its items has (``domain.batch.end_of_job``).
    state: str
    at: datetime
    batch_id: str | None = None
    tenant: str | None = None
    #: Job that it was split from.
    parent: str | None = None
    items: int = 0
    items_failed: int = 0
    #: Epochs that it took.
    attempts: int = 0
    interruptions: int = 0
    #: Failures and losses that counted against it.
    failures: int = 0
    busy_seconds: float = 0.0
    cost_usd: float = 0.0
    #: Why it failed.
    reason: str = ""
    #: Key of its manifest in the deployment's bucket, which lists the results.
    manifest: str = ""
    schema: int = SCHEMA

    @property
    def source(self) -> str:
        """Return the event's ``source``."""
        return event_source(self.deployment, self.workload)

    @property
    def detail_type(self) -> str:
        """Return the event's ``detail-type``."""
        return COMPLETED if self.state == JobState.COMPLETED.value else FAILED

    @property
    def detail(self) -> str:
        """Return the event's ``detail``, JSON."""
        return to_json(encode(self))


def job_event(manifest: Manifest, *, deployment: str, workload: str, now: datetime) -> JobEvent:
    """Return the event of a job that is over."""
    return JobEvent(
        deployment=deployment,
        workload=workload,
        job_id=manifest.job_id,
        state=end_of_job(manifest.state.value, items_failed=manifest.items_failed).value,
        at=manifest.finished_at or now,
        batch_id=manifest.batch_id,
        tenant=manifest.tenant,
        parent=manifest.parent,
        items=manifest.items or 0,
        items_failed=manifest.items_failed,
        attempts=manifest.epoch,
        interruptions=manifest.interruptions,
        failures=len(manifest.failures),
        busy_seconds=round(manifest.busy_seconds, 3),
        cost_usd=round(manifest.cost_usd, 6),
        reason=manifest.reason,
        manifest=f"{work_root(workload)}{manifest_key(manifest.job_id)}",
    )
