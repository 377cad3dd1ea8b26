"""Whether what is deployed goes on by itself, and whether people hear of it if it does not.

Ticks come by schedules, and spare ones by rules; what is wrong goes through alarms and a topic to
whoever has subscribed. Somebody may have turned off or removed each of them since the deploy.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from spindown.contract.name import DEPLOYMENT_ALARMS, SEPARATOR, WORKLOAD_ALARMS, resource_name
from spindown.operate.doctor.finding import Finding, Severity, join
from spindown.operate.doctor.subject import DoctorSubject
from spindown.operate.doctor.unknown import Unknown, ask
from spindown.port import Account, AlarmView, Subscriber

_REDEPLOY = "spindown deploy --revert-drift"
#: No alarm lacks data for longer: one that has no value rings, or is well.
_NO_DATA_FOR = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoringFacts:
    """What runs and tells by itself."""

    #: Name of a schedule -> whether it is on.
    schedules: Mapping[str, bool | Unknown]
    #: Name of a rule of spare ticks -> whether it is on.
    spare_ticks: Mapping[str, bool | Unknown]
    alarms: Mapping[str, AlarmView] | Unknown
    #: ARN of a topic -> who has subscribed to it.
    subscribers: Mapping[str, Sequence[Subscriber] | Unknown]


def read_monitoring(subject: DoctorSubject, account: Account) -> MonitoringFacts:
    """Read schedules, alarms and subscriptions of what is deployed."""
    home, name = subject.region, subject.deployment
    return MonitoringFacts(
        schedules={
            one: ask(partial(account.is_scheduled, one, region=home))
            for one in (*_ticks(subject), resource_name(name, "offers"))
        },
        spare_ticks={
            one: ask(partial(account.is_rule_on, one, region=home)) for one in _ticks(subject)
        },
        alarms=ask(partial(account.alarms, f"{name}{SEPARATOR}", region=home)),
        subscribers={topic: ask(partial(account.subscribers, topic)) for topic in _topics(subject)},
    )


def _ticks(subject: DoctorSubject) -> list[str]:
    """Return the names of the schedules of ticks, which are those of the rules of spare ones."""
    deployed = (case.name for case in subject.cases if case.is_deployed)
    return [resource_name(subject.deployment, workload, "tick") for workload in deployed]


def _topics(subject: DoctorSubject) -> list[str]:
    """Return the topics: that of home, and with an address to tell one in each further region."""
    if not subject.topic:
        return []
    away = [region for region in subject.regions if region != subject.region]
    before, _, after = subject.topic.partition(f":{subject.region}:")
    return [subject.topic, *(f"{before}:{one}:{after}" for one in away if subject.email)]


def check_monitoring(
    subject: DoctorSubject, monitoring: MonitoringFacts, at: datetime
) -> Iterator[Finding]:
    """Check that ticks come, that alarms ring, and that somebody hears them."""
    yield from _check_schedules(subject, monitoring)
    yield from _check_spare_ticks(monitoring.spare_ticks)
    yield from _check_alarms(subject, monitoring.alarms, at)
    for topic, found in monitoring.subscribers.items():
        yield _check_subscribers(subject, topic, found)


def _check_schedules(subject: DoctorSubject, monitoring: MonitoringFacts) -> Iterator[Finding]:
    ticks, schedules = _ticks(subject), monitoring.schedules
    for name, is_on in schedules.items():
        if is_on is True:
            continue
        is_lost = is_on is False or is_on.is_missing
        is_spared = monitoring.spare_ticks.get(name) is True
        needed = "on: without it types and prices grow old"
        if name in ticks:
            needed = (
                "on: spare ticks alone run, one in 5 minutes; work waits longer"
                if is_spared
                else "on: without it nothing is launched for long, and nothing is ended"
            )
        yield Finding(
            what=f"schedule {name}",
            found="it is off" if is_on is False else is_on.reason,
            needed=needed,
            remedy="enable it in the console of Amazon EventBridge, Scheduler"
            if is_on is False
            else (_REDEPLOY if is_lost else is_on.remedy("grant scheduler:GetSchedule")),
            severity=Severity.BLOCKED
            if is_lost and name in ticks and not is_spared
            else Severity.WARNING,
        )
    if all(is_on is True for is_on in schedules.values()):
        yield Finding(what="schedules", found=f"{join(schedules)} are on")


def _check_spare_ticks(rules: Mapping[str, bool | Unknown]) -> Iterator[Finding]:
    for name, is_on in rules.items():
        if is_on is True:
            continue
        if is_on is False:
            remedy = "enable it in the console of Amazon EventBridge, Rules"
        elif is_on.is_missing:
            remedy = _REDEPLOY
        else:
            remedy = is_on.remedy("grant events:DescribeRule")
        yield Finding(
            what=f"rule {name}",
            found="it is off" if is_on is False else is_on.reason,
            needed="on: without it nothing ticks should the schedule fail",
            remedy=remedy,
            severity=Severity.WARNING,
        )
    if rules and all(is_on is True for is_on in rules.values()):
        yield Finding(what="spare ticks", found=f"{join(rules)} are on")


def _check_alarms(
    subject: DoctorSubject, alarms: Mapping[str, AlarmView] | Unknown, at: datetime
) -> Iterator[Finding]:
    what = f"alarms in {subject.region}"
    if isinstance(alarms, Unknown):
        yield Finding(
            what=what,
            found=alarms.reason,
            needed="to see whether they ring",
            remedy=alarms.remedy("grant cloudwatch:DescribeAlarms"),
            severity=Severity.WARNING,
        )
        return
    wanted = {
        *(resource_name(subject.deployment, name) for name in DEPLOYMENT_ALARMS),
        *(
            resource_name(subject.deployment, case.name, name)
            for case in subject.cases
            if case.is_deployed
            for name in WORKLOAD_ALARMS
        ),
    }
    silent = sorted(name for name, one in alarms.items() if not one.acts)
    blind = {
        name
        for name, one in alarms.items()
        if one.state == "INSUFFICIENT_DATA" and at - one.since > _NO_DATA_FOR
    }
    faults = (
        (wanted - alarms.keys(), "missing", _REDEPLOY),
        (
            set(silent),
            "turned off",
            f"aws cloudwatch enable-alarm-actions --region {subject.region} --alarm-names "
            + shlex.join(silent),
        ),
        (blind, "without data for more than a day", _REDEPLOY),
    )
    for names, how, remedy in faults:
        if names:
            yield Finding(
                what=what,
                found=f"{how}: {join(names)}",
                needed="else nobody hears what they watch",
                remedy=remedy,
                severity=Severity.WARNING,
            )
    if not any(names for names, _, _ in faults):
        yield Finding(what=what, found=f"{len(alarms)} that act")


def _check_subscribers(
    subject: DoctorSubject, topic: str, found: Sequence[Subscriber] | Unknown
) -> Finding:
    what = f"topic {topic}"
    if isinstance(found, Unknown):
        return Finding(
            what=what,
            found=found.reason,
            needed="somebody who hears of trouble",
            remedy=_REDEPLOY
            if found.is_missing
            else found.remedy("grant sns:ListSubscriptionsByTopic"),
            severity=Severity.WARNING,
        )
    there = [one for one in found if one.is_confirmed]
    pending = [one for one in found if not one.is_confirmed]
    again = (
        f"aws sns subscribe --region {topic.split(':')[3]} --topic-arn {topic} --protocol email "
        f"--notification-endpoint {subject.email}"
    )
    is_told = any(one.endpoint == subject.email for one in there)
    if subject.email and not is_told:
        return Finding(
            what=what,
            found=f"{subject.email} has not confirmed",
            needed="the link in AWS's mail, which is valid for two days; till then it gets nothing",
            remedy=f"open it; for another mail: {again}",
            severity=Severity.WARNING,
        )
    if not there:
        return Finding(
            what=what,
            found="nobody",
            needed="somebody who hears of trouble",
            remedy="set `alarm_email` or `alarm_webhook` in [deployment], then spindown deploy",
            severity=Severity.WARNING,
        )
    waiting = f"; not confirmed: {join(one.endpoint for one in pending)}" if pending else ""
    return Finding(what=what, found=f"{join(one.protocol for one in there)}{waiting}")
