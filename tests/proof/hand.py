"""A slot of a worker's process, driven one step at a time, as worker.slot and worker.attempt go.

Between two steps the process may be killed, or stall while the world takes it for dead and goes
on; every step then does what the real worker would do on waking up.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from spindown.app.port import Message
from spindown.app.work.claim import ClaimOutcome, Declined, claim
from spindown.app.work.commit import Portion, commit
from spindown.app.work.held import Finished, Held
from spindown.app.work.item import settle_items
from spindown.app.work.release import settle_failure, settle_rejection, settle_release
from spindown.app.work.split import is_too_large
from spindown.contract.job.manifest import JobState
from spindown.contract.job.result import ItemStatus, Record
from spindown.domain.reason import ReasonCode
from spindown.error import ContractError, LeaseLost, SpindownError
from worker.handover import Bench, Handover
from worker.slot import Slot

POLL = timedelta(seconds=20)


class Hand:
    """A slot and what it has in hand."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.slot = Slot(bench, poll_at_most=POLL)
        self.message: Message | None = None
        self.held: Held | None = None
        self.values: Sequence[Any] | None = None
        self._results: list[Finished] = []
        self._busy_from: datetime | None = None
        self._handover = Handover(bench, bench.log)

    @property
    def is_free(self) -> bool:
        return self.message is None and self.held is None

    @property
    def done(self) -> int:
        """Return the index of the next item to compute."""
        return (self.held.manifest.next_item if self.held else 0) + len(self._results)

    def step(self, *, count: int = 2, failing: bool = False) -> None:
        """Do whatever comes next."""
        if self.held is None and self.message is None:
            self.receive()
        elif self.message is not None:
            self._claim()
        elif self.values is None:
            self._attempt(self._open)
        elif self.done < len(self.values):
            self._attempt(lambda held: self._compute(held, count, failing=failing))
        else:
            self._attempt(self._complete)

    def receive(self) -> None:
        """Receive a message, if the slot is free."""
        bench = self.bench
        if not self.is_free or bench.life.is_finishing:
            return
        with suppress(SpindownError):
            self.message = bench.ports.queue.receive(
                wait=POLL, visibility=bench.policy.lease_duration
            )
        if self.message is not None:
            self.slot.free_since = None

    def checkpoint(self) -> None:
        """Commit what is done, unless that is all there is."""
        if self.values is not None and self._results and self.done < len(self.values):
            self._attempt(self._commit)

    def give_back(self, reason: str | None) -> None:
        """Release the job in hand, or with a reason fail it."""
        if self.values is not None:
            self._attempt(lambda held: self._let_go(held, reason))

    def end(self) -> None:
        """End what is in hand."""
        while not self.is_free:
            if self.bench.life.must_leave() and self.values is not None:
                self.give_back(None)
            else:
                self.step(count=100)

    def _claim(self) -> None:
        message, self.message = self.message, None
        if message is None:
            return
        bench = self.bench
        try:
            claimed = claim(
                message,
                seat=bench.seat,
                presence=bench.presence,
                ports=bench.ports,
                policy=bench.policy,
            )
        except SpindownError:
            self._free()
            return
        if isinstance(claimed, Declined):
            if claimed.outcome is ClaimOutcome.CONDEMNED:
                bench.life.leave(self._now(), ReasonCode.CONDEMNED)
            self._free()
            return
        self.held, self._busy_from = claimed, self._now()
        self._attempt(lambda held: bench.keeper.take(held, bench.life.deadline))

    def _attempt(self, act: Callable[[Held], None]) -> None:
        """Do something with the job in hand; what ends the attempt ends it as the worker does."""
        held = self.held
        if held is None:
            return
        try:
            self._look_up(held)
            act(held)
        except LeaseLost:
            with suppress(SpindownError):
                self._handover.abandon(self.held or held)
            self._free()
        except SpindownError:
            with suppress(SpindownError):
                if self.bench.keeper.is_keeping:
                    self._handover.release(self.held or held)
            self._free()

    def _look_up(self, held: Held) -> None:
        """Notice what the heartbeat has found."""
        if self.bench.keeper.is_lost:
            raise LeaseLost(held.job_id)

    def _open(self, held: Held) -> None:
        ports = self.bench.ports
        try:
            values = settle_items(held.job, ports)
        except ContractError as exc:
            self._handover.dismiss(settle_rejection(held, str(exc), ports=ports), "input")
            self._free()
            return
        if is_too_large(held, values, self.bench.policy):
            self._handover.split(held, values)
            self._free()
            return
        self.held, self.values = held.with_items(len(values)), values

    def _compute(self, held: Held, count: int, *, failing: bool) -> None:
        values = self.values or ()
        for index in range(self.done, min(self.done + count, len(values))):
            record = Record(
                job_id=held.job_id,
                index=index,
                item=values[index],
                status=ItemStatus.FAILED if failing else ItemStatus.OK,
                result=None if failing else f"by {self.bench.seat.owner}",
                error="no" if failing else None,
            )
            self._results.append(Finished(record=record))
            self.bench.keeper.items_done += 1

    def _take_portion(self) -> Portion:
        now = self._now()
        busy, self._busy_from = now - (self._busy_from or now), now
        finished, self._results = tuple(self._results), []
        return Portion(finished=finished, busy=busy)

    def _commit(self, held: Held) -> None:
        portion = self._take_portion()
        self.held = commit(held, portion, seat=self.bench.seat, ports=self.bench.ports)
        self._handover.tell(self.held, portion, timedelta(0))

    def _complete(self, held: Held) -> None:
        self._commit(held)
        self._handover.complete(self.held or held)
        self._free()

    def _let_go(self, held: Held, reason: str | None) -> None:
        portion, bench = self._take_portion(), self.bench
        seat, ports = bench.seat, bench.ports
        if reason is None:
            interrupted = bench.life.interrupted
            held = settle_release(held, portion, interrupted=interrupted, seat=seat, ports=ports)
        else:
            held = settle_failure(
                held, portion, reason, seat=seat, ports=ports, policy=bench.policy
            )
        self.held = held
        self._handover.tell(held, portion, timedelta(0))
        match held.manifest.state:
            case JobState.COMPLETED:
                self._handover.complete(held)
            case JobState.FAILED:
                self._handover.dismiss(held, "failures")
            case _:
                self._handover.release(held)
        self._free()

    def _free(self) -> None:
        self.message = self.held = self.values = None
        self._results = []
        self.slot.free_since = self._now()

    def _now(self) -> datetime:
        return self.bench.ports.clock.now()
