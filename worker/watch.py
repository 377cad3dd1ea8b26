"""The heartbeat of a worker's leases, and its look at the metadata that announces the end.

``aws.imds`` reads the metadata. Each look is one method, which its own thread repeats; a failed one
is logged and repeated, for it proves nothing. Two more threads send the log: at every heartbeat,
and at once what code prints. What the worker does with what is heard, a notice for instance, is
decided in ``domain.worker_lifecycle``. A worker that is silent is powered off by
``system/deadman.sh``, after 15 minutes. That the user's code hangs is seen elsewhere:
``child.runner`` and ``child.command`` kill what takes longer than ``item_timeout``.
"""

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial

from spindown.domain.fleet import GpuUse
from spindown.domain.policy import Policy
from spindown.domain.worker_lifecycle import (
    Noticed,
    PolicySeen,
    RebalanceAdvised,
    TellNotice,
    TellRebalance,
    WasCondemned,
    WorkerEvent,
    row_seen,
)
from spindown.error import SpindownError
from spindown.job.policy_in_force import read_standing
from spindown.job.work_done import Reporter
from spindown.job.worker_row import Condemned, WorkerRow
from spindown.port import Metadata, WorkPorts
from spindown.worker.lease_renewer import LeaseRenewer
from spindown.worker.lifecycle import SharedLifecycle
from spindown.worker.log import EventLog
from spindown.worker.settings import WorkerSettings

#: How often what code prints is sent: who follows it sees it within two seconds.
OUTPUT_INTERVAL = timedelta(milliseconds=500)


class Watch:
    """Extends the leases, says that the worker lives, and hears what EC2 announces."""

    def __init__(  # noqa: PLR0913 - what its looks need
        self,
        *,
        life: SharedLifecycle,
        worker_row: WorkerRow,
        renewers: Sequence[LeaseRenewer],
        metadata: Metadata,
        ports: WorkPorts,
        reporter: Reporter,
        settings: WorkerSettings,
        log: EventLog,
        gpu_use: Callable[[], GpuUse | None] = lambda: None,
    ) -> None:
        self._life = life
        self._worker_row = worker_row
        self._renewers = renewers
        self._metadata = metadata
        self._ports = ports
        self._reporter = reporter
        self._settings = settings
        self._log = log
        self._gpu_use = gpu_use
        #: What the ledger is still to hear of a notice, with the event of a failure.
        self._to_tell: list[tuple[str, Callable[[], None]]] = []
        self._stopped = threading.Event()
        looks: list[tuple[str, Callable[[], None], Callable[[], timedelta]]] = [
            ("heartbeat", self.show, self._heartbeat_interval),
            ("metadata", self.look, lambda: settings.metadata_interval),
            # Beside the heartbeat, not in it: a slow log must hold up no lease, nor one another.
            ("log", log.flush, self._heartbeat_interval),
            ("output", log.flush_awaited, lambda: OUTPUT_INTERVAL),
        ]
        looks += [
            (f"lease-{number}", partial(self._extend, renewer), self._heartbeat_interval)
            for number, renewer in enumerate(renewers)
        ]
        self._threads = [
            threading.Thread(target=self._repeat, args=(look, length), name=name, daemon=True)
            for name, look, length in looks
        ]

    def start(self) -> None:
        """Begin to look, with a heartbeat; one that fails is followed by the next."""
        self._try("heartbeat_failed", self.beat)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Look no more; return when the last look is over."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        self._reporter.flush()

    def beat(self) -> None:
        """Extend each lease and show that the worker lives, one after the other."""
        for renewer in self._renewers:
            self._extend(renewer)
        self.show()

    def show(self) -> None:
        """Show that the worker lives, write its heartbeat, follow the policy in force."""
        # First of all: a ledger without an answer is no reason for the dead-man check to act. Nor
        # is a disk without room one to be taken for gone.
        self._try("life_not_shown", self._show_life)
        try:
            row = self._worker_row.beat(self._gpu_use())
        except Condemned:
            self._life.tell(WasCondemned)
        else:
            self._tell(row_seen, row)
        table, known = self._ports.table, self._life.state.standing
        of, shape = self._worker_row.workload, self._worker_row.shape
        self._life.tell(PolicySeen, read_standing(table, of, known, shape=shape))
        self._reporter.flush()

    def look(self) -> None:
        """Ask the metadata whether EC2 takes the instance away, or advises to leave it."""
        deadline = self._metadata.interruption()
        if deadline is not None:
            self._tell(Noticed, deadline)
        advised = self._metadata.rebalance()
        if advised is not None:
            self._tell(RebalanceAdvised, advised)

    def _tell(self, event: Callable[..., WorkerEvent], *args: object) -> None:
        """Tell the lifecycle, and the ledger what it must know; what had no answer again."""
        for answer in self._life.tell(event, *args):
            match answer:
                case TellNotice(deadline=deadline, source=source):
                    self._log.warning("interruption_noticed", deadline=deadline, source=source)
                    self._to_tell = [
                        ("lease_not_bounded", partial(k.bound, deadline)) for k in self._renewers
                    ]
                    record = partial(self._worker_row.record_notice, deadline)
                    self._to_tell.append(("notice_not_recorded", record))
                case TellRebalance(at=at, knows=knows):
                    self._log.warning("rebalance_recommended", at=at)
                    if not knows:
                        self._worker_row.record_rebalance(at)
        if self._life.state.deadline is not None:
            self._to_tell = [
                (event_name, tell)
                for event_name, tell in self._to_tell
                if not self._try(event_name, tell)
            ]

    def _extend(self, renewer: LeaseRenewer) -> None:
        self._try("lease_not_extended", partial(renewer.beat, self._policy))

    def _show_life(self) -> None:
        """Tell the dead-man check that we live, and for how long the policy lets us."""
        if self._settings.alive is not None:
            longest = self._policy.max_lifetime + self._policy.lifetime_grace
            # The check may read at any moment: an empty file would tell it no lifetime.
            whole = self._settings.alive.with_suffix(".new")
            whole.write_text(f"{int(longest.total_seconds())}\n")
            whole.replace(self._settings.alive)

    @property
    def _policy(self) -> Policy:
        return self._life.policy

    def _heartbeat_interval(self) -> timedelta:
        return self._policy.heartbeat_interval

    def _repeat(self, look: Callable[[], None], interval: Callable[[], timedelta]) -> None:
        while not self._stopped.wait(interval().total_seconds()):
            self._try(f"{threading.current_thread().name}_failed", look)

    def _try(self, event: str, call: Callable[[], None]) -> bool:
        try:
            call()
        except SpindownError as exc:
            self._log.warning(event, reason=str(exc))
        except Exception:  # noqa: BLE001 - the edge of the thread: it must go on looking
            self._log.exception(event)
        else:
            return True
        return False
