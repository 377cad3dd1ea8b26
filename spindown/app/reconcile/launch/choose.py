"""Decide which offers the missing workers could come from, and how many may be had.

Reads prices and the account only once a launch is due; a quiet tick and a held launch decide on
what the ledger and the queue say.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from spindown.app.ledger import AccountView
from spindown.app.offers import current_catalogue, current_sale
from spindown.app.reconcile.launch.closure import closed_regions, is_on_trial
from spindown.app.reconcile.launch.weigh import Choice, headroom, waiting_work
from spindown.app.reconcile.tick import ACCOUNT, CATALOGUE_STALE_AFTER, Tick
from spindown.contract.row import QuotaRow, budget_sort
from spindown.domain.deadline import PurchaseMode, open_ladder
from spindown.domain.learning import throughput, usual_throughput
from spindown.domain.offer import QUOTA_CODES, CapacityType, Offer, slot_count, trusted
from spindown.domain.ranking import Candidate, CandidateList, bring_forward, price_ceilings, rank
from spindown.domain.sizing import Bounds, Sizing, size, vcpus_left

#: What is as fast as it must be is not left out for the rounding of its estimate.
_AS_FAST = 1.01
#: What is told while the promise leaves no time for the rungs of the ladder.
EARLY = "a later launch would break start_within: every rung of the price ladder is open"


def choose(tick: Tick, weighed: Choice) -> Choice:
    """Rank what is on sale for a launch that is due, and size it within all bounds."""
    if not weighed.is_open:
        return weighed
    account = tick.ledger.read_account()
    tick.account = tick.ports.cache.keep(ACCOUNT, "", tick.now, account)
    tick.catalogue_age = _catalogue_age(tick)
    left = headroom(tick)
    candidates = rank_offers(tick, weighed, headroom_per_hour=left)
    sizing = size(
        backlog=waiting_work(tick),
        backlog_since=tick.seen.backlog_since,
        demand=weighed.demand,
        capacity=weighed.capacity,
        best=candidates.best,
        knowledge=tick.knowledge,
        policy=tick.policy,
        now=tick.now,
        start_plan=weighed.start_plan,
        bounds=_bounds(tick, candidates, left),
    )
    best = candidates.best
    if sizing.wanted > 1 and best is not None and is_on_trial(tick, best.offer.region):
        sizing = replace(sizing, wanted=1, bound="trial")
    retry_at = _retry_at(weighed, candidates) if best is None else None
    is_dear = best is None and retry_at is None
    return replace(
        weighed,
        sizing=sizing,
        candidates=candidates,
        stopped=_ceiling_words(tick, candidates) if is_dear else _budget_words(tick, sizing),
        retry_at=retry_at,
    )


def _bounds(tick: Tick, candidates: CandidateList, headroom: float | None) -> Bounds:
    """Return what limits the fleet besides ``max_workers``; note the quotas that stop it."""
    best, left = candidates.best, quota_left(tick)
    if best is None:
        _note_short(tick, candidates, left)
    return Bounds(
        budget_left=budget_left(tick),
        headroom_per_hour=headroom,
        quota_vcpus_left=None if best is None else left.get(best.offer.quota_class),
    )


def _note_short(tick: Tick, candidates: CandidateList, left: Mapping[str, float]) -> None:
    """Tell of quotas that have no room for what would fit, as if EC2 had been asked."""
    least: dict[str, int] = {}
    for rejection in candidates.rejected:
        name, vcpus = rejection.offer.quota_class, rejection.offer.instance_type.vcpus
        if rejection.constraint == "quota" and name in left:
            least[name] = min(vcpus, least.get(name, vcpus))
    rows = tuple(
        QuotaRow(
            quota_class=name,
            code=QUOTA_CODES.get(name.partition("/")[2], ""),
            until=tick.now + tick.policy.tick,
            message=f"{max(left[name], 0.0):g} vCPUs are left, the smallest offer takes {vcpus}",
        )
        for name, vcpus in sorted(least.items())
    )
    tick.notes += [f"quota {row.quota_class}: {row.message}" for row in rows]
    tick.quotas_met |= least.keys()
    if tick.account is not None:
        known = {row.quota_class for row in tick.account.quotas if row.until > tick.now}
        new = tuple(row for row in rows if row.quota_class not in known)
        tick.account = replace(tick.account, quotas=(*tick.account.quotas, *new))


def quota_left(tick: Tick) -> Mapping[str, float]:
    """Return class -> vCPUs that the account may still launch, as far as its quotas are known."""
    catalogue = trusted(current_catalogue(tick.ports, tick.now), tick.now)
    workers = list(tick.workers.values())
    return vcpus_left(catalogue.quotas, workers, catalogue.instance_types)


def rank_offers(
    tick: Tick, weighed: Choice, *, headroom_per_hour: float | None = None
) -> CandidateList:
    """Rank what is on sale now for the demand of a choice; the account must have been read."""
    account = tick.account or AccountView()
    policy, waited = tick.policy, weighed.sizing.waited
    is_late = waited >= policy.start_within
    if weighed.opens is not None:
        # The end is promised, so the ladder opens by the slack that is left, not by the wait.
        policy, waited = open_ladder(policy, weighed.opens), timedelta(0)
        is_late = weighed.opens in {
            PurchaseMode.ANY,
            PurchaseMode.ON_DEMAND,
            CapacityType.ON_DEMAND,
        }
    elif weighed.ladder_opens_at is not None:
        policy = bring_forward(policy, waited + (weighed.ladder_opens_at - tick.now))
        if price_ceilings(policy, waited) != price_ceilings(tick.policy, waited):
            is_late = True
            tick.notes.append(EARLY)
    sale = current_sale(
        tick.settings,
        tick.policy,
        home_region=tick.deployment.region,
        ports=tick.ports,
        now=tick.now,
        is_late=is_late,
    )
    tick.notes += sale.notes
    tick.spot_price_age = sale.spot_price_age
    return rank(
        _suitable(sale.offers, weighed, tick),
        demand=weighed.demand,
        knowledge=tick.knowledge,
        unavailable=tick.unavailable.values(),
        blocked={quota.quota_class: quota.until for quota in account.quotas},
        closed=closed_regions(tick),
        quota_left=quota_left(tick),
        policy=policy,
        requirements=tick.settings.requirements,
        waited=waited,
        now=tick.now,
        headroom_per_hour=headroom_per_hour,
    )


def _suitable(offers: Sequence[Offer], weighed: Choice, tick: Tick) -> Sequence[Offer]:
    """Return the offers that a deadline leaves.

    For what must be on demand those that finish it in time, or all of them if none does; for a
    move that shall save those that do.
    """
    forecast, least, most = weighed.forecast, 0.0, weighed.item_at_most
    if forecast is not None and weighed.opens is PurchaseMode.ON_DEMAND:
        least = forecast.speed * usual_throughput(tick.knowledge, tick.policy)
    if not least and most is None:
        return offers
    kinds = {offer.instance_type.name: offer.instance_type for offer in offers}
    speeds = {
        name: throughput(tick.knowledge, kind, tick.policy).items_per_hour
        for name, kind in kinds.items()
    }
    if most is not None:
        return [o for o in offers if o.price < most * speeds[o.instance_type.name]]
    slots = {name: slot_count(kind.gpu_count, tick.knowledge.slots) for name, kind in kinds.items()}
    fast = {name for name in kinds if speeds[name] * _AS_FAST >= least * slots[name]}
    return [o for o in offers if o.instance_type.name in fast] or offers


def budget_left(tick: Tick) -> float | None:
    """Return the USD that launches may still reserve this month; None: no budget."""
    budget = tick.budget
    if budget is None or tick.account is None:
        return None
    return max(0.0, budget - tick.account.budget_at(tick.now).committed)


def payable(tick: Tick, band: Sequence[Candidate]) -> tuple[list[Candidate], float]:
    """Return what of a band both ceilings leave, and how many workers, whichever EC2 chooses."""
    cheap, some = _within(band, headroom(tick), lambda each: each.offer.price)
    fitting, few = _within(cheap, budget_left(tick), lambda each: each.expected_dollars)
    return fitting, min(some, few)


def _within(
    band: Sequence[Candidate], left: float | None, cost: Callable[[Candidate], float]
) -> tuple[list[Candidate], float]:
    if left is None:
        return list(band), math.inf
    fitting = [candidate for candidate in band if cost(candidate) <= left]
    dearest = max(map(cost, fitting), default=math.inf)
    most = math.floor(left / dearest)
    return fitting, most - (most * dearest > left)


#: What is told when the budget has no room for the cheapest that is left to ask for.
NO_BUDGET = "the budget of the month has no room for another launch"


def say_no_budget(tick: Tick, band: Sequence[Candidate]) -> str:
    """Say that the budget has no room for any of a band; "" if it has."""
    left = budget_left(tick)
    if left is None or any(candidate.expected_dollars <= left for candidate in band):
        return ""
    tick.budget_stopped = True
    return NO_BUDGET


def say_unwritten(tick: Tick) -> str:
    """Say why an intent could not be written although there was room for it."""
    month = budget_sort(tick.now)
    if tick.account is not None and month in tick.account.bad_rows:
        return f"{month} cannot be read, and nothing be set aside in it: spindown doctor fixes it"
    return "the ledger was busy, the next tick goes on"


def _budget_words(tick: Tick, sizing: Sizing) -> str:
    tick.budget_stopped = sizing.wanted <= 0 and sizing.bound == "budget"
    if not tick.budget_stopped:
        return ""
    return f"the budget of {tick.deployment.budget_per_month} USD a month is used up"


def _ceiling_words(tick: Tick, candidates: CandidateList) -> str:
    """Say that a smaller fleet could buy what this one may not; "" if it could not either."""
    most, left = tick.policy.max_dollars_per_hour, headroom(tick)
    if most is None or left is None:
        return ""
    if not any(
        rejection.constraint == "max_dollars_per_hour" and rejection.offer.price <= most
        for rejection in candidates.rejected
    ):
        return ""
    return f"the workload costs {most - left:.2f} of {most:g} USD/h"


def _retry_at(weighed: Choice, candidates: CandidateList) -> datetime | None:
    nearest, forecast = candidates.nearest, weighed.forecast
    waits = (
        forecast.waits_until
        if forecast is not None and weighed.opens is PurchaseMode.SPOT
        else None
    )
    found = [waits, None if nearest is None else nearest.retry_at]
    return min((at for at in found if at is not None), default=None)


def _catalogue_age(tick: Tick) -> timedelta:
    catalogue = current_catalogue(tick.ports, tick.now)
    oldest = min([catalogue.taken_at, *catalogue.stale_since.values()])
    age = max(tick.now - oldest, timedelta(0))
    if age > CATALOGUE_STALE_AFTER:
        at = f"{oldest:%Y-%m-%d %H:%M}"
        tick.notes.append(f"part of the catalogue of offers was last read at {at}")
    return age
