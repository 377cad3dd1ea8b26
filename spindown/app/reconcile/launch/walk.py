"""Walk the candidate list: one band of equal offers a request, until the need is met.

Each request is written down as an intent, under the fence and within the budget, before EC2
hears of it; its answer after it. The walk is bounded in tries and in time.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from spindown.app.ledger import account_key
from spindown.app.port import (
    LaunchAnswer,
    LaunchOverride,
    LaunchRequest,
    Refusal,
    RefusalKind,
    When,
    Write,
)
from spindown.app.reconcile.launch.adopt import encode_request
from spindown.app.reconcile.launch.choose import (
    NO_BUDGET,
    budget_left,
    payable,
    say_no_budget,
    say_unwritten,
)
from spindown.app.reconcile.launch.closure import bands_to_ask, is_on_trial, launching_stopped
from spindown.app.reconcile.launch.outcome import back_off, record_outcome
from spindown.app.reconcile.launch.weigh import Choice
from spindown.app.reconcile.tick import Tick, outpost_stands
from spindown.contract import row as rows
from spindown.contract import tag
from spindown.contract.row import CALLS_PER_MINUTE, CallsRow
from spindown.domain.fleet import Launch, LaunchState, Offered
from spindown.domain.offer import CapacityType, slot_count
from spindown.domain.ranking import Candidate
from spindown.domain.reason import Reason, ReasonCode
from spindown.error import AccessDenied, Throttled, Unreachable
from spindown.wording import say

#: No further request is begun after this: what is under way still ends within SCALER_TIMEOUT.
_BEGIN_WITHIN = timedelta(seconds=40)
#: Pools in one request; EC2 takes more, a person reads no more.
_POOLS_AT_MOST = 60


@dataclass(slots=True, kw_only=True)
class _Walk:
    """How far the walk has come."""

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
    ended: str = ""


def launch(tick: Tick, choice: Choice) -> str:
    """Launch what the choice wants; return why it ended early, "" if it did not."""
    candidates = choice.candidates
    if choice.stopped or candidates is None or choice.sizing.wanted <= 0:
        return choice.stopped
    walk = _Walk(left=_left(tick, choice))
    for band in bands_to_ask(tick, candidates):
        if _is_over(tick, walk):
            break
        usable = [c for c in band if _is_usable(tick, walk, c)][:_POOLS_AT_MOST]
        paid, most = payable(tick, usable)
        if paid and _is_there(tick, walk, paid[0].offer.region):
            _try_band(tick, walk, paid, choice, most)
        elif usable:
            walk.ended = walk.ended or say_no_budget(tick, usable)
    return walk.ended


def _left(tick: Tick, choice: Choice) -> int:
    """Return how many workers all bounds together allow; ``max_workers`` holds for any offer."""
    if choice.sizing.bound not in {"", "max_workers"}:
        return choice.sizing.wanted
    return tick.policy.max_workers - choice.capacity.workers


def _is_over(tick: Tick, walk: _Walk) -> bool:
    if walk.ended or walk.left <= 0 or walk.share <= _NOTHING:
        return True
    if walk.tries >= tick.policy.max_attempts_per_tick:
        walk.ended = f"{walk.tries} requests were made, the next tick goes on"
    elif tick.ports.clock.now() - tick.now > _BEGIN_WITHIN:
        walk.ended = "time is up, the next tick goes on"
    return bool(walk.ended)


#: A missing share that is a rounding error.
_NOTHING = 1e-9


def _is_usable(tick: Tick, walk: _Walk, candidate: Candidate) -> bool:
    """Tell whether nothing learned in this walk rules a candidate out."""
    offer = candidate.offer
    dry = tick.unavailable.get(offer.pool)
    is_dry = dry is not None and dry.until > tick.now
    is_closed = offer.region in walk.closed or offer.quota_class in tick.quotas_met
    return not is_dry and not is_closed and offer.zone not in walk.zones


def _is_there(tick: Tick, walk: _Walk, region: str) -> bool:
    """Tell whether a region still has an outpost, asked once a walk before it is used."""
    if region not in walk.asked:
        walk.asked.add(region)
        if not outpost_stands(tick, region):
            _close(tick, walk, region, f"nothing is deployed in {region} any more")
    return region not in walk.closed


def _planned(choice: Choice, candidate: Candidate) -> int:
    """Return how many workers of a candidate meet the whole need.

    A slower offer needs more for the same need; workers to be kept warm are counted as such.
    """
    best = choice.candidates.best if choice.candidates else None
    unbounded = choice.sizing.unbounded
    kept_warm = unbounded if best is None or unbounded > best.workers else 0
    return max(candidate.workers, kept_warm, 1)


def _try_band(tick: Tick, walk: _Walk, band: list[Candidate], choice: Choice, most: float) -> None:
    region, planned = band[0].offer.region, _planned(choice, band[0])
    is_trial = is_on_trial(tick, region)
    wanted = math.ceil(walk.share * planned - _NOTHING)
    count = 1 if is_trial else int(min(walk.left, wanted, most))
    is_on_demand = band[0].offer.capacity_type is CapacityType.ON_DEMAND
    if is_on_demand and choice.on_demand_at_most is not None:
        count = min(count, choice.on_demand_at_most - walk.on_demand)
        if count <= 0:
            return
    walk.tries += 1
    intent, request = _intend(tick, band, count, is_relief=choice.is_relief)
    walk.ended = _write_intent(tick, intent, request.region)
    if walk.ended:
        return
    tick.launches[intent.launch_id] = intent
    try:
        answer = tick.ports.compute.launch(request)
    except Unreachable as exc:
        walk.ended = f"EC2 gave no answer ({exc}); the next tick finds out what became of it"
        return
    except Throttled:
        back_off(tick, region)
        _close(tick, walk, region, say(Reason(ReasonCode.SLOW_DOWN)))
        return
    except AccessDenied as exc:
        refused = Refusal(kind=RefusalKind.ACCOUNT, code="AccessDenied", message=str(exc))
        answer = LaunchAnswer(refusals=(refused,))
    record = record_outcome(tick, intent, request, answer.instances, answer.refusals)
    given = len(record.instances)
    walk.left -= given
    walk.on_demand += given if is_on_demand else 0
    walk.share -= given / planned
    if is_trial:
        walk.closed.add(region)
    walk.zones |= {r.zone for r in answer.refusals if r.zone and r.instance_type is None}
    _heed(tick, walk, band, {refusal.kind for refusal in answer.refusals})


def _heed(tick: Tick, walk: _Walk, band: list[Candidate], kinds: set[RefusalKind]) -> None:
    region, classes = band[0].offer.region, [each.offer.quota_class for each in band]
    if RefusalKind.ACCOUNT in kinds:
        _close(tick, walk, region, say(launching_stopped(tick.breaker(region))))
    elif RefusalKind.THROTTLE in kinds:
        _close(tick, walk, region, say(Reason(ReasonCode.SLOW_DOWN)))
    elif RefusalKind.QUOTA in kinds and tick.quotas_met.isdisjoint(classes):
        # Which one it did not say.
        tick.quotas_met.add(classes[0])


def _close(tick: Tick, walk: _Walk, region: str, reason: str) -> None:
    """Go on without a region; end the walk if it was the last."""
    walk.closed.add(region)
    if walk.closed >= tick.settings.outposts.keys():
        walk.ended = reason


def _intend(
    tick: Tick, band: list[Candidate], count: int, *, is_relief: bool
) -> tuple[Launch, LaunchRequest]:
    first = band[0].offer
    outpost = tick.settings.outposts[first.region]
    made = sum(each.fence == tick.journal.fence for each in tick.launches.values())
    launch_id = f"{tick.workload}-{tick.journal.fence}-{made + 1}"
    request = LaunchRequest(
        client_token=client_token(tick, launch_id),
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
        tags=_tags(tick, launch_id, first.region),
    )
    slots = {str(c.offer.pool): _slots(tick, c) for c in band}
    intent = Launch(
        launch_id=launch_id,
        client_token=request.client_token,
        fence=tick.journal.fence,
        state=LaunchState.INTENDED,
        intended_at=tick.now,
        request=encode_request(request),
        reserved_usd=max(c.expected_dollars for c in band) * count,
        count=count,
        items_per_hour=min(c.items_per_hour for c in band),
        slots=min(slots.values()),
        is_relief=is_relief,
        offered={str(c.offer.pool): _offered(c, slots[str(c.offer.pool)]) for c in band},
    )
    return intent, request


def _tags(tick: Tick, launch_id: str, region: str) -> Mapping[str, str]:
    """Return what the request itself says: whose it is, and what no template can know.

    The template has the former as well, and EC2 lets nobody make a fleet by that: it looks for
    the tag in the request (``infra/iam/control.py``).
    """
    lives_for = tick.policy.max_lifetime + tick.policy.lifetime_grace
    launched = {
        tag.DEPLOYMENT: tick.deployment.name,
        tag.WORKLOAD: tick.workload,
        tag.LAUNCH: launch_id,
        tag.LEASE_UNTIL: f"{tick.now + lives_for:%Y-%m-%dT%H:%M:%SZ}",
    }
    if region == tick.deployment.region:
        return launched
    return {**tag.home_tags(tick.deployment, tick.settings), **launched}


def client_token(tick: Tick, launch_id: str) -> str:
    """Return EC2's idempotency token, at most 64 characters: one launch, one token.

    The launch id holds workload, fence and number. The time is in it too, since a table that
    was made anew counts its fences from 1 while EC2 still remembers the tokens of the old one.
    """
    text = f"{tick.deployment.name}/{launch_id}/{tick.now.isoformat()}"
    return hashlib.sha256(text.encode()).hexdigest()


def _write_intent(tick: Tick, intent: Launch, region: str) -> str:
    """Write an intent, its reservation and its call, all or none; return why not, "" if so."""
    put = tick.ledger.put(rows.launch_sort(intent.launch_id), intent)
    for _ in range(_TRIES):
        reason = _no_room(tick, intent, region)
        if reason:
            return reason
        if tick.journal.commit(put, _reserve(tick, intent), _take_call(tick, region)):
            _note_call(tick, region)
            return ""
        # Another workload was quicker: what has it left?
        tick.account = tick.ledger.read_account()
    return _no_room(tick, intent, region) or say_unwritten(tick)


#: The second is for who finds that another workload has just begun the minute.
_TRIES = 2


def _no_room(tick: Tick, intent: Launch, region: str) -> str:
    left = budget_left(tick)
    if left is not None and left < intent.reserved_usd:
        tick.budget_stopped = True
        return NO_BUDGET
    if tick.account is not None and tick.account.calls_at(region, tick.now) >= CALLS_PER_MINUTE:
        return f"EC2 has been asked {CALLS_PER_MINUTE} times this minute; the next tick goes on"
    return ""


def _reserve(tick: Tick, intent: Launch) -> Write:
    budget = tick.budget
    limit = {} if budget is None else {"committed": budget - intent.reserved_usd}
    return Write(
        key=account_key(rows.budget_sort(intent.intended_at)),
        when=When(at_most=limit),
        add={"committed": intent.reserved_usd},
    )


def _take_call(tick: Tick, region: str) -> Write:
    """Return the write that takes one call out of EC2's bucket, which all workloads share."""
    key, minute = account_key(rows.calls_sort(region)), rows.minute_of(tick.now)
    if tick.account is not None and tick.account.calls_at(region, tick.now):
        when = When(equals={"minute": minute}, at_most={"count": CALLS_PER_MINUTE - 1})
        return Write(key=key, when=when, add={"count": 1})
    return Write(key=key, when=When(differs={"minute": minute}), set={"minute": minute, "count": 1})


def _note_call(tick: Tick, region: str) -> None:
    if tick.account is not None:
        made = tick.account.calls_at(region, tick.now) + 1
        row = CallsRow(minute=rows.minute_of(tick.now), count=made)
        calls = {**tick.account.calls, rows.calls_sort(region): row}
        tick.account = replace(tick.account, calls=calls)


def _slots(tick: Tick, candidate: Candidate) -> int:
    return slot_count(candidate.offer.instance_type.gpu_count, tick.settings.run.slots)


def _offered(candidate: Candidate, slots: int) -> Offered:
    offer, on_demand = candidate.offer, candidate.offer.on_demand_price
    return Offered(
        price_per_hour=offer.price,
        on_demand_price=None if on_demand is None else on_demand + offer.extra_price,
        gpu_name=offer.instance_type.gpu_name,
        gpu_count=offer.instance_type.gpu_count,
        slots=slots,
    )
