"""A workload as programs use it: send items, get their results, find a batch again."""

import hashlib
import json
import re
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from random import SystemRandom
from threading import Event
from types import TracebackType
from typing import Any, Generic, Literal, Never, Self, TypeVar, Unpack, overload

from spindown.cli.option import CONFIG_FILE, LOCAL, place_commands
from spindown.cli.sender import Sender, check_type
from spindown.cli.session import Session, connect, find_place, reach_local_system
from spindown.cli.wait import Sending, say_going_on, say_sent
from spindown.client.item import check_item
from spindown.client.mapper import (
    Mapper,
    open_stream,
    read_outcome,
    read_result,
    read_value,
)
from spindown.client.option import (
    PLACE,
    StreamOptions,
    SubmitOptions,
    check_items,
    check_options,
    check_path,
    check_text,
    check_timeout,
    is_text,
    refuse_options,
)
from spindown.client.stream import (
    LOOK_SECONDS,
    LOOK_SECONDS_MOST,
    ItemResult,
    OnExit,
    ResultStream,
    told_at_interrupt,
)
from spindown.config.archive import is_deployed
from spindown.contract.job.batch import UPLOADS, Batch
from spindown.contract.job.manifest import JobState
from spindown.contract.job.result import ItemStatus
from spindown.domain.batch import OnFailure
from spindown.error import (
    BadInput,
    ItemFailed,
    JobFailed,
    NoCredentials,
    NotFound,
    SpindownError,
    WorkFailed,
)
from spindown.job.cancel import REASON, cancel
from spindown.job.lost_message import redrive_lost
from spindown.job.result import JobProgress, read_batch, read_progress
from spindown.job.shape_queue import backlogs
from spindown.job.submit import ITEMS_PER_JOB, Draft, SendStage, check_after, submit_items, upload
from spindown.job.submit import name_batch as make_name
from spindown.operate.batch_status import BatchState, state_of
from spindown.operate.download import digest_of
from spindown.operate.log import JobEnds
from spindown.operate.result_stream import CommittedItem, FoundWork, stream_results
from spindown.port import ObjectStore

T = TypeVar("T")
R = TypeVar("R")
S = TypeVar("S")

_S3 = "s3://"
#: Items that are read and sent together; of these sections two are under way at most. Those of an
#: iterator, of which nobody knows how many are wanted, begin with few and double.
SECTION_ITEMS = 50_000
FIRST_ITEMS = 500
_SECTIONS = 2
#: A section whose items would make fewer jobs than this makes this many: each may take long, and so
#: they are spread over machines.
_JOBS = 16
#: A batch's name; its jobs add a hyphen and a number, its further sections two characters more.
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
#: Manifests that a look reads while all jobs of a batch are waited for.
_STATES_A_LOOK = 32
#: Jobs among which the first that is not over is looked for, to name it.
_LOOKED_AT = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchCount:
    """How far a batch is. Money is USD, up to the last commits, of time at work on it alone."""

    state: BatchState
    jobs: int
    jobs_over: int
    #: None: workers have yet to read the input.
    items: int | None
    #: Without those that failed.
    items_done: int
    items_failed: int
    dollars: float


class Workload(Mapper[T, R]):
    """A deployed workload.

    ``Workload[str, dict[str, Any]]("classify")`` says what its items and results are, for whoever
    checks types; nothing checks values by it.
    """

    def __init__(
        self,
        name: str,
        *,
        config: str | Path = CONFIG_FILE,
        deployment: str | None = None,
        local_system: bool = False,
        function: Path | None = None,
        **unknown: Never,
    ) -> None:
        """Find a workload, as the command line does.

        Args:
            name: the workload.
            config: the file that describes its deployment.
            deployment: name of the deployment, in place of a file.
            local_system: whether it runs in the local system of this directory, or of that of
                ``config`` (``spindown local up``); else AWS is asked as it is configured here.
            function: the file of the function that it must run; None: it runs what is deployed.
            unknown: what is none of these, which is refused.

        Raises:
            BadInput: no such file, region, credentials, deployment or workload; or it runs other
                code than this function.
        """
        refuse_options(unknown, PLACE)
        if not is_text(name):
            raise BadInput("name", name, "give the name of a workload")
        check_path("config", config)
        check_text("deployment", deployment)
        if not isinstance(local_system, bool):
            raise BadInput("local_system", local_system, "give True or False")
        place = find_place(Path(config), deployment=deployment, local=False)
        if local_system:
            session = reach_local_system(place.deployment, Path(config))
            options = f"{place.options}{LOCAL}"
        else:
            try:
                session, options = connect(place.deployment, place.region), place.options
            except NoCredentials:
                remedy = f"log in to AWS, or write Workload({name!r}, local_system=True)"
                raise NoCredentials("credentials", None, remedy) from None
        self.name = name
        self._session = replace(session, options=options)
        settings = self._session.workload(name)
        self._sender = Sender(
            aws=self._session.aws,
            deployment=place.deployment,
            workload=name,
            queue_url=settings.queue_url,
            bucket=self._session.bucket,
            options=options,
            inputs=place.inputs,
            config=(place.workloads or {}).get(name),
            code_version=settings.run.code_version,
        )
        if function is not None:
            if not is_deployed(settings.run.code_version, function, name):
                remedy = f"bring it with: {self._sender.deploy_command}"
                raise BadInput("function", name, f"its code here is not what runs: {remedy}")
        elif said := self._sender.say_other_code(Path(config).resolve().parent):
            sys.stderr.write(f"spindown: {said}\n")

    def __repr__(self) -> str:
        return f"Workload({self.name!r}, deployment={self._sender.deployment!r})"

    def submit(self, items: Iterable[T], **how: Unpack[SubmitOptions]) -> "Submission[R]":
        """Send items as one batch, and return at once; it goes on whatever becomes of this process.

        Args:
            items: JSON values, or paths of files, which are uploaded.
            how: see ``SubmitOptions``.

        Raises:
            BadInput: there are none, one is no JSON, or an option is wrong.
        """
        check_options(how, SubmitOptions)
        check_items(items)
        return self.send(list(items), how, self.name_batch(how))

    def batch(self, name: str) -> "Submission[R]":
        """Return a batch that was submitted before, by whomever (BadInput: there is none)."""
        if not is_text(name):
            raise BadInput("batch", name, "give the name of a batch")
        try:
            return Submission(read_batch(name, self._sender.store), self._session, self._sender)
        except NotFound:
            command = f"spindown batches {self.name}{self._sender.options}"
            remedy = f"name a batch of {self.name}: `{command}` lists them"
            raise BadInput("batch", name, remedy) from None

    def begin(self, items: Iterable[Any], how: StreamOptions, *, in_order: bool) -> "_Sections[R]":
        """Send the first section of items; the others follow as results are read."""
        check_options(how, StreamOptions)
        check_items(items)
        return _Sections(self, items, how, in_order=in_order)

    def name_batch(self, how: SubmitOptions) -> str:
        """Return the name of a new batch, or of the one that a key names (raises BadInput)."""
        key = how.get("key")
        if key is None:
            return make_name(datetime.now(UTC), SystemRandom())
        if not _KEY.fullmatch(key):
            remedy = "write 1 to 100 of A-Z, a-z, 0-9, dot, underscore and hyphen"
            raise BadInput("key", key, remedy)
        return key

    def send(
        self,
        items: Sequence[Any],
        how: SubmitOptions,
        batch_id: str,
        first: int = 0,
        *,
        is_waited_for: bool = False,
    ) -> "Submission[R]":
        """Send items as a batch of this name; with a key, only if it is not there (BadInput).

        ``first`` is the place of the first among all that were given.
        """
        sender, prefix = self._sender, f"{UPLOADS}{batch_id}/"
        given = _Given(items, prefix, sender.root, first)
        for value in given.values:
            if isinstance(value, str) and value.startswith(_S3):
                sender.check_readable(value)
        draft = self._draft(len(items), how, batch_id)
        draft = replace(draft, first=first, is_waited_for=is_waited_for)
        if how.get("key") is not None:
            draft = replace(draft, digest=given.digest(draft))
            with suppress(NotFound):
                return self._resume(draft)
        for _ in upload(given.files, store=sender.store, root=sender.root, folder=batch_id):
            pass
        queue, store, state = sender.queue, sender.store, Sending()
        try:
            batch = submit_items(given.values, draft, queue=queue, store=store, begun=state.note)
            sender.nudge()
        except BaseException as exc:
            is_used = isinstance(exc, BadInput) and exc.field == "batch"
            if is_used and draft.digest and state.batch is None:
                # Another process was quicker with the same key.
                return self._resume(draft)
            if state.batch is not None:
                self._break_off(state.batch, state.stage, exc)
            raise
        return Submission(batch, self._session, sender)

    def _break_off(self, batch: Batch, stage: SendStage | None, why: BaseException) -> None:
        """Cancel a batch that is sent in part if its stream would, or tell what was sent."""
        if batch.is_waited_for:
            _cancel_surely([Submission(batch, self._session, self._sender)])
        else:
            why.add_note(say_sent(batch, stage, self._sender.options))

    def _draft(self, count: int, how: SubmitOptions, batch_id: str) -> Draft:
        settings = self._session.workload(self.name)
        draft = Draft(
            workload=self.name,
            batch_id=batch_id,
            items_per_job=_items_per_job(count, how, settings.policy.max_items_per_job),
            tenant=how.get("tenant"),
            params=how.get("params") or {},
            type=how.get("type"),
            requirements=how.get("requirements"),
            after=how.get("after") or "",
            on_failure=_on_failure(how),
        )
        if draft.after:
            try:
                check_after(draft.after, self._sender.store_of)
            except BadInput as exc:
                exc.remedy = place_commands(exc.remedy, self._sender.options)
                raise
        if draft.type is not None or draft.requirements is not None:
            check_type(
                draft,
                self._session.policy(self.name),
                settings.requirements,
                settings.run.root_volume_gib,
            )
        return draft

    def _resume(self, draft: Draft) -> "Submission[R]":
        """Return the batch of the same call (raises NotFound: there is none yet; BadInput)."""
        batch = read_batch(draft.batch_id, self._sender.store)
        if batch.digest != draft.digest:
            remedy = "name another key: its batch was made of other items or options"
            raise BadInput("key", draft.batch_id, remedy)
        self._send_lost(batch)
        return Submission(batch, self._session, self._sender)

    def _send_lost(self, batch: Batch) -> None:
        """Send again what has no message: whoever made the batch may have died before it sent."""
        store = self._sender.store
        left = sum(not read_progress(job_id, store).is_over for job_id in batch.jobs)
        if not left:
            return
        queues = self._session.queues(self.name).values()
        waiting = sum(one.visible + one.in_flight + one.delayed for one in backlogs(queues))
        if waiting < left:
            ports = self._session.work_ports(self.name)
            for _ in redrive_lost(self.name, ports, batches=[batch.batch_id]):
                pass
            self._sender.nudge()


def _on_failure(how: SubmitOptions) -> OnFailure:
    asked = how.get("on_failure")
    if asked is None:
        return OnFailure.CANCEL
    if not how.get("after"):
        raise BadInput("on_failure", asked, "give it with after=")
    try:
        return OnFailure(asked)
    except ValueError:
        raise BadInput("on_failure", asked, 'write "start" or "cancel"') from None


def _items_per_job(count: int, how: SubmitOptions, most: int) -> int:
    asked = how.get("items_per_job")
    if asked is None:
        return max(1, min(ITEMS_PER_JOB, -(-count // _JOBS), most))
    return asked


class _Given:
    """Items as they were given: JSON, and paths of files that are uploaded."""

    def __init__(self, items: Sequence[Any], prefix: str, root: str, first: int) -> None:
        #: Where its files go, below the workload's part of the bucket.
        self.prefix = prefix
        #: Each file with its name below that.
        self.files: list[tuple[Path, str]] = []
        #: As they are sent.
        self.values: list[Any] = []
        for number, item in enumerate(items):
            value = check_item(first + number, item)
            if not isinstance(item, Path):
                self.values.append(value)
                continue
            name = f"{number:06d}/{item.name}"
            self.files.append((item, name))
            self.values.append(f"{root}{prefix}{name}")

    def digest(self, draft: Draft) -> str:
        """Return the SHA-256 of all that is asked for, with the bytes of the files."""
        asked = [
            *(draft.items_per_job, draft.tenant, draft.type, draft.requirements),
            *(dict(draft.params), self.values, [digest_of(path) for path, _ in self.files]),
            *((draft.after, draft.on_failure) if draft.after else ()),
        ]
        try:
            text = json.dumps(asked, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError) as exc:
            raise BadInput("params", dict(draft.params), f"give JSON ({exc})") from exc
        return hashlib.sha256(text.encode()).hexdigest()


def section_sizes(items: Iterable[Any]) -> Iterator[int]:
    """Yield how many items each section takes, without end.

    Of an iterator nobody knows how many results are wanted: what is sent ahead grows with what is
    read.
    """
    size = SECTION_ITEMS if isinstance(items, Sized) else FIRST_ITEMS
    while True:
        yield size
        size = min(2 * size, SECTION_ITEMS)


class _Sections(Generic[R]):
    """Items that are sent section by section, as their results are read."""

    def __init__(
        self,
        workload: Workload[Any, R],
        items: Iterable[Any],
        how: StreamOptions,
        *,
        in_order: bool,
    ) -> None:
        self._workload = workload
        self._items = iter(items)
        self._how = how
        self._in_order = in_order
        self._on_exit: OnExit = how.get("on_exit") or ("detach" if how.get("key") else "cancel")
        #: Each with the place of its first item.
        self._under_way: deque[tuple[int, Submission[R]]] = deque()
        self._sizes = section_sizes(items)
        self._first_name = workload.name_batch(how)
        self._sections = self._sent = 0
        self._is_all = False
        self._is_left = Event()
        self._send_next()

    @property
    def name(self) -> str:
        """Return the name of the first batch."""
        return self._first_name

    @property
    def total(self) -> int | None:
        """Return how many items there are; None: not all have been read."""
        return self._sent if self._is_all else None

    def _send_next(self) -> None:
        size = next(self._sizes)
        items = list(islice(self._items, size))
        self._is_all = len(items) < size
        if not items or self._is_left.is_set():
            return
        self._sections += 1
        name = self._first_name if self._sections == 1 else f"{self._first_name}.{self._sections}"
        sent = self._workload.send(
            items, self._how, name, self._sent, is_waited_for=self._on_exit == "cancel"
        )
        self._under_way.append((self._sent, sent))
        self._sent += len(items)
        if self._is_left.is_set():
            # A signal's handler has left it while these were sent.
            self.leave()

    def results(self) -> Iterator[ItemResult[R] | None]:
        """Yield what comes of the items."""
        while self._under_way:
            if len(self._under_way) < _SECTIONS and not self._is_all:
                self._send_next()
            first, submission = self._under_way[0]
            yield from submission.read(in_order=self._in_order, first=first)
            self._under_way.popleft()
            if not self._under_way and not self._is_all:
                self._send_next()

    def describe(self) -> str:
        """Say which batches are not over, and what becomes of them."""
        is_left = self._on_exit == "cancel"
        return "; ".join(one.describe(is_left=is_left) for _, one in self._under_way)

    def stop(self) -> None:
        """Send no further items."""
        self._is_left.set()

    def leave(self) -> None:
        """Cancel what is not done, or let it go on."""
        self.stop()
        if self._on_exit == "cancel":
            _cancel_surely([submission for _, submission in self._under_way])


def _cancel_surely(submissions: "Sequence[Submission[Any]]") -> None:
    """Cancel batches, through a second Ctrl-C too; the third lets them go on, and says so."""
    for number in range(2):
        with suppress(KeyboardInterrupt):
            _cancel_each(submissions)
            return
        names = " ".join(one.id for one in submissions)
        said = (
            f"{names} may go on; end it with: spindown cancel {names}{submissions[0].options}"
            if number
            else f"cancelling {names}; Ctrl-C once more lets it go on"
        )
        sys.stderr.write(f"spindown: {said}\n")


def _cancel_each(submissions: "Sequence[Submission[Any]]") -> None:
    """Cancel batches, each whether or not the others can be; raise the first error."""
    errors = list[Exception]()
    for one in submissions:
        try:
            if one.is_there:
                one.cancel()
        except Exception as exc:  # noqa: BLE001 - the others must be cancelled, then it is raised
            exc.add_note(say_going_on(one.id, one.options))
            errors.append(exc)
    if errors:
        raise errors[0]


class Submission(Generic[R]):
    """One batch: how far it is, and what came of it.

    As a context it cancels what is not done at the end of the block, unless ``detach`` was called;
    otherwise it goes on, whatever becomes of this process.
    """

    def __init__(self, batch: Batch, session: Session, sender: Sender) -> None:
        self._batch = batch
        self._session = session
        self._sender = sender
        self._is_detached = self._is_in_block = self._is_over = False

    def __repr__(self) -> str:
        return f"Submission({self.id!r}, workload={self._batch.workload!r})"

    @property
    def id(self) -> str:
        """Return its name, by which ``spindown results`` and ``Workload.batch`` find it."""
        return self._batch.batch_id

    @property
    def options(self) -> str:
        """Return the options with which a command finds it, each with a space before it."""
        return self._sender.options

    @property
    def is_there(self) -> bool:
        """Tell whether an answer may come: not of a local system that has ended, with its jobs."""
        try:
            self._session.check_there()
        except SpindownError:
            return False
        return True

    @property
    def jobs(self) -> Sequence[str]:
        """Return the ids of its jobs."""
        return self._batch.jobs

    @property
    def items(self) -> int | None:
        """Return how many items it has; None: workers have yet to read them."""
        return self._batch.items

    def status(self) -> BatchCount:
        """Look at all its jobs, and return how far they are."""
        return self._count([read_progress(job, self._sender.store) for job in self.jobs])

    def _count(self, jobs: Sequence[JobProgress]) -> BatchCount:
        counts = [job.items for job in jobs if job.items is not None]
        counted = sum(counts) if len(counts) == len(jobs) else None
        return BatchCount(
            state=state_of(jobs),
            jobs=len(jobs),
            jobs_over=sum(job.is_over for job in jobs),
            items=counted if self.items is None else self.items,
            items_done=sum(job.items_done for job in jobs),
            items_failed=sum(job.items_failed for job in jobs),
            dollars=sum(job.cost_usd for job in jobs),
        )

    def wait(self, timeout: float | None = None) -> BatchCount:
        """Wait until all its jobs are over; return how they ended. Without an answer, ask again.

        Raises:
            TimeoutError: they are not over after so many seconds; the batch goes on.
            SpindownError: the local system has ended, and its jobs with it.
        """
        check_timeout(timeout)
        ends = JobEnds(self.jobs, self._sender.store, at_once=_STATES_A_LOOK)
        begun, pause = time.monotonic(), LOOK_SECONDS
        with told_at_interrupt(self.describe):
            while not ends.look_on():
                self._session.check_there()
                if timeout is not None and time.monotonic() - begun >= timeout:
                    raise TimeoutError(f"not over after {timeout:g} s: {self.describe()}")
                Event().wait(pause)
                pause = min(pause * 2, LOOK_SECONDS_MOST)
        self._is_over = True
        return self._count(list(ends.ended.values()))

    def results(self, *, timeout: float | None = None) -> ResultStream[ItemResult[R]]:
        """Stream all that is known of each item, in order; leaving it changes nothing."""
        return self._stream(read_result, timeout, in_order=True)

    def as_completed(self, *, timeout: float | None = None) -> ResultStream[ItemResult[R]]:
        """Stream the same as it is committed."""
        return self._stream(read_result, timeout, in_order=False)

    @overload
    def gather(
        self, *, return_exceptions: Literal[False] = False, timeout: float | None = None
    ) -> list[R]: ...
    @overload
    def gather(
        self, *, return_exceptions: Literal[True], timeout: float | None = None
    ) -> list[R | WorkFailed]: ...
    def gather(self, *, return_exceptions: bool = False, timeout: float | None = None) -> list[Any]:
        """Wait for all items; return their values in order.

        Raises:
            ItemFailed, JobFailed: an item has none, unless errors are returned as values.
            TimeoutError: they were not there after so many seconds; the batch goes on.
        """
        read = read_outcome if return_exceptions else read_value
        return list(self._stream(read, timeout, in_order=True))

    def _stream(self, read: Any, timeout: float | None, *, in_order: bool) -> ResultStream[Any]:
        check_timeout(timeout)
        return open_stream(_Reading(self, in_order=in_order), read, {"timeout": timeout})

    def read(self, *, in_order: bool, first: int = 0) -> Iterator[ItemResult[R] | None]:
        """Yield what comes of its items; None: nothing new for now.

        Args:
            in_order: whether in the order of the items.
            first: place of its first item among those that were given.
        """
        for found in stream_results(self._batch, self._sender.store, in_order=in_order):
            if found is None:
                self._session.check_there()
                yield None
            else:
                yield from self._tell(found, first)
        self._is_over = True

    def _tell(self, found: FoundWork, first: int) -> Iterator[ItemResult[R]]:
        place = None if found.position is None else first + found.position
        known: Mapping[str, Any] = {
            "workload": self._batch.workload,
            "batch_id": self.id,
            "job_id": found.job_id,
        }
        logs = f"spindown logs {found.job_id} --workload {known['workload']}{self._session.options}"
        if isinstance(found, CommittedItem):
            yield _read_record(found.record, place, known, logs, self._sender.store)
            return
        command = logs
        if found.state is JobState.CANCELLED:
            # None tells more of one that somebody has cancelled.
            is_asked = found.reason == REASON
            command = "" if is_asked else f"spindown status {self.id}{self._session.options}"
        for number in range(found.count):
            index = None if place is None else place + number
            error = JobFailed(
                index=index,
                item=None,
                **known,
                command=command,
                state=found.state.value,
                cause=found.reason,
            )
            yield ItemResult(index=index, item=None, error=error, job_id=found.job_id)

    def describe(self, *, is_left: bool | None = None) -> str:
        """Say which batch and job is not over, and the command by which it is seen.

        ``is_left``: what is not done is cancelled; None: as at the end of a ``with`` block.
        """
        is_left = self._is_in_block and not self._is_detached if is_left is None else is_left
        store = self._sender.store
        looked = (read_progress(job, store) for job in self.jobs[:_LOOKED_AT])
        first = ""
        # It goes into an error's words, and takes no error's place.
        with suppress(SpindownError):
            if job := next((one for one in looked if not one.is_over), None):
                failures = f", {job.failures_told}" if job.failures_told else ""
                first = f" (first of its jobs that are not over: {job.job_id}{failures})"
        if is_left:
            command = f"what is done is kept: spindown results {self.id}{self.options}"
            return f"batch {self.id}{first} is cancelled; {command}"
        command = f"spindown results {self.id} --wait{self.options}"
        return f"batch {self.id}{first} goes on; see it with: {command}"

    def cancel(self) -> None:
        """Cancel what is not done; what has been committed stays."""
        ports = self._session.work_ports(self._batch.workload)
        # One that was given up stays so: its message can be sent back.
        for _ in cancel(self._batch.workload, self.jobs, ports, failed=False):
            pass
        self._is_over = True

    def detach(self) -> None:
        """Let it go on after the ``with`` block."""
        self._is_detached = True

    def __enter__(self) -> Self:
        """Return itself; what is not done is cancelled at the end of the block."""
        self._is_in_block = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Cancel what is not done, unless it was detached."""
        self._is_in_block = False
        if not self._is_detached and not self._is_over:
            _cancel_surely([self])


def _read_record(
    record: Mapping[str, Any],
    place: int | None,
    known: Mapping[str, Any],
    command: str,
    store: ObjectStore,
) -> ItemResult[Any]:
    """Return what a record says; a worker wrote it, so nothing but its index was checked."""
    item, error, traceback = (record.get(name) for name in ("item", "error", "traceback"))
    failure = None
    if record.get("status") != ItemStatus.OK:
        failure = ItemFailed(
            index=place,
            item=item,
            **known,
            command=command,
            error=str(error),
            traceback=traceback if isinstance(traceback, str) else None,
        )
    outputs = record.get("outputs")
    named = (
        [one.get("path") for one in outputs if isinstance(one, dict)]
        if isinstance(outputs, list)
        else []
    )
    seconds = record.get("seconds")
    return ItemResult(
        index=place,
        item=item,
        error=failure,
        files=tuple(name for name in named if isinstance(name, str)),
        job_id=str(known["job_id"]),
        seconds=seconds if isinstance(seconds, float) else 0.0,
        _value=record.get("result"),
        _source=(record, store),
    )


class _Reading(Generic[R]):
    """A batch that is read by somebody whom it does not belong to."""

    def __init__(self, submission: Submission[R], *, in_order: bool) -> None:
        self._submission = submission
        self._in_order = in_order
        self.name = submission.id
        self.total = submission.items

    def results(self) -> Iterator[ItemResult[R] | None]:
        """Yield what comes of its items."""
        return self._submission.read(in_order=self._in_order)

    def describe(self) -> str:
        """Say that it goes on."""
        return self._submission.describe()

    def stop(self) -> None:
        """Do nothing: all is sent."""

    def leave(self) -> None:
        """Let it go on."""
