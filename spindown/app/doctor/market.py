"""What could be bought: offers that fit in each zone, and the quotas that they count against."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from spindown.app.doctor.account import request_quota
from spindown.app.doctor.fact import Facts, Unknown
from spindown.app.doctor.finding import Finding, Severity, join
from spindown.app.doctor.subject import DoctorCase, DoctorSubject
from spindown.domain.learning import Knowledge
from spindown.domain.offer import QUOTA_CODES, Offer, Quota, build_offers
from spindown.domain.ranking import CandidateList, Demand, Rejection, rank
from spindown.wording import say


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferChoice:
    """What a workload could be launched on, cheapest item first, once its ladder is open."""

    case: DoctorCase
    candidates: CandidateList

    @property
    def fitting(self) -> tuple[Offer, ...]:
        """Return the offers that may be taken, best first."""
        return tuple(candidate.offer for candidate in self.candidates.candidates)


def choose(subject: DoctorSubject, facts: Facts) -> tuple[OfferChoice, ...]:
    """Rank for each workload what is on sale where it may run."""
    return tuple(
        OfferChoice(case=case, candidates=_rank(case, subject.region, facts))
        for case in subject.cases
    )


def _rank(case: DoctorCase, home: str, facts: Facts) -> CandidateList:
    policy, items = case.policy, case.policy.items_per_job_estimate
    return rank(
        [offer for region in sorted(case.places) for offer in _offers(case, region, home, facts)],
        demand=Demand(need_items_per_hour=items, backlog_items=items, jobs=1, items_per_job=items),
        knowledge=Knowledge(),
        policy=policy,
        requirements=case.requirements,
        # Every rung is open by then: what does not fit now never will.
        waited=policy.start_within,
        now=facts.at,
    )


def _offers(case: DoctorCase, region: str, home: str, facts: Facts) -> tuple[Offer, ...]:
    known, place = facts.regions[region], case.places[region]
    if isinstance(known.catalogue, Unknown):
        return ()
    prices = () if isinstance(known.spot_prices, Unknown) else known.spot_prices
    offers = build_offers(
        known.catalogue,
        prices,
        zones={region: tuple(place.subnets)},
        spot_price_ratio_estimate=case.policy.spot_price_ratio_estimate,
        volume_gib=case.root_gib,
        home_region=home,
    )
    return tuple(o for o in offers if _has_template(o, place.templates))


def _has_template(offer: Offer, templates: Mapping[str, object]) -> bool:
    return not templates or offer.instance_type.architecture in templates


def check_market(
    subject: DoctorSubject, facts: Facts, choices: tuple[OfferChoice, ...]
) -> Iterator[Finding]:
    """Judge zones, prices, offers and quotas."""
    for region in subject.regions:
        yield from _check_region(region, subject, facts)
    for choice in choices:
        yield from _check_policy(choice.case)
        yield _check_offers(choice, facts)
    yield from _check_quotas(choices, facts)


def _check_region(region: str, subject: DoctorSubject, facts: Facts) -> Iterator[Finding]:
    known = facts.regions[region]
    asked = {
        z for case in subject.cases if region in case.places for z in case.places[region].subnets
    }
    if isinstance(known.catalogue, Unknown):
        yield Finding(
            what=f"region {region}",
            found=known.catalogue.reason,
            needed="types, zones and prices",
            remedy=f"aws account enable-region --region-name {region}, or grant the action",
            severity=Severity.BLOCKED,
        )
        return
    there = set(known.catalogue.offerings[region])
    unknown = asked - there
    yield Finding(
        what=f"zones of {region}",
        found=join(asked & there),
        needed=join(asked),
        remedy=f"in spindown.toml choose zones among {join(there)}" if unknown else "",
        severity=_verdict(is_blocked=not asked & there, is_short=bool(unknown)),
    )
    if isinstance(known.spot_prices, Unknown):
        yield Finding(
            what=f"spot prices in {region}",
            found=known.spot_prices.reason,
            needed="estimated from on-demand without",
            remedy="grant ec2:DescribeSpotPriceHistory",
            severity=Severity.WARNING,
        )


def _check_policy(case: DoctorCase) -> Iterator[Finding]:
    if case.policy.max_workers == 0:
        yield Finding(
            what=f"max_workers of {case.name}",
            found="0",
            needed="1 at least",
            remedy=f"spindown policy reset {case.name} max_workers, or set it in spindown.toml",
            severity=Severity.BLOCKED,
        )
    # A sooner promise starts work no sooner but later (docs/adr/0046-single-items.md).
    least = case.policy.boot_estimate + 2 * case.policy.tick
    if case.policy.start_within < least and case.policy.warm_workers == 0:
        needed = f"{least.total_seconds():.0f}s"
        yield Finding(
            what=f"start_within of {case.name}",
            found=f"{case.policy.start_within.total_seconds():.0f}s",
            needed=f"{needed} at least: a boot of boot_estimate and two ticks",
            remedy=f"spindown policy set {case.name} start_within={needed}; or boot_estimate, if"
            " your image boots sooner; or warm_workers, if work must not wait for a boot",
            severity=Severity.WARNING,
        )


def _check_offers(choice: OfferChoice, facts: Facts) -> Finding:
    case, fitting = choice.case, choice.fitting
    zones = [zone for place in case.places.values() for zone in place.subnets]
    counts = Counter(offer.zone for offer in fitting)
    found = ", ".join(f"{zone} {counts[zone]}" for zone in sorted(zones))
    what = f"offers for {case.name}"
    needed = f"one in each zone at {case.policy.max_price_per_hour:g} USD/h or less"
    if fitting:
        best = fitting[0]
        empty = [zone for zone in zones if not counts[zone]]
        return Finding(
            what=what,
            found=f"{found}; best {best} at {best.price:.3f} USD/h",
            needed=needed,
            remedy=f"nothing fits in {join(empty)}: leave it out, or widen requirements"
            if empty
            else "",
            severity=_verdict(is_short=bool(empty)),
        )
    unread = [r for r in case.places if isinstance(facts.regions[r].catalogue, Unknown)]
    reason = _nearest(choice.candidates)
    if unread:
        remedy = f"read the market of {join(unread)} first"
    elif reason is None:
        remedy = "choose zones that offer GPU types"
    else:
        remedy = f"change {reason.constraint} of {case.name}"
    return Finding(
        what=what,
        found=found if reason is None else f"{found}; nearest {reason.offer}: {say(reason.reason)}",
        needed=needed,
        remedy=remedy,
        severity=Severity.BLOCKED,
    )


def _nearest(candidates: CandidateList) -> Rejection | None:
    """Return what rules out the offer that comes nearest, else most of them; None: none is sold."""
    if candidates.nearest is not None:
        return candidates.nearest
    counts = Counter(rejection.constraint for rejection in candidates.rejected)
    return max(candidates.rejected, key=lambda each: counts[each.constraint], default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """What the workloads need of one quota class, in vCPUs."""

    #: For the smallest worker that would do.
    least: int
    #: For ``max_workers`` of the best in this class, all workloads together.
    most: int


def _check_quotas(choices: tuple[OfferChoice, ...], facts: Facts) -> Iterator[Finding]:
    wanted = _wanted(choices)
    short = {name for name, one in wanted.items() if _is_short(name, one, facts)}
    stuck = {
        name
        for choice in choices
        if (own := {offer.quota_class for offer in choice.fitting}) and own <= short
        for name in own
    }
    for name, one in sorted(wanted.items()):
        yield _judge_quota(name, one, facts, is_stuck=name in stuck)


def _wanted(choices: tuple[OfferChoice, ...]) -> Mapping[str, _Wanted]:
    wanted: dict[str, _Wanted] = {}
    for choice in choices:
        own: dict[str, list[int]] = {}
        for offer in choice.fitting:
            own.setdefault(offer.quota_class, []).append(offer.instance_type.vcpus)
        for name, vcpus in own.items():
            known = wanted.get(name)
            wanted[name] = _Wanted(
                least=max(min(vcpus), known.least if known else 0),
                most=vcpus[0] * choice.case.policy.max_workers + (known.most if known else 0),
            )
    return wanted


def _quota(name: str, facts: Facts) -> Quota | None:
    """Return the quota of ``region/class``; None: it is not known."""
    region, _, quota_class = name.partition("/")
    quotas = facts.regions[region].quotas
    return None if isinstance(quotas, Unknown) else quotas.get(quota_class)


def _is_short(name: str, one: _Wanted, facts: Facts) -> bool:
    quota = _quota(name, facts)
    return quota is not None and quota.vcpus < one.least


def _judge_quota(name: str, one: _Wanted, facts: Facts, *, is_stuck: bool) -> Finding:
    region, _, quota_class = name.partition("/")
    quota = _quota(name, facts)
    code = QUOTA_CODES.get(quota_class) if quota is None else quota.code
    what = f"quota {quota_class} in {region} ({code or 'code not known'})"
    needed = f"{one.least} vCPUs for one worker, {one.most} for max_workers"
    if quota is None:
        quotas = facts.regions[region].quotas
        reason = quotas.reason if isinstance(quotas, Unknown) else "not listed"
        remedy = f"aws service-quotas list-service-quotas --service-code ec2 --region {region}"
        return Finding(
            what=what, found=reason, needed=needed, remedy=remedy, severity=Severity.WARNING
        )
    value = quota.vcpus
    is_full = value >= one.most
    return Finding(
        what=what,
        found=f"{value:g} vCPUs",
        needed=needed,
        remedy=""
        if is_full or code is None
        else request_quota("ec2", code, max(one.least, one.most), region),
        severity=_verdict(is_blocked=value < one.least and is_stuck, is_short=not is_full),
    )


def _verdict(*, is_short: bool, is_blocked: bool = False) -> Severity:
    if is_blocked:
        return Severity.BLOCKED
    return Severity.WARNING if is_short else Severity.GOOD
