"""Look at the machine for all slots, often at a job's begin, and keep the journal moving."""

import os
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial

from spindown.domain.fleet import Worker
from spindown.worker.child.runner import Runner
from spindown.worker.log import EventLog
from spindown.worker.settings import WorkerSettings
from spindown.worker.usage.gpu import Gpus, open_gpus
from spindown.worker.usage.journal import UsageJournal, UsageRecorder
from spindown.worker.usage.meter import Gauge, Meter, MeteredMachine, slot_gpus
from spindown.worker.usage.reading import (
    Groups,
    Processes,
    SlotUse,
    read_cores,
    read_disks,
    read_group,
    read_memory_total,
    read_network,
    use_of,
)

#: For the first and the last look: more than a driver needs that answers at all.
_PATIENCE = timedelta(seconds=15)
#: How long a job that is over waits to be looked at once more.
_LAST_LOOK_SECONDS = 0.25
#: Looks at a job while it is young, and until when it is, seconds.
_YOUNG_INTERVAL, _YOUNG_FOR = 1.0, 60.0
#: The share of one core that looks may take, and the seconds that they may be ahead of it.
CORE_SHARE = 0.005
_AHEAD = 0.25


class Sampler:
    """Takes a sample of every slot that holds a job, in a thread of its own.

    A fault ends the sampling, which the log tells, and nothing else. Looks take no more than
    ``CORE_SHARE`` of a core: on a machine with thousands of processes, or for jobs of milliseconds,
    they become rarer.
    """

    def __init__(
        self,
        worker: Worker,
        *,
        workload: str,
        journal: UsageJournal,
        settings: WorkerSettings,
        log: EventLog,
        find_gpus: Callable[[], Gpus | None] = open_gpus,
    ) -> None:
        self._worker = worker
        self._workload = workload
        self._journal = journal
        self._settings = settings
        self._log = log
        self._find_gpus = find_gpus
        self._gpus: Gpus | None = None
        self._processes = Processes(settings.proc)
        self._groups = Groups(settings.proc, settings.cgroups)
        self._watched: list[tuple[Meter, Runner]] = []
        #: Of the whole machine, while it holds a job: what heartbeats tell.
        self.gauge = Gauge()
        self._lock = threading.Condition()
        self._asked = self._answered = 0
        self._is_stopped = False
        self._is_sound = True
        self._started_at = 0.0
        #: CPU seconds of all looks.
        self.spent = 0.0
        self._thread = threading.Thread(target=self._run, name="usage", daemon=True)
        #: Whether GPUs were looked for.
        self._has_looked = threading.Event()

    def watch(self, slot: int, runner: Runner) -> UsageRecorder:
        """Look at a slot too, from the start on; return what notes its jobs."""
        meter = Meter(slots=max(self._worker.slots, 1), gpus=slot_gpus(self._worker, slot))
        self._watched.append((meter, runner))
        return UsageRecorder(
            workload=self._workload,
            worker=self._worker,
            meter=meter,
            journal=self._journal,
            asked=self._settings.asked,
            log=self._log,
            look=self._ask,
        )

    def start(self) -> None:
        """Begin to take samples."""
        self._thread.start()

    def stop(self, *, patience: timedelta = _PATIENCE) -> None:
        """Take no more; return when what was noted is written.

        Past ``patience`` a look that hangs, as in a driver whose GPU is gone, is left behind.
        """
        with self._lock:
            self._is_stopped = True
            self._lock.notify_all()
        self._thread.join(patience.total_seconds())
        if self._thread.is_alive():
            self._log.warning("usage_left_behind")
        self._journal.write()

    def await_gpus(self) -> None:
        """Wait, for as long as a driver may take, until it is known what the GPUs have.

        Without that a first job that runs out of their memory could be sent to no larger one.
        """
        if self._worker.gpu_count:
            self._has_looked.wait(_PATIENCE.total_seconds())

    def find_gpus(self) -> None:
        """Look once for the GPUs of this machine."""
        if self._worker.gpu_count:
            self._gpus = self._find_gpus()
        if self._gpus is not None:
            found = self._gpus.read()
            for meter, _ in self._watched:
                meter.note_gpus(found)

    def sample(self, *, with_cores: bool = True) -> None:
        """Look at the machine once; do not if it holds no job."""
        held = [
            (meter, runner.group, None if runner.group else runner.pid)
            for meter, runner in self._watched
            if meter.is_open
        ]
        if not held:
            return
        began, proc = time.thread_time(), self._settings.proc
        uses = self._read_uses({root for *_, root in held if root is not None})
        machine = MeteredMachine(
            at=time.monotonic(),
            cpus=os.cpu_count() or 1,
            memory_bytes=read_memory_total(proc),
            gpus={} if self._gpus is None else self._gpus.read(),
            network=read_network(proc),
            disks=read_disks(proc),
            cores=read_cores(proc) if with_cores else (),
        )
        self.gauge.take(machine.gpus.values())
        for meter, group, root in held:
            # The slot's own group counts also what began and ended between two looks.
            of_group = None if group is None else read_group(str(group), proc)
            meter.take(machine, of_group if root is None else uses.get(root))
        self.spent += time.thread_time() - began

    def _read_uses(self, roots: set[int]) -> dict[int, SlotUse]:
        grouped = {root: use for root in roots if (use := self._groups.use_of(root)) is not None}
        left = roots - grouped.keys()
        trees = self._processes.trees(left) if left else {}
        return {**grouped, **{root: use_of(root, tree) for root, tree in trees.items()}}

    def _ask(self, *, wait: bool) -> None:
        """Let the machine be looked at now; ``wait``: for a moment, until it is done."""
        with self._lock:
            if not self._thread.is_alive() or not self._is_sound:
                return
            self._asked += 1
            asked = self._asked
            self._lock.notify_all()
            if wait:
                self._lock.wait_for(lambda: self._answered >= asked, _LAST_LOOK_SECONDS)

    def _run(self) -> None:
        self._try(self.find_gpus)
        self._has_looked.set()
        self._started_at = time.monotonic()
        while True:
            with self._lock:
                self._lock.wait_for(
                    lambda: self._is_stopped or self._asked > self._answered, self._interval()
                )
                if self._is_stopped:
                    return
                asked = self._asked
            if self._is_sound and self._may_look:
                self._try(partial(self.sample, with_cores=asked > self._answered))
            with self._lock:
                self._answered = asked
                self._lock.notify_all()
            # Also unseen: a machine that is taken away writes nothing at its end.
            self._journal.write_if_due()

    def _try(self, look: Callable[[], None]) -> None:
        try:
            look()
        except Exception:  # noqa: BLE001 - the edge of the thread
            self._log.exception("usage_not_sampled")
            self._is_sound = False

    @property
    def _may_look(self) -> bool:
        passed = time.monotonic() - self._started_at
        return self.spent <= CORE_SHARE * passed + _AHEAD

    def _interval(self) -> float:
        usual = self._settings.usage_interval.total_seconds()
        is_young = any(m.is_open and m.seen_for < _YOUNG_FOR for m, _ in self._watched)
        return min(_YOUNG_INTERVAL, usual) if is_young else usual
