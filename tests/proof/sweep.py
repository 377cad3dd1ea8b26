"""A story told once for every call in it, each time with a fault at another."""

import itertools
from collections.abc import Callable

from tests.proof.fault import Fault, Kind
from tests.proof.world import ProofWorld


def sweep(
    prepare: Callable[[], ProofWorld], tell: Callable[[ProofWorld, Fault], bool], kind: Kind
) -> int:
    """Tell a story once for every call in it; return how many calls that are.

    Args:
        prepare: makes the world that it begins in.
        tell: tells it with a fault and checks what came of it; returns whether there was such a
            call.
        kind: of fault.
    """
    for at in itertools.count(1):
        world = prepare()
        try:
            was_hit = tell(world, Fault(at=at, kind=kind))
        except BaseException as exc:
            exc.add_note(f"{kind} at call {at}, which is {world.faults.hit}")
            raise
        if not was_hit:
            return at - 1
    raise AssertionError
