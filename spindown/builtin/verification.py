"""The job of `spindown verify`: each item takes a while, and has one right answer.

A workload with ``run.verify = true`` runs it. An item is ``{"number": 7, "seconds": 4}``.
"""

import hashlib
from collections.abc import Iterator, Sequence
from threading import Event

from spindown.user import Context, Item, Result

#: Seconds that an item may take, whatever it says.
LONGEST = 10.0


def answer(number: int) -> str:
    """Return the only right result of an item."""
    return hashlib.sha256(f"spindown verify {number}".encode()).hexdigest()


def run(batch: Sequence[Item], ctx: Context) -> Iterator[Result]:
    """Answer each item after its seconds."""
    for item in batch:
        Event().wait(min(max(float(item.value["seconds"]), 0.0), LONGEST))
        ctx.progress(item.index + 1, item.index + len(batch), "verifying")
        yield Result(item, {"answer": answer(int(item.value["number"]))})
