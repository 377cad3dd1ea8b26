"""What maps items to results, whoever computes them: in order, as they come, or all at once."""

import asyncio
import contextvars
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Generic, Literal, Protocol, Self, TypeVar, Unpack, cast, overload

from spindown.client.option import StreamOptions
from spindown.client.progress import open_progress
from spindown.client.stream import ItemResult, ResultStream
from spindown.error import WorkFailed

T_contra = TypeVar("T_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)
S = TypeVar("S")


class Work(Protocol):
    """Items under way."""

    @property
    def name(self) -> str:
        """Return what people call it."""
        ...

    @property
    def total(self) -> int | None:
        """Return how many items there are; None: not known yet."""
        ...

    def results(self) -> Iterator[ItemResult[Any] | None]:
        """Yield what comes of the items; None: nothing new for now."""
        ...

    def stop(self) -> None:
        """Begin nothing more."""
        ...

    def leave(self) -> None:
        """Let go of what is not done."""
        ...

    def describe(self) -> str:
        """Say what is not done, and what becomes of it when it is left."""
        ...


def open_stream(
    work: Work, read: Callable[[ItemResult[Any]], S], how: StreamOptions
) -> ResultStream[S]:
    """Return the stream of work that has begun; without one the work is left."""
    try:
        shown = open_progress(work.name, how.get("progress"))
        return ResultStream(
            work.results(),
            read,
            work.leave,
            stop=work.stop,
            end=shown.close,
            timeout=how.get("timeout"),
            show=shown.show,
            total=lambda: work.total,
            what=work.describe,
        )
    except BaseException:
        work.leave()
        raise


def read_value(found: ItemResult[Any]) -> Any:
    """Return the value of an item (raises WorkFailed)."""
    return found.result()


def read_outcome(found: ItemResult[Any]) -> Any:
    """Return the value of an item, or why there is none."""
    return found.result() if found.error is None else found.error


def read_result(found: ItemResult[Any]) -> Any:
    """Return all that is known of an item."""
    return found


class Mapper(ABC, Generic[T_contra, R_co]):
    """Maps items to results."""

    @abstractmethod
    def begin(self, items: Iterable[Any], how: StreamOptions, *, in_order: bool) -> Work:
        """Begin work on items."""

    @overload
    def map(
        self,
        items: Iterable[T_contra],
        *,
        return_exceptions: Literal[False] = False,
        **how: Unpack[StreamOptions],
    ) -> ResultStream[R_co]: ...
    @overload
    def map(
        self,
        items: Iterable[T_contra],
        *,
        return_exceptions: Literal[True],
        **how: Unpack[StreamOptions],
    ) -> ResultStream[R_co | WorkFailed]: ...
    def map(
        self,
        items: Iterable[T_contra],
        *,
        return_exceptions: bool = False,
        **how: Unpack[StreamOptions],
    ) -> ResultStream[Any]:
        """Send items; stream the value of each in their order, as it is committed.

        Args:
            items: JSON values, or paths of files, which are uploaded. Any number: they are read
                and sent in sections, of which two at most are under way. Those of an iterator
                begin small and double.
            return_exceptions: whether an item without a result gives its error as a value.
            how: see ``StreamOptions``.

        Raises:
            BadInput: an item is no JSON, or an option is wrong. The stream raises ItemFailed,
                JobFailed and TimeoutError.
        """
        read = read_outcome if return_exceptions else read_value
        return open_stream(self.begin(items, how, in_order=True), read, how)

    def results(
        self, items: Iterable[T_contra], **how: Unpack[StreamOptions]
    ) -> "ResultStream[ItemResult[R_co]]":
        """Send items; stream all that is known of each in their order (errors as ``map``)."""
        return open_stream(self.begin(items, how, in_order=True), read_result, how)

    def as_completed(
        self, items: Iterable[T_contra], **how: Unpack[StreamOptions]
    ) -> "ResultStream[ItemResult[R_co]]":
        """Send items; stream all that is known of each as it is committed (errors as ``map``)."""
        return open_stream(self.begin(items, how, in_order=False), read_result, how)

    @overload
    def gather(
        self,
        items: Iterable[T_contra],
        *,
        return_exceptions: Literal[False] = False,
        **how: Unpack[StreamOptions],
    ) -> list[R_co]: ...
    @overload
    def gather(
        self,
        items: Iterable[T_contra],
        *,
        return_exceptions: Literal[True],
        **how: Unpack[StreamOptions],
    ) -> list[R_co | WorkFailed]: ...
    def gather(
        self,
        items: Iterable[T_contra],
        *,
        return_exceptions: bool = False,
        **how: Unpack[StreamOptions],
    ) -> list[Any]:
        """Send items, wait for all, and return their values in their order (as ``map``)."""
        read = read_outcome if return_exceptions else read_value
        with open_stream(self.begin(items, how, in_order=True), read, how) as stream:
            return list(stream)

    @property
    def aio(self) -> "AsyncMapper[T_contra, R_co]":
        """Return the same for asyncio."""
        return AsyncMapper(self)


class AsyncMapper(Generic[T_contra, R_co]):
    """Maps items to results in an event loop, which goes on meanwhile: threads do the waiting."""

    def __init__(self, mapper: Mapper[T_contra, R_co]) -> None:
        self._mapper = mapper

    @overload
    def map(
        self,
        items: Iterable[T_contra],
        *,
        return_exceptions: Literal[False] = False,
        **how: Unpack[StreamOptions],
    ) -> "AsyncResultStream[R_co]": ...
    @overload
    def map(
        self,
        items: Iterable[T_contra],
        *,
        return_exceptions: Literal[True],
        **how: Unpack[StreamOptions],
    ) -> "AsyncResultStream[R_co | WorkFailed]": ...
    def map(
        self,
        items: Iterable[T_contra],
        *,
        return_exceptions: bool = False,
        **how: Unpack[StreamOptions],
    ) -> "AsyncResultStream[Any]":
        """Stream values in order; the items are sent when the first is asked for."""
        read = read_outcome if return_exceptions else read_value
        return AsyncResultStream(
            lambda: open_stream(self._mapper.begin(items, how, in_order=True), read, how)
        )

    def results(
        self, items: Iterable[T_contra], **how: Unpack[StreamOptions]
    ) -> "AsyncResultStream[ItemResult[R_co]]":
        """Stream all that is known of each item, in order."""
        return AsyncResultStream(lambda: self._mapper.results(items, **how))

    def as_completed(
        self, items: Iterable[T_contra], **how: Unpack[StreamOptions]
    ) -> "AsyncResultStream[ItemResult[R_co]]":
        """Stream all that is known of each item, as it is committed."""
        return AsyncResultStream(lambda: self._mapper.as_completed(items, **how))

    @overload
    async def gather(
        self,
        items: Iterable[T_contra],
        *,
        return_exceptions: Literal[False] = False,
        **how: Unpack[StreamOptions],
    ) -> list[R_co]: ...
    @overload
    async def gather(
        self,
        items: Iterable[T_contra],
        *,
        return_exceptions: Literal[True],
        **how: Unpack[StreamOptions],
    ) -> list[R_co | WorkFailed]: ...
    async def gather(
        self,
        items: Iterable[T_contra],
        *,
        return_exceptions: bool = False,
        **how: Unpack[StreamOptions],
    ) -> list[Any]:
        """Return the values of all items in their order."""
        read = read_outcome if return_exceptions else read_value
        stream: AsyncResultStream[Any] = AsyncResultStream(
            lambda: open_stream(self._mapper.begin(items, how, in_order=True), read, how)
        )
        async with stream:
            return [value async for value in stream]


class AsyncResultStream(Generic[S]):
    """Results of items, as an asynchronous iterator.

    A task that is cancelled while it waits leaves the work at once. After ``break`` the work is
    left when nobody refers to the stream any more; ``async with`` leaves it at the end of a block.
    """

    def __init__(self, make: Callable[[], ResultStream[S]]) -> None:
        self._make = make
        self._stream: ResultStream[S] | None = None
        self._is_left = threading.Event()
        # The loop's own threads are few, and others need them; this one ends with the stream.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="spindown-stream")

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> S:
        """Wait for the next result (raises what ``ResultStream`` does)."""
        try:
            found = await self._run(self._next)
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if found is _END:
            raise StopAsyncIteration
        return cast("S", found)

    def _next(self) -> object:
        if self._stream is None:
            self._stream = self._make()
            if self._is_left.is_set():
                # It was left while the items were sent.
                self._stream.close()
        return next(self._stream, _END)

    async def aclose(self) -> None:
        """Leave it: what is not done is cancelled or goes on, as ``on_exit`` says."""
        self._is_left.set()
        if self._stream is not None:
            self._stream.interrupt()
            await asyncio.shield(self._run(self._stream.close))

    def _run(self, call: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Call it in this stream's thread, with the variables of the task."""
        context = contextvars.copy_context()
        return asyncio.get_running_loop().run_in_executor(self._thread, context.run, call)

    async def __aenter__(self) -> Self:
        """Return itself; it is left at the end of the block."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave it."""
        await self.aclose()


_END = object()
