"""Choose the offers that missing workers could come from, and how many may be had.

Their order is of ``domain.ranking``, the number of ``domain.machine_count``. What keeps a launch
back is noted here as ``blocked_by``: no offer, a breaker, a ceiling or the budget.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from spindown.contract.row import CALLS_PER_MINUTE, budget_sort_key
from spindown.control.market import CATALOGUE_KEY, PriceList, price_offers
from spindown.control.observe.fleet import Fleet
from spindown.control.observe.observation import Observation, decode_request
from spindown.control.plan.action import ActionKind, PlanDraft, StoreCatalogue
from spindown.control.plan.breaker import is_on_test, traits_asked_last
from spindown.control.plan.launch_allowance import LaunchAllowance, calls_made, why_short
from spindown.control.plan.launch_image import tell_images
from spindown.control.plan.launch_need import (
    LaunchNeed,
    blocked_regions,
    fleet_headroom,
    waiting_work,
)
from spindown.control.plan.launch_outcome import UNANSWERED
from spindown.control.plan.shape import of_shape
from spindown.domain.account_pricing import open_to_paid
from spindown.domain.budget import LaunchBudget
from spindown.domain.learning import interruption_rate, throughput, usual_throughput
from spindown.domain.machine_count import Bounds, Sizing, count_machines, share_places, vcpus_left
from spindown.domain.offer import CapacityType, Offer, slot_count
from spindown.domain.past_cost import LEAST_BILLED
from spindown.domain.policy import Dispatch, Policy
from spindown.domain.ranking import CandidateList, Rejection, rank
from spindown.domain.reason import NO_REASON, About, Reason, ReasonCode
from spindown.domain.requirement import misfit
from spindown.domain.shape import of_dispatch
from spindown.domain.spot_or_on_demand import PurchaseMode, ladder_now
from spindown.domain.wasted_work import (
    WastedWork,
    is_ever_allowed,
    may_be_risked,
    pays_here,
    terms_of_offer,
)
from spindown.ledger import AccountView
from spindown.port import CATALOGUE_FOR

#: Rounding must not leave out an offer that is just as fast as it must be.
_AS_FAST = 1.01
#: Hours; no attempt is longer, and the slowest machine is far from a hundred times a T4.
_BOUND_AT_MOST = 10_000.0
#: Offers of which one must fit into what is left of the budget; the rest is not ranked for that.
_TRIED = 32
#: Older than this the catalogue is worth a note.
_CATALOGUE_STALE_AFTER = 12 * CATALOGUE_FOR


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchChoice:
    """How many workers to launch for a need, from which offers, and why not now."""

    need: LaunchNeed
    #: Within all bounds, by the best offer.
    sizing: Sizing
    #: None: prices were not looked at, since no launch is due, or could not be read.
    candidates: CandidateList | None = None
    #: What keeps the launch from being made, though one may be due; NO_REASON: nothing.
    blocked_by: Reason = NO_REASON
    #: When that, the hold or the pool cooldown may end.
    retry_at: datetime | None = None
    #: Quota class without room for what fits -> vCPUs left, and what the smallest offer takes.
    quotas_short: Mapping[str, tuple[float, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A candidate list, and what a person should know of how it came about."""

    candidates: CandidateList | None
    #: Why there is none; NO_REASON: there is one.
    failure: Reason = NO_REASON
    notes: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """The launches of a tick with their offers, and what a person should know, each once."""

    #: In the order of the shapes.
    missing: tuple[LaunchChoice, ...]
    for_particular_jobs: tuple[LaunchChoice, ...]
    notes: tuple[Reason, ...]

    @property
    def all(self) -> tuple[LaunchChoice, ...]:
        """Return them in the order in which they are launched."""
        return (*self.missing, *self.for_particular_jobs)


def choose_all(
    draft: PlanDraft,
    missing: Sequence[LaunchNeed],
    for_particular_jobs: Sequence[LaunchNeed],
    seen: Observation,
    allowance: LaunchAllowance,
) -> Choices:
    """Choose offers for all that is to be launched."""
    chosen = [
        choose_offers(of_shape(draft, need.shape), need, seen, allowance)
        for need in (*missing, *for_particular_jobs)
    ]
    notes = dict.fromkeys(note for _, some in chosen for note in some)
    choices = _share_places([choice for choice, _ in chosen], allowance.workers)
    may_take_over = _note_possible_takeovers(choices, draft.facts.policy)
    images = tell_images(draft.facts, draft.fleet.images)
    return Choices(
        missing=choices[: len(missing)],
        for_particular_jobs=choices[len(missing) :],
        notes=(*notes, *may_take_over, *images),
    )


def _note_possible_takeovers(choices: Sequence[LaunchChoice], policy: Policy) -> Iterator[Reason]:
    """Yield which jobs another's machine may take over, of those that have machines of their own.

    It is cheaper only for a job for which no machine is on its way: one that is costs its first
    minute, whether it gets a job or not.
    """
    for choice in choices:
        is_each = of_dispatch(policy, choice.need.shape).dispatch is Dispatch.DEDICATED
        if is_each and choice.sizing.allowed and choice.sizing.left:
            about: About = {"jobs": choice.sizing.left, "seconds": LEAST_BILLED.total_seconds()}
            yield Reason(ReasonCode.MAY_TAKE_OVER, about)


def _share_places(choices: Sequence[LaunchChoice], places: int) -> tuple[LaunchChoice, ...]:
    """Return the choices so that each shape gets a place before any gets all that are left."""
    missing = [each for each in choices if not each.need.is_for_particular_jobs]
    shared = iter(share_places([each.sizing for each in missing], places))
    return tuple(
        each if each.need.is_for_particular_jobs else replace(each, sizing=next(shared))
        for each in choices
    )


def choose_offers(
    draft: PlanDraft, need: LaunchNeed, seen: Observation, allowance: LaunchAllowance
) -> tuple[LaunchChoice, tuple[Reason, ...]]:
    """Rank what is on sale for a launch that is due, and size it within all bounds.

    It is sized as if no other launch came before it: EC2 may refuse that one.

    Returns the choice, and what a person should know of prices and quotas.
    """
    if not need.may_launch:
        return _unpriced(need, need.blocked_by), ()
    ranked = rank_offers(draft, need, seen)
    if ranked.candidates is None:
        return _unpriced(need, ranked.failure), ranked.notes
    candidates, best = ranked.candidates, ranked.candidates.best
    quotas = quotas_left(draft, seen)
    # ``need`` was counted without prices; this count is by the best offer, within all bounds.
    sizing = count_machines(
        backlog=waiting_work(draft),
        backlog_since=draft.fleet.remembered.backlog_since,
        demand=need.demand,
        capacity=need.capacity,
        best=best,
        knowledge=draft.facts.knowledge,
        policy=draft.facts.policy,
        now=draft.now,
        start_plan=need.start_plan,
        bounds=Bounds(
            budget_workers=(
                None
                if best is None or allowance.budget is None
                else allowance.budget.workers([best])[1]
            ),
            headroom_per_hour=allowance.per_hour,
            quota_vcpus_left=None if best is None else quotas.get(best.offer.quota_class),
            is_on_test=best is not None and is_on_test(draft.facts, draft.fleet, best.offer.region),
        ),
    )
    if need.is_for_particular_jobs:
        # Which jobs it is for says more than what they ask for.
        sizing = replace(sizing, reason=need.unpriced_sizing.reason)
    short = _quotas_short(candidates, quotas) if best is None else {}
    retry_at = _retry_at(need, candidates) if best is None else None
    is_dear = best is None and retry_at is None
    choice = LaunchChoice(
        need=need,
        sizing=sizing,
        candidates=candidates,
        blocked_by=_unaskable(draft, seen.account)
        or (
            _over_ceiling(draft, candidates)
            if is_dear
            else _over_budget(candidates, sizing, allowance.budget)
        ),
        retry_at=retry_at,
        quotas_short=short,
    )
    notes = [
        Reason(
            ReasonCode.NO_QUOTA_LEFT,
            {"quota_class": name, "left": max(vcpus, 0.0), "smallest": smallest},
        )
        for name, (vcpus, smallest) in sorted(short.items())
    ]
    silent = silent_regions(draft.fleet)
    if silent and not silent >= draft.facts.settings.regions.keys():
        regions = ", ".join(sorted(silent & draft.facts.settings.regions.keys()))
        notes.append(Reason(ReasonCode.REGIONS_SILENT, {"regions": regions}))
    useless = traits_asked_last(draft.facts, draft.fleet).values()
    if traits := sorted({trait for found in useless for trait in found}):
        notes.append(Reason(ReasonCode.TRAITS_ASKED_LAST, {"traits": ", ".join(traits)}))
    return choice, (*ranked.notes, *notes)


def _unpriced(need: LaunchNeed, blocked_by: Reason) -> LaunchChoice:
    """Return the choice for a need without any offer."""
    return LaunchChoice(
        need=need, sizing=need.unpriced_sizing, blocked_by=blocked_by, retry_at=need.retry_at
    )


def _unaskable(draft: PlanDraft, account: AccountView | None) -> Reason:
    """Return why no request can be made at all: the shared rows that were read say so."""
    if account is None:
        return NO_REASON
    month = budget_sort_key(draft.now)
    if month in account.bad_rows:
        return Reason(ReasonCode.MONTH_UNREADABLE, {"row": month})
    regions = sorted(draft.facts.settings.regions)
    if all(account.calls_at(region, draft.now) >= CALLS_PER_MINUTE for region in regions):
        named = ", ".join(regions)
        return Reason(ReasonCode.CALLS_USED_UP, {"calls": CALLS_PER_MINUTE, "region": named})
    return NO_REASON


def allowance_of(
    draft: PlanDraft, need: LaunchNeed, account: AccountView | None, budget: LaunchBudget | None
) -> LaunchAllowance:
    """Return what the launches of a plan may take, after all that it does before them.

    Any of its needs will do: each counts the workers of all shapes.
    """
    facts = draft.facts
    return LaunchAllowance(
        workers=facts.policy.max_workers - need.capacity.workers,
        per_hour=fleet_headroom(draft),
        budget=budget,
        calls=calls_made(facts, account),
    )


def _asks_capacity_type_last(draft: PlanDraft) -> bool:
    found = traits_asked_last(draft.facts, draft.fleet).values()
    return any(kind.value in traits for traits in found for kind in CapacityType)


def rank_offers(draft: PlanDraft, need: LaunchNeed, seen: Observation) -> Ranked:
    """Rank what is on sale now for a need."""
    if seen.prices is None:
        return Ranked(candidates=None, failure=seen.prices_failure)
    facts, notes = draft.facts, []
    opens_at = need.ladder_opens_at
    opens_in = None if opens_at is None else opens_at - draft.now
    if _asks_capacity_type_last(draft):
        # What may be bought at first is not likely to start in time.
        opens_in = timedelta(0)
    ladder = ladder_now(
        facts.policy, need.unpriced_sizing.waited, override=need.ladder_override, opens_in=opens_in
    )
    if ladder.is_early:
        notes.append(Reason(ReasonCode.LADDER_OPENED_EARLY))
    home = facts.deployment.region
    priced = price_offers(
        seen.prices,
        facts.settings,
        facts.policy,
        home_region=home,
        is_late=ladder.is_late,
        workers=draft.fleet.all_workers,
    )
    notes += [*_catalogue_notes(draft, seen), *priced.notes]
    if priced.failure:
        return Ranked(candidates=None, failure=priced.failure, notes=tuple(notes))
    account = seen.account or AccountView()
    candidates = rank(
        _suitable(priced.offers, need, draft),
        demand=need.demand,
        knowledge=facts.knowledge,
        pool_cooldowns=draft.fleet.pool_cooldowns.values(),
        blocked={quota.quota_class: quota.until for quota in account.quotas},
        closed=blocked_regions(draft),
        quota_left=quotas_left(draft, seen),
        policy=_at_bound(
            open_to_paid(ladder.policy, facts.settings.pricing, facts.settings.run.root_volume_gib),
            need.wasted_work,
        ),
        requirements=facts.settings.requirements,
        waited=ladder.waited,
        now=draft.now,
        headroom_per_hour=fleet_headroom(draft),
    )
    return Ranked(candidates=candidates, notes=tuple(notes))


def _catalogue_notes(draft: PlanDraft, seen: Observation) -> Iterator[Reason]:
    if seen.prices is not None and draft.now - seen.prices.oldest > _CATALOGUE_STALE_AFTER:
        yield Reason(ReasonCode.CATALOGUE_OLD, {"read_at": seen.prices.oldest.isoformat()})


def _suitable(offers: Sequence[Offer], need: LaunchNeed, draft: PlanDraft) -> Sequence[Offer]:
    """Return the offers that a deadline leaves.

    For what must be on demand those that finish it in time, or all of them if none does; for a
    move that shall save those that do.
    """
    knowledge, policy, least = draft.facts.knowledge, draft.facts.policy, 0.0
    if need.wasted_work is not None:
        sure = [offer for offer in offers if _is_sure(offer, need.wasted_work, draft)]
        # Where nothing sure is ever allowed, whoever comes goes on as far as it may, and then
        # gives the job up.
        return sure if any(_is_ever_allowed(offer, draft) for offer in sure) else offers
    if need.forecast is not None and need.ladder_override is PurchaseMode.ON_DEMAND:
        least = need.forecast.speed * usual_throughput(knowledge, policy)
    if not least and need.item_at_most is None:
        return offers
    kinds = {offer.instance_type.name: offer.instance_type for offer in offers}
    speeds = {n: throughput(knowledge, kind, policy).items_per_hour for n, kind in kinds.items()}
    if need.item_at_most is not None:
        most = need.item_at_most
        return [o for o in offers if o.price < most * speeds[o.instance_type.name]]
    fast = {
        name
        for name, kind in kinds.items()
        if speeds[name] * _AS_FAST >= least * slot_count(kind.gpu_count, knowledge.slots)
    }
    return [o for o in offers if o.instance_type.name in fast] or offers


def _is_sure(offer: Offer, wasted_work: WastedWork, draft: PlanDraft) -> bool:
    """Tell whether jobs that interruptions keep from any progress may go on there, and if it pays.

    A worker from it asks the first again, by the same prices; so it does not leave them either.
    """
    knowledge = draft.facts.knowledge
    rate = interruption_rate(knowledge.pools.get(offer.pool), offer.reclaim_share)
    terms = terms_of_offer(offer, rate, knowledge.slots)
    return may_be_risked(wasted_work, terms, draft.facts.policy) and pays_here(wasted_work, terms)


def _is_ever_allowed(offer: Offer, draft: PlanDraft) -> bool:
    kind, gpus = offer.instance_type, offer.instance_type.gpu_count
    policy, wanted = draft.facts.policy, draft.facts.settings.requirements
    is_open = is_ever_allowed(policy, offer.capacity_type, offer.price, gpus)
    return is_open and offer.instance_price > 0.0 and misfit(kind, wanted) is None


def _at_bound(policy: Policy, wasted_work: WastedWork | None) -> Policy:
    """Return the policy by which such jobs cost what they are expected to, by their bound.

    An interruption costs them all that they have done: as if they kept a checkpoint no sooner.
    """
    if wasted_work is None:
        return policy
    bound = timedelta(hours=min(wasted_work.decisive.hours, _BOUND_AT_MOST))
    return replace(policy, checkpoint_interval=bound)


def store_catalogue(draft: PlanDraft, prices: PriceList | None) -> PlanDraft:
    """Store the first catalogue of a deployment, for others and for the next tick."""
    if prices is None or prices.unstored is None:
        return draft
    action = StoreCatalogue(
        kind=ActionKind.STORE_CATALOGUE, subject=CATALOGUE_KEY, refreshed=prices.unstored
    )
    return draft.act([action])


def quotas_left(draft: PlanDraft, seen: Observation) -> Mapping[str, float]:
    """Return class -> vCPUs that the account may still launch, as far as its quotas are known."""
    if seen.prices is None:
        return {}
    catalogue = seen.prices.catalogue
    return vcpus_left(catalogue.quotas, draft.fleet.all_workers, catalogue.instance_types)


def _quotas_short(
    candidates: CandidateList, left: Mapping[str, float]
) -> Mapping[str, tuple[float, int]]:
    """Return quota classes without room for what fits -> vCPUs left, and the smallest offer's."""
    least: dict[str, int] = {}
    for rejection in candidates.rejected:
        name, vcpus = rejection.offer.quota_class, rejection.offer.instance_type.vcpus
        if rejection.constraint == "quota" and name in left:
            least[name] = min(vcpus, least.get(name, vcpus))
    return {name: (left[name], vcpus) for name, vcpus in least.items()}


def silent_regions(fleet: Fleet) -> frozenset[str]:
    """Return the regions in which a launch of late has had no answer, as far as rows tell.

    Who asks there again first waits again, for as long as that launch counts as on its way.
    """
    unanswered = [
        decode_request(launch)
        for launch in fleet.all_launches
        if launch.is_open or launch.reason.code in UNANSWERED
    ]
    return frozenset(request.region for request in unanswered if request is not None)


def _over_budget(candidates: CandidateList, sizing: Sizing, budget: LaunchBudget | None) -> Reason:
    if sizing.allowed > 0 or sizing.bound != "budget":
        return NO_REASON
    return why_short(candidates.top(_TRIED), budget)


def _over_ceiling(draft: PlanDraft, candidates: CandidateList) -> Reason:
    """Say that a smaller fleet could buy what this one may not.

    NO_REASON if it could not either.
    """
    most, left = draft.facts.policy.max_dollars_per_hour, fleet_headroom(draft)
    if most is None or left is None:
        return NO_REASON
    if not any(
        rejection.constraint == "max_dollars_per_hour" and rejection.offer.price <= most
        for rejection in candidates.rejected
    ):
        return NO_REASON
    about = {"dollars_per_hour": most - left, "max_dollars_per_hour": most}
    return Reason(ReasonCode.FLEET_AT_CEILING, about)


def _retry_at(need: LaunchNeed, candidates: CandidateList) -> datetime | None:
    nearest, forecast = candidates.nearest, need.forecast
    is_spot = need.ladder_override is PurchaseMode.SPOT
    waits = forecast.waits_until if forecast is not None and is_spot else None
    found = [waits, None if nearest is None else nearest.retry_at]
    return min((at for at in found if at is not None), default=None)


def none_fits(candidates: CandidateList | None) -> Reason:
    """Return what left nothing to buy; NO_REASON: something is left, or nobody has looked."""
    if candidates is None or candidates.best is not None:
        return NO_REASON
    return candidates.why_none()


def ruled_out(rejection: Rejection) -> Reason:
    """Return an offer and what rules it out as one reason."""
    why = rejection.reason
    about = {**why.about, "offer": str(rejection.offer), "ruled_out_by": why.code.value}
    return Reason(ReasonCode.NEAREST_OFFER, about)
