"""Carry out, on the queue and in the ledger, what is commanded of the worker as a whole."""

from contextlib import suppress
from datetime import timedelta

from spindown.domain.reason import Reason
from spindown.domain.worker_lifecycle import (
    AbandonSlot,
    AskToEnd,
    BeginDraining,
    Drain,
    Drained,
    EndAnswered,
    EndUnheard,
    LastPoll,
    LastPolled,
    MarkUnfit,
    PutLastBack,
    WorkerCommand,
)
from spindown.error import AccessDenied, SpindownError
from spindown.job.message import put_back
from spindown.job.worker_row import WorkerRow
from spindown.port import WorkPorts
from spindown.worker.lifecycle import SharedLifecycle
from spindown.worker.log import EventLog


class WorkerActions:
    """Carries commands out and tells the lifecycle what came of it."""

    def __init__(
        self, life: SharedLifecycle, worker_row: WorkerRow, ports: WorkPorts, log: EventLog
    ) -> None:
        self._life = life
        self._worker_row = worker_row
        self._ports = ports
        self._log = log

    def carry_out(self, command: WorkerCommand) -> None:
        """Carry a command out; those that end the instance are left to the caller."""
        match command:
            case LastPoll(wait=wait):
                self._poll(wait)
            case AskToEnd():
                self._ask(command)
            case PutLastBack():
                self._put_back()
            case BeginDraining(reason=reason, knows=knows):
                self._log.info("draining", reason=reason)
                if not knows:
                    with suppress(SpindownError):
                        self._worker_row.begin_draining()
            case MarkUnfit(reason=reason):
                with suppress(SpindownError):
                    self._worker_row.mark_unfit(Reason(reason))
            case AbandonSlot(number=number):
                self._log.warning("slot_left_behind", slot=number)
            case Drain(reason=reason, knows=knows):
                if not knows:
                    with suppress(SpindownError):
                        self._worker_row.drain(Reason(reason))
                self._life.tell(Drained)

    def _poll(self, wait: timedelta) -> None:
        visibility = self._life.policy.lease_duration
        try:
            message = self._ports.queue.receive(wait=wait, visibility=visibility)
        except SpindownError as exc:
            self._note_unheard(exc)
            return
        self._life.last_message = message
        self._life.tell(LastPolled, message is not None)

    def _ask(self, command: AskToEnd) -> None:
        try:
            granted = self._worker_row.drain(Reason(command.reason), unless_warm=True)
        except SpindownError as exc:
            self._note_unheard(exc)
            return
        self._life.tell(EndAnswered, granted)
        if granted:
            words = f"No work for {say_duration(command.idle_timeout)}. Shutting down."
            self._log.info("idle_timeout", message=words)

    def _note_unheard(self, error: SpindownError) -> None:
        self._log.warning("end_not_asked_for", reason=str(error))
        self._life.tell(EndUnheard, isinstance(error, AccessDenied))

    def _put_back(self) -> None:
        message, self._life.last_message = self._life.last_message, None
        if message is not None:
            with suppress(SpindownError):
                put_back(message, timedelta(0), self._ports.queue)


def say_duration(length: timedelta) -> str:
    """Return a duration in words: "10 minutes", "1 hour", "90 seconds"."""
    seconds = length.total_seconds()
    for unit, size in (("hour", 3600), ("minute", 60), ("second", 1)):
        if seconds >= size and seconds % size == 0:
            count = int(seconds // size)
            return f"{count} {unit}" + ("" if count == 1 else "s")
    return f"{seconds:g} seconds"
