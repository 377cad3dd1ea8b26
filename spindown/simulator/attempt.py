"""One slot's work on one job in virtual time: compute, commit on the way, end in order.

The order of steps is that of ``worker.attempt``; what touches a port is the shipped use case.
"""

import math
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from spindown.app.work.commit import Portion, commit, complete
from spindown.app.work.heartbeat import extend_lease
from spindown.app.work.held import Finished, Held
from spindown.app.work.progress import Progress
from spindown.app.work.release import abandon, release, settle_release
from spindown.contract.codec import replace_fields
from spindown.contract.job.manifest import JobState
from spindown.contract.job.result import ItemStatus, Record
from spindown.domain.checkpointing import interval_hours, is_due
from spindown.domain.fleet import Lease
from spindown.domain.lease import RELEASE_AFTER
from spindown.ec2sim import Planned, Turn
from spindown.error import LeaseLost

if TYPE_CHECKING:
    from spindown.simulator.slot import SimSlot

#: Key in a job's params: seconds of one item on the reference GPU.
ITEM_SECONDS = "item_seconds"

_HOUR = timedelta(hours=1)
#: Time that a commit takes, until one has been measured (as ``worker.attempt`` assumes).
_COST_ESTIMATE = timedelta(seconds=1)
#: How often a slot looks up whether a commit is due.
_LOOK_UP = timedelta(milliseconds=200)
#: Instants are whole microseconds; an item that ends within ten of them is done.
_ROUNDING = 1e-5


class SimAttempt:
    """A held job, from its claim until it is completed, given back or lost."""

    def __init__(self, slot: "SimSlot", held: Held, total: int) -> None:
        self._slot = slot
        self._site = slot.site
        self._worker = slot.worker
        self._agenda = slot.site.agenda
        self._commit_takes = timedelta(seconds=slot.site.delays.commit)
        self.held = held
        self._total = total
        self._first = held.manifest.next_item
        #: Items before this one are in a commit, done or under way.
        self._next = self._first
        #: Seconds of one item on this slot.
        self._per_item = float(held.job.params[ITEM_SECONDS]) / slot.worker.speed
        self.began = self._committed_at = self._busy_from = self._agenda.now
        self._cost: timedelta | None = None
        self._planned: Planned | None = None
        #: A commit under way: when it is done, what is in it.
        self._written_at: datetime | None = None
        self._writing: tuple[Planned, Portion] | None = None
        self._plan_on()

    @property
    def items_done(self) -> int:
        """Return how many items are computed, from the first of all."""
        run = (self._agenda.now - self.began).total_seconds()
        return min(self._total, self._first + math.floor((run + _ROUNDING) / self._per_item))

    @property
    def lost_seconds(self) -> float:
        """Return the computing whose results are not committed now."""
        run = min(self._agenda.now, self._done_at(self._total)) - self.began
        kept = (self.held.manifest.next_item - self._first) * self._per_item
        return max(run.total_seconds() - kept, 0.0)

    def beat(self) -> None:
        """Extend the lease."""
        try:
            lease = extend_lease(
                self.held.lease,
                items_done=self.items_done,
                items=self._total,
                seat=self._slot.seat,
                ports=self._site.ports,
                policy=self._worker.policy,
            )
        except LeaseLost:
            self._lose()
        else:
            self._keep(lease)

    def bound(self, deadline: datetime) -> None:
        """Let the lease end with the instance."""
        presence = self._worker.presence
        self._keep(presence.bound_lease(self._slot.seat, self.held.lease, deadline))

    def give_back(self) -> None:
        """Commit what is done and release the job."""
        if self._writing is not None:
            # ``worker.transfer.writer`` waits for it; that fraction of a second is left out.
            self._written()
            if self._slot.attempt is not self:
                return
        portion = self._portion(self.items_done)
        try:
            self.held = settle_release(
                self.held,
                portion,
                interrupted=self._worker.life.is_interrupted,
                seat=self._slot.seat,
                ports=self._site.ports,
            )
        except LeaseLost:
            self._lose()
            return
        self._tell(portion)
        if self.held.manifest.state is JobState.COMPLETED:
            self._close()
            return
        release(
            self.held, seat=self._slot.seat, presence=self._worker.presence, ports=self._site.ports
        )
        self._site.record.note("released", self.held.job_id)
        self._site.record.stopped(self.held.job_id)
        self._slot.ended()

    def call_off(self) -> None:
        """Let none of its events happen."""
        if self._planned is not None:
            self._planned.call_off()
        if self._writing is not None:
            self._writing[0].call_off()
        self._planned = self._writing = None

    def _done_at(self, item: int) -> datetime:
        return self.began + timedelta(seconds=(item - self._first) * self._per_item)

    def _plan_on(self) -> None:
        """Plan what comes first: a commit on the way, the cap of SQS, or the end."""
        if self._planned is not None:
            self._planned.call_off()
        end = self._done_at(self._total)
        give_back = self.held.message.received_at + RELEASE_AFTER
        if self._writing is None and (due := self._commit_due()) < min(end, give_back):
            self._planned = self._agenda.plan(due, Turn.WORKER, self._checkpoint)
        elif give_back < end:
            self._planned = self._agenda.plan(give_back, Turn.WORKER, self.give_back)
        else:
            at = max(end, self._written_at or end) + self._commit_takes
            self._planned = self._agenda.plan(at, Turn.WORKER, self._finish)

    def _interval(self) -> timedelta:
        cost = (self._cost or _COST_ESTIMATE) / _HOUR
        rate = self._worker.interruption_rate
        return timedelta(hours=interval_hours(self._worker.policy, cost_hours=cost, rate=rate))

    def _commit_due(self) -> datetime:
        due = max(self._committed_at + self._interval(), self._done_at(self._next + 1))
        every = self._worker.policy.checkpoint_items
        return due if every is None else min(due, self._done_at(self._next + max(every, 1)))

    def _checkpoint(self) -> None:
        """Begin a commit if the shipped rule says so."""
        now, done = self._agenda.now, self.items_done
        if not is_due(
            self._worker.policy,
            items_since=done - self._next,
            elapsed=now - self._committed_at,
            interval=self._interval(),
        ):
            self._planned = self._agenda.plan(now + _LOOK_UP, Turn.WORKER, self._checkpoint)
            return
        self._planned = None
        portion = self._portion(done)
        self._committed_at = now
        self._written_at = now + self._commit_takes
        planned = self._agenda.plan(self._written_at, Turn.WORKER, self._written)
        self._writing = planned, portion
        self._plan_on()

    def _written(self) -> None:
        if self._writing is None:
            return
        planned, portion = self._writing
        planned.call_off()
        self._writing = self._written_at = None
        if self._commit(portion):
            self._cost = self._commit_takes
            self._plan_on()

    def _finish(self) -> None:
        if self._commit(self._portion(self._total)):
            self._close()

    def _close(self) -> None:
        slot = self._slot
        complete(self.held, seat=slot.seat, presence=self._worker.presence, ports=self._site.ports)
        self._site.record.completed(self.held.job_id, self._total)
        slot.ended((self.held.job_id, False))

    def _lose(self) -> None:
        abandon(self.held, seat=self._slot.seat, presence=self._worker.presence)
        self._site.record.note("lost", self.held.job_id)
        self._slot.ended()

    def _keep(self, lease: Lease) -> None:
        if lease is not self.held.lease:
            self.held = replace_fields(self.held, {"lease": lease})

    def _portion(self, end: int) -> Portion:
        now, items = self._agenda.now, self.held.job.items
        finished = tuple(
            Finished(
                record=Record(
                    job_id=self.held.job_id,
                    index=index,
                    item=None if items is None else items[index],
                    status=ItemStatus.OK,
                    seconds=self._per_item,
                )
            )
            for index in range(self._next, end)
        )
        self._next = end
        busy, self._busy_from = now - self._busy_from, now
        return Portion(finished=finished, busy=busy)

    def _commit(self, portion: Portion) -> bool:
        """Commit a portion; False if the job is another's by now."""
        try:
            self.held = commit(self.held, portion, seat=self._slot.seat, ports=self._site.ports)
        except LeaseLost:
            self._lose()
            return False
        self._tell(portion)
        return True

    def _tell(self, portion: Portion) -> None:
        manifest = self.held.manifest
        is_completed = manifest.state is JobState.COMPLETED
        self._worker.reporter.report(
            Progress(
                items_ok=len(portion.finished),
                busy=portion.busy,
                commit=self._commit_takes if portion.finished else None,
                job_items=manifest.items if is_completed else None,
                job_busy=timedelta(seconds=manifest.busy_seconds),
            )
        )
