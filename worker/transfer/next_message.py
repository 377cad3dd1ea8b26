"""The next message of a slot, with its input, while the last batch of the job before computes.

So the GPU waits neither for a poll nor for S3 between two jobs. Nothing is claimed ahead: the
message is only hidden from others, and for no longer than a lease would hide it.
"""

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from spindown.contract.job.message import JobMessage, parse_job, with_id
from spindown.domain.policy import Dispatch
from spindown.error import SpindownError
from spindown.job.claimed_job import ClaimedJob
from spindown.job.item import look_at_items
from spindown.job.message import put_back, read_stored
from spindown.port import Message, WorkPorts
from spindown.worker.lifecycle import SharedLifecycle
from spindown.worker.log import EventLog
from spindown.worker.transfer.prefetch import Prefetch

#: A message is not taken from others for longer than this before its work begins.
AHEAD_AT_MOST = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class _Next:
    message: Message
    received_at: datetime
    job_id: str | None = None
    prefetch: Prefetch | None = None


class NextMessage:
    """Looks one message ahead. The slot's thread asks; the executor's fetches."""

    def __init__(
        self,
        *,
        life: SharedLifecycle,
        ports: WorkPorts,
        batch_size: int,
        scratch: Path,
        executor: Executor,
        log: EventLog,
    ) -> None:
        self._life = life
        self._ports = ports
        self._batch_size = batch_size
        self._scratch = scratch
        self._executor = executor
        self._log = log
        self._numbers = count()
        self._pending: Future[_Next | None] | None = None
        self._taken: _Next | None = None
        #: Time that an item of the job before took; None: nothing is known yet.
        self._item_seconds: float | None = None

    def note_pace(self, items: int, took: timedelta) -> None:
        """Learn how long items take."""
        if items > 0:
            self._item_seconds = took.total_seconds() / items

    def begin(self, items_left: int) -> None:
        """Look ahead if the items that are left will be done soon, and another job is to come."""
        if self._pending is not None or self._item_seconds is None or self._life.is_finishing:
            return
        if self._life.state.standing.dispatch is Dispatch.DEDICATED:
            return
        if self._item_seconds * items_left <= self._at_most().total_seconds():
            self._pending = self._executor.submit(self._fetch)

    def take(self) -> Message | None:
        """Return the message that was received ahead, if there is one."""
        if self._taken is not None and self._taken.prefetch is not None:
            # Its job was not to be had.
            self._taken.prefetch.remove()
        self._taken = None
        found = self._settle()
        if found is None:
            return None
        waited = self._ports.clock.now() - found.received_at
        if waited > 2 * self._at_most():
            # Others might see it before the first heartbeat hides it for longer.
            self._put_back(found)
            return None
        self._taken = found
        return found.message

    def prefetched(self, held: ClaimedJob, values: Sequence[Any]) -> Prefetch | None:
        """Return the prefetch of a job that was just claimed, if it was begun ahead.

        ``values``: its items as they are settled. What was looked at may be an older list.
        """
        taken, self._taken = self._taken, None
        if taken is None or taken.prefetch is None:
            return None
        is_other = taken.job_id != held.job_id or taken.prefetch.values != values
        if is_other or held.manifest.next_item != 0:
            taken.prefetch.remove()
            return None
        return taken.prefetch

    def drop(self) -> None:
        """Give back what was received: no job is taken any more."""
        found = self._settle()
        if found is not None:
            self._put_back(found)

    def _at_most(self) -> timedelta:
        return min(AHEAD_AT_MOST, self._life.policy.lease_duration / 4)

    def _settle(self) -> _Next | None:
        pending, self._pending = self._pending, None
        if pending is None or pending.cancelled():
            return None
        try:
            return pending.result()
        except SpindownError as exc:
            self._log.warning("not_looked_ahead", reason=str(exc))
            return None

    def _put_back(self, found: _Next) -> None:
        if found.prefetch is not None:
            found.prefetch.remove()
        try:
            put_back(found.message, timedelta(0), self._ports.queue)
        except SpindownError as exc:
            # It becomes visible by itself.
            self._log.warning("message_not_put_back", reason=str(exc))

    def _fetch(self) -> _Next | None:
        hidden_for = self._life.policy.lease_duration
        message = self._ports.queue.receive(wait=timedelta(0), visibility=hidden_for)
        if message is None:
            return None
        found = _Next(message, self._ports.clock.now())
        if message.receive_count > 1:
            # Where it goes on stands in its manifest, which only a claim should read.
            return found
        try:
            job = with_id(parse_job(message.body), message.message_id)
            return self._prefetch(found, read_stored(job, self._ports.objects))
        except (SpindownError, OSError):
            # Whatever is wrong with it, or with the disk, shows again, and is dealt with then.
            return found

    def _prefetch(self, found: _Next, job: JobMessage) -> _Next:
        values = look_at_items(job, self._ports)
        prefetch = Prefetch(
            values,
            inputs=self._ports.inputs,
            scratch=self._scratch / f"ahead-{next(self._numbers)}",
            executor=self._executor,
        )
        prefetch.begin(range(min(self._batch_size, len(values))))
        return _Next(found.message, found.received_at, job.job_id, prefetch)
