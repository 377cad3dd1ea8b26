"""Decide which machines the scaler ends: those that break their contract, and those without a row.

Three words, by strength. To *wind down* is to tell a worker to end by itself. To *condemn* is to
mark the row of a worker that breaks its contract. To *terminate* is the call that ends an instance:
of each condemned worker, of each that has outstayed (``outstayed``), and of each orphan.

The jobs of a worker that is gone go back by ``control.plan.requeue``. What a worker decides about
itself is in ``domain.worker_lifecycle``.

An instance is terminated when

- it gives no sign of life any more (``find_terminations``: ``_stale``);
- it never checked in (``_reason``; within what time: ``learning.check_in_within``), is idle for too
  long, too old without a job, or drained and did not power off (``_reason``);
- it has outstayed the end that every honest worker keeps (``find_due``, ``outstayed``);
- no row and no open launch knows it (``_orphans``).

Which it tells to end for money is in ``budget`` and ``surplus``; when a worker ends itself in
``worker_lifecycle``.

A worker that is at work and says so is not ended from outside, unless it has outstayed the end that
every honest worker keeps (``find_due``): a row may say anything. Four things keep an instance from
running on, each without the others: the worker's own timeouts, the dead-man timer on the instance,
this module, and the alarm `idle`, which calls a person.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol

from spindown.domain.fleet import Launch, Lease, Worker, WorkerState
from spindown.domain.idle import idle_within
from spindown.domain.learning import Knowledge, check_in_within
from spindown.domain.lease import RELEASE_AFTER
from spindown.domain.notice_time import RECLAIM_GRACE
from spindown.domain.policy import Policy, WhenSpent
from spindown.domain.reason import NO_REASON, About, Reason, ReasonCode
from spindown.domain.useless_instance import REQUEST, blamed_party
from spindown.domain.warm import kept_warm_of
from spindown.domain.worker_lifecycle import POWER_OFF, STOP_GRACE_AT_MOST, hang_grace

#: StateReason.Code of an instance that EC2 took back (EC2 API reference, StateReason).
_RECLAIMED = frozenset({"Server.SpotInstanceTermination", "Server.SpotInstanceShutdown"})


class Instance(Protocol):
    """An instance as EC2 describes it."""

    @property
    def instance_id(self) -> str:
        """Its id."""
        ...

    @property
    def state(self) -> str:
        """pending, running, shutting-down, terminated, stopping or stopped."""
        ...

    @property
    def launched_at(self) -> datetime:
        """When EC2 started it."""
        ...

    @property
    def state_reason(self) -> str:
        """EC2's StateReason.Code."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """A worker whose instance is gone."""

    instance_id: str
    reason: Reason
    #: EC2 took it back: an interruption of its pool.
    reclaimed: bool = False


def ending_of(worker: Worker, instance: Instance) -> Ending:
    """Say why an instance that is gone has ended, and whether EC2 took it back."""
    reclaimed = instance.state_reason in _RECLAIMED or (
        worker.noticed_at is not None and blamed_party(instance.state_reason) != REQUEST
    )
    if instance.state_reason:
        found = Reason(ReasonCode.EC2_SAID, {"state_reason": instance.state_reason})
    else:
        found = Reason(ReasonCode.EC2_STATE, {"state": instance.state})
    reason = worker.reason or found
    return Ending(instance_id=worker.instance_id, reason=reason, reclaimed=reclaimed)


def is_heard(worker: Worker, leased: Collection[str], policy: Policy, now: datetime) -> bool:
    """Tell whether a worker has checked in and has given a sign of life lately.

    Args:
        worker: as the ledger holds it.
        leased: instances that hold a job within its deadline.
        policy: in force.
        now: the present.
    """
    if worker.checked_in_at is None:
        return False
    is_fresh = now - worker.last_sign <= policy.heartbeat_stale_after
    return is_fresh or worker.instance_id in leased


def watch_from(
    watched_since: datetime | None, last_tick: datetime | None, policy: Policy, now: datetime
) -> datetime:
    """Return since when ticks have reached the ledger without a break.

    A break is a time without a good tick that is longer than one and a half ticks and than a third
    of ``heartbeat_stale_after``. After a shorter one, a worker has had time enough to report.

    Args:
        watched_since: what the last good tick found; None: nothing.
        last_tick: when that was; None: there was none.
        policy: in force.
        now: of this tick, which has read the ledger.
    """
    allowed = max(1.5 * policy.tick, policy.heartbeat_stale_after / 3)
    if watched_since is None or last_tick is None or now - last_tick > allowed:
        return now
    return watched_since


@dataclass(frozen=True, slots=True, kw_only=True)
class Condemnation:
    """A live worker to be condemned, then terminated."""

    instance_id: str
    reason: Reason
    #: Whether it never came up: then its pool is marked, and the launch counts as failed.
    never_checked_in: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminations:
    """What to end, and what has ended."""

    condemn: tuple[Condemnation, ...] = ()
    #: Condemned before and still there: terminate again.
    terminate: tuple[str, ...] = ()
    ended: tuple[Ending, ...] = ()
    #: Live rows whose instances EC2 does not know, though they are old enough to be known.
    lost_rows: tuple[str, ...] = ()
    #: Instances of this workload that no row and no open intent knows.
    orphans: tuple[str, ...] = ()
    #: Busy and alive past their lifetime: noted in the decision, and ended if they outstay it.
    overdue: tuple[str, ...] = ()
    #: Why stale workers were left alone, if any were.
    held_back: Reason = NO_REASON
    #: Why silent workers do not count as stale yet, if there are any.
    doubt: Reason = NO_REASON


#: Stale workers condemned in one tick, at most: so many, or a twentieth of those that report. Where
#: it is the way to the ledger that is broken, not the workers, most of them are heard again before
#: their turn; and a zone that hangs is replaced within some ticks, however large the fleet.
STALE_PER_TICK = 5
_STALE_SHARE = 20
#: If so many workers or more are stale and that is most of the fleet, the fault is in Spindown.
STALE_IS_OURS_FROM = 3
#: EC2's answers may miss an instance for a while after its launch (eventual consistency).
UNSEEN_FOR = timedelta(minutes=5)
#: A launch without an answer is repeated within ``UNSEEN_FOR``, and its instances may appear as
#: late again.
ASKED_FOR = 2 * UNSEEN_FOR
#: A drained worker has powered off by then.
DRAINED_FOR = timedelta(minutes=5)

#: States of an instance that bills no more.
GONE = frozenset({"shutting-down", "terminated"})


def find_terminations(  # noqa: PLR0913 - the whole situation, each part with its own name
    *,
    workers: Sequence[Worker],
    instances: Sequence[Instance],
    launches: Sequence[Launch] = (),
    leases: Sequence[Lease] = (),
    unreadable: Collection[str] = (),
    policy: Policy,
    knowledge: Knowledge,
    now: datetime,
    watched_since: datetime | None = None,
) -> Terminations:
    """Decide what to end. A worker appears in at most one list.

    ``unreadable`` are the instances whose rows cannot be read. Silence counts from
    ``watched_since`` on at the earliest; None: it counts in full.
    """
    seen = {instance.instance_id: instance for instance in instances}
    present: list[Worker] = []
    ended: list[Ending] = []
    lost: list[str] = []
    for worker in workers:
        if worker.state is WorkerState.ENDED:
            continue
        instance = seen.get(worker.instance_id)
        if instance is None:
            if now - worker.launched_at > UNSEEN_FOR:
                lost.append(worker.instance_id)
        elif instance.state in GONE:
            ended.append(ending_of(worker, instance))
        else:
            present.append(worker)
    leased = {lease.instance_id for lease in leases if lease.deadline > now}
    verdicts = _Verdicts(policy, knowledge, now, leased, watched_since)
    stale, held_back, doubt = _stale(verdicts, present)
    condemn = [*stale, *verdicts.broken(present, {c.instance_id for c in stale})]
    return Terminations(
        condemn=tuple(condemn),
        terminate=tuple(w.instance_id for w in present if w.state is WorkerState.CONDEMNED),
        ended=tuple(ended),
        lost_rows=tuple(lost),
        orphans=_orphans(workers, instances, launches, unreadable, policy, now),
        overdue=tuple(w.instance_id for w in present if verdicts.is_overdue(w)),
        held_back=held_back,
        doubt=doubt,
    )


class DueKind(StrEnum):
    """Why an instance must end at once, whatever its row says.

    Of several that are outstayed, the last one here is told as the reason.
    """

    #: It has said that it ended its work.
    DRAINED = "drained"
    #: Its lifetime and grace are over.
    OLD = "old"
    #: It was told that the budget is used up, and is not to go on with what waits.
    SPENT = "spent"
    #: It was told that there is no room for it, and finishes its jobs.
    SURPLUS = "surplus"


def find_due(
    instances: Sequence[Instance],
    *,
    spent: Collection[str],
    surplus: Collection[str],
    drained: Collection[str],
    known: Mapping[str, datetime],
    policy: Policy,
    now: datetime,
) -> dict[str, datetime]:
    """Return "kind#instance" -> the first tick that found that an instance must end at once.

    What was found stays until the instance is gone, since its row may take it back. The age is by
    EC2's launch time.

    Args:
        instances: ours, as EC2 describes them.
        spent: those that were told that the budget is used up.
        surplus: those that were told that there is no room for them.
        drained: those that have said that they ended.
        known: what the last tick found.
        policy: in force.
        now: the present.
    """
    lifetime = policy.max_lifetime + policy.lifetime_grace
    found: dict[str, datetime] = {}
    for instance in instances:
        if instance.state in GONE:
            continue
        key = {kind: f"{kind}#{instance.instance_id}" for kind in DueKind}
        told = {DueKind.DRAINED: drained, DueKind.SPENT: spent, DueKind.SURPLUS: surplus}
        is_due = {
            kind: instance.instance_id in ids or key[kind] in known for kind, ids in told.items()
        }
        is_due[DueKind.SPENT] &= policy.when_spent is not WhenSpent.STOP_LAUNCHES
        is_due[DueKind.OLD] = now - instance.launched_at > lifetime
        found |= {key[kind]: known.get(key[kind], now) for kind in DueKind if is_due[kind]}
    return found


def outstayed(due: Mapping[str, datetime], policy: Policy, now: datetime) -> dict[str, Reason]:
    """Return the instances that no honest worker would still run on, each with the reason."""
    found = {}
    for kind in DueKind:
        for key, since in sorted(due.items()):
            of, _, instance_id = key.partition("#")
            if of == kind and now - since > _due_within(kind, policy):
                about: About = {"due": kind.value, "seconds": (now - since).total_seconds()}
                found[instance_id] = Reason(ReasonCode.OUTSTAYED, about)
    return found


def _due_within(kind: DueKind, policy: Policy) -> timedelta:
    """Return how long an honest worker may take: it finishes its jobs first where it is let."""
    finishes = kind is DueKind.SURPLUS or (
        kind is DueKind.SPENT and policy.when_spent is WhenSpent.FINISH_JOBS
    )
    return ends_within(policy) + (RELEASE_AFTER if finishes else timedelta(0))


def ends_within(policy: Policy) -> timedelta:
    """Return how long an honest worker takes to end at the most, and some ticks.

    A tick until it is told, a heartbeat until it hears, the longest put-back, its power-off.
    Worked: 1 + 1 + 1.83 + 1 + 3 = 7.83 min with tick and heartbeat of a minute.
    """
    word = policy.tick + policy.heartbeat_interval
    return word + hang_grace(STOP_GRACE_AT_MOST) + POWER_OFF + _SLACK_TICKS * policy.tick


#: For clocks that differ and heartbeats that are late.
_SLACK_TICKS = 3


def _orphans(
    workers: Sequence[Worker],
    instances: Sequence[Instance],
    launches: Sequence[Launch],
    unreadable: Collection[str],
    policy: Policy,
    now: datetime,
) -> tuple[str, ...]:
    known = {worker.instance_id for worker in workers}
    # One whose row cannot be read may be at work, as long as its lifetime lasts.
    lifetime = policy.max_lifetime + policy.lifetime_grace
    # An instance that began within this time of an open intent may belong to it and be adopted. One
    # that began later does not, or an intent without an answer would protect all instances.
    intents = [x.intended_at for x in launches if x.is_open]
    return tuple(
        instance.instance_id
        for instance in instances
        if instance.instance_id not in known
        and instance.state not in GONE
        and not any(at <= instance.launched_at <= at + ASKED_FOR for at in intents)
        and now - instance.launched_at > UNSEEN_FOR
        and (instance.instance_id not in unreadable or now - instance.launched_at > lifetime)
    )


def _stale(
    verdicts: "_Verdicts", present: Sequence[Worker]
) -> tuple[list[Condemnation], Reason, Reason]:
    reporting = [w for w in present if w.is_live and w.checked_in_at is not None]
    silent = [w for w in reporting if verdicts.is_silent(w) and not verdicts.is_leaving(w)]
    # The lifetime is known from EC2, so it counts even if heartbeats were lost.
    stale = [w for w in silent if verdicts.is_silence_watched(w) or verdicts.is_past_lifetime(w)]
    doubt = held_back = NO_REASON
    if len(stale) < len(silent):
        since = (verdicts.watched_since or verdicts.now).isoformat()
        about: About = {"silent": len(silent) - len(stale), "since": since}
        doubt = Reason(ReasonCode.NOBODY_LISTENED, about)
    if len(stale) >= STALE_IS_OURS_FROM and 2 * len(stale) > len(reporting):
        about = {"stale": len(stale), "workers": len(reporting)}
        held_back = Reason(ReasonCode.MOST_ARE_STALE, about)
        stale = [w for w in stale if verdicts.is_past_lifetime(w)]
    stale.sort(key=lambda w: (w.heartbeat_at or w.launched_at, w.instance_id))
    condemned = [
        Condemnation(instance_id=w.instance_id, reason=verdicts.stale_reason(w))
        for w in stale[: max(STALE_PER_TICK, len(reporting) // _STALE_SHARE)]
    ]
    rest = len(stale) - len(condemned)
    if rest and not held_back:
        held_back = Reason(ReasonCode.STALE_NEXT_TICK, {"stale": rest})
    return condemned, held_back, doubt


class _Verdicts:
    """What one worker's contract says at one moment."""

    def __init__(
        self,
        policy: Policy,
        knowledge: Knowledge,
        now: datetime,
        leased: set[str],
        watched_since: datetime | None,
    ) -> None:
        self.policy = policy
        self.now = now
        self.watched_since = watched_since
        self.leased = leased
        self.check_in_within = check_in_within(knowledge, policy)
        self.knowledge = knowledge

    def broken(self, present: Sequence[Worker], already: set[str]) -> list[Condemnation]:
        """Return workers that break their contract in another way than being stale."""
        kept_warm = kept_warm_of(present, self.policy)
        condemned = []
        for worker in present:
            if worker.instance_id in already or self.is_leaving(worker):
                continue
            reason = self._reason(worker, kept_warm)
            if reason is not None:
                never = worker.state is WorkerState.BOOTING
                condemned.append(
                    Condemnation(
                        instance_id=worker.instance_id, reason=reason, never_checked_in=never
                    )
                )
        return condemned

    def is_leaving(self, worker: Worker) -> bool:
        """Tell whether EC2 is taking it away anyway; ending it first would only be charged."""
        if worker.interrupted_at is None:
            return False
        return self.now <= worker.interrupted_at + RECLAIM_GRACE

    def is_silent(self, worker: Worker) -> bool:
        """Tell whether it has given no sign of life for too long."""
        if worker.instance_id in self.leased:
            return False
        return self.now - worker.last_sign > self.policy.heartbeat_stale_after

    def is_silence_watched(self, worker: Worker) -> bool:
        """Tell whether the ledger was there to hear it for all of ``heartbeat_stale_after``."""
        heard_from = max(worker.last_sign, self.watched_since or worker.last_sign)
        return self.now - heard_from > self.policy.heartbeat_stale_after

    def stale_reason(self, worker: Worker) -> Reason:
        """Return for how long it has been silent."""
        silent = self.now - worker.last_sign
        return Reason(ReasonCode.SILENT, {"silent_seconds": silent.total_seconds()})

    def is_overdue(self, worker: Worker) -> bool:
        """Tell whether it is busy and alive past its lifetime and grace."""
        return (
            worker.state is WorkerState.BUSY
            and self.is_past_lifetime(worker)
            and not self.is_silent(worker)
        )

    def is_past_lifetime(self, worker: Worker) -> bool:
        """Tell whether it should have drained by its age, and had time to."""
        age = self.now - worker.launched_at
        return age > self.policy.max_lifetime + self.policy.lifetime_grace

    def _reason(self, worker: Worker, kept_warm: frozenset[str]) -> Reason | None:
        age = self.now - worker.launched_at
        if worker.state is WorkerState.BOOTING and age > self.check_in_within:
            within = self.check_in_within.total_seconds()
            return Reason(ReasonCode.NEVER_CHECKED_IN, {"within_seconds": within})
        if worker.state is WorkerState.DRAINED and self.now - worker.last_sign > DRAINED_FOR:
            return Reason(ReasonCode.NEVER_POWERED_OFF)
        unoccupied = worker.state in {WorkerState.IDLE, WorkerState.DRAINED}
        if unoccupied and self.is_past_lifetime(worker):
            return Reason(ReasonCode.TOO_OLD, {"age_seconds": age.total_seconds()})
        if worker.state is WorkerState.IDLE and worker.useless_since is not None:
            idle = self.now - worker.useless_since
            # One tick more, since a worker may leave its idle state just after its row was read.
            most = idle_within(self.knowledge, self.policy, worker.shape) + self.policy.tick
            if idle > most and worker.instance_id not in kept_warm:
                return Reason(ReasonCode.IDLE_TOO_LONG, {"idle_seconds": idle.total_seconds()})
        return None
