"""What a workload's code is written against: Item, Context, Result.

The entrypoint is a callable of this form, in a module of the user's own::

    from collections.abc import Iterator, Sequence
    from spindown.user import Context, Item, Result

    def run(batch: Sequence[Item], ctx: Context) -> Iterator[Result]:
        for item in batch:
            yield Result(item, {"length": len(item.value)})

A function ``setup(ctx)`` beside it, if there is one, is called once in each process before the
first batch: the place to load a model. An item whose code raises is recorded as failed with its
error, and the rest goes on. Printing is free: output goes to the log.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Item:
    """One unit of work."""

    #: Its place in the job, from 0 on.
    index: int
    #: What the job says of it, any JSON value.
    value: Any
    #: A local copy, when the value is the ``s3://`` address of an object.
    path: Path | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one item: a JSON value, or an error."""

    item: Item
    value: Any = None
    #: Says that the item failed, as an exception would; None: it went well.
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Context:
    """What a call is part of."""

    #: Below it, each item may leave files; use ``output_dir``.
    outputs: Path
    #: Empty during ``setup``.
    job_id: str = ""
    #: The job's own parameters, as its message gave them.
    params: Mapping[str, Any] = field(default_factory=dict)
    #: Which of the instance's slots this process is, from 0 on.
    slot: int = 0
    #: None during ``setup``, when there is no job.
    state: Path | None = None

    @property
    def state_dir(self) -> Path:
        """Return a directory whose files outlive an interruption of the job.

        Commits carry it along, and whoever goes on with the job finds it as it was. It may be
        older than the last result that was committed, never newer. Replace a file by writing
        another one, named ``*.tmp``, and renaming it.
        """
        if self.state is None:
            raise RuntimeError("there is no job yet, so it has no state directory")
        self.state.mkdir(parents=True, exist_ok=True)
        return self.state

    def output_dir(self, item: Item) -> Path:
        """Return a directory for the files of an item; what lies there is part of its result."""
        path = self.outputs / str(item.index)
        path.mkdir(parents=True, exist_ok=True)
        return path
