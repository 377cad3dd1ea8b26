"""Let heat spread over a plate: an example of a program that any worker can run and go on with.

It knows nothing of Spindown's Python: what to do stands in files that the environment names, what
came of it goes to others (docs/programs.md, "Any program"). An item is ``{"steps": 2000, "size":
24}``. Every half second, and when it is asked to stop, it leaves the plate as it is in the
checkpoint directory; started again, it goes on from there. Needs nothing but Python.
"""

import json
import os
import signal
import time
from pathlib import Path

_CHECKPOINT_SECONDS = 0.5
_RATE = 0.2

Plate = list[list[float]]


class Stop(Exception):
    """The worker must leave."""


def main() -> None:
    """Do every item that is asked for, one after the other."""
    signal.signal(signal.SIGTERM, _stop)
    checkpoint = Path(os.environ["SPINDOWN_CHECKPOINT"]) / "plate.json"
    try:
        for line in Path(os.environ["SPINDOWN_ITEMS"]).read_text().splitlines():
            item = json.loads(line)
            _simulate(item, checkpoint)
    except Stop:
        print("asked to stop: the plate is in the checkpoint")


def _simulate(item: dict[str, object], checkpoint: Path) -> None:
    value = item["value"]
    if not isinstance(value, dict) or not isinstance(value.get("steps"), int):
        _tell(index=item["index"], error='an item must say its steps: {"steps": 2000}')
        return
    index, size = item["index"], int(value.get("size", 24))
    step, plate = _resume(checkpoint, index) or (0, _start(size))
    began = step
    print(f"item {index}: from step {step} of {value['steps']}")
    saved_at = time.monotonic()
    try:
        while step < value["steps"]:
            plate, step = _spread(plate), step + 1
            if time.monotonic() - saved_at >= _CHECKPOINT_SECONDS:
                _save(checkpoint, index, step, plate)
                saved_at = time.monotonic()
    except Stop:
        _save(checkpoint, index, step, plate)
        raise
    lines = [",".join(f"{cell:.6f}" for cell in row) for row in plate]
    (Path(str(item["output"])) / "plate.csv").write_text("\n".join(lines) + "\n")
    mean = sum(map(sum, plate)) / size**2
    _tell(index=index, value={"mean": round(mean, 9), "steps": step, "resumed_at": began})


def _start(size: int) -> Plate:
    """Return a cold plate with one hot edge."""
    return [[100.0] * size, *([0.0] * size for _ in range(size - 1))]


def _spread(plate: Plate) -> Plate:
    """Return the plate a moment later; its edges stay as they are."""
    inner = range(1, len(plate) - 1)
    after = [row[:] for row in plate]
    for y in inner:
        above, row, below = plate[y - 1], plate[y], plate[y + 1]
        for x in inner:
            around = above[x] + below[x] + row[x - 1] + row[x + 1]
            after[y][x] = row[x] + _RATE * (around - 4 * row[x])
    return after


def _save(path: Path, index: object, step: int, plate: Plate) -> None:
    """Replace the checkpoint; under its own name it is always whole."""
    under_way = path.with_suffix(".tmp")
    under_way.write_text(json.dumps({"index": index, "step": step, "plate": plate}))
    under_way.rename(path)


def _resume(path: Path, index: object) -> tuple[int, Plate] | None:
    """Return how far an item was; None if the checkpoint is of another one, or there is none."""
    if not path.exists():
        return None
    saved = json.loads(path.read_text())
    return (saved["step"], saved["plate"]) if saved["index"] == index else None


def _tell(**result: object) -> None:
    with Path(os.environ["SPINDOWN_RESULTS"]).open("a") as results:
        results.write(json.dumps(result) + "\n")


def _stop(*_: object) -> None:
    # Only once: what follows must not be cut off by a second signal.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise Stop


if __name__ == "__main__":
    main()
