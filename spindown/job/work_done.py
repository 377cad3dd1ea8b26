"""Tell the ledger and the metrics what was done: a few atomic additions for each commit.

Dollars and seconds of an instance's life accrue in the scaler alone; here only what a worker
knows better: items, jobs, throughput, and the sizes and costs that are learned from samples.

An addition that is repeated after a lost answer finds its own stamp in the row and adds nothing,
unless another worker has added in between: then the items of that one commit count twice in the
day and the throughput, as they do in no manifest.
"""

import itertools
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from spindown.contract.codec import Row, decode, encode_instant
from spindown.contract.metric import DEPLOYMENT, REASON, WORKLOAD
from spindown.contract.row import (
    CHECKPOINT_RATE,
    RateRow,
    done_sort_key,
    job_sort_key,
    parse_processor_kind,
    throughput_sort_key,
    worker_partition,
)
from spindown.domain.fleet import Worker
from spindown.domain.offer import Processor
from spindown.domain.relative_throughput import relative_throughput
from spindown.error import ContractError, PreconditionFailed
from spindown.port import Datum, Key, When, WorkPorts, Write

_SAMPLES_AT_MOST = 50
#: Others that report at the same time may come between.
_TRIES = 4
#: Share that what is known of jobs loses with each report of more: some 200 reports are remembered.
_FADE = 1.0 / 200.0
#: One worker adds to one list of samples at most this often.
_SAMPLE_EVERY = timedelta(minutes=1)
#: Attribute of a row that tells the last report that was added to it; nobody else reads it.
_STAMP = "reported_by"
_NO_SUMS: Mapping[str, float] = {}
_NO_WORDS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What has been committed since the last report."""

    items_ok: int = 0
    items_failed: int = 0
    #: Of the item that failed last: its job, and its error in a line.
    failed_job: str = ""
    failed_with: str = ""
    #: Items that had been computed before and whose results were never committed.
    items_redone: int = 0
    #: Failed items, and jobs that were given up, of jobs that belong to no batch.
    failed_alone: int = 0
    #: Slot time that the committed items took on this worker. What a commit without an item took
    #: comes with the item that it has led to, so that no rate is told of an item half done.
    busy: timedelta = timedelta(0)
    #: GPU -> slot seconds that workers with other GPUs spent on the first of these items.
    earlier: Mapping[str, float] = field(default_factory=dict)
    #: Bytes of input that these items took, and of output that they gave; None: not counted.
    bytes_in: int | None = None
    bytes_out: int | None = None
    #: Time that writing the commit took; None: nothing was written.
    commit: timedelta | None = None
    #: All items of the job, once it has completed.
    job_items: int | None = None
    #: Slot time of the whole job over all epochs, once it has completed.
    job_busy: timedelta = timedelta(0)
    #: Of the job; "": it has none. What is learned of speed and size is learned for each.
    job_type: str = ""


class Reporter:
    """Where one worker reports to. Threads may share it."""

    def __init__(self, *, deployment: str, workload: str, worker: Worker, ports: WorkPorts) -> None:
        self._partition = worker_partition(workload)
        self._dimensions = {DEPLOYMENT: deployment, WORKLOAD: workload}
        self._processor = worker.processor
        self._ports = ports
        self._sampled_at: dict[str, datetime] = {}
        #: Type -> items of the jobs that were completed since the last report of any.
        self._jobs: dict[str, list[int]] = {}
        self._lock = threading.Lock()
        self._waiting: list[Datum] = []
        # Of this process: one that is started again on the same instance counts anew.
        self._process = f"{worker.instance_id}-{ports.random.getrandbits(64):016x}"
        self._reports = itertools.count()
        #: Type -> most hours, and most items, of its reports; the first of a throughput counts the
        #: worker.
        self._extremes: dict[str, tuple[float, float]] = {}

    def report(self, progress: Progress) -> None:
        """Add what was committed to what the day has done, the throughput and the samples."""
        now, stamp = self._ports.clock.now(), f"{self._process}-{next(self._reports)}"
        items = progress.items_ok + progress.items_failed
        self._add(
            done_sort_key(now),
            {
                "items": progress.items_ok,
                "items_failed": progress.items_failed,
                "items_redone": progress.items_redone,
                "failed_alone": progress.failed_alone,
                "jobs": 0 if progress.job_items is None else 1,
            },
            stamp,
            {"failed_job": progress.failed_job, "failed_with": progress.failed_with},
        )
        if items:
            hours = progress.busy / timedelta(hours=1)
            own, others = share_items(items, hours, self._processor, progress.earlier)
            kind = progress.job_type
            is_first, is_extreme = self._note_extremes(kind, own, hours)
            sums = {"count": own, "hours": hours, "reports": 1, **_moved(items, progress)}
            sums = {**sums, "lives": int(is_first)}
            # What is like no report before must not be lost: a job that hung is known by it.
            tries, sort = _TRIES if is_extreme else 1, throughput_sort_key(*self._processor, kind)
            is_sampled = hours > 0 and any(
                self._sample(sort, own / hours, stamp, sums, is_due=tries > 1) for _ in range(tries)
            )
            if not is_sampled:
                self._add(sort, sums, stamp)
            for gpu, begun in others.items():
                self._add(throughput_sort_key(*gpu, kind), begun, stamp)
        if progress.job_items is not None:
            self._learn_job(progress.job_items, progress.job_type, stamp)
        if progress.commit is not None:
            self._sample(CHECKPOINT_RATE, progress.commit.total_seconds(), stamp)
        self._emit_progress(progress)

    def _note_extremes(self, job_type: str, items: float, hours: float) -> tuple[bool, bool]:
        """Tell of a report whether it is the first of its type, and longer or larger than any."""
        with self._lock:
            is_first = job_type not in self._extremes
            longest, largest = self._extremes.get(job_type, (0.0, 0.0))
            self._extremes[job_type] = max(longest, hours), max(largest, items)
        return is_first, hours > longest or items > largest

    def _learn_job(self, items: int, job_type: str, stamp: str) -> None:
        """Report the jobs since the last report: all of them, since a large one takes longest."""
        with self._lock:
            waiting = self._jobs.setdefault(job_type, [])
            waiting.append(items)
            jobs = tuple(waiting)
        sums = {"count": float(sum(jobs)), "jobs": float(len(jobs))}
        if self._sample(job_sort_key(job_type), float(max(jobs)), stamp, sums, fade=_FADE):
            with self._lock:
                del waiting[: len(jobs)]

    def emit(self, values: Mapping[str, float], *, reason: str | None = None) -> None:
        """Keep metrics of this workload, by name, for the next ``flush``."""
        more = {} if reason is None else {REASON: reason}
        dimensions = {**self._dimensions, **more}
        with self._lock:
            self._waiting += [
                Datum(name=name, value=value, dimensions=dimensions)
                for name, value in values.items()
            ]

    def flush(self) -> None:
        """Send the metrics that wait: one request for many jobs."""
        with self._lock:
            data, self._waiting = self._waiting, []
        if data:
            self._ports.metrics.emit(data)

    def _emit_progress(self, progress: Progress) -> None:
        values: dict[str, float] = {
            "ItemsDone": progress.items_ok,
            "ItemsFailed": progress.items_failed,
            "ItemsRedone": progress.items_redone,
        }
        if progress.commit is not None:
            values["CommitSeconds"] = progress.commit.total_seconds()
        if progress.job_items is not None:
            values["JobSeconds"] = progress.job_busy.total_seconds()
        self.emit(values)

    def _add(
        self, sort: str, sums: Mapping[str, float], stamp: str, said: Mapping[str, str] = _NO_WORDS
    ) -> None:
        changes = {name: value for name, value in sums.items() if value}
        if changes:
            key, when = Key(partition=self._partition, sort=sort), When(differs={_STAMP: stamp})
            with suppress(PreconditionFailed):
                words = {name: text for name, text in said.items() if text}
                change = {_STAMP: stamp, **words}
                self._ports.table.write(Write(key=key, when=when, set=change, add=changes))

    def _sample(
        self,
        sort: str,
        value: float,
        stamp: str,
        sums: Mapping[str, float] = _NO_SUMS,
        *,
        fade: float = 0.0,
        is_due: bool = False,
    ) -> bool:
        """Append to a list of samples, and add to the row; False if neither was done.

        ``fade`` is the share that the row's sums lose first; ``is_due``: however soon after the
        last one.

        One that races with another worker's is dropped.
        """
        now = self._ports.clock.now()
        last = self._sampled_at.get(sort)
        if last is not None and now - last < _SAMPLE_EVERY and not is_due:
            return False
        self._sampled_at[sort] = now
        key = Key(partition=self._partition, sort=sort)
        row = self._ports.table.get(key) or {}
        when = When(equals={"updated_at": row.get("updated_at")})
        known = _decode_rate(row)
        samples = [*known.samples, value][-_SAMPLES_AT_MOST:]
        change: dict[str, object] = {
            "samples": samples,
            "updated_at": encode_instant(now),
            _STAMP: stamp,
        }
        added = {name: number for name, number in sums.items() if number}
        change |= _extremes(known, sums)
        if fade:
            change |= {name: getattr(known, name) * (1 - fade) + n for name, n in added.items()}
            added = {}
        try:
            self._ports.table.write(Write(key=key, when=when, set=change, add=added))
        except PreconditionFailed:
            # A client that repeats after a lost answer loses against itself.
            return (self._ports.table.get(key) or {}).get(_STAMP) == stamp
        return True


def _extremes(known: RateRow, sums: Mapping[str, float]) -> dict[str, float]:
    """Return what a report changes of the longest and the largest that a row knows."""
    items, hours = sums.get("count", 0.0), sums.get("hours", 0.0)
    found: dict[str, float] = {}
    if hours > known.longest_hours:
        found |= {"longest_hours": hours, "longest_items": items}
    if hours and items > known.largest_items:
        found |= {"largest_hours": hours, "largest_items": items}
    return found


def _decode_rate(row: Row) -> RateRow:
    """Return a row of samples; one that cannot be read begins anew."""
    try:
        return decode(RateRow, row)
    except ContractError:
        return RateRow()


def share_items(
    items: int, hours: float, gpu: Processor, earlier: Mapping[str, float]
) -> tuple[float, Mapping[Processor, Mapping[str, float]]]:
    """Divide a report's items among the GPUs that worked on them: by hours, times speed.

    The speed is that of the data sheet. Worked: 10 h on a T4, then 15 h on a GPU twice as fast,
    which ended with two items: 10 of 10 + 2 x 15 are a quarter of the work, so half an item counts
    for the T4's 10 h, and 1.5 for the other's 15 h.

    Args:
        items: how many are done.
        hours: slot hours on the GPU that ended with them.
        gpu: that GPU.
        earlier: GPU -> slot seconds that others had spent on the first item.

    Returns:
        The items that count for ``gpu``; of each other GPU, what to add to its throughput.
    """
    named = ((parse_processor_kind(each), seconds) for each, seconds in earlier.items())
    spent = {
        kind: seconds / _SECONDS_PER_HOUR
        for kind, seconds in named
        if kind is not None and kind != gpu and seconds > 0.0
    }
    if not spent:
        return items, {}
    work = {kind: hours * relative_throughput(*kind) for kind, hours in spent.items()}
    own = hours * relative_throughput(*gpu)
    each = (own + sum(work.values())) / items
    others = {kind: {"count": work[kind] / each, "hours": spent[kind]} for kind in spent}
    return own / each, others


_SECONDS_PER_HOUR = 3600.0
_BYTES_PER_GIB = 2**30


def _moved(items: int, progress: Progress) -> Mapping[str, float]:
    """Return what a report says of bytes, as the row of the throughput sums it up."""
    if progress.bytes_in is None or progress.bytes_out is None:
        return {}
    return {
        "moved": items,
        "gib_in": progress.bytes_in / _BYTES_PER_GIB,
        "gib_out": progress.bytes_out / _BYTES_PER_GIB,
    }
