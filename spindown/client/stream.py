"""Results as they come: a stream that can be left, in order or not, and waits ever longer."""

import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import InitVar, dataclass, field
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar

from spindown.error import BadInput, WorkFailed, printable
from spindown.port import ObjectStore

R = TypeVar("R")
S = TypeVar("S")

#: Seconds between two looks: at first and while results come, and at most.
LOOK_SECONDS = 0.25
LOOK_SECONDS_MOST = 5.0
_LONGER = 1.5

#: What becomes of the work when a stream is left before its end.
OnExit = Literal["cancel", "detach"]
#: Is told how many items are done, how many have failed, and of how many; None: unknown.
ShowItems = Callable[[int, int, int | None], object]


@dataclass(frozen=True, kw_only=True)
class ItemResult(Generic[R]):
    """What came of one item, as a future that is done: ``result`` gives its value or raises."""

    #: Place of the item among those that were given, from 0; None: not known.
    index: int | None
    #: The item, as JSON.
    item: Any
    #: None: it has a result.
    error: WorkFailed | None = None
    #: Names of the files that it has left, for ``download``.
    files: tuple[str, ...] = ()
    job_id: str = ""
    #: Time that it took on its machine.
    seconds: float = 0.0
    _value: Any = field(default=None, repr=False)
    #: Its record, and where its files are; no field: it stays in the process that got it.
    _source: "InitVar[tuple[Mapping[str, Any], ObjectStore] | None]" = None

    def __post_init__(self, source: "tuple[Mapping[str, Any], ObjectStore] | None") -> None:
        """Keep where its files are."""
        object.__setattr__(self, "_source", source)

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process gets, and a copy."""
        return {**self.__dict__, "_source": None}

    @property
    def ok(self) -> bool:
        """Tell whether it has a result."""
        return self.error is None

    def result(self) -> R:
        """Return its value.

        Raises:
            ItemFailed, JobFailed: it has none.
        """
        if self.error is not None:
            # Without the places where it was raised before.
            raise self.error.with_traceback(None)
        value: R = self._value
        return value

    def download(self, folder: str | Path) -> list[Path]:
        """Fetch its files into a folder, under the names that its code gave them.

        One that is there already with the right bytes is not fetched again.

        Raises:
            BadInput: another file has the place of one, or it cannot be fetched.
        """
        if not isinstance(folder, str | PathLike):
            raise BadInput("folder", folder, "give a path, as a text or a pathlib.Path")
        source = vars(self)["_source"]
        if source is None:
            if self.files:
                remedy = "call it on what the stream gave: a copy does not know where files are"
                raise BadInput("download", self.index, remedy)
            return []
        from spindown.operate.download import fetch_outputs  # noqa: PLC0415 - not on instances

        record, store = source
        ((_, fetched),) = fetch_outputs([(record, Path(folder))], store)
        for one in fetched:
            if isinstance(one, BadInput):
                raise one
        return [one for one in fetched if isinstance(one, Path)]


@contextmanager
def told_at_interrupt(what: Callable[[], str]) -> Iterator[None]:
    """Say at a Ctrl-C what is not over, and what becomes of it, as ``what`` returns it."""
    try:
        yield
    except KeyboardInterrupt:
        if said := what():
            sys.stderr.write(printable(f"spindown: {said}") + "\n")
            sys.stderr.flush()
        raise


class StreamEnd:
    """How a stream is left; it knows nothing of the stream, so that nobody keeps that alive."""

    def __init__(self, leave: Callable[[], object], end: Callable[[], object]) -> None:
        self.is_over = False
        self.stop = threading.Event()
        self._leave = leave
        self._end = end
        self._process = os.getpid()

    def __call__(self) -> None:
        """Leave the work, unless all of it is over; a fork leaves it to its parent."""
        self.stop.set()
        if os.getpid() != self._process:
            return
        try:
            if not self.is_over:
                self.is_over = True
                self._leave()
        finally:
            self._end()


class ResultStream(Generic[S]):
    """Results of items, as an iterator that waits for the next.

    To leave it before its end cancels the work, or lets it go on, as ``on_exit`` says. It is left
    by ``close``, at the end of a ``with`` block, when nobody refers to it any more, as after
    ``break``, and when the process ends in order.
    """

    def __init__(  # noqa: PLR0913 - what work and its reader are, each part with its own name
        self,
        results: Iterator[ItemResult[Any] | None],
        read: Callable[[ItemResult[Any]], S],
        leave: Callable[[], object],
        *,
        stop: Callable[[], object] = lambda: None,
        end: Callable[[], object] = lambda: None,
        timeout: float | None = None,
        show: ShowItems | None = None,
        total: Callable[[], int | None] = lambda: None,
        what: Callable[[], str] = lambda: "",
    ) -> None:
        """Stream results; None among them means that there is nothing new for now.

        Args:
            results: what comes.
            read: what is given for each.
            leave: lets go of the work if it is left before its end.
            stop: keeps it from beginning more, without a wait.
            end: is called when it is left or over.
            timeout: seconds that all may take; None: any.
            show: is told after each.
            total: how many items there are, as far as that is known.
            what: says what was waited for in vain, and what becomes of it.
        """
        self._results = results
        self._read = read
        self._end = StreamEnd(leave, end)
        self._stop = stop
        self._show = show
        self._total = total
        self._what = what
        # A signal's handler or ``show`` may close it in the thread that waits.
        self._lock = threading.RLock()
        #: Whether the thread that holds the lock is in ``__next__``; whether that is to leave it.
        self._is_reading = self._is_closing = False
        self._give_up_at = None if timeout is None else time.monotonic() + timeout
        self._timeout = timeout
        self._interval = LOOK_SECONDS
        self._done = self._failed = 0
        self._finalizer = weakref.finalize(self, self._end)

    def __iter__(self) -> Self:
        """Return itself."""
        return self

    def __next__(self) -> S:
        """Wait for the next result.

        Raises:
            ItemFailed, JobFailed: an item has none; the stream is over then, and left.
            TimeoutError: it was not there in time; likewise.
        """
        with self._lock:
            self._is_reading = True
            try:
                with told_at_interrupt(self._what):
                    return self._read(self._await_next())
            except BaseException as exc:
                self._is_closing = self._is_closing or not isinstance(exc, StopIteration)
                raise
            finally:
                self._is_reading = False
                if self._is_closing:
                    self._leave()

    def _await_next(self) -> ItemResult[Any]:
        if self._end.stop.is_set():
            raise StopIteration
        for found in self._results:
            if self._end.stop.is_set():
                raise StopIteration
            if found is not None:
                # Results may come without end.
                self._check_time()
                self._interval = LOOK_SECONDS
                self._done += found.ok
                self._failed += not found.ok
                self._tell()
                return found
            self._wait()
            if self._end.stop.is_set():
                raise StopIteration
        self._end.is_over = True
        self._finalizer()
        raise StopIteration

    def _wait(self) -> None:
        """Wait before the next look."""
        self._tell()
        pause, self._interval = self._interval, min(self._interval * _LONGER, LOOK_SECONDS_MOST)
        left = self._check_time()
        self._end.stop.wait(pause if left is None else min(pause, left))

    def _check_time(self) -> float | None:
        """Return the seconds that are left; None: any (raises TimeoutError)."""
        if self._give_up_at is None:
            return None
        left = self._give_up_at - time.monotonic()
        if left <= 0:
            more = self._what()
            said = f"not all results were there within {self._timeout:g} s"
            raise TimeoutError(f"{said}: {more}" if more else said)
        return left

    def _tell(self) -> None:
        if self._show is not None:
            self._show(self._done, self._failed, self._total())

    def interrupt(self) -> None:
        """Have a thread that waits for the next result wait no longer."""
        self._end.stop.set()

    def close(self) -> None:
        """Leave it: what is not done is cancelled or goes on, as ``on_exit`` says."""
        self._is_closing = True
        self._stop()
        self.interrupt()
        with self._lock:
            # A signal's handler comes anywhere, also while its thread holds a lock that leaving
            # would wait for: then ``__next__`` leaves, once it is out of there.
            if not self._is_reading:
                self._leave()

    def _leave(self) -> None:
        self._finalizer()
        # The threads end that read ahead.
        self._results = iter(())

    def __enter__(self) -> Self:
        """Return itself; it is left at the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave it."""
        self.close()
