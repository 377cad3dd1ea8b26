"""The worker's process: it checks in, runs the slots in threads, and ends in order.

When it polls, what ends it and when it powers the instance off is decided in
``domain.worker_lifecycle``; the main thread carries out what is commanded of the worker as a whole.
"""

import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from spindown.contract.row import processor_kind
from spindown.contract.run_spec import Results, RunMode, RunSpec
from spindown.domain.boot import BootPhase, boot_phases
from spindown.domain.fleet import Worker
from spindown.domain.policy import Dispatch
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.worker_lifecycle import (
    AwaitReclaim,
    CheckedIn,
    Drain,
    Exit,
    Habits,
    PowerOff,
    Stop,
    hang_grace,
)
from spindown.job.claimed_job import SlotId
from spindown.job.policy_in_force import OUTDATED_FOR, read_standing
from spindown.job.work_done import Reporter
from spindown.job.worker_row import WorkerRow
from spindown.ledger.knowledge import read_interruption_rate
from spindown.port import Identity, JobEvents, Metadata, ObjectStore, WorkPorts
from spindown.worker.action import WorkerActions
from spindown.worker.child.code import Code
from spindown.worker.child.runner import Runner
from spindown.worker.code_folder import make_own, make_shared
from spindown.worker.job_ending import SlotContext
from spindown.worker.lease_renewer import LeaseRenewer
from spindown.worker.lifecycle import SharedLifecycle
from spindown.worker.log import EventLog
from spindown.worker.machine.control_group import share_of_memory
from spindown.worker.machine.leftover import Leftovers, leftovers_of_slot
from spindown.worker.settings import Home, WorkerSettings
from spindown.worker.slot import Slot
from spindown.worker.transfer.next_message import NextMessage
from spindown.worker.transfer.outbox import Outbox
from spindown.worker.usage.gpu import Gpus, open_gpus
from spindown.worker.usage.journal import UsageJournal
from spindown.worker.usage.reading import read_memory_total
from spindown.worker.usage.sampler import Sampler
from spindown.worker.watch import Watch
from spindown.worker.workplace import SETUP, TEMPORARY


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a daemon is made of."""

    home: Home
    identity: Identity
    settings: WorkerSettings
    ports: WorkPorts
    #: The bucket itself: usage records of all workloads lie together, to be queried.
    usage: ObjectStore
    metadata: Metadata
    code: Code
    log: EventLog
    #: Makes what runs the user's code in one slot of a worker.
    make_runner: Callable[[Worker, int], Runner]
    #: Returns what makes the machine unfit for a worker's jobs, None if nothing does.
    find_fault: Callable[[Worker], str | None] = lambda _: None
    #: Returns the GPUs to look at, None if there are none.
    find_gpus: Callable[[], Gpus | None] = open_gpus
    #: Where other systems hear of jobs that are over; None: nobody does.
    events: JobEvents | None = None
    #: When the phases of the boot ended that are over.
    booted: Mapping[BootPhase, datetime] = field(default_factory=dict)


class Daemon:
    """One worker, from its check-in to its end."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._ports = parts.ports
        self._log = parts.log
        self._worker_row = WorkerRow(
            workload=parts.home.workload,
            instance_id=parts.identity.instance_id,
            ports=parts.ports,
            shape=parts.home.shape,
        )
        settings = parts.settings
        self._life = SharedLifecycle(
            clock=parts.ports.clock,
            standing=read_standing(parts.ports.table, parts.home.workload, shape=parts.home.shape),
            habits=Habits(
                code_digest=parts.code.digest,
                outdated_for=OUTDATED_FOR,
                poll_at_most=settings.poll_at_most,
                stop_grace=settings.stop_grace,
                hang_grace=hang_grace(_stop_grace(parts.code.spec)),
            ),
            log=parts.log,
        )
        self._actions = WorkerActions(self._life, self._worker_row, parts.ports, parts.log)
        self._outbox = Outbox(parts.events, parts.log) if parts.events else None
        self._slots: Sequence[Slot] = ()
        #: When each phase of the boot was over.
        self._booted = dict(parts.booted)
        self._first = threading.Lock()

    def run(self) -> None:
        """Work until the end, then power the instance off.

        Raises:
            Condemned, NotFound: it was never ours to work; see ``WorkerRow.check_in``.
        """
        patience = self._parts.settings.check_in_patience
        fault = self._parts.find_fault(self._worker_row.await_row(patience=patience))
        if fault is not None:
            self._log.warning("machine_unfit", reason=fault)
            self._worker_row.mark_unfit(Reason(ReasonCode.UNFIT, {"fault": fault}))
            self._power_off()
            return
        worker = self._worker_row.check_in(patience=patience)
        reporter = self._open_reporter(worker)
        sampler = self._make_sampler(worker)
        self._slots = self._make_slots(worker, reporter, sampler)
        watch = self._make_watch(reporter, sampler)
        self._life.tell(CheckedIn, worker.launched_at, worker.capacity_type, worker.slots)
        watch.start()
        sampler.start()
        for slot in self._slots:
            slot.thread.start()
        while True:
            match self._life.await_worker_command():
                case None:
                    continue
                case Exit():
                    return
                case Drain() as command:
                    self._actions.carry_out(command)
                    watch.stop()
                    sampler.stop()
                    if self._outbox is not None:
                        self._outbox.flush()
                    self._log.info("drained", reason=command.reason)
                case AwaitReclaim(deadline=deadline):
                    self._log.info("waiting_to_be_reclaimed", deadline=deadline)
                    self._log.flush()
                case PowerOff():
                    self._power_off()
                    return
                case command:
                    self._actions.carry_out(command)

    def stop(self) -> None:
        """Drain because somebody asks for it, as systemd does by SIGTERM."""
        self._life.tell(Stop)

    def _power_off(self) -> None:
        self._log.info("powering_off")
        self._log.flush()
        subprocess.run(self._parts.settings.poweroff, check=False)

    def _open_reporter(self, worker: Worker) -> Reporter:
        home = self._parts.home
        reporter = Reporter(
            deployment=home.deployment, workload=home.workload, worker=worker, ports=self._ports
        )
        now = self._ports.clock.now()
        seconds = (now - worker.launched_at).total_seconds()
        self._booted[BootPhase.FITNESS] = now
        self._log.info("checked_in", slots=worker.slots, seconds_since_launch=seconds)
        return reporter

    def _note_first_item(self, worker: Worker, reporter: Reporter) -> None:
        """Tell the boot and its phases, once: the code of a slot has its first item."""
        now = self._ports.clock.now()
        with self._first:
            # An earlier process of this machine has booted it, and may have worked.
            if BootPhase.FIRST_ITEM in self._booted or worker.checked_in_at != worker.heartbeat_at:
                return
            self._booted[BootPhase.FIRST_ITEM] = now
        reporter.emit({"BootSeconds": (now - worker.launched_at).total_seconds()})
        phases = boot_phases(worker.launched_at, self._booted)
        self._log.info("booted", **{phase.replace("-", "_"): phases[phase] for phase in phases})
        self._worker_row.note_first_item(phases)

    def _make_sampler(self, worker: Worker) -> Sampler:
        return Sampler(
            worker,
            workload=self._parts.home.workload,
            journal=UsageJournal(self._parts.usage, self._ports.clock, self._log),
            settings=self._parts.settings,
            log=self._log,
            find_gpus=self._parts.find_gpus,
        )

    def _make_slots(self, worker: Worker, reporter: Reporter, sampler: Sampler) -> Sequence[Slot]:
        rate = read_interruption_rate(self._ports.table, self._parts.home.workload, worker)
        return [
            self._make_slot(worker, slot, reporter, sampler, rate) for slot in range(worker.slots)
        ]

    def _make_slot(
        self, worker: Worker, slot: int, reporter: Reporter, sampler: Sampler, rate: float
    ) -> Slot:
        parts = self._parts
        runner = parts.make_runner(worker, slot)
        slot_id = SlotId(
            workload=parts.home.workload,
            instance_id=worker.instance_id,
            slot=slot,
            code_version=parts.code.spec.version,
            on_new_code=parts.code.spec.on_new_code,
            price_per_hour=worker.price_per_hour / max(worker.slots, 1),
            gpu=processor_kind(*worker.processor),
            spot=worker.spot_terms(rate),
            boot=worker.boot,
            log_pointer=f"{parts.home.log_group}:{worker.instance_id}",
            shape=parts.home.shape,
        )
        spec = parts.code.spec
        scratch = parts.settings.scratch / f"slot-{slot}"
        make_own(scratch)
        for name in (SETUP, TEMPORARY):
            make_shared(scratch / name)
        batch_size = spec.batch_size if spec.results is Results.PER_ITEM else sys.maxsize
        transfers = ThreadPoolExecutor(2, thread_name_prefix=f"transfer-{slot}")
        context = SlotContext(
            slot_id=slot_id,
            worker_row=self._worker_row,
            ports=self._ports,
            runner=runner,
            life=self._life,
            reporter=reporter,
            renewer=LeaseRenewer(slot_id, self._worker_row, self._ports),
            log=self._log.bind(slot=slot),
            batch_size=batch_size,
            transfers=transfers,
            scratch=scratch,
            leftovers=self._leftovers(worker, slot),
            interruption_rate=rate,
            recorder=sampler.watch(slot, runner),
            memory_gib=self._memory_gib(worker),
            stop_grace=_stop_grace(spec),
            job_timeout=spec.job_timeout,
            is_judged_by_items=spec.mode is not RunMode.FOLDER,
            outbox=self._outbox,
            deployment=parts.home.deployment,
            next_message=self._look_ahead(batch_size, scratch, transfers),
            on_ready=sampler.await_gpus,
            on_first_item=partial(self._note_first_item, worker, reporter),
        )
        return Slot(context)

    def _leftovers(self, worker: Worker, slot: int) -> Leftovers | None:
        """Return what finds what the code of a slot leaves; a container's goes with it."""
        settings = self._parts.settings
        if self._parts.code.spec.mode is RunMode.IMAGE:
            return None
        return leftovers_of_slot(slot, worker.slots, settings.code_user, settings.launcher)

    def _memory_gib(self, worker: Worker) -> float:
        """Return the memory that a job may use: what the machine has, or its part of it."""
        settings = self._parts.settings
        if self._life.state.standing.dispatch is Dispatch.SHARED:
            return share_of_memory(settings.proc, worker.slots) / _GIB
        return read_memory_total(settings.proc) / _GIB

    def _look_ahead(self, batch_size: int, scratch: Path, transfers: Executor) -> NextMessage:
        return NextMessage(
            life=self._life,
            ports=self._ports,
            batch_size=batch_size,
            scratch=scratch,
            executor=transfers,
            log=self._log,
        )

    def _make_watch(self, reporter: Reporter, sampler: Sampler) -> Watch:
        return Watch(
            life=self._life,
            worker_row=self._worker_row,
            renewers=[slot.renewer for slot in self._slots],
            metadata=self._parts.metadata,
            ports=self._ports,
            reporter=reporter,
            settings=self._parts.settings,
            log=self._log,
            gpu_use=sampler.gauge.read,
        )


_GIB = 1024**3


def _stop_grace(spec: RunSpec) -> timedelta:
    """Return how long the user's code has after SIGTERM; an entrypoint is not asked."""
    return timedelta(0) if spec.mode is RunMode.ENTRYPOINT else spec.stop_grace
