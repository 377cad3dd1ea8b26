"""Which instances were of no use, how many of them stop launches, and for how long.

``control.plan.breaker`` counts them, opens the breaker of a region by the numbers below, and closes
it: after a time, for a new launch version, or once an instance was of use. Three kinds are counted,
each apart:

1. it never checked in (``has_missed_check_in``), though somebody would have seen a check-in
   (``could_check_in``);
2. it ended without a job though work waited (``has_left_work``), or met none that it can do
   (``has_declined_all``), or could claim none (``could_not_claim``);
3. it ended since its last jobs all failed (``has_failed_all``).

One that EC2 took back or somebody ended by a call counts as none of these. One that was of use
(``is_of_use``) clears its traits.
"""

from datetime import datetime, timedelta

from spindown.domain.fleet import Worker, WorkerState
from spindown.domain.reason import NO_REASON, Reason, ReasonCode

#: So many useless instances in a row of one launch version stop launches.
STRIKES = 3
#: Then one launch is tried again, unless the launch version has changed before.
STOPPED_FOR = timedelta(hours=1)
#: Instead one launch in so long, where messages can be at fault, since others may wait. It is the
#: promise's own time.
PACE = timedelta(minutes=5)
#: Messages are at fault, and nobody is called, if items of the version were done within this.
PROVEN_FOR = timedelta(hours=6)
#: An account error is tried again after this, so that a repair needs no second action.
ACCOUNT_RETRY_AFTER = timedelta(minutes=15)
#: StateReason.Code of an instance that somebody ended by a call (EC2 API reference, StateReason).
_ENDED_BY_CALL = "Client.UserInitiatedShutdown"
#: The first part of a StateReason.Code is the party that it blames. Some codes blame the request
#: and name no fault (EC2 API reference, StateReason).
_EC2, REQUEST = "Server", "Client"
_NO_FAULT = frozenset({_ENDED_BY_CALL, "Client.InstanceInitiatedShutdown"})
#: Why a worker leaves although it could work.
_SENT_AWAY = frozenset(
    {
        ReasonCode.OTHER_CODE,
        ReasonCode.NO_ROOM,
        ReasonCode.MIGRATED,
        ReasonCode.BUDGET_SPENT,
    }
)
#: A worker that has taken a job and found no fault for so long is of use.
_PROVEN_AFTER = timedelta(minutes=5)


def has_missed_check_in(worker: Worker) -> bool:
    """Tell whether a worker ended by itself before it checked in.

    Not if EC2 took it back or somebody ended it by a call. If every instance ends like this, new
    launches must stop. A worker that was condemned for its silence has been counted already.
    """
    return (
        worker.state is WorkerState.ENDED
        and worker.checked_in_at is None
        and worker.condemned_at is None
        and not worker.is_interrupting
        and _state_reason(worker) != _ENDED_BY_CALL
    )


def could_check_in(
    launched_at: datetime, until: datetime, watched_since: datetime | None, within: timedelta
) -> bool:
    """Tell whether anybody would have seen a check-in of a worker that never checked in.

    Args:
        launched_at: when it began to boot.
        until: its end, or the present.
        watched_since: since when ticks have reached the ledger without a break; None: always.
        within: how long a boot may take.
    """
    if watched_since is None or watched_since <= launched_at:
        return True
    return until - watched_since > within


def has_left_work(worker: Worker, waiting_since: datetime | None) -> bool:
    """Tell whether a worker came up and ended without a job, though one waited all the time.

    A worker that was told to leave, by a deploy for example, does not count.

    Args:
        worker: as the ledger holds it.
        waiting_since: since when work is visible that nobody has claimed; None: there is none.
    """
    return (
        _took_nothing(worker)
        and worker.checked_in_at is not None
        and waiting_since is not None
        and waiting_since <= worker.checked_in_at
    )


def has_declined_all(worker: Worker) -> bool:
    """Tell whether a worker ended without a job since what waited was none that it can do."""
    return worker.declined_at is not None and _took_nothing(worker)


def could_not_claim(worker: Worker) -> bool:
    """Tell whether a worker ended without a job since AWS answered none of its claims."""
    return worker.unanswered_at is not None and _took_nothing(worker)


def has_failed_all(worker: Worker) -> bool:
    """Tell whether a worker took jobs and ended because its last ones had all failed."""
    return (
        worker.state is WorkerState.ENDED
        and worker.claimed_at is not None
        and worker.unfit_at is not None
    )


def is_of_use(worker: Worker, now: datetime) -> bool:
    """Tell whether a worker took a job and was not faulty then; a fault shows in minutes."""
    is_proven = (
        worker.state is WorkerState.ENDED or now - (worker.checked_in_at or now) >= _PROVEN_AFTER
    )
    return worker.claimed_at is not None and worker.unfit_at is None and is_proven


def is_faulty(worker: Worker) -> bool:
    """Tell whether a machine has found itself at fault, and not the jobs that it took."""
    return worker.unfit_at is not None and worker.reason.code is ReasonCode.FAULTY


def known_fault(worker: Worker) -> Reason:
    """Return why an instance has ended, if it or EC2 has said so; an empty reason: neither has."""
    said = _state_reason(worker)
    is_blamed = worker.unfit_at is not None or (
        blamed_party(said) == REQUEST and said not in _NO_FAULT
    )
    return worker.reason if is_blamed else NO_REASON


def is_fault_of_ec2(worker: Worker) -> bool:
    """Tell whether EC2 says that it ended an instance; else image, code or account may have."""
    return blamed_party(_state_reason(worker)) == _EC2


def _took_nothing(worker: Worker) -> bool:
    """Tell whether a worker ended of its own accord without a job."""
    return (
        worker.state is WorkerState.ENDED
        and worker.claimed_at is None
        and not worker.is_interrupting
        and worker.reason.code not in _SENT_AWAY
        and _state_reason(worker) != _ENDED_BY_CALL
    )


def _state_reason(worker: Worker) -> str:
    """Return EC2's StateReason.Code of an instance that has ended; "": another reason is known."""
    return str(worker.reason.about.get("state_reason", ""))


def blamed_party(state_reason: str) -> str:
    """Return the party that a StateReason.Code blames; "": there is none."""
    return state_reason.partition(".")[0]
