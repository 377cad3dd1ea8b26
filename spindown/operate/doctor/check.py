"""Checks of a deployment: each judges facts and asks nothing.

They come in the order in which they depend on each other: the account, what can be bought (quotas
as well), what holds launches back, then images, subnets and inputs. ``network``, ``monitoring`` and
``rehearsal`` have those of their own subjects.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from difflib import get_close_matches

from spindown.config.deployment import USUAL_QUALIFIER
from spindown.contract.codec import encode_instant
from spindown.contract.image import DISK_KEY
from spindown.contract.row import (
    DEPLOYMENT_PARTITION,
    BreakerRow,
    BudgetRow,
    breaker_sort_key,
    budget_sort_key,
    control_partition,
)
from spindown.domain.account_pricing import adjust, open_to_paid, unmatched_paid
from spindown.domain.bake_or_bootstrap import snapshots_at_most
from spindown.domain.boot import BootPhase, BootProfile, usual_boot
from spindown.domain.budget import LaunchBudget, worker_lifetimes
from spindown.domain.learning import Knowledge
from spindown.domain.offer import (
    QUOTA_CODES,
    CapacityType,
    InstanceType,
    Offer,
    Pool,
    Quota,
    build_offers,
)
from spindown.domain.ranking import CandidateList, Rejection, rank
from spindown.domain.requirement import limit_types, unknown_names
from spindown.domain.schedule import Demand
from spindown.domain.shape import dispatch_of_type, requirements_of, shape_of
from spindown.operate.doctor.fact import Facts
from spindown.operate.doctor.finding import Finding, Severity, join
from spindown.operate.doctor.subject import DoctorCase, DoctorSubject, RequiredImage
from spindown.operate.doctor.unknown import Unknown
from spindown.port import VPC_CODE, AccountPlan, ImageView, SubnetView, VpcCount
from spindown.reason_text import say, say_boot, say_count

#: Concurrent executions of Lambda (Service Quotas, service code lambda).
CONCURRENCY_CODE = "L-B99A9384"
#: What a new account is raised to without questions.
_CONCURRENCY_ASKED = 1000


def check_caller(facts: Facts) -> Finding:
    """Check the credentials, on which everything else depends."""
    if isinstance(facts.caller, Unknown):
        return Finding(
            what="credentials",
            found=facts.caller.reason,
            needed="credentials that AWS accepts",
            remedy="aws sts get-caller-identity; then log in, or choose another AWS_PROFILE",
            severity=Severity.BLOCKED,
        )
    found = f"{facts.caller.arn}, account {facts.caller.account}"
    return Finding(what="credentials", found=found)


def check_account(subject: DoctorSubject, facts: Facts) -> Iterator[Finding]:
    """Check what belongs to the whole account."""
    yield from _check_deployment(subject, facts)
    yield from _check_outposts(subject)
    if subject.is_on_aws:
        yield _check_plan(facts)
        if any(_may_be_spot(subject)):
            yield _check_spot_role(facts)
            yield from _check_lent_keys(subject, facts)
        yield from _check_disk_keys(subject, facts)
    yield _check_concurrency(subject, facts)


def _check_outposts(subject: DoctorSubject) -> Iterator[Finding]:
    """Check whether each further region can be used; the others work without it."""
    troubles: dict[str, list[str]] = {}
    for case in subject.cases:
        for region, why in case.unread.items():
            troubles.setdefault(region, []).append(f"{case.name}: {why}")
    for region, words in sorted(troubles.items()):
        yield Finding(
            what=f"outpost in {region}",
            found="; ".join(words),
            needed=f"stack {subject.deployment}-outpost-{region}, and the right to read it",
            remedy=f"spindown cdk bootstrap, once for {region}, then spindown deploy",
            severity=Severity.WARNING,
        )


def _check_deployment(subject: DoctorSubject, facts: Facts) -> Iterator[Finding]:
    what = f"deployment {subject.deployment} in {subject.region}"
    missing = [case.name for case in subject.cases if not case.is_deployed]
    if subject.is_deployed:
        is_whole = not missing
        yield Finding(
            what=what,
            found="deployed" if is_whole else f"deployed without {', '.join(missing)}",
            needed="" if is_whole else "every workload of the file",
            remedy="" if is_whole else "spindown deploy",
            severity=Severity.GOOD if is_whole else Severity.WARNING,
        )
        return
    if subject.unread is not None:
        yield Finding(
            what=what,
            found=subject.unread.reason,
            needed="its settings in SSM",
            remedy=subject.unread.remedy(
                "grant ssm:GetParameter and ssm:GetParameters on /spindown/*"
            ),
            severity=Severity.WARNING,
        )
        return
    how = "spindown deploy" if subject.is_on_aws else "spindown local up"
    yield Finding(what=what, found="not deployed yet", remedy=how)
    if facts.has_namesake:
        # In a region that both use, each would deploy its outpost over the other's.
        yield Finding(
            what=f"name {subject.deployment}",
            found=f"there is a dashboard {subject.deployment}, so a deployment in another region",
            needed="a name that no other deployment of the account has",
            remedy="choose another `name` in [deployment]; if the dashboard is only left over, "
            "delete it",
            severity=Severity.BLOCKED,
        )
    named = subject.qualifier
    qualified = "" if named == USUAL_QUALIFIER else f" --qualifier {named}"
    for region, found in sorted(facts.bootstraps.items()):
        if isinstance(found, Unknown):
            yield Finding(
                what=f"CDK in {region}",
                found="not bootstrapped" if found.is_missing else found.reason,
                needed="once, before the first deploy",
                remedy=found.remedy(
                    f"spindown cdk bootstrap aws://{_account(facts)}/{region}{qualified}"
                ),
                severity=Severity.WARNING,
            )
    for region, count in sorted(facts.vpcs.items()):
        yield _check_vpcs(region, count)


def _check_vpcs(region: str, count: VpcCount | Unknown) -> Finding:
    """Check that a deploy may make its VPC."""
    what, needed = f"VPCs in {region} ({VPC_CODE})", "one more, which the deploy makes"
    if isinstance(count, Unknown):
        return Finding(
            what=what,
            found=count.reason,
            needed=needed,
            remedy=count.remedy("grant ec2:DescribeVpcs and servicequotas:GetServiceQuota"),
            severity=Severity.WARNING,
        )
    is_full = count.there >= count.quota
    more = request_quota("vpc", VPC_CODE, count.quota + 1, region)
    return Finding(
        what=what,
        found=f"{count.there} of {count.quota:g}",
        needed=needed,
        remedy=f"name a network of yours in [deployment.network]; or: {more}" if is_full else "",
        severity=_verdict(is_blocked=is_full, is_short=is_full),
    )


def _check_plan(facts: Facts) -> Finding:
    what = "account plan"
    if isinstance(facts.plan, Unknown):
        return Finding(
            what=what,
            found=facts.plan.reason,
            needed="any but the free plan",
            remedy=facts.plan.remedy(
                "see Billing and Cost Management, or grant freetier:GetAccountPlanState"
            ),
            severity=Severity.WARNING,
        )
    if facts.plan is AccountPlan.FREE:
        return Finding(
            what=what,
            found="free",
            needed="paid: a free plan can launch a few small types alone, whatever its quotas",
            remedy="aws freetier upgrade-account-plan --account-plan-type PAID --region us-east-1",
            severity=Severity.BLOCKED,
        )
    return Finding(what=what, found=facts.plan or "none, which means paid")


def _check_spot_role(facts: Facts) -> Finding:
    what = "role AWSServiceRoleForEC2Spot"
    if facts.has_spot_role is True:
        return Finding(what=what, found="there")
    has_role = facts.has_spot_role
    remedy = "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com"
    # The scaler may create it, so its absence stops no launch.
    return Finding(
        what=what,
        found="missing" if has_role is False else _reason(has_role),
        needed="before the first spot request, which otherwise has to create it",
        remedy=has_role.remedy("grant iam:GetRole") if isinstance(has_role, Unknown) else remedy,
        severity=Severity.WARNING,
    )


def _check_disk_keys(subject: DoctorSubject, facts: Facts) -> Iterator[Finding]:
    """Check the key that encrypts disks; without it instances end at once."""
    for region, trouble in sorted(facts.disk_keys.items()):
        own = subject.disk_keys.get(region)
        what = f"key {own or DISK_KEY} in {region}"
        if trouble is None:
            yield Finding(what=what, found="there")
            continue
        yield Finding(
            what=what,
            found="missing" if trouble.is_missing else trouble.reason,
            needed="before the first launch there",
            remedy=trouble.remedy(
                f"enable it, or name another key of {region} as kms_key_arn"
                if own
                else f"aws kms describe-key --key-id {DISK_KEY} --region {region}, which creates it"
            ),
            severity=Severity.WARNING,
        )


def _check_lent_keys(subject: DoctorSubject, facts: Facts) -> Iterator[Finding]:
    """Check that EC2 may encrypt disks of spot instances by a key of the account's own."""
    role = "role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
    for region, arn in sorted(subject.disk_keys.items()):
        what, lent = f"use of {arn} on spot", facts.lent_to_spot.get(arn, False)
        if lent is True:
            yield Finding(what=what, found="granted")
            continue
        lend = (
            f"aws kms create-grant --region {region} --key-id {arn} --grantee-principal "
            f"arn:aws:iam::{_account(facts)}:{role} --operations {_LENT}"
        )
        yield Finding(
            what=what,
            found=lent.reason if isinstance(lent, Unknown) else "not granted",
            needed="a grant, without which each spot instance ends at its launch",
            remedy=lent.remedy(lend) if isinstance(lent, Unknown) else lend,
            severity=Severity.WARNING,
        )


#: What EC2's role for spot needs of a key (Amazon EC2 User Guide, "Spot Instance requests",
#: "Prerequisites").
_LENT = (
    "Decrypt Encrypt GenerateDataKey GenerateDataKeyWithoutPlaintext CreateGrant DescribeKey "
    "ReEncryptFrom ReEncryptTo"
)


def _check_concurrency(subject: DoctorSubject, facts: Facts) -> Finding:
    # A tick for each workload in the same minute, an interruption, and the catalogue.
    needed = len(subject.cases) + 2
    found = facts.concurrency
    is_enough = not isinstance(found, Unknown) and found >= needed
    remedy = request_quota(
        "lambda", CONCURRENCY_CODE, max(_CONCURRENCY_ASKED, needed), subject.region
    )
    if isinstance(found, Unknown):
        remedy = found.remedy("grant lambda:GetAccountSettings")
    return Finding(
        what=f"Lambda concurrency in {subject.region} ({CONCURRENCY_CODE})",
        found=_reason(found) if isinstance(found, Unknown) else f"{found} at once",
        needed=f"{needed}, besides everything else in the account",
        remedy="" if is_enough else remedy,
        severity=Severity.GOOD if is_enough else Severity.WARNING,
    )


def request_quota(service: str, code: str, value: float, region: str) -> str:
    """Return the command that asks AWS for a higher quota."""
    return (
        f"aws service-quotas request-service-quota-increase --service-code {service} "
        f"--quota-code {code} --desired-value {value:g} --region {region}"
    )


def _may_be_spot(subject: DoctorSubject) -> Iterator[bool]:
    for case in subject.cases:
        ladder = case.policy.ladder
        yield not ladder or any(CapacityType.SPOT in rung.capacity_types for rung in ladder)


def _account(facts: Facts) -> str:
    return "ACCOUNT" if isinstance(facts.caller, Unknown) else facts.caller.account


def _reason(fact: object) -> str:
    return fact.reason if isinstance(fact, Unknown) else str(fact)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferChoice:
    """The offers that a workload could launch, cheapest item first, when its ladder is open."""

    case: DoctorCase
    candidates: CandidateList
    #: Pools that EC2 refuses to the scaler -> its error code.
    refused: Mapping[Pool, str] = field(default_factory=dict)

    @property
    def fitting(self) -> tuple[Offer, ...]:
        """Return the offers that may be bought, best first."""
        offers = (candidate.offer for candidate in self.candidates.candidates)
        return tuple(offer for offer in offers if offer.pool not in self.refused)


def check_boots(facts: Facts, choices: Sequence[OfferChoice]) -> Iterator[Finding]:
    """Tell how long boots take, and where a baked image would spare the longest part."""
    for choice in choices:
        case, profile = choice.case, facts.boots.get(choice.case.name)
        boot = None if profile is None or isinstance(profile, Unknown) else usual_boot(profile)
        if boot is None:
            continue
        spares = boot.is_slow_to_install and not (case.is_baked or case.is_auto)
        yield Finding(
            what=f"boots of {case.name}",
            found=say_boot(boot),
            needed="instances that boot from a baked image install nothing" if spares else "",
            remedy=_say_bake(boot, choice) if spares else "",
            severity=Severity.WARNING if spares else Severity.GOOD,
        )


def _say_bake(boot: BootProfile, choice: OfferChoice) -> str:
    case = choice.case
    kept = snapshots_at_most(case.root_gib, len(case.images) * len(case.places))
    spared = ""
    if choice.fitting:
        an_hour = choice.fitting[0].price
        each = boot.phases[BootPhase.INSTALL] / 3600.0 * an_hour
        spared = f": spares ${each * 1000:,.2f} in 1,000 boots at ${an_hour:.3f} an hour"
    return f'image.mode = "bake"{spared}; its snapshots cost ${kept:,.2f} a month at most'


def choose(subject: DoctorSubject, facts: Facts) -> tuple[OfferChoice, ...]:
    """Rank the offers of each workload, in all zones where it may run."""
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
        policy=open_to_paid(policy, case.pricing, case.root_gib),
        requirements=case.requirements,
        # Every rung is open by then: an offer that does not fit now never will.
        waited=policy.start_within,
        now=facts.at,
    )


def _offers(case: DoctorCase, region: str, home: str, facts: Facts) -> tuple[Offer, ...]:
    known, place = facts.regions[region], case.places[region]
    if isinstance(known.catalogue, Unknown):
        return ()
    prices = () if isinstance(known.spot_prices, Unknown) else known.spot_prices
    types = limit_types(known.catalogue.instance_types, case.requirements)
    offers = build_offers(
        replace(known.catalogue, instance_types=types),
        prices,
        zones={region: tuple(place.subnets)},
        spot_price_ratio_estimate=case.policy.spot_price_ratio_estimate,
        volume_gib=case.root_gib,
        home_region=home,
    )
    if case.pricing is not None:
        offers = tuple(adjust(offers, case.pricing, ()))
    return tuple(o for o in offers if _has_template(o, place.templates))


def _has_template(offer: Offer, templates: Mapping[str, object]) -> bool:
    return not templates or offer.instance_type.architecture in templates


def check_market(
    subject: DoctorSubject, facts: Facts, choices: tuple[OfferChoice, ...]
) -> Iterator[Finding]:
    """Check zones, prices, offers and quotas."""
    for region in subject.regions:
        yield from _check_region(region, subject, facts)
    for choice in choices:
        yield from _check_policy(choice.case)
        yield from _check_names(choice.case, facts)
        yield from _check_paid(choice.case, subject.region, facts)
        yield _check_offers(choice, facts)
        yield from _check_types(choice.case, subject.region, facts)
    yield from _check_quotas(choices, facts)


def _check_types(case: DoctorCase, home: str, facts: Facts) -> Iterator[Finding]:
    """Check that there are offers for the jobs of each type."""
    for each in case.policy.types:
        shape = shape_of(each.needs, dispatch_of_type(each, case.policy))
        wanted = requirements_of(shape, case.requirements, case.policy.shared_slots)
        name = f"type {each.name} of {case.name}"
        typed = replace(case, name=name, requirements=wanted)
        choice = OfferChoice(case=typed, candidates=_rank(typed, home, facts))
        yield _check_offers(choice, facts)


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
            remedy=known.catalogue.remedy(
                f"aws account enable-region --region-name {region}, or grant the action"
            ),
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
            needed="otherwise estimated from on-demand prices",
            remedy=known.spot_prices.remedy("grant ec2:DescribeSpotPriceHistory"),
            severity=Severity.WARNING,
        )


def _check_policy(case: DoctorCase) -> Iterator[Finding]:
    if case.policy.max_workers == 0:
        yield Finding(
            what=f"max_workers of {case.name}",
            found="0",
            needed="1 at least",
            remedy=f"`spindown policy reset {case.name} max_workers`, or set it in spindown.toml",
            severity=Severity.BLOCKED,
        )
    # A shorter start_within makes work start later (docs/adr/0046-single-items.md).
    least = case.policy.boot_estimate + 2 * case.policy.tick
    if case.policy.start_within < least and case.policy.warm_workers == 0:
        needed = f"{least.total_seconds():.0f}s"
        yield Finding(
            what=f"start_within of {case.name}",
            found=f"{case.policy.start_within.total_seconds():.0f}s",
            needed=f"{needed} at least: a boot of boot_estimate and two ticks",
            remedy=f"`spindown policy set {case.name} start_within={needed}`; or boot_estimate, if"
            " your image boots sooner; or warm_workers, if work must not wait for a boot",
            severity=Severity.WARNING,
        )


def _check_names(case: DoctorCase, facts: Facts) -> Iterator[Finding]:
    """Check that what a workload names is sold somewhere where it may run."""
    sold: list[InstanceType] = []
    for region in case.places:
        catalogue = facts.regions[region].catalogue
        if isinstance(catalogue, Unknown):
            return
        sold += catalogue.instance_types.values()
    names = {kind.name for kind in sold} | {kind.gpu_name for kind in sold}
    for setting, unknown in unknown_names(case.requirements, sold).items():
        near = [(each, get_close_matches(each, names, n=1)) for each in sorted(unknown)]
        meant = [f"{found[0]} for {each}" for each, found in near if found]
        where = f"in [workload.{case.name}.requirements]"
        yield Finding(
            what=f"{setting} of {case.name}",
            found=f"{join(unknown)}, which EC2 does not sell in {join(case.places)}",
            needed="names that EC2 knows",
            remedy=f"{where} write {', '.join(meant)}" if meant else f"leave it out {where}",
            severity=Severity.WARNING,
        )


def _check_paid(case: DoctorCase, home: str, facts: Facts) -> Iterator[Finding]:
    """Check that what ``[[pricing.paid]]`` names is an offer of the workload."""
    is_unread = any(isinstance(facts.regions[x].catalogue, Unknown) for x in case.places)
    if case.pricing is None or not case.pricing.paid or is_unread:
        return
    offers = [x for region in case.places for x in _offers(case, region, home, facts)]
    unmatched = unmatched_paid(case.pricing, offers, case.requirements)
    yield Finding(
        what=f"paid machines of {case.name}",
        found=f"no offer is {' or '.join(map(str, unmatched))}" if unmatched else "all on sale",
        needed="an offer that each of [[pricing.paid]] pays for",
        remedy="correct instance_type or zone in [[pricing.paid]], or widen the requirements"
        if unmatched
        else "",
        severity=_verdict(is_short=bool(unmatched)),
    )


def _check_offers(choice: OfferChoice, facts: Facts) -> Finding:
    case, fitting = choice.case, choice.fitting
    zones = [zone for place in case.places.values() for zone in place.subnets]
    counts = Counter(offer.zone for offer in fitting)
    found = ", ".join(f"{counts[zone]} in {zone}" for zone in sorted(zones))
    what = f"offers for {case.name}"
    needed = f"one in each zone at {case.policy.max_price_per_hour:g} USD/h or less"
    if fitting:
        best = fitting[0]
        empty = [zone for zone in zones if not counts[zone]]
        return Finding(
            what=what,
            found=f"{found}; best {best} at {best.price:.3f} USD/h",
            needed=needed,
            remedy=f"nothing fits in {join(empty)}: leave it out, or widen the requirements"
            if empty
            else "",
            severity=_verdict(is_short=bool(empty)),
        )
    unread = [r for r in case.places if isinstance(facts.regions[r].catalogue, Unknown)]
    reason = _nearest(choice.candidates)
    if choice.refused:
        found += f"; EC2 refuses {say_count(len(choice.refused), 'offer')} to the scaler"
        remedy = "see the rehearsal below"
    elif unread:
        remedy = f"read the market of {join(unread)} first"
    elif reason is None:
        remedy = "choose zones that offer types that fit"
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
    """Return what excludes the nearest offer, or else most offers; None: there is no offer."""
    if candidates.nearest is not None:
        return candidates.nearest
    counts = Counter(rejection.constraint for rejection in candidates.rejected)
    return max(candidates.rejected, key=lambda each: counts[each.constraint], default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """vCPUs that the workloads need of one quota class."""

    #: For the smallest worker that is enough.
    least: int
    #: For ``max_workers`` of the best type in this class, all workloads together.
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
    """Return the quota of ``region/class``; None: unknown."""
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


def check_obstacles(
    subject: DoctorSubject, facts: Facts, choices: Sequence[OfferChoice]
) -> Iterator[Finding]:
    """Check breakers and budget in the ledger; before a deploy there is none."""
    if facts.obstacles is None:
        return
    if isinstance(facts.obstacles, Unknown):
        is_gone = facts.obstacles.is_missing
        yield Finding(
            what=f"ledger {subject.table}",
            found=facts.obstacles.reason,
            needed="a table: without it no tick runs"
            if is_gone
            else "to see whether launching is stopped",
            remedy="restore it (`spindown docs runbook`, The ledger is damaged or gone)"
            if is_gone
            else facts.obstacles.remedy(
                f"grant dynamodb:PartiQLSelect, Query and GetItem on table {subject.table}"
            ),
            severity=Severity.BLOCKED if is_gone else Severity.WARNING,
        )
        return
    for (workload, region), breaker in sorted(facts.obstacles.breakers.items()):
        yield _open(subject, workload, region, breaker, facts.at)
    if not facts.obstacles.breakers:
        yield Finding(what="breakers", found="closed")
    for workload in sorted(facts.obstacles.locks):
        yield Finding(
            what=f"lock of {workload}",
            found="its row is damaged",
            needed="a row that can be read, and a lease that ends soon",
            remedy="nothing: the next tick takes the lock as free",
            severity=Severity.WARNING,
        )
    committed = facts.obstacles.committed
    if committed is None:
        yield _damaged(subject, facts.obstacles.month, facts.at)
    elif subject.budget_usd is not None:
        yield _check_month(subject.budget_usd, committed, choices)


def check_jobs(facts: Facts) -> Iterator[Finding]:
    """Check that jobs which are not over have a message; before a deploy there are none."""
    for workload, lost in sorted(facts.lost.items()):
        what = f"jobs of {workload}"
        if isinstance(lost, Unknown):
            yield Finding(
                what=what,
                found=lost.reason,
                needed="to see whether each still has a message",
                remedy=lost.remedy(
                    "grant reading the queues and the workload's part of the bucket"
                ),
                severity=Severity.WARNING,
            )
        elif lost:
            yield Finding(
                what=what,
                found=f"at least {lost} of them have no message any more",
                needed="a message each: without it nobody works on a job",
                remedy=f"`spindown redrive {workload} --lost`",
                severity=Severity.WARNING,
            )
        else:
            yield Finding(what=what, found="none is known to lack its message")


def _open(
    subject: DoctorSubject, workload: str, region: str, breaker: BreakerRow, at: datetime
) -> Finding:
    until = "" if breaker.open_until is None else f"{breaker.open_until:%H:%M} UTC"
    return Finding(
        what=f"breaker of {workload} in {region or subject.region}",
        found=f"open until {until}: {say(breaker.reason)}",
        needed="closed: a deploy of another image, other code or other subnets closes it",
        remedy="fix what is outside the deployment; one launch is tried at once after: "
        + command_to_try(subject, workload, region, at),
        severity=Severity.WARNING,
    )


def _damaged(subject: DoctorSubject, month: BudgetRow, at: datetime) -> Finding:
    values = {
        ":spent": {"N": f"{month.dollars:.2f}"},
        ":committed": {"N": f"{month.committed:.2f}"},
    }
    return Finding(
        what="budget of the month",
        found=f"its row {budget_sort_key(at)} in table {subject.table} cannot be read",
        needed="numbers: without them no launch can be charged to it, so none is made",
        remedy="write the sum of the month's days and launches: "
        + _update(
            subject,
            DEPLOYMENT_PARTITION,
            budget_sort_key(at),
            change="dollars = :spent, committed = :committed",
            values=values,
        ),
        severity=Severity.BLOCKED,
    )


def command_to_try(subject: DoctorSubject, workload: str, region: str, at: datetime) -> str:
    """Return the command that ends the wait of a breaker; its counts stay.

    Args:
        subject: the deployment.
        workload: the workload of the breaker.
        region: the region of the breaker; "": home.
        at: the new end of the wait.
    """
    values = {":now": {"S": encode_instant(at)}}
    sort = breaker_sort_key(region)
    return _update(
        subject, control_partition(workload), sort, change="open_until = :now", values=values
    )


def _update(
    subject: DoctorSubject, partition: str, sort: str, *, change: str, values: Mapping[str, object]
) -> str:
    """Return the command that changes one row of the ledger."""
    key = {"pk": {"S": partition}, "sk": {"S": sort}}
    return (
        f"aws dynamodb update-item --region {subject.region} --table-name {subject.table} "
        f"--key '{json.dumps(key)}' --update-expression 'SET {change}' "
        f"--expression-attribute-values '{json.dumps(values)}'"
    )


def check_budget(subject: DoctorSubject, choices: Sequence[OfferChoice]) -> Iterator[Finding]:
    """Check that the whole budget of a month pays for one launch of each workload."""
    for choice in choices:
        least = _least(choice, subject.budget_usd)
        if subject.budget_usd is not None and least is not None and least > subject.budget_usd:
            yield Finding(
                what=f"budget for {choice.case.name}",
                found=f"{subject.budget_usd:g} USD a month",
                needed=f"{least:.2f} USD, which its cheapest launch sets aside; else none is made",
                remedy="raise budget_per_month in [deployment], then spindown deploy",
                severity=Severity.BLOCKED,
            )


def _least(choice: OfferChoice, budget: float | None) -> float | None:
    """Return the USD that the cheapest launch of a workload sets aside; None: it has no offer."""
    ahead = worker_lifetimes(Knowledge(), choice.case.policy)
    month = LaunchBudget(month_usd=budget or 0.0, left_usd=budget or 0.0, lifetimes=ahead)
    return min(map(month.least, choice.candidates.candidates), default=None)


def _check_month(budget: float, committed: float, choices: Sequence[OfferChoice]) -> Finding:
    """Check whether what is left of the month's budget allows the cheapest launch."""
    costs = [least for choice in choices if (least := _least(choice, budget)) is not None]
    left = budget - committed
    has_room = left > 0 and left >= min(costs, default=0.0)
    return Finding(
        what="budget of the month",
        found=f"{committed:.2f} of {budget:g} USD spent or set aside",
        needed="" if has_room else "room for another launch; otherwise it waits for the next month",
        remedy="" if has_room else "raise budget_per_month in [deployment], then spindown deploy",
        severity=Severity.GOOD if has_room else Severity.WARNING,
    )


def check_images(subject: DoctorSubject, facts: Facts) -> Iterator[Finding]:
    """Check each image that an instance starts from."""
    for case in subject.cases:
        for image in case.images:
            found = [
                _check_image(case, region, image, facts.regions[region].images[image.parameter])
                for region in sorted(case.places)
            ]
            # If one region can launch, a fault in another one stops nothing.
            is_stuck = not any(finding.severity is Severity.GOOD for finding in found)
            yield from (one if is_stuck else _as_warning(one) for one in found)


def _as_warning(finding: Finding) -> Finding:
    is_bad = finding.severity is Severity.BLOCKED
    return replace(finding, severity=Severity.WARNING) if is_bad else finding


def _check_image(
    case: DoctorCase, region: str, image: RequiredImage, found: ImageView | Unknown
) -> Finding:
    what = f"image of {case.name} in {region}, {image.architecture}"
    if isinstance(found, Unknown):
        return Finding(
            what=what,
            found=f"{image.parameter}: {found.reason}",
            needed="the id of an image that may be used",
            remedy=found.remedy(_remedy_image(case, image)),
            severity=Severity.BLOCKED if found.is_missing else Severity.WARNING,
        )
    wrong = _what_is_wrong(case, image, found)
    root = f"root {found.root_device} of {found.root_gib} GiB"
    return Finding(
        what=what,
        found=f"{found.image_id}, {found.state}, {found.architecture}, {root}",
        needed="" if wrong is None else wrong[0],
        remedy="" if wrong is None else wrong[1],
        severity=Severity.GOOD if wrong is None else Severity.BLOCKED,
    )


def _what_is_wrong(
    case: DoctorCase, image: RequiredImage, found: ImageView
) -> tuple[str, str] | None:
    if found.state != "available":
        return "an image that is available", _remedy_image(case, image)
    if found.architecture != image.architecture:
        return f"one for {image.architecture}", _remedy_image(case, image)
    if found.root_gib > case.root_gib:
        remedy = (
            f"set root_volume_gib = {found.root_gib} in [workload.{case.name}.image], and deploy"
        )
        return f"a root of {case.root_gib} GiB at most", remedy
    if found.root_device != image.root_device:
        # EC2 would attach a second disk under our name, and the root would stay small.
        device = f'root_device = "{found.root_device}"'
        return (
            f"a root device {image.root_device}",
            f"set {device} in [workload.{case.name}.image], and deploy",
        )
    return None


def _remedy_image(case: DoctorCase, image: RequiredImage) -> str:
    if image.parameter.startswith("/imagebuilder/"):
        return "wait for its pipeline, or: aws imagebuilder start-image-pipeline-execution"
    return f"name another parameter in [workload.{case.name}.image]"


def check_subnets(subject: DoctorSubject, facts: Facts) -> Iterator[Finding]:
    """Check each subnet that the file names; a deploy creates the others."""
    workers: dict[tuple[str, str, str], int] = {}
    for case in subject.cases:
        for region, place in case.places.items():
            for zone, subnet_id in place.subnets.items():
                key = (region, zone, subnet_id)
                workers[key] = workers.get(key, 0) + case.policy.max_workers
    stuck = {id_ for case in subject.cases for id_ in _subnets_of_stuck(case, facts)}
    for (region, zone, subnet_id), count in sorted(workers.items()):
        if not subnet_id:
            continue
        seen = facts.regions[region].subnets
        if isinstance(seen, Unknown):
            yield Finding(
                what=f"subnet {subnet_id}",
                found=seen.reason,
                needed=f"{count} free addresses in {zone}",
                remedy=seen.remedy("grant ec2:DescribeSubnets"),
                severity=Severity.WARNING,
            )
            continue
        found = {subnet.subnet_id: subnet for subnet in seen}.get(subnet_id)
        yield _check_subnet(subnet_id, zone, count, found, is_stuck=subnet_id in stuck)


def _check_subnet(
    subnet_id: str, zone: str, workers: int, found: SubnetView | None, *, is_stuck: bool
) -> Finding:
    what, needed = f"subnet {subnet_id}", f"{workers} free addresses in {zone}"
    bad = Severity.BLOCKED if is_stuck else Severity.WARNING
    remedy = "name another subnet in [deployment.network], and deploy"
    if found is None:
        return Finding(what=what, found="missing", needed=needed, remedy=remedy, severity=bad)
    seen = f"{found.free_addresses} free addresses in {found.zone}"
    if found.zone != zone or found.free_addresses < 1:
        return Finding(what=what, found=seen, needed=needed, remedy=remedy, severity=bad)
    is_short = found.free_addresses < workers
    return Finding(
        what=what,
        found=seen,
        needed=needed,
        remedy="free some addresses, or name a larger subnet" if is_short else "",
        severity=Severity.WARNING if is_short else Severity.GOOD,
    )


def _subnets_of_stuck(case: DoctorCase, facts: Facts) -> Iterator[str]:
    """Yield the subnets of a workload if none of them has room for an instance."""
    own = [(r, zone, s) for r, place in case.places.items() for zone, s in place.subnets.items()]
    usable = (_is_usable(region, zone, subnet_id, facts) for region, zone, subnet_id in own)
    if not any(usable):
        yield from (subnet_id for _, _, subnet_id in own)


def _is_usable(region: str, zone: str, subnet_id: str, facts: Facts) -> bool:
    seen = facts.regions[region].subnets
    if not subnet_id or isinstance(seen, Unknown):
        return True
    return any(
        subnet.subnet_id == subnet_id and subnet.zone == zone and subnet.free_addresses > 0
        for subnet in seen
    )


#: Kind of thing that a worker reads -> (what it needs, the remedy).
_READING = {
    "input": (
        "s3:ListBucket, s3:GetObject; its KMS key if it has one",
        "fix `inputs` or `models`, or the policy of the bucket",
    ),
    "secret": (
        "a secret in this region that the workers' role may read",
        "fix `run.secrets`, or make it: aws secretsmanager create-secret, aws ssm put-parameter",
    ),
    "key": (
        "an enabled KMS key whose policy lets the account's roles use it",
        "fix `kms_keys`, or the policy of the key",
    ),
}


def check_reading(facts: Facts) -> Iterator[Finding]:
    """Check that a workload can read its inputs, secrets and keys."""
    for kind, found in (("input", facts.inputs), ("secret", facts.secrets), ("key", facts.keys)):
        needed, remedy = _READING[kind]
        for name, trouble in sorted(found.items()):
            yield Finding(
                what=f"{kind} {name}",
                found=_GOOD[kind] if trouble is None else trouble.reason,
                needed="" if trouble is None else needed,
                remedy="" if trouble is None else trouble.remedy(remedy),
                severity=Severity.GOOD if trouble is None else _without(kind, trouble),
            )


def check_webhook(subject: DoctorSubject, facts: Facts) -> Iterator[Finding]:
    """Check that the webhook's function gets the address to which it posts."""
    if not subject.webhook:
        return
    trouble = facts.webhook if isinstance(facts.webhook, Unknown) else None
    yield Finding(
        what=f"webhook {subject.webhook}",
        found=_found_of_webhook(subject, facts) if trouble is None else trouble.reason,
        needed=""
        if trouble is None
        else "a secret at home that the function of the webhook can read, with an address that "
        "begins with https:// and takes texts: else it tells nobody",
        remedy=""
        if trouble is None
        else trouble.remedy(
            "fix `alarm_webhook`, or make the secret, encrypted by AWS's key or by `kms_key_arn`; "
            "then spindown deploy"
        ),
        severity=Severity.GOOD if trouble is None else Severity.WARNING,
    )


def _found_of_webhook(subject: DoctorSubject, facts: Facts) -> str:
    if not subject.is_deployed:
        return "there; whether it holds an address is seen once it is deployed"
    found = "its function reads an https:// address there"
    if facts.webhook is True:
        return f"{found}, and no text has failed in the last hour"
    return f"{found}; its alarm is missing or has no data, so whether texts fail is not known"


def check_sources(subject: DoctorSubject, facts: Facts) -> Iterator[Finding]:
    """Check that the buckets of sources tell of new objects, which no deploy can make them do."""
    for bucket, sends in sorted(facts.sources.items()):
        if bucket == subject.bucket:
            yield Finding(
                what=f"source s3://{bucket}",
                found="it is the deployment's own bucket",
                needed="another: results of jobs that lie below the prefix are new jobs, without "
                "end",
                remedy="name a bucket of your own in [[workload.NAME.sources]]",
                severity=Severity.WARNING,
            )
        is_good = sends is True
        found = "its events reach EventBridge" if is_good else "it sends no event to EventBridge"
        yield Finding(
            what=f"source s3://{bucket}",
            found=sends.reason if isinstance(sends, Unknown) else found,
            needed="" if is_good else "EventBridge on for the bucket, or no new object is a job",
            remedy=""
            if is_good
            else f"turn it on, beside what is set already (`spindown docs sources`): aws s3api "
            f"get-bucket-notification-configuration --bucket {bucket}, then "
            "put-bucket-notification-configuration with EventBridgeConfiguration = {}",
            severity=Severity.GOOD if is_good else Severity.WARNING,
        )


_GOOD = {"input": "readable", "secret": "there", "key": "enabled"}


def _without(kind: str, trouble: Unknown) -> Severity:
    """Return how bad it is. A worker without its secret ends itself before its first job."""
    is_fatal = kind == "secret" and trouble.is_missing
    return Severity.BLOCKED if is_fatal else Severity.WARNING
