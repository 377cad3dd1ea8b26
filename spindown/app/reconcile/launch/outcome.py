"""Write down what EC2 answered to a launch: workers, dry pools, full quotas, or a stop.

Used for a fresh answer, for a replayed one, and for instances found by their launch tag.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from spindown.app.ledger import account_key
from spindown.app.port import LaunchedInstance, LaunchRequest, Refusal, RefusalKind, When, Write
from spindown.app.reconcile.tick import Tick, forget_settings
from spindown.app.spend import add_to_budget
from spindown.contract import row as rows
from spindown.contract.codec import encode, replace_fields
from spindown.contract.decision import AttemptRecord, RefusalRecord
from spindown.contract.row import Backoff, QuotaRow
from spindown.domain.fleet import (
    Launch,
    LaunchState,
    Offered,
    Unavailable,
    Worker,
    WorkerState,
    remember_unavailable,
)
from spindown.domain.offer import Pool, quota_class
from spindown.domain.reason import NO_REASON, Reason, ReasonCode

#: An account error is tried again after this, so that a remedy needs no second action.
_ACCOUNT_RETRY = timedelta(minutes=15)
#: Backing off from a throttle: this long, doubled by each further one, at most this.
_BACKOFF = timedelta(seconds=15)
_BACKOFF_AT_MOST = timedelta(minutes=5)
_NOTHING = Refusal(
    kind=RefusalKind.CAPACITY,
    code="NoInstances",
    message="EC2 gave neither an instance nor a reason",
)
#: Ticks that a worker that takes over stays idle for, from its launch and from each tick that
#: still wants it.
RELIEF_STAYS_TICKS = 5
#: Characters that a row keeps of EC2's words.
_REASON_AT_MOST = 500
#: Reasons of launches whose workers had no row for a while.
ADOPTED = frozenset({ReasonCode.ADOPTED, ReasonCode.ADOPTED_IN_PART})


def record_outcome(
    tick: Tick,
    launch: Launch,
    request: LaunchRequest,
    instances: Sequence[LaunchedInstance],
    refusals: Sequence[Refusal],
    *,
    adopted: Reason = NO_REASON,
) -> AttemptRecord:
    """Let the journal complete a launch; bring the tick's rows up to date.

    ``adopted`` is the reason on a launch whose answer was lost; false: it was answered.
    """
    instances = list({found.instance_id: found for found in instances}.values())
    if not instances and not refusals:
        # HTTP 200 with nothing in it is a failure all the same.
        refusals = (_NOTHING,)
    worker_writes = [
        _put_worker(tick, launch, request, found)
        for found in instances
        # Of a large launch an earlier tick may have written some before it died.
        if found.instance_id not in tick.workers.keys() | tick.view.unreadable_workers
    ]
    done = replace(
        launch,
        state=LaunchState.LAUNCHED if instances else LaunchState.REFUSED,
        instance_ids=tuple(found.instance_id for found in instances),
        reserved_usd=launch.reserved_usd * min(1.0, len(instances) / max(1, launch.count)),
        reason=adopted or _reasons(refusals),
    )
    _note(tick, launch, done, worker_writes, len(refusals))
    _forget_unavailable(tick, instances)
    for refusal in refusals:
        # A refusal of the whole request is none of the pools that gave something.
        if not instances or refusal.zone is not None:
            _learn_from(tick, request, refusal)
    record = AttemptRecord(
        launch_id=launch.launch_id,
        pools=tuple(str(pool) for pool in pools_of(request)),
        count=request.count,
        outcome=_outcome(instances, refusals, adopted=bool(adopted)),
        instances={found.instance_id: str(_pool(found)) for found in instances},
        refusals=tuple(_record(request, refusal) for refusal in refusals),
        reserved_usd=done.reserved_usd,
    )
    tick.attempts.append(record)
    return record


def _note(
    tick: Tick, launch: Launch, done: Launch, worker_writes: Sequence[Write], refusals: int
) -> None:
    """Let the journal write the completed launch, its workers and what it gives back.

    The workers first: where they are more than one transaction takes, the launch is completed by
    the last one, and is adopted if that one fails. Once completed, nobody looks for its instances.
    """
    tick.launches[launch.launch_id] = done
    given_back = done.reserved_usd - launch.reserved_usd
    counts = {"launches": 1, "instances": len(done.instance_ids), "refusals": refusals}
    tick.journal.note(
        *worker_writes,
        _complete(tick, done),
        add_to_budget(launch.intended_at, {"committed": given_back}),
        tick.ledger.add(rows.spend_sort(tick.now), counts),
    )


def _reasons(refusals: Sequence[Refusal]) -> Reason:
    said = "; ".join(sorted({f"{r.code}: {r.message}" for r in refusals}))[:_REASON_AT_MOST]
    return Reason(ReasonCode.REFUSED, {"said": said}) if said else NO_REASON


def give_up(tick: Tick, launch: Launch, reason: Reason) -> None:
    """Let the journal close an intent that never became a launch."""
    done = replace(launch, state=LaunchState.REFUSED, reserved_usd=0.0, reason=reason)
    tick.launches[launch.launch_id] = done
    tick.journal.note(
        _complete(tick, done),
        add_to_budget(launch.intended_at, {"committed": -launch.reserved_usd}),
    )
    tick.notes.append(f"launch {launch.launch_id}: {reason.code}")


def pools_of(request: LaunchRequest) -> tuple[Pool, ...]:
    """Return the pools of a request in order of preference."""
    return tuple(
        Pool(instance_type=o.instance_type, zone=o.zone, capacity_type=request.capacity_type)
        for o in request.overrides
    )


def _put_worker(
    tick: Tick, launch: Launch, request: LaunchRequest, found: LaunchedInstance
) -> Write:
    offered = launch.offered.get(str(_pool(found))) or _stand_in(launch, found)
    worker = Worker(
        instance_id=found.instance_id,
        launch_id=launch.launch_id,
        instance_type=found.instance_type,
        region=request.region,
        zone=found.zone,
        capacity_type=found.capacity_type,
        gpu_name=offered.gpu_name,
        gpu_count=offered.gpu_count,
        slots=offered.slots,
        price_per_hour=offered.price_per_hour,
        on_demand_price=offered.on_demand_price,
        state=WorkerState.BOOTING,
        launched_at=_launched_at(tick, launch, found),
        warm_until=tick.now + RELIEF_STAYS_TICKS * tick.policy.tick if launch.is_relief else None,
    )
    tick.workers[worker.instance_id] = worker
    row = tick.ledger.put(rows.worker_sort(worker.instance_id), worker)
    return replace(row, when=When(exists=False))


def _launched_at(tick: Tick, launch: Launch, found: LaunchedInstance) -> datetime:
    """Return from when an instance bills; of one that it does not describe yet, at the earliest."""
    if found.launched_at is not None:
        return min(max(found.launched_at, launch.intended_at), tick.now)
    return tick.now if launch.fence == tick.journal.fence else launch.intended_at


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


def _complete(tick: Tick, launch: Launch) -> Write:
    changes = {
        name: getattr(launch, name) for name in ("state", "instance_ids", "reserved_usd", "reason")
    }
    when = When(exists=True, equals={"state": LaunchState.INTENDED.value})
    return tick.ledger.change(rows.launch_sort(launch.launch_id), changes, when=when)


def _outcome(
    instances: Sequence[LaunchedInstance], refusals: Sequence[Refusal], *, adopted: bool
) -> str:
    if instances:
        return "adopted" if adopted else "launched"
    kinds = {refusal.kind for refusal in refusals}
    # The gravest names the attempt.
    for kind in (
        RefusalKind.ACCOUNT,
        RefusalKind.THROTTLE,
        RefusalKind.QUOTA,
        RefusalKind.CAPACITY,
    ):
        if kind in kinds:
            return kind.value
    return RefusalKind.UNKNOWN.value


def _forget_unavailable(tick: Tick, instances: Sequence[LaunchedInstance]) -> None:
    served = {_pool(found) for found in instances}
    for pool in served & tick.unavailable.keys():
        del tick.unavailable[pool]
        tick.journal.note(tick.ledger.delete(rows.unavailable_sort(pool)))


def _learn_from(tick: Tick, request: LaunchRequest, refusal: Refusal) -> None:
    if refusal.kind is RefusalKind.ACCOUNT:
        _open_breaker(tick, request.region, refusal)
    elif refusal.kind is RefusalKind.THROTTLE:
        back_off(tick, request.region)
    elif refusal.kind is RefusalKind.QUOTA:
        _block_quota(tick, request, refusal)
    else:
        for pool in _refused_pools(request, refusal):
            mark_unavailable(tick, pool, Reason(ReasonCode.POOL_REFUSED, {"refusal": refusal.code}))


def mark_unavailable(tick: Tick, pool: Pool, reason: Reason) -> Unavailable:
    """Remember that a pool gives nothing for a while, longer with each time in a row."""
    memory = remember_unavailable(
        pool, tick.unavailable.get(pool), reason=reason, now=tick.now, policy=tick.policy
    )
    tick.unavailable[pool] = memory
    tick.journal.note(tick.ledger.put(rows.unavailable_sort(pool), memory))
    return memory


def back_off(tick: Tick, region: str) -> None:
    """Launch nothing there for a while, since EC2 asks to slow down; jittered, doubled in a row."""
    known = tick.seen.backoffs.get(region)
    throttles = 1 if known is None else known.throttles + 1
    span = min(_BACKOFF * 2.0 ** min(throttles - 1, 10), _BACKOFF_AT_MOST)
    until = tick.now + span * (0.5 + 0.5 * tick.ports.random.random())
    backoff = Backoff(until=until, throttles=throttles)
    tick.seen = replace(tick.seen, backoffs={**tick.seen.backoffs, region: backoff})


def forget_backoff(tick: Tick, regions: Collection[str]) -> None:
    """Begin anew where EC2 has given something."""
    left = {name: known for name, known in tick.seen.backoffs.items() if name not in regions}
    if len(left) < len(tick.seen.backoffs):
        tick.seen = replace(tick.seen, backoffs=left)


def backing_off_until(tick: Tick, region: str) -> datetime | None:
    """Return until when EC2 is left alone there after a throttle; None: it is not."""
    known = tick.seen.backoffs.get(region)
    return known.until if known is not None and known.until > tick.now else None


def _open_breaker(tick: Tick, region: str, refusal: Refusal) -> None:
    stop = {
        "open_until": tick.now + _ACCOUNT_RETRY,
        "reason": Reason(
            ReasonCode.ACCOUNT_REFUSED, {"refusal": refusal.code, "message": refusal.message}
        ),
        "image": tick.image(region),
    }
    # What is counted of the image goes on to count: the account says nothing of it.
    tick.set_breaker(region, replace_fields(tick.breaker(region), stop))
    # A deploy may have replaced what was asked for.
    forget_settings(tick)


def _block_quota(tick: Tick, request: LaunchRequest, refusal: Refusal) -> None:
    """Block the class, unless an instance of ours is just giving some of it back."""
    for name in {_class(request, pool) for pool in _refused_pools(request, refusal)}:
        tick.quotas_met.add(name)
        if any(_is_ending_in(worker, name) for worker in tick.workers.values()):
            tick.notes.append(f"quota {name} is full while one of ours is ending: tried again soon")
            continue
        row = QuotaRow(
            quota_class=name,
            code=refusal.code,
            until=tick.now + tick.policy.quota_blocked_for,
            message=refusal.message,
        )
        tick.journal.note(Write(key=account_key(rows.quota_sort(name)), set=encode(row)))
        if tick.account is not None:
            kept = tuple(q for q in tick.account.quotas if q.quota_class != name)
            tick.account = replace(tick.account, quotas=(*kept, row))


def _is_ending_in(worker: Worker, name: str) -> bool:
    is_ending = not worker.is_live or worker.is_interrupting
    return is_ending and name == quota_class(
        worker.instance_type, worker.region, worker.capacity_type
    )


def _class(request: LaunchRequest, pool: Pool) -> str:
    return quota_class(pool.instance_type, request.region, pool.capacity_type)


def _refused_pools(request: LaunchRequest, refusal: Refusal) -> tuple[Pool, ...]:
    """Return the pools that a refusal is about; all, if it names none."""
    return tuple(
        pool
        for pool in pools_of(request)
        if refusal.instance_type in {None, pool.instance_type} and refusal.zone in {None, pool.zone}
    )


def _pool(found: LaunchedInstance) -> Pool:
    return Pool(
        instance_type=found.instance_type, zone=found.zone, capacity_type=found.capacity_type
    )


def _record(request: LaunchRequest, refusal: Refusal) -> RefusalRecord:
    named = refusal.instance_type is not None and refusal.zone is not None
    pool = f"{refusal.instance_type}/{refusal.zone}/{request.capacity_type}" if named else ""
    return RefusalRecord(
        kind=refusal.kind.value, code=refusal.code, message=refusal.message, pool=pool
    )
