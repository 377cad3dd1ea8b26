"""Keep the lease of one slot: the heartbeat's side and the job's side, under one lock."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from spindown.domain.fleet import CodeProgress, Lease
from spindown.domain.policy import Policy
from spindown.error import LeaseLost
from spindown.job.claimed_job import ClaimedJob, SlotId
from spindown.job.heartbeat import extend_lease
from spindown.job.worker_row import WorkerRow
from spindown.port import WorkPorts


class LeaseRenewer:
    """The lease that a slot holds, if any. The heartbeat's thread and the slot's share it."""

    def __init__(self, slot_id: SlotId, worker_row: WorkerRow, ports: WorkPorts) -> None:
        self._slot_id = slot_id
        self._worker_row = worker_row
        self._ports = ports
        self._lock = threading.Lock()
        self._lease: Lease | None = None
        #: The lease was found to be another's: nothing of ours may be written.
        self.is_lost = False
        #: Items computed so far, which the row tells whoever comes after a crash.
        self.items_done = 0
        #: Items that there are; 0: the input has not been read yet.
        self.items = 0
        #: What the code says of its progress; None: nothing.
        self.progress: CodeProgress | None = None

    def take(self, held: ClaimedJob, not_after: datetime | None) -> None:
        """Begin to keep a lease; ``not_after`` is the instance's own end, if that is known."""
        with self._lock:
            self._lease = held.lease
            self.is_lost = False
            self.items_done = held.manifest.next_item
            self.items = held.manifest.items or 0
            self.progress = None
        if not_after is not None:
            self.bound(not_after)

    @property
    def is_keeping(self) -> bool:
        """Tell whether the slot holds a lease."""
        return self._lease is not None

    def beat(self, policy: Policy) -> None:
        """Extend the lease, if there is one (raises what proves nothing; a loss is noted)."""
        with self._lock:
            if self._lease is None or self.is_lost:
                return
            try:
                self._lease = extend_lease(
                    self._lease,
                    items_done=self.items_done,
                    items=self.items,
                    progress=self.progress,
                    slot_id=self._slot_id,
                    ports=self._ports,
                    policy=policy,
                )
            except LeaseLost:
                self.is_lost = True

    def bound(self, not_after: datetime) -> None:
        """Let the lease end with the instance."""
        with self._lock:
            if self._lease is not None:
                self._lease = self._worker_row.bound_lease(self._slot_id, self._lease, not_after)

    @contextmanager
    def letting_go(self) -> Iterator[Lease]:
        """Give the lease as it stands, to be cleared; no heartbeat comes between or after."""
        with self._lock:
            if self._lease is None:
                raise LeaseLost("this slot holds no lease")
            lease, self._lease = self._lease, None
            yield lease
