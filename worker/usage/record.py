"""What one slot's use of the machine comes to, each time that a job leaves it."""

from dataclasses import asdict
from datetime import datetime

from spindown.contract.job.manifest import Manifest
from spindown.contract.usage import UsageEnd, UsageRecord
from spindown.domain.fleet import Worker
from spindown.job.held import ClaimedJob
from worker.usage.journal import UsageJournal
from worker.usage.meter import Meter


class UsageRecorder:
    """Writes the records of one slot, one job after the other."""

    def __init__(
        self, *, workload: str, worker: Worker, meter: Meter, journal: UsageJournal
    ) -> None:
        self._workload = workload
        self._worker = worker
        self._meter = meter
        self._journal = journal

    def begin(self) -> None:
        """Note that a job begins."""
        self._meter.begin()

    def end(
        self, taken: ClaimedJob, left: Manifest, end: UsageEnd, *, since: datetime, until: datetime
    ) -> None:
        """Note how a job has left: as it was ``taken``, and its manifest as it was ``left``."""
        worker, before = self._worker, taken.manifest
        slots = max(worker.slots, 1)
        self._journal.add(
            UsageRecord(
                job_id=taken.job_id,
                batch_id=taken.job.batch_id or "",
                epoch=before.epoch,
                workload=self._workload,
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
                seconds=(until - since).total_seconds(),
                items=left.next_item - before.next_item,
                items_redone=max(taken.lease.items_done - before.next_item, 0),
                items_failed=left.items_failed - before.items_failed,
                **asdict(self._meter.end()),
            )
        )
