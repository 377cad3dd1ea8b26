"""Examine a deployment: gather facts, have launches rehearsed, check everything."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from spindown.operate.doctor.check import (
    OfferChoice,
    check_account,
    check_boots,
    check_budget,
    check_caller,
    check_images,
    check_jobs,
    check_market,
    check_obstacles,
    check_reading,
    check_sources,
    check_subnets,
    check_webhook,
    choose,
)
from spindown.operate.doctor.fact import Facts, gather
from spindown.operate.doctor.finding import Finding, Report
from spindown.operate.doctor.monitoring import check_monitoring, read_monitoring
from spindown.operate.doctor.network import check_networks, check_ports, check_ways
from spindown.operate.doctor.rehearsal import (
    Rehearser,
    check_rehearsals,
    leave_out,
    rehearse_all,
)
from spindown.operate.doctor.subject import DoctorSubject
from spindown.operate.doctor.unknown import Unknown, ask
from spindown.port import Account, Clock, Market, Table


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
    #: Has the scaler rehearse launches; None: nothing is deployed.
    rehearse: Rehearser | None = None
    #: Has the function of the webhook read its secret, and tells whether its alarm knows that no
    #: text has failed; None: nothing is deployed.
    try_webhook: Callable[[], bool] | None = None
    #: Read the dashboard of the deployment's name, which belongs to no region (raises NotFound).
    find_dashboard: Callable[[], object] | None = None
    #: Hears what is read next, since it takes a while.
    tell: Callable[[str], None] = lambda _: None


def examine(subject: DoctorSubject, ports: DoctorPorts) -> Report:
    """Return a finding for each thing that a launch depends on."""
    return Report(findings=tuple(find(subject, ports)))


def find(subject: DoctorSubject, ports: DoctorPorts) -> Iterator[Finding]:
    """Yield a finding for each thing that a launch depends on, as soon as it is known.

    The findings on what can be bought come last: they go by what EC2 says of rehearsed launches.
    """
    ports.tell("asking who the caller is")
    begun = Facts(at=ports.clock.now(), caller=ask(ports.account.caller))
    yield check_caller(begun)
    if isinstance(begun.caller, Unknown):
        return
    facts = gather(
        subject,
        begun,
        account=ports.account,
        market=ports.market,
        table=ports.table,
        count_lost=ports.count_lost,
        try_webhook=ports.try_webhook,
        tell=ports.tell,
    )
    if ports.find_dashboard is not None and not subject.is_deployed:
        is_there = not isinstance(ask(ports.find_dashboard), Unknown)
        facts = replace(facts, has_namesake=is_there)
    yield from _judge(subject, facts)
    if subject.is_deployed and subject.is_on_aws:
        ports.tell("asking for schedules, alarms and whom they tell")
        yield from check_monitoring(subject, read_monitoring(subject, ports.account), facts.at)
    choices = choose(subject, facts)
    if ports.rehearse is not None:
        ports.tell("letting EC2 check launches without making them")
    rehearsed = rehearse_all(choices, ports.rehearse)
    usable = leave_out(choices, rehearsed)
    yield from _judge_offers(subject, facts, usable)
    yield from check_rehearsals(rehearsed)


def _judge(subject: DoctorSubject, facts: Facts) -> Iterator[Finding]:
    yield from check_account(subject, facts)
    yield from check_jobs(facts)
    yield from check_images(subject, facts)
    yield from check_subnets(subject, facts)
    yield from check_networks(subject, facts)
    yield from check_ways(subject, facts)
    yield from check_ports(subject)
    yield from check_reading(facts)
    yield from check_webhook(subject, facts)
    yield from check_sources(subject, facts)


def _judge_offers(
    subject: DoctorSubject, facts: Facts, choices: tuple[OfferChoice, ...]
) -> Iterator[Finding]:
    yield from check_market(subject, facts, choices)
    yield from check_budget(subject, choices)
    yield from check_obstacles(subject, facts, choices)
    yield from check_boots(facts, choices)
