"""Whether an instance type meets what a workload requires, and if not, in what.

Whether a message may ask for what it does: ``shape``.
"""

import math
from collections.abc import Iterable, Iterator, Mapping

from spindown.domain.offer import InstanceRequirements, InstanceType
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.relative_throughput import GPU_DATASHEETS

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


#: Inferentia and Trainium run no code but that which was compiled for them.
_MAKERS_OF_GPUS = "a maker of GPUs"


def names_neuron(instance_type: InstanceType, requirements: InstanceRequirements) -> bool:
    """Tell whether a workload names a type's Inferentia or Trainium, or the type itself.

    Whoever asks for any maker means any GPU.
    """
    return (
        requirements.gpu_manufacturer == instance_type.gpu_manufacturer
        or instance_type.gpu_name in (requirements.gpu_names or ())
        or instance_type.name in (requirements.instance_types or ())
    )


def is_considered(instance_type: InstanceType, requirements: InstanceRequirements) -> bool:
    """Tell whether a type is of a class that a workload buys, so that it is ranked at all.

    Machines with a GPU always are, so that each can be shown with what rules it out.
    """
    if instance_type.is_without_gpu:
        return requirements.allows_no_gpu
    if instance_type.is_neuron:
        return names_neuron(instance_type, requirements)
    return requirements.allows_gpu


def limit_types(
    types: Mapping[str, InstanceType], requirements: InstanceRequirements
) -> Mapping[str, InstanceType]:
    """Return the types that a workload's ranking has to look at.

    For work on GPUs those of ``is_considered``. Machines without a GPU are ten times as many, so
    for work that needs none only those remain that meet all requirements; if none does, all of
    ``is_considered``, so that the ranking can say what rules them out.
    """
    considered = {name: kind for name, kind in types.items() if is_considered(kind, requirements)}
    if not requirements.allows_no_gpu:
        return considered
    fitting = {
        name: kind for name, kind in considered.items() if misfit(kind, requirements) is None
    }
    return fitting or considered


def misfit(instance_type: InstanceType, requirements: InstanceRequirements) -> Reason | None:
    """Return the first requirement that a type does not meet; None when it fits.

    The code is the setting's name, ``found`` is what the type has and ``wanted`` what is asked for;
    one of several names is joined with " or ".
    """
    return next(_misfits(instance_type, requirements), None)


def unknown_names(
    requirements: InstanceRequirements, sold: Iterable[InstanceType]
) -> Mapping[str, frozenset[str]]:
    """Return setting -> names that it asks for and nobody knows: most likely slips of the pen.

    A GPU may be known and not be sold in these regions; what is denied need not be sold anywhere.
    """
    known = list(sold)
    gpus = GPU_DATASHEETS.keys() | {kind.gpu_name for kind in known}
    asked = {
        "instance_types": (requirements.instance_types or frozenset()) - {x.name for x in known},
        "gpu_names": (requirements.gpu_names or frozenset()) - gpus,
    }
    return {setting: unknown for setting, unknown in asked.items() if unknown}


def _misfits(kind: InstanceType, wanted: InstanceRequirements) -> Iterator[Reason]:
    if wanted.instance_types is not None and kind.name not in wanted.instance_types:
        yield Reason(ReasonCode.INSTANCE_TYPES, {"found": kind.name})
    if wanted.families_denied and kind.family in wanted.families_denied:
        yield Reason(ReasonCode.FAMILIES_DENIED, {"found": kind.family})
    if kind.bare_metal and not wanted.allow_bare_metal:
        yield Reason(ReasonCode.ALLOW_BARE_METAL)
    if kind.architecture not in wanted.architectures:
        listed = _listed(wanted.architectures)
        yield _unlike(ReasonCode.ARCHITECTURES, kind.architecture, listed)
    # What is asked of a GPU is asked of machines that have one.
    if not (kind.is_without_gpu and wanted.allows_no_gpu):
        yield from _gpu_misfits(kind, wanted)
    if kind.vcpus < wanted.vcpus_min:
        yield _unlike(ReasonCode.VCPUS_MIN, kind.vcpus, wanted.vcpus_min)
    if kind.memory_mib < wanted.memory_mib_min:
        yield _unlike(ReasonCode.MEMORY_MIB_MIN, kind.memory_mib, wanted.memory_mib_min)


def _gpu_misfits(kind: InstanceType, wanted: InstanceRequirements) -> Iterator[Reason]:
    fraction = 0.0 < kind.gpu_count < 1.0
    if wanted.gpu_manufacturer is not None and kind.gpu_manufacturer != wanted.gpu_manufacturer:
        made_by = kind.gpu_manufacturer
        yield _unlike(ReasonCode.GPU_MANUFACTURER, made_by, wanted.gpu_manufacturer)
    if kind.is_neuron and not names_neuron(kind, wanted):
        yield _unlike(ReasonCode.GPU_MANUFACTURER, kind.gpu_manufacturer, _MAKERS_OF_GPUS)
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
    on_one = math.ceil(wanted.gpu_jobs / max(1.0, kind.gpu_count))
    least = max(wanted.gpu_memory_mib_min, on_one * wanted.gpu_memory_mib_each)
    if kind.gpu_memory_mib < least:
        yield _unlike(ReasonCode.GPU_MEMORY_MIB_MIN, kind.gpu_memory_mib, least)
    # A partition's memory is already its own share.
    total = kind.gpu_memory_mib * max(1.0, kind.gpu_count)
    if total < wanted.gpu_memory_total_mib_min:
        wanted_total = wanted.gpu_memory_total_mib_min
        yield _unlike(ReasonCode.GPU_MEMORY_TOTAL_MIB_MIN, total, wanted_total)


def _unlike(code: ReasonCode, found: str | float, wanted: str | float) -> Reason:
    return Reason(code, {"found": found, "wanted": wanted})


def _listed(names: Iterable[str]) -> str:
    return " or ".join(sorted(names))
