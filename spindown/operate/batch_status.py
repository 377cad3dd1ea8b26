"""The batches of a workload, gathered for a person: how far, what it cost, when it is done."""

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import Any

from spindown.contract.decision import ShapeRecord
from spindown.contract.job.batch import BATCHES, Batch, batch_key, batch_of, batch_of_job
from spindown.contract.job.manifest import JobState, Manifest
from spindown.contract.job.message import JobMessage, encode_job, is_id, needs_of, parse_job
from spindown.contract.log import is_one_of
from spindown.contract.settings import WorkloadSettings
from spindown.domain.batch import BatchEnd, BatchTally
from spindown.domain.eta import Eta, OwnPace, WorkLeft, expect_end, expect_slots, pace_spread
from spindown.domain.fleet import Backlog, Worker, WorkerState, all_of
from spindown.domain.learning import Knowledge, items_per_job
from spindown.domain.lease import LEAVE_FOR
from spindown.domain.past_cost import Accrual, accrue_whole
from spindown.domain.policy import Dispatch, Policy
from spindown.domain.rightsizing.type_size import TypeSize, sized_at
from spindown.domain.shape import of_dispatch, settle
from spindown.error import ContractError, NotFound
from spindown.job.cancel import REASON
from spindown.job.redrive_item import again_of
from spindown.job.result import JobProgress, read_batch, read_progress, read_records
from spindown.job.route import sizes_in_force
from spindown.ledger import LedgerView
from spindown.ledger.knowledge import read_knowledge
from spindown.operate.decision import read_decision
from spindown.operate.status import next_tries, with_next_try
from spindown.port import ControlPorts, ObjectStore
from spindown.reason_text import say_coming, say_last_outcome, say_shape_outcome

_READS_AT_ONCE = 16
#: Jobs whose manifests one list reads, within seconds.
COUNTED_AT_MOST = 5_000
#: Failed items, and jobs that were given up, that one batch shows.
_SHOWN = 5


class BatchState(StrEnum):
    """What became of a batch."""

    #: No worker holds a job of it: none has begun, or those that have wait to go on.
    WAITING = "waiting"
    RUNNING = "running"
    # All jobs are over, as people are told and as a batch that waits for it sees it.
    COMPLETED = BatchEnd.COMPLETED.value
    FAILED = BatchEnd.FAILED.value
    CANCELLED = BatchEnd.CANCELLED.value


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStatus:
    """One batch at one moment. Money is USD, up to the last commits."""

    workload: str
    batch_id: str
    #: None: of a job that was asked for by its own name.
    submitted_at: datetime | None
    #: None: too many jobs for a list, or a manifest cannot be read (``fault``).
    state: BatchState | None
    jobs: int
    #: The batch that must be over before this one starts; "": none.
    waits_for: str = ""
    #: While no worker holds a job of it: which machines come, and the last decision for its shape,
    #: or of its workload where that declares no types; "": there is none.
    decision: str = ""
    #: How the command of a `spindown run` begins; "": it is none.
    command: str = ""
    jobs_over: int | None = None
    #: Given up, which are in the dead-letter queue; a split one counts once one of its children is.
    jobs_given_up: int | None = None
    #: None: workers have yet to read the input.
    items: int | None = None
    #: Without those that failed.
    items_done: int | None = None
    items_failed: int | None = None
    #: Of machines' time at work on it; boots and idle time are in none.
    dollars: float | None = None
    #: None: it is over, or nothing is known: no speed was measured, or no machine is asked for, or
    #: its items take longer than was learned and no heartbeat has told how long.
    eta: Eta | None = None
    #: Whether a machine takes further jobs of it, or is asked for.
    has_machine: bool = False
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchDetail:
    """One batch with what went wrong in it."""

    batch: BatchStatus
    #: The records of the first failed items.
    failed: tuple[Mapping[str, Any], ...]
    #: The first of the jobs that were given up.
    given_up: tuple[JobProgress, ...]
    #: The first of those that have failed and are tried again.
    failing: tuple[JobProgress, ...]
    #: Job that was given back -> before when nobody gets it; one that is not here goes at once.
    next_tries: Mapping[str, datetime]
    #: Why it was cancelled though nobody asked for it; "": that is not so.
    cancelled_why: str
    #: The batch that it is, or of which it is a job; "": it is of none.
    whole: str
    #: The batch in which its failed items were sent again; "": they were not.
    again: str
    #: Of a single job that gets a machine of its own: what that of its last attempt has cost all
    #: in, and for what; None: there is none, or nobody knows it any more.
    machine: Accrual | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What an ETA of any batch of a workload goes by."""

    view: LedgerView
    knowledge: Knowledge
    policy: Policy
    #: By shape; "": the queue of people.
    waiting: Mapping[str, Backlog]
    at: datetime
    #: Of a workload with types: type -> what is learned of it; the last decision for each shape.
    sizes: Mapping[str, TypeSize] = field(default_factory=dict)
    shapes: tuple[ShapeRecord, ...] = ()


def read_outlook(
    settings: WorkloadSettings,
    policy: Policy,
    view: LedgerView,
    waiting: Mapping[str, Backlog],
    ports: ControlPorts,
) -> Outlook:
    """Return what an ETA goes by."""
    knowledge = read_knowledge(
        view.rates,
        slots=settings.run.slots,
        stop_grace=settings.run.stop_grace,
        workers=view.workers.values(),
    )
    found = Outlook(
        view=view, knowledge=knowledge, policy=policy, waiting=waiting, at=ports.clock.now()
    )
    if not policy.types:
        return found
    row = view.decision
    last = None if row is None else read_decision(row.key, ports.objects)
    return replace(
        found,
        sizes=sizes_in_force(settings, policy, ports),
        shapes=() if last is None else last.shapes,
    )


def expect_shape(job_type: str, asked: Mapping[str, Any] | None, outlook: Outlook) -> str:
    """Return the shape to which a job sent now comes.

    "": it comes to none, or its workload declares no types.

    Args:
        job_type: of its message; "": it has none.
        asked: its requirements, as its message has them.
        outlook: of its workload.
    """
    if not outlook.policy.types:
        return ""
    message = JobMessage(items=(), type=job_type or None, requirements=asked)
    with suppress(ContractError):
        job, known = parse_job(encode_job(message)), outlook.sizes.get(job_type)
        sized = None if known is None else sized_at(known, outlook.at)
        settled = settle(job_type, needs_of(job), outlook.policy, sized)
        return "" if settled.rejected else settled.shape.name
    return ""


def shapes_of(jobs: Collection[str], view: LedgerView, expected: str) -> frozenset[str]:
    """Return the shapes whose machines do these jobs: as some of them show, or as is expected."""
    seen = [(one.job_id, one.shape) for one in view.leases]
    seen += [(one.job_id, one.shape) for one in view.requeued_jobs.values()]
    shown = {shape for job_id, shape in seen if is_one_of(job_id, jobs)}
    return frozenset(shown or {expected})


def coming_for(shapes: Collection[str], view: LedgerView) -> tuple[Sequence[Worker], int]:
    """Return the machines that boot for jobs of these shapes, and how many launches are asked."""
    booting = [
        one
        for one in view.workers.values()
        if one.takes_jobs and one.state is WorkerState.BOOTING and one.shape in shapes
    ]
    return booting, sum(one.is_open and one.shape in shapes for one in view.launches.values())


def expect_shape_of(jobs: Sequence[str], store: ObjectStore, outlook: Outlook) -> str:
    """Return the shape to which jobs of one batch come, as ``expect_shape``; of others "".

    Args:
        jobs: their ids.
        store: their workload's.
        outlook: of their workload.
    """
    batch_id = _batch_of(jobs[0], store) if jobs else ""
    if not batch_id:
        return ""
    batch = read_batch(batch_id, store)
    return expect_shape(batch.type, batch.requirements, outlook)


@dataclass(frozen=True, slots=True, order=True)
class Submitted:
    """When a batch was submitted; the newest is the greatest."""

    at: datetime
    workload: str
    batch_id: str


def find_newest(
    stores: Mapping[str, ObjectStore], *, limit: int, before: str | None
) -> Sequence[Submitted]:
    """Return the newest batches of workloads, newest first; memory holds ``limit`` of them.

    Args:
        stores: workload -> its part of the bucket.
        limit: how many.
        before: only those that are older than this batch; None: any.

    Raises:
        NotFound: there is no such batch.
    """
    bound = None if before is None else _find(before, stores)
    every = (
        Submitted(found.modified_at, workload, batch_id)
        for workload, store in stores.items()
        for found in store.list(BATCHES)
        if (batch_id := batch_of(found.key)) is not None
    )
    older = (one for one in every if bound is None or one < bound)
    return heapq.nlargest(limit, older)


def _find(batch_id: str, stores: Mapping[str, ObjectStore]) -> Submitted:
    for workload, store in stores.items():
        with suppress(NotFound):
            return Submitted(store.get(batch_key(batch_id)).modified_at, workload, batch_id)
    raise NotFound(f"no batch {batch_id}")


def read_batches(
    found: Sequence[Submitted],
    stores: Mapping[str, ObjectStore],
    outlooks: Mapping[str, Outlook],
    *,
    jobs_at_most: int = COUNTED_AT_MOST,
) -> Iterator[BatchStatus]:
    """Yield the status of each batch; only so many jobs are looked at, the first batches' ones."""
    room = jobs_at_most
    for one in found:
        store = stores[one.workload]
        try:
            batch = read_batch(one.batch_id, store)
        except (ContractError, NotFound) as exc:
            yield _uncounted(one, 0, None, str(exc))
            continue
        if len(batch.jobs) > room:
            command = f"spindown status {one.batch_id}"
            fault = f"too many jobs to count in a list: see `{command}`"
            yield _uncounted(one, len(batch.jobs), batch.items, fault)
            continue
        room -= len(batch.jobs)
        yield _read_status(one.workload, batch, one.at, store, outlooks[one.workload])[0]


def _uncounted(one: Submitted, jobs: int, items: int | None, fault: str) -> BatchStatus:
    return BatchStatus(
        workload=one.workload,
        batch_id=one.batch_id,
        submitted_at=one.at,
        state=None,
        jobs=jobs,
        items=items,
        fault=fault,
    )


def _knows_none(_: str) -> Worker | None:
    return None


def read_detail(
    name: str,
    jobs: tuple[str, ...],
    workload: str,
    store: ObjectStore,
    outlook: Outlook,
    find_ended: Callable[[str], Worker | None] = _knows_none,
) -> BatchDetail:
    """Return the status of a batch, or of a job that was asked for by name, and its failures.

    Args:
        name: of the batch or the job.
        jobs: its jobs.
        workload: whose.
        store: its part of the bucket.
        outlook: what its ETA goes by.
        find_ended: instance -> its worker, of those that have ended and are live no more.
    """
    try:
        batch = read_batch(name, store)
        at = store.get(batch_key(name)).modified_at
    except NotFound:
        batch, at = Batch(batch_id=name, workload=workload, jobs=jobs), None
    status, progresses = _read_status(workload, batch, at, store, outlook)
    whole = name if at is not None else _batch_of(name, store)
    again = again_of(whole)
    is_again = bool(whole) and _is_there(again, store)
    return BatchDetail(
        batch=status,
        failed=tuple(first_failed(progresses, store)),
        given_up=tuple(one for one in progresses if one.is_given_up)[:_SHOWN],
        failing=tuple(one for one in progresses if one.failures_told)[:_SHOWN],
        next_tries={
            one.job_id: one.next_try_at for one in progresses if one.next_try_at is not None
        },
        cancelled_why=cancelled_why(progresses),
        whole=whole,
        again=again if is_again else "",
        machine=_own_machine(progresses, outlook, find_ended),
    )


def _own_machine(
    jobs: Sequence[JobProgress], outlook: Outlook, find_ended: Callable[[str], Worker | None]
) -> Accrual | None:
    """Return what the machine of a single job has cost, if it was launched for that job alone."""
    name = jobs[0].instance_id if len(jobs) == 1 else ""
    # A worker writes it, and may write anything.
    worker = (outlook.view.workers.get(name) or find_ended(name)) if is_id(name) else None
    if worker is None:
        return None
    is_own = of_dispatch(outlook.policy, worker.shape).dispatch is Dispatch.DEDICATED
    return accrue_whole(worker, outlook.at) if is_own else None


def _is_dropped(job: JobProgress) -> bool:
    return job.state is JobState.CANCELLED and job.reason != REASON


def _batch_of(job_id: str, store: ObjectStore) -> str:
    """Return the batch of a job, by its name; "": it is of none."""
    batch_id = batch_of_job(job_id)
    with suppress(ContractError, NotFound):
        if batch_id and job_id in read_batch(batch_id, store).jobs:
            return batch_id
    return ""


def _is_there(batch_id: str, store: ObjectStore) -> bool:
    with suppress(NotFound):
        store.get(batch_key(batch_id))
        return True
    return False


def cancelled_why(jobs: Iterable[JobProgress]) -> str:
    """Return why jobs were cancelled though nobody asked for it; "": that is not so."""
    return next((one.reason for one in jobs if _is_dropped(one)), "")


def first_failed(jobs: Iterable[JobProgress], store: ObjectStore) -> Iterator[Mapping[str, Any]]:
    """Yield the records of the first failed items of jobs."""
    return islice(_failed(jobs, store), _SHOWN)


def _failed(progresses: Iterable[JobProgress], store: ObjectStore) -> Iterator[Mapping[str, Any]]:
    for one in progresses:
        if one.items_failed:
            # What cannot be read, `results` tells.
            yield from read_records(one.job_id, store, lambda *_: None, failed_only=True)


def _read_status(
    workload: str, batch: Batch, at: datetime | None, store: ObjectStore, outlook: Outlook
) -> tuple[BatchStatus, Sequence[JobProgress]]:
    one = Submitted(at or outlook.at, workload, batch.batch_id)
    try:
        with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
            is_held = partial(_is_held, view=outlook.view)
            read = pool.map(lambda job_id: read_progress(job_id, store, is_held), batch.jobs)
            tries = next_tries(outlook.view, outlook.at)
            jobs = [with_next_try(job, tries.get) for job in read]
    except ContractError as exc:
        return _uncounted(one, len(batch.jobs), batch.items, str(exc)), ()
    is_known = all(job.items is not None for job in jobs)
    state, row = state_of(jobs), outlook.view.batches.get(batch.batch_id)
    has_begun = any(job.state is not None for job in jobs)
    # Of one that was never looked at, there is no row yet.
    is_held_back = not has_begun and bool(batch.after) and (row is None or bool(row.after))
    left = {job.job_id for job in jobs if not job.is_over}
    # Of a job that was asked for by its own name nobody knows what it asks for.
    is_sent = at is not None and bool(left)
    expected = expect_shape(batch.type, batch.requirements, outlook) if is_sent else ""
    shapes = shapes_of(left, outlook.view, expected)
    # While nobody can receive any of its jobs, no decision tells why none is at work.
    is_put_back = all(job.next_try_at for job in jobs if not job.is_over)
    is_waiting = state is BatchState.WAITING and not is_held_back and not is_put_back
    status = BatchStatus(
        waits_for=batch.after if is_held_back else "",
        decision=_say_why_waiting(shapes, outlook) if is_waiting else "",
        command=batch.command,
        workload=workload,
        batch_id=batch.batch_id,
        submitted_at=at,
        state=state,
        jobs=len(jobs),
        jobs_over=sum(job.is_over for job in jobs),
        jobs_given_up=sum(job.is_given_up for job in jobs),
        items=sum(job.items or 0 for job in jobs) if is_known else batch.items,
        items_done=sum(job.items_done for job in jobs),
        items_failed=sum(job.items_failed for job in jobs),
        dollars=sum(job.cost_usd for job in jobs),
        eta=None if is_held_back else _eta(jobs, batch.items, shapes, outlook),
        has_machine=_has_machine(shapes, outlook),
    )
    return status, jobs


def _is_held(manifest: Manifest, *, view: LedgerView) -> bool:
    """Tell whether a worker holds a job that has begun.

    One whose machine has ended has not released it: the tick that saw the end left it to whoever
    comes next.
    """
    if manifest.released:
        return False
    is_left = manifest.job_id in view.requeued_jobs
    return not is_left or any(lease.job_id == manifest.job_id for lease in view.leases)


def state_of(jobs: Sequence[JobProgress]) -> BatchState:
    """Return what became of a batch, by its jobs."""
    if not all(job.is_over for job in jobs):
        is_held = any(job.is_held for job in jobs)
        return BatchState.RUNNING if is_held else BatchState.WAITING
    tally = BatchTally()
    for job in jobs:
        tally = tally.with_job(str(job.state), items=job.items_over, failed=job.items_failed)
    return BatchState(tally.end)


def _say_why_waiting(shapes: Collection[str], outlook: Outlook) -> str:
    """Return what machines come for what waits, and what was decided last."""
    booting, asked = coming_for(shapes, outlook.view)
    coming = say_coming(len(booting), asked)
    return "; ".join(filter(None, (coming, _say_decision(shapes, outlook))))


def _say_decision(shapes: Collection[str], outlook: Outlook) -> str:
    """Return the last decision for what waits; ``""`` among the shapes: nobody knows for which."""
    last = outlook.view.decision
    if not outlook.policy.types:
        waiting = all_of(outlook.waiting.values())
        return "" if last is None else say_last_outcome(last.outcome, last.summary, waiting)
    # What a queue did not hold then was yet to be routed.
    own = [
        one
        for one in outlook.shapes
        if one.visible and (one.shape in shapes or ("" in shapes and one.blocked_by))
    ]
    return "; ".join(map(say_shape_outcome, own))


def _eta(
    jobs: Sequence[JobProgress],
    items: int | None,
    shapes: Collection[str],
    outlook: Outlook,
) -> Eta | None:
    left = [job for job in jobs if not job.is_over]
    if not left:
        return None
    usual = items_per_job(outlook.knowledge, outlook.policy)
    if items is not None:
        # Of a batch whose items are known, a job that nobody has claimed has its share of them.
        usual = items / len(jobs)
    there = all_of(waiting for shape, waiting in outlook.waiting.items() if shape in shapes)
    names = {job.job_id for job in left}
    held = [one for one in outlook.view.leases if one.shape in shapes]
    held_by_others = [one for one in held if not is_one_of(one.job_id, names)]
    own = sum(job.jobs_left for job in left)
    others = there.visible + there.in_flight + there.delayed - own - len(held_by_others)
    others = max(others, 0)
    work = WorkLeft(
        items=sum(
            max((usual if job.items is None else job.items) - job.items_over, 0.0) for job in left
        ),
        jobs=own,
        largest_job=max(usual if job.largest_left is None else job.largest_left for job in left),
        other_items=others * items_per_job(outlook.knowledge, outlook.policy),
        other_jobs=others,
        not_before=_last_try(left, shapes, outlook),
    )
    slots = expect_slots(
        _workers(left, shapes, outlook),
        (one for one in outlook.view.launches.values() if one.shape in shapes),
        outlook.knowledge,
        outlook.policy,
        outlook.at,
        held_by_others,
    )
    return expect_end(work, slots, pace_spread(outlook.knowledge), outlook.at, _own(jobs, outlook))


def _workers(
    left: Sequence[JobProgress], shapes: Collection[str], outlook: Outlook
) -> Sequence[Worker]:
    """Return the machines that do what is left of a batch.

    Those that end after the jobs in hand are among them if these are all that is left.
    """
    names, view = {job.job_id for job in left}, outlook.view
    in_hand = [one.instance_id for one in view.leases if is_one_of(one.job_id, names)]
    are_all_held = len(in_hand) >= sum(job.jobs_left for job in left)
    return [
        one
        for one in view.workers.values()
        if one.shape in shapes
        and (
            one.takes_jobs or (are_all_held and one.ends_after_jobs and one.instance_id in in_hand)
        )
    ]


def _has_machine(shapes: Collection[str], outlook: Outlook) -> bool:
    """Tell whether a machine takes further jobs of these shapes, or is asked for."""
    workers, launches = outlook.view.workers.values(), outlook.view.launches.values()
    return any(one.takes_jobs and one.shape in shapes for one in workers) or any(
        one.is_open and one.shape in shapes for one in launches
    )


def _last_try(
    jobs: Sequence[JobProgress], shapes: Collection[str], outlook: Outlook
) -> datetime | None:
    """Return before when nobody takes the last of these jobs; None: none waits so.

    A machine that has failed a job leaves it to others for a while. Where no other is there or
    asked for, nobody takes it until then.
    """
    owners = {job.job_id: job.instance_id for job in jobs}
    able = {
        one.instance_id
        for one in outlook.view.workers.values()
        if one.takes_jobs and one.shape in shapes
    }
    is_asked = any(x.is_open and x.shape in shapes for x in outlook.view.launches.values())
    tries = []
    for one in outlook.view.requeued_jobs.values():
        if not is_one_of(one.job_id, owners):
            continue
        tries.append(one.next_try_at)
        if one.failures and not is_asked and able == {owners.get(one.job_id)}:
            tries.append(one.at + LEAVE_FOR)
    return max((at for at in tries if at is not None and at > outlook.at), default=None)


def _own(jobs: Sequence[JobProgress], outlook: Outlook) -> OwnPace:
    """Return what the jobs of a batch have shown, as of the last heartbeats.

    An item that is the last of its job is as old as it is now; of others a heartbeat tells.
    """
    known = {job_id: at for job in jobs for job_id, at in job.in_hand.items()}
    last = {job.job_id: job.items for job in jobs}
    done = hours = oldest = unheard = 0.0
    in_hand = [lease for lease in outlook.view.leases if lease.job_id in known]
    for lease in in_hand:
        next_item, committed = known[lease.job_id]
        seen_at = min(lease.deadline - outlook.policy.lease_duration, outlook.at)
        took = (seen_at - lease.claimed_at).total_seconds() - committed
        beyond = max(lease.items_done - next_item, 0)
        if took > 0.0:
            done += beyond
            hours += took / _SECONDS_PER_HOUR
        age = (outlook.at - lease.claimed_at).total_seconds() - committed
        if last.get(lease.job_id) == next_item + 1:
            took = age
        elif took <= 0.0 and lease.items > next_item:
            unheard = max(unheard, age / (lease.items - next_item) / _SECONDS_PER_HOUR)
        oldest = max(oldest, took / (beyond + 1) / _SECONDS_PER_HOUR)
    return OwnPace(
        items=sum(job.items_over for job in jobs) + done,
        hours=sum(job.busy_seconds for job in jobs) / _SECONDS_PER_HOUR + hours,
        in_hand=len(in_hand),
        items_in_hand=done,
        hours_in_hand=hours,
        oldest=oldest,
        unheard=unheard,
    )


_SECONDS_PER_HOUR = 3600.0
