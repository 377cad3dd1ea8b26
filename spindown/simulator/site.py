"""What the workers of a simulation share, and what they go by."""

from collections.abc import Callable
from dataclasses import dataclass

from spindown.app.port import Key
from spindown.app.work.held import WorkPorts
from spindown.app.work.policy import Standing, read_standing
from spindown.contract.row import POLICY, workload_partition
from spindown.simulator.agenda import Agenda
from spindown.simulator.handout import Handout
from spindown.simulator.record import Recorder
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
