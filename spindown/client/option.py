"""What may be said of how work is done, one name for one thing in all calls."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict

from spindown.client.stream import OnExit, ShowItems


class SubmitOptions(TypedDict, total=False):
    """How items are sent."""

    #: Names the batch, so that the same call finds it again and sends nothing twice.
    key: str | None
    #: Handed to the code as ``ctx.params``.
    params: Mapping[str, Any] | None
    #: Items of a job but the last; None: 200, and fewer of few items, which make 16 jobs.
    items_per_job: int | None
    #: One of the types that the workload declares.
    type: str | None
    #: What each job needs of its machine, such as ``{"memory_gib": 64}``.
    requirements: Mapping[str, Any] | None
    #: Tenants share a queue fairly.
    tenant: str | None
    #: Batch that must be over first, of another workload as ``WORKLOAD/BATCH``.
    after: str | None
    #: What becomes of this one if an item or a job of that one has failed; None: it is cancelled.
    on_failure: Literal["start", "cancel"] | None


class StreamOptions(SubmitOptions, total=False):
    """How items are sent, and how their results are waited for."""

    #: Seconds after which TimeoutError is raised; None: never.
    timeout: float | None
    #: What becomes of the rest when it is left; None: it is cancelled, and goes on with a key.
    on_exit: OnExit | None
    #: Whether to show a bar, or what is told instead; None: a notebook shows one.
    progress: bool | ShowItems | None


class FunctionOptions(TypedDict, total=False):
    """What machines a function needs, and how it runs there (``config.function`` reads it)."""

    #: The GPU, or several of which any will do, by EC2's names.
    gpu: str | Sequence[str]
    #: Memory of one GPU, at least. With neither of the two it gets no GPU.
    gpu_memory_gib: float
    #: vCPUs, at least.
    vcpus: int
    #: Memory, at least.
    memory_gib: float
    #: Packages, as lines of requirements.txt.
    requirements: Sequence[str]
    #: Further keys of ``[workload.NAME.run]``.
    run: Mapping[str, Any]
    #: Keys of ``[workload.NAME.policy]``.
    policy: Mapping[str, Any]
