"""What the jobs of the last days have used, and what the machines that have enough would cost."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from spindown.contract.settings import DeploymentSettings, WorkloadSettings
from spindown.contract.usage import UsageRecord
from spindown.control.usage import read_usage
from spindown.domain.footprint import Footprint, JobUse, find_footprint, fit
from spindown.domain.offer import Requirements
from spindown.domain.ranking import Candidate
from spindown.operate.preview import preview
from spindown.port import Cache, ControlPorts, LiveEdit, SettingsStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Rightsizing:
    """How well the requirements of a workload fit what its jobs use."""

    workload: str
    at: datetime
    days: int
    jobs: int
    #: Time that slots were held, and USD that it cost.
    seconds: float
    dollars: float
    #: The types that it ran on.
    types: tuple[str, ...]
    #: None: nothing was seen.
    footprint: Footprint | None = None
    #: What an item costs least on now, and on what has enough; None: nothing fits.
    now: Candidate | None = None
    then: Candidate | None = None

    @property
    def saving(self) -> float:
        """Return the share of an item's cost that would be saved; 0: none."""
        if self.now is None or self.then is None:
            return 0.0
        return max(0.0, 1.0 - self.then.cost_per_item / self.now.cost_per_item)


def rightsize(workload: str, ports: ControlPorts, *, days: int) -> Rightsizing:
    """Compare what is required with what was used in the last ``days``; change nothing."""
    now = ports.clock.now()
    records = read_usage(workload, ports.objects, since=now - timedelta(days=days), until=now)
    settings, _ = ports.settings.workload(workload)
    uses = [_use(record) for record in records]
    found = Rightsizing(
        workload=workload,
        at=now,
        days=days,
        jobs=len({record.job_id for record in records}),
        seconds=sum(record.seconds for record in records),
        dollars=sum(record.dollars for record in records),
        types=tuple(sorted({record.instance_type for record in records})),
        footprint=find_footprint(uses, settings.requirements, settings.run.slots),
    )
    if found.footprint is None:
        return found
    enough = fit(settings.requirements, found.footprint)
    return replace(found, now=_best(workload, ports), then=_best(workload, ports, enough))


def _use(record: UsageRecord) -> JobUse:
    """Return a record in cores and MiB."""

    def mib(gib: float | None, over: float = 1.0) -> float | None:
        return None if gib is None else gib * _MIB_PER_GIB / over

    def share(used: float | None, whole: float | None) -> float | None:
        return None if used is None or not whole else 100.0 * used / whole

    # A GPU that slots share has all of its memory for each.
    gpus = max(record.gpu_count, 1.0)
    return JobUse(
        seconds=record.seconds,
        cpu_mean=record.cpu_mean,
        cpu_max=record.cpu_max,
        memory_mib_mean=mib(record.memory_mean),
        memory_mib_max=mib(record.memory_max),
        memory_share_max=share(record.memory_max, record.memory_gib),
        vram_mib_mean=mib(record.vram_mean, gpus),
        vram_mib_max=mib(record.vram_max, gpus),
        vram_share_max=share(record.vram_max, record.vram_gib),
        gpu_mean=record.gpu_mean,
    )


_MIB_PER_GIB = 1024.0


def _best(
    workload: str, ports: ControlPorts, requirements: Requirements | None = None
) -> Candidate | None:
    if requirements is not None:
        settings = _Loosened(ports.settings, requirements)
        ports = replace(ports, settings=settings, cache=Cache())
    return preview(workload, ports).candidates.best


@dataclass(frozen=True, slots=True)
class _Loosened:
    """The settings of a deployment whose workloads require something else."""

    settings: SettingsStore
    requirements: Requirements

    def deployment(self) -> DeploymentSettings:
        return self.settings.deployment()

    def workload(self, name: str) -> tuple[WorkloadSettings, LiveEdit | None]:
        deployed, edit = self.settings.workload(name)
        return replace(deployed, requirements=self.requirements), edit

    def put_live(self, name: str, text: str) -> int:
        return self.settings.put_live(name, text)

    def history(self, name: str) -> Sequence[LiveEdit]:
        return self.settings.history(name)
