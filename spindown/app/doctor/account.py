"""The account itself: who asks, what AWS lets it do, and what it must have once."""

from collections.abc import Iterator

from spindown.app.doctor.fact import Facts, Unknown
from spindown.app.doctor.finding import Finding, Severity
from spindown.app.doctor.subject import DoctorSubject
from spindown.app.port import AccountPlan
from spindown.contract.image import DISK_KEY
from spindown.domain.offer import CapacityType

#: Concurrent executions of Lambda (Service Quotas, service code lambda).
CONCURRENCY_CODE = "L-B99A9384"
#: What a new account is raised to without questions.
_CONCURRENCY_ASKED = 1000


def check_caller(facts: Facts) -> Finding:
    """Judge the credentials, on which all else depends."""
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
    """Judge what belongs to the account as a whole."""
    yield from _check_deployment(subject, facts)
    yield from _check_outposts(subject)
    yield _check_plan(facts)
    if any(_may_be_spot(subject)):
        yield _check_spot_role(facts)
    yield from _check_disk_keys(facts)
    yield _check_concurrency(subject, facts)


def _check_outposts(subject: DoctorSubject) -> Iterator[Finding]:
    """Judge whether each further region can be used; without it the others go on."""
    troubles: dict[str, list[str]] = {}
    for case in subject.cases:
        for region, why in case.unread.items():
            troubles.setdefault(region, []).append(f"{case.name}: {why}")
    for region, words in sorted(troubles.items()):
        yield Finding(
            what=f"outpost in {region}",
            found="; ".join(words),
            needed=f"stack {subject.deployment}-outpost-{region}, and the right to read it",
            remedy=f"cdk bootstrap, once for {region}, then cdk deploy --all",
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
            remedy="" if is_whole else "cdk deploy --all",
            severity=Severity.GOOD if is_whole else Severity.WARNING,
        )
        return
    if subject.unread:
        yield Finding(
            what=what,
            found=subject.unread,
            needed="its settings in SSM",
            remedy="grant ssm:GetParameter and ssm:GetParameters on /spindown/*",
            severity=Severity.WARNING,
        )
        return
    yield Finding(what=what, found="not deployed yet", remedy="cdk deploy --all")
    for region, found in sorted(facts.bootstraps.items()):
        if isinstance(found, Unknown):
            yield Finding(
                what=f"CDK in {region}",
                found="not bootstrapped" if found.is_missing else found.reason,
                needed="once, before the first deploy",
                remedy=f"cdk bootstrap aws://{_account(facts)}/{region}",
                severity=Severity.WARNING,
            )


def _check_plan(facts: Facts) -> Finding:
    what = "account plan"
    if isinstance(facts.plan, Unknown):
        return Finding(
            what=what,
            found=facts.plan.reason,
            needed="any but the free plan",
            remedy="see Billing and Cost Management, or grant freetier:GetAccountPlanState",
            severity=Severity.WARNING,
        )
    if facts.plan is AccountPlan.FREE:
        return Finding(
            what=what,
            found="free",
            needed="paid: a free plan can launch no GPU type, whatever its quotas",
            remedy="aws freetier upgrade-account-plan --account-plan-type PAID --region us-east-1",
            severity=Severity.BLOCKED,
        )
    return Finding(what=what, found=facts.plan or "none, which means paid")


def _check_spot_role(facts: Facts) -> Finding:
    what = "role AWSServiceRoleForEC2Spot"
    if facts.has_spot_role is True:
        return Finding(what=what, found="there")
    is_known = facts.has_spot_role is False
    # The scaler may make it, so its absence alone stops no launch.
    return Finding(
        what=what,
        found="missing" if is_known else _reason(facts.has_spot_role),
        needed="before the first spot request, which otherwise must make it",
        remedy="aws iam create-service-linked-role --aws-service-name spot.amazonaws.com",
        severity=Severity.WARNING,
    )


def _check_disk_keys(facts: Facts) -> Iterator[Finding]:
    """Judge the key that disks are encrypted with, without which instances end at their launch."""
    for region, trouble in sorted(facts.disk_keys.items()):
        what = f"key {DISK_KEY} in {region}"
        if trouble is None:
            yield Finding(what=what, found="there")
            continue
        yield Finding(
            what=what,
            found="missing" if trouble.is_missing else trouble.reason,
            needed="before the first launch there",
            remedy=f"aws kms describe-key --key-id {DISK_KEY} --region {region}, which makes it",
            severity=Severity.WARNING,
        )


def _check_concurrency(subject: DoctorSubject, facts: Facts) -> Finding:
    # One tick for each workload at the same minute, an interruption, the catalogue of offers.
    needed = len(subject.cases) + 2
    found = facts.concurrency
    is_enough = not isinstance(found, Unknown) and found >= needed
    ask_for = max(_CONCURRENCY_ASKED, needed)
    return Finding(
        what=f"Lambda concurrency in {subject.region} ({CONCURRENCY_CODE})",
        found=_reason(found) if isinstance(found, Unknown) else f"{found} executions",
        needed=f"{needed}, besides what else the account runs",
        remedy=""
        if is_enough
        else request_quota("lambda", CONCURRENCY_CODE, ask_for, subject.region),
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
