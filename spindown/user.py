"""What the code of a workload imports: Item, Context, Result.

The entrypoint is a function of this form, in your own module::

    from collections.abc import Iterator, Sequence
    from spindown.user import Context, Item, Result

    def run(batch: Sequence[Item], ctx: Context) -> Iterator[Result]:
        for item in batch:
            yield Result(item, {"length": len(item.value)})

If the module has a function ``setup(ctx)``, each process calls it once before the first batch.
Load your model there. If your code raises for an item, the item is recorded as failed with the
error, and the other items go on. What you print goes to the log of the job.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: A line that ends in it and ``DONE/OF TEXT`` says how far a job is; any program may print it.
PROGRESS_MARK = "::spindown-progress "


@dataclass(frozen=True, slots=True)
class Item:
    """One unit of work."""

    #: Position in the job, from 0.
    index: int
    #: The item as the job lists it: any JSON value.
    value: Any
    #: A local copy, when the value is the ``s3://`` address of an object.
    path: Path | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one item: a JSON value, or an error."""

    item: Item
    value: Any = None
    #: Why the item failed, like an exception; None: it did not fail.
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """The job and the slot that a call belongs to."""

    #: Directory for files that items produce; use ``output_dir``.
    outputs: Path
    #: Empty during ``setup``.
    job_id: str = ""
    #: The job's own parameters, as its message gave them.
    params: Mapping[str, Any] = field(default_factory=dict)
    #: Number of this process's slot on the instance, from 0.
    slot: int = 0
    #: None during ``setup``, when there is no job.
    state: Path | None = None

    @property
    def state_dir(self) -> Path:
        """Return a directory whose files survive an interruption of the job.

        Each commit saves it. The worker that continues the job gets it back as last saved. It may
        be older than the last committed result, never newer. To replace a file, write another one
        named ``*.tmp`` and rename it.
        """
        if self.state is None:
            raise RuntimeError("there is no job yet, so it has no state directory")
        self.state.mkdir(parents=True, exist_ok=True)
        return self.state

    def progress(self, done: int, of: int, text: str = "") -> None:
        """Say how far the job is: ``spindown status``, ``watch`` and ``logs --follow`` show it.

        Call it as often as you like: the last is shown, with at most 120 characters of ``text``.
        """
        line = f"{PROGRESS_MARK}{int(done)}/{int(of)} {' '.join(text.split())}\n"
        # One write, past any buffer: it is whole also beside other threads and processes.
        os.write(1, line.encode(errors="replace"))

    def output_dir(self, item: Item) -> Path:
        """Return a directory for the files of an item; they become part of its result."""
        path = self.outputs / str(item.index)
        path.mkdir(parents=True, exist_ok=True)
        return path
