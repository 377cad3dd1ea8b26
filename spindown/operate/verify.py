"""`spindown verify`: one job through the deployment, interrupted once, watched to the last machine.

The job is of a workload with ``run.verify = true``, whose code is Spindown's own. Each look reads
ledger, manifest and EC2 and notes when something was first seen; ``domain.verification`` judges
the notes. Whatever ends a run early, ``end_all`` leaves nothing running.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TypeVar

from spindown.builtin.verification import answer
from spindown.contract import tag
from spindown.contract.job.batch import name_job
from spindown.contract.job.manifest import JobState
from spindown.contract.name import SEPARATOR, resource_name
from spindown.control.policy_edit import current_policy
from spindown.domain.fleet import Backlog, Worker
from spindown.domain.notice_time import NOTICE
from spindown.domain.offer import CapacityType
from spindown.domain.verification import (
    FAULT_USD,
    Interruption,
    ItemCount,
    VerifiedMachine,
    VerifyRun,
)
from spindown.error import (
    AccessDenied,
    BadInput,
    NotFound,
    SpindownError,
    Throttled,
    Unreachable,
)
from spindown.job.cancel import cancel
from spindown.job.result import read_progress, read_records
from spindown.job.submit import Draft, name_batch, submit_items
from spindown.ledger import Ledger, LedgerView
from spindown.operate.drain import read_remainder
from spindown.operate.plan import plan_next_tick
from spindown.port import AlarmStates, ControlPorts, FaultInjector, InstanceView, WorkPorts

_ENDED = frozenset({"shutting-down", "terminated"})
#: What an idle machine is foreseen to wait where the timeout is learned.
_IDLE = timedelta(minutes=10)
#: A fault is injected within this; else the machine is ended by hand, before the job is over.
_ANSWERED_WITHIN = timedelta(minutes=1)
#: A fault that was injected shows in the ledger within this; else the machine is ended by hand.
_NOTICED_WITHIN = timedelta(minutes=3)
#: The ledger has the end of a machine, and its charge, within some ticks.
_BOOKED_WITHIN = timedelta(minutes=5)
_ZERO = timedelta(0)
#: What to do where no workload is one to verify with.
TO_HAVE_ONE = (
    "name one with `run = { verify = true }` in spindown.toml (`spindown docs verify`), deploy"
)
#: So often is asked again what AWS does not answer, each time later, and never later than this.
_MISSED_AT_MOST = 5
_PAUSE_AT_MOST = timedelta(minutes=1)
_HEARTBEATS = 4
#: Of an item; the built-in code sleeps ten at most.
_LEAST_SECONDS, _SECONDS, _MOST_SECONDS = 0.5, 4.0, 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyPlan:
    """What a run does, and what it may cost and take."""

    items: int
    item_seconds: float
    max_usd: float
    every: timedelta
    timeout: timedelta


def usual_item_seconds(items: int, heartbeat_interval: timedelta, *, is_local: bool) -> float:
    """Return how many seconds each item takes, if a person does not say.

    A worker tells what it has done with its heartbeats, so the job lasts four of them: one until
    the first item is seen, the rest until it is interrupted. EC2 gives a notice of two minutes.
    """
    seconds = _HEARTBEATS * heartbeat_interval.total_seconds() / items
    return min(max(seconds, _LEAST_SECONDS if is_local else _SECONDS), _MOST_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyPorts:
    """What a run reads and moves; ``work`` is of the workload."""

    control: ControlPorts
    work: WorkPorts
    faults: FaultInjector
    alarms: AlarmStates
    #: Wakes the scaler.
    wake: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyEstimate:
    """What a run is foreseen to cost, before anything is sent."""

    offer: str
    price_per_hour: float
    dollars: float
    #: Of the experiment that will interrupt its machine, whose cost ``dollars`` hold; "": the
    #: machine is ended by hand.
    template: str
    #: Why experiments could not be looked up; None: they were.
    trouble: SpindownError | None = None


class Stage(StrEnum):
    """How far a run has come."""

    LAUNCHING = "launching"
    BOOTING = "booting"
    WORKING = "working"
    INTERRUPTED = "interrupted"
    RESUMED = "resumed"
    ENDING = "ending"
    OVER = "over"


class EarlyEnd(StrEnum):
    """Why a run ended before all had been seen."""

    NONE = ""
    TOO_DEAR = "too-dear"
    TOO_LONG = "too-long"
    JOB_FAILED = "job-failed"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyLook:
    """What one look has seen."""

    stage: Stage
    elapsed: timedelta
    items_done: int
    items: int
    #: Instances that run.
    running: int
    #: What they have cost so far, at their prices, and the experiment.
    dollars: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnding:
    """What one try to end a run has come to."""

    #: Nothing runs, nothing is being launched, and the job is cancelled.
    is_empty: bool
    #: What could not be done; the next try does it again.
    troubles: tuple[SpindownError, ...] = ()


@contextmanager
def _noted(troubles: list[SpindownError]) -> Iterator[None]:
    """Go on after an error, and note it."""
    try:
        yield
    except SpindownError as exc:
        troubles.append(exc)


def check_ready(workload: str, ports: VerifyPorts) -> None:
    """Check that the workload is one to verify with, and that nothing of it is under way.

    Raises:
        BadInput: it is not.
    """
    settings, _ = ports.control.settings.workload(workload)
    if not settings.run.verify:
        raise BadInput("workload", workload, TO_HAVE_ONE)
    left = read_remainder(workload, ports.control)
    left.check_read()
    if left.instances or left.launching or not ports.work.queue.backlog().is_empty:
        command = f"wait until `spindown status {workload}` shows nothing, or drain it"
        raise BadInput("workload", workload, f"something of it is under way: {command}")


def estimate(workload: str, plan: VerifyPlan, ports: VerifyPorts) -> VerifyEstimate:
    """Return what two machines will cost that boot, share the work, are idle and end.

    Raises:
        BadInput: no offer fits, or no worker is allowed.
        SpindownError: prices or the ledger cannot be read, or AWS wants us to slow down.
    """
    _, policy = current_policy(workload, ports.control)
    if policy.max_workers == 0:
        remedy = f"`spindown policy reset {workload} max_workers`, or set it in spindown.toml"
        raise BadInput("max_workers", 0, remedy)
    ranked = plan_next_tick(workload, ports.control, jobs=1).candidates
    best = next(iter(ranked.candidates), None)
    if best is None:
        raise BadInput("workload", workload, "no offer fits: see `spindown doctor`")
    work = timedelta(seconds=plan.items * plan.item_seconds)
    idle = policy.idle_timeout or _IDLE
    each = policy.boot_estimate + idle + policy.scale_down_delay
    hours = (2 * each + work + NOTICE) / timedelta(hours=1)
    # FIS takes spot instances alone; whether the machine will be one is not known yet.
    template, trouble = "", None
    try:
        template = ports.faults.find(_tags_of(workload, ports))
    except (AccessDenied, Unreachable) as exc:
        # There are regions without FIS, and networks with no way to it.
        trouble = exc
    return VerifyEstimate(
        offer=str(best.offer),
        price_per_hour=best.offer.price,
        dollars=best.offer.price * hours + (FAULT_USD if template else 0.0),
        template=template,
        trouble=trouble,
    )


def _tags_of(workload: str, ports: VerifyPorts) -> Mapping[str, str]:
    deployment = ports.control.deployment()
    return tag.whose(deployment.name, workload, home=deployment.region)


T = TypeVar("T")


def ask_again(ask: Callable[[], T], pause: Callable[[timedelta], object], *, every: timedelta) -> T:
    """Return what ``ask`` does; ask again while AWS wants us to slow down, or does not answer.

    A run that has machines is not ended for that: what it has seen would be lost.

    Raises:
        Throttled, Unreachable: it was so at each try, in about three minutes.
    """
    for missed in range(1, _MISSED_AT_MOST + 1):
        with suppress(Throttled, Unreachable):
            return ask()
        pause(min(every * 2**missed, _PAUSE_AT_MOST))
    return ask()


@dataclass(slots=True, kw_only=True)
class Verification:
    """One run, and what has been seen of it."""

    workload: str
    plan: VerifyPlan
    ports: VerifyPorts
    #: Of the experiment that was announced, by ``estimate``; "": the machine is ended by hand.
    template: str = ""
    job_id: str = ""
    early_end: EarlyEnd = EarlyEnd.NONE

    #: Where machines of the workload may run.
    _regions: frozenset[str] = frozenset()
    _sent_at: datetime | None = None
    _before: frozenset[str] = frozenset()
    _epoch: int = 0
    _experiment: str = ""
    #: When the experiment was asked for first.
    _asked_at: datetime | None = None
    #: What AWS bills for it, also if it fails.
    _fault_usd: float = 0.0
    _first_item_at: datetime | None = None
    _interruption: Interruption | None = None
    _interrupted_at: datetime | None = None
    _target: str = ""
    _noticed_at: datetime | None = None
    _resumed_at: datetime | None = None
    _completed_at: datetime | None = None
    _emptied_at: datetime | None = None
    _requeues: int = 0
    #: Instance -> how EC2 described it, and since when it is seen to have ended.
    _instances: dict[str, InstanceView] = field(default_factory=dict)
    _ended_at: dict[str, datetime] = field(default_factory=dict)
    _workers: dict[str, Worker] = field(default_factory=dict)

    def begin(self) -> None:
        """Send the job."""
        control, work = self.ports.control, self.ports.work
        now = control.clock.now()
        settings, _ = control.settings.workload(self.workload)
        self._regions = settings.deployed_regions
        self._before = frozenset(one.instance_id for one in self._described())
        draft = Draft(
            workload=self.workload,
            batch_id=name_batch(now, work.random),
            items_per_job=self.plan.items,
        )
        self._sent_at = now
        items = [
            {"number": number, "seconds": self.plan.item_seconds}
            for number in range(self.plan.items)
        ]
        # Known before it is sent, so that it can be cancelled whatever comes between.
        self.job_id = name_job(draft.batch_id, 0)
        submit_items(items, draft, queue=work.queue, store=work.objects)
        self.ports.wake()

    def look(self) -> VerifyLook:
        """Look once, interrupt if it is time, and say how far it is.

        After an error the next look does what this one has not.
        """
        now = self.ports.control.clock.now()
        self._look_at_machines(now)
        progress = read_progress(self.job_id, self.ports.work.objects)
        leases = [x for x in self._view().leases if x.job_id == self.job_id]
        done = max([progress.items_over, *(x.items_done for x in leases)])
        self._requeues = progress.interruptions + progress.losses
        if done and self._first_item_at is None:
            self._first_item_at = now
        if self._first_item_at is not None and not progress.is_over:
            self._see_to_interruption(leases[0].instance_id if leases else "", progress.epoch, now)
        if self._interrupted_at is not None and progress.epoch > self._epoch:
            self._resumed_at = self._resumed_at or now
        if progress.is_over and self._completed_at is None:
            self._completed_at = now
            if progress.state is not JobState.COMPLETED:
                self.early_end = self.early_end or EarlyEnd.JOB_FAILED
        self._see_whether_empty()
        self._bound(now)
        return VerifyLook(
            stage=self._stage(now),
            elapsed=now - self._begun,
            items_done=done,
            items=self.plan.items,
            running=len(self._running()),
            dollars=self._dollars(now),
        )

    def end_all(self) -> RunEnding:
        """Cancel the job and terminate what runs; call it until nothing is left.

        Each is done whether or not the others can be: machines cost money, also those of a job
        that cannot be cancelled.
        """
        self.early_end = self.early_end or EarlyEnd.STOPPED
        if self._sent_at is None:
            return RunEnding(is_empty=True)
        troubles: list[SpindownError] = []
        with _noted(troubles):
            self._cancel()
        for region in sorted(self._regions):
            with _noted(troubles):
                self._terminate(region)
        is_empty = False
        with _noted(troubles):
            left = read_remainder(self.workload, self.ports.control)
            left.check_read()
            is_empty = not (left.instances or left.launching)
            self._look_at_machines(self.ports.control.clock.now())
            self._see_whether_empty()
        return RunEnding(is_empty=is_empty and not troubles, troubles=tuple(troubles))

    def result(self) -> VerifyRun:
        """Return all that was seen, with results, alarms and charges as they are now."""
        left = self.ports.work.queue.backlog()
        completed = None if self.early_end else self._completed_at
        alarms = self._alarms()
        return VerifyRun(
            sent_at=self._begun,
            items=self._count_items(),
            first_item_at=self._first_item_at,
            interruption=self._interruption,
            interrupted_at=self._interrupted_at,
            noticed_at=self._noticed_at,
            resumed_at=self._resumed_at,
            completed_at=completed,
            emptied_at=self._emptied_at,
            machines=tuple(self._machine(one) for one in self._instances.values()),
            requeues=self._requeues,
            messages_left=_messages(left),
            dead_letters=_messages(self.ports.work.dead_letters.backlog()),
            alarms=alarms,
            quiet_alarms=frozenset(filter(self._is_quiet, alarms or ())),
            max_usd=self.plan.max_usd,
            fault_usd=self._fault_usd,
            every=self.plan.every,
        )

    @property
    def _begun(self) -> datetime:
        assert self._sent_at is not None  # noqa: S101 - nobody looks before it has begun
        return self._sent_at

    def _view(self) -> LedgerView:
        return Ledger(self.ports.control.table, self.workload).read()

    def _described(self) -> list[InstanceView]:
        return [one for region in sorted(self._regions) for one in self._described_in(region)]

    def _described_in(self, region: str) -> Sequence[InstanceView]:
        ours = _tags_of(self.workload, self.ports)
        return self.ports.control.compute.instances(region=region, tags=ours)

    def _look_at_machines(self, now: datetime) -> None:
        """Note what EC2 describes, and what the ledger says of it."""
        ledger = Ledger(self.ports.control.table, self.workload)
        view = ledger.read()
        described = {one.instance_id: one for one in self._described()}
        for name, instance in described.items():
            if name not in self._before:
                self._instances[name] = instance
                if instance.state in _ENDED:
                    self._ended_at.setdefault(name, now)
        for name in self._instances.keys() - described.keys():
            self._ended_at.setdefault(name, now)
        rows = {**view.workers, **ledger.read_ended()}
        self._workers |= {name: rows[name] for name in self._instances.keys() & rows.keys()}
        row = self._workers.get(self._target)
        if row is not None and row.noticed_at is not None:
            self._noticed_at = self._noticed_at or row.noticed_at

    def _see_to_interruption(self, holder: str, epoch: int, now: datetime) -> None:
        """Interrupt the machine that holds the job, once; by hand if it cannot be injected."""
        if self._interrupted_at is None and holder in self._instances:
            self._target, self._epoch = holder, epoch
            self._asked_at = self._asked_at or now
            try:
                self._start_experiment()
            except (Throttled, Unreachable):
                if now - self._asked_at < _ANSWERED_WITHIN:
                    return
            if not self._experiment:
                self._terminate_target()
            by_hand, injected = Interruption.BY_HAND, Interruption.FAULT_INJECTION
            self._interruption = injected if self._experiment else by_hand
            self._interrupted_at = now
        elif self._experiment and self._noticed_at is None and self._has_failed(now):
            self._terminate_target()
            self._experiment = ""
            self._interruption = Interruption.BY_HAND
            self._interrupted_at = now

    def _start_experiment(self) -> None:
        """Start the experiment that interrupts the machine, if there is one and it is not refused.

        Raises:
            Throttled, Unreachable: it may have begun; whoever asks again has the same token.
        """
        target = self._instances[self._target]
        if not self.template or target.capacity_type is not CapacityType.SPOT:
            return
        try:
            self._fault_usd = FAULT_USD
            self._experiment = self.ports.faults.start(
                self.template, token=self.job_id, tags=self._tags()
            )
        except (Throttled, Unreachable):
            raise
        except SpindownError:
            self._fault_usd = 0.0

    def _tags(self) -> Mapping[str, str]:
        """Return what an experiment bears: the deployment's tag, and those of the account."""
        deployment = self.ports.control.deployment()
        return {**deployment.tags, tag.DEPLOYMENT: deployment.name}

    def _has_failed(self, now: datetime) -> bool:
        if self._interrupted_at is not None and now - self._interrupted_at > _NOTICED_WITHIN:
            return True
        with suppress(SpindownError):
            return self.ports.faults.read(self._experiment).has_failed
        return False

    def _cancel(self) -> None:
        if self.job_id:
            for _ in cancel(self.workload, [self.job_id], self.ports.work):
                continue

    def _terminate(self, region: str) -> None:
        """End the machines of a region, by EC2's word alone."""
        found = [x.instance_id for x in self._described_in(region) if x.state not in _ENDED]
        if found:
            self.ports.control.compute.terminate(region=region, instance_ids=found)

    def _terminate_target(self) -> None:
        region = self._instances[self._target].region
        self.ports.control.compute.terminate(region=region, instance_ids=[self._target])

    def _running(self) -> list[str]:
        return [name for name in self._instances if name not in self._ended_at]

    def _see_whether_empty(self) -> None:
        """Note when the last machine had ended, after the job."""
        is_over = self._completed_at is not None or self.early_end is not EarlyEnd.NONE
        if is_over and not self._running() and self._emptied_at is None:
            self._emptied_at = max(self._ended_at.values(), default=self._begun)

    def _is_booked(self, now: datetime) -> bool:
        """Tell whether the ledger has the end of each machine, or has had time enough for it."""
        rows = [self._workers.get(name) for name in self._instances]
        if all(row is not None and row.ended_at is not None for row in rows):
            return True
        return self._emptied_at is not None and now - self._emptied_at > _BOOKED_WITHIN

    def _bound(self, now: datetime) -> None:
        if self.early_end or self._emptied_at is not None:
            return
        if self._dollars(now) > self.plan.max_usd:
            self.early_end = EarlyEnd.TOO_DEAR
        elif now - self._begun > self.plan.timeout:
            self.early_end = EarlyEnd.TOO_LONG

    def _dollars(self, now: datetime) -> float:
        hour = timedelta(hours=1)
        return self._fault_usd + sum(
            self._price(name) * ((self._ended_at.get(name, now) - one.launched_at) / hour)
            for name, one in self._instances.items()
        )

    def _price(self, name: str) -> float:
        row = self._workers.get(name)
        return 0.0 if row is None else row.price_per_hour

    def _stage(self, now: datetime) -> Stage:
        if self.early_end or (self._emptied_at is not None and self._is_booked(now)):
            return Stage.OVER
        if self._completed_at is not None:
            return Stage.ENDING
        if self._resumed_at is not None:
            return Stage.RESUMED
        if self._interrupted_at is not None:
            return Stage.INTERRUPTED
        if any(row.checked_in_at is not None for row in self._workers.values()):
            return Stage.WORKING
        return Stage.BOOTING if self._instances else Stage.LAUNCHING

    def _machine(self, instance: InstanceView) -> VerifiedMachine:
        row = self._workers.get(instance.instance_id)
        seen = VerifiedMachine(
            instance_id=instance.instance_id,
            offer=f"{instance.instance_type}/{instance.zone}/{instance.capacity_type}",
            price_per_hour=self._price(instance.instance_id),
            launched_at=instance.launched_at,
            ended_at=self._ended_at.get(instance.instance_id),
        )
        if row is None:
            return seen
        return replace(
            seen,
            checked_in_at=row.checked_in_at,
            charged_usd=row.charged_usd,
            refunded_usd=row.refunded_usd,
        )

    def _count_items(self) -> ItemCount:
        count = ItemCount(sent=self.plan.items)
        with suppress(NotFound):
            seen: set[int] = set()
            for record in read_records(self.job_id, self.ports.work.objects):
                index = int(record["index"])
                if index in seen:
                    count = replace(count, repeated=count.repeated + 1)
                elif record.get("error"):
                    count = replace(count, failed=count.failed + 1)
                elif record["result"] == {"answer": answer(index)}:
                    count = replace(count, right=count.right + 1)
                else:
                    count = replace(count, wrong=count.wrong + 1)
                seen.add(index)
        return count

    def _alarms(self) -> Mapping[str, str] | None:
        with suppress(AccessDenied):
            return self.ports.alarms.states(f"{self.ports.control.name}{SEPARATOR}")
        return None

    def _is_quiet(self, name: str) -> bool:
        """Tell whether an alarm says nothing of this run: another workload's, or only a wake-up."""
        own = resource_name(self.ports.control.name, self.workload)
        parts = name.split(SEPARATOR)
        is_others = len(parts) > 2 and not name.startswith(f"{own}{SEPARATOR}")  # noqa: PLR2004 - deployment, workload, alarm
        return is_others or name == f"{own}{SEPARATOR}backlog"


def _messages(backlog: Backlog) -> int:
    return backlog.visible + backlog.in_flight + backlog.delayed
