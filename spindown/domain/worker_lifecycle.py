"""When a worker polls, drains and ends itself: ``step(state, event)`` returns state and commands.

A worker that is silent or breaks its contract is ended from outside (``domain.termination``).

Every decision that a worker makes about itself is made here: when a slot polls and for how long,
when idle means the end, what ends the worker, by when jobs must be given back, when to power off.
What becomes of the job itself is decided where ``worker.attempt`` stops and commits it and
``job.release`` gives it back or fails it. Drivers decide nothing. They tell what happened (events,
each with the time of its clock) and do what is commanded: the daemon with threads
(``worker.daemon``), the simulator with its agenda (``spindown.simulator.worker``), the proofs step
by step (``tests.proof.process``).

The worker's phases. In WORKING and LAST_POLL it takes jobs::

    phase      event                                   next phase   commands
    BOOTING    CheckedIn                               WORKING
    WORKING    all slots free for the idle timeout,    LAST_POLL    LastPoll
               not kept warm, no poll under way
    LAST_POLL  LastPolled, with a message              WORKING      Take (by a free slot)
    LAST_POLL  LastPolled, without                     LAST_POLL    AskToEnd
    LAST_POLL  EndAnswered, refused                    WORKING      (asks again after a second)
    LAST_POLL  EndAnswered, granted                    FINISHING    EndSlot of each
    LAST_POLL  EndUnheard, for too long or denied      FINISHING    EndSlot of each
    any        a reason to end (the next table)        FINISHING    CutPoll, BeginDraining, EndSlot
    FINISHING  all slots ended or left behind          DRAINING     Drain
    DRAINING   Drained                                 ENDED        PowerOff
    DRAINING   Drained, EC2 reclaims free of charge    RECLAIMED    AwaitReclaim
    RECLAIMED  EC2 is five minutes late                ENDED        PowerOff
    RECLAIMED  Stop: the system is going down          ENDED        Exit

What ends a worker. "Leave" means that held jobs are committed and released by then; without it
they are finished first::

    event                                  reason          leave by
    Noticed, or RowSeen with one           INTERRUPTED     the deadline less ``commit_margin``
    WasCondemned                           CONDEMNED       now
    RowSeen, migrating                     MIGRATED        now
    RowSeen, spent, ``when_spent`` "stop"  BUDGET_SPENT    now
    Stop                                   STOPPED         now + ``stop_grace``
    time: ``max_lifetime`` is over         LIFETIME        its end + ``lifetime_grace``
                                                           less ``commit_margin``
    RowSeen, spent, as ``when_spent`` is   BUDGET_SPENT    -
    by default
    RowSeen, surplus                       NO_ROOM         -
    PolicySeen, ``max_workers`` is 0       NO_ROOM         -
    PolicySeen, other code for long        OTHER_CODE      -
    SlotDone with a job, ``dedicated``,    JOB_OVER        -
    and not kept warm
    SlotDone, the last jobs all failed,    JOBS_FAILED     -  (MarkUnfit too)
    or the one of ``dedicated``
    SlotFaulted, three in a row            FAULTY          -  (MarkUnfit too)

The first reason stays; a later event can only bring ``leave_by`` forward.

A rebalance recommendation (RebalanceAdvised, or RowSeen with one) ends nothing: jobs in hand save
what they have, and the worker goes on. It promises no notice, and a machine that takes over boots
in a pool that may be as much at risk: to leave at each would buy machines for nothing.

A slot::

    STARTING -> WAITING (for its turn) -> POLLING -> RESTING -> WAITING ...
                                          POLLING -> BUSY (a message) -> WAITING ...
    any but BUSY and POLLING, or these when they are over, once the worker finishes -> ENDING
    ENDING -> ENDED; ENDING or BUSY -> LEFT, if it hangs
"""

import math
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from enum import Enum, auto
from operator import attrgetter
from typing import Any, TypeVar

from spindown.domain.fleet import Worker
from spindown.domain.idle import poll_wait
from spindown.domain.notice_time import RECLAIM_GRACE, commit_by, should_power_off
from spindown.domain.offer import CapacityType
from spindown.domain.policy import Dispatch, Policy, WhenSpent
from spindown.domain.reason import ReasonCode
from spindown.domain.retry_or_dead_letter import is_quarantined

T = TypeVar("T")

#: How long a worker that is to end takes for it, beyond the time to leave: for slots whose last
#: requests hang.
HANG_GRACE = timedelta(seconds=30)
#: The longest ``run.stop_grace``: a reclaim's notice of two minutes has no time for more.
STOP_GRACE_AT_MOST = timedelta(seconds=90)
#: To commit and give back what a program has left.
_PUT_BACK = timedelta(seconds=20)
#: From the last word of a worker to the end of its billing: it powers off, EC2 stops it. Also
#: EC2's minimum of a minute (EC2 pricing, per-second billing).
POWER_OFF = timedelta(minutes=1)


def hang_grace(stop_grace: timedelta) -> timedelta:
    """Return how long slots may take that must end at once: a program has its ``stop_grace``."""
    return max(HANG_GRACE, stop_grace + _PUT_BACK)


_ZERO = timedelta(0)
#: How long the last poll before the end waits.
LAST_POLL = timedelta(seconds=1)
#: After this long an end that was refused, or not answered, is asked for again.
ASK_AGAIN_AFTER = timedelta(seconds=1)
FIRST_BACK_OFF = timedelta(seconds=1)
LONGEST_BACK_OFF = timedelta(seconds=30)
#: Faults of our own code or machine, one job after the other, after which neither is trusted.
FAULTS_AT_MOST = 3
#: Jobs that are remembered to judge the machine by.
_OUTCOMES = 32


class Phase(Enum):
    """Where the worker is; see the table above."""

    BOOTING = auto()
    WORKING = auto()
    LAST_POLL = auto()
    FINISHING = auto()
    DRAINING = auto()
    RECLAIMED = auto()
    ENDED = auto()


class Doing(Enum):
    """What a slot does."""

    STARTING = auto()
    WAITING = auto()
    POLLING = auto()
    RESTING = auto()
    BUSY = auto()
    ENDING = auto()
    ENDED = auto()
    LEFT = auto()


# Tuples, not sets: a member is found by identity; to hash one takes longer.
_FREE = (Doing.STARTING, Doing.WAITING, Doing.POLLING, Doing.RESTING)
_OVER = (Doing.ENDED, Doing.LEFT)
_TAKES_JOBS = (Phase.WORKING, Phase.LAST_POLL)
_ALIVE = (*_TAKES_JOBS, Phase.FINISHING)


# Without slots: to copy a dict takes a fraction of the time (``_copy``).
@dataclass(frozen=True)
class SlotLife:
    """One slot as the lifecycle knows it."""

    #: Since when it has had no job.
    free_since: datetime
    doing: Doing = Doing.STARTING
    #: It rests from the first to the second instant.
    rest: tuple[datetime, datetime] | None = None
    back_off: timedelta = FIRST_BACK_OFF
    #: Faults in a row.
    faults: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The settings that a worker follows until it reads the policy again."""

    policy: Policy
    #: After this long without a job the worker ends; learned if the policy says "auto".
    idle_timeout: timedelta
    #: Digest of the code as deployed; "": not known.
    code_digest: str = ""
    #: How jobs come to it.
    dispatch: Dispatch = Dispatch.POOL


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """Settings of a worker that no event changes."""

    #: Which version of the user's code the worker runs.
    code_digest: str = ""
    #: Other code must have been the deployed one for so long before a worker goes by it.
    outdated_for: timedelta = timedelta(minutes=10)
    #: The longest poll that SQS allows.
    poll_at_most: timedelta = timedelta(seconds=20)
    #: How long work in hand may go on after SIGTERM.
    stop_grace: timedelta = timedelta(seconds=20)
    #: How long slots may take once they must end at once (``hang_grace``).
    hang_grace: timedelta = HANG_GRACE
    #: A slot rests at least so long after a poll that found nothing. Above 0 for drivers whose
    #: requests take no time: they would poll without end in one instant.
    shortest_rest: timedelta = _ZERO


@dataclass(frozen=True, kw_only=True)
class Lifecycle:
    """The state of one worker. Every instant is of the worker's clock."""

    habits: Habits
    standing: Standing
    phase: Phase = Phase.BOOTING
    launched_at: datetime | None = None
    #: When the worker's lifetime is over.
    ends_at: datetime | None = None
    capacity_type: CapacityType = CapacityType.SPOT
    slots: tuple[SlotLife, ...] = ()
    #: Slots that wait for their turn to poll, first come first served. One polls at a time, so
    #: that an idle worker asks with one poll, not with one for each slot.
    turns: tuple[int, ...] = ()
    #: Why no new job is taken; NONE while jobs are taken.
    reason: ReasonCode = ReasonCode.NONE
    #: Since when no new job is taken.
    finishing_since: datetime | None = None
    #: By when held jobs must be committed and released.
    leave_by: datetime | None = None
    #: When EC2 takes the instance, once it has said so.
    deadline: datetime | None = None
    #: Until when the worker stays though it is idle.
    warm_until: datetime | None = None
    #: Since when EC2 sees a higher risk of an interruption; None: it has not said so.
    risk_since: datetime | None = None
    #: Since when other code is the deployed one.
    outdated_since: datetime | None = None
    #: An end that was refused is not asked for again before.
    ask_again_at: datetime | None = None
    #: (job id, failed) of the last jobs that were ended, oldest first.
    outcomes: tuple[tuple[str, bool], ...] = ()
    #: The poll under way shall end, so that the last poll can be made.
    is_poll_cut: bool = False
    #: The last poll, or the question for the end, has no answer yet.
    is_asking: bool = False
    #: The ledger knows the worker as drained.
    is_drained: bool = False
    #: Busy slots were told to give their jobs back.
    is_giving_back: bool = False
    #: The operating system asked for the end.
    is_stopped: bool = False

    @property
    def policy(self) -> Policy:
        """Return the policy in force."""
        return self.standing.policy

    @property
    def is_finishing(self) -> bool:
        """Tell whether no new job may be taken."""
        return self.reason is not ReasonCode.NONE

    @property
    def is_interrupted(self) -> bool:
        """Tell whether EC2 has announced that it takes the instance."""
        return self.deadline is not None

    @property
    def poller(self) -> int | None:
        """Return the slot that polls now."""
        for number, slot in enumerate(self.slots):
            if slot.doing is Doing.POLLING:
                return number
        return None

    def is_warm(self, now: datetime) -> bool:
        """Tell whether the scaler keeps the worker for whatever comes."""
        return self.warm_until is not None and now < self.warm_until

    def must_leave(self, now: datetime, *, ahead: timedelta = _ZERO) -> bool:
        """Tell whether held jobs must be given back in ``ahead`` from now."""
        return self.leave_by is not None and now + ahead >= self.leave_by

    def is_at_risk_since(self, committed_at: datetime) -> bool:
        """Tell whether EC2 has seen a higher risk after a commit."""
        return self.risk_since is not None and self.risk_since >= committed_at

    def is_idle_for(self, length: timedelta, now: datetime) -> bool:
        """Tell whether every slot has been free for so long."""
        return all(s.doing in _FREE and now - s.free_since >= length for s in self.slots)


# Events.


@dataclass(frozen=True, slots=True)
class WorkerEvent:
    """Something happened to the worker ``now``."""

    now: datetime


class TimePassed(WorkerEvent):
    """The time that ``next_at`` names has come."""


@dataclass(frozen=True, slots=True)
class CheckedIn(WorkerEvent):
    """The ledger knows that the worker is up."""

    launched_at: datetime
    capacity_type: CapacityType
    slots: int


@dataclass(frozen=True, slots=True)
class PolicySeen(WorkerEvent):
    """The policy was read again."""

    standing: Standing


@dataclass(frozen=True, slots=True)
class RowSeen(WorkerEvent):
    """What the control plane has written into the worker's row."""

    warm_until: datetime | None = None
    interrupted_at: datetime | None = None
    rebalance_at: datetime | None = None
    migrating_at: datetime | None = None
    spent_at: datetime | None = None
    surplus_at: datetime | None = None


def row_seen(at: datetime, row: Worker) -> RowSeen:
    """Return that a worker has read its row at a time."""
    return RowSeen(at, *_orders_of(row))


_orders_of = attrgetter(*(each.name for each in fields(RowSeen)[1:]))


@dataclass(frozen=True, slots=True)
class Noticed(WorkerEvent):
    """EC2 takes the instance at ``deadline``; ``source`` is who said so, for the log."""

    deadline: datetime
    source: str = "metadata"


@dataclass(frozen=True, slots=True)
class RebalanceAdvised(WorkerEvent):
    """EC2 has advised at ``at`` to leave the instance; the ledger does not know it yet."""

    at: datetime


class WasCondemned(WorkerEvent):
    """The scaler has decided that the instance ends."""


class Stop(WorkerEvent):
    """The operating system asks for the end (SIGTERM)."""


@dataclass(frozen=True, slots=True)
class SlotEvent(WorkerEvent):
    """Something happened to a slot."""

    slot: int


class SlotReady(SlotEvent):
    """A slot has started, or asks for its turn before its rest is over."""


@dataclass(frozen=True, slots=True)
class Polled(SlotEvent):
    """A slot's poll is over."""

    found: bool


@dataclass(frozen=True, slots=True)
class SlotDone(SlotEvent):
    """A slot has dealt with a message."""

    #: It was a job of ours to work on; False: it was put back, deleted or split off.
    worked: bool
    #: The job's id and whether it failed, if the end says anything of the machine.
    outcome: tuple[str, bool] | None = None
    #: The next message is there already: it was received ahead.
    has_next: bool = False


class SlotFailed(SlotEvent):
    """A request of a slot's got no answer; its message, if any, is out of its hands."""


@dataclass(frozen=True, slots=True)
class SlotFaulted(SlotEvent):
    """Our own code or the machine failed in a slot; ``is_wedged``: a GPU is lost for good."""

    is_wedged: bool = False


class SlotEnded(SlotEvent):
    """A slot has ended."""


@dataclass(frozen=True, slots=True)
class LastPolled(WorkerEvent):
    """The last poll is over."""

    found: bool


@dataclass(frozen=True, slots=True)
class EndAnswered(WorkerEvent):
    """The ledger has turned idle into drained, or refuses."""

    granted: bool


@dataclass(frozen=True, slots=True)
class EndUnheard(WorkerEvent):
    """The last poll, or the question for the end, got no answer; ``denied``: nor ever will."""

    denied: bool


class Drained(WorkerEvent):
    """The ledger was told of the end, or could not be."""


@dataclass(frozen=True, slots=True)
class SlotCommand:
    """What one slot is to do."""

    slot: int


@dataclass(frozen=True, slots=True)
class Poll(SlotCommand):
    """Ask for a message; tell ``Polled`` or ``SlotFailed``."""

    wait: timedelta


class CutPoll(SlotCommand):
    """End the poll under way; a driver that cannot lets it end by itself."""


class Take(SlotCommand):
    """Claim the message's job and work on it; tell ``SlotDone``, or what went wrong."""


class PutBack(SlotCommand):
    """Leave the message to others: nothing is taken any more."""


class ReleaseJob(SlotCommand):
    """Commit what is done and release the job now; attempts may ask ``must_leave`` instead."""


class EndSlot(SlotCommand):
    """End; tell ``SlotEnded``."""


# Commands that concern the worker as a whole.


@dataclass(frozen=True, slots=True)
class LastPoll:
    """Ask for a message, once more; tell ``LastPolled`` or ``EndUnheard``."""

    wait: timedelta = LAST_POLL


@dataclass(frozen=True, slots=True)
class PutLastBack:
    """Leave the message of the last poll to others."""


@dataclass(frozen=True, slots=True)
class AskToEnd:
    """Ask the ledger to turn idle into drained; tell ``EndAnswered`` or ``EndUnheard``."""

    reason: ReasonCode
    idle_timeout: timedelta


@dataclass(frozen=True, slots=True)
class BeginDraining:
    """Tell the ledger that no new job is taken, unless it ``knows``."""

    reason: ReasonCode
    knows: bool


@dataclass(frozen=True, slots=True)
class MarkUnfit:
    """Tell the ledger that this machine is no good."""

    reason: ReasonCode


@dataclass(frozen=True, slots=True)
class AbandonSlot:
    """Wait no longer for a slot that hangs."""

    number: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Tell the ledger of the end, unless it ``knows``; tell ``Drained``."""

    reason: ReasonCode
    knows: bool


@dataclass(frozen=True, slots=True)
class AwaitReclaim:
    """Wait for EC2, which charges nothing if it ends the instance itself."""

    deadline: datetime | None


@dataclass(frozen=True, slots=True)
class PowerOff:
    """End the instance."""


@dataclass(frozen=True, slots=True)
class Exit:
    """End the process; the instance goes down by itself."""


# Commands to whoever told the event.


@dataclass(frozen=True, slots=True)
class TellNotice:
    """Bound the leases by the deadline and write the notice down, again until it is done."""

    deadline: datetime
    source: str


@dataclass(frozen=True, slots=True)
class TellRebalance:
    """Write the advice down, unless the ledger ``knows``."""

    at: datetime
    knows: bool


@dataclass(frozen=True, slots=True)
class Note:
    """Write an event of the worker's log."""

    event: str
    fields: tuple[tuple[str, Any], ...] = ()
    is_warning: bool = False


WorkerCommand = (
    LastPoll
    | PutLastBack
    | AskToEnd
    | BeginDraining
    | MarkUnfit
    | AbandonSlot
    | Drain
    | AwaitReclaim
    | PowerOff
    | Exit
)
Answer = TellNotice | TellRebalance | Note
Command = SlotCommand | WorkerCommand | Answer


def step(state: Lifecycle, event: WorkerEvent) -> tuple[Lifecycle, tuple[Command, ...]]:
    """Return the state after an event, and what is to be done."""
    turn = _Turn(state, event.now)
    if not isinstance(event, TimePassed):
        turn.hear(event)
    turn.pass_time()
    return turn.state, tuple(turn.commands)


def next_at(state: Lifecycle) -> datetime | None:
    """Return when ``TimePassed`` changes something; None: never."""
    phase, instants = state.phase, list[datetime]()
    if phase in _TAKES_JOBS:
        instants += [s.rest[1] for s in state.slots if s.rest and s.doing is Doing.RESTING]
    if phase is Phase.WORKING and not state.is_poll_cut:
        idle_at = _idle_at(state)
        if idle_at is not None:
            instants.append(idle_at)
    if phase is Phase.FINISHING and state.leave_by is not None:
        if not state.is_giving_back:
            instants.append(state.leave_by)
        if any(slot.doing not in _OVER for slot in state.slots):
            instants.append(_hangs_after(state, state.leave_by))
    if phase is Phase.RECLAIMED and state.deadline is not None:
        instants.append(state.deadline + RECLAIM_GRACE + timedelta(seconds=1))
    ends_at = state.ends_at
    if (
        phase in _ALIVE
        and ends_at is not None
        and (state.leave_by is None or not _leaves_before(state, ends_at))
    ):
        instants.append(ends_at)
    return min(instants, default=None)


def _idle_at(state: Lifecycle) -> datetime | None:
    """Return when a worker has been idle for long enough to end; None: it is not idle."""
    since = None
    for slot in state.slots:
        if slot.doing not in _FREE:
            return None
        if since is None or slot.free_since > since:
            since = slot.free_since
    if since is None:
        return None
    at = since + state.standing.idle_timeout
    for not_before in (state.warm_until, state.ask_again_at):
        if not_before is not None and not_before > at:
            at = not_before
    return at


def _leave_at_end(state: Lifecycle, ends_at: datetime) -> datetime:
    return commit_by(ends_at + state.policy.lifetime_grace, state.policy)


def _leaves_before(state: Lifecycle, ends_at: datetime) -> bool:
    """Tell whether the end of the lifetime brings nothing forward any more."""
    by = state.leave_by
    return by is not None and state.is_finishing and by <= _leave_at_end(state, ends_at)


def _hangs_after(state: Lifecycle, leave_by: datetime) -> datetime:
    """Return after when a slot that has not ended is left behind.

    A lifetime that was just shortened may be long over: slots have their time all the same.
    """
    return max(leave_by, state.finishing_since or leave_by) + state.habits.hang_grace


class _Turn:
    """One step: the state as it becomes, and the commands so far.

    A copy is made for each change, and none where nothing changes.
    """

    def __init__(self, state: Lifecycle, now: datetime) -> None:
        self.state = state
        self.now = now
        self.commands: list[Command] = []
        for number, slot in enumerate(state.slots):
            if slot.free_since > now:
                # Somebody has set the clock back: nothing has begun in the future.
                self._set(number, free_since=now)

    def hear(self, event: WorkerEvent) -> None:  # noqa: C901, PLR0912 - one case for each event
        match event:  # The most frequent events come first.
            case Polled(slot=slot, found=found):
                self._polled(slot, found=found)
            case SlotDone():
                self._done(event)
            case SlotReady(slot=slot):
                self._ready(slot)
            case RowSeen():
                self._read(event)
            case PolicySeen(standing=standing):
                self._heed_policy(standing)
            case SlotEnded(slot=slot):
                self._set(slot, doing=Doing.ENDED)
            case CheckedIn():
                self._begin(event)
            case Noticed(deadline=deadline, source=source):
                self._interrupt(deadline, source)
            case RebalanceAdvised(at=at):
                self._rebalance(at, is_known=False)
            case WasCondemned():
                self._leave(self.now, ReasonCode.CONDEMNED)
            case Stop():
                self._stop()
            case SlotFailed(slot=slot):
                self._back_off(slot)
            case SlotFaulted(slot=slot, is_wedged=is_wedged):
                self._faulted(slot, is_wedged=is_wedged)
            case LastPolled(found=found):
                self._last_polled(found=found)
            case EndAnswered(granted=granted):
                self._end_answered(granted=granted)
            case EndUnheard(denied=denied):
                self._end_unheard(denied=denied)
            case Drained():
                self._drained()

    def pass_time(self) -> None:
        """Do what the time brings, and what the event has made possible."""
        ends_at = self.state.ends_at
        if ends_at is not None and self.now >= ends_at and self.state.phase in _ALIVE:
            self._end_if_old(ends_at)
        phase = self.state.phase
        if phase in _TAKES_JOBS:
            self._end_rests()
            if phase is Phase.WORKING:
                self._poll_or_end()
        elif phase is Phase.FINISHING:
            self._end_slots()
            self._release_if_due()
            self._abandon()
            self._drain_if_over()
        elif phase is Phase.RECLAIMED:
            self._power_off_if_due()

    # What ends the worker.

    def _finish(self, reason: ReasonCode) -> bool:
        """Take no new job; tell whether this was news."""
        state = self.state
        if state.is_finishing:
            return False
        self._change(reason=reason, finishing_since=self.now)
        if state.phase in _TAKES_JOBS:
            self._begin_finishing()
        return True

    def _begin_finishing(self) -> None:
        self._change(phase=Phase.FINISHING, turns=())
        poller = self.state.poller
        if poller is not None and not self.state.is_poll_cut:
            self.commands.append(CutPoll(poller))
        self.commands.append(BeginDraining(self.state.reason, self.state.is_drained))

    def _leave(self, by: datetime, reason: ReasonCode) -> bool:
        """Take no new job and give back what is held by ``by``; tell whether this was news."""
        before = self.state.leave_by
        is_news = before is None or by < before
        if is_news:
            self._change(leave_by=by)
        self._finish(reason)
        return is_news

    def _interrupt(self, deadline: datetime, source: str) -> None:
        before = self.state.deadline
        self._change(deadline=min(deadline, before or deadline))
        if before is None:
            self.commands.append(TellNotice(deadline, source))
        self._leave(commit_by(deadline, self.state.policy), ReasonCode.INTERRUPTED)

    def _rebalance(self, at: datetime, *, is_known: bool) -> None:
        if self.state.risk_since is None:
            self._change(risk_since=self.now)
            self.commands.append(TellRebalance(at, is_known))

    def _stop(self) -> None:
        self._change(is_stopped=True)
        if self.state.phase is Phase.RECLAIMED:
            self._change(phase=Phase.ENDED)
            self.commands.append(Exit())
        else:
            self._leave(self.now + self.state.habits.stop_grace, ReasonCode.STOPPED)

    def _read(self, row: RowSeen) -> None:
        if row.warm_until != self.state.warm_until:
            self._change(warm_until=row.warm_until)
        if row.interrupted_at is not None:
            self._interrupt(row.interrupted_at, "ledger")
        if row.rebalance_at is not None:
            self._rebalance(row.rebalance_at, is_known=True)
        if row.migrating_at is not None and self._leave(self.now, ReasonCode.MIGRATED):
            self._note("migrated", since=row.migrating_at)
        if row.spent_at is not None:
            self._heed_budget(row.spent_at)
        if row.surplus_at is not None and self._finish(ReasonCode.NO_ROOM):
            self._note("surplus", since=row.surplus_at)

    def _heed_budget(self, since: datetime) -> None:
        """End as the policy says, which may have changed since the budget was used up."""
        when_spent = self.state.policy.when_spent
        is_news = False
        if when_spent is WhenSpent.STOP:
            is_news = self._leave(self.now, ReasonCode.BUDGET_SPENT)
        elif when_spent is WhenSpent.FINISH_JOBS:
            is_news = self._finish(ReasonCode.BUDGET_SPENT)
        if is_news:
            self._note("budget_spent", since=since, when_spent=when_spent.value)

    def _heed_policy(self, standing: Standing) -> None:
        if standing != self.state.standing:
            launched_at, lifetime = self.state.launched_at, standing.policy.max_lifetime
            ends_at = None if launched_at is None else launched_at + lifetime
            self._change(standing=standing, ends_at=ends_at)
        if not standing.policy.max_workers:
            self._finish(ReasonCode.NO_ROOM)
        habits, since = self.state.habits, None
        if standing.code_digest and standing.code_digest != habits.code_digest:
            since = self.state.outdated_since or self.now
        if since != self.state.outdated_since:
            self._change(outdated_since=since)
        if since is not None and self.now - since >= habits.outdated_for:
            self._finish(ReasonCode.OTHER_CODE)

    def _end_if_old(self, ends_at: datetime) -> None:
        if _leaves_before(self.state, ends_at):
            return
        if self._leave(_leave_at_end(self.state, ends_at), ReasonCode.LIFETIME):
            self._note("lifetime_over", hours=self.state.policy.max_lifetime / timedelta(hours=1))

    def _mark_unfit(self, code: ReasonCode) -> None:
        self._finish(code)
        self.commands.append(MarkUnfit(code))

    # The slots.

    def _begin(self, event: CheckedIn) -> None:
        self._change(
            phase=Phase.WORKING,
            launched_at=event.launched_at,
            ends_at=event.launched_at + self.state.policy.max_lifetime,
            capacity_type=event.capacity_type,
            slots=tuple(SlotLife(self.now) for _ in range(event.slots)),
        )
        if self.state.is_finishing:
            # It was asked to stop before.
            self._begin_finishing()

    def _ready(self, number: int) -> None:
        if self.state.slots[number].doing in (Doing.STARTING, Doing.RESTING):
            self._queue_up(number)

    def _queue_up(self, number: int, **changes: Any) -> None:
        changes |= {"doing": Doing.WAITING, "rest": None}
        queued, turns = {"slots": self._with(number, changes)}, self.state.turns
        self.state = _copy(
            self.state, queued if number in turns else {**queued, "turns": (*turns, number)}
        )

    def _rest(self, number: int, length: timedelta, **changes: Any) -> None:
        if length <= _ZERO:
            self._queue_up(number, **changes)
        else:
            rest = self.now, self.now + length
            self._set(number, doing=Doing.RESTING, rest=rest, **changes)

    def _polled(self, number: int, *, found: bool) -> None:
        self._poll_is_over()
        if self.state.is_finishing:
            self._set(number, doing=Doing.RESTING)
            if found:
                self.commands.append(PutBack(number))
        elif found:
            self._set(number, doing=Doing.BUSY)
            self.commands.append(Take(number))
        else:
            idle_for = self.now - self.state.slots[number].free_since
            pause = _ZERO if self.state.is_warm(self.now) else poll_wait(idle_for)
            length = max(pause, self.state.habits.shortest_rest)
            self._rest(number, length, back_off=FIRST_BACK_OFF)

    def _poll_is_over(self) -> None:
        if self.state.is_poll_cut:
            self._change(is_poll_cut=False)

    def _done(self, event: SlotDone) -> None:
        number, changes = event.slot, dict[str, Any](back_off=FIRST_BACK_OFF)
        if event.worked:
            changes |= {"free_since": self.now, "faults": 0}
        if event.outcome is not None:
            self._judge(event.outcome)
        is_for_one = self.state.standing.dispatch is Dispatch.DEDICATED
        if is_for_one and event.worked and not self.state.is_warm(self.now):
            self._end_for_one(event.outcome)
        if event.has_next and not self.state.is_finishing:
            self._set(number, doing=Doing.BUSY, **changes)
            self.commands.append(Take(number))
        elif not self.state.is_finishing:
            shortest = _ZERO if event.worked else self.state.habits.shortest_rest
            self._rest(number, shortest, **changes)
        else:
            self._set(number, doing=Doing.RESTING, **changes)
            if event.has_next:
                self.commands.append(PutBack(number))

    def _end_for_one(self, outcome: tuple[str, bool] | None) -> None:
        """End with the job; one that failed was all that this machine can be judged by."""
        if outcome is not None and outcome[1]:
            self._mark_unfit(ReasonCode.JOBS_FAILED)
        else:
            self._finish(ReasonCode.JOB_OVER)

    def _judge(self, outcome: tuple[str, bool]) -> None:
        """Take no more jobs if the last ones say that the machine is no good."""
        outcomes, policy = (*self.state.outcomes, outcome)[-_OUTCOMES:], self.state.policy
        self._change(outcomes=outcomes)
        if is_quarantined(outcomes, policy):
            self._note("quarantined", is_warning=True, jobs=policy.failures_to_quarantine)
            self._mark_unfit(ReasonCode.JOBS_FAILED)

    def _back_off(self, number: int) -> None:
        slot = self.state.slots[number]
        if slot.doing is Doing.ENDING or slot.doing in _OVER:
            return
        if slot.doing is Doing.POLLING:
            self._poll_is_over()
        back_off = min(2 * slot.back_off, LONGEST_BACK_OFF)
        if self.state.is_finishing:
            self._set(number, doing=Doing.RESTING, back_off=back_off)
        else:
            self._rest(number, slot.back_off, back_off=back_off)

    def _faulted(self, number: int, *, is_wedged: bool) -> None:
        faults = self.state.slots[number].faults + (FAULTS_AT_MOST if is_wedged else 1)
        self._set(number, faults=faults)
        if faults >= FAULTS_AT_MOST:
            self._mark_unfit(ReasonCode.FAULTY)
        self._back_off(number)

    def _end_rests(self) -> None:
        over: list[tuple[datetime, int]] = []
        for number, slot in enumerate(self.state.slots):
            # No longer, if somebody sets the clock back meanwhile.
            if (
                slot.rest
                and slot.doing is Doing.RESTING
                and not slot.rest[0] <= self.now < slot.rest[1]
            ):
                over.append((slot.rest[1], number))
        for _, number in sorted(over) if over else ():
            self._queue_up(number)

    def _poll_or_end(self) -> None:
        """Let the next slot poll, unless one does; make the last poll if idle for too long."""
        state = self.state
        idle_at = _idle_at(state)
        if idle_at is None or self.now < idle_at:
            if state.turns and state.poller is None:
                number = state.turns[0]
                slots = self._with(number, {"doing": Doing.POLLING})
                self._change(slots=slots, turns=state.turns[1:])
                self.commands.append(Poll(number, self._poll_length(number)))
        elif state.is_poll_cut:
            return
        elif (poller := state.poller) is not None:
            self._change(is_poll_cut=True)
            self.commands.append(CutPoll(poller))
        else:
            self._change(phase=Phase.LAST_POLL, is_asking=True)
            self.commands.append(LastPoll())

    def _poll_length(self, number: int) -> timedelta:
        """Return how long to poll: not past the idle timeout, in whole seconds as SQS counts."""
        state = self.state
        if state.is_warm(self.now):
            return state.habits.poll_at_most
        rest = state.standing.idle_timeout - (self.now - self.state.slots[number].free_since)
        seconds = math.ceil(max(rest, _ZERO).total_seconds())
        return min(timedelta(seconds=seconds), state.habits.poll_at_most)

    # The end of an idle worker.

    def _last_polled(self, *, found: bool) -> None:
        state = self.state
        if not found:
            if state.is_finishing:
                self._change(is_asking=False)
            else:
                self.commands.append(AskToEnd(ReasonCode.IDLE, state.standing.idle_timeout))
            return
        self._change(is_asking=False)
        if state.is_finishing:
            self.commands.append(PutLastBack())
            return
        number = next((n for n, s in enumerate(state.slots) if s.doing is not Doing.STARTING), 0)
        self._set(number, doing=Doing.BUSY, rest=None)
        self.commands.append(Take(number))
        self._work_on()

    def _work_on(self) -> None:
        """Go on as before the last poll; whoever rested asks at once."""
        self._change(
            phase=Phase.WORKING,
            is_asking=False,
            turns=tuple(
                n
                for n, s in enumerate(self.state.slots)
                if s.doing in (Doing.RESTING, Doing.WAITING)
            ),
        )
        for number in self.state.turns:
            self._set(number, doing=Doing.WAITING, rest=None)

    def _end_answered(self, *, granted: bool) -> None:
        self._change(is_asking=False)
        if granted:
            self._change(is_drained=True)
            # Nothing is held any more, so a slot that hangs is not waited for either.
            self._leave(self.now, ReasonCode.IDLE)
        elif not self.state.is_finishing:
            self._change(ask_again_at=self.now + ASK_AGAIN_AFTER)
            self._work_on()

    def _end_unheard(self, *, denied: bool) -> None:
        """Ask for the end again, since work may have come; end all the same if that may not be."""
        self._change(is_asking=False)
        state = self.state
        if state.is_finishing:
            return
        patience = state.standing.idle_timeout + state.policy.scale_down_delay
        if denied or state.is_idle_for(patience, self.now):
            self._leave(self.now, ReasonCode.IDLE_UNHEARD)
        else:
            self._change(ask_again_at=self.now + ASK_AGAIN_AFTER)
            self._work_on()

    # The end of every worker.

    def _end_slots(self) -> None:
        for number, slot in enumerate(self.state.slots):
            if slot.doing in (Doing.STARTING, Doing.WAITING, Doing.RESTING):
                self._set(number, doing=Doing.ENDING, rest=None)
                self.commands.append(EndSlot(number))

    def _release_if_due(self) -> None:
        if self.state.is_giving_back or not self.state.must_leave(self.now):
            return
        self._change(is_giving_back=True)
        busy = (n for n, s in enumerate(self.state.slots) if s.doing is Doing.BUSY)
        self.commands += [ReleaseJob(number) for number in busy]

    def _abandon(self) -> None:
        by = self.state.leave_by
        if by is None or self.now < _hangs_after(self.state, by):
            return
        for number, slot in enumerate(self.state.slots):
            if slot.doing not in _OVER:
                self._set(number, doing=Doing.LEFT)
                self.commands.append(AbandonSlot(number))

    def _drain_if_over(self) -> None:
        state = self.state
        if not state.is_asking and all(slot.doing in _OVER for slot in state.slots):
            self._change(phase=Phase.DRAINING)
            self.commands.append(Drain(state.reason, state.is_drained))

    def _drained(self) -> None:
        self._change(phase=Phase.RECLAIMED, is_drained=True)
        if self._should_power_off():
            return
        if self.state.is_stopped:
            self._change(phase=Phase.ENDED)
            self.commands.append(Exit())
        else:
            self.commands.append(AwaitReclaim(self.state.deadline))

    def _power_off_if_due(self) -> None:
        if self._should_power_off():
            self._change(phase=Phase.ENDED)
            self.commands.append(PowerOff())

    def _should_power_off(self) -> bool:
        state = self.state
        return state.launched_at is None or should_power_off(
            launched_at=state.launched_at,
            deadline=state.deadline,
            capacity_type=state.capacity_type,
            now=self.now,
        )

    # Helpers.

    def _with(self, number: int, changes: dict[str, Any]) -> tuple[SlotLife, ...]:
        """Return all slots, one of them changed."""
        slots = list(self.state.slots)
        slots[number] = _copy(slots[number], changes)
        return tuple(slots)

    def _set(self, number: int, **changes: Any) -> None:
        self.state = _copy(self.state, {"slots": self._with(number, changes)})

    def _change(self, **changes: Any) -> None:
        self.state = _copy(self.state, changes)

    def _note(self, event: str, *, is_warning: bool = False, **fields: Any) -> None:
        self.commands.append(Note(event, tuple(fields.items()), is_warning))


def _copy(value: T, changes: dict[str, Any]) -> T:
    """Return a state with some fields changed, several times as fast as ``replace``."""
    copy: T = object.__new__(type(value))
    object.__setattr__(copy, "__dict__", value.__dict__ | changes)
    return copy
