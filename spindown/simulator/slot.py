"""One slot of a simulated worker: it polls, claims, and works on one job at a time.

The order of steps is that of ``worker.slot``; what touches a port is the shipped use case.
"""

import math
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from spindown.app.port import Message
from spindown.app.work.claim import ClaimOutcome, Declined, claim
from spindown.app.work.commit import complete
from spindown.app.work.held import Held, Seat
from spindown.app.work.item import settle_items
from spindown.app.work.message import put_back
from spindown.app.work.progress import Progress
from spindown.app.work.split import is_too_large, split
from spindown.domain.idle import poll_wait
from spindown.domain.reason import ReasonCode
from spindown.ec2sim import Planned, Turn
from spindown.simulator.attempt import SimAttempt
from spindown.simulator.handout import Poll

if TYPE_CHECKING:
    from spindown.simulator.worker import SimWorker

#: SQS's longest poll, seconds.
_POLL_AT_MOST = 20
#: A request takes at least this long, so that polling without a pause moves in time.
_REQUEST_SECONDS = 0.01
_ZERO = timedelta(0)


class SimSlot:
    """A slot; ``worker`` knows what all slots of an instance share."""

    def __init__(self, worker: "SimWorker", number: int) -> None:
        self.worker = worker
        self.site = worker.site
        self.seat = Seat(
            workload=worker.site.workload,
            instance_id=worker.instance_id,
            slot=number,
            price_per_hour=worker.row.price_per_hour / max(worker.row.slots, 1),
        )
        #: Since when it has had no job; None while it works on one.
        self.free_since: datetime | None = self.site.agenda.now
        self.attempt: SimAttempt | None = None
        self._poll: Poll | None = None
        self._pause: Planned | None = None

    def poll(self) -> None:
        """Ask for a message; after the other slots of this instance, if one of them asks."""
        worker = self.worker
        self._pause = None
        if worker.is_finishing or self.attempt is not None:
            return
        if worker.polling is not None:
            worker.pollers.append(self)
            return
        message = self.site.handout.receive(worker.policy.lease_duration)
        if message is not None:
            self.take(message)
            return
        length = self._poll_length()
        if length <= _ZERO:
            self._rest()
            return
        worker.polling = self
        self._poll = self.site.handout.wait(self._heard, length)

    def stop_polling(self) -> None:
        """Ask no more."""
        if self._poll is not None:
            self.site.handout.give_up(self._poll)
            self._poll = None
            self.worker.polling = None
        if self._pause is not None:
            self._pause.call_off()
            self._pause = None

    def take(self, message: Message) -> None:
        """Claim a message's job and begin to work on it, or see it dealt with otherwise."""
        worker, ports = self.worker, self.site.ports
        if worker.is_finishing:
            put_back(message, _ZERO, ports.queue)
            return
        claimed = claim(
            message, seat=self.seat, presence=worker.presence, ports=ports, policy=worker.policy
        )
        if isinstance(claimed, Held):
            self._begin(claimed)
        else:
            self._note(claimed)

    def ended(self) -> None:
        """Go on after a job that is held no more."""
        self._let_go()
        self.free_since = self.site.agenda.now
        self.worker.slot_is_free()
        self.poll()

    def kill(self) -> None:
        """Stop where it stands: the instance is gone."""
        self.stop_polling()
        if self.attempt is not None:
            self.site.record.stopped(self.attempt.held.job_id)
        self._let_go()

    def _let_go(self) -> None:
        if self.attempt is not None:
            self.attempt.call_off()
            took = self.site.agenda.now - self.attempt.began
            self.worker.tally.count(took.total_seconds(), self.attempt.lost_seconds)
            self.attempt = None

    def _poll_length(self) -> timedelta:
        if self.worker.is_warm:
            return timedelta(seconds=_POLL_AT_MOST)
        rest = self.worker.standing.idle_timeout - self._idle_for()
        seconds = math.ceil(max(rest, _ZERO).total_seconds())
        return timedelta(seconds=min(seconds, _POLL_AT_MOST))

    def _idle_for(self) -> timedelta:
        now = self.site.agenda.now
        return now - (self.free_since or now)

    def _heard(self, message: Message | None) -> None:
        self._poll = None
        self.worker.polling = None
        if message is None:
            self._rest()
        else:
            self.take(message)
        self.worker.let_next_poll()

    def _rest(self) -> None:
        pause = _ZERO if self.worker.is_warm else poll_wait(self._idle_for())
        wait = max(pause.total_seconds(), _REQUEST_SECONDS)
        self._pause = self.site.agenda.plan_in(wait, Turn.WORKER, self.poll)

    def _note(self, declined: Declined) -> None:
        self.site.record.note("declined", f"{declined.job_id} {declined.outcome}")
        if declined.outcome is ClaimOutcome.CONDEMNED:
            self.worker.leave(ReasonCode.CONDEMNED)
        else:
            self._pause = self.site.agenda.plan_in(_REQUEST_SECONDS, Turn.WORKER, self.poll)

    def _begin(self, held: Held) -> None:
        worker, ports = self.worker, self.site.ports
        self.free_since = None
        if held.manifest.epoch == 1:
            waited = self.site.agenda.now - held.message.sent_at
            self.site.record.claimed(held.job_id, waited.total_seconds())
        self.site.record.resumed(held.job_id)
        values = settle_items(held.job, ports)
        if is_too_large(held, values, worker.policy):
            held = split(held, values, ports=ports, policy=worker.policy)
            complete(held, seat=self.seat, presence=worker.presence, ports=ports)
            self.site.record.was_split(held.job_id, held.manifest.children)
            self.ended()
            return
        redone = held.lease.items_done - held.manifest.next_item
        if redone > 0:
            worker.reporter.report(Progress(items_redone=redone))
        self.attempt = SimAttempt(self, held.with_items(len(values)), len(values))
        if worker.deadline is not None:
            self.attempt.bound(worker.deadline)
        worker.slot_is_busy()
