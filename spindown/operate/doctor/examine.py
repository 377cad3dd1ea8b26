"""Examine a deployment: gather facts, try a launch as a dry run, check everything."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256

from spindown.contract import tag
from spindown.domain.offer import Offer
from spindown.operate.doctor.check import (
    OfferChoice,
    check_account,
    check_budget,
    check_caller,
    check_dry_runs,
    check_images,
    check_jobs,
    check_market,
    check_obstacles,
    check_reading,
    check_subnets,
    choose,
)
from spindown.operate.doctor.fact import Facts, Unknown, ask, gather
from spindown.operate.doctor.finding import Finding, Report
from spindown.operate.doctor.network import check_ways
from spindown.operate.doctor.subject import DoctorSubject
from spindown.port import Account, Clock, LaunchOverride, LaunchRequest, Market, Refusal, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorPorts:
    """What an examination reads; it changes nothing."""

    account: Account
    market: Market
    clock: Clock
    #: The deployment's ledger; None: nothing is deployed.
    table: Table | None = None
    #: Return how many jobs of a workload have no message, at least; None: nothing is deployed.
    count_lost: Callable[[str], int] | None = None


def examine(subject: DoctorSubject, ports: DoctorPorts) -> Report:
    """Return a finding for each thing that a launch depends on."""
    facts = gather(
        subject,
        account=ports.account,
        market=ports.market,
        clock=ports.clock,
        table=ports.table,
        count_lost=ports.count_lost,
    )
    if isinstance(facts.caller, Unknown):
        return Report(findings=(check_caller(facts),))
    choices = choose(subject, facts)
    dry_runs = _dry_run(subject, choices, ports.account)
    return Report(findings=tuple(_judge(subject, facts, choices, dry_runs)))


def _judge(
    subject: DoctorSubject,
    facts: Facts,
    choices: tuple[OfferChoice, ...],
    dry_runs: Mapping[tuple[str, str], Refusal | Unknown | None],
) -> Iterator[Finding]:
    yield check_caller(facts)
    yield from check_account(subject, facts)
    yield from check_market(subject, facts, choices)
    yield from check_budget(subject, choices)
    yield from check_obstacles(subject, facts, choices)
    yield from check_jobs(facts)
    yield from check_images(subject, facts)
    yield from check_subnets(subject, facts)
    yield from check_ways(subject, facts)
    yield from check_reading(facts)
    yield from check_dry_runs(dry_runs)


def _dry_run(
    subject: DoctorSubject, choices: tuple[OfferChoice, ...], account: Account
) -> Mapping[tuple[str, str], Refusal | Unknown | None]:
    """Have EC2 check the best launch of each workload and region that has a template."""
    answers: dict[tuple[str, str], Refusal | Unknown | None] = {}
    for choice in choices:
        best: dict[str, Offer] = {}
        for offer in choice.fitting:
            best.setdefault(offer.region, offer)
        for offer in best.values():
            if choice.case.places[offer.region].templates:
                request = _request(subject, choice, offer)
                answers[choice.case.name, str(offer)] = ask(partial(account.dry_run, request))
    return answers


def _request(subject: DoctorSubject, choice: OfferChoice, offer: Offer) -> LaunchRequest:
    case, place = choice.case, choice.case.places[offer.region]
    template = place.template(offer.instance_type.architecture, offer.capacity_type)
    named = f"{subject.deployment}/{case.name}/{template.id}/{template.version}/{offer}"
    return LaunchRequest(
        client_token=f"doctor-{sha256(named.encode()).hexdigest()[:32]}",
        region=offer.region,
        template=template,
        capacity_type=offer.capacity_type,
        overrides=(
            LaunchOverride(
                instance_type=offer.instance_type.name,
                zone=offer.zone,
                subnet_id=place.subnets[offer.zone],
            ),
        ),
        count=1,
        tags={**subject.tags, tag.DEPLOYMENT: subject.deployment, tag.WORKLOAD: case.name},
    )
