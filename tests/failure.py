"""Ports that fail on purpose: what may stand between a world and its ports."""

from collections.abc import Callable
from typing import Any

from spindown.memory import PortCall
from spindown.port import LaunchRequest


def failing(
    error: Exception, *methods: str, times: int | None = None
) -> Callable[[PortCall, Callable[[], Any]], Any]:
    """Raise the error instead of these methods: always, or the first so many times."""
    left = times

    def interfere(call: PortCall, proceed: Callable[[], Any]) -> Any:
        nonlocal left
        if call.method not in methods or left == 0:
            return proceed()
        if left is not None:
            left -= 1
        raise error

    return interfere


def only_in(region: str, act: Callable[[], Any]) -> Callable[[PortCall, Callable[[], Any]], Any]:
    """Return what interferes with every call of compute that is about a region."""

    def interfere(call: PortCall, proceed: Callable[[], Any]) -> Any:
        about = call.kwargs.get("region") or next(
            (one.region for one in call.args if isinstance(one, LaunchRequest)), None
        )
        return act() if call.port == "compute" and about == region else proceed()

    return interfere


def refuse(error: Exception) -> Callable[[], Any]:
    """Return what raises the error."""

    def act() -> Any:
        raise error

    return act
