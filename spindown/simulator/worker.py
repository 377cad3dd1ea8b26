"""A simulated worker: the agenda in the place of the threads, and of the computing.

``domain.worker_lifecycle`` decides; what touches a port is the shipped use case. ``SimWorker``
drives the lifecycle as ``worker.daemon`` does, ``SimSlot`` does what it commands as
``worker.slot``, ``SimAttempt`` goes on with one job as ``worker.attempt``; ``SimSite`` is what all
workers share.
"""

import hashlib
import json
import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from spindown.contract.codec import decode, replace_fields
from spindown.contract.job.manifest import JobState, StateFile, state_key
from spindown.contract.job.message import needs_of
from spindown.contract.job.result import ItemStatus, Record
from spindown.contract.row import POLICY, control_partition, processor_kind
from spindown.contract.usage import UsageEnd, UsageRecord, encode_usage, measured_key
from spindown.domain.boot import BootPhase
from spindown.domain.commit_interval import commit_after, commit_due
from spindown.domain.fleet import Lease
from spindown.domain.lease import RELEASE_AFTER
from spindown.domain.offer import InstanceType
from spindown.domain.out_of_memory import larger_needs, memory_of
from spindown.domain.policy import JobNeeds, Policy
from spindown.domain.reason import Reason
from spindown.domain.rightsizing.type_size import MEMORY, SYSTEM_GIB, VRAM
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
    Habits,
    LastPoll,
    LastPolled,
    Lifecycle,
    Noticed,
    PolicySeen,
    Poll,
    Polled,
    PowerOff,
    PutBack,
    PutLastBack,
    ReleaseJob,
    RowSeen,
    SlotDone,
    SlotEnded,
    SlotReady,
    Standing,
    Take,
    TellNotice,
    TimePassed,
    WasCondemned,
    WorkerEvent,
    next_at,
    row_seen,
    step,
)
from spindown.ec2sim import Agenda, Planned, Turn
from spindown.error import LeaseLost, NotFound
from spindown.job.attachment.checkpoint_store import State
from spindown.job.claim import ClaimOutcome, claim
from spindown.job.claimed_job import ClaimedJob, Finished, SlotId
from spindown.job.commit import Portion, begun, commit, complete
from spindown.job.heartbeat import extend_lease
from spindown.job.item import settle_items
from spindown.job.message import put_back
from spindown.job.policy_in_force import read_standing
from spindown.job.release import (
    abandon,
    dead_letter_job,
    release,
    send_to_larger,
    settle_failure,
    settle_release,
)
from spindown.job.split import is_too_large, split
from spindown.job.work_done import Progress, Reporter
from spindown.job.worker_row import Condemned, WorkerRow
from spindown.ledger.knowledge import read_interruption_rate
from spindown.port import Key, Message, WorkPorts
from spindown.simulator.poll_queue import PollQueue, WaitingPoll
from spindown.simulator.record import InstanceTally, SimRecorder
from spindown.simulator.scenario import SimDelays, TrueNeed

#: Keys in a job's params: seconds of one item on the reference GPU; whether a checkpoint is kept.
ITEM_SECONDS = "item_seconds"
KEEPS_STATE = "keeps_state"
USES_STATE = "uses_state"
#: What the job needs in truth, as ``TrueNeed`` has it.
NEED = "need"
#: The file that a checkpoint is.
_STATE = "progress"

#: How often a slot looks up whether a commit is due.
_LOOK_UP = timedelta(milliseconds=200)
#: Instants are whole microseconds; an item that ends within ten of them is done.
_ROUNDING = 1e-5
_ZERO = timedelta(0)
_MIB_PER_GIB = 1024.0
#: How long a usage record waits for others (``worker.usage.journal``).
_USAGE_WAITS = timedelta(minutes=5)
#: A request takes at least this long, so that polling without a pause moves in time.
_HABITS = Habits(shortest_rest=timedelta(seconds=0.01))


@dataclass(slots=True, kw_only=True)
class SimSite:
    """What all workers of one shape share."""

    workload: str
    deployment: str
    #: Name of the shape; "": the workload has no types.
    shape: str = ""
    agenda: Agenda
    ports: WorkPorts
    poll_queue: PollQueue
    record: SimRecorder
    delays: SimDelays
    #: Ends an instance from within.
    power_off: Callable[[str], None]
    #: The row of the policy as last seen, what of it counts, and what it says.
    _standing: tuple[object, tuple[object, object], Standing] | None = None

    def standing(self) -> Standing:
        """Return the policy in force; decoded once for all who read the same."""
        key = Key(partition=control_partition(self.workload), sort=POLICY)
        row, standing = self.ports.table.get(key), self._standing
        # A row of the simulation's table never changes: another version is another row.
        if standing is not None and standing[0] is row:
            return standing[2]
        seen = ((row or {}).get("effective"), (row or {}).get("idle_timeout"))
        if standing is None or standing[1] != seen:
            known = standing[2] if standing else None
            policy_row = read_standing(self.ports.table, self.workload, known)
        else:
            policy_row = standing[2]
        self._standing = row, seen, policy_row
        return policy_row


class SimWorker:
    """One instance as its worker lives on it."""

    def __init__(
        self,
        site: SimSite,
        *,
        instance_id: str,
        machine: InstanceType,
        speed: float,
        launched_at: datetime,
    ) -> None:
        """Begin as an instance that boots; it has a row only when its launch is written down.

        Args:
            site: what it shares with all others.
            instance_id: EC2's.
            machine: its instance type.
            speed: of one slot; the reference GPU is 1.
            launched_at: now.
        """
        self.site = site
        self.instance_id = instance_id
        self.machine = machine
        self.speed = speed
        self.launched_at = launched_at
        self.worker_row = WorkerRow(
            workload=site.workload, instance_id=instance_id, ports=site.ports, shape=site.shape
        )
        self.life = Lifecycle(habits=_HABITS, standing=site.standing())
        self.tally = InstanceTally(launched_at)
        self.checked_in_at: datetime | None = None
        self.ended_at: datetime | None = None
        self.slots: list[SimSlot] = []
        self.interruption_rate = 0.0
        #: Records that are not written yet.
        self._usage: list[UsageRecord] = []
        self._usage_since = launched_at
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
            self.row = self.worker_row.check_in(patience=_ZERO)
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

    def note_first_item(self) -> None:
        """Tell the boot, once: a slot has its first item."""
        seconds = (self.site.agenda.now - self.launched_at).total_seconds()
        self.worker_row.note_first_item({BootPhase.FIRST_ITEM: seconds})

    def beat(self) -> None:
        """Extend each lease, say that it lives, read the policy in force."""
        if self.ended_at is not None:
            return
        for slot in self.slots:
            if slot.attempt is not None:
                slot.attempt.extend()
        now = self.site.agenda.now
        try:
            row = self.worker_row.beat()
        except Condemned:
            self.tell(WasCondemned(now))
            return
        seen = row_seen(now, row)
        if self._is_news(seen):
            self.tell(seen)
        standing = self.site.standing()
        if standing is not self.life.standing:
            self.tell(PolicySeen(now, standing))
        self.reporter.flush()
        if self._usage and now - self._usage_since >= _USAGE_WAITS:
            self._write_usage()
        self._beat = self.site.agenda.plan(
            now + self.policy.heartbeat_interval, Turn.WORKER, self.beat
        )

    def _is_news(self, seen: RowSeen) -> bool:
        """Tell whether the lifecycle may not know yet what stands in the row."""
        ends = (seen.interrupted_at, seen.rebalance_at, seen.migrating_at)
        is_of_end = any((*ends, seen.spent_at, seen.surplus_at))
        return is_of_end or seen.warm_until != self.life.warm_until

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
            case ReleaseJob(slot=number):
                self.slots[number].give_back()
            case EndSlot(slot=number):
                self.tell(SlotEnded(now, number))
            case LastPoll():
                self._last = self.site.poll_queue.receive(self.policy.lease_duration)
                self.tell(LastPolled(now, self._last is not None))
            case AskToEnd(reason=reason):
                granted = self.worker_row.drain(Reason(reason), unless_warm=True)
                if granted:
                    self.site.record.note("drained", f"{self.instance_id} {reason}")
                self.tell(EndAnswered(now, granted))
            case BeginDraining(knows=False):
                with suppress(Condemned):
                    self.worker_row.begin_draining()
            case Drain(reason=reason, knows=knows):
                if not knows and self.worker_row.drain(Reason(reason)):
                    self.site.record.note("drained", f"{self.instance_id} {reason}")
                self.tell(Drained(now))
            case TellNotice(deadline=deadline):
                self.site.record.note("noticed", self.instance_id)
                for slot in self.slots:
                    if slot.attempt is not None:
                        slot.attempt.bound(deadline)
                self.worker_row.record_notice(deadline)
            case PowerOff():
                self._power_off()

    def measure(self, record: UsageRecord) -> None:
        """Let a usage record wait for others, with which it is written (``worker.usage``)."""
        if not self._usage:
            self._usage_since = self.site.agenda.now
        self._usage.append(record)
        self.site.record.measured(record)

    def _write_usage(self) -> None:
        records, self._usage = self._usage, []
        key = measured_key(records[0], self.site.agenda.now.date())
        self.site.ports.objects.put(key, encode_usage(records))

    def _power_off(self) -> None:
        if self._usage:
            self._write_usage()
        at = self.site.agenda.now + timedelta(seconds=self.site.delays.power_off)
        self.site.agenda.plan(at, Turn.WORKER, lambda: self.site.power_off(self.instance_id))


class SimSlot:
    """A slot; ``worker`` knows what all slots of an instance share."""

    def __init__(self, worker: "SimWorker", number: int) -> None:
        self.worker = worker
        self.site = worker.site
        self.number = number
        self.slot_id = SlotId(
            workload=worker.site.workload,
            instance_id=worker.instance_id,
            slot=number,
            price_per_hour=worker.row.price_per_hour / max(worker.row.slots, 1),
            gpu=processor_kind(*worker.row.processor),
            spot=worker.row.spot_terms(worker.interruption_rate),
            boot=worker.row.boot,
            shape=worker.site.shape,
        )
        self.attempt: SimAttempt | None = None
        self._poll: WaitingPoll | None = None
        self._message: Message | None = None
        #: Whether it has stood without work, or has begun some.
        self._is_past_boot = False

    def poll(self, wait: timedelta) -> None:
        """Ask for a message, and wait for one."""
        message = self.site.poll_queue.receive(self.worker.policy.lease_duration)
        self._is_past_boot |= message is None
        if message is None and wait > _ZERO:
            self._poll = self.site.poll_queue.wait(self._heard, wait)
        else:
            self._heard(message)

    def cut_poll(self) -> None:
        """End the poll under way."""
        if self._poll is not None:
            self.site.poll_queue.give_up(self._poll)
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
            slot_id=self.slot_id,
            worker_row=worker.worker_row,
            ports=self.site.ports,
            policy=worker.policy,
        )
        if isinstance(claimed, ClaimedJob):
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
            self.site.poll_queue.give_up(self._poll)
        if self.attempt is not None:
            self.site.record.put_down(self.attempt.held.job_id)
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

    def _begin(self, held: ClaimedJob) -> None:
        worker, ports = self.worker, self.site.ports
        if held.manifest.epoch == 1:
            waited = (self.site.agenda.now - held.message.sent_at).total_seconds()
            if self.site.shape:
                # What was routed is a copy of the message that was sent.
                waited = self.site.record.age(held.job_id)
            self.site.record.claimed(held.job_id, waited)
        self.site.record.resumed(held.job_id)
        values = settle_items(held.job, ports)
        if is_too_large(held, values, worker.policy):
            held = split(held, values, ports=ports, policy=worker.policy)
            complete(held, slot_id=self.slot_id, worker_row=worker.worker_row, ports=ports)
            self.site.record.was_split(held.job_id, held.manifest.children)
            worker.tell(SlotDone(self.site.agenda.now, self.number, worked=False))
            return
        redone = held.lease.items_done - held.manifest.next_item
        if redone > 0:
            worker.reporter.report(Progress(items_redone=redone))
        if not self._is_past_boot:
            worker.note_first_item()
        self._is_past_boot = True
        self.attempt = SimAttempt(self, held.with_items(len(values)), len(values))
        if worker.life.deadline is not None:
            self.attempt.bound(worker.life.deadline)


class SimAttempt:
    """A held job, from its claim until it is completed, given back or lost."""

    def __init__(self, slot: "SimSlot", held: ClaimedJob, total: int) -> None:
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
        machine, need = slot.worker.machine, held.job.params.get(NEED)
        self._need = TrueNeed() if need is None else decode(TrueNeed, need)
        #: Seconds of one item on this slot.
        speed = self._need.speed(machine, slot.worker.speed)
        self._per_item = float(held.job.params[ITEM_SECONDS]) / speed
        self._keeps_state = bool(held.job.params.get(KEEPS_STATE))
        #: Seconds on this slot of what state has brought of the first item.
        self._uses_state = bool(held.job.params.get(USES_STATE, True))
        self._ahead = self._read_state() if self._uses_state else 0.0
        #: Seconds of computing from the first item on that state keeps, and that it will keep with
        #: the commit under way.
        self._safe = self._taken = self._ahead
        self.began = self._committed_at = self._busy_from = self._worked_from = self._agenda.now
        self._cost: timedelta | None = None
        self._planned: Planned | None = None
        #: A commit under way: when it is done, what is in it.
        self._written_at: datetime | None = None
        self._writing: tuple[Planned, Portion] | None = None
        self._plan_on()

    @property
    def items_done(self) -> int:
        """Return how many items are computed, from the first of all."""
        done = math.floor((self._computed + _ROUNDING) / self._per_item)
        return min(self._total, self._first + done)

    @property
    def lost_seconds(self) -> float:
        """Return the computing whose results are not committed now."""
        kept = (self.held.manifest.next_item - self._first) * self._per_item
        return max(min(self._computed, self._rest) - max(kept, self._safe), 0.0)

    @property
    def _computed(self) -> float:
        """Return the seconds of computing on this slot, from the first item on."""
        return self._ahead + (self._agenda.now - self.began).total_seconds()

    @property
    def _rest(self) -> float:
        """Return the seconds that all items from the first on take."""
        return (self._total - self._first) * self._per_item

    def extend(self) -> None:
        """Extend the lease."""
        try:
            lease = extend_lease(
                self.held.lease,
                items_done=self.items_done,
                items=self._total,
                slot_id=self._slot.slot_id,
                ports=self._site.ports,
                policy=self._worker.policy,
            )
        except LeaseLost:
            self._lose()
        else:
            self._keep(lease)

    @property
    def _lacks_memory(self) -> bool:
        """Tell whether the machine has too little memory for the job, and it has not the room."""
        gib = self._worker.machine.memory_mib / _MIB_PER_GIB
        return self._need.memory_gib + SYSTEM_GIB > gib

    @property
    def _fails_at(self) -> datetime | None:
        """Return when the job asks for more than the machine has; None: it never does."""
        vram = self._worker.machine.gpu_memory_mib / _MIB_PER_GIB
        if not self._need.memory_gib + self._need.vram_gib:
            return None
        if not self._lacks_memory and self._need.vram_gib <= vram:
            return None
        peak = self._first + min(max(self._need.peaks_at, 0.0), 1.0)
        return max(self._done_at_share(peak), self._agenda.now)

    def bound(self, deadline: datetime) -> None:
        """Let the lease end with the instance."""
        worker_row = self._worker.worker_row
        self._keep(worker_row.bound_lease(self._slot.slot_id, self.held.lease, deadline))

    def give_back(self) -> None:
        """Commit what is done and release the job."""
        is_interrupted = self._worker.life.is_interrupted
        self._leave(UsageEnd.INTERRUPTED if is_interrupted else UsageEnd.RELEASED)

    def _fail(self) -> None:
        """Send the job to the next size of memory, or count a failure (``worker.attempt``)."""
        machine, need, end = self._worker.machine, MEMORY, UsageEnd.OUTGROWN
        has_mib = machine.memory_mib
        if not self._lacks_memory:
            need, end, has_mib = VRAM, UsageEnd.OUTGROWN_GPU, machine.gpu_memory_mib
        larger = larger_needs(
            self.held.job.type or "",
            needs_of(self.held.job),
            shape=self._site.shape,
            memory_gib=has_mib / _MIB_PER_GIB,
            policy=self._worker.policy,
            need=need,
        )
        had = memory_of(self._site.shape, has_mib / _MIB_PER_GIB, need)
        ran_out = replace(self.held.manifest, ran_out_gib=had, ran_out_of_vram=need == VRAM)
        self.held = replace(self.held, manifest=ran_out)
        self._leave(UsageEnd.FAILED if larger is None else end, larger)

    def _leave(self, end: UsageEnd, larger: JobNeeds | None = None) -> None:
        """Commit what is done, and let the job go on elsewhere."""
        if self._writing is not None:
            # ``worker.writer`` waits for it; that fraction of a second is left out.
            self._written()
            if self._slot.attempt is not self:
                return
        portion = self._portion(self.items_done)
        before = self.held
        given: dict[str, Any] = {
            "slot_id": self._slot.slot_id,
            "ports": self._site.ports,
            "policy": self._worker.policy,
        }
        try:
            if end is UsageEnd.FAILED:
                self.held = settle_failure(before, portion, "it needs more than there is", **given)
            else:
                interrupted = self._worker.life.is_interrupted
                self.held = settle_release(before, portion, interrupted=interrupted, **given)
        except LeaseLost:
            self._lose()
            return
        self._tell(before, portion)
        match self.held.manifest.state:
            case JobState.COMPLETED:
                self._close()
                return
            case JobState.FAILED:
                self._bury()
                return
        given["worker_row"] = self._worker.worker_row
        if larger is None:
            release(self.held, **given)
            self._site.record.note("released", self.held.job_id)
        else:
            send_to_larger(self.held, larger, **given)
            self._site.record.note("outgrown", self.held.job_id)
        self._site.record.put_down(self.held.job_id)
        self._measure(end)
        self._slot.ended()

    def call_off(self) -> None:
        """Let none of its events happen."""
        if self._planned is not None:
            self._planned.call_off()
        if self._writing is not None:
            self._writing[0].call_off()
        self._planned = self._writing = None

    def _done_at(self, item: int) -> datetime:
        return self._done_at_share(item)

    def _done_at_share(self, item: float) -> datetime:
        return self.began + timedelta(seconds=(item - self._first) * self._per_item - self._ahead)

    def _plan_on(self) -> None:
        """Plan what comes first: a commit on the way, the cap of SQS, or the end."""
        if self._planned is not None:
            self._planned.call_off()
        end = self._done_at(self._total)
        give_back = self.held.message.received_at + RELEASE_AFTER
        fails = self._fails_at
        first = min(end, give_back) if fails is None else min(end, give_back, fails)
        if self._writing is None and (due := self._commit_due()) < first:
            self._planned = self._agenda.plan(due, Turn.WORKER, self._checkpoint)
        elif first == fails:
            self._planned = self._agenda.plan(fails, Turn.WORKER, self._fail)
        elif give_back < end:
            self._planned = self._agenda.plan(give_back, Turn.WORKER, self.give_back)
        else:
            at = max(end, self._written_at or end) + self._commit_takes
            self._planned = self._agenda.plan(at, Turn.WORKER, self._finish)

    def _commit_due(self) -> datetime:
        policy, rate = self._worker.policy, self._worker.interruption_rate
        due = self._committed_at + commit_after(policy, cost=self._cost, rate=rate)
        if not self._keeps_state:
            due = max(due, self._done_at(self._next + 1))
        every = policy.checkpoint_items
        return due if every is None else min(due, self._done_at(self._next + max(every, 1)))

    def _checkpoint(self) -> None:
        """Begin a commit if the shipped rule says so."""
        now, done = self._agenda.now, self.items_done
        due = commit_due(
            self._worker.policy,
            items=done - self._next,
            elapsed=now - self._committed_at,
            cost=self._cost,
            rate=self._worker.interruption_rate,
        )
        if not due.results and not (self._keeps_state and due.state):
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
        complete(
            self.held,
            slot_id=slot.slot_id,
            worker_row=self._worker.worker_row,
            ports=self._site.ports,
        )
        self._site.record.completed(self.held.job_id, self._total)
        self._measure(UsageEnd.COMPLETED)
        slot.ended((self.held.job_id, False))

    def _bury(self) -> None:
        slot = self._slot
        dead_letter_job(
            self.held,
            slot_id=slot.slot_id,
            worker_row=self._worker.worker_row,
            ports=self._site.ports,
        )
        self._site.record.note("dead-lettered", self.held.job_id)
        self._measure(UsageEnd.FAILED)
        slot.ended((self.held.job_id, True))

    def _lose(self) -> None:
        abandon(self.held, slot_id=self._slot.slot_id, worker_row=self._worker.worker_row)
        self._site.record.note("lost", self.held.job_id)
        self._measure(UsageEnd.LOST)
        self._slot.ended()

    def _measure(self, end: UsageEnd) -> None:
        """Tell what the attempt has used, as a worker of a shape does."""
        if not self._site.shape:
            return
        worker, row, machine, need = (
            self._worker,
            self._worker.row,
            self._worker.machine,
            self._need,
        )
        slots, memory = max(row.slots, 1), machine.memory_mib / _MIB_PER_GIB
        manifest, now = self.held.manifest, self._agenda.now
        cores = need.cores(machine.vcpus) / slots
        seconds = (now - self.began).total_seconds()
        worker.measure(
            UsageRecord(
                job_id=self.held.job_id,
                epoch=manifest.epoch,
                workload=self._site.workload,
                type=self.held.job.type or "",
                instance_id=worker.instance_id,
                instance_type=row.instance_type,
                region=row.region,
                zone=row.zone,
                capacity_type=row.capacity_type.value,
                gpu=row.gpu_name,
                gpu_count=row.gpu_count / slots,
                slots=slots,
                price_per_hour=row.price_per_hour,
                started_at=self.began,
                end=end,
                routed_at=manifest.routed_at,
                shape=self._site.shape,
                stated=" ".join(manifest.stated),
                seconds=seconds,
                items=manifest.next_item - self._first,
                items_failed=0,
                vcpus=machine.vcpus / slots,
                memory_gib=memory / slots,
                vram_gib=machine.gpu_memory_mib / _MIB_PER_GIB or None,
                cpu_seconds=cores * seconds,
                cpu_mean=cores,
                memory_max=min(need.memory_gib, memory / slots),
                vram_max=need.vram_gib or None,
            )
        )

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
        state, worked = self._save_state(end), _ZERO
        if finished or state is not None:
            is_on_the_way = state is None and end < self._total
            until = self._done_at(end) if is_on_the_way else now
            worked, self._worked_from = until - self._worked_from, until
        return Portion(finished=finished, busy=busy, worked=worked, state=state)

    def _save_state(self, end: int) -> State | None:
        """Store how far the item after those done has come; None: nothing new is kept."""
        computed = min(self._computed, self._rest)
        if not self._keeps_state or end >= self._total or computed <= self._taken:
            return None
        self._taken = computed
        share = max(computed / self._per_item - (end - self._first), 0.0)
        data = json.dumps({"item": end, "share": share}).encode()
        digest, now = hashlib.sha256(data).hexdigest(), self._agenda.now
        key = state_key(self.held.job_id, digest)
        self._site.ports.objects.put(key, data)
        return (StateFile(path=_STATE, key=key, bytes=len(data), sha256=digest, stored_at=now),)

    def _read_state(self) -> float:
        """Return the seconds on this slot that state has brought of the first item."""
        for file in self.held.manifest.user_state:
            found = json.loads(self._site.ports.objects.get(file.key).data)
            if found["item"] == self._first:
                return float(found["share"]) * self._per_item
        return 0.0

    def _commit(self, portion: Portion) -> bool:
        """Commit a portion; False if the job is another's by now."""
        before = self.held
        try:
            self.held = commit(before, portion, slot_id=self._slot.slot_id, ports=self._site.ports)
        except LeaseLost:
            self._lose()
            return False
        self._tell(before, portion)
        return True

    def _tell(self, before: ClaimedJob, portion: Portion) -> None:
        self._safe = self._taken if self._uses_state else 0.0
        manifest, gpu = self.held.manifest, self._slot.slot_id.gpu
        earlier = begun(before.manifest, portion, self._slot.slot_id)
        busy = timedelta(seconds=earlier.pop(gpu))
        is_completed = manifest.state is JobState.COMPLETED
        self._worker.reporter.report(
            Progress(
                items_ok=len(portion.finished),
                busy=busy,
                earlier=earlier,
                commit=self._commit_takes if portion.finished or portion.state else None,
                job_type=self.held.job.type or "",
                job_items=manifest.items if is_completed else None,
                job_busy=timedelta(seconds=manifest.busy_seconds),
            )
        )
