"""Whether an instance type meets what a workload requires, and if not, in what."""

from collections.abc import Iterable, Iterator

from spindown.domain.offer import InstanceType, Requirements
from spindown.domain.reason import Reason, ReasonCode

#: The requirements in the order in which ``misfit`` judges them.
JUDGED = tuple(
    code.value
    for code in (
        ReasonCode.INSTANCE_TYPES,
        ReasonCode.FAMILIES_DENIED,
        ReasonCode.ALLOW_BARE_METAL,
        ReasonCode.ARCHITECTURES,
        ReasonCode.GPU_MANUFACTURER,
        ReasonCode.GPU_NAMES,
        ReasonCode.GPU_NAMES_DENIED,
        ReasonCode.ALLOW_FRACTIONAL_GPU,
        ReasonCode.GPU_COUNT_MIN,
        ReasonCode.GPU_COUNT_MAX,
        ReasonCode.GPU_MEMORY_MIB_MIN,
        ReasonCode.GPU_MEMORY_TOTAL_MIB_MIN,
        ReasonCode.VCPUS_MIN,
        ReasonCode.MEMORY_MIB_MIN,
    )
)


def misfit(instance_type: InstanceType, requirements: Requirements) -> Reason | None:
    """Return the first requirement that a type does not meet; None when it fits.

    The code is the setting's name, ``found`` is what the type has and ``wanted`` what is asked for;
    one of several names is joined with " or ".
    """
    return next(_misfits(instance_type, requirements), None)


def _misfits(kind: InstanceType, wanted: Requirements) -> Iterator[Reason]:
    if wanted.instance_types is not None and kind.name not in wanted.instance_types:
        yield Reason(ReasonCode.INSTANCE_TYPES, {"found": kind.name})
    if kind.family in wanted.families_denied:
        yield Reason(ReasonCode.FAMILIES_DENIED, {"found": kind.family})
    if kind.bare_metal and not wanted.allow_bare_metal:
        yield Reason(ReasonCode.ALLOW_BARE_METAL)
    if kind.architecture not in wanted.architectures:
        listed = _listed(wanted.architectures)
        yield _unlike(ReasonCode.ARCHITECTURES, kind.architecture, listed)
    yield from _gpu_misfits(kind, wanted)
    if kind.vcpus < wanted.vcpus_min:
        yield _unlike(ReasonCode.VCPUS_MIN, kind.vcpus, wanted.vcpus_min)
    if kind.memory_mib < wanted.memory_mib_min:
        yield _unlike(ReasonCode.MEMORY_MIB_MIN, kind.memory_mib, wanted.memory_mib_min)


def _gpu_misfits(kind: InstanceType, wanted: Requirements) -> Iterator[Reason]:
    fraction = 0.0 < kind.gpu_count < 1.0
    if wanted.gpu_manufacturer is not None and kind.gpu_manufacturer != wanted.gpu_manufacturer:
        made_by = kind.gpu_manufacturer
        yield _unlike(ReasonCode.GPU_MANUFACTURER, made_by, wanted.gpu_manufacturer)
    if wanted.gpu_names is not None and kind.gpu_name not in wanted.gpu_names:
        yield _unlike(ReasonCode.GPU_NAMES, kind.gpu_name, _listed(wanted.gpu_names))
    if kind.gpu_name in wanted.gpu_names_denied:
        yield Reason(ReasonCode.GPU_NAMES_DENIED, {"found": kind.gpu_name})
    if fraction and not wanted.allow_fractional_gpu:
        yield Reason(ReasonCode.ALLOW_FRACTIONAL_GPU, {"found": kind.gpu_count})
    # A partition counts as one GPU here, since partitions are allowed.
    if (1.0 if fraction else kind.gpu_count) < wanted.gpu_count_min:
        yield _unlike(ReasonCode.GPU_COUNT_MIN, kind.gpu_count, wanted.gpu_count_min)
    if wanted.gpu_count_max is not None and kind.gpu_count > wanted.gpu_count_max:
        yield _unlike(ReasonCode.GPU_COUNT_MAX, kind.gpu_count, wanted.gpu_count_max)
    if kind.gpu_memory_mib < wanted.gpu_memory_mib_min:
        least = wanted.gpu_memory_mib_min
        yield _unlike(ReasonCode.GPU_MEMORY_MIB_MIN, kind.gpu_memory_mib, least)
    # A partition's memory is already its own share.
    total = kind.gpu_memory_mib * max(1.0, kind.gpu_count)
    if total < wanted.gpu_memory_total_mib_min:
        least = wanted.gpu_memory_total_mib_min
        yield _unlike(ReasonCode.GPU_MEMORY_TOTAL_MIB_MIN, total, least)


def _unlike(code: ReasonCode, found: str | float, wanted: str | float) -> Reason:
    return Reason(code, {"found": found, "wanted": wanted})


def _listed(names: Iterable[str]) -> str:
    return " or ".join(sorted(names))
