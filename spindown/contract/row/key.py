"""Where each row of the ledger lies: partitions and sort keys."""

from datetime import datetime
from functools import lru_cache

from spindown.domain.offer import Pool

#: The partition of what the whole deployment shares.
DEPLOYMENT_PARTITION = "d#"


def workload_partition(workload: str) -> str:
    """Return the partition of a workload's live rows."""
    return f"w#{workload}"


def history_partition(workload: str) -> str:
    """Return the partition of a workload's finished rows."""
    return f"h#{workload}"


WORKER = "worker#"
LEASE = "lease#"
LAUNCH = "launch#"
UNAVAILABLE = "unavailable#"
RATE = "rate#"
SPEND = "spend#"
BACKLOG = "backlog"
LOCK = "lock"
POLICY = "policy"
QUOTA = "quota#"
BREAKER = "breaker"
DECISION = "decision"
BUDGET = "budget#"
CALLS = "calls#"
ALERT = "alert#"
REQUEUED = "requeued#"


def worker_sort(instance_id: str) -> str:
    """Return the sort key of a worker row."""
    return f"{WORKER}{instance_id}"


def lease_sort(instance_id: str, slot: int) -> str:
    """Return the sort key of a lease row."""
    return f"{LEASE}{instance_id}#{slot}"


def launch_sort(launch_id: str) -> str:
    """Return the sort key of a launch row."""
    return f"{LAUNCH}{launch_id}"


def unavailable_sort(pool: Pool) -> str:
    """Return the sort key of a pool's unavailable row."""
    return f"{UNAVAILABLE}{pool}"


def throughput_sort(gpu_name: str, gpu_count: float) -> str:
    """Return the sort key of the learned throughput of a GPU and count."""
    return f"{RATE}throughput#{gpu_name}#{gpu_count:g}"


def alert_sort(name: str) -> str:
    """Return the sort key of what is remembered of an alert (``domain.alert.AlertState``)."""
    return f"{ALERT}{name}"


def requeued_sort(job_id: str) -> str:
    """Return the sort key of what is a job that was requeued."""
    return f"{REQUEUED}{job_id}"


def pool_sort(pool: Pool) -> str:
    """Return the sort key of a pool's learned interruption rate."""
    return f"{RATE}pool#{pool}"


#: Learned boot times, idle gaps, items a job, checkpoint cost.
BOOT_RATE = f"{RATE}boot"
GAP_RATE = f"{RATE}gap"
JOB_RATE = f"{RATE}job"
CHECKPOINT_RATE = f"{RATE}checkpoint"


@lru_cache(maxsize=64)
def spend_sort(at: datetime) -> str:
    """Return the sort key of the spend of the UTC day that ``at`` lies in."""
    return f"{SPEND}{at.year:04d}-{at.month:02d}-{at.day:02d}"


@lru_cache(maxsize=64)
def budget_sort(at: datetime) -> str:
    """Return the sort key of the budget of the UTC month that ``at`` lies in."""
    return f"{BUDGET}{at.year:04d}-{at.month:02d}"


def breaker_sort(region: str = "") -> str:
    """Return the sort key of the breaker of a region; the home region is not named."""
    return f"{BREAKER}#{region}" if region else BREAKER


def calls_sort(region: str) -> str:
    """Return the sort key of the launch requests of a region in the last minute of any."""
    return f"{CALLS}{region}"


def minute_of(at: datetime) -> str:
    """Return the UTC minute that ``at`` lies in, for a CallsRow."""
    return f"{at:%Y-%m-%dT%H:%M}"


def quota_sort(quota_class: str) -> str:
    """Return the sort key of a full quota class (``domain.offer.quota_class``)."""
    return f"{QUOTA}{quota_class}"
