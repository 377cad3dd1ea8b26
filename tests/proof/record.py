"""Keep what a proof has counted in docs/proof, so that it is read beside the code it is of."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parents[2] / "docs" / "proof"


def record(name: str, figures: Mapping[str, Any]) -> None:
    """Write ``docs/proof/{name}.json``."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    text = json.dumps(figures, indent=2, ensure_ascii=False)
    (_FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def record_part(name: str, part: str, figures: object) -> None:
    """Write one part of ``docs/proof/{name}.json``, and leave the others as they are."""
    try:
        known = json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        known = {}
    record(name, dict(sorted({**known, part: figures}.items())))


def count_points(who: str, story: str, kind: str, points: int) -> None:
    """Add to ``docs/proof/crash.json`` how many faults of a kind one story was put through."""
    try:
        counts = json.loads((_FOLDER / "crash.json").read_text(encoding="utf-8"))["points"]
    except FileNotFoundError:
        counts = {}
    counts.setdefault(who, {}).setdefault(story, {})[kind] = points
    total = sum(
        n for stories in counts.values() for kinds in stories.values() for n in kinds.values()
    )
    record("crash", {"total": total, "points": counts})
