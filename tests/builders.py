"""Values with sensible defaults; a test names only what its case is about."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from spindown.contract.usage import UsageEnd, UsageRecord
from spindown.domain.fleet import Backlog, Launch, LaunchState, Lease, Worker, WorkerState
from spindown.domain.learning import JobSizes, Knowledge
from spindown.domain.offer import (
    CapacityType,
    Catalogue,
    InstanceRequirements,
    InstanceType,
    Offer,
    Pool,
    SpotPrice,
)
from spindown.domain.policy import Policy
from spindown.domain.pool_cooldown import PoolCooldown
from spindown.domain.ranking import CandidateList, rank
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.retry_or_dead_letter import Failure
from spindown.domain.schedule import Demand, StartPlan

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
SPOT = CapacityType.SPOT
ON_DEMAND = CapacityType.ON_DEMAND

#: name -> GPU, VRAM MiB, GPUs, vCPUs: a few real types.
_TYPES = {
    "g4dn.xlarge": ("T4", 16384, 1.0, 4),
    "g4dn.12xlarge": ("T4", 16384, 4.0, 48),
    "g5.xlarge": ("A10G", 22888, 1.0, 4),
    "g6.xlarge": ("L4", 22888, 1.0, 4),
    "g6e.xlarge": ("L40S", 45776, 1.0, 4),
    "p4d.24xlarge": ("A100", 40960, 8.0, 96),
    "p4de.24xlarge": ("A100", 81920, 8.0, 96),
}


def minutes(count: float) -> timedelta:
    """Return a span; shorter to read in a table of cases."""
    return timedelta(minutes=count)


def a_type(name: str = "g4dn.xlarge", **changes: Any) -> InstanceType:
    """Return an instance type; the few real names above bring their own GPU."""
    gpu, memory, count, vcpus = _TYPES.get(name, _TYPES["g4dn.xlarge"])
    base = InstanceType(
        name=name,
        vcpus=vcpus,
        memory_mib=16384 * int(count),
        architecture="x86_64",
        gpu_name=gpu,
        gpu_manufacturer="NVIDIA",
        gpu_count=count,
        gpu_memory_mib=memory,
    )
    return replace(base, **changes)


def a_cpu_type(name: str = "c7i.2xlarge", **changes: Any) -> InstanceType:
    """Return a type without a GPU: 8 vCPUs and 16 GiB."""
    base = InstanceType(name=name, vcpus=8, memory_mib=16_384, architecture="x86_64")
    return replace(base, **changes)


def an_offer(instance_type: InstanceType | str = "g4dn.xlarge", **changes: Any) -> Offer:
    """Return a spot offer at 0.20 USD/h with 0.02 for volume and address."""
    kind = a_type(instance_type) if isinstance(instance_type, str) else instance_type
    base = Offer(
        instance_type=kind,
        region="us-west-2",
        zone="us-west-2a",
        capacity_type=SPOT,
        instance_price=0.20,
        extra_price=0.02,
    )
    return replace(base, **changes)


#: The default policy, but that any work launches at once.
AT_ONCE = Policy(scale_up_threshold=1)


def a_policy(**changes: Any) -> Policy:
    """Return a policy under which ladder, ceiling and patience stand in no test's way."""
    return replace(AT_ONCE, **{"ladder": (), "max_price_per_hour": 100.0, **changes})


def job_sizes(*sizes: float) -> JobSizes:
    """Return what jobs of so many items each have shown."""
    return JobSizes(items=sum(sizes), jobs=len(sizes), largest=sizes)


def a_demand(**changes: Any) -> Demand:
    """Return a demand of 20 jobs with 100 items each, to be done in an hour."""
    base = Demand(need_items_per_hour=2000.0, backlog_items=2000.0, jobs=20, items_per_job=100.0)
    return replace(base, **changes)


def a_start_plan(**changes: Any) -> StartPlan:
    """Return what is known of one job that waits for a slot, and can."""
    base = StartPlan(
        slots=0,
        why=ReasonCode.TOO_LATE_NEXT_TICK,
        is_for_one=False,
        side_by_side=0,
        items_per_hour=1000.0,
        late_jobs=1,
        launch_by=None,
        ladder_opens_at=None,
        oldest_since=NOW,
    )
    return replace(base, **changes)


def a_ranking(offers: list[Offer], **changes: Any) -> CandidateList:
    """Rank offers in a situation where nothing but the offers matters."""
    situation: dict[str, Any] = {
        "demand": a_demand(),
        "knowledge": Knowledge(),
        "policy": a_policy(),
        "requirements": InstanceRequirements(),
        "waited": timedelta(0),
        "now": NOW,
    }
    return rank(offers, **(situation | changes))


def a_pool(instance_type: str = "g4dn.xlarge", zone: str = "us-west-2a") -> Pool:
    """Return a spot pool."""
    return Pool(instance_type=instance_type, zone=zone, capacity_type=SPOT)


def a_pool_cooldown(pool: Pool | None = None, **changes: Any) -> PoolCooldown:
    """Return a pool's memory that has three minutes to go."""
    base = PoolCooldown(
        pool=pool or a_pool(),
        until=NOW + minutes(3),
        strikes=1,
        reason=Reason(ReasonCode.POOL_REFUSED, {"refusal": "InsufficientInstanceCapacity"}),
    )
    return replace(base, **changes)


def a_worker(instance_id: str = "i-1", **changes: Any) -> Worker:
    """Return an idle T4 spot worker: up for half an hour, checked in, heard of now."""
    base = Worker(
        instance_id=instance_id,
        launch_id="launch-1",
        instance_type="g4dn.xlarge",
        region="us-west-2",
        zone="us-west-2a",
        capacity_type=SPOT,
        gpu_name="T4",
        gpu_count=1.0,
        slots=1,
        price_per_hour=0.22,
        state=WorkerState.IDLE,
        launched_at=NOW - minutes(30),
        checked_in_at=NOW - minutes(27),
        heartbeat_at=NOW,
    )
    return replace(base, **changes)


def a_booting_worker(instance_id: str = "i-1", *, age: timedelta, **changes: Any) -> Worker:
    """Return a worker that has not checked in yet."""
    since = NOW - age
    state = {"state": WorkerState.BOOTING, "checked_in_at": None, "heartbeat_at": None}
    return a_worker(instance_id, launched_at=since, **(state | changes))


def a_failure(**changes: Any) -> Failure:
    """Return a failure of the first epoch on ``i-1``, as of now."""
    return replace(Failure(at=NOW, instance_id="i-1", epoch=1, kind="failure"), **changes)


def a_lease(instance_id: str = "i-1", **changes: Any) -> Lease:
    """Return the lease of slot 0 on a job of 100 items, none done."""
    base = Lease(
        instance_id=instance_id,
        slot=0,
        job_id="job-1",
        epoch=1,
        receipt_handle="handle-1",
        deadline=NOW + minutes(5),
        not_after=NOW + timedelta(hours=12),
        claimed_at=NOW,
        sent_at=NOW,
        items=100,
    )
    return replace(base, **changes)


def a_launch(launch_id: str = "launch-1", **changes: Any) -> Launch:
    """Return an intent of one T4-class worker, written this moment."""
    base = Launch(
        launch_id=launch_id,
        client_token="token-1",
        fence=1,
        state=LaunchState.INTENDED,
        intended_at=NOW,
        request="{}",
        items_per_hour=1000.0,
    )
    return replace(base, **changes)


def a_usage_record(**changes: Any) -> UsageRecord:
    """Return what a job of a minute on the one slot of an A10G used."""
    base = UsageRecord(
        job_id="scan-7",
        epoch=3,
        workload="ocr",
        instance_id="i-0abc",
        instance_type="g5.xlarge",
        zone="us-west-2a",
        capacity_type="spot",
        gpu="A10G",
        gpu_count=1.0,
        slots=1,
        price_per_hour=0.5,
        started_at=NOW,
        end=UsageEnd.COMPLETED,
        seconds=60.0,
        items=10,
    )
    return replace(base, **changes)


def a_backlog(visible: int = 1, in_flight: int = 0) -> Backlog:
    """Return what the queue says."""
    return Backlog(visible=visible, in_flight=in_flight)


def a_catalogue(*types: InstanceType, **changes: Any) -> Catalogue:
    """Return a catalogue of one region with two zones that offer every type at 1 USD/h."""
    named = {kind.name: kind for kind in types or (a_type(),)}
    base = Catalogue(
        taken_at=NOW,
        instance_types=named,
        offerings={"us-west-2": {"us-west-2a": frozenset(named), "us-west-2b": frozenset(named)}},
        on_demand={"us-west-2": dict.fromkeys(named, 1.0)},
    )
    return replace(base, **changes)


def a_spot_price(price: float, **changes: Any) -> SpotPrice:
    """Return a price of g4dn.xlarge in us-west-2a, seen now."""
    base = SpotPrice(instance_type="g4dn.xlarge", zone="us-west-2a", price=price, seen_at=NOW)
    return replace(base, **changes)


def ec2_said(state_reason: str) -> Reason:
    """Return why an instance has ended, in EC2's code."""
    return Reason(ReasonCode.EC2_SAID, {"state_reason": state_reason})


def unfit(fault: str) -> Reason:
    """Return that a machine is not fit, and why."""
    return Reason(ReasonCode.UNFIT, {"fault": fault})


def account_refused(message: str = "no grant") -> Reason:
    """Return that EC2 refuses every launch because of the account."""
    return Reason(ReasonCode.ACCOUNT_REFUSED, {"refusal": "Refused", "message": message})
