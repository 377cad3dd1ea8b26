"""What EC2's answer makes of a launch, as rows: its workers, its own row, its share of the budget.

Used for a fresh answer, for the answer to a request that was made again, and for instances that
were found by their launch's tag.
"""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime

from spindown.contract import row as rows
from spindown.contract.decision import LaunchRequestRecord, RefusalRecord, RequestOutcome
from spindown.control.observe.observation import TickFacts
from spindown.control.plan.launch_allowance import add_to_budget
from spindown.control.spend import keep_machine
from spindown.domain.fleet import Launch, LaunchState, Offered, Worker, WorkerState
from spindown.domain.offer import Pool
from spindown.domain.past_cost import LEAST_BILLED
from spindown.domain.reason import NO_REASON, Reason, ReasonCode
from spindown.port import LaunchedInstance, LaunchRequest, Refusal, RefusalKind, When, Write

#: Ticks that a worker for particular jobs stays idle for, from its launch and from each tick that
#: still wants it.
PARTICULAR_JOBS_WARM_TICKS = 5
#: Reasons of launches whose workers had no row for a while, and of launches without an answer.
ADOPTED = frozenset({ReasonCode.ADOPTED, ReasonCode.ADOPTED_IN_PART})
UNANSWERED = frozenset({ReasonCode.NEVER_REACHED_EC2, ReasonCode.FATE_UNKNOWN})
#: HTTP 200 with nothing in it is a failure all the same.
_NOTHING = Refusal(
    kind=RefusalKind.CAPACITY,
    code="NoInstances",
    message="EC2 gave neither an instance nor a reason",
)
#: Characters that a row keeps of EC2's words.
_SAID_AT_MOST = 500
#: The gravest refusal names a request.
_GRAVEST_FIRST = (
    RefusalKind.ACCOUNT,
    RefusalKind.THROTTLE,
    RefusalKind.QUOTA,
    RefusalKind.CAPACITY,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOutcome:
    """A launch as it is once it is answered."""

    launch: Launch
    #: Those that have no row yet.
    workers: tuple[Worker, ...]
    refusals: tuple[Refusal, ...]
    #: They hold together.
    writes: tuple[Write, ...]
    record: LaunchRequestRecord
    #: Pools that gave something.
    served: frozenset[Pool]


def complete_launch(
    launch: Launch,
    request: LaunchRequest,
    instances: Sequence[LaunchedInstance],
    refusals: Sequence[Refusal],
    *,
    facts: TickFacts,
    known: Collection[str],
    adopted: Reason = NO_REASON,
    is_new: bool = False,
) -> LaunchOutcome:
    """Return what an answer comes to.

    Args:
        launch: the intent.
        request: what was asked for.
        instances: what EC2 gave.
        refusals: what it did not give, and why.
        facts: of the tick.
        known: instances that have rows: an earlier tick may have written some before it died.
        adopted: the reason on a launch whose answer was lost; NO_REASON: it was answered.
        is_new: whether the launch is of this very tick.
    """
    instances = list({found.instance_id: found for found in instances}.values())
    if not instances and not refusals:
        refusals = (_NOTHING,)
    workers = tuple(
        _worker(launch, request, found, facts, is_new=is_new)
        for found in instances
        if found.instance_id not in known
    )
    done = replace(
        launch,
        state=LaunchState.LAUNCHED if instances else LaunchState.REFUSED,
        instance_ids=tuple(found.instance_id for found in instances),
        reserved_usd=launch.reserved_usd * min(1.0, len(instances) / max(1, launch.count)),
        reason=adopted or _reason_of(refusals),
    )
    counts = {"launches": 1, "instances": len(instances), "refusals": len(refusals)}
    absent = When(exists=False)
    return LaunchOutcome(
        launch=done,
        workers=workers,
        refusals=tuple(refusals),
        # The workers first: where they are more than one transaction takes, the launch is completed
        # by the last one. Once it is completed, nobody looks for its instances.
        writes=(
            *(
                write
                for w in workers
                for write in (
                    *_new_row(w, facts),
                    keep_machine(w, facts.rows, absent),
                )
            ),
            *close_launch(launch, done, facts),
            facts.rows.add(rows.spend_sort_key(facts.now), counts),
        ),
        record=LaunchRequestRecord(
            launch_id=launch.launch_id,
            pools=tuple(str(pool) for pool in pools_of(request)),
            count=request.count,
            outcome=_word(instances, refusals, is_adopted=bool(adopted)),
            instances={found.instance_id: str(pool_of(found)) for found in instances},
            refusals=tuple(_record(request, refusal) for refusal in refusals),
            reserved_usd=done.reserved_usd,
            shape=launch.shape,
        ),
        served=frozenset(pool_of(found) for found in instances),
    )


def _new_row(worker: Worker, facts: TickFacts) -> list[Write]:
    """Return the write of a worker's own row, unless a tick that died has written it."""
    if worker.instance_id in facts.view.unlaunched:
        return []
    put = facts.rows.put(rows.worker_sort_key(worker.instance_id), worker)
    return [replace(put, when=When(exists=False))]


def close_launch(launch: Launch, done: Launch, facts: TickFacts) -> tuple[Write, Write]:
    """Return the writes that complete a launch and give back what it does not need."""
    changes = {
        name: getattr(done, name) for name in ("state", "instance_ids", "reserved_usd", "reason")
    }
    when = When(exists=True, equals={"state": LaunchState.INTENDED.value})
    return (
        facts.rows.change(rows.launch_sort_key(launch.launch_id), changes, when=when),
        add_to_budget(launch.reserved_at, {"committed": done.reserved_usd - launch.reserved_usd}),
    )


def pools_of(request: LaunchRequest) -> tuple[Pool, ...]:
    """Return the pools of a request in order of preference."""
    return tuple(
        Pool(instance_type=o.instance_type, zone=o.zone, capacity_type=request.capacity_type)
        for o in request.overrides
    )


def pool_of(found: LaunchedInstance) -> Pool:
    """Return the pool that an instance came from."""
    return Pool(
        instance_type=found.instance_type, zone=found.zone, capacity_type=found.capacity_type
    )


def _worker(
    launch: Launch,
    request: LaunchRequest,
    found: LaunchedInstance,
    facts: TickFacts,
    *,
    is_new: bool,
) -> Worker:
    offered = launch.offered.get(str(pool_of(found))) or _stand_in(launch, found)
    # From when it bills; of one that it does not describe yet, at the earliest.
    launched_at = facts.now if is_new else launch.intended_at
    if found.launched_at is not None:
        launched_at = _within(found.launched_at, launch.intended_at, facts.now)
    return Worker(
        instance_id=found.instance_id,
        launch_id=launch.launch_id,
        shape=launch.shape,
        instance_type=found.instance_type,
        region=request.region,
        zone=found.zone,
        capacity_type=found.capacity_type,
        state=WorkerState.BOOTING,
        launched_at=launched_at,
        warm_until=_warm_until(launch, launched_at, facts),
        **asdict(offered),
    )


def _warm_until(launch: Launch, launched_at: datetime, facts: TickFacts) -> datetime | None:
    """Return until when a new worker stays even if it is idle; None: as long as any."""
    if launch.is_for_particular_jobs:
        return facts.now + PARTICULAR_JOBS_WARM_TICKS * facts.policy.tick
    return launched_at + LEAST_BILLED if launch.may_take_over else None


def _within(at: datetime, least: datetime, most: datetime) -> datetime:
    return min(max(at, least), most)


def _stand_in(launch: Launch, found: LaunchedInstance) -> Offered:
    """Return what to go by of an instance that no offer names: nothing may run for no price."""
    alike = [
        offered
        for pool, offered in launch.offered.items()
        if pool.startswith(f"{found.instance_type}/")
    ]
    if alike:
        return max(alike, key=lambda offered: offered.price_per_hour)
    prices = (offered.price_per_hour for offered in launch.offered.values())
    return Offered(price_per_hour=max(prices, default=0.0))


def _reason_of(refusals: Sequence[Refusal]) -> Reason:
    said = "; ".join(sorted({f"{r.code}: {r.message}" for r in refusals}))[:_SAID_AT_MOST]
    return Reason(ReasonCode.REFUSED, {"said": said}) if said else NO_REASON


def _word(
    instances: Sequence[LaunchedInstance], refusals: Sequence[Refusal], *, is_adopted: bool
) -> RequestOutcome:
    if instances:
        return RequestOutcome.ADOPTED if is_adopted else RequestOutcome.LAUNCHED
    kinds = {refusal.kind for refusal in refusals}
    gravest = (kind for kind in _GRAVEST_FIRST if kind in kinds)
    return RequestOutcome(next(gravest, RefusalKind.UNKNOWN).value)


def _record(request: LaunchRequest, refusal: Refusal) -> RefusalRecord:
    named = refusal.instance_type is not None and refusal.zone is not None
    pool = f"{refusal.instance_type}/{refusal.zone}/{request.capacity_type}" if named else ""
    return RefusalRecord(
        kind=refusal.kind.value, code=refusal.code, message=refusal.message, pool=pool
    )
