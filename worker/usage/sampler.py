"""Look at the machine every few seconds for all slots, and keep the journal moving."""

import os
import shutil
import threading
import time
from datetime import timedelta

from spindown.domain.fleet import Worker
from worker.child.runner import Runner
from worker.home import WorkerSettings
from worker.log import EventLog
from worker.usage.journal import UsageJournal, UsageRecorder
from worker.usage.meter import Gauge, Meter, MeteredMachine, slot_gpus
from worker.usage.reading import read_gpus, read_memory_total, read_processes

#: For the last look: more than nvidia-smi is given.
_PATIENCE = timedelta(seconds=15)


class Sampler:
    """Takes a sample of every slot at each interval, in a thread of its own.

    A fault ends the sampling, which the log tells, and nothing else.
    """

    def __init__(
        self,
        worker: Worker,
        *,
        workload: str,
        journal: UsageJournal,
        settings: WorkerSettings,
        log: EventLog,
    ) -> None:
        self._worker = worker
        self._workload = workload
        self._journal = journal
        self._settings = settings
        self._log = log
        self._nvidia_smi = shutil.which(settings.nvidia_smi)
        self._watched: list[tuple[Meter, Runner]] = []
        #: Of the whole machine, while anything runs on it: what heartbeats tell.
        self.gauge = Gauge()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="usage", daemon=True)

    def watch(self, slot: int, runner: Runner) -> UsageRecorder:
        """Look at a slot too, from the start on; return what notes its jobs."""
        meter = Meter(slots=max(self._worker.slots, 1), gpus=slot_gpus(self._worker, slot))
        self._watched.append((meter, runner))
        return UsageRecorder(
            workload=self._workload, worker=self._worker, meter=meter, journal=self._journal
        )

    def start(self) -> None:
        """Begin to take samples."""
        self._thread.start()

    def stop(self, *, patience: timedelta = _PATIENCE) -> None:
        """Take no more; return when what was noted is written.

        Past ``patience`` a look that hangs, as in a driver whose GPU is gone, is left behind.
        """
        self._stopped.set()
        self._thread.join(patience.total_seconds())
        if self._thread.is_alive():
            self._log.warning("usage_left_behind")
        self._journal.write()

    def sample(self) -> None:
        """Look at the machine once; do not if nothing runs on it."""
        roots = [(meter, runner.pid) for meter, runner in self._watched]
        if all(root is None for _, root in roots):
            return
        proc = self._settings.proc
        machine = MeteredMachine(
            at=time.monotonic(),
            processes=read_processes(proc),
            cpus=os.cpu_count() or 1,
            memory_bytes=read_memory_total(proc),
            gpus=read_gpus(self._nvidia_smi) if self._nvidia_smi else {},
        )
        self.gauge.take(machine.gpus.values())
        for meter, root in roots:
            if root is not None:
                meter.take(machine, root)

    def _run(self) -> None:
        is_sound = True
        while not self._stopped.wait(self._settings.usage_interval.total_seconds()):
            try:
                if is_sound:
                    self.sample()
            except Exception:  # noqa: BLE001 - the edge of the thread
                self._log.exception("usage_not_sampled")
                is_sound = False
            # Also unseen: a machine that is taken away writes nothing at its end.
            self._journal.write_if_due()
