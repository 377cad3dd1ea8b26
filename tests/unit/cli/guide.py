"""What the guide says of the JSON that commands print."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

_GUIDE = Path(__file__).parents[3] / "docs" / "simulate.md"
#: Its keys are names of instance types.
_OPEN = "types"


def not_in_guide(told: Any) -> set[str]:
    """Return the keys of a JSON value that docs/simulate.md does not name."""
    text = _GUIDE.read_text(encoding="utf-8")
    return {key for key in _keys(told) if f"`{key}`" not in text}


def _keys(told: Any) -> Iterator[str]:
    if isinstance(told, list):
        for each in told:
            yield from _keys(each)
    elif isinstance(told, dict):
        for key, value in told.items():
            yield key
            if key != _OPEN:
                yield from _keys(value)
