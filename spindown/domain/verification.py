"""Whether a deployment has proven itself: what `spindown verify` has seen, judged check by check.

Times are instants of UTC, money is USD. Nothing here asks anybody.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from spindown.domain.reason import About


class VerifyCheck(StrEnum):
    """What is checked, in the order in which it happens."""

    LAUNCHED = "launched"
    FIRST_ITEM = "first-item"
    INTERRUPTED = "interrupted"
    REQUEUED = "requeued"
    COMPLETED = "completed"
    RESULTS = "results"
    IDLE_END = "idle-end"
    NOTHING_LEFT = "nothing-left"
    ALARMS = "alarms"
    CHARGED = "charged"
    WITHIN_AMOUNT = "within-amount"


#: USD that AWS bills for an interruption by Fault Injection Service: two minutes, which its notice
#: lasts, of one action, each $0.10 (AWS Fault Injection Service pricing).
FAULT_USD = 2 * 0.10


class Interruption(StrEnum):
    """How a machine was taken from its job."""

    #: By AWS Fault Injection Service: with a notice, as EC2 does it.
    FAULT_INJECTION = "fault-injection"
    #: By TerminateInstances: without a notice.
    BY_HAND = "by-hand"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedMachine:
    """One machine of the run: what EC2 said of it, and what the ledger charged."""

    instance_id: str
    #: ``type/zone/capacity type``.
    offer: str
    price_per_hour: float
    #: When EC2 says that it was launched, and when it was first seen to end; None: not yet.
    launched_at: datetime
    checked_in_at: datetime | None = None
    ended_at: datetime | None = None
    charged_usd: float = 0.0
    #: What more it would have cost, had EC2 not taken it back within the hour that is free then.
    refunded_usd: float = 0.0

    @property
    def ran(self) -> timedelta | None:
        """Return how long EC2 says that it ran; None: it runs."""
        return None if self.ended_at is None else self.ended_at - self.launched_at

    @property
    def worth_usd(self) -> float:
        """Return what its time costs at its price, as far as it has ended."""
        hours = (self.ran or timedelta(0)) / timedelta(hours=1)
        return hours * self.price_per_hour


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemCount:
    """What became of the items."""

    #: Sent, and with exactly one right result.
    sent: int
    right: int = 0
    wrong: int = 0
    repeated: int = 0
    failed: int = 0

    @property
    def missing(self) -> int:
        """Return how many have no result at all."""
        return max(self.sent - self.right - self.wrong - self.failed, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRun:
    """All that was seen of one run; a time that is None has not come."""

    sent_at: datetime
    items: ItemCount
    #: When the first item was committed, or a worker's row said that it was done.
    first_item_at: datetime | None = None
    interruption: Interruption | None = None
    interrupted_at: datetime | None = None
    #: When EC2 announced the interruption to us; never, if it was by hand.
    noticed_at: datetime | None = None
    #: When the job went on under another claim.
    resumed_at: datetime | None = None
    completed_at: datetime | None = None
    #: When the last machine had ended.
    emptied_at: datetime | None = None
    machines: tuple[VerifiedMachine, ...] = ()
    #: Interruptions and losses that the manifest of the job counts.
    requeues: int = 0
    messages_left: int = 0
    dead_letters: int = 0
    #: Alarm -> its state at the end; None: they could not be read.
    alarms: Mapping[str, str] | None = None
    max_usd: float
    #: What AWS bills for the experiment, beside the machines.
    fault_usd: float = 0.0
    #: How far apart the looks were.
    every: timedelta
    #: Alarms that may be in alarm: they wake functions, and tell nobody.
    quiet_alarms: frozenset[str] = frozenset()

    @property
    def charged_usd(self) -> float:
        """Return what the ledger has charged for all machines."""
        return sum(one.charged_usd for one in self.machines)

    @property
    def worth_usd(self) -> float:
        """Return what the time that EC2 says they ran costs at their prices."""
        return sum(one.worth_usd for one in self.machines)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one check; None of ``passed``: it could not be judged."""

    check: VerifyCheck
    passed: bool | None
    about: About = field(default_factory=dict)


#: A machine is charged by the minute's tick and for a minute at least; so far apart may the ledger
#: and our looks at EC2 be for each machine, and by this share of all.
_CHARGED_WITHIN = timedelta(minutes=3)
_CHARGED_SHARE = 0.2


def judge_run(run: VerifyRun) -> tuple[CheckResult, ...]:
    """Judge each check of a run by what was seen."""
    dollars = max(run.charged_usd, run.worth_usd) + run.fault_usd
    return (
        _launched(run),
        _timed(VerifyCheck.FIRST_ITEM, run.sent_at, run.first_item_at),
        _interrupted(run),
        _requeued(run),
        _timed(VerifyCheck.COMPLETED, run.sent_at, run.completed_at),
        _results(run),
        _timed(VerifyCheck.IDLE_END, run.completed_at, run.emptied_at),
        _nothing_left(run),
        _alarms(run),
        _charged(run),
        CheckResult(
            check=VerifyCheck.WITHIN_AMOUNT,
            passed=dollars <= run.max_usd,
            about={"dollars": dollars, "at_most": run.max_usd},
        ),
    )


def has_passed(results: tuple[CheckResult, ...]) -> bool:
    """Tell whether no check has failed; what could not be judged fails nothing."""
    return all(one.passed is not False for one in results)


def _launched(run: VerifyRun) -> CheckResult:
    about: dict[str, float] = {"machines": len(run.machines)}
    first = min(run.machines, key=lambda one: one.launched_at, default=None)
    checked_in = None if first is None else first.checked_in_at
    if first is not None:
        about["launch_seconds"] = _seconds(run.sent_at, first.launched_at)
        if checked_in is not None:
            about["boot_seconds"] = _seconds(first.launched_at, checked_in)
    return CheckResult(
        check=VerifyCheck.LAUNCHED, passed=first is not None and checked_in is not None, about=about
    )


def _timed(check: VerifyCheck, begin: datetime | None, end: datetime | None) -> CheckResult:
    if begin is None or end is None:
        return CheckResult(check=check, passed=False)
    return CheckResult(check=check, passed=True, about={"seconds": _seconds(begin, end)})


def _interrupted(run: VerifyRun) -> CheckResult:
    about: dict[str, float | str] = {"how": str(run.interruption or "")}
    if run.interrupted_at is None:
        return CheckResult(check=VerifyCheck.INTERRUPTED, passed=False, about=about)
    is_announced = run.interruption is Interruption.FAULT_INJECTION
    if run.noticed_at is not None:
        about["notice_seconds"] = _seconds(run.interrupted_at, run.noticed_at)
    passed = run.noticed_at is not None or not is_announced
    return CheckResult(check=VerifyCheck.INTERRUPTED, passed=passed, about=about)


def _requeued(run: VerifyRun) -> CheckResult:
    about: dict[str, float] = {"requeues": run.requeues}
    if run.resumed_at is not None and run.interrupted_at is not None:
        about["seconds"] = _seconds(run.interrupted_at, run.resumed_at)
    passed = run.resumed_at is not None and run.requeues >= 1
    return CheckResult(check=VerifyCheck.REQUEUED, passed=passed, about=about)


def _results(run: VerifyRun) -> CheckResult:
    found = run.items
    return CheckResult(
        check=VerifyCheck.RESULTS,
        passed=found.sent > 0
        and found.right == found.sent
        and not (found.wrong or found.repeated or found.failed),
        about={
            "sent": found.sent,
            "right": found.right,
            "missing": found.missing,
            "repeated": found.repeated,
            "wrong": found.wrong,
            "failed": found.failed,
        },
    )


def _nothing_left(run: VerifyRun) -> CheckResult:
    running = sum(one.ended_at is None for one in run.machines)
    about = {
        "running": running,
        "messages": run.messages_left,
        "dead_letters": run.dead_letters,
    }
    return CheckResult(
        check=VerifyCheck.NOTHING_LEFT,
        passed=run.emptied_at is not None and not any(about.values()),
        about=about,
    )


def _alarms(run: VerifyRun) -> CheckResult:
    if run.alarms is None:
        return CheckResult(check=VerifyCheck.ALARMS, passed=None)
    ringing = [
        name
        for name, state in sorted(run.alarms.items())
        if state == "ALARM" and name not in run.quiet_alarms
    ]
    return CheckResult(
        check=VerifyCheck.ALARMS,
        passed=not ringing,
        about={"alarms": len(run.alarms), "ringing": ", ".join(ringing)},
    )


def _charged(run: VerifyRun) -> CheckResult:
    """Compare with what EC2 says ran; what is free since EC2 took it back is counted as charged."""
    charged = sum(one.charged_usd + one.refunded_usd for one in run.machines)
    slack = _CHARGED_WITHIN + 2 * run.every
    hours = slack / timedelta(hours=1)
    allowed = sum(one.price_per_hour * hours for one in run.machines)
    about: About = {
        "charged": run.charged_usd,
        "refunded": charged - run.charged_usd,
        "ran_seconds": sum((one.ran or timedelta(0)).total_seconds() for one in run.machines),
        "worth": run.worth_usd,
    }
    if not run.machines or any(one.ended_at is None for one in run.machines):
        return CheckResult(check=VerifyCheck.CHARGED, passed=False, about=about)
    is_near = abs(charged - run.worth_usd) <= allowed + _CHARGED_SHARE * run.worth_usd
    is_charged = all(one.charged_usd + one.refunded_usd > 0 for one in run.machines)
    return CheckResult(check=VerifyCheck.CHARGED, passed=is_near and is_charged, about=about)


def _seconds(begin: datetime, end: datetime) -> float:
    return max((end - begin).total_seconds(), 0.0)
