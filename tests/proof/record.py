"""Keep what a proof has counted in docs/proof, so that it is read beside the code it is of."""

import fcntl
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parents[2] / "docs" / "proof"


@contextmanager
def _alone(name: str) -> Iterator[dict[str, Any]]:
    """Hold what ``docs/proof/{name}.json`` says, while no other process changes it."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    path = _FOLDER / f"{name}.json"
    with path.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield json.loads(path.read_text(encoding="utf-8") or "{}")


def record(name: str, figures: Mapping[str, Any]) -> None:
    """Write ``docs/proof/{name}.json``."""
    _FOLDER.mkdir(parents=True, exist_ok=True)
    text = json.dumps(figures, indent=2, ensure_ascii=False)
    (_FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def record_part(name: str, part: str, figures: object) -> None:
    """Write one part of ``docs/proof/{name}.json``, and leave the others as they are."""
    with _alone(name) as known:
        record(name, dict(sorted({**known, part: figures}.items())))


def count_stories(part: int, stories: int, steps: int) -> None:
    """Write to ``docs/proof/machine.json`` what one part of the state machine told, and the sum."""
    with _alone("machine") as known:
        parts = {**known.get("parts", {}), str(part): {"stories": stories, "steps": steps}}
        sums = {key: sum(one[key] for one in parts.values()) for key in ("stories", "steps")}
        record("machine", {**sums, "parts": dict(sorted(parts.items()))})


def count_points(who: str, story: str, kind: str, points: int) -> None:
    """Add to ``docs/proof/crash.json`` how many faults of a kind one story was put through."""
    with _alone("crash") as known:
        counts = known.get("points", {})
        counts.setdefault(who, {}).setdefault(story, {})[kind] = points
        total = sum(
            n for stories in counts.values() for kinds in stories.values() for n in kinds.values()
        )
        record("crash", {"total": total, "points": counts})
