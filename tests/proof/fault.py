"""What can go wrong at one call of a port: the caller dies, the answer is lost, others act."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from spindown.error import SpindownError, Unreachable
from spindown.memory import PortCall


class Crashed(BaseException):
    """The process is gone: no code of ours may catch it."""


class Kind(StrEnum):
    """What happens at the call."""

    CRASH_BEFORE = "crash before its effect"
    CRASH_AFTER = "crash after its effect"
    ERROR_BEFORE = "error before its effect"
    ERROR_AFTER = "error after its effect"
    #: The caller is held up, and the world goes on before its call has an effect.
    MEANWHILE = "meanwhile"


FAULTS = [kind for kind in Kind if kind is not Kind.MEANWHILE]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault, at the ``at``-th call from now on, 1 being the next."""

    at: int
    kind: Kind
    meanwhile: Callable[[], None] = lambda: None


class Faults:
    """Stands before every port; lets at most one fault happen, then nothing until armed anew."""

    def __init__(self) -> None:
        #: What the last fault hit; None: it is still to come.
        self.hit: PortCall | None = None
        #: A caller has been held up since this was last set to False.
        self.is_stalled = False
        self._fault: Fault | None = None
        self._left = 0

    def arm(self, fault: Fault | None) -> None:
        """Prepare a fault, or with None take back the one that is prepared."""
        self._fault = fault
        self._left = fault.at if fault else 0
        self.hit = None

    def __call__(self, call: PortCall, proceed: Callable[[], Any]) -> Any:
        """Carry out a call, unless its time has come."""
        fault = self._fault
        self._left -= 1
        if fault is None or self._left > 0:
            return proceed()
        self._fault, self.hit = None, call
        self.is_stalled |= fault.kind is Kind.MEANWHILE
        return _strike(fault, call, proceed)


def _strike(fault: Fault, call: PortCall, proceed: Callable[[], Any]) -> Any:
    name = f"{call.port}.{call.method}"
    match fault.kind:
        case Kind.MEANWHILE:
            fault.meanwhile()
            return proceed()
        case Kind.CRASH_AFTER | Kind.ERROR_AFTER:
            try:
                proceed()
            except SpindownError:
                if fault.kind is Kind.ERROR_AFTER:
                    raise
    if fault.kind in {Kind.CRASH_BEFORE, Kind.CRASH_AFTER}:
        raise Crashed(name)
    raise Unreachable(f"{name}: no answer")
