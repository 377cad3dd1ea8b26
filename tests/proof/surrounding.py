"""What a worker's process finds around it: ports, no threads, a log that hides no fault."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from random import Random
from typing import Any, NoReturn, Protocol

from spindown.memory import (
    MemoryClock,
    MemoryCompute,
    MemoryInputSource,
    MemoryJobQueue,
    MemoryMetricSink,
    MemoryObjectStore,
    MemoryTable,
    PortCall,
)
from spindown.worker.log import EventLog
from tests.slot import Script


class Surrounding(Protocol):
    """What a process needs of the world."""

    clock: MemoryClock
    table: MemoryTable
    objects: MemoryObjectStore
    dead_letters: MemoryJobQueue
    inputs: MemoryInputSource
    metrics: MemoryMetricSink
    compute: MemoryCompute
    random: Random
    asked: set[str]
    workload: str
    deployment: str
    code_digest: str
    #: What the code of the workload does.
    script: Script

    def work_call(self, call: PortCall, proceed: Callable[[], Any]) -> Any:
        """Carry out a port call of a worker, or let it fail."""
        ...

    def shape_of(self, instance_id: str) -> str:
        """Return the shape that an instance was launched for; "": none."""
        ...

    def queue_of(self, shape: str) -> MemoryJobQueue:
        """Return the queue of a shape; "": the entry queue."""
        ...

    def power_off(self, instance_id: str) -> None:
        """Shut an instance down from within."""
        ...


class Inline(Executor):
    """Runs what is submitted at once: no thread, so the same story every time."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as exc:  # noqa: BLE001 - an executor hands on whatever was raised
            future.set_exception(exc)
        return future


class LoudLog(EventLog):
    """Writes nothing, and lets a fault of our own code that a worker would survive come out."""

    def bind(self, **fields: Any) -> EventLog:
        return self

    def exception(self, event: str, **fields: Any) -> NoReturn:
        # Called while the fault is being handled.
        raise  # noqa: PLE0704

    def _write(self, *args: Any, **kwargs: Any) -> None:
        return
