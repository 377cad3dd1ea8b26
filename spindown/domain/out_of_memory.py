"""What becomes of a job that has run out of memory: it is tried again on the next larger size.

The memory is that of its machine or that of a GPU, the needs ``MEMORY`` and ``VRAM``.

Where this is not possible, its attempt has failed like any other (``retry_or_dead_letter``). An
attempt that had used little (``had_used_little``) has failed too, and yet the job goes on with
more. What later jobs of the type get: ``rightsizing``.
"""

from dataclasses import replace
from typing import Any

from spindown.domain.policy import Dispatch, JobNeeds, Policy
from spindown.domain.rightsizing.type_size import MEMORY, VRAM
from spindown.domain.shape import SCALES, most_of, parse_shape, settle

#: Share of the memory: code that has used less may raise MemoryError for another reason.
_LITTLE = 0.25
#: Share of a machine's memory that its system reports: firmware and kernel take the rest. One of
#: 61 GiB reports 59.7, which is no 64. The smallest report less, and a job runs out there once
#: more. A GPU's driver reports 15 GiB of the 16 that EC2 states for a T4.
_VISIBLE_SHARE = {MEMORY: 0.95, VRAM: 0.93}


def memory_of(shape: str, memory_gib: float, need: str = MEMORY) -> float:
    """Return the GiB that a job had: those of its machine's shape, or what is known to be more.

    On a GPU that jobs share it had what the shape says.
    """
    known = parse_shape(shape)
    own = float(getattr(known, need)) if known else 0.0
    if known is not None and known.dispatch is Dispatch.SHARED and need == VRAM and own:
        return own
    return max(own, memory_gib)


def had_used_little(
    peak_gib: float | None,
    memory_gib: float,
    type_name: str,
    asked: JobNeeds | None,
    policy: Policy,
    need: str = MEMORY,
) -> bool:
    """Tell whether a job said that memory ran out and had used less than a quarter of it.

    Then each attempt counts as a failure, so that there are not many. More memory may help all the
    same: an array for which there is no room is refused before it uses any. So what had less than
    it or its type asks for, since others of the type have used less, goes on uncounted.

    Args:
        peak_gib: the most that it has used; None: not known, or the kernel itself said so.
        memory_gib: what it had.
        type_name: its type; "": none.
        asked: what its message asks for itself.
        policy: the types, and the ceilings.
        need: which memory it is.
    """
    wanted = getattr(settle(type_name, asked, policy).needs, need) or 0.0
    has_little = peak_gib is not None and peak_gib < _LITTLE * memory_gib
    return has_little and memory_gib >= wanted


def larger_needs(
    type_name: str,
    asked: JobNeeds | None,
    *,
    shape: str,
    memory_gib: float,
    policy: Policy,
    need: str = MEMORY,
) -> JobNeeds | None:
    """Return what a job asks for next that has run out of memory; None: its attempt has failed.

    It asks for the next step above what its machine had, or for the most that the policy allows, if
    that is less. It has failed if its machine is not one of several sizes, if none is larger, if
    the policy allows it no more than it had, and for want of GPU memory if no GPU is known.

    Args:
        type_name: the message's ``type``; "": it has none.
        asked: its ``requirements``; None: it has none.
        shape: of its machine; "": the workload has no types.
        memory_gib: what its machine had, or one of its GPUs, as far as that is known.
        policy: the types, and the ceilings.
        need: which memory has run out.
    """
    had = memory_of(shape, memory_gib, need)
    if parse_shape(shape) is None or (need == VRAM and not had):
        return None
    # A machine of 16 GiB tells 15.4, a GPU of 16 tells 15: to ask for 16 would be to ask for the
    # same again.
    had = max(had, *(size for size in SCALES[need] if size <= had / _VISIBLE_SHARE[need]))
    larger = next((size for size in SCALES[need] if size > had), None)
    usual = next((each.needs for each in policy.types if each.name == type_name), JobNeeds())
    most = most_of(need, usual, policy.requirements_at_most)
    if larger is None or most <= had:
        return None
    more: dict[str, Any] = {need: min(larger, most)}
    needs = replace(asked or JobNeeds(), **more)
    return None if settle(type_name, needs, policy).rejected else needs
