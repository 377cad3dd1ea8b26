"""Which alerts a tick finds: what is wrong that no other tick will fix by itself.

CloudWatch's own alarms watch what must be heard even when this code is silent: the tick, the
queues, money (``infra.observability.alarm``). This code tells what only it can explain, with EC2's
words in the text; for how long that must last before a person is told is in ``domain.alert``.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from spindown.contract.decision import (
    Decision,
    LaunchRequestRecord,
    Outcome,
    RefusalRecord,
    RequestOutcome,
)
from spindown.contract.name import resource_name
from spindown.contract.row import BreakerRow, QuotaRow
from spindown.control.alert.deadline import find_deadlines
from spindown.control.plan.action import ActionKind
from spindown.domain.alert import SAID_AGAIN_AFTER, Alert
from spindown.domain.offer import QUOTA_CODES
from spindown.domain.past_cost import CostWindow
from spindown.domain.policy import Policy
from spindown.domain.reason import ReasonCode
from spindown.reason_text import say, say_count, say_outcome

#: Alerts that every tick can raise or end; the others need a tick that launches.
_SEEN_BY_EACH = frozenset(
    {
        "policy-invalid",
        "bad-rows",
        "terminations-held-back",
        "unended",
        "item-cost",
        "idle-share",
        "dollars-without-items",
        "failed-jobs",
        "late",
        "breaker",
        "deadline-missed",
        "deadline-at-risk",
        "newer-messages",
        "rows-flooded",
        "queue-missing",
    }
)
#: Alerts that end when a launch succeeds, and those that also end when nothing is missing.
_ENDED_BY_LAUNCH = frozenset({"no-offer", "capacity", "account", "unknown-refusal", "quota"})
_ENDED_BY_ENOUGH = frozenset({"no-offer", "capacity"})

#: A day that costs less, USD, is too cheap for a share of it to mean anything.
_DOLLARS_WORTH_A_SHARE = 1.0
_ACCOUNT, _UNKNOWN = "account", "unknown"
_A_WHILE = timedelta(minutes=15)
#: A person is told once every tick has tried for so long to end something.
_UNENDED_FOR = timedelta(minutes=8)
#: SQS may not know a queue for some seconds after it was made.
_NO_LAG = timedelta(minutes=3)
#: A claim is seen a tick later, and a launch is asked for within ``start_within``.
_TICKS_OF_GRACE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertInput:
    """What a tick saw, as far as people may have to fix it."""

    deployment: str
    decision: Decision
    policy: Policy
    breaker: BreakerRow
    #: The region in which it is open, if others go on; "": it is open in all.
    open_in: str
    #: Those that the workload has met; None: not looked at.
    quotas: Sequence[QuotaRow] | None
    held_back: bool
    #: Instances that were to be ended some minutes ago, the longest first, and still run.
    unended: Sequence[str] = ()
    #: Whether EC2 has said in this tick what runs: instances without a row are seen only then.
    is_described: bool = True
    #: What the last day has cost.
    last_day: CostWindow
    #: Items that were done today and yesterday.
    items_of_two_days: float = 0.0
    #: What has failed today of jobs that belong to no batch, if people are told of such.
    failed_alone: float = 0.0

    @property
    def now(self) -> datetime:
        """Return the time of the tick."""
        return self.decision.at

    @property
    def may_wait(self) -> bool:
        """Tell whether all that waits has time until its deadline to wait for spot."""
        waiting = [each for each in self.decision.deadlines if not each.on]
        return bool(waiting) and all(each.waits_until is not None for each in waiting)

    @property
    def workload(self) -> str:
        """Return the workload of the tick."""
        return self.decision.workload


def over(given: AlertInput) -> frozenset[str]:
    """Return the names of the alerts that are over, unless ``find`` finds them in this tick."""
    seen = _SEEN_BY_EACH if given.is_described else _SEEN_BY_EACH - {"unended"}
    match given.decision.outcome:
        case Outcome.LAUNCHED:
            return seen | _ENDED_BY_LAUNCH
        case Outcome.IDLE | Outcome.ENOUGH:
            return seen | _ENDED_BY_ENOUGH
        case _:
            return seen


def find(given: AlertInput) -> Iterator[Alert]:
    """Yield what is wrong, the gravest first; what another one explains is left out."""
    breaker = [*_breaker(given)]
    why = [*_refusals(given), *_quotas(given)]
    yield from (*breaker, *why)
    if not why and (given.open_in or not breaker):
        yield from _waiting(given)
    yield from find_deadlines(given.decision.deadlines, given.workload, given.now)
    yield from _costs(given)
    yield from _failed_alone(given)
    yield from _control(given)


def _costs(given: AlertInput) -> Iterator[Alert]:
    """Yield what costs more than a person has allowed, whatever it cost before."""
    policy, day, workload = given.policy, given.last_day, given.workload
    most = policy.alarm_max_cost_per_item
    if most is not None and day.items > 0 and day.dollars > most * day.items:
        yield Alert(
            name="item-cost",
            says=f"An item of {workload} has cost {day.dollars / day.items:.3g} USD over the last "
            f"day, more than {most:g} USD (`alarm_max_cost_per_item`).",
            remedy=f"run `spindown advise {workload}`, which says what would cost less.",
            for_=_A_WHILE,
            rest=SAID_AGAIN_AFTER,
        )
    share = policy.alarm_max_idle_share
    is_warm = policy.warm_workers > 0 or bool(policy.warm_schedule)
    is_worth_it = day.dollars >= _DOLLARS_WORTH_A_SHARE
    if share is not None and not is_warm and is_worth_it:
        idle = day.idle_seconds / day.paid_seconds if day.paid_seconds > 0 else 0.0
        if idle > share:
            yield Alert(
                name="idle-share",
                says=f"Workers of {workload} were idle for {idle:.0%} of the time that was paid "
                f"over the last day, more than {share:.0%} (`alarm_max_idle_share`).",
                remedy='set `idle_timeout` to "auto" or to a shorter time, or raise '
                "`start_within`, so that work gathers.",
                for_=_A_WHILE,
                rest=SAID_AGAIN_AFTER,
            )
    dollars = policy.alarm_max_dollars_without_items
    if dollars is not None and given.items_of_two_days <= 0 and day.dollars >= dollars:
        yield Alert(
            name="dollars-without-items",
            says=f"{workload} has cost {day.dollars:,.2f} USD over the last day, and not one item "
            "was done today or yesterday.",
            remedy=f"read the log /spindown/{given.deployment}/worker/{workload}. Raise "
            "`alarm_max_dollars_without_items` if one item takes so long.",
            rest=SAID_AGAIN_AFTER,
        )


def _failed_alone(given: AlertInput) -> Iterator[Alert]:
    """Yield that jobs have failed of which no end of a batch tells."""
    if given.failed_alone > 0:
        yield Alert(
            name="failed-jobs",
            says=f"{say_count(round(given.failed_alone), 'failure')} (items, or jobs given up) of "
            f"{given.workload} today (UTC), in jobs that belong to no batch, as those of a source "
            "do. Further ones of this day are not told.",
            remedy=f"run `spindown batches {given.workload} --sources`, which lists jobs of "
            f"sources, and `spindown redrive {given.workload} --list`, which lists all that were "
            "given up; of each, `spindown logs` and `spindown results` show why.",
        )


def _breaker(given: AlertInput) -> Iterator[Alert]:
    breaker = given.breaker
    is_ours = breaker.silent or breaker.unclaimed or breaker.failed
    if is_ours and breaker.open_until is not None and breaker.open_until > given.now:
        where = f" in {given.open_in}" if given.open_in else ""
        why = _sentence(say(breaker.reason))
        yield Alert(
            name="breaker",
            says=f"Launching for {given.workload}{where} is stopped: {why}",
            remedy=f"read the log /spindown/{given.deployment}/worker/{given.workload} and "
            f"{_remedy_of_breaker(breaker)}, and deploy: another image or other code closes the "
            f"breaker, else one launch is tried at {breaker.open_until:%H:%M} UTC, or at once "
            "after the command that `spindown doctor` prints.",
        )


def _remedy_of_breaker(breaker: BreakerRow) -> str:
    if breaker.failed > max(breaker.silent, breaker.unclaimed):
        return "`spindown logs` of a job that failed, fix the code or take such jobs out"
    return (
        "the console output of that instance, fix the image or `requirements` (if it was still "
        "installing: raise `scale_up_timeout` or bake its image)"
    )


def _refusals(given: AlertInput) -> Iterator[Alert]:
    requests = given.decision.requests
    account = _words(requests, _ACCOUNT)
    if account and given.breaker.reason.code is not ReasonCode.ACCOUNT_REFUSED:
        yield Alert(
            name="types-refused",
            says=f"EC2 refuses {_listed(_types_refused(requests))} to {given.workload}, and other "
            f"offers are tried: {account}",
            remedy="see what forbids them: a policy of the organisation, a region or a type that "
            "the account has not opted in to, an image that does not suit them; or leave them "
            "out by `gpu_names` or `instance_types`. Each pool is asked again after 30 minutes to "
            "2 hours.",
            rest=SAID_AGAIN_AFTER,
        )
    elif account:
        yield Alert(
            name="account",
            says=f"EC2 refuses every launch of {given.workload} because of the account or the "
            f"configuration: {account}",
            remedy="run `spindown doctor`, which names what is missing and the command that fixes "
            "it. It is tried again every 15 minutes, or at once after the command that it prints "
            "for the breaker.",
        )
    unknown = _words(requests, _UNKNOWN)
    if unknown:
        yield Alert(
            name="unknown-refusal",
            says=f"EC2 refuses launches of {given.workload} with a code that Spindown does not "
            f"know and treats as a lack of capacity: {unknown}",
            remedy="look the code up, and report it.",
            rest=SAID_AGAIN_AFTER,
        )
    if (
        requests
        and not given.may_wait
        and all(request.outcome is RequestOutcome.CAPACITY for request in requests)
    ):
        pools = sorted({pool for request in requests for pool in request.pools})
        yield Alert(
            name="capacity",
            says=f"EC2 has had no capacity for {given.workload} in half an hour, lately in "
            f"{_listed(pools)}.",
            remedy="add `zones` or `gpu_names`, or let an earlier rung of the `ladder` take "
            "on-demand.",
            for_=2 * _A_WHILE,
            rest=SAID_AGAIN_AFTER,
        )


def _quotas(given: AlertInput) -> Iterator[Alert]:
    full = sorted(
        (quota for quota in given.quotas or () if quota.until > given.now),
        key=lambda quota: quota.quota_class,
    )
    if not full:
        return
    region, _, name = full[0].quota_class.partition("/")
    code = QUOTA_CODES.get(name)
    # EC2's own code of the refusal is none of a quota.
    ask = (
        f"ask for more: aws service-quotas request-service-quota-increase --service-code ec2 "
        f"--region {region} --quota-code {code} --desired-value VCPUS (`spindown doctor` prints "
        "the number)."
        if code
        else "run `spindown doctor`, which finds the quota's code and prints the command that "
        "asks for more."
    )
    yield Alert(
        name="quota",
        says=f"The vCPU quota of EC2 is full for {given.workload}: "
        f"{_listed([_quota_name(quota) for quota in full])}. "
        f"{_sentence(_said_of_quota(full[0], given.decision))}",
        remedy=f"{ask} Or widen `gpu_names` to another class.",
        rest=SAID_AGAIN_AFTER,
    )


def _said_of_quota(quota: QuotaRow, decision: Decision) -> str:
    """Return EC2's words on a full quota; where it was not asked, how much is left."""
    short = (
        say(note)
        for note in decision.notes
        if note.code is ReasonCode.NO_QUOTA_LEFT
        and note.about.get("quota_class") == quota.quota_class
    )
    return quota.message or next(short, quota.code)


def _quota_name(quota: QuotaRow) -> str:
    """Return region, code if it is known, and class, as ``us-east-1 L-3819A6DF (G/Spot)``."""
    region, _, name = quota.quota_class.partition("/")
    code = QUOTA_CODES.get(name)
    return f"{region} {code} ({name})" if code else f"{region} {name}"


def _waiting(given: AlertInput) -> Iterator[Alert]:
    decision, policy = given.decision, given.policy
    if decision.outcome is Outcome.NOTHING_FITS:
        yield Alert(
            name="no-offer",
            says=f"Work of {given.workload} waits and no offer may be taken at any time"
            f"{_because(decision)}",
            remedy="raise `max_price_per_hour`, lower `min_reliability`, or widen `gpu_names`, "
            "`gpu_memory_gib_min` or `zones`; `spindown why` lists what rules each offer out.",
            for_=_A_WHILE,
        )
        return
    since = decision.backlog_since
    waited = given.now - since if since is not None else timedelta(0)
    if not given.may_wait and waited > policy.start_within + _TICKS_OF_GRACE * policy.tick:
        yield Alert(
            name="late",
            says=f"Work of {given.workload} has waited for {_span(waited)}, longer than the "
            f"promised {_span(policy.start_within)}, and nobody takes it: "
            f"{_sentence(say_outcome(decision.outcome, decision.summary))}",
            remedy=_remedy_of_late(decision.outcome),
        )


def _remedy_of_late(outcome: Outcome) -> str:
    match outcome:
        case Outcome.ENOUGH | Outcome.LAUNCHED | Outcome.IDLE:
            return (
                "nothing, if a machine boots: `spindown status` shows since when. A `start_within` "
                "that is shorter than a boot is kept by `warm_workers` alone; a baked image boots "
                "sooner. If machines run and take nothing, read `spindown logs` of one."
            )
        case Outcome.BLOCKED:
            return "run `spindown why`: it says what blocks the launch. Raise that limit."
        case Outcome.HELD:
            return "run `spindown why`: it says until when the launch is held, and for what."
        case _:
            return (
                "run `spindown why`: it names the nearest offer and what rules it out. Raise "
                "`max_price_per_hour`, widen the `ladder` or `zones`, or allow a longer "
                "`start_within`."
            )


#: What a baked image is given up for. That one is stale or old is the usual course.
_IMAGE_FAULTS = frozenset(
    {ReasonCode.IMAGE_BUILD_FAILED, ReasonCode.IMAGE_REFUSED, ReasonCode.IMAGE_SILENT}
)


def _control(given: AlertInput) -> Iterator[Alert]:
    decision, workload = given.decision, given.workload
    if decision.policy_refusal:
        yield Alert(
            name="policy-invalid",
            says=f"The live policy of {workload} is refused, and the last good one stays in "
            f"force: {_sentence(decision.policy_refusal)}",
            remedy=f"run `spindown policy set {workload}` with a value that is valid, or "
            f"`spindown policy reset {workload}` to give keys back.",
            for_=timedelta(minutes=3),
        )
    if given.held_back:
        yield Alert(
            name="terminations-held-back",
            says=f"Most workers of {workload} look dead at once, which is more likely a fault of "
            "the ledger or the network than theirs; they are left alone and go on billing.",
            remedy="see whether workers can reach DynamoDB. If they are dead, terminate them "
            "in EC2: their jobs come back by themselves.",
            for_=_A_WHILE,
        )
    for note in decision.notes:
        if note.code is ReasonCode.QUEUE_MISSING:
            yield Alert(
                name="queue-missing",
                says=f"No work of {workload} can come or be taken: {_sentence(say(note))}",
                remedy=f"run `spindown drain {workload} --now`, which ends what runs, then "
                "`spindown deploy --revert-drift`, which makes the queue again, and `spindown "
                f"redrive {workload} --lost`.",
                for_=_NO_LAG,
            )
        if note.code is ReasonCode.ROWS_FLOODED:
            yield Alert(
                name="rows-flooded",
                says=f"The ledger's rows of {workload} are flooded: {_sentence(say(note))}",
                remedy=f"a worker writes what no worker of ours does: run `spindown drain "
                f"{workload} --now`, which ends its machines at once, and look at what its code "
                "runs.",
            )
        if note.code in _IMAGE_FAULTS:
            yield Alert(
                name="image",
                says=f"Instances of {workload} cannot start from a baked image: "
                f"{_sentence(say(note))}",
                remedy="nothing has to be done: they install at their start, and another image is "
                "baked after a day or more. If that fails too, read the log of Image Builder, "
                f"/aws/imagebuilder/{given.deployment}--{workload}.",
                rest=SAID_AGAIN_AFTER,
            )
        if note.code is ReasonCode.NEWER_MESSAGES:
            yield Alert(
                name="newer-messages",
                says=f"Messages of {workload} cannot be read by what is deployed: "
                f"{_sentence(say(note))}",
                remedy="deploy the version that wrote them: the next tick shows them to its "
                "workers. After 2 days they are dead letters, which `spindown redrive` of that "
                "version sends back.",
            )
    if given.unended:
        yield Alert(
            name="unended",
            says=f"EC2 does not end what {workload} no longer needs, and bills it: "
            f"{_listed(given.unended)}.{_why_unended(decision)}",
            remedy="terminate it in the console of EC2. If that is refused, turn off its "
            "termination protection, or let the role of the scaler end instances again. Each tick "
            "tries it anew.",
            for_=_UNENDED_FOR,
        )
    if decision.bad_rows:
        yield Alert(
            name="bad-rows",
            says=f"Rows of {workload} in the ledger cannot be read and are passed over: "
            f"{_listed(decision.bad_rows)}.",
            remedy=f"delete or fix them in the table {resource_name(given.deployment, 'ledger')}.",
            for_=_A_WHILE,
        )


def _why_unended(decision: Decision) -> str:
    """Return why a call to end instances failed in this tick; "" if EC2 took it."""
    said = [note for note in decision.notes if note.about.get("asked") == ActionKind.TERMINATE]
    return f" {_sentence(say(said[0]))}" if said else ""


def _because(decision: Decision) -> str:
    nearest = [note for note in decision.notes if note.code is ReasonCode.NEAREST_OFFER]
    return f"; {_sentence(say(nearest[0]))}" if nearest else "."


def _words(requests: Sequence[LaunchRequestRecord], kind: str) -> str:
    """Return EC2's words on the first refusal of a kind; "" without one."""
    refusals = [r for request in requests for r in request.refusals if r.kind == kind]
    return _sentence(_said(refusals[0])) if refusals else ""


def _types_refused(requests: Sequence[LaunchRequestRecord]) -> Sequence[str]:
    """Return the instance types that the account may not have."""
    refusals = [r for request in requests for r in request.refusals if r.kind == _ACCOUNT]
    return sorted({r.pool.partition("/")[0] for r in refusals if r.pool}) or ["some launches"]


def _said(refusal: RefusalRecord) -> str:
    return f"{refusal.code}: {refusal.message}" if refusal.message else refusal.code


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


_SHOWN = 4


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


#: Beyond this minutes say enough.
_SECONDS_UP_TO = timedelta(minutes=2)


def _span(length: timedelta) -> str:
    if length < _SECONDS_UP_TO:
        return f"{length.total_seconds():.0f} seconds"
    return f"{length.total_seconds() / 60:.0f} minutes"
