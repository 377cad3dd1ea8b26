"""What the code of jobs prints: kept of attempts that have ended, and read live of those that run.

An attempt's output is kept in the bucket, whole once it has ended (``job.attachment.log``). Until
then it is read from the log of the workload, where workers send it within a second. Lines of
several machines arrive out of order, so each look begins some seconds before the last line and
leaves out what was seen. A worker that had no answer sends its lines again; it numbers them, so
that a copy is known by being equal.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any

from spindown.contract.job.manifest import JobState, Manifest
from spindown.contract.job.message import own_children
from spindown.contract.log import (
    ATTEMPT_FAILED,
    JOB_USED,
    USER_OUTPUT,
    USER_OUTPUT_LEFT_OUT,
    USER_OUTPUT_LIMIT,
    USER_PROGRESS,
    followed_ids,
    read_event,
)
from spindown.error import NotFound, SpindownError, Throttled, Unreachable
from spindown.job.attachment.log import read_logs
from spindown.job.result import JobProgress, read_manifest, read_progress
from spindown.port import Clock, LogEvent, LogSource, ObjectStore

#: An event may arrive so much later than one that is younger.
LATE_BY = timedelta(seconds=10)
#: What a job printed last arrives so long after its end at the latest, as a rule.
LINGER = timedelta(seconds=3)
#: Jobs whose state is read in one look; a batch of more is gone through in turn.
_STATES_A_LOOK = 20
_READS_AT_ONCE = 10
#: Lost attempts of one job that are named.
_LOST_SHOWN = 100
#: How long the log group keeps its events (``infra.shared.resources.make_log``).
_KEPT_FOR = timedelta(days=30)

#: Event of a line -> the field that it must have, and of which type.
_SHOWN: Mapping[str, tuple[str, type]] = {
    USER_OUTPUT: ("text", str),
    USER_OUTPUT_LEFT_OUT: ("lines", int),
    USER_OUTPUT_LIMIT: ("bytes_a_day", int),
    USER_PROGRESS: ("text", str),
    ATTEMPT_FAILED: ("reason", str),
    JOB_USED: ("summary", str),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A line that code has printed, or what a worker has to say of its output."""

    job_id: str
    #: The epoch; 0: not known.
    attempt: int
    #: Of ``contract.log``.
    event: str
    #: What was printed, a number of lines or bytes, or a reason, by the event.
    value: str | int | None
    #: Of a progress, beside its text.
    done: int | None = None
    of: int | None = None
    #: None: the line was kept without its time and machine.
    at: datetime | None = None
    instance_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLog:
    """The output of one attempt that has ended, bounded in the middle (``worker.child.output``)."""

    job_id: str
    attempt: int
    #: None: its worker was lost, and kept nothing.
    text: str | None
    #: Lost attempts before this one that are not shown.
    left_out: int = 0


def read_kept(job_id: str, store: ObjectStore) -> Iterator[KeptLog]:
    """Yield the output of the attempts that have ended, of a job and of its children.

    Of one that has not ended in order only a part may be kept, and all that was sent is in the log.
    Of the lost attempts of a job the last ones are shown, since a worker may write any number.
    """
    manifest = _read_manifest(job_id, store)
    children = own_children(job_id, manifest.children) if manifest else ()
    for name in (job_id, *children):
        if name != job_id:
            manifest = _read_manifest(name, store)
        lost = sorted(set(manifest.lost_epochs)) if manifest else []
        left_out = len(lost[:-_LOST_SHOWN])
        found: dict[int, str | None] = dict.fromkeys(lost[-_LOST_SHOWN:])
        found.update(read_logs(name, store))
        if manifest and manifest.state is JobState.RUNNING and not manifest.released:
            found.pop(manifest.epoch, None)
        for attempt, text in sorted(found.items()):
            yield KeptLog(job_id=name, attempt=attempt, text=text, left_out=left_out)
            left_out = 0


def _read_manifest(job_id: str, store: ObjectStore) -> Manifest | None:
    """Return a manifest; None: nobody can say, and what was kept is shown all the same."""
    with suppress(SpindownError):
        return read_manifest(job_id, store)
    return None


@dataclass
class LiveLog:
    """The log of jobs, or of one instance, from one look to the next."""

    source: LogSource
    #: Where the first look begins.
    since: datetime
    #: Their ids; empty: all jobs.
    jobs: Sequence[str] = ()
    #: The one instance; "": all.
    instance_id: str = ""
    #: (Job, attempt) whose output is not shown, since it was kept.
    left_out: Collection[tuple[str, int]] = ()
    #: Hash of a stream and its event -> when it happened.
    _seen: dict[int, datetime] = field(default_factory=dict)

    def look(self) -> Iterator[LogLine]:
        """Yield the lines that have arrived since the last look, oldest first."""
        newest = self.since
        names = [name for job in self.jobs for name in followed_ids(job)]
        for event in self.source.read(since=self.since, jobs=names, stream=self.instance_id):
            name = hash((event.stream, event.message))
            if name in self._seen:
                continue
            self._seen[name] = event.at
            newest = max(newest, event.at)
            found = read_event(event.message) or {}
            # The log of an instance has what comes again, as of no job, from its first time.
            if self.instance_id and found.get("again") is True:
                continue
            line = _read_line(event, found)
            if line is None:
                continue
            # How an attempt ended is not among what was kept of its output.
            if line.event == JOB_USED or (line.job_id, line.attempt) not in self.left_out:
                yield line
        self.since = max(self.since, newest - LATE_BY)
        self._seen = {name: at for name, at in self._seen.items() if at >= self.since}


def _read_line(event: LogEvent, found: Mapping[str, Any]) -> LogLine | None:
    """Return the line of an event, by what its message holds.

    None: it is of another kind, or none that a worker writes.
    """
    name, job_id, attempt = found.get("event"), found.get("job_id"), found.get("epoch")
    if not isinstance(name, str) or name not in _SHOWN or not isinstance(job_id, str):
        return None
    key, kind = _SHOWN[name]
    # A bool is an int to isinstance.
    if type(found.get(key)) is not kind:
        return None
    done, of = (_number(found.get(key)) for key in ("done", "of"))
    if name == USER_PROGRESS and (done is None or of is None):
        return None
    return LogLine(
        job_id=job_id,
        attempt=_number(attempt) or 0,
        event=name,
        value=found[key],
        done=done,
        of=of,
        at=event.at,
        instance_id=event.stream,
    )


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def begin_live(
    source: LogSource,
    jobs: Sequence[str],
    store: ObjectStore,
    kept: Collection[tuple[str, int]],
    now: datetime,
) -> LiveLog:
    """Return the log of jobs from where what was kept of them ends.

    Args:
        source: the log of their workload.
        jobs: their ids.
        store: their workload's.
        kept: (job, attempt) whose output was kept.
        now: the time.
    """
    begun = [now - LATE_BY]
    for job_id in jobs:
        with suppress(NotFound):
            manifest = read_manifest(job_id, store)
            if manifest.claimed_at is not None and (job_id, manifest.epoch) not in kept:
                begun.append(manifest.claimed_at - LATE_BY)
    since = max(min(begun), now - _KEPT_FOR)
    return LiveLog(source, since, jobs=jobs, left_out=kept)


def live_of_jobs(source: LogSource, jobs: Sequence[str], now: datetime) -> LiveLog:
    """Return the log of jobs from its beginning, as far as the log group keeps it."""
    return LiveLog(source, now - _KEPT_FOR, jobs=jobs)


def live_of_instance(source: LogSource, instance_id: str, now: datetime) -> LiveLog:
    """Return the log of one instance from its beginning."""
    return LiveLog(source, now - _KEPT_FOR, instance_id=instance_id)


class LogFollower:
    """Looks at a log until what it follows has ended, and a little longer."""

    def __init__(self, live: LiveLog, has_ended: Callable[[], bool], clock: Clock) -> None:
        self._live = live
        self._has_ended = has_ended
        self._clock = clock
        self._ended_at: datetime | None = None

    @property
    def is_over(self) -> bool:
        """Tell whether nothing more is expected."""
        return self._ended_at is not None and self._clock.now() - self._ended_at >= LINGER

    def look(self) -> Iterator[LogLine]:
        """Yield what is new; without an answer of AWS that is nothing, this time."""
        with suppress(Throttled, Unreachable):
            # Before the log is read: then what it says of the end is read too.
            if self._ended_at is None and self._has_ended():
                self._ended_at = self._clock.now()
            yield from self._live.look()


class JobEnds:
    """How jobs end, asked again and again."""

    def __init__(
        self, jobs: Sequence[str], store: ObjectStore, *, at_once: int = _STATES_A_LOOK
    ) -> None:
        """Follow these jobs; one look reads the states of ``at_once`` of them at most."""
        self._store = store
        self._open = deque(jobs)
        self._at_once = at_once
        #: The jobs that are over.
        self.ended: dict[str, JobProgress] = {}
        #: The jobs that were looked at, as they were then.
        self.latest: dict[str, JobProgress] = {}
        #: Whether most jobs of the last look had ended: the next one need not wait.
        self.is_ending = False

    def look(self) -> bool:
        """Look at some of those that are not over, while AWS answers; tell whether all are."""
        names, before = list(islice(self._open, self._at_once)), len(self.ended)
        read = partial(read_progress, store=self._store)
        with suppress(Throttled, Unreachable), ThreadPoolExecutor(_READS_AT_ONCE) as pool:
            for progress in pool.map(read, names):
                job_id = self._open.popleft()
                self.latest[job_id] = progress
                if progress.is_over:
                    self.ended[job_id] = progress
                else:
                    self._open.append(job_id)
        self.is_ending = 2 * (len(self.ended) - before) >= len(names)
        return not self._open

    def look_again(self) -> None:
        """Read once more how cancelled jobs have ended: their workers add dollars after that."""
        names = [job for job, end in self.ended.items() if end.state is JobState.CANCELLED]
        read = partial(read_progress, store=self._store)
        with suppress(Throttled, Unreachable), ThreadPoolExecutor(_READS_AT_ONCE) as pool:
            self.ended.update(zip(names, pool.map(read, names), strict=True))

    def look_on(self) -> bool:
        """Look again as long as most jobs of a look had ended; tell whether all are over."""
        while not self.look():
            if not self.is_ending:
                return False
        return True
