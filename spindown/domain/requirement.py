"""Whether an instance type meets what a workload requires, and if not, in what."""

from collections.abc import Iterable, Iterator

from spindown.domain.offer import InstanceType, Requirements

#: The requirements in the order in which ``misfit`` judges them.
JUDGED = (
    "instance_types",
    "families_denied",
    "allow_bare_metal",
    "architectures",
    "gpu_manufacturer",
    "gpu_names",
    "gpu_names_denied",
    "allow_fractional_gpu",
    "gpu_count_min",
    "gpu_count_max",
    "gpu_memory_mib_min",
    "gpu_memory_total_mib_min",
    "vcpus_min",
    "memory_mib_min",
)


def misfit(instance_type: InstanceType, requirements: Requirements) -> tuple[str, str] | None:
    """Return the first requirement that a type does not meet, and how; None when it fits."""
    return next(_misfits(instance_type, requirements), None)


def _misfits(kind: InstanceType, wanted: Requirements) -> Iterator[tuple[str, str]]:
    if wanted.instance_types is not None and kind.name not in wanted.instance_types:
        yield "instance_types", f"{kind.name} is not listed"
    if kind.family in wanted.families_denied:
        yield "families_denied", f"family {kind.family} is left out"
    if kind.bare_metal and not wanted.allow_bare_metal:
        yield "allow_bare_metal", "it is bare metal"
    if kind.architecture not in wanted.architectures:
        yield "architectures", f"it is {kind.architecture}, not {_listed(wanted.architectures)}"
    yield from _gpu_misfits(kind, wanted)
    if kind.vcpus < wanted.vcpus_min:
        yield "vcpus_min", f"{kind.vcpus} vCPUs are fewer than {wanted.vcpus_min}"
    if kind.memory_mib < wanted.memory_mib_min:
        yield "memory_mib_min", f"{kind.memory_mib} MiB are less than {wanted.memory_mib_min}"


def _gpu_misfits(kind: InstanceType, wanted: Requirements) -> Iterator[tuple[str, str]]:
    gpu = kind.gpu_name or "no GPU"
    fraction = 0.0 < kind.gpu_count < 1.0
    if wanted.gpu_manufacturer is not None and kind.gpu_manufacturer != wanted.gpu_manufacturer:
        made_by = kind.gpu_manufacturer or "nobody"
        yield "gpu_manufacturer", f"its GPU is made by {made_by}, not {wanted.gpu_manufacturer}"
    if wanted.gpu_names is not None and kind.gpu_name not in wanted.gpu_names:
        yield "gpu_names", f"it has {gpu}, not {_listed(wanted.gpu_names)}"
    if kind.gpu_name in wanted.gpu_names_denied:
        yield "gpu_names_denied", f"{gpu} is left out"
    if fraction and not wanted.allow_fractional_gpu:
        yield "allow_fractional_gpu", f"it has {kind.gpu_count:g} of a GPU"
    # A partition is what was allowed, so the least count is judged as if it were one GPU.
    if (1.0 if fraction else kind.gpu_count) < wanted.gpu_count_min:
        yield "gpu_count_min", f"{kind.gpu_count:g} GPUs are fewer than {wanted.gpu_count_min:g}"
    if wanted.gpu_count_max is not None and kind.gpu_count > wanted.gpu_count_max:
        yield "gpu_count_max", f"{kind.gpu_count:g} GPUs are more than {wanted.gpu_count_max:g}"
    if kind.gpu_memory_mib < wanted.gpu_memory_mib_min:
        least = wanted.gpu_memory_mib_min
        yield "gpu_memory_mib_min", f"{kind.gpu_memory_mib} MiB of VRAM are less than {least}"
    # A partition's memory is already its own share.
    total = kind.gpu_memory_mib * max(1.0, kind.gpu_count)
    if total < wanted.gpu_memory_total_mib_min:
        least = wanted.gpu_memory_total_mib_min
        yield "gpu_memory_total_mib_min", f"{total:g} MiB of VRAM in all are less than {least}"


def _listed(names: Iterable[str]) -> str:
    return " or ".join(sorted(names))
