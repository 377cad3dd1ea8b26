"""Run the user's code: load it, then answer one batch after another until the line closes.

Started by ``worker.child.runner`` as ``python -m worker.child READ_FD WRITE_FD CODE ENTRYPOINT
SLOT SCRATCH``. Trigger: a ``batch`` frame. Answers: ``ready`` once, a ``result`` for each item,
``done`` after each batch, or ``broken`` if the code cannot be loaded. When the worker is gone
the line ends, and so does this process at once, whatever the user's code is doing.
"""

import importlib
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from spindown.contract.codec import DEPTH_MAX, is_too_deep
from spindown.user import Context, Item, Result
from worker.child.frame import Frame, encode_frame, read_frame

Run = Callable[[Sequence[Item], Context], Iterable[Result]]

_ERROR_CHARACTERS = 2000
#: What user code may raise that concerns the item alone; an interpreter-wide end does not.
_USER_ERRORS = (Exception, SystemExit)


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
    except _USER_ERRORS as exc:
        traceback.print_exc()
        _send(answers, {"type": "broken", "reason": describe(exc)})
        return
    _send(answers, {"type": "ready"})
    while True:
        _serve(frames.get(), run, int(slot), answers)


def load(code: Path, entrypoint: str, context: Context) -> Run:
    """Import the entrypoint and call its module's ``setup``; raises what they raise."""
    sys.path.insert(0, str(code))
    module_name, _, name = entrypoint.partition(":")
    module = importlib.import_module(module_name)
    run: Run = getattr(module, name)
    if not callable(run):
        raise TypeError(f"{entrypoint} is not callable")
    setup = getattr(module, "setup", None)
    if setup is not None:
        setup(context)
    return run


def describe(exc: BaseException) -> str:
    """Return an exception in one line, as it stands under a traceback."""
    return " ".join(traceback.format_exception_only(exc)[-1].split())[:_ERROR_CHARACTERS]


def _listen(stream: BinaryIO) -> "queue.Queue[Frame]":
    frames: queue.Queue[Frame] = queue.Queue()

    def read() -> None:
        while (frame := read_frame(stream)) is not None:
            frames.put(frame)
        # The worker is gone or has closed the line. Nobody wants what is being computed.
        os._exit(0)

    threading.Thread(target=read, name="line", daemon=True).start()
    return frames


def _send(stream: BinaryIO, frame: Frame) -> None:
    data = memoryview(encode_frame(frame))
    while data:
        data = data[stream.write(data) :]


def _serve(frame: Frame, run: Run, slot: int, answers: BinaryIO) -> None:
    """Answer one batch; what raises as a batch is tried again item by item."""
    context = Context(
        outputs=Path(frame["outputs"]), job_id=frame["job_id"], params=frame["params"], slot=slot
    )
    batch = [
        Item(one["index"], one["value"], None if one["path"] is None else Path(one["path"]))
        for one in frame["items"]
    ]
    rest = {item.index: item for item in batch}

    def answer(result: Result, seconds: float) -> None:
        item = rest.pop(result.item.index)
        _send(answers, _answer_frame(item, result, seconds, context))

    try:
        _run_batch(run, batch, context, rest, answer)
    except _USER_ERRORS as exc:
        if len(batch) > 1:
            _run_singly(run, context, rest, answer)
        elif rest:
            _fail(batch[0], exc, answer)
    for item in list(rest.values()):
        answer(Result(item, error="the entrypoint gave no result for this item"), 0.0)
    _send(answers, {"type": "done"})


def _run_singly(
    run: Run, context: Context, rest: dict[int, Item], answer: Callable[[Result, float], None]
) -> None:
    """Find out which item of a batch raises: only that one fails."""
    for item in list(rest.values()):
        try:
            _run_batch(run, [item], context, rest, answer)
        except _USER_ERRORS as exc:
            if item.index in rest:
                _fail(item, exc, answer)


def _fail(item: Item, exc: BaseException, answer: Callable[[Result, float], None]) -> None:
    traceback.print_exc()
    answer(Result(item, error=describe(exc)), 0.0)


def _run_batch(
    run: Run,
    batch: Sequence[Item],
    context: Context,
    rest: dict[int, Item],
    answer: Callable[[Result, float], None],
) -> None:
    for result, seconds in _timed(run, batch, context):
        if not isinstance(result, Result):
            raise TypeError(
                f"the entrypoint must give spindown.user.Result, not {type(result).__name__}"
            )
        if result.item.index not in rest:
            raise ValueError(f"the entrypoint gave a second result for item {result.item.index}")
        answer(result, seconds)


def _timed(run: Run, batch: Sequence[Item], context: Context) -> Iterator[tuple[Result, float]]:
    """Yield results with the time each took; a list's time is shared out evenly."""
    started = time.monotonic()
    results = run(batch, context)
    if isinstance(results, list | tuple):
        share = (time.monotonic() - started) / max(len(results), 1)
        yield from ((result, share) for result in results)
        return
    for result in results:
        now = time.monotonic()
        yield result, now - started
        started = time.monotonic()


def _answer_frame(item: Item, result: Result, seconds: float, context: Context) -> Frame:
    frame: Frame = {"type": "result", "index": item.index, "seconds": round(seconds, 6)}
    if result.error is not None:
        return {**frame, "error": str(result.error)[:_ERROR_CHARACTERS]}
    try:
        encode_frame({"value": result.value})
    except (TypeError, ValueError, RecursionError) as exc:
        return {**frame, "error": f"the result is not JSON: {describe(exc)}"}
    if is_too_deep(result.value):
        return {**frame, "error": f"the result nests deeper than {DEPTH_MAX} levels"}
    files = _files(context.outputs / str(item.index))
    return {**frame, "value": result.value, "files": files}


def _files(root: Path) -> list[str]:
    """Return the files of an item, relative; links are left out, since they may lead anywhere."""
    if not root.is_dir():
        return []
    found = (path for path in sorted(root.rglob("*")) if path.is_file() and not path.is_symlink())
    return [path.relative_to(root).as_posix() for path in found]


if __name__ == "__main__":
    main(sys.argv[1:])
