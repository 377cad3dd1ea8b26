"""A deployment's settings and live edits in memory."""

import threading
from collections.abc import Mapping, Sequence

from spindown.contract.settings import (
    PARAMETER_BYTES_MAX,
    DeploymentSettings,
    WorkloadSettings,
)
from spindown.error import ContractError, NotFound
from spindown.port import NO_EDIT, Clock, LiveEdit


class MemorySettingsStore:
    """SettingsStore in memory; ``deployed`` may be changed like a deploy would."""

    def __init__(
        self,
        clock: Clock,
        deployment: DeploymentSettings,
        workloads: Mapping[str, WorkloadSettings],
        *,
        editor: str = "",
    ) -> None:
        self._clock = clock
        self._deployment = deployment
        self._workloads = dict(workloads)
        self._editor = editor
        self._lock = threading.Lock()
        self._edits: dict[str, list[LiveEdit]] = {}

    def deployment(self) -> DeploymentSettings:
        """Return the deployment."""
        return self._deployment

    def workload(self, name: str) -> tuple[WorkloadSettings, LiveEdit | None]:
        """Return a workload as deployed, and its live edit."""
        with self._lock:
            if name not in self._workloads:
                raise NotFound(f"no workload {name} in deployment {self._deployment.name}")
            edits = self._edits.get(name)
            edit = edits[-1] if edits and edits[-1].text != NO_EDIT else None
            return self._workloads[name], edit

    def put_live(self, name: str, text: str) -> int:
        """Store a live edit; return its version."""
        if not 0 < len(text.encode()) <= PARAMETER_BYTES_MAX:
            raise ContractError("live edit", text, "write 1 to 8,192 bytes of JSON")
        with self._lock:
            edits = self._edits.setdefault(name, [])
            edits.append(
                LiveEdit(
                    text=text,
                    version=len(edits) + 1,
                    edited_at=self._clock.now(),
                    edited_by=self._editor,
                )
            )
            return len(edits)

    def history(self, name: str) -> Sequence[LiveEdit]:
        """Return past live edits, oldest first."""
        with self._lock:
            return tuple(self._edits.get(name, ()))

    def deploy(self, settings: WorkloadSettings) -> None:
        """Replace a workload's settings; its live edit stays."""
        with self._lock:
            self._workloads[settings.name] = settings
