"""Try offers: one band of nearly equal ones a request, until the need is met.

Each request is written down as an intent, under the fence and within the budget, before EC2
hears of it; its answer after it. A dry pool, a full quota, a zone without addresses and a region
that asks to slow down are left alone from then on. Tries and time are bounded.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from spindown.contract import row as rows
from spindown.contract import tag
from spindown.contract.codec import encode
from spindown.contract.decision import LaunchRequestRecord
from spindown.contract.row import CALLS_PER_MINUTE, BreakerRow, CallsRow, QuotaRow
from spindown.control.breaker import breaker_name, open_for_account
from spindown.control.execution import Execution
from spindown.control.observation import encode_request, forget_settings
from spindown.control.offers import bands_to_try, budget_left, payable
from spindown.control.outcome import complete_launch, pools_of
from spindown.control.plan import LaunchChoice, LaunchWorkers, Replay
from spindown.control.size import headroom
from spindown.domain.fleet import Launch, LaunchState, Offered, Worker, remember_unavailable
from spindown.domain.offer import CapacityType, Pool, quota_class, slot_count
from spindown.domain.ranking import Candidate
from spindown.domain.reason import NO_REASON, Reason, ReasonCode
from spindown.error import AccessDenied, SpindownError, Throttled, Unreachable
from spindown.ledger import account_key
from spindown.port import (
    LaunchAnswer,
    LaunchedInstance,
    LaunchOverride,
    LaunchRequest,
    Refusal,
    RefusalKind,
    When,
    Write,
)

#: No further request is begun after this: what is under way still ends within SCALER_TIMEOUT.
_BEGIN_WITHIN = timedelta(seconds=40)
#: Pools in one request; EC2 takes more, a person reads no more.
_POOLS_AT_MOST = 60
#: A missing share that is a rounding error.
_NOTHING = 1e-9
#: Tries to write an intent; the second is for who finds that another workload has just begun the
#: minute.
_TRIES = 2


@dataclass(slots=True, kw_only=True)
class _Progress:
    """How far a launch has come."""

    action: LaunchWorkers
    #: Workers that may still be launched, by every bound but the price.
    left: int
    #: Share of the need that is still missing.
    share: float = 1.0
    tries: int = 0
    #: Workers that it has got on demand.
    on_demand: int = 0
    #: Zones whose subnet has no address left, and regions in which it goes no further.
    zones: set[str] = field(default_factory=set)
    closed: set[str] = field(default_factory=set)
    #: Regions of which it was asked whether they are still there.
    asked: set[str] = field(default_factory=set)
    ended: Reason = NO_REASON

    @property
    def choice(self) -> LaunchChoice:
        return self.action.choice


def try_offers(run: Execution, action: LaunchWorkers) -> Reason:
    """Launch what an action asks for.

    Return why it ended before the need was met; NO_REASON if nothing ended it early.
    """
    choice, policy = action.choice, run.facts.policy
    if choice.candidates is None:
        return choice.stopped
    progress = _Progress(action=action, left=places_left(run, choice))
    for band in bands_to_try(choice.candidates, policy, action.asked_last):
        if _is_over(run, progress):
            break
        usable = [c for c in band if _is_usable(run, progress, c)][:_POOLS_AT_MOST]
        dollars = headroom(policy, run.workers, run.launches, run.now)
        budget = budget_left(run.facts.budget, run.account, run.now)
        paid, most = payable(usable, headroom_left=dollars, budget=budget)
        if paid and _is_there(run, progress, paid[0].offer.region):
            _try_band(run, progress, paid, most)
        elif usable and budget is not None and all(c.expected_dollars > budget for c in usable):
            progress.ended = progress.ended or Reason(ReasonCode.BUDGET_TOO_LOW)
    return progress.ended


def places_left(run: Execution, choice: LaunchChoice) -> int:
    """Return how many workers all bounds together allow; ``max_workers`` holds for any offer.

    A worker that was to be condemned and lives on keeps its place.
    """
    # What is adopted in this tick counts as present already.
    made = [a for a in run.requests if choice.is_takeover and a.outcome != "adopted"]
    given = sum(len(one.instances) for one in made) + len(run.alive)
    if choice.sizing.bound not in {"", "max_workers"}:
        return choice.sizing.wanted - len(run.alive)
    return run.facts.policy.max_workers - choice.capacity.workers - given


def _is_over(run: Execution, progress: _Progress) -> bool:
    if progress.ended or progress.left <= 0 or progress.share <= _NOTHING:
        return True
    if progress.tries >= run.facts.policy.max_requests_per_tick:
        progress.ended = Reason(ReasonCode.TRIES_USED_UP, {"requests": progress.tries})
    elif run.ports.clock.now() - run.now > _BEGIN_WITHIN:
        progress.ended = Reason(ReasonCode.TIME_IS_UP)
    return bool(progress.ended)


def _is_usable(run: Execution, progress: _Progress, candidate: Candidate) -> bool:
    """Tell whether nothing learned in this tick rules a candidate out."""
    offer = candidate.offer
    dry = run.unavailable.get(offer.pool)
    is_dry = dry is not None and dry.until > run.now
    is_closed = offer.region in progress.closed or offer.quota_class in run.quotas_met
    return not is_dry and not is_closed and offer.zone not in progress.zones


def _is_there(run: Execution, progress: _Progress, region: str) -> bool:
    """Tell whether a region still has an outpost, asked once a launch before it is used.

    What is remembered may be minutes old, and an outpost that is being destroyed withdraws its
    settings before it ends its instances.
    """
    if region in progress.asked or region == run.facts.deployment.region:
        return region not in progress.closed
    progress.asked.add(region)
    try:
        settings, _ = run.ports.settings.workload(run.facts.workload)
    except SpindownError:
        return region not in progress.closed
    if region not in settings.outposts:
        forget_settings(run.ports, run.facts.workload)
        removed = Reason(ReasonCode.REGION_REMOVED, {"region": region})
        run.tell(removed)
        _close(run, progress, region, removed)
    return region not in progress.closed


def _planned(choice: LaunchChoice, candidate: Candidate) -> int:
    """Return how many workers of a candidate meet the whole need.

    A slower offer needs more for the same need; workers to be kept warm are counted as such.
    """
    best = choice.candidates.best if choice.candidates else None
    unbounded = choice.sizing.unbounded
    kept_warm = unbounded if best is None or unbounded > best.workers else 0
    return max(candidate.workers, kept_warm, 1)


def _try_band(run: Execution, progress: _Progress, band: list[Candidate], most: float) -> None:
    choice, region = progress.choice, band[0].offer.region
    planned, is_test = _planned(choice, band[0]), region in progress.action.regions_on_test
    wanted = math.ceil(progress.share * planned - _NOTHING)
    count = 1 if is_test else int(min(progress.left, wanted, most))
    is_on_demand = band[0].offer.capacity_type is CapacityType.ON_DEMAND
    if is_on_demand and choice.on_demand_at_most is not None:
        count = min(count, choice.on_demand_at_most - progress.on_demand)
        if count <= 0:
            return
    progress.tries += 1
    intent, request = _intend(run, band, count, is_takeover=choice.is_takeover)
    progress.ended = _write_intent(run, intent, region)
    if progress.ended:
        return
    run.launches[intent.launch_id] = intent
    try:
        answer = run.ports.compute.launch(request)
    except Unreachable as exc:
        progress.ended = Reason(ReasonCode.LAUNCH_UNANSWERED, {"said": str(exc)})
        return
    except Throttled:
        run.back_off(region)
        _close(run, progress, region, Reason(ReasonCode.SLOW_DOWN))
        return
    except AccessDenied as exc:
        refused = Refusal(kind=RefusalKind.ACCOUNT, code="AccessDenied", message=str(exc))
        answer = LaunchAnswer(refusals=(refused,))
    answered = _record_answer(run, intent, request, answer.instances, answer.refusals)
    given = len(answered.instances)
    progress.left -= given
    progress.on_demand += given if is_on_demand else 0
    progress.share -= given / planned
    if is_test:
        progress.closed.add(region)
    if given:
        # EC2 gives there again.
        run.backoffs.pop(region, None)
    progress.zones |= {r.zone for r in answer.refusals if r.zone and r.instance_type is None}
    _heed(run, progress, band, answer.refusals)


def _heed(
    run: Execution, progress: _Progress, band: list[Candidate], refusals: tuple[Refusal, ...]
) -> None:
    region, classes = band[0].offer.region, [each.offer.quota_class for each in band]
    kinds = {refusal.kind for refusal in refusals}
    if RefusalKind.ACCOUNT in kinds:
        why = run.breakers.get(region, BreakerRow()).reason
        _close(run, progress, region, why.within(ReasonCode.LAUNCHING_STOPPED))
    elif RefusalKind.THROTTLE in kinds:
        _close(run, progress, region, Reason(ReasonCode.SLOW_DOWN))
    elif RefusalKind.QUOTA in kinds and run.quotas_met.isdisjoint(classes):
        # EC2 did not say which class is full: take the first.
        run.quotas_met.add(classes[0])


def _close(run: Execution, progress: _Progress, region: str, reason: Reason) -> None:
    """Go on without a region; end the launch if it was the last."""
    progress.closed.add(region)
    if progress.closed >= run.facts.settings.outposts.keys():
        progress.ended = reason


def _intend(
    run: Execution, band: list[Candidate], count: int, *, is_takeover: bool
) -> tuple[Launch, LaunchRequest]:
    facts, fence, first = run.facts, run.journal.fence, band[0].offer
    outpost = facts.settings.outposts[first.region]
    made = sum(each.fence == fence for each in run.launches.values())
    launch_id = f"{facts.workload}-{fence}-{made + 1}"
    request = LaunchRequest(
        client_token=client_token(run, launch_id),
        region=first.region,
        template=outpost.templates[first.instance_type.architecture],
        capacity_type=first.capacity_type,
        overrides=tuple(
            LaunchOverride(
                instance_type=c.offer.instance_type.name,
                zone=c.offer.zone,
                subnet_id=outpost.subnets[c.offer.zone],
            )
            for c in band
        ),
        count=count,
        tags=_tags(run, launch_id, first.region),
    )
    offered = {str(c.offer.pool): _offered(run, c) for c in band}
    intent = Launch(
        launch_id=launch_id,
        client_token=request.client_token,
        fence=fence,
        state=LaunchState.INTENDED,
        intended_at=run.now,
        request=encode_request(request),
        reserved_usd=max(c.expected_dollars for c in band) * count,
        count=count,
        items_per_hour=min(c.items_per_hour for c in band),
        slots=min(each.slots for each in offered.values()),
        is_takeover=is_takeover,
        offered=offered,
    )
    return intent, request


def _tags(run: Execution, launch_id: str, region: str) -> Mapping[str, str]:
    """Return what the request itself says: whose it is, and what no template can know.

    The template has the first two as well, but the permission for CreateFleet sees only the tags
    of the request (``infra.iam.control``).
    """
    facts = run.facts
    lives_for = facts.policy.max_lifetime + facts.policy.lifetime_grace
    launched = {
        tag.DEPLOYMENT: facts.deployment.name,
        tag.WORKLOAD: facts.workload,
        tag.LAUNCH: launch_id,
        tag.LEASE_UNTIL: f"{run.now + lives_for:%Y-%m-%dT%H:%M:%SZ}",
    }
    if region == facts.deployment.region:
        return launched
    return {**tag.home_tags(facts.deployment, facts.settings), **launched}


def client_token(run: Execution, launch_id: str) -> str:
    """Return EC2's idempotency token, at most 64 characters: one launch, one token.

    The launch id holds workload, fence and number. The time is in it too, since a table that
    was made anew counts its fences from 1 while EC2 still remembers the tokens of the old one.
    """
    text = f"{run.facts.deployment.name}/{launch_id}/{run.now.isoformat()}"
    return hashlib.sha256(text.encode()).hexdigest()


def _offered(run: Execution, candidate: Candidate) -> Offered:
    offer, on_demand = candidate.offer, candidate.offer.on_demand_price
    return Offered(
        price_per_hour=offer.price,
        on_demand_price=None if on_demand is None else on_demand + offer.extra_price,
        gpu_name=offer.instance_type.gpu_name,
        gpu_count=offer.instance_type.gpu_count,
        slots=slot_count(offer.instance_type.gpu_count, run.facts.settings.run.slots),
    )


def _write_intent(run: Execution, intent: Launch, region: str) -> Reason:
    """Write an intent, its reservation and its call, all or none.

    Return why not; NO_REASON if they are written.
    """
    put = run.facts.rows.put(rows.launch_sort(intent.launch_id), intent)
    for _ in range(_TRIES):
        reason = _no_room(run, intent, region)
        if reason:
            return reason
        if run.journal.commit((put, _reserve(run, intent), _take_call(run, region))):
            _note_call(run, region)
            return NO_REASON
        # Another workload was quicker: what has it left?
        run.account = run.journal.ledger.read_account()
    month = rows.budget_sort(run.now)
    if run.account is not None and month in run.account.bad_rows:
        unwritten = Reason(ReasonCode.MONTH_UNREADABLE, {"row": month})
    else:
        unwritten = Reason(ReasonCode.LEDGER_BUSY)
    return _no_room(run, intent, region) or unwritten


def _no_room(run: Execution, intent: Launch, region: str) -> Reason:
    left = budget_left(run.facts.budget, run.account, run.now)
    if left is not None and left < intent.reserved_usd:
        return Reason(ReasonCode.BUDGET_TOO_LOW)
    if run.account is not None and run.account.calls_at(region, run.now) >= CALLS_PER_MINUTE:
        return Reason(ReasonCode.CALLS_USED_UP, {"calls": CALLS_PER_MINUTE, "region": region})
    return NO_REASON


def _reserve(run: Execution, intent: Launch) -> Write:
    budget = run.facts.budget
    limit = {} if budget is None else {"committed": budget - intent.reserved_usd}
    return Write(
        key=account_key(rows.budget_sort(intent.intended_at)),
        when=When(at_most=limit),
        add={"committed": intent.reserved_usd},
    )


def _take_call(run: Execution, region: str) -> Write:
    """Return the write that takes one call out of EC2's bucket, which all workloads share."""
    key, minute = account_key(rows.calls_sort(region)), rows.minute_of(run.now)
    if run.account is not None and run.account.calls_at(region, run.now):
        when = When(equals={"minute": minute}, at_most={"count": CALLS_PER_MINUTE - 1})
        return Write(key=key, when=when, add={"count": 1})
    return Write(key=key, when=When(differs={"minute": minute}), set={"minute": minute, "count": 1})


def _note_call(run: Execution, region: str) -> None:
    if run.account is not None:
        made = run.account.calls_at(region, run.now) + 1
        row = CallsRow(minute=rows.minute_of(run.now), count=made)
        calls = {**run.account.calls, rows.calls_sort(region): row}
        run.account = replace(run.account, calls=calls)


def replay(run: Execution, action: Replay) -> None:
    """Make a request again whose answer was lost; what it gives is adopted."""
    launch_id, region = action.launch.launch_id, action.request.region
    try:
        answer = run.ports.compute.launch(action.request)
    except Throttled:
        run.back_off(region)
        raise
    kinds = {refusal.kind for refusal in answer.refusals}
    if not answer.instances and kinds & {RefusalKind.ACCOUNT, RefusalKind.THROTTLE}:
        # This says why it was refused now, and nothing of the first request.
        codes = ", ".join(sorted({refusal.code for refusal in answer.refusals}))
        run.tell(Reason(ReasonCode.REPLAY_REFUSED, {"launch_id": launch_id, "codes": codes}))
        return
    # What runs with its tag is its own, whatever is said of asking again.
    known = {one.instance_id for one in action.found}
    given = (*action.found, *(one for one in answer.instances if one.instance_id not in known))
    adopted = Reason(ReasonCode.ADOPTED)
    _record_answer(run, action.launch, action.request, given, answer.refusals, adopted)
    if given:
        run.backoffs.pop(region, None)


def _record_answer(
    run: Execution,
    launch: Launch,
    request: LaunchRequest,
    instances: tuple[LaunchedInstance, ...],
    refusals: tuple[Refusal, ...],
    adopted: Reason = NO_REASON,
) -> LaunchRequestRecord:
    """Write down an answer of EC2's, and what it says of pools, quotas and the account."""
    outcome = complete_launch(
        launch,
        request,
        instances,
        refusals,
        facts=run.facts,
        known=run.workers.keys() | run.facts.view.unreadable_workers,
        adopted=adopted,
        is_new=launch.fence == run.journal.fence,
    )
    run.journal.note(outcome.writes)
    run.launches[launch.launch_id] = outcome.launch
    run.workers.update({worker.instance_id: worker for worker in outcome.workers})
    for pool in sorted(outcome.served & run.unavailable.keys(), key=str):
        del run.unavailable[pool]
        run.note(run.facts.rows.delete(rows.unavailable_sort(pool)))
    for refusal in outcome.refusals:
        # A refusal of the whole request is none of the pools that gave something.
        if not outcome.served or refusal.zone is not None:
            _learn_from(run, request, refusal)
    run.requests.append(outcome.record)
    return outcome.record


def _learn_from(run: Execution, request: LaunchRequest, refusal: Refusal) -> None:
    if refusal.kind is RefusalKind.ACCOUNT:
        _open_breaker(run, request.region, refusal)
    elif refusal.kind is RefusalKind.THROTTLE:
        run.back_off(request.region)
    elif refusal.kind is RefusalKind.QUOTA:
        _block_quotas(run, request, refusal)
    else:
        for pool in _refused_pools(request, refusal):
            _avoid(run, pool, Reason(ReasonCode.POOL_REFUSED, {"refusal": refusal.code}))


def _avoid(run: Execution, pool: Pool, reason: Reason) -> None:
    """Remember that a pool gives nothing for a while, longer with each time in a row."""
    known, policy = run.unavailable.get(pool), run.facts.policy
    memory = remember_unavailable(pool, known, reason=reason, now=run.now, policy=policy)
    run.unavailable[pool] = memory
    run.note(run.facts.rows.put(rows.unavailable_sort(pool), memory))


def _open_breaker(run: Execution, region: str, refusal: Refusal) -> None:
    facts, known = run.facts, run.breakers.get(region, BreakerRow())
    breaker = run.breakers[region] = open_for_account(facts, known, region, refusal)
    run.note(facts.rows.put(breaker_name(facts, region), breaker))
    # A deploy may have replaced what was asked for.
    forget_settings(run.ports, facts.workload)


def _block_quotas(run: Execution, request: LaunchRequest, refusal: Refusal) -> None:
    """Block the classes, unless an instance of ours is just giving some of it back."""
    pools, region = _refused_pools(request, refusal), request.region
    for name in sorted({quota_class(p.instance_type, region, p.capacity_type) for p in pools}):
        run.quotas_met.add(name)
        if any(_is_ending_in(worker, name) for worker in run.workers.values()):
            run.tell(Reason(ReasonCode.QUOTA_GIVEN_BACK_SOON, {"quota_class": name}))
            continue
        row = QuotaRow(
            quota_class=name,
            code=refusal.code,
            until=run.now + run.facts.policy.quota_blocked_for,
            message=refusal.message,
        )
        run.note(Write(key=account_key(rows.quota_sort(name)), set=encode(row)))
        if run.account is not None:
            kept = tuple(q for q in run.account.quotas if q.quota_class != name)
            run.account = replace(run.account, quotas=(*kept, row))


def _is_ending_in(worker: Worker, name: str) -> bool:
    is_ending = not worker.is_live or worker.is_interrupting
    return is_ending and name == quota_class(
        worker.instance_type, worker.region, worker.capacity_type
    )


def _refused_pools(request: LaunchRequest, refusal: Refusal) -> tuple[Pool, ...]:
    """Return the pools that a refusal is about; all, if it names none."""
    return tuple(
        pool
        for pool in pools_of(request)
        if refusal.instance_type in {None, pool.instance_type} and refusal.zone in {None, pool.zone}
    )
