"""What the end of an instance says: who ended it, and whether it had been of any use."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from spindown.domain.fleet import Worker, WorkerState
from spindown.domain.reason import NO_REASON, Reason, ReasonCode

#: StateReason.Code of an instance that somebody ended by a call, and what all codes begin with
#: that blame EC2 itself (EC2 API reference, StateReason).
_ENDED_BY_CALL = "Client.UserInitiatedShutdown"
_FAULT_OF_EC2 = "Server."
#: What codes begin with that blame what was asked for, and those of them that name no fault
#: (EC2 API reference, StateReason).
_FAULT_OF_REQUEST = "Client."
_NO_FAULT = frozenset({_ENDED_BY_CALL, "Client.InstanceInitiatedShutdown"})
#: Why a worker leaves that could do its work.
_SENT_AWAY = frozenset({ReasonCode.OTHER_CODE, ReasonCode.NO_ROOM, ReasonCode.RELIEVED})
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
        worker.is_interrupting and not instance.state_reason.startswith("Client.")
    )
    if instance.state_reason:
        found = Reason(ReasonCode.EC2_SAID, {"state_reason": instance.state_reason})
    else:
        found = Reason(ReasonCode.EC2_STATE, {"state": instance.state})
    reason = worker.reason or found
    return Ending(instance_id=worker.instance_id, reason=reason, reclaimed=reclaimed)


def has_missed_check_in(worker: Worker) -> bool:
    """Tell whether a worker ended before it checked in, neither taken back nor ended by a call.

    Whoever ends such instances one after the other must not be given new ones without end. One
    that was condemned for its silence was counted then.
    """
    return (
        worker.state is WorkerState.ENDED
        and worker.checked_in_at is None
        and worker.condemned_at is None
        and not worker.is_interrupting
        and _state_reason(worker) != _ENDED_BY_CALL
    )


def has_left_work(worker: Worker, waiting_since: datetime | None) -> bool:
    """Tell whether a worker came up and ended without any job, though one waited all the time.

    One that was told to leave, by a deploy for example, has not.

    Args:
        worker: as the ledger holds it.
        waiting_since: since when work is visible that nobody has claimed; None: there is none.
    """
    return (
        worker.state is WorkerState.ENDED
        and worker.checked_in_at is not None
        and worker.claimed_at is None
        and not worker.is_interrupting
        and worker.rebalance_at is None
        and worker.reason.code not in _SENT_AWAY
        and _state_reason(worker) != _ENDED_BY_CALL
        and waiting_since is not None
        and waiting_since <= worker.checked_in_at
    )


def has_failed_all(worker: Worker) -> bool:
    """Tell whether a worker took jobs and ended since its last ones had all failed."""
    return (
        worker.state is WorkerState.ENDED
        and worker.claimed_at is not None
        and worker.unfit_at is not None
    )


def known_fault(worker: Worker) -> Reason:
    """Return why an instance has ended, if it or EC2 has said so; false: neither has."""
    said = _state_reason(worker)
    is_told = worker.unfit_at is not None or (
        said.startswith(_FAULT_OF_REQUEST) and said not in _NO_FAULT
    )
    return worker.reason if is_told else NO_REASON


def is_fault_of_image(worker: Worker) -> bool:
    """Tell whether what ended an instance may be in its image, code or account, not in EC2."""
    return not _state_reason(worker).startswith(_FAULT_OF_EC2)


def _state_reason(worker: Worker) -> str:
    """Return EC2's StateReason.Code of an instance that has ended; "": another reason is known."""
    return str(worker.reason.about.get("state_reason", ""))
