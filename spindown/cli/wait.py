"""Wait until jobs are over, and show how far they are."""

import signal
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import cache
from itertools import islice
from threading import Event
from typing import Any

import typer

from spindown.cli.render.bar import open_bar
from spindown.cli.render.batch import say_failed
from spindown.cli.render.line import print_aside
from spindown.contract.codec import decode, encode, from_json
from spindown.contract.decision import Outcome
from spindown.contract.job.batch import Batch, batch_of_job
from spindown.contract.job.manifest import JobState
from spindown.contract.log import followed_ids, is_one_of
from spindown.contract.row import DecisionRow
from spindown.domain.batch import BatchEnd
from spindown.domain.fleet import Lease, WorkerState
from spindown.domain.policy import Policy
from spindown.domain.reason import ReasonCode
from spindown.error import BadInput, ContractError, SpindownError
from spindown.job.result import JobProgress
from spindown.job.submit import SendStage
from spindown.ledger import LedgerView
from spindown.operate.batch_status import cancelled_why, coming_for, first_failed, shapes_of
from spindown.operate.log import JobEnds
from spindown.operate.status import next_tries
from spindown.port import ObjectStore
from spindown.reason_text import (
    say_coming,
    say_count,
    say_dollars,
    say_items,
    say_next_try,
    say_outcome,
)

#: Exit status after a Ctrl-C.
INTERRUPTED = 130
#: Between two looks, seconds; and the states of jobs that one look reads: 50 reads a second of S3.
_LOOK_SECONDS = 2.0
_STATES_A_LOOK = 100
#: Different causes of failures that are told; each attempt may word its own.
_CAUSES_SHOWN = 5
#: Outcomes of a tick that wanted a machine and got none.
_STOPPED = frozenset({Outcome.HELD, Outcome.BLOCKED, Outcome.NOTHING_FITS, Outcome.REFUSED})
#: Silence before it is told why nothing is at work, and from one look at that to the next.
_QUIET_FOR, _WHY_EVERY = timedelta(seconds=20), timedelta(seconds=6)


def wait_for(
    jobs: Sequence[str],
    store: ObjectStore,
    *,
    items: int | None = None,
    options: str = "",
    meanwhile: Callable[[Collection[str]], object] = lambda _: None,
    pause: Callable[[], object] = lambda: Event().wait(_LOOK_SECONDS),
) -> Mapping[str, JobProgress]:
    """Wait until all jobs are over; return how they ended. Without an answer of AWS, ask again.

    A job that fails and is tried again is told at once, the first of each cause.

    Args:
        jobs: their ids.
        store: their workload's.
        items: that they have together; None: the jobs themselves tell.
        options: with which another command finds the same deployment.
        meanwhile: is given the jobs that are not over, after each look.
        pause: waits between two looks.
    """
    ends, told = JobEnds(jobs, store, at_once=_STATES_A_LOOK), set[str]()
    with open_bar() as show:
        while not ends.look():
            for job in _newly_failing(ends.latest.values(), told):
                why = f"see why: spindown logs {job.job_id}{options}"
                print_aside(f"{job.job_id}: {job.failures_told}; it is tried again; {why}")
            standing = _Standing(ends, len(jobs), items)
            show(standing.words, standing.items_over, standing.items)
            meanwhile([job for job in jobs if job not in ends.ended])
            if not ends.is_ending:
                pause()
    print_aside(say_ends(ends.ended))
    return ends.ended


def told_why(
    check_there: Callable[[], object],
    read_view: Callable[[], LedgerView],
    now: Callable[[], datetime],
    expect_shape: Callable[[], str] = lambda: "",
) -> Callable[[Collection[str]], None]:
    """Return what tells why none of some jobs is at work, once for each change.

    Args:
        check_there: raises SpindownError once no answer will come any more.
        read_view: reads the ledger of their workload.
        now: the time.
        expect_shape: finds the shape to which they come; "": their workload declares no types.
    """
    shape = cache(expect_shape)
    due_at, told = now() + _QUIET_FOR, tuple[str, ...]()

    def tell(jobs: Collection[str]) -> None:
        nonlocal due_at, told
        check_there()
        if (at := now()) < due_at:
            return
        due_at = at + _WHY_EVERY
        # Who may not read the ledger waits all the same.
        with suppress(SpindownError):
            view = read_view()
            names = {name for job in jobs for name in followed_ids(job)}
            if _find_lease(view, names):
                return
            kind, why = _find_awaited(view, names, at, shape())
            if kind != told:
                told = kind
                print_aside(why)

    return tell


def say_awaited(view: LedgerView, jobs: Collection[str], now: datetime, shape: str = "") -> str:
    """Return in a clause what is waited for until jobs, which come to a shape, print something."""
    return _find_awaited(view, jobs, now, shape)[1]


def _find_awaited(
    view: LedgerView, jobs: Collection[str], now: datetime, shape: str
) -> tuple[tuple[str, ...], str]:
    """Return what is waited for: what tells it from other things, and a clause for a person."""
    shapes = shapes_of(jobs, view, shape)
    if lease := _find_lease(view, jobs):
        words = f"{lease.job_id} is at work on {lease.instance_id}, and prints nothing yet"
        return ("at work", lease.job_id, lease.instance_id), words
    if coming := _find_held_back(view, jobs) or _find_coming(view, shapes):
        return coming
    if tried := next((job for job in view.requeued_jobs if is_one_of(job, jobs)), ""):
        at = next_tries(view, now).get(tried)
        kind, why = _find_stop(view)
        said = f"{tried}: {say_next_try(at, now)}"
        return ("next try", tried, *kind), f"{said}; {why}" if why else said
    # A shape's machine takes jobs of that alone.
    idle = [one for one in view.workers.values() if one.state is WorkerState.IDLE]
    if any(one.takes_jobs and one.shape in shapes for one in idle):
        return ("idle",), "a machine is there, and takes the next job"
    # What was decided last may be older than the jobs.
    if view.decision is None or view.decision.summary.sizing.code is ReasonCode.NOTHING_WAITS:
        return ("worker",), "waiting for a worker"
    kind, why = _find_decided(view.decision)
    return kind, f"waiting: {why}"


def _find_decided(decision: DecisionRow) -> tuple[tuple[str, ...], str]:
    outcome, summary = decision.outcome, decision.summary
    codes = (summary.sizing.code, summary.why.code, summary.ended_early.code)
    return ("decision", outcome, *codes), say_outcome(outcome, summary)


def _find_stop(view: LedgerView) -> tuple[tuple[str, ...], str]:
    """Return what keeps a slot from coming for a job that is tried again, likewise; "": nothing."""
    if view.decision is not None and view.decision.outcome in _STOPPED:
        return _find_decided(view.decision)
    # While the message is hidden, no decision tells.
    with suppress(ContractError):
        policy = decode(Policy, from_json("policy", view.policy.effective))
        if policy.max_workers == 0:
            return ("drained",), "`max_workers` is 0, so no slot comes: see `spindown status`"
    return (), ""


def _find_held_back(view: LedgerView, jobs: Collection[str]) -> tuple[tuple[str, ...], str] | None:
    """Return the batch that must be over before jobs are sent, likewise; None: there is none."""
    batches = {batch_of_job(job_id) for job_id in jobs}
    rows = (row for name, row in view.batches.items() if name in batches)
    after = next((row.after for row in rows if row.after), "")
    return (("after", after), f"waiting until {after} is over") if after else None


def _find_coming(view: LedgerView, shapes: Collection[str]) -> tuple[tuple[str, ...], str] | None:
    """Return the machine or the launch that is waited for, likewise; None: there is none."""
    booting, asked = coming_for(shapes, view)
    if booting:
        last = max(booting, key=lambda worker: worker.launched_at)
        return ("boots", last.instance_id), f"{last.instance_id} boots ({last.pool})"
    return (("asked",), say_coming(0, asked)) if asked else None


def _find_lease(view: LedgerView, jobs: Collection[str]) -> Lease | None:
    return next((lease for lease in view.leases if is_one_of(lease.job_id, jobs)), None)


def _newly_failing(jobs: Iterable[JobProgress], told: set[str]) -> Iterator[JobProgress]:
    """Yield the first failing job of each cause that is not ``told`` yet, and add the cause."""
    for job in jobs:
        is_news = job.failures_told and job.last_failure not in told
        if is_news and len(told) < _CAUSES_SHOWN:
            told.add(job.last_failure)
            yield job


def say_trouble(
    name: str, ends: Mapping[str, JobProgress], store: ObjectStore, options: str
) -> Iterator[str]:
    """Yield why jobs that are over are not well, the first of each cause, and what tells more.

    Args:
        name: of their batch.
        ends: how they ended.
        store: their workload's.
        options: with which another command finds the same deployment.
    """
    jobs, given_up = ends.values(), dict[str, JobProgress]()
    for job in jobs:
        if job.state is JobState.FAILED:
            given_up.setdefault(job.reason, job)
    for reason, job in islice(given_up.items(), _CAUSES_SHOWN):
        yield f"{job.job_id} was given up: {reason}"
    # Who gets no answer now is told the command all the same.
    with suppress(SpindownError):
        failed: dict[str, Mapping[str, Any]] = {}
        for record in first_failed(jobs, store):
            failed.setdefault(str(record.get("error")), record)
        yield from (f"failed: {say_failed(record)}" for record in failed.values())
    if why := cancelled_why(jobs):
        yield f"cancelled: {why}"
    yield say_see_why(name, options, has_failed_items=any(job.items_failed for job in jobs))


def say_see_why(name: str, options: str, *, has_failed_items: bool) -> str:
    """Return the command that tells why a batch or job is not well."""
    if has_failed_items:
        return f"see why: spindown results {name} --failed{options}"
    return f"see why: spindown status {name}{options}"


def say_going_on(name: str, options: str) -> str:
    """Return that a batch or job goes on, and how it is seen and ended."""
    return (
        f"{name} goes on; see it with: spindown results {name} --wait{options}; "
        f"end it with: spindown cancel {name}{options}"
    )


@contextmanager
def going_on(name: str, options: str) -> Iterator[None]:
    """Say at a Ctrl-C or SIGTERM what goes on, how it is seen and cancelled; exit as interrupted.

    Args:
        name: of the batch or job that is waited for.
        options: with which another command finds the same deployment.
    """
    # `timeout` and the runners of CI end a command so.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        print_aside(say_going_on(name, options))
        raise typer.Exit(INTERRUPTED) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def say_sent(batch: Batch | None, stage: SendStage | None, options: str, repeated: str = "") -> str:
    """Return what was sent of a submit that was broken off, and what to do.

    Args:
        batch: what it sends; None: it has not begun.
        stage: how far it has come.
        options: with which another command finds the same deployment.
        repeated: the command that goes on where nothing was sent; "": there is none.
    """
    if batch is None or stage is None:
        return "nothing was sent"
    name = batch.batch_id
    if stage is SendStage.SENT:
        return f"all of {name} was sent; {say_going_on(name, options)}"
    cancel = f"spindown cancel {name}{options}"
    if stage is SendStage.NAMED and repeated:
        return f"nothing of {name} was sent; send it with: {repeated}"
    if stage is SendStage.NAMED:
        return f"nothing of {name} was sent; end it with: {cancel}; then submit again"
    if batch.after:
        return f"it is not known whether {name} was sent; end it with: {cancel}; then submit again"
    lost = f"spindown redrive {batch.workload} --lost {name}{options}"
    return (
        f"it is not known whether all of {name} was sent; send what was not with: {lost} (of a job "
        f"that is sent twice one has an effect); end it with: {cancel}"
    )


class Sending:
    """What is told how far a submit has come."""

    def __init__(self) -> None:
        self.batch: Batch | None = None
        self.stage: SendStage | None = None
        #: With which another command finds the same deployment, once that is known.
        self.options = ""
        #: The command that goes on where nothing was sent; "": there is none.
        self.repeated = ""

    def note(self, batch: Batch, stage: SendStage) -> None:
        """Note that a stage begins."""
        self.batch, self.stage = batch, stage


@contextmanager
def sending() -> Iterator[Sending]:
    """Give what is told how far a submit has come; say what was sent if it is broken off.

    Of a mistake in what was asked that says nothing, as long as nothing has begun.
    """
    found, before = Sending(), signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield found
    except BaseException as exc:
        if found.batch is not None or not isinstance(exc, BadInput | typer.Exit):
            print_aside(say_sent(found.batch, found.stage, found.options, found.repeated))
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def is_well(ends: Mapping[str, JobProgress]) -> bool:
    """Tell whether all jobs are completed, without an item that failed."""
    return all(end.word == BatchEnd.COMPLETED for end in ends.values())


def has_failed(ends: Mapping[str, JobProgress]) -> bool:
    """Tell whether an item failed, or a job that is over is not completed."""
    return not is_well({job_id: end for job_id, end in ends.items() if end.is_over}) or any(
        end.items_failed for end in ends.values()
    )


def say_failures(job: JobProgress, now: datetime) -> str:
    """Return how often a job has failed so far, and when it is tried again; "": never."""
    if job.is_held or not (said := job.failures_told):
        return job.failures_told
    return f"{said}; {say_next_try(job.next_try_at, now)}"


def end_to_json(job: JobProgress) -> dict[str, Any]:
    """Return how a job ended, or how far it is, for programs; its state is told as to people."""
    return {**encode(job), "state": job.word}


def say_ends(ends: Mapping[str, JobProgress]) -> str:
    """Return how jobs ended in a sentence: states, failed items, dollars."""
    return ", ".join(_count_ends(ends))


def _count_ends(ends: Mapping[str, JobProgress]) -> Iterator[str]:
    for state, count in Counter(end.word for end in ends.values()).items():
        yield f"{say_count(count, 'job')} {state}"
    if failed := sum(end.items_failed for end in ends.values()):
        yield f"{say_count(failed, 'item')} failed"
    yield f"${say_dollars(sum(end.cost_usd for end in ends.values()))} at work"


class _Standing:
    """How far the jobs are, by the last look at each."""

    def __init__(self, ends: JobEnds, jobs: int, items: int | None) -> None:
        seen = list(ends.latest.values())
        self.jobs, self.jobs_over = jobs, len(ends.ended)
        self.items_done = sum(one.items_done for one in seen)
        self.items_failed = sum(one.items_failed for one in seen)
        self.items_over = self.items_done + self.items_failed
        counts = [one.items for one in seen]
        is_known = len(seen) == jobs and None not in counts
        self.items = sum(one or 0 for one in counts) if items is None and is_known else items

    @property
    def words(self) -> str:
        """Return it in a line."""
        items = say_items(self.items_done, self.items_failed, self.items)
        return f"{self.jobs_over:,}/{self.jobs:,} jobs are over, {items}"
