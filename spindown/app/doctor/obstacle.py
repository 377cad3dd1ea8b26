"""What holds launches back that could work: an open breaker, or a budget that is used up."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from spindown.app.doctor.fact import Facts, Unknown
from spindown.app.doctor.finding import Finding, Severity
from spindown.app.doctor.market import OfferChoice
from spindown.app.doctor.subject import DoctorSubject
from spindown.contract.codec import encode_instant
from spindown.contract.row import (
    DEPLOYMENT_PARTITION,
    BreakerRow,
    BudgetRow,
    breaker_sort,
    budget_sort,
    workload_partition,
)
from spindown.wording import say


def check_obstacles(
    subject: DoctorSubject, facts: Facts, choices: Sequence[OfferChoice]
) -> Iterator[Finding]:
    """Judge what the ledger says of them; before a deploy there is none."""
    if facts.obstacles is None:
        return
    if isinstance(facts.obstacles, Unknown):
        yield Finding(
            what=f"ledger {subject.table}",
            found=facts.obstacles.reason,
            needed="to see whether launching is stopped",
            remedy=f"grant dynamodb:Query and dynamodb:GetItem on table {subject.table}",
            severity=Severity.WARNING,
        )
        return
    for (workload, region), breaker in sorted(facts.obstacles.breakers.items()):
        yield _open(subject, workload, region, breaker, facts.at)
    if not facts.obstacles.breakers:
        yield Finding(what="breakers", found="closed")
    committed = facts.obstacles.committed
    if committed is None:
        yield _damaged(subject, facts.obstacles.month, facts.at)
    elif subject.budget_usd is not None:
        yield _check_budget(subject.budget_usd, committed, choices)


def _open(
    subject: DoctorSubject, workload: str, region: str, breaker: BreakerRow, at: datetime
) -> Finding:
    until = "" if breaker.open_until is None else f"{breaker.open_until:%H:%M} UTC"
    return Finding(
        what=f"breaker of {workload} in {region or subject.region}",
        found=f"open until {until}: {say(breaker.reason)}",
        needed="closed: a deploy of another image, other code or other subnets closes it",
        remedy="what is outside the deployment once fixed, one launch is tried at once after: "
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
        found=f"its row {budget_sort(at)} in table {subject.table} cannot be read",
        needed="numbers: no launch can be set aside from it, so none is made",
        remedy="put in what days and launches of the month add up to: "
        + _update(
            subject,
            DEPLOYMENT_PARTITION,
            budget_sort(at),
            change="dollars = :spent, committed = :committed",
            values=values,
        ),
        severity=Severity.BLOCKED,
    )


def command_to_try(subject: DoctorSubject, workload: str, region: str, at: datetime) -> str:
    """Return the command that ends the wait of a breaker; what it has counted stays.

    Args:
        subject: the deployment.
        workload: whose breaker.
        region: which of its breakers; "": the one at home.
        at: until when it is to have been open.
    """
    values = {":now": {"S": encode_instant(at)}}
    sort = breaker_sort(region)
    return _update(
        subject, workload_partition(workload), sort, change="open_until = :now", values=values
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


def _check_budget(budget: float, committed: float, choices: Sequence[OfferChoice]) -> Finding:
    """Judge whether the month has room for the cheapest launch that there is."""
    costs = [each.expected_dollars for choice in choices for each in choice.candidates.candidates]
    left = budget - committed
    has_room = left > 0 and left >= min(costs, default=0.0)
    return Finding(
        what="budget of the month",
        found=f"{committed:.2f} of {budget:g} USD spent or set aside",
        needed="" if has_room else "room for another launch, which waits for the next month else",
        remedy="" if has_room else "raise budget_per_month in [deployment], then cdk deploy --all",
        severity=Severity.GOOD if has_room else Severity.WARNING,
    )
