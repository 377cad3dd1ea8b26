"""Ports that fail on purpose: what may stand between a world and its ports."""

from collections.abc import Callable
from typing import Any

from spindown.memory import PortCall


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
