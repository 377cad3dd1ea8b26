"""How much of its machines the work has used, and which requirements ask for more than that.

This advises a smaller machine or GPU for a workload *without* types, and changes nothing by itself
(`spindown rightsize`). For a workload with types, ``type_size`` learns one for each.

People ask for too much to be safe, forget about it, and so rule out cheaper machines. The advice
for memory and VRAM leaves some room above the most that was ever used, since some jobs need more
than others. The advice for CPUs is the most that was ever used, so that no job becomes slower.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from spindown.domain.cost_rise_cause import LITTLE_USE
from spindown.domain.offer import InstanceRequirements, slot_count

#: Memory that a machine should have, as a multiple of the most that was ever used.
ROOM = 1.25
#: A job that used this percent of its share came close to running out of it.
CLOSE = 90.0

_MIB_PER_GIB = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUse:
    """What one slot used while it held one job; None: it was not seen."""

    seconds: float
    #: Cores.
    cpu_mean: float | None = None
    cpu_max: float | None = None
    memory_mib_mean: float | None = None
    memory_mib_max: float | None = None
    #: Percent of the slot's share of the machine.
    memory_share_max: float | None = None
    #: Of one GPU.
    vram_mib_mean: float | None = None
    vram_mib_max: float | None = None
    vram_share_max: float | None = None
    #: Percent of the time.
    gpu_mean: float | None = None


class RequirementKey(StrEnum):
    """The requirements that are judged, as spindown.toml names them."""

    VCPUS = "vcpus_min"
    MEMORY = "memory_gib_min"
    VRAM = "gpu_memory_gib_min"


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """One requirement beside what was used. In its key's unit, of one instance (VRAM: one GPU)."""

    key: RequirementKey
    asked: float
    #: The most at any look, and the mean over time.
    most: float
    mean: float
    #: What would be enough.
    enough: int
    #: Whether a job came close to having too little.
    is_close: bool = False

    @property
    def advised(self) -> int | None:
        """Return what to ask for instead; None: leave it."""
        if self.is_close:
            return self.enough if self.enough > self.asked else None
        return self.enough if self.enough < self.asked else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequirementAdvice:
    """What the jobs of a span of time have used, beside what is asked for."""

    extents: tuple[Extent, ...]
    #: Percent of the time in which the GPUs computed; None: nobody saw one.
    gpu_mean: float | None
    #: Most that was used of a GPU's memory, percent of what it had.
    vram_share_max: float | None

    @property
    def uses_little_gpu(self) -> bool:
        """Tell whether any other GPU is likely to do."""
        seen = (self.gpu_mean, self.vram_share_max)
        return all(share is not None and share < LITTLE_USE for share in seen)


def advise_requirements(
    uses: Sequence[JobUse], requirements: InstanceRequirements, slots: str
) -> RequirementAdvice | None:
    """Return what was used, and what to ask for by that; None: nothing was seen.

    Worked: two slots that used 3.1 GiB at the most need ``ceil(2 x 3.1 x 1.25)`` = 8 GiB.

    Args:
        uses: one for each time that a slot left a job.
        requirements: as deployed.
        slots: the workload's ``run.slots``.
    """
    seen = [use for use in uses if use.memory_mib_max is not None]
    if not seen:
        return None
    places = slot_count(max(1.0, requirements.gpu_count_min), slots)
    shares = [use.vram_share_max for use in seen if use.vram_share_max is not None]
    return RequirementAdvice(
        extents=tuple(_extents(seen, requirements, places)),
        gpu_mean=_mean(seen, [use.gpu_mean for use in seen]),
        vram_share_max=max(shares, default=None),
    )


def fit(requirements: InstanceRequirements, advice: RequirementAdvice) -> InstanceRequirements:
    """Return requirements that ask for what is enough; any GPU will do where little is used."""
    advised = {
        extent.key: extent.advised for extent in advice.extents if extent.advised is not None
    }
    memory, vram = advised.get(RequirementKey.MEMORY), advised.get(RequirementKey.VRAM)
    loose = replace(
        requirements,
        vcpus_min=advised.get(RequirementKey.VCPUS, requirements.vcpus_min),
        memory_mib_min=requirements.memory_mib_min if memory is None else memory * _MIB_PER_GIB,
        gpu_memory_mib_min=(
            requirements.gpu_memory_mib_min if vram is None else vram * _MIB_PER_GIB
        ),
    )
    if advice.uses_little_gpu:
        loose = replace(loose, gpu_names=None, instance_types=None)
    return loose


def _extents(seen: Sequence[JobUse], asked: InstanceRequirements, places: int) -> Iterator[Extent]:
    cores = [use.cpu_max for use in seen if use.cpu_max is not None]
    if cores:
        most = max(cores) * places
        yield Extent(
            key=RequirementKey.VCPUS,
            asked=asked.vcpus_min,
            most=most,
            mean=(_mean(seen, [use.cpu_mean for use in seen]) or 0.0) * places,
            enough=max(1, math.ceil(most)),
        )
    yield _memory(
        RequirementKey.MEMORY,
        asked.memory_mib_min,
        [use.memory_mib_max for use in seen],
        _mean(seen, [use.memory_mib_mean for use in seen]),
        [use.memory_share_max for use in seen],
        places,
    )
    if any(use.vram_mib_max is not None for use in seen):
        yield _memory(
            RequirementKey.VRAM,
            asked.gpu_memory_mib_min,
            [use.vram_mib_max for use in seen],
            _mean(seen, [use.vram_mib_mean for use in seen]),
            [use.vram_share_max for use in seen],
            1,
        )


def _memory(
    key: RequirementKey,
    asked_mib: int,
    most_mib: Sequence[float | None],
    mean_mib: float | None,
    shares: Sequence[float | None],
    places: int,
) -> Extent:
    most = max(mib or 0.0 for mib in most_mib) * places / _MIB_PER_GIB
    return Extent(
        key=key,
        asked=asked_mib / _MIB_PER_GIB,
        most=most,
        mean=(mean_mib or 0.0) * places / _MIB_PER_GIB,
        enough=max(1, math.ceil(most * ROOM)),
        is_close=max(share or 0.0 for share in shares) >= CLOSE,
    )


def _mean(seen: Sequence[JobUse], values: Sequence[float | None]) -> float | None:
    """Return the mean over time of what was seen."""
    pairs = [(u.seconds, v) for u, v in zip(seen, values, strict=True) if v is not None]
    total = math.fsum(seconds for seconds, _ in pairs)
    if not pairs:
        return None
    if total <= 0.0:
        return math.fsum(value for _, value in pairs) / len(pairs)
    return math.fsum(seconds * value for seconds, value in pairs) / total
