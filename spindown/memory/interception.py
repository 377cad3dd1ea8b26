"""Put a function around every call of a port: to delay, count, fail, repeat or record it.

One place for all of these, since it knows a port only by its name and its methods.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast

P = TypeVar("P")


@dataclass(frozen=True, slots=True, kw_only=True)
class PortCall:
    """One call of one method of one port."""

    #: The name under which the port was wrapped, for example "queue".
    port: str
    method: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)


class Interceptor(Protocol):
    """What stands between a caller and a port."""

    def __call__(self, call: PortCall, proceed: Callable[[], Any]) -> Any:
        """Answer the call; ``proceed`` carries it out, as often as it is called."""
        ...


def intercept(port: P, name: str, interceptor: Interceptor) -> P:
    """Return ``port`` with every call of a public method going through ``interceptor``."""
    return cast("P", _Intercepted(port, name, interceptor))


class _Intercepted:
    def __init__(self, port: object, name: str, interceptor: Interceptor) -> None:
        self._port = port
        self._name = name
        self._interceptor = interceptor

    def __getattr__(self, method: str) -> Any:
        found = getattr(self._port, method)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            described = PortCall(port=self._name, method=method, args=args, kwargs=kwargs)
            return self._interceptor(described, lambda: found(*args, **kwargs))

        # Looked up once; later calls find it on the instance.
        setattr(self, method, call)
        return call
