"""Spindown: GPUs spin up when work arrives and are gone when it is done.

What a program uses is here, and is loaded when it is first named: ``Workload`` and the rest of
``spindown.client``, the errors that it raises, and ``function`` (`spindown docs python`).
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

#: Name -> its module. ``__init__.pyi`` tells type checkers the same.
_OFFERED = {
    "Function": "spindown.client.function",
    "function": "spindown.client.function",
    "AsyncMapper": "spindown.client.mapper",
    "AsyncResultStream": "spindown.client.mapper",
    "BatchCount": "spindown.client.workload",
    "ItemResult": "spindown.client.stream",
    "ResultStream": "spindown.client.stream",
    "Submission": "spindown.client.workload",
    "Workload": "spindown.client.workload",
    "BadInput": "spindown.error",
    "ItemFailed": "spindown.error",
    "JobFailed": "spindown.error",
    "SpindownError": "spindown.error",
    "WorkFailed": "spindown.error",
}


def __getattr__(name: str) -> "Any":
    """Load what is named."""
    from importlib import import_module  # noqa: PLC0415 - the command line begins here too

    if name not in _OFFERED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_OFFERED[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Name what is offered, loaded or not."""
    return sorted({*globals(), *_OFFERED})
