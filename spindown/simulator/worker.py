"""A simulated worker: from its check-in to its end, by the rules of ``worker.daemon``.

What it writes to the ledger and the queue, and when it ends, is decided by the shipped use
cases; only the threads and the clock are replaced by events.
"""

from collections import deque
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from spindown.app.knowledge import read_interruption_rate
from spindown.app.work.presence import Condemned, Presence
from spindown.app.work.progress import Reporter
from spindown.domain.interruption import RECLAIM_GRACE, commit_by, should_power_off
from spindown.domain.policy import Policy
from spindown.domain.reason import Reason, ReasonCode
from spindown.ec2sim import Planned, Turn
from spindown.ec2sim.agenda import Action
from spindown.error import NotFound
from spindown.simulator.record import InstanceTally
from spindown.simulator.site import Site
from spindown.simulator.slot import SimSlot

_ZERO = timedelta(0)
#: How often a worker looks at the clock (``worker.daemon``).
_LOOK_UP = timedelta(seconds=1)


class SimWorker:
    """One instance as its worker lives on it."""

    def __init__(
        self, site: Site, *, instance_id: str, speed: float, launched_at: datetime
    ) -> None:
        """Begin as an instance that boots; it has a row only when its launch is written down.

        Args:
            site: what it shares with all others.
            instance_id: EC2's.
            speed: of one slot; the reference GPU is 1.
            launched_at: now.
        """
        self.site = site
        self.instance_id = instance_id
        self.speed = speed
        self.launched_at = launched_at
        self.presence = Presence(workload=site.workload, instance_id=instance_id, ports=site.ports)
        self.standing = site.standing()
        self.tally = InstanceTally(launched_at)
        self.checked_in_at: datetime | None = None
        self.ended_at: datetime | None = None
        #: When EC2 takes the instance, once it has said so.
        self.deadline: datetime | None = None
        #: Until when it stays though it is idle.
        self.warm_until: datetime | None = None
        #: Why no new job is taken; NONE while jobs are taken.
        self.reason = ReasonCode.NONE
        self.slots: list[SimSlot] = []
        #: The slot that asks for a message now, and those that wait to.
        self.polling: SimSlot | None = None
        self.pollers: deque[SimSlot] = deque()
        self.interruption_rate = 0.0
        self._planned: dict[str, Planned] = {}
        self._is_drained = False

    @property
    def policy(self) -> Policy:
        """Return the policy in force."""
        return self.standing.policy

    @property
    def is_finishing(self) -> bool:
        """Tell whether it takes no new job."""
        return self.reason is not ReasonCode.NONE or self.ended_at is not None

    @property
    def is_warm(self) -> bool:
        """Tell whether reconcile keeps the worker for whatever comes."""
        return self.warm_until is not None and self.site.agenda.now < self.warm_until

    def spent(self) -> InstanceTally:
        """Return what its time went to up to now, jobs that it still works on included."""
        spent, now = replace(self.tally), self.site.agenda.now
        for slot in self.slots:
            if slot.attempt is not None:
                spent.count((now - slot.attempt.began).total_seconds(), 0.0)
        return spent

    def check_in(self) -> None:
        """Say that it is up, and begin to work."""
        if self.ended_at is not None:
            return
        try:
            self.row = self.presence.check_in(patience=_ZERO)
        except (Condemned, NotFound) as exc:
            self.site.record.note("not-ours", f"{self.instance_id} {exc}")
            self._power_off()
            return
        now = self.site.agenda.now
        self.checked_in_at = self.tally.checked_in_at = now
        self.site.record.note("checked-in", self.instance_id)
        self.standing = self.site.standing()
        self.interruption_rate = read_interruption_rate(
            self.site.ports.table, self.site.workload, self.row
        )
        self.reporter = Reporter(
            deployment=self.site.deployment,
            workload=self.site.workload,
            worker=self.row,
            ports=self.site.ports,
        )
        self.tally.slots = self.row.slots
        self.slots = [SimSlot(self, number) for number in range(self.row.slots)]
        ends_at = self.launched_at + self.policy.max_lifetime
        self._plan("age", ends_at, self._grow_old)
        self.beat()
        self.slot_is_free()
        for slot in self.slots:
            slot.poll()

    def beat(self) -> None:
        """Extend each lease, say that it lives, follow the policy in force."""
        if self.ended_at is not None:
            return
        for slot in self.slots:
            if slot.attempt is not None:
                slot.attempt.beat()
        try:
            seen = self.presence.beat()
        except Condemned:
            self.leave(ReasonCode.CONDEMNED)
            return
        self.warm_until = seen.warm_until
        if seen.interrupted_at is not None:
            self.notice(seen.interrupted_at)
        if seen.relieved_at is not None:
            self.leave(ReasonCode.RELIEVED)
        before = self.standing.idle_timeout
        self.standing = self.site.standing()
        if self.standing.idle_timeout != before:
            self.slot_is_free()
        self.reporter.flush()
        self._plan("beat", self.site.agenda.now + self.policy.heartbeat_interval, self.beat)

    def notice(self, deadline: datetime) -> None:
        """Drain by the time at which EC2 takes the instance; only the first notice counts."""
        if self.deadline is not None or self.ended_at is not None or self.checked_in_at is None:
            return
        self.deadline = deadline
        self.site.record.note("noticed", self.instance_id)
        for slot in self.slots:
            if slot.attempt is not None:
                slot.attempt.bound(deadline)
        self.presence.record_notice(deadline)
        self._plan("leave", commit_by(deadline, self.policy), self._give_all_back)
        self._finish(ReasonCode.INTERRUPTED)

    def leave(self, reason: ReasonCode) -> None:
        """Take no new job and give back at once what is held."""
        self._finish(reason)
        self._give_all_back()

    def slot_is_busy(self) -> None:
        """Let no idle timeout run."""
        self._call_off("idle")

    def slot_is_free(self) -> None:
        """Let the idle timeout run if every slot is free; end if it was only waited for."""
        self.slot_is_busy()
        if self.ended_at is not None or any(slot.attempt for slot in self.slots):
            return
        if self.is_finishing:
            self._drain()
            return
        at = max(slot.free_since or self.site.agenda.now for slot in self.slots)
        at += self.standing.idle_timeout
        self._plan("idle", at, self._end_if_idle)

    def let_next_poll(self) -> None:
        """Let the next slot ask that waits for its turn."""
        while self.pollers and self.polling is None:
            self.pollers.popleft().poll()

    def kill(self) -> None:
        """Stop where it stands: the instance is gone."""
        if self.ended_at is not None:
            return
        self.ended_at = self.site.agenda.now
        for name in list(self._planned):
            self._call_off(name)
        for slot in self.slots:
            slot.kill()

    def _grow_old(self) -> None:
        if self.is_finishing:
            return
        leave_by = self.launched_at + self.policy.max_lifetime + self.policy.lifetime_grace
        self._plan("leave", commit_by(leave_by, self.policy), self._give_all_back)
        self._finish(ReasonCode.LIFETIME)

    def _finish(self, reason: ReasonCode) -> None:
        if self.is_finishing:
            return
        self.reason = reason
        for slot in self.slots:
            slot.stop_polling()
        if not self._is_drained:
            with suppress(Condemned):
                self.presence.begin_draining()
        self.slot_is_free()

    def _give_all_back(self) -> None:
        for slot in self.slots:
            if slot.attempt is not None and self.ended_at is None:
                slot.attempt.give_back()

    def _end_if_idle(self) -> None:
        """End unless it is kept warm, or one last poll finds a message."""
        now = self.site.agenda.now
        if self.is_warm:
            self._plan("idle", max(self.warm_until or now, now + _LOOK_UP), self._end_if_idle)
            return
        for slot in self.slots:
            slot.stop_polling()
        self.pollers.clear()
        message = self.site.handout.receive(self.policy.lease_duration)
        if message is None and self.presence.drain(Reason(ReasonCode.IDLE), unless_warm=True):
            self._is_drained = True
            self.site.record.note("drained", f"{self.instance_id} idle")
            self._finish(ReasonCode.IDLE)
            self._end_instance()
            return
        first, *others = self.slots
        if message is None:
            self._plan("idle", now + _LOOK_UP, self._end_if_idle)
            first.poll()
        else:
            first.take(message)
            if first.attempt is None:
                self.slot_is_free()
        for slot in others:
            slot.poll()

    def _drain(self) -> None:
        if self._is_drained:
            return
        self._is_drained = True
        if self.presence.drain(Reason(self.reason)):
            self.site.record.note("drained", f"{self.instance_id} {self.reason}")
        self._end_instance()

    def _end_instance(self) -> None:
        """Power off, unless EC2 is about to take the instance for free."""
        if should_power_off(
            launched_at=self.launched_at,
            deadline=self.deadline,
            capacity_type=self.row.capacity_type,
            now=self.site.agenda.now,
        ):
            self._power_off()
        elif self.deadline is not None:
            late = self.deadline + RECLAIM_GRACE + timedelta(seconds=1)
            self._plan("end", late, self._end_instance)

    def _power_off(self) -> None:
        if self.ended_at is None:
            at = self.site.agenda.now + timedelta(seconds=self.site.delays.power_off)
            self._plan("end", at, lambda: self.site.power_off(self.instance_id))

    def _plan(self, name: str, at: datetime, action: Action) -> None:
        """Plan an event of this worker in place of the one of the same name."""
        self._call_off(name)
        self._planned[name] = self.site.agenda.plan(at, Turn.WORKER, action)

    def _call_off(self, name: str) -> None:
        planned = self._planned.pop(name, None)
        if planned is not None:
            planned.call_off()
