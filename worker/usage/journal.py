"""The usage records of one worker: made when a job leaves a slot, written to S3 many at a time.

A record a job would be a request a job. Those of some minutes go into one object instead, named
by the first of them; what a crash takes along is missing from questions about usage, and from
no account of money.
"""

import threading
from collections import deque
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from spindown.contract.job.manifest import Manifest
from spindown.contract.log import JOB_USED
from spindown.contract.usage import UsageEnd, UsageRecord, encode_usage, measured_key
from spindown.domain.fleet import Worker
from spindown.domain.policy import JobNeeds
from spindown.domain.value_range import ATTEMPT_SECONDS_MOST
from spindown.error import SpindownError
from spindown.job.claimed_job import ClaimedJob
from spindown.port import Clock, ObjectStore
from spindown.worker.log import EventLog
from spindown.worker.settings import AskedMachine
from spindown.worker.usage.meter import Meter
from spindown.worker.usage.summary import summarise

#: How long a record waits for others.
_PATIENCE = timedelta(minutes=5)
#: So many do not wait; with the longest of series they are well within one object.
_RECORDS_ENOUGH = 400
#: Beyond them the oldest are dropped, while S3 takes none.
_RECORDS_AT_MOST = 10_000


class UsageJournal:
    """Records that wait to be written. Threads may share it."""

    def __init__(self, objects: ObjectStore, clock: Clock, log: EventLog) -> None:
        self._objects = objects
        self._clock = clock
        self._log = log
        self._lock = threading.Lock()
        self._waiting: deque[UsageRecord] = deque(maxlen=_RECORDS_AT_MOST)
        self._since: datetime | None = None

    def add(self, record: UsageRecord) -> None:
        """Let a record wait."""
        with self._lock:
            self._since = self._since or self._clock.now()
            self._waiting.append(record)

    def write_if_due(self) -> None:
        """Write what waits if it has waited for long enough or has become many."""
        since = self._since
        if since is None:
            return
        if self._clock.now() - since >= _PATIENCE or len(self._waiting) >= _RECORDS_ENOUGH:
            self.write()

    def write(self) -> None:
        """Write what waits; what cannot be written waits for the next time."""
        with self._lock:
            records = list(self._waiting)
            self._waiting.clear()
            self._since = None
        for first in range(0, len(records), _RECORDS_ENOUGH):
            self._put(records[first : first + _RECORDS_ENOUGH])

    def _put(self, records: Sequence[UsageRecord]) -> None:
        try:
            key = measured_key(records[0], self._clock.now().date())
            self._objects.put(key, encode_usage(records))
        except SpindownError as exc:
            self._log.warning("usage_not_written", reason=str(exc))
            for record in records:
                self.add(record)


class Look(Protocol):
    """Lets the machine be looked at now."""

    def __call__(self, *, wait: bool) -> None:
        """Ask for a look; ``wait``: for a moment, until it is done."""
        ...


class UsageRecorder:
    """Writes the records of one slot, one job after the other."""

    def __init__(
        self,
        *,
        workload: str,
        worker: Worker,
        meter: Meter,
        journal: UsageJournal,
        asked: AskedMachine,
        log: EventLog,
        look: Look,
    ) -> None:
        self._workload = workload
        self._worker = worker
        self._meter = meter
        self._journal = journal
        self._asked = asked
        self._log = log
        self._look = look

    def begin(self) -> None:
        """Note that a job begins."""
        self._meter.begin()
        self._look(wait=False)

    @property
    def memory_peak(self) -> float | None:
        """Return the most memory that the job was seen to use, GiB; None: nobody has looked."""
        return self._meter.memory_peak

    @property
    def vram_peak(self) -> float | None:
        """Return the most memory of one GPU that was seen in use, GiB; None: nobody has looked."""
        return self._meter.vram_peak

    @property
    def vram_gib(self) -> float:
        """Return the memory of a GPU of the slot, GiB; 0: there is none, or its driver is mute."""
        return self._meter.vram_gib

    def end(
        self,
        taken: ClaimedJob,
        left: Manifest,
        end: UsageEnd,
        needs: JobNeeds,
        *,
        since: datetime,
        until: datetime,
        error: str = "",
    ) -> None:
        """Note how a job has left: as it was ``taken``, and its manifest as it was ``left``.

        ``needs`` are what its message and type ask for; what they leave out, the workload does.
        ``error`` is that of the first item that failed.
        """
        self._look(wait=True)
        worker, before = self._worker, taken.manifest
        slots = max(worker.slots, 1)
        record = UsageRecord(
            job_id=taken.job_id,
            batch_id=taken.job.batch_id or "",
            epoch=before.epoch,
            workload=self._workload,
            type=taken.job.type or "",
            instance_id=worker.instance_id,
            instance_type=worker.instance_type,
            region=worker.region,
            zone=worker.zone,
            capacity_type=worker.capacity_type.value,
            gpu=worker.gpu_name,
            gpu_count=worker.gpu_count / slots,
            slots=slots,
            price_per_hour=worker.price_per_hour,
            started_at=since,
            end=end,
            routed_at=before.routed_at,
            shape=taken.lease.shape,
            # Somebody may have set the clock, and no reader takes what no attempt lasts.
            seconds=min(max((until - since).total_seconds(), 0.0), ATTEMPT_SECONDS_MOST),
            items=left.next_item - before.next_item,
            items_redone=max(taken.lease.items_done - before.next_item, 0),
            items_failed=left.items_failed - before.items_failed,
            asked_vcpus=needs.vcpus or self._asked.vcpus,
            asked_memory_gib=needs.memory_gib or self._asked.memory_gib,
            asked_vram_gib=needs.gpu_memory_gib or self._asked.vram_gib,
            stated=" ".join(before.stated),
        )
        record = self._meter.end(record)
        self._journal.add(record)
        summary = summarise(record, error, items_failed=left.items_failed)
        self._log.info(JOB_USED, job_id=record.job_id, epoch=record.epoch, summary=summary)
