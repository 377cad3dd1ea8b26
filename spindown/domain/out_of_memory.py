"""What becomes of a job that has run out of memory: it is tried again on the next larger size.

Where this is not possible, its attempt has failed like any other (``dead_letter``).
"""

from dataclasses import replace

from spindown.domain.job_type import SCALES, parse_shape, settle
from spindown.domain.policy import Needs, Policy


def larger_needs(
    type_name: str, asked: Needs | None, *, shape: str, memory_gib: float, policy: Policy
) -> Needs | None:
    """Return what a job asks for next that has run out of memory; None: its attempt has failed.

    It asks for the next step above what its machine had. It has failed if its machine is not one of
    several sizes, if none is larger, and if the policy allows it no more.

    Args:
        type_name: the message's ``type``; "": it has none.
        asked: its ``requirements``; None: it has none.
        shape: of its machine; "": the workload has no types.
        memory_gib: what its machine had, as far as that is known.
        policy: the types, and the ceilings.
    """
    known = parse_shape(shape)
    if known is None:
        return None
    had = max(float(known.memory_gib), memory_gib)
    larger = next((size for size in SCALES["memory_gib"] if size > had), None)
    if larger is None:
        return None
    needs = replace(asked or Needs(), memory_gib=larger)
    return None if settle(type_name, needs, policy).rejected else needs
