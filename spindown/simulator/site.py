"""What the workers of a simulation share, and what they go by."""

from collections.abc import Callable
from dataclasses import dataclass

from spindown.app.port import Key
from spindown.app.work.held import WorkPorts
from spindown.app.work.policy import read_standing
from spindown.contract.row import POLICY, workload_partition
from spindown.domain.worker_lifecycle import Standing
from spindown.ec2sim import Agenda
from spindown.simulator.handout import Handout
from spindown.simulator.record import SimRecorder
from spindown.simulator.scenario import SimDelays


@dataclass(slots=True, kw_only=True)
class Site:
    """What all workers of a simulation share."""

    workload: str
    deployment: str
    agenda: Agenda
    ports: WorkPorts
    handout: Handout
    record: SimRecorder
    delays: SimDelays
    #: Ends an instance from within.
    power_off: Callable[[str], None]
    #: The row of the policy as last seen, what of it counts, and what it says.
    _standing: tuple[object, tuple[object, object], Standing] | None = None

    def standing(self) -> Standing:
        """Return the policy in force; decoded once for all who read the same."""
        key = Key(partition=workload_partition(self.workload), sort=POLICY)
        row, standing = self.ports.table.get(key), self._standing
        # A row of the simulation's table never changes: another version is another row.
        if standing is not None and standing[0] is row:
            return standing[2]
        seen = ((row or {}).get("effective"), (row or {}).get("idle_timeout"))
        if standing is None or standing[1] != seen:
            known = standing[2] if standing else None
            told = read_standing(self.ports.table, self.workload, known)
        else:
            told = standing[2]
        self._standing = row, seen, told
        return told
