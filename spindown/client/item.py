"""What an item may be: JSON, or the path of a file."""

import json
from pathlib import Path
from typing import Any

from spindown.contract.codec import why_not_json
from spindown.contract.location import is_whole
from spindown.error import BadInput


def check_item(number: int, item: Any) -> Any:
    """Return an item as JSON, which a worker will read; a file by its path (raises BadInput)."""
    if isinstance(item, Path):
        if not item.is_file() or not is_whole(str(item)):
            raise BadInput(f"item {number}", str(item), "give the path of a readable file")
        return str(item)
    return check_json(f"item {number}", item)


def check_json(name: str, value: Any) -> Any:
    """Return a value as whoever reads its JSON has it (raises BadInput: it is none)."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as exc:
        raise BadInput(name, value, why_not_json(value)) from exc
