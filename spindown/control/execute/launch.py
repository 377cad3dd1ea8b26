"""Ask EC2 for the offers of a choice, request by request, until the need is met.

Each request is made from the choice and the progress so far by ``control.plan.launch_request``; the
requests in the plan are what it makes if EC2 refuses none.

Each request is written down as an intent, under the fence and within the budget, before EC2
hears of it; its answer after it. A pool without capacity, or in a zone without addresses, cools
down from then on (``domain.pool_cooldown``); a full quota, and a region that asks to slow down, are
left alone too. Tries and time are bounded.
"""

from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta
from functools import partial

from spindown.contract import row as rows
from spindown.contract.codec import encode
from spindown.contract.decision import LaunchRequestRecord
from spindown.contract.row import BreakerRow, CallsRow, QuotaRow
from spindown.control.execute.execution import Execution
from spindown.control.observe.observation import (
    client_token,
    encode_request,
    forget_settings,
    request_tags,
)
from spindown.control.plan.action import Replay
from spindown.control.plan.breaker import breaker_name, count_forbidden, open_for_account
from spindown.control.plan.launch_allowance import reserve, take_call, why_short
from spindown.control.plan.launch_image import blames_image, give_up_refused, image_for
from spindown.control.plan.launch_outcome import complete_launch, pools_of
from spindown.control.plan.launch_request import (
    LaunchProgress,
    LaunchWorkers,
    PlannedRequest,
    calls_used_up,
)
from spindown.control.plan.offers import LaunchChoice
from spindown.control.unresponsive_region import ACT_WITHIN
from spindown.domain.fleet import Launch, LaunchState, Offered, Worker
from spindown.domain.offer import Pool, quota_class, slot_count
from spindown.domain.policy import Dispatch
from spindown.domain.pool_cooldown import cool_down, cooldown_reason
from spindown.domain.ranking import Candidate
from spindown.domain.reason import NO_REASON, Reason, ReasonCode
from spindown.domain.shape import of_dispatch, slots_of
from spindown.error import AccessDenied, SpindownError, Throttled, Unreachable
from spindown.ledger import account_key
from spindown.port import (
    LaunchAnswer,
    LaunchedInstance,
    LaunchOverride,
    LaunchRequest,
    Refusal,
    RefusalKind,
    Write,
)

#: How long after its first launch a tick begins further requests.
_BEGIN_WITHIN = timedelta(seconds=40)
#: Tries to write an intent; the second is for when another workload has just started this minute's
#: count of calls.
_TRIES = 2


def try_offers(run: Execution, action: LaunchWorkers) -> Reason:
    """Launch what an action asks for.

    Return why it ended before the need was met; NO_REASON if nothing ended it early.
    """
    progress = LaunchProgress(
        action=action,
        policy=run.facts.policy,
        now=run.now,
        regions=run.facts.settings.regions.keys(),
        pool_cooldowns=run.pool_cooldowns,
        quotas_met=run.quotas_met,
    )
    asked: set[str] = set()
    run.launching_since = run.launching_since or run.ports.clock.now()
    begin_until = min(run.launching_since + _BEGIN_WITHIN, run.now + ACT_WITHIN)
    while (request := progress.next_request(run.allowance)) is not None:
        if run.ports.clock.now() > begin_until:
            progress.ended = Reason(ReasonCode.TIME_IS_UP)
            break
        if request.region not in asked and not _confirm_region(run, request.region):
            progress.withdraw(
                request, Reason(ReasonCode.REGION_REMOVED, {"region": request.region})
            )
            continue
        asked.add(request.region)
        _make_request(run, progress, request)
    for region in sorted(asked - progress.closed_regions):
        _count_forbidden_launch(run, progress, region)
    return progress.ended


def _count_forbidden_launch(run: Execution, progress: LaunchProgress, region: str) -> None:
    """Count a launch that was refused all it asked for in a region; any other ends the count."""
    known = run.breakers.get(region, BreakerRow())
    if region in progress.regions_not_forbidden:
        if known.forbidden:
            _write_breaker(run, region, replace(known, forbidden=0))
    elif refusals := progress.forbidden.get(region):
        breaker = count_forbidden(run.facts, known, region, refusals)
        _write_breaker(run, region, breaker)
        if breaker.open_until is not None and breaker.open_until > run.now:
            progress.close(region, breaker.reason.within(ReasonCode.BREAKER_OPEN))


def _confirm_region(run: Execution, region: str) -> bool:
    """Read whether a region still has an outpost, once a launch before it is used.

    What is remembered may be minutes old, and an outpost that is being destroyed withdraws its
    settings before it ends its instances.
    """
    if region == run.facts.deployment.region:
        return True
    try:
        settings, _ = run.ports.settings.workload(run.facts.workload)
    except SpindownError:
        return True
    if region in settings.regions:
        return True
    forget_settings(run.ports, run.facts.workload)
    run.note(Reason(ReasonCode.REGION_REMOVED, {"region": region}))
    return False


def _make_request(run: Execution, progress: LaunchProgress, planned: PlannedRequest) -> None:
    region = planned.region
    intent, request = _intend(run, planned, progress.choice)
    progress.ended = _write_intent(run, planned, intent)
    if progress.ended:
        return
    run.launches[intent.launch_id] = intent
    try:
        answer = run.ports.compute.launch(request)
    except Unreachable as exc:
        # It may have been carried out.
        run.allowance = run.allowance.after(planned.band, planned.count)
        progress.regions_not_forbidden.add(region)
        progress.ended = Reason(ReasonCode.LAUNCH_UNANSWERED, {"said": str(exc)})
        return
    except Throttled:
        # Its intent stays, with its dollars and its places, until a later tick has its answer.
        run.allowance = run.allowance.after(planned.band, planned.count)
        run.back_off(region)
        progress.close(region, Reason(ReasonCode.SLOW_DOWN))
        return
    except AccessDenied as exc:
        refused = Refusal(kind=RefusalKind.ACCOUNT, code="AccessDenied", message=str(exc))
        answer = LaunchAnswer(refusals=(refused,))
    answered = _record_answer(run, intent, request, answer.instances, answer.refusals)
    given = len(answered.instances)
    run.allowance = run.allowance.after(planned.band, given)
    progress.answered(planned, given)
    if given:
        # EC2 gives there again.
        run.backoffs.pop(region, None)
    progress.full_zones |= {r.zone for r in answer.refusals if r.zone and r.instance_type is None}
    _close_after_refusals(run, progress, planned, request, answer.refusals, given)


def _stops_region(request: LaunchRequest, refusal: Refusal) -> bool:
    """Tell whether a refusal means that the account may launch nothing at all in that region.

    A refusal of one pool may hold for that type alone, and one of a baked image not for the base
    image.
    """
    is_of_account = refusal.kind is RefusalKind.ACCOUNT and refusal.is_of_request
    return is_of_account and not blames_image(request, refusal)


def _close_after_refusals(
    run: Execution,
    progress: LaunchProgress,
    planned: PlannedRequest,
    request: LaunchRequest,
    refusals: tuple[Refusal, ...],
    given: int,
) -> None:
    region, classes = planned.region, [each.offer.quota_class for each in planned.band]
    kinds = {refusal.kind for refusal in refusals}
    progress.heard(region, given, refusals)
    if any(_stops_region(request, refusal) for refusal in refusals) and not given:
        why = run.breakers.get(region, BreakerRow()).reason
        progress.close(region, why.within(ReasonCode.BREAKER_OPEN))
    elif RefusalKind.THROTTLE in kinds:
        progress.close(region, Reason(ReasonCode.SLOW_DOWN))
    elif RefusalKind.QUOTA in kinds and run.quotas_met.isdisjoint(classes):
        # EC2 did not say which class is full: take the first.
        run.quotas_met.add(classes[0])


def _intend(
    run: Execution, planned: PlannedRequest, choice: LaunchChoice
) -> tuple[Launch, LaunchRequest]:
    facts, fence, first = run.facts, run.journal.fence, planned.band[0].offer
    place = facts.settings.regions[first.region]
    made = sum(each.fence == fence for each in run.launches.values())
    launch_id = f"{facts.workload}-{fence}-{made + 1}"
    request = LaunchRequest(
        client_token=client_token(facts, launch_id, run.now),
        region=first.region,
        template=place.template(first.instance_type.architecture, first.capacity_type),
        image=image_for(facts, run.images, first.instance_type.architecture, first.region)[0],
        capacity_type=first.capacity_type,
        overrides=tuple(
            LaunchOverride(
                instance_type=c.offer.instance_type.name,
                zone=c.offer.zone,
                subnet_id=place.subnets[c.offer.zone],
            )
            for c in planned.band
        ),
        count=planned.count,
        tags=request_tags(facts, launch_id, first.region, choice.need.shape),
    )
    policy = of_dispatch(facts.policy, choice.need.shape)
    slots = slots_of(policy, facts.settings.run.slots)
    offered = {str(c.offer.pool): _offered(c, slots) for c in planned.band}
    intent = Launch(
        launch_id=launch_id,
        client_token=request.client_token,
        fence=fence,
        state=LaunchState.INTENDED,
        intended_at=run.now,
        request=encode_request(request),
        reserved_usd=planned.reserved_usd,
        count=planned.count,
        items_per_hour=min(c.items_per_hour for c in planned.band),
        slots=min(each.slots for each in offered.values()),
        is_for_particular_jobs=choice.need.is_for_particular_jobs,
        may_take_over=choice.sizing.left > 0 and policy.dispatch is Dispatch.DEDICATED,
        shape=choice.need.shape,
        offered=offered,
    )
    return intent, request


def _offered(candidate: Candidate, slots: str) -> Offered:
    offer, on_demand = candidate.offer, candidate.offer.on_demand_price
    return Offered(
        price_per_hour=offer.price,
        extra_price=offer.extra_price,
        on_demand_price=None if on_demand is None else on_demand + offer.extra_price,
        gpu_name=offer.instance_type.gpu_name,
        gpu_count=offer.instance_type.gpu_count,
        vcpus=offer.instance_type.vcpus,
        slots=slot_count(offer.instance_type.gpu_count, slots),
    )


def _write_intent(run: Execution, planned: PlannedRequest, intent: Launch) -> Reason:
    """Write an intent, its reservation and its call, all or none.

    Return why not; NO_REASON if they are written.
    """
    facts, region = run.facts, planned.region
    put = facts.rows.put(rows.launch_sort_key(intent.launch_id), intent)
    for _ in range(_TRIES):
        call = take_call(region, run.account, run.now)
        unit = (put, reserve(intent, run.allowance.budget), call)
        if all(run.journal.commit([unit])):
            _note_call(run, region)
            return NO_REASON
        # Another workload was quicker: what has it left?
        run.read_account_again()
        left = run.allowance
        if left.budget is not None and left.budget.left_usd < intent.reserved_usd:
            return why_short(planned.band, left.budget) or Reason(ReasonCode.LEDGER_BUSY)
        if not left.has_calls(region):
            return calls_used_up(region)
    month = rows.budget_sort_key(run.now)
    if run.account is not None and month in run.account.bad_rows:
        return Reason(ReasonCode.MONTH_UNREADABLE, {"row": month})
    return Reason(ReasonCode.LEDGER_BUSY)


def _note_call(run: Execution, region: str) -> None:
    if run.account is not None:
        made = run.account.calls_at(region, run.now) + 1
        row = CallsRow(minute=rows.minute_of(run.now), count=made)
        calls = {**run.account.calls, rows.calls_sort_key(region): row}
        run.account = replace(run.account, calls=calls)


def replay(run: Execution, action: Replay) -> None:
    """Make a request again whose answer was lost; what it gives is adopted."""
    launch_id, region = action.launch.launch_id, action.request.region
    try:
        answer = run.ask(region, partial(run.ports.compute.launch, action.request))
    except Throttled:
        run.back_off(region)
        raise
    kinds = {refusal.kind for refusal in answer.refusals}
    if not answer.instances and kinds & {RefusalKind.ACCOUNT, RefusalKind.THROTTLE}:
        # This says why it was refused now, and nothing of the first request.
        codes = ", ".join(sorted({refusal.code for refusal in answer.refusals}))
        run.note(Reason(ReasonCode.REPLAY_REFUSED, {"launch_id": launch_id, "codes": codes}))
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
    run.journal.write_later(outcome.writes)
    run.launches[launch.launch_id] = outcome.launch
    run.workers.update({worker.instance_id: worker for worker in outcome.workers})
    for pool in sorted(outcome.served & run.pool_cooldowns.keys(), key=str):
        del run.pool_cooldowns[pool]
        run.write_later(run.facts.rows.delete(rows.pool_cooldown_sort_key(pool)))
    for refusal in outcome.refusals:
        # A refusal of the whole request is none of the pools that gave something.
        if not outcome.served or refusal.zone is not None:
            _remember_refusal(run, request, refusal)
    run.requests.append(outcome.record)
    return outcome.record


def _remember_refusal(run: Execution, request: LaunchRequest, refusal: Refusal) -> None:
    if blames_image(request, refusal):
        for architecture, known, write in give_up_refused(run.facts, run.images, request, refusal):
            run.images[architecture] = known
            run.write_later(write)
    elif _stops_region(request, refusal):
        _open_breaker(run, request.region, refusal, {p.instance_type for p in pools_of(request)})
    elif refusal.kind is RefusalKind.THROTTLE:
        run.back_off(request.region)
    elif refusal.kind is RefusalKind.QUOTA:
        _block_quotas(run, request, refusal)
    else:
        is_forbidden = refusal.kind is RefusalKind.ACCOUNT
        reason = cooldown_reason(refusal.code, is_forbidden=is_forbidden)
        for pool in _refused_pools(request, refusal):
            _cool_down(run, pool, reason)


def _cool_down(run: Execution, pool: Pool, reason: Reason) -> None:
    """Ask a pool that EC2 has refused for nothing for a while."""
    known, policy = run.pool_cooldowns.get(pool), run.facts.policy
    begun = cool_down(pool, known, reason=reason, now=run.now, policy=policy)
    run.pool_cooldowns[pool] = begun
    run.write_later(run.facts.rows.put(rows.pool_cooldown_sort_key(pool), begun))


def _open_breaker(run: Execution, region: str, refusal: Refusal, types: Collection[str]) -> None:
    facts, known = run.facts, run.breakers.get(region, BreakerRow())
    _write_breaker(run, region, open_for_account(facts, known, region, refusal, types))


def _write_breaker(run: Execution, region: str, breaker: BreakerRow) -> None:
    run.breakers[region] = breaker
    run.write_later(run.facts.rows.put(breaker_name(run.facts, region), breaker))
    if breaker.open_until is not None:
        # A deploy may have replaced what was asked for.
        forget_settings(run.ports, run.facts.workload)


def _block_quotas(run: Execution, request: LaunchRequest, refusal: Refusal) -> None:
    """Block the classes, unless an instance of ours is just giving some of it back."""
    pools, region = _refused_pools(request, refusal), request.region
    for name in sorted({quota_class(p.instance_type, region, p.capacity_type) for p in pools}):
        run.quotas_met.add(name)
        if any(_is_ending_in(worker, name) for worker in run.workers.values()):
            run.note(Reason(ReasonCode.QUOTA_GIVEN_BACK_SOON, {"quota_class": name}))
            continue
        row = QuotaRow(
            quota_class=name,
            code=refusal.code,
            until=run.now + run.facts.policy.quota_blocked_for,
            message=refusal.message,
        )
        run.write_later(Write(key=account_key(rows.quota_sort_key(name)), set=encode(row)))
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
