"""What the workers of a simulation share, and what is summed up of each."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from spindown.app.port import Key
from spindown.app.work.held import WorkPorts
from spindown.app.work.policy import Standing, read_standing
from spindown.contract.row import POLICY, workload_partition
from spindown.simulator.agenda import Agenda
from spindown.simulator.attempt import SimAttempt
from spindown.simulator.handout import Handout
from spindown.simulator.result import Recorder
from spindown.simulator.scenario import Delays


@dataclass(slots=True, kw_only=True)
class Site:
    """What all workers of a simulation share."""

    workload: str
    deployment: str
    agenda: Agenda
    ports: WorkPorts
    handout: Handout
    record: Recorder
    delays: Delays
    #: Ends an instance from within.
    power_off: Callable[[str], None]
    _standing: tuple[tuple[object, object], Standing] | None = None

    def standing(self) -> Standing:
        """Return the policy in force; decoded once for all who read the same."""
        key = Key(partition=workload_partition(self.workload), sort=POLICY)
        row = self.ports.table.get(key) or {}
        seen = (row.get("effective"), row.get("idle_timeout"))
        if self._standing is None or self._standing[0] != seen:
            known = self._standing[1] if self._standing else None
            self._standing = seen, read_standing(self.ports.table, self.workload, known)
        return self._standing[1]


@dataclass(slots=True)
class Tally:
    """Slot seconds of one worker."""

    busy: float = 0.0
    #: Computed, and never committed.
    lost: float = 0.0

    def count(self, attempt: SimAttempt, now: datetime) -> None:
        """Add an attempt that ends now."""
        self.busy += (now - attempt.began).total_seconds()
        self.lost += attempt.lost_seconds
