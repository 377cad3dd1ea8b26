"""A worker's process on an instance: the worker's own parts, driven one step at a time.

Between two steps the process may be killed, or stall while the world takes it for dead and
goes on; every step then does what the real worker would do on waking up.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from spindown.app.port import Message
from spindown.app.work.claim import Declined, Outcome, claim
from spindown.app.work.commit import Portion, commit
from spindown.app.work.held import Finished, Held, Seat, WorkPorts
from spindown.app.work.item import settle_items
from spindown.app.work.policy import read_standing
from spindown.app.work.presence import Presence
from spindown.app.work.progress import Reporter
from spindown.app.work.release import settle_failure, settle_rejection, settle_release
from spindown.app.work.split import is_too_large
from spindown.contract.job.manifest import JobState
from spindown.contract.job.result import ItemStatus, Record
from spindown.domain.interruption import should_power_off
from spindown.error import ContractError, LeaseLost, SpindownError
from spindown.memory import PortCall, intercept
from tests.proof.fault import Crashed
from tests.proof.surrounding import Inline, LoudLog, Surrounding
from tests.slot import ScriptedRunner
from worker.handover import Bench, Handover
from worker.home import WorkerSettings
from worker.keeper import Keeper
from worker.life import Life
from worker.slot import Slot
from worker.watch import Watch

_SCRATCH = Path("/nonexistent/scratch")
_POLL = timedelta(seconds=20)
_SECOND = timedelta(seconds=1)


@dataclass
class Hand:
    """What one slot has in hand."""

    bench: Bench
    slot: Slot
    message: Message | None = None
    held: Held | None = None
    values: Sequence[Any] | None = None
    results: list[Finished] = field(default_factory=list)
    busy_from: datetime | None = None

    @property
    def is_free(self) -> bool:
        return self.message is None and self.held is None

    @property
    def done(self) -> int:
        """Return the index of the next item to compute."""
        return (self.held.manifest.next_item if self.held else 0) + len(self.results)

    def clear(self) -> None:
        self.message = self.held = self.values = None
        self.results = []


class Process:
    """One process from its check-in on (raises what a failed check-in raises)."""

    def __init__(self, world: Surrounding, instance_id: str) -> None:
        self.world = world
        self.instance_id = instance_id
        self.is_dead = False
        #: In the middle of a step: its locks may be held.
        self.is_working = False
        self.died_at: datetime | None = None
        self.ports = self._make_ports()
        self.presence = Presence(workload=world.workload, instance_id=instance_id, ports=self.ports)
        self.log = LoudLog(logging.getLogger("proof"))
        standing = read_standing(self.ports.table, world.workload)
        self.life = Life(clock=world.clock, standing=standing, code_digest=world.code_digest)
        self.worker = self.presence.check_in(patience=timedelta(0))
        self.reporter = Reporter(
            deployment=world.deployment,
            workload=world.workload,
            worker=self.worker,
            ports=self.ports,
        )
        self.runner = ScriptedRunner()
        self.hands = [self._make_hand(slot) for slot in range(self.worker.slots)]
        self.watch = Watch(
            life=self.life,
            presence=self.presence,
            keepers=[hand.bench.keeper for hand in self.hands],
            metadata=world.compute.metadata(instance_id),
            ports=self.ports,
            reporter=self.reporter,
            settings=WorkerSettings(scratch=_SCRATCH, python="python"),
            log=self.log,
        )

    def _make_ports(self) -> WorkPorts:
        world = self.world

        def pause(length: timedelta) -> None:
            world.clock.advance(length)

        return WorkPorts(
            clock=world.clock,
            random=world.random,
            pause=pause,
            queue=intercept(world.queue, "queue", self._call),
            dead_letters=intercept(world.dead_letters, "dead_letters", self._call),
            objects=intercept(world.objects, "objects", self._call),
            inputs=intercept(world.inputs, "inputs", self._call),
            table=intercept(world.table, "table", self._call),
            metrics=world.metrics,
        )

    def _make_hand(self, slot: int) -> Hand:
        seat = Seat(
            workload=self.world.workload,
            instance_id=self.instance_id,
            slot=slot,
            code_digest=self.world.code_digest,
            price_per_hour=self.worker.price_per_hour / self.worker.slots,
            log_pointer=f"log:{self.instance_id}",
        )
        bench = Bench(
            seat=seat,
            presence=self.presence,
            ports=self.ports,
            runner=self.runner,
            life=self.life,
            reporter=self.reporter,
            keeper=Keeper(seat, self.presence, self.ports),
            log=self.log,
            batch_size=2,
            transfers=Inline(),
            scratch=_SCRATCH,
        )
        return Hand(bench=bench, slot=Slot(bench, poll_at_most=_POLL))

    def _call(self, call: PortCall, proceed: Callable[[], Any]) -> Any:
        if self.is_dead:
            raise Crashed("a dead process makes no call")
        try:
            return self.world.work_call(call, proceed)
        except Crashed:
            self.die()
            raise

    def die(self) -> None:
        """Be gone without a word."""
        if not self.is_dead:
            self.is_dead = True
            self.died_at = self.world.clock.now()

    @property
    def is_free(self) -> bool:
        return all(hand.is_free for hand in self.hands)

    # The worker's own looks.

    def beat(self) -> None:
        """Extend the leases and say that it lives."""
        with suppress(SpindownError):
            self.watch.beat()

    def look(self) -> None:
        """Ask the metadata."""
        with suppress(SpindownError):
            self.watch.look()

    # One job, step by step, as worker.attempt goes about it.

    def step(self, number: int, *, count: int = 2, failing: bool = False) -> None:
        """Do whatever comes next in a slot."""
        hand = self.hands[number % len(self.hands)]
        if hand.held is None and hand.message is None:
            self.receive(number)
        elif hand.message is not None:
            self.claim(number)
        elif hand.values is None:
            self._attempt(hand, lambda held: self._open(hand, held))
        elif hand.done < len(hand.values):
            self._attempt(hand, lambda held: self._compute(hand, held, count, failing=failing))
        else:
            self._attempt(hand, lambda held: self._complete(hand, held))

    def receive(self, number: int) -> None:
        """Receive a message into a free slot."""
        hand = self.hands[number % len(self.hands)]
        if not hand.is_free or self.life.is_finishing:
            return
        lease_duration = self.life.standing.policy.lease_duration
        with suppress(SpindownError):
            hand.message = self.ports.queue.receive(wait=_POLL, visibility=lease_duration)
        if hand.message is not None:
            hand.slot.free_since = None

    def claim(self, number: int) -> None:
        """Claim the job of the message in hand."""
        hand = self.hands[number % len(self.hands)]
        message, hand.message = hand.message, None
        if message is None:
            return
        bench = hand.bench
        try:
            claimed = claim(
                message,
                seat=bench.seat,
                presence=self.presence,
                ports=self.ports,
                policy=bench.policy,
            )
        except SpindownError:
            self._free(hand)
            return
        if isinstance(claimed, Declined):
            if claimed.outcome is Outcome.CONDEMNED:
                self.life.leave(self.world.clock.now(), "condemned")
            self._free(hand)
            return
        hand.held, hand.busy_from = claimed, self.world.clock.now()
        self._attempt(hand, lambda held: bench.keeper.take(held, self.life.deadline))

    def checkpoint(self, number: int) -> None:
        """Commit what is done, unless that is all there is."""
        hand = self.hands[number % len(self.hands)]
        if hand.values is not None and hand.results and hand.done < len(hand.values):
            self._attempt(hand, lambda held: self._commit(hand, held))

    def give_back(self, number: int, reason: str | None) -> None:
        """Release the job in hand, or with a reason fail it."""
        hand = self.hands[number % len(self.hands)]
        if hand.values is not None:
            self._attempt(hand, lambda held: self._end(hand, held, reason))

    def _attempt(self, hand: Hand, act: Callable[[Held], None]) -> None:
        """Do something with the job in hand; what ends the attempt ends it as the worker does."""
        held = hand.held
        if held is None:
            return
        handover = Handover(hand.bench, self.log)
        try:
            _check_kept(hand, held)
            act(held)
        except LeaseLost:
            with suppress(SpindownError):
                handover.abandon(hand.held or held)
            self._free(hand)
        except SpindownError:
            with suppress(SpindownError):
                if hand.bench.keeper.is_keeping:
                    handover.release(hand.held or held)
            self._free(hand)

    def _open(self, hand: Hand, held: Held) -> None:
        handover = Handover(hand.bench, self.log)
        try:
            values = settle_items(held.job, self.ports)
        except ContractError as exc:
            handover.dismiss(settle_rejection(held, str(exc), ports=self.ports), "input")
            self._free(hand)
            return
        if is_too_large(held, values, hand.bench.policy):
            handover.split(held, values)
            self._free(hand)
            return
        hand.held, hand.values = held.with_items(len(values)), values

    def _compute(self, hand: Hand, held: Held, count: int, *, failing: bool) -> None:
        values = hand.values or ()
        for index in range(hand.done, min(hand.done + count, len(values))):
            record = Record(
                job_id=held.job_id,
                index=index,
                item=values[index],
                status=ItemStatus.FAILED if failing else ItemStatus.OK,
                result=None if failing else f"by {hand.bench.seat.owner}",
                error="no" if failing else None,
            )
            hand.results.append(Finished(record=record))
            hand.bench.keeper.items_done += 1

    def _portion(self, hand: Hand) -> Portion:
        now = self.world.clock.now()
        busy, hand.busy_from = now - (hand.busy_from or now), now
        finished, hand.results = tuple(hand.results), []
        return Portion(finished=finished, busy=busy)

    def _commit(self, hand: Hand, held: Held) -> None:
        portion = self._portion(hand)
        hand.held = commit(held, portion, seat=hand.bench.seat, ports=self.ports)
        Handover(hand.bench, self.log).tell(hand.held, portion, timedelta(0))

    def _complete(self, hand: Hand, held: Held) -> None:
        self._commit(hand, held)
        Handover(hand.bench, self.log).complete(hand.held or held)
        self._free(hand)

    def _end(self, hand: Hand, held: Held, reason: str | None) -> None:
        portion, seat, ports = self._portion(hand), hand.bench.seat, self.ports
        handover = Handover(hand.bench, self.log)
        if reason is None:
            interrupted = self.life.interrupted
            held = settle_release(held, portion, interrupted=interrupted, seat=seat, ports=ports)
        else:
            held = settle_failure(
                held, portion, reason, seat=seat, ports=ports, policy=hand.bench.policy
            )
        hand.held = held
        handover.tell(held, portion, timedelta(0))
        match held.manifest.state:
            case JobState.COMPLETED:
                handover.complete(held)
            case JobState.FAILED:
                handover.dismiss(held, "failures")
            case _:
                handover.release(held)
        self._free(hand)

    def _free(self, hand: Hand) -> None:
        hand.clear()
        hand.slot.free_since = self.world.clock.now()

    # The worker as a whole, left to itself.

    def work(self) -> None:
        """End what is in hand, then let each slot take and work off one job by itself."""
        for number, hand in enumerate(self.hands):
            while not hand.is_free:
                if self.life.must_leave() and hand.values is not None:
                    self.give_back(number, None)
                else:
                    self.step(number, count=100)
            try:
                hand.slot.step()
            except SpindownError:
                self.world.clock.advance(_SECOND)

    def retire(self) -> None:
        """End the process and its instance if it is time, as worker.daemon decides it."""
        now, standing = self.world.clock.now(), self.life.standing
        if now >= self.worker.launched_at + standing.policy.max_lifetime:
            self.life.leave(now, "lifetime")
        if not self.is_free:
            return
        with suppress(SpindownError):
            if self.life.is_finishing:
                self.presence.drain(self.life.reason)
                self._power_off()
            elif all(
                now - (hand.slot.free_since or now) >= standing.idle_timeout for hand in self.hands
            ):
                self.receive(0)
                if self.is_free and self.presence.drain("idle"):
                    self._power_off()

    def _power_off(self) -> None:
        self.life.finish("idle")
        if should_power_off(
            launched_at=self.worker.launched_at,
            deadline=self.life.deadline,
            capacity_type=self.worker.capacity_type,
            now=self.world.clock.now(),
        ):
            self.world.power_off(self.instance_id)
            self.die()


def _check_kept(hand: Hand, held: Held) -> None:
    """Notice what the heartbeat has found, as the worker does when it looks up."""
    if hand.bench.keeper.is_lost:
        raise LeaseLost(held.job_id)
