"""Files that are at rest."""

import os
from pathlib import Path


def write_settled(path: Path, text: str) -> None:
    """Write a file as if some time ago: it is not taken while it may still be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, ns=(1_000_000_000, 1_000_000_000 + len(text)))
