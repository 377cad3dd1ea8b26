"""The worker as a whole: check in, run the slots, watch over them, end in order.

Ends when it has been idle for long enough, at its lifetime, at SIGTERM, when EC2 or reconcile
takes the instance away, or when its last jobs all failed. Takes no new job then, lets the
present ones finish or gives them back, stops the heartbeat, and powers the instance off, unless
EC2 is about to reclaim it for free.
"""

import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from spindown.app.knowledge import read_interruption_rate
from spindown.app.port import Identity, JobEvents, Metadata, ObjectStore
from spindown.app.work.held import Seat, WorkPorts
from spindown.app.work.message import put_back
from spindown.app.work.policy import read_standing
from spindown.app.work.presence import Presence
from spindown.app.work.progress import Reporter
from spindown.contract.run import Results, RunMode
from spindown.domain.fleet import Worker
from spindown.domain.interruption import commit_by, should_power_off
from spindown.domain.reason import Reason, ReasonCode
from spindown.error import AccessDenied, SpindownError
from worker.child.code import Code
from worker.child.runner import Runner
from worker.handover import Bench
from worker.home import Home, WorkerSettings
from worker.keeper import Keeper
from worker.life import Life
from worker.log import EventLog
from worker.slot import Slot
from worker.transfer.ahead import Ahead
from worker.transfer.outbox import Outbox
from worker.usage.journal import Journal
from worker.usage.sampler import Sampler
from worker.watch import Watch

#: How long the last poll before the end waits.
_LAST_POLL = timedelta(seconds=1)
#: How often the main thread looks at the clock.
_LOOK_UP = timedelta(seconds=1)
_SHORTEST_LOOK = timedelta(milliseconds=10)
#: Beyond the time to leave, for slots whose last requests hang.
_JOIN_GRACE = timedelta(seconds=30)


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
    #: Where other systems hear of jobs that are over; None: nobody does.
    events: JobEvents | None = None


class Daemon:
    """One worker, from its check-in to its end."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._ports = parts.ports
        self._log = parts.log
        self._presence = Presence(
            workload=parts.home.workload, instance_id=parts.identity.instance_id, ports=parts.ports
        )
        standing = read_standing(parts.ports.table, parts.home.workload)
        self._life = Life(clock=parts.ports.clock, standing=standing, code_digest=parts.code.digest)
        self._outbox = Outbox(parts.events, parts.log) if parts.events else None
        self._slots: Sequence[Slot] = ()
        self._asked = threading.Event()

    def run(self) -> Worker:
        """Work until the end; return the worker's row as it was at the check-in.

        Raises:
            Condemned, NotFound: it was never ours to work; see ``Presence.check_in``.
        """
        patience = self._parts.settings.check_in_patience
        fault = self._parts.find_fault(bought := self._presence.await_row(patience=patience))
        if fault is not None:
            self._log.warning("machine_unfit", reason=fault)
            self._presence.mark_unfit(Reason(ReasonCode.UNFIT, {"fault": fault}))
            return bought
        worker = self._presence.check_in(patience=patience)
        reporter = self._open_reporter(worker)
        sampler = self._make_sampler(worker)
        self._slots = self._make_slots(worker, reporter, sampler)
        watch = self._make_watch(reporter, sampler)
        watch.start()
        sampler.start()
        for slot in self._slots:
            slot.thread.start()
        while not self._life.is_finishing:
            self._life.wait(self._next_look())
            self._end_if_old(worker)
            try:
                self._end_if_idle()
            except SpindownError as exc:
                self._end_unheard(exc)
        self._log.info("draining", reason=self._life.reason)
        with suppress(SpindownError):
            self._presence.begin_draining()
        self._join_slots(worker)
        self._empty_inbox()
        with suppress(SpindownError):
            self._presence.drain(Reason(self._life.reason))
        watch.stop()
        sampler.stop()
        if self._outbox is not None:
            self._outbox.flush()
        self._log.info("drained", reason=self._life.reason)
        return worker

    def stop(self) -> None:
        """Drain because somebody asks for it, as systemd does by SIGTERM."""
        self._life.leave(
            self._ports.clock.now() + self._parts.settings.stop_grace, ReasonCode.STOPPED
        )
        self._asked.set()

    def power_off(self, worker: Worker) -> None:
        """End the instance, or wait for EC2 to do it where that is free of charge."""
        while not should_power_off(
            launched_at=worker.launched_at,
            deadline=self._life.deadline,
            capacity_type=worker.capacity_type,
            now=self._ports.clock.now(),
        ):
            self._log.info("waiting_to_be_reclaimed", deadline=self._life.deadline)
            self._log.flush()
            if self._asked.wait(self._parts.settings.metadata_interval.total_seconds()):
                # The system is going down already.
                return
        self._log.info("powering_off")
        self._log.flush()
        subprocess.run(self._parts.settings.poweroff, check=False)

    def _open_reporter(self, worker: Worker) -> Reporter:
        home = self._parts.home
        reporter = Reporter(
            deployment=home.deployment, workload=home.workload, worker=worker, ports=self._ports
        )
        booted = self._ports.clock.now() - worker.launched_at
        self._log.info("checked_in", slots=worker.slots, boot_seconds=booted.total_seconds())
        reporter.emit({"BootSeconds": booted.total_seconds()})
        return reporter

    def _make_sampler(self, worker: Worker) -> Sampler:
        return Sampler(
            worker,
            workload=self._parts.home.workload,
            journal=Journal(self._parts.usage, self._ports.clock, self._log),
            settings=self._parts.settings,
            log=self._log,
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
        seat = Seat(
            workload=parts.home.workload,
            instance_id=worker.instance_id,
            slot=slot,
            code_digest=parts.code.digest,
            price_per_hour=worker.price_per_hour / max(worker.slots, 1),
            log_pointer=f"{parts.home.log_group}:{worker.instance_id}",
        )
        spec = parts.code.spec
        scratch = parts.settings.scratch / f"slot-{slot}"
        scratch.mkdir(parents=True)
        # As the scratch directory itself; see ``make_scratch``.
        scratch.chmod(scratch.stat().st_mode | stat.S_ISVTX)
        batch_size = spec.batch_size if spec.results is Results.PER_ITEM else sys.maxsize
        transfers = ThreadPoolExecutor(2, thread_name_prefix=f"transfer-{slot}")
        bench = Bench(
            seat=seat,
            presence=self._presence,
            ports=self._ports,
            runner=runner,
            life=self._life,
            reporter=reporter,
            keeper=Keeper(seat, self._presence, self._ports),
            log=self._log.bind(slot=slot),
            batch_size=batch_size,
            transfers=transfers,
            scratch=scratch,
            interruption_rate=rate,
            recorder=sampler.watch(slot, runner),
            stop_grace=timedelta(0) if spec.mode is RunMode.ENTRYPOINT else spec.stop_grace,
            job_timeout=spec.job_timeout,
            outbox=self._outbox,
            deployment=parts.home.deployment,
            ahead=self._look_ahead(batch_size, scratch, transfers),
        )
        return Slot(bench, poll_at_most=parts.settings.poll_at_most)

    def _look_ahead(self, batch_size: int, scratch: Path, transfers: Executor) -> Ahead:
        return Ahead(
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
            presence=self._presence,
            keepers=[slot.keeper for slot in self._slots],
            metadata=self._parts.metadata,
            ports=self._ports,
            reporter=reporter,
            settings=self._parts.settings,
            log=self._log,
            gpu_use=sampler.gauge.read,
        )

    def _end_if_old(self, worker: Worker) -> None:
        policy = self._life.standing.policy
        ends_at = worker.launched_at + policy.max_lifetime
        if self._ports.clock.now() < ends_at:
            return
        if self._life.leave(
            commit_by(ends_at + policy.lifetime_grace, policy), ReasonCode.LIFETIME
        ):
            self._log.info("lifetime_over", hours=policy.max_lifetime / timedelta(hours=1))

    def _end_if_idle(self) -> None:
        """End if every slot has been free for the idle timeout and one last poll finds nothing."""
        timeout = self._life.standing.idle_timeout
        if self._life.is_finishing or self._life.is_warm or not self._is_idle_for(timeout):
            return
        with self._life.polling:
            if self._life.inbox or not self._is_idle_for(timeout):
                return
            visibility = self._life.standing.policy.lease_duration
            message = self._ports.queue.receive(wait=_LAST_POLL, visibility=visibility)
            if message is not None:
                self._life.inbox.append(message)
            elif self._presence.drain(Reason(ReasonCode.IDLE), unless_warm=True):
                # Nothing is held any more, so a slot that hangs is not waited for either.
                self._life.leave(self._ports.clock.now(), ReasonCode.IDLE)
                words = f"No work for {say_duration(timeout)}. Shutting down."
                self._log.info("idle_timeout", message=words)
        self._life.wake()

    def _end_unheard(self, error: SpindownError) -> None:
        """Ask for the end again, since work may have come; end all the same if that may not be."""
        self._log.warning("end_not_asked_for", reason=str(error))
        standing = self._life.standing
        patience = standing.idle_timeout + standing.policy.scale_down_delay
        if isinstance(error, AccessDenied) or self._is_idle_for(patience):
            self._life.leave(self._ports.clock.now(), ReasonCode.IDLE_UNHEARD)
        else:
            self._life.wait(_LOOK_UP)

    def _empty_inbox(self) -> None:
        """Give back what was received for a slot that takes no new job any more."""
        with self._life.polling:
            while self._life.inbox:
                with suppress(SpindownError):
                    put_back(self._life.inbox.pop(), timedelta(0), self._ports.queue)

    def _next_look(self) -> timedelta:
        """Return how long to wait before the next look: no longer than until the idle timeout."""
        now, timeout = self._ports.clock.now(), self._life.standing.idle_timeout
        rests = [timeout - (now - (slot.free_since or now)) for slot in self._slots]
        if self._life.is_warm:
            rests = [_LOOK_UP]
        return min(max(*rests, _SHORTEST_LOOK), _LOOK_UP)

    def _is_idle_for(self, length: timedelta) -> bool:
        now = self._ports.clock.now()
        return all(
            slot.free_since is not None and now - slot.free_since >= length for slot in self._slots
        )

    def _join_slots(self, worker: Worker) -> None:
        """Wait for the slots to end; past the time to leave, one that hangs is left behind."""
        began = self._ports.clock.now()
        for slot in self._slots:
            while slot.thread.is_alive():
                slot.thread.join(_LOOK_UP.total_seconds())
                # Whoever ends its last job before it leaves may get old with it.
                self._end_if_old(worker)
                by = self._life.leave_by
                # A lifetime that was just shortened may be long over: they have their time too.
                if by is not None and self._ports.clock.now() > max(by, began) + _JOIN_GRACE:
                    self._log.warning("slot_left_behind", thread=slot.thread.name)
                    break


def say_duration(length: timedelta) -> str:
    """Return a duration in words: "10 minutes", "1 hour", "90 seconds"."""
    seconds = length.total_seconds()
    for unit, size in (("hour", 3600), ("minute", 60), ("second", 1)):
        if seconds >= size and seconds % size == 0:
            count = int(seconds // size)
            return f"{count} {unit}" + ("" if count == 1 else "s")
    return f"{seconds:g} seconds"
