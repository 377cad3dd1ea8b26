"""A simulated worker: drives the lifecycle and its slots with the agenda.

``domain.worker_lifecycle`` decides; the shipped use cases write to the ledger and the queue. Only
the threads and the clock are replaced by events.
"""

from collections import deque
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta

from spindown.app.knowledge import read_interruption_rate
from spindown.app.port import Message
from spindown.app.work.message import put_back
from spindown.app.work.presence import Condemned, Presence
from spindown.app.work.progress import Reporter
from spindown.domain.policy import Policy
from spindown.domain.reason import Reason
from spindown.domain.worker_lifecycle import (
    AskToEnd,
    BeginDraining,
    CheckedIn,
    Command,
    CutPoll,
    Drain,
    Drained,
    EndAnswered,
    EndSlot,
    GiveBack,
    Habits,
    LastPoll,
    LastPolled,
    Lifecycle,
    Noticed,
    PolicySeen,
    Poll,
    PowerOff,
    PutBack,
    PutLastBack,
    RowSeen,
    SlotEnded,
    SlotReady,
    Take,
    TellNotice,
    TimePassed,
    WasCondemned,
    WorkerEvent,
    next_at,
    step,
)
from spindown.ec2sim import Planned, Turn
from spindown.error import NotFound
from spindown.simulator.record import InstanceTally
from spindown.simulator.site import Site
from spindown.simulator.slot import SimSlot

_ZERO = timedelta(0)
#: A request takes at least this long, so that polling without a pause moves in time.
_HABITS = Habits(shortest_rest=timedelta(seconds=0.01))


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
        self.life = Lifecycle(habits=_HABITS, standing=site.standing())
        self.tally = InstanceTally(launched_at)
        self.checked_in_at: datetime | None = None
        self.ended_at: datetime | None = None
        self.slots: list[SimSlot] = []
        self.interruption_rate = 0.0
        #: What the last poll has brought.
        self._last: Message | None = None
        self._commands: deque[Command] = deque()
        self._is_acting = False
        self._next_at: datetime | None = None
        self._next: Planned | None = None
        self._beat: Planned | None = None

    @property
    def policy(self) -> Policy:
        """Return the policy in force."""
        return self.life.standing.policy

    def spent(self) -> InstanceTally:
        """Return what its time went to up to now, jobs that it still works on included."""
        spent, now = replace(self.tally), self.site.agenda.now
        for slot in self.slots:
            if slot.attempt is not None:
                spent.count((now - slot.attempt.began).total_seconds(), 0.0)
        return spent

    def tell(self, event: WorkerEvent) -> None:
        """Let the lifecycle hear of an event, and carry out what it commands, in order."""
        if self.ended_at is not None:
            return
        self.life, commands = step(self.life, event)
        self._commands += commands
        if self._is_acting:
            return
        self._is_acting = True
        while self._commands:
            self._carry_out(self._commands.popleft())
        self._is_acting = False
        self._plan_next()

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
        self.beat()
        self.tell(CheckedIn(now, self.launched_at, self.row.capacity_type, self.row.slots))
        for number in range(self.row.slots):
            self.tell(SlotReady(now, number))

    def beat(self) -> None:
        """Extend each lease, say that it lives, read the policy in force."""
        if self.ended_at is not None:
            return
        for slot in self.slots:
            if slot.attempt is not None:
                slot.attempt.beat()
        now = self.site.agenda.now
        try:
            row = self.presence.beat()
        except Condemned:
            self.tell(WasCondemned(now))
            return
        seen = RowSeen(now, row.warm_until, row.interrupted_at, row.rebalance_at, row.relieved_at)
        if self._is_news(seen):
            self.tell(seen)
        standing = self.site.standing()
        if standing is not self.life.standing:
            self.tell(PolicySeen(now, standing))
        self.reporter.flush()
        self._beat = self.site.agenda.plan(
            now + self.policy.heartbeat_interval, Turn.WORKER, self.beat
        )

    def _is_news(self, seen: RowSeen) -> bool:
        """Tell whether the lifecycle may not know yet what stands in the row."""
        is_of_end = seen.interrupted_at or seen.rebalance_at or seen.relieved_at
        return is_of_end is not None or seen.warm_until != self.life.warm_until

    def notice(self, deadline: datetime) -> None:
        """Hear when EC2 takes the instance; before the check-in nobody listens."""
        if self.checked_in_at is not None:
            self.tell(Noticed(self.site.agenda.now, deadline))

    def kill(self) -> None:
        """Stop where it stands: the instance is gone."""
        if self.ended_at is not None:
            return
        self.ended_at = self.site.agenda.now
        self._commands.clear()
        for planned in (self._next, self._beat):
            if planned is not None:
                planned.call_off()
        for slot in self.slots:
            slot.kill()

    def _plan_next(self) -> None:
        """Plan when time alone changes something."""
        at = next_at(self.life)
        if at == self._next_at:
            return
        if self._next is not None:
            self._next.call_off()
        self._next_at = at
        self._next = None if at is None else self.site.agenda.plan(at, Turn.WORKER, self._pass)

    def _pass(self) -> None:
        self._next = self._next_at = None
        self.tell(TimePassed(self.site.agenda.now))

    def _carry_out(self, command: Command) -> None:  # noqa: C901, PLR0912 - one case for each
        now = self.site.agenda.now
        match command:
            case Poll(slot=number, wait=wait):
                self.slots[number].poll(wait)
            case CutPoll(slot=number):
                self.slots[number].cut_poll()
            case Take(slot=number):
                message, self._last = self._last, None
                self.slots[number].take(message)
            case PutLastBack() if self._last is not None:
                put_back(self._last, _ZERO, self.site.ports.queue)
            case PutBack(slot=number):
                self.slots[number].put_back()
            case GiveBack(slot=number):
                self.slots[number].give_back()
            case EndSlot(slot=number):
                self.tell(SlotEnded(now, number))
            case LastPoll():
                self._last = self.site.handout.receive(self.policy.lease_duration)
                self.tell(LastPolled(now, self._last is not None))
            case AskToEnd(reason=reason):
                granted = self.presence.drain(Reason(reason), unless_warm=True)
                if granted:
                    self.site.record.note("drained", f"{self.instance_id} {reason}")
                self.tell(EndAnswered(now, granted))
            case BeginDraining(knows=False):
                with suppress(Condemned):
                    self.presence.begin_draining()
            case Drain(reason=reason, knows=knows):
                if not knows and self.presence.drain(Reason(reason)):
                    self.site.record.note("drained", f"{self.instance_id} {reason}")
                self.tell(Drained(now))
            case TellNotice(deadline=deadline):
                self.site.record.note("noticed", self.instance_id)
                for slot in self.slots:
                    if slot.attempt is not None:
                        slot.attempt.bound(deadline)
                self.presence.record_notice(deadline)
            case PowerOff():
                self._power_off()

    def _power_off(self) -> None:
        at = self.site.agenda.now + timedelta(seconds=self.site.delays.power_off)
        self.site.agenda.plan(at, Turn.WORKER, lambda: self.site.power_off(self.instance_id))
