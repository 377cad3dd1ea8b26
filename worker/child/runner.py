"""The worker's end of the line to a child: start it, feed it, time it, bury it.

``make_runner`` in ``worker.__main__`` says which runner a slot gets, by ``contract.run_spec``: this
one for Python code, or that of ``command`` for programs, also within a ``container``.

Whatever happens to the child, a crash, a hang, a kill by the kernel, becomes one ``Broken``
event with its cause and a reason that a person understands; the next batch starts a new child.
So does a frame that is none of ours: the user's code may write to the line.
"""

import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import spindown
from spindown.contract.codec import DEPTH_MAX, is_too_deep
from spindown.reason_text import say_count
from spindown.user import Item
from spindown.worker.child.code import Code
from spindown.worker.child.failure_cause import Broken, FailureCause, MemoryKills
from spindown.worker.child.frame import Frame
from spindown.worker.child.output import LogAllowance, Output, OutputLog
from spindown.worker.child.process import Child
from spindown.worker.log import EventLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a batch is part of."""

    job_id: str
    #: Of the attempt.
    epoch: int = 0
    params: Mapping[str, Any] = field(default_factory=dict)
    #: Where the items leave their files.
    outputs: Path
    #: Whether its job goes on with more memory of a GPU, if that runs out.
    may_get_vram: bool = False
    #: The user's own checkpoint; None: it is not kept.
    state: Path | None = None
    #: Keeps what the code prints; None: nobody does.
    output_log: OutputLog | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemDone:
    """One item's answer: a value, or an error."""

    index: int
    value: Any = None
    error: str | None = None
    #: Where in the code it failed; None: it did not say.
    traceback: str | None = None
    seconds: float = 0.0
    #: Relative to the item's output directory.
    files: tuple[str, ...] = ()
    #: Bytes of memory that the answer takes, by how it was told.
    size: int = 0


@dataclass(frozen=True, slots=True)
class BatchDone:
    """Every item of the batch has been answered."""


Event = ItemDone | BatchDone | Broken


#: Our own modules come last on the path: the user's packages win over the worker's. Without -P the
#: directory that the child starts in, the user's, would come first of all.
_BOOT = (
    "import runpy, sys; sys.path.append(sys.argv.pop(1)); "
    "runpy.run_module(sys.argv.pop(1), run_name='__main__', alter_sys=True)"
)
_ROOT = str(Path(spindown.__file__).resolve().parent.parent)


def run_module(python: str, module: str) -> tuple[str, ...]:
    """Return how the interpreter of the user's code runs a module of ours."""
    return (python, "-P", "-c", _BOOT, _ROOT, module)


class Runner(Protocol):
    """What runs the user's code for one slot."""

    @property
    def group(self) -> Path | None:
        """Return the slot's control group, None if it has none of its own."""
        ...

    @property
    def pid(self) -> int | None:
        """Return the process that the code runs in, None if there is none."""
        ...

    @property
    def has_begun(self) -> bool:
        """Tell whether the code has the batch: it is loaded, and what must come first has come."""
        ...

    def warm(self) -> None:
        """Start loading the user's code, without waiting for it."""
        ...

    def begin(self, task: Task, batch: Sequence[Item]) -> None:
        """Hand over a batch; its answers come from ``poll``."""
        ...

    def poll(self, timeout: timedelta) -> Event | None:
        """Return the next event of the batch, None if there is none within ``timeout``."""
        ...

    def stop(self, grace: timedelta) -> Sequence[ItemDone]:
        """End the batch in hand, in order if the code can; return what it still gave."""
        ...

    def kill(self) -> None:
        """End the child at once, with whatever it has started; the next batch gets a new one."""
        ...


class ChildRunner:
    """Runs the user's code in a child process of its own session."""

    def __init__(
        self,
        code: Code,
        *,
        slot: int,
        scratch: Path,
        python: str,
        env: Mapping[str, str],
        log: EventLog,
        group: Path | None = None,
    ) -> None:
        """Run ``code`` for one slot.

        Args:
            code: the user's code, unpacked.
            slot: which slot of the instance it is.
            scratch: where the code may leave files before its first job.
            python: the interpreter that has the code's requirements.
            env: the whole environment of the child.
            log: where the child's output goes.
            group: the slot's control group; None: it has none.
        """
        self._code = code
        self._python = python
        self._slot = slot
        self._scratch = scratch
        self._env = dict(env)
        self._log = log
        #: What the slot may print to the log.
        self.allowance = LogAllowance()
        self._child: Child | None = None
        self._batch: tuple[Task, Sequence[Item]] | None = None
        self._give_up_at = 0.0
        self.group = group
        self._kills = MemoryKills(group=group)
        #: Items of the batch without an answer.
        self._left: set[int] = set()
        #: What the child has sent and nobody has polled for yet.
        self._answers: deque[Event] = deque()

    @property
    def pid(self) -> int | None:
        """Return the process of the child, None if there is none."""
        child = self._child
        return None if child is None else child.pid

    @property
    def has_begun(self) -> bool:
        """Tell whether the child has the batch."""
        return self._batch is not None and self._child is not None and self._child.is_ready

    def warm(self) -> None:
        """Start the child if none runs."""
        if self._child is None:
            self._kills.mark()
            output = Output(self._log, self.allowance)
            self._child = Child(self._command, self._code.root, self._env, output, group=self.group)
            self._give_up_at = time.monotonic() + self._code.spec.setup_timeout.total_seconds()

    def begin(self, task: Task, batch: Sequence[Item]) -> None:
        """Hand over a batch, at once or as soon as the child is ready."""
        self._look_after_child()
        self.warm()
        self._batch = (task, batch)
        self._left = {item.index for item in batch}
        if self._child is not None:
            self._child.output.belong_to(task.job_id, task.epoch, task.output_log)
            if self._child.is_ready:
                self._hand_over()

    def poll(self, timeout: timedelta) -> Event | None:
        """Return the next event; a child out of time is killed."""
        if self._answers:
            return self._answers.popleft()
        child = self._child
        if child is None:
            return Broken(FailureCause.ENDED, "the process was ended")
        left = self._give_up_at - time.monotonic()
        if left <= 0:
            return self._break(Broken(FailureCause.TIMEOUT, self._overdue(child)))
        frame = child.next_frame(min(timeout.total_seconds(), left))
        try:
            return None if frame is None else self._take(child, frame)
        except BadFrame as exc:
            reason = f"the code has written to the worker's own line: {exc}"
            return self._break(Broken(FailureCause.BAD_RESULT, reason))

    def _look_after_child(self) -> None:
        """Learn what became of a child that had nothing to do; let one that has ended go."""
        child = self._child
        # It may have stood ready for longer than a setup may take, and nobody has heard it say so.
        while child is not None and (frame := child.next_frame(0.0)) is not None:
            if frame["type"] != "ready":
                # No fault of the batch that comes now; whatever else is wrong, a new one tells.
                self.kill()
                return
            child.is_ready = True

    def _take(self, child: Child, frame: Frame) -> Event | None:
        match frame["type"]:
            case "results" if child.is_ready:
                return self._take_results(frame, child.frame_bytes)
            case "ready" if not child.is_ready:
                child.is_ready = True
                self._hand_over()
                return None
            case "broken":
                reason = f"the code cannot be loaded: {_read_text(frame, 'reason')}"
                return self._break(Broken(FailureCause.NOT_LOADED, reason))
            case "memory":
                reason = f"memory ran out: {_read_text(frame, 'reason')}"
                return self._break(Broken(FailureCause.OUT_OF_MEMORY, reason, _read_peak(frame)))
            case "gpu-memory":
                reason = f"GPU memory ran out: {_read_text(frame, 'reason')}"
                return self._break(Broken(FailureCause.OUT_OF_GPU_MEMORY, reason))
            case "end":
                return self._break(child.describe_end(out_of_memory=self._kills.has_killed))
            case _:
                raise BadFrame("a frame that nobody waits for")

    def _take_results(self, frame: Frame, size: int) -> Event | None:
        found = read_results(frame, self._left, size)
        self._left -= {done.index for done in found}
        self._answers.extend(found)
        if frame["done"]:
            self._batch = None
            self._answers.append(BatchDone())
        return self._answers.popleft() if self._answers else None

    def stop(self, grace: timedelta) -> Sequence[ItemDone]:  # noqa: ARG002 - a call of a function has no end in order
        """End the child, since a function that runs cannot be asked to stop; return what came."""
        given = [done for done in self._answers if isinstance(done, ItemDone)]
        self.kill()
        return given

    def kill(self) -> None:
        """End the child and its whole session (raises Wedged)."""
        child, self._child = self._child, None
        self._batch = None
        self._answers.clear()
        if child is not None:
            child.kill()

    def _command(self, read_fd: int, write_fd: int) -> list[str]:
        return [
            *run_module(self._python, "spindown.worker.child.user_code"),
            *(str(read_fd), str(write_fd), str(self._code.root), self._code.spec.entrypoint),
            *(str(self._slot), str(self._scratch)),
        ]

    def _hand_over(self) -> None:
        if self._batch is None or self._child is None:
            return
        task, batch = self._batch
        seconds = self._code.spec.item_timeout.total_seconds() * len(batch)
        self._give_up_at = time.monotonic() + seconds
        self._child.send(
            {
                "type": "batch",
                "job_id": task.job_id,
                "params": dict(task.params),
                "may_get_vram": task.may_get_vram,
                "outputs": str(task.outputs),
                "state": None if task.state is None else str(task.state),
                "items": [
                    {
                        "index": item.index,
                        "value": item.value,
                        "path": None if item.path is None else str(item.path),
                    }
                    for item in batch
                ],
            }
        )

    def _overdue(self, child: Child) -> str:
        spec = self._code.spec
        if not child.is_ready:
            return f"setup took longer than {spec.setup_timeout.total_seconds():g} s"
        count = 0 if self._batch is None else len(self._batch[1])
        limit = spec.item_timeout.total_seconds() * count
        batch = f"a batch of {say_count(count, 'item')}"
        return f"{batch} took longer than {limit:g} s (item_timeout times items)"

    def _break(self, broken: Broken) -> Broken:
        self.kill()
        return broken


class BadFrame(Exception):
    """A frame that the worker's part of the child does not write."""


def read_results(frame: Frame, left: Collection[int], size: int) -> Sequence[ItemDone]:
    """Return the answers of a ``results`` frame.

    Args:
        frame: as it came.
        left: items without an answer.
        size: bytes of memory that the frame takes.

    Raises:
        BadFrame: it is not what ``worker.child.user_code`` sends.
    """
    rows = frame.get("results")
    if not isinstance(rows, list) or not isinstance(frame.get("done"), bool):
        raise BadFrame("results that are no list")
    share = size // max(len(rows), 1)
    found = [_read_result(row, share) for row in rows]
    # All at once, since most are small and each look has its price.
    if is_too_deep([one.value for one in found], DEPTH_MAX + 1):
        deep = next(one.index for one in found if is_too_deep(one.value))
        raise BadFrame(f"item {deep}: a value that nests deeper than {DEPTH_MAX} levels")
    indexes = {done.index for done in found}
    if len(indexes) < len(found) or not indexes <= set(left):
        raise BadFrame("an answer for no open item")
    return found


def _read_result(row: object, size: int) -> ItemDone:
    if not isinstance(row, dict):
        raise BadFrame("a result that is no object")
    # What is read from JSON is of these very types, and True is no number.
    index, seconds, files = row.get("index"), row.get("seconds"), row.get("files", [])
    if type(index) is not int:
        raise BadFrame("a result without an index")
    if (type(seconds) is not float and type(seconds) is not int) or not 0 <= seconds <= _LONGEST:
        raise BadFrame(f"item {index}: no time that it took")
    if type(files) is not list or (files and not all(type(file) is str for file in files)):
        raise BadFrame(f"item {index}: files that are no list of names")
    error, traceback = (
        None if row.get(name) is None else _read_text(row, name) for name in ("error", "traceback")
    )
    return ItemDone(
        index=index,
        value=row.get("value"),
        error=error,
        traceback=traceback,
        seconds=float(seconds),
        files=tuple(files),
        size=size,
    )


def _read_text(row: Frame, name: str) -> str:
    text = row.get(name)
    if not isinstance(text, str):
        raise BadFrame(f"a frame without {name}")
    return text[:_TEXT_CHARACTERS]


def _read_peak(frame: Frame) -> float:
    peak = frame.get("peak_bytes")
    if type(peak) is not int or not 0 <= peak < _MEMORY_BYTES_MAX:
        raise BadFrame("a frame without peak_bytes")
    return peak / _GIB


_GIB = 1024**3
#: More than a machine can address.
_MEMORY_BYTES_MAX = 2**64
#: Of an error, as the child cuts it; and the longest time that an item can have taken.
_TEXT_CHARACTERS = 4000
_LONGEST = timedelta(days=365).total_seconds()
