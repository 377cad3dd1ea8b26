"""A worker's process on an instance: the worker's own parts, driven one step at a time."""

import atexit
import logging
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from spindown.contract.row import processor_kind
from spindown.domain.worker_lifecycle import (
    AwaitReclaim,
    CheckedIn,
    Exit,
    Habits,
    PowerOff,
    Stop,
    TimePassed,
)
from spindown.error import SpindownError
from spindown.job.claimed_job import SlotId
from spindown.job.policy_in_force import OUTDATED_FOR, read_standing
from spindown.job.work_done import Reporter
from spindown.job.worker_row import WorkerRow
from spindown.memory import PortCall, intercept
from spindown.port import WorkPorts
from spindown.worker.action import WorkerActions
from spindown.worker.job_ending import SlotContext
from spindown.worker.lease_renewer import LeaseRenewer
from spindown.worker.lifecycle import SharedLifecycle
from spindown.worker.settings import WorkerSettings
from spindown.worker.watch import Watch
from tests.proof.fault import Crashed
from tests.proof.hand import Hand
from tests.proof.surrounding import Inline, LoudLog, Surrounding
from tests.slot import ScriptedRunner

_SCRATCH = Path(tempfile.mkdtemp(prefix="spindown-proof-"))
atexit.register(shutil.rmtree, _SCRATCH, ignore_errors=True)
_SECOND = timedelta(seconds=1)


class Process:
    """One process from its check-in on (raises what a failed check-in raises)."""

    def __init__(self, world: Surrounding, instance_id: str) -> None:
        self.world = world
        self.instance_id = instance_id
        self.is_dead = False
        #: In the middle of a step: its locks may be held.
        self.is_working = False
        self.died_at: datetime | None = None
        self.hands: list[Hand] = []
        self.shape = world.shape_of(instance_id)
        self.ports = self._make_ports()
        self.worker_row = WorkerRow(
            workload=world.workload,
            instance_id=instance_id,
            ports=self.ports,
            shape=self.shape,
        )
        self.log = LoudLog(logging.getLogger("proof"))
        standing = read_standing(self.ports.table, world.workload)
        habits = Habits(
            code_digest=world.code_digest,
            outdated_for=OUTDATED_FOR,
            stop_grace=timedelta(0),
            shortest_rest=timedelta(milliseconds=10),
        )
        self.life = SharedLifecycle(world.clock, standing, habits, self.log)
        self.actions = WorkerActions(self.life, self.worker_row, self.ports, self.log)
        self.worker = self.worker_row.check_in(patience=timedelta(0))
        self.reporter = Reporter(
            deployment=world.deployment,
            workload=world.workload,
            worker=self.worker,
            ports=self.ports,
        )
        self.runner = ScriptedRunner(script=world.script)
        self.hands = [self._make_hand(slot) for slot in range(self.worker.slots)]
        self.watch = Watch(
            life=self.life,
            worker_row=self.worker_row,
            renewers=[hand.context.renewer for hand in self.hands],
            metadata=world.compute.metadata(instance_id),
            ports=self.ports,
            reporter=self.reporter,
            settings=WorkerSettings(scratch=_SCRATCH, python="python"),
            log=self.log,
        )
        worker = self.worker
        self.life.tell(CheckedIn, worker.launched_at, worker.capacity_type, worker.slots)

    def _make_ports(self) -> WorkPorts:
        world = self.world

        def pause(length: timedelta) -> None:
            world.clock.advance(length)

        return WorkPorts(
            clock=world.clock,
            random=world.random,
            pause=pause,
            queue=intercept(world.queue_of(self.shape), "queue", self._call),
            queue_of=lambda shape: intercept(world.queue_of(shape), "other", self._call),
            dead_letters=intercept(world.dead_letters, "dead_letters", self._call),
            objects=intercept(world.objects, "objects", self._call),
            inputs=intercept(world.inputs, "inputs", self._call),
            table=intercept(world.table, "table", self._call),
            metrics=world.metrics,
        )

    def _make_hand(self, slot: int) -> Hand:
        slot_id = SlotId(
            workload=self.world.workload,
            instance_id=self.instance_id,
            slot=slot,
            code_version=self.world.code_digest,
            price_per_hour=self.worker.price_per_hour / self.worker.slots,
            gpu=processor_kind(*self.worker.processor),
            spot=self.worker.spot_terms(),
            boot=self.worker.boot,
            log_pointer=f"log:{self.instance_id}",
            shape=self.shape,
        )
        context = SlotContext(
            slot_id=slot_id,
            worker_row=self.worker_row,
            ports=self.ports,
            runner=self.runner,
            life=self.life,
            reporter=self.reporter,
            renewer=LeaseRenewer(slot_id, self.worker_row, self.ports),
            log=self.log,
            batch_size=sys.maxsize,
            transfers=Inline(),
            scratch=_SCRATCH,
            on_ready=partial(self.world.asked.add, self.instance_id),
            on_first_item=partial(self.worker_row.note_first_item, {}),
        )
        return Hand(context, self.runner)

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
            for hand in self.hands:
                hand.die()

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

    # What its slots have in hand.

    def step(self, number: int, *, count: int = 2, failing: bool = False) -> None:
        """Do whatever comes next in a slot."""
        self._hand(number).step(count=count, failing=failing)
        self._act()

    def checkpoint(self, number: int) -> None:
        """Let a slot look whether a commit of what is done is due."""
        self._hand(number).checkpoint()
        self._act()

    def fail(self, number: int, reason: str) -> None:
        """Fail the job of a slot."""
        self._hand(number).fail(reason)
        self._act()

    def leave(self) -> None:
        """Give back what is in hand and take nothing more, as at SIGTERM."""
        self.life.tell(Stop)
        for hand in self.hands:
            hand.end()
        self._act()

    def _hand(self, number: int) -> Hand:
        return self.hands[number % len(self.hands)]

    # The worker as a whole, left to itself.

    def work(self) -> None:
        """End what is in hand, then let each slot take and work off one job by itself."""
        for hand in self.hands:
            if self.is_dead:
                # It has powered off; what a slot still had in hand shows itself again.
                return
            try:
                hand.work()
            except SpindownError:
                self.world.clock.advance(_SECOND)
            self._act()

    def retire(self) -> None:
        """Let time tell: end the process and its instance if the lifecycle says so."""
        self.life.tell(TimePassed)
        self._act()
        while not self.is_dead and any(hand.has_orders for hand in self.hands):
            for hand in self.hands:
                hand.settle()
            self._act()

    def _act(self) -> None:
        """Carry out what is commanded of the worker as a whole."""
        while not self.is_dead and (command := self.life.take_worker_command()) is not None:
            match command:
                case PowerOff():
                    self.world.power_off(self.instance_id)
                    self.die()
                case Exit():
                    self.die()
                case AwaitReclaim():
                    continue
                case _:
                    self.actions.carry_out(command)
