"""A batch of numbers in a real process, and what it answers."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from spindown.user import Item
from spindown.worker.child.runner import ChildRunner, Event, ItemDone, Runner, Task

Make = Callable[..., ChildRunner]
PRELUDE = """\
import ctypes, os, signal, subprocess, sys, threading
from spindown.user import Context, Item, Result
"""


def run_batch(runner: ChildRunner, tmp_path: Path, count: int = 3, **task: Any) -> list[Event]:
    """Run one batch of numbers to its end."""
    work = Task(job_id="j", outputs=tmp_path / "out", **task)
    runner.begin(work, [Item(index, index) for index in range(count)])
    return drain(runner)


def drain(runner: Runner) -> list[Event]:
    """Return what is said up to the end of a batch."""
    events: list[Event] = []
    while not events or isinstance(events[-1], ItemDone):
        event = runner.poll(timedelta(seconds=10))
        if event is not None:
            events.append(event)
    return events


def answers(events: list[Event]) -> dict[int, Any]:
    return {e.index: e.error or e.value for e in events if isinstance(e, ItemDone)}


def failed(events: list[Event]) -> set[int]:
    """Return the indices of the items that failed."""
    return {e.index for e in events if isinstance(e, ItemDone) and e.error is not None}
