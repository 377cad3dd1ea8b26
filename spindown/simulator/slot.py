"""One slot of a simulated worker: it polls, claims, and works on one job at a time.

The order of steps is that of ``worker.slot``; what touches a port is the shipped use case.
"""

from datetime import timedelta
from typing import TYPE_CHECKING

from spindown.app.port import Message
from spindown.app.work.claim import ClaimOutcome, claim
from spindown.app.work.commit import complete
from spindown.app.work.held import Held, Seat
from spindown.app.work.item import settle_items
from spindown.app.work.message import put_back
from spindown.app.work.progress import Progress
from spindown.app.work.split import is_too_large, split
from spindown.domain.worker_lifecycle import Polled, SlotDone, WasCondemned
from spindown.simulator.attempt import SimAttempt
from spindown.simulator.handout import Poll

if TYPE_CHECKING:
    from spindown.simulator.worker import SimWorker

_ZERO = timedelta(0)


class SimSlot:
    """A slot; ``worker`` knows what all slots of an instance share."""

    def __init__(self, worker: "SimWorker", number: int) -> None:
        self.worker = worker
        self.site = worker.site
        self.number = number
        self.seat = Seat(
            workload=worker.site.workload,
            instance_id=worker.instance_id,
            slot=number,
            price_per_hour=worker.row.price_per_hour / max(worker.row.slots, 1),
        )
        self.attempt: SimAttempt | None = None
        self._poll: Poll | None = None
        self._message: Message | None = None

    def poll(self, wait: timedelta) -> None:
        """Ask for a message, and wait for one."""
        message = self.site.handout.receive(self.worker.policy.lease_duration)
        if message is None and wait > _ZERO:
            self._poll = self.site.handout.wait(self._heard, wait)
        else:
            self._heard(message)

    def cut_poll(self) -> None:
        """End the poll under way."""
        if self._poll is not None:
            self.site.handout.give_up(self._poll)
            self._heard(None)

    def take(self, message: Message | None) -> None:
        """Claim a message's job and begin to work on it, or see it dealt with otherwise.

        None: the message that the slot's own poll has brought.
        """
        worker = self.worker
        message, self._message = message or self._message, None
        if message is None:
            raise AssertionError
        claimed = claim(
            message,
            seat=self.seat,
            presence=worker.presence,
            ports=self.site.ports,
            policy=worker.policy,
        )
        if isinstance(claimed, Held):
            self._begin(claimed)
            return
        self.site.record.note("declined", f"{claimed.job_id} {claimed.outcome}")
        if claimed.outcome is ClaimOutcome.CONDEMNED:
            worker.tell(WasCondemned(self.site.agenda.now))
        worker.tell(SlotDone(self.site.agenda.now, self.number, worked=False))

    def put_back(self) -> None:
        """Leave the message to others."""
        if self._message is not None:
            put_back(self._message, _ZERO, self.site.ports.queue)
            self._message = None

    def give_back(self) -> None:
        """Commit what is done and release the job in hand."""
        if self.attempt is not None:
            self.attempt.give_back()

    def ended(self, outcome: tuple[str, bool] | None = None) -> None:
        """Go on after a job that is held no more."""
        self._let_go()
        now = self.site.agenda.now
        self.worker.tell(SlotDone(now, self.number, worked=True, outcome=outcome))

    def kill(self) -> None:
        """Stop where it stands: the instance is gone."""
        if self._poll is not None:
            self.site.handout.give_up(self._poll)
        if self.attempt is not None:
            self.site.record.stopped(self.attempt.held.job_id)
        self._let_go()

    def _let_go(self) -> None:
        if self.attempt is not None:
            self.attempt.call_off()
            took = self.site.agenda.now - self.attempt.began
            self.worker.tally.count(took.total_seconds(), self.attempt.lost_seconds)
            self.attempt = None

    def _heard(self, message: Message | None) -> None:
        self._poll, self._message = None, message
        self.worker.tell(Polled(self.site.agenda.now, self.number, message is not None))

    def _begin(self, held: Held) -> None:
        worker, ports = self.worker, self.site.ports
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
        if worker.life.deadline is not None:
            self.attempt.bound(worker.life.deadline)
