"""Run the user's code: load it, then answer one batch after another until the line closes.

Started by ``worker.child.runner`` as ``python -m spindown.worker.child.user_code READ_FD WRITE_FD
CODE ENTRYPOINT SLOT SCRATCH``. Trigger: a ``batch`` frame. Answers: ``ready`` once, or ``broken``
if the code cannot be loaded; then ``results``, the last of a batch with ``done``. When the worker
is gone the line ends, and so does this process at once, whatever the user's code is doing.
"""

import importlib
import os
import queue
import resource
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

from spindown.contract.codec import DEPTH_MAX, is_too_deep, to_json, why_not_json
from spindown.user import Context, Item, Result
from spindown.worker.child.frame import (
    ANSWERS_BYTES_MAX,
    ANSWERS_MEMORY_MAX,
    Frame,
    encode_frame,
    pack_frame,
    read_frame,
    weigh,
)

Run = Callable[[Sequence[Item], Context], Iterable[Result]]

_ERROR_CHARACTERS = 2000
#: Of a traceback: the end, where it says what went wrong.
_TRACEBACK_CHARACTERS = 4000
#: Modules whose frames lie above those of the user's code: ours, and what imports it for us.
_ABOVE = frozenset(
    {
        __name__,
        "spindown.client.function",
        "importlib",
        "importlib._bootstrap",
        "importlib._bootstrap_external",
    }
)
_OWN_PID = os.getpid()
#: Whatever user code raises concerns the item alone. Extensions written in Rust panic by an
#: exception of their own below BaseException (pyo3, ``PanicException``).
_USER_ERRORS = BaseException
#: What frameworks call the error that memory of a GPU ran out: PyTorch and CuPy (whose own is a
#: MemoryError besides), TensorFlow.
_GPU_MEMORY_ERRORS = frozenset({"OutOfMemoryError", "ResourceExhaustedError"})


def main(arguments: Sequence[str]) -> None:
    """Serve batches until the line ends."""
    read_fd, write_fd, code, entrypoint, slot, scratch = arguments
    answers = os.fdopen(int(write_fd), "wb", buffering=0)
    frames = _listen(os.fdopen(int(read_fd), "rb"))
    for fd in (int(read_fd), int(write_fd)):
        os.set_inheritable(fd, False)  # noqa: FBT003 - takes it by position only
    context = Context(outputs=Path(scratch), slot=int(slot))
    try:
        run = load(Path(code), entrypoint, context)
    except WrongEntrypoint as exc:
        _send(answers, encode_frame({"type": "broken", "reason": str(exc)}))
        return
    except _USER_ERRORS as exc:
        print_exception(exc)
        broken: Frame = {"type": "broken", "reason": describe(exc)}
        _send(answers, encode_frame(frame_of_lack(exc, "while loading") or broken))
        return
    _send(answers, encode_frame({"type": "ready"}))
    while True:
        ServedBatch(frames.get(), run, int(slot), partial(_send, answers), print_exception).serve()


class WrongEntrypoint(Exception):
    """The module is there, and has nothing to call under this name."""


def load(code: Path, entrypoint: str, context: Context) -> Run:
    """Import the entrypoint and call its module's ``setup``.

    Raises:
        WrongEntrypoint: there is nothing to call; else whatever the user's code raises.
    """
    sys.path.insert(0, str(code))
    module_name, _, name = entrypoint.partition(":")
    module = importlib.import_module(module_name)
    found = getattr(module, name, None)
    # A function of one item, as ``spindown.function`` makes it, knows how it does a batch.
    run: Run | None = getattr(found, "run_batch", found)
    if run is None or not callable(run):
        remedy = f"name a function that {module_name} has"
        raise WrongEntrypoint(f"run.entrypoint is {entrypoint!r}: {remedy}")
    setup = getattr(module, "setup", None)
    if setup is not None:
        setup(context)
    return run


def describe(exc: BaseException) -> str:
    """Return an exception in one line, as it stands under a traceback, without its notes."""
    told = traceback.TracebackException(type(exc), exc, None)
    # They would come after it.
    told.__notes__ = None
    *_, own = told.format_exception_only()
    return " ".join(own.split())[:_ERROR_CHARACTERS]


def describe_whole(exc: BaseException) -> str:
    """Return the traceback of an exception from the user's own code on, shortened to its end."""
    return _format_exception(exc)[-_TRACEBACK_CHARACTERS:]


def print_exception(exc: BaseException) -> None:
    """Print the traceback of an exception from the user's own code on."""
    sys.stderr.write(f"{_format_exception(exc)}\n")


def _format_exception(exc: BaseException) -> str:
    place = exc.__traceback__
    while place is not None and place.tb_frame.f_globals.get("__name__") in _ABOVE:
        place = place.tb_next
    return "".join(traceback.format_exception(type(exc), exc, place)).rstrip()


def frame_of_lack(exc: BaseException, where: str) -> Frame | None:
    """Return what tells that memory, or that of a GPU, ran out; None: the exception is another."""
    reason = f"{describe(exc)} {where}"
    if any(each.__name__ in _GPU_MEMORY_ERRORS for each in type(exc).__mro__):
        # How much of it was used the worker sees.
        return {"type": "gpu-memory", "reason": reason}
    if isinstance(exc, MemoryError):
        return {"type": "memory", "reason": reason, "peak_bytes": _peak_bytes()}
    return None


def _listen(stream: BinaryIO) -> "queue.Queue[Frame]":
    frames: queue.Queue[Frame] = queue.Queue()

    def read() -> None:
        while (frame := read_frame(stream)) is not None:
            frames.put(frame)
        # The worker is gone or has closed the line. Nobody wants what is being computed.
        os._exit(0)

    threading.Thread(target=read, name="line", daemon=True).start()
    return frames


def _send(stream: BinaryIO, data: bytes) -> None:
    if os.getpid() != _OWN_PID:
        # A copy that the user's code has forked and let run on: it would answer a second time.
        os._exit(0)
    rest = memoryview(data)
    while rest:
        rest = rest[stream.write(rest) :]


class ServedBatch:
    """One batch under way: every item gets one answer, whatever the user's code does."""

    def __init__(
        self,
        frame: Frame,
        run: Run,
        slot: int,
        send: Callable[[bytes], object],
        show: Callable[[BaseException], object],
    ) -> None:
        """Take a batch."""
        self._run = run
        self._send = send
        self._show = show
        self._context = Context(
            outputs=Path(frame["outputs"]),
            job_id=frame["job_id"],
            params=frame["params"],
            slot=slot,
            state=None if frame.get("state") is None else Path(frame["state"]),
        )
        self._items = [
            Item(one["index"], one["value"], None if one["path"] is None else Path(one["path"]))
            for one in frame["items"]
        ]
        #: Items without an answer.
        self._rest = {item.index: item for item in self._items}
        #: Answers that were not sent yet.
        self._ready: list[Frame] = []
        self._is_out_of_memory = False
        #: Whether the job goes on with more of a GPU's memory, if that runs out. Else, since the
        #: process goes on, its want is a fault of the item alone.
        self._may_get_vram = bool(frame.get("may_get_vram"))

    def serve(self) -> None:
        """Answer the batch; what raises as a batch is tried again item by item."""
        failure: BaseException | None = None
        said: str | None = None
        try:
            self._try(self._items)
        except _USER_ERRORS as exc:
            said = describe(exc)
            # What that of many items refers to, such as memory of a GPU, a single one may need.
            failure = exc if len(self._items) == 1 else None
        # Outside, or what an item raises would seem to come of what the batch has raised.
        if failure is not None:
            self._fail(self._items[0], failure)
        elif said is not None and self._rest:
            # Their code prints a second time what it prints of each.
            number = len(self._rest)
            sys.stderr.write(
                f"[spindown] a batch raised {said}; items tried again one by one: {number}\n"
            )
            self._serve_singly()
        if self._is_out_of_memory:
            return
        for item in list(self._rest.values()):
            self._keep(Result(item, error="the entrypoint gave no result for this item"), 0.0)
        self._flush(done=True)

    def _serve_singly(self) -> None:
        """Find out which item raises: only that one fails."""
        for item in list(self._rest.values()):
            try:
                self._try([item])
            except _USER_ERRORS as exc:
                self._fail(item, exc)
            if self._is_out_of_memory:
                return

    def _try(self, items: Sequence[Item]) -> None:
        started = time.monotonic()
        results = self._run(items, self._context)
        if isinstance(results, list | tuple):
            share = (time.monotonic() - started) / max(len(results), 1)
            for result in results:
                self._keep(result, share)
            return
        for result in results:
            self._keep(result, time.monotonic() - started)
            # A crash at the next item must not take this one along.
            self._flush()
            started = time.monotonic()

    def _keep(self, result: Result, seconds: float, trace: str | None = None) -> None:
        if not isinstance(result, Result):
            raise TypeError(
                f"the entrypoint must give spindown.user.Result, not {type(result).__name__}"
            )
        if result.item.index not in self._rest:
            raise ValueError(f"the entrypoint gave a second result for item {result.item.index}")
        item = self._rest[result.item.index]
        frame: Frame = {"index": item.index, "seconds": round(seconds, 6)}
        if result.error is not None:
            frame["error"] = str(result.error)[:_ERROR_CHARACTERS]
            if trace is not None:
                frame["traceback"] = trace
        elif is_too_deep(result.value):
            frame["error"] = f"the result nests deeper than {DEPTH_MAX} levels"
        else:
            frame["value"] = result.value
            frame["files"] = _files(self._context.outputs / str(item.index))
        # Last: whatever raises before leaves the item to be answered.
        del self._rest[item.index]
        self._ready.append(frame)

    def _fail(self, item: Item, exc: BaseException) -> None:
        self._show(exc)
        lack = frame_of_lack(exc, f"at item {item.index}")
        if lack is not None and (lack["type"] == "memory" or self._may_get_vram):
            # That says something of this machine, and nothing for good of the item.
            self._is_out_of_memory = True
            if self._ready:
                self._flush()
            self._send(encode_frame(lack))
            return
        if item.index in self._rest:
            self._keep(Result(item, error=describe(exc)), 0.0, describe_whole(exc))

    def _flush(self, *, done: bool = False) -> None:
        answers, self._ready = self._ready, []
        self._tell(answers, done=done)

    def _tell(self, results: list[Frame], *, done: bool) -> None:
        """Send answers, in as many frames as they need."""
        try:
            data = _encode(results, done=done)
        except (TypeError, ValueError, RecursionError):
            results = [_as_json(one) for one in results]
            data = _encode(results, done=done)
        if len(data) <= ANSWERS_BYTES_MAX and weigh(data) <= ANSWERS_MEMORY_MAX:
            self._send(pack_frame(data))
        elif len(results) == 1:
            self._tell([_too_large(results[0], len(data))], done=done)
        else:
            middle = len(results) // 2
            self._tell(results[:middle], done=False)
            self._tell(results[middle:], done=done)


def _encode(results: list[Frame], *, done: bool) -> bytes:
    return to_json({"type": "results", "results": results, "done": done}).encode()


def _too_large(frame: Frame, length: int) -> Frame:
    what = (
        f"is longer than {ANSWERS_BYTES_MAX} bytes"
        if length > ANSWERS_BYTES_MAX
        else f"has so many values that it takes more than {ANSWERS_MEMORY_MAX} bytes of memory"
    )
    error = f"the result {what}: write it to a file in ctx.output_dir(item)"
    return {"index": frame["index"], "seconds": frame["seconds"], "error": error}


def _as_json(frame: Frame) -> Frame:
    """Return an answer that can be written: as it is, or as the item's failure."""
    try:
        encode_frame(frame)
    except (TypeError, ValueError, RecursionError):
        error = f"the result is not JSON: {why_not_json(frame.get('value'))}"
        return {"index": frame["index"], "seconds": frame["seconds"], "error": error}
    return frame


def _peak_bytes() -> int:
    """Return the most that this process has had resident, with the largest that it waited for."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    # Linux tells KiB: getrusage(2), ru_maxrss.
    return 1024 * sum(resource.getrusage(each).ru_maxrss for each in who)


def _files(root: Path) -> list[str]:
    """Return the files of an item, relative; links are left out, since they may lead anywhere."""
    if not root.is_dir():
        return []
    found = (path for path in sorted(root.rglob("*")) if path.is_file() and not path.is_symlink())
    return [path.relative_to(root).as_posix() for path in found]


if __name__ == "__main__":
    main(sys.argv[1:])
