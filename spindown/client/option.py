"""What may be said of how work is done, one name for one thing in all calls."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from numbers import Real
from os import PathLike
from typing import Any, Literal, TypedDict, get_args

from spindown.client.item import check_json
from spindown.client.stream import OnExit, ShowItems
from spindown.error import BadInput


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


#: Options that say where a workload is.
PLACE = frozenset({"config", "deployment", "local_system"})
_OF_THE_WORKLOAD = "give it to Workload(...) or FUNCTION.workload(...), which has the same calls"
#: What people write for the local system, or for this process, and no call knows.
_LOCAL = "did you mean local_system=True of the workload, or FUNCTION.local for this process?"


def refuse_options(unknown: Iterable[str], known: Iterable[str]) -> None:
    """Refuse options that are not known (raises BadInput)."""
    for name in unknown:
        close = get_close_matches(name, known, n=1)
        remedy = f"did you mean {close[0]}?" if close else "take this unknown option out"
        if name in PLACE:
            remedy = _OF_THE_WORKLOAD
        raise BadInput("option", name, _LOCAL if name == "local" else remedy)


def check_options(how: Mapping[str, Any], known: type[SubmitOptions]) -> None:
    """Refuse an option that a call does not know, and would not heed (raises BadInput)."""
    names = known.__annotations__
    refuse_options((name for name in how if name not in names), names)
    for name in how:
        if how[name] is not None and name in _FORMS:
            is_right, remedy = _FORMS[name]
            if not is_right(how[name]):
                raise BadInput(name, how[name], remedy)
    check_timeout(how.get("timeout"))
    check_json("params", how.get("params") and dict(how["params"]))


def check_timeout(timeout: object) -> None:
    """Refuse what are no seconds; None: for ever (raises BadInput)."""
    if timeout is not None and not (isinstance(timeout, Real) and float(timeout) >= 0):
        raise BadInput("timeout", timeout, "give seconds, as a number of at least 0")


def check_text(name: str, value: object) -> None:
    """Refuse what is no text; None: it is not given (raises BadInput)."""
    if value is not None and not is_text(value):
        raise BadInput(name, value, _TEXT)


def check_path(name: str, value: object) -> None:
    """Refuse what names no file or folder (raises BadInput)."""
    if not isinstance(value, str | PathLike):
        raise BadInput(name, value, "give a path, as a text or a pathlib.Path")


def is_text(value: object) -> bool:
    """Tell whether it is a text."""
    return isinstance(value, str)


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_exit(value: object) -> bool:
    return is_text(value) and value in get_args(OnExit)


def _is_progress(value: object) -> bool:
    return isinstance(value, bool) or callable(value)


_TEXT = "give a text"
#: Option -> whether a value of it is allowed, and what to give instead.
_FORMS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "key": (is_text, _TEXT),
    "params": (_is_mapping, 'give a dict such as {"width": 64}'),
    "items_per_job": (_is_count, "give a whole number from 1"),
    "type": (is_text, _TEXT),
    "requirements": (_is_mapping, 'give a dict such as {"memory_gib": 64}'),
    "tenant": (is_text, _TEXT),
    "after": (is_text, "give the name of a batch"),
    "on_exit": (_is_exit, f"name one of {', '.join(get_args(OnExit))}"),
    "progress": (_is_progress, "give True, False or a function of (done, failed, total)"),
}


def check_items(items: Iterable[Any]) -> None:
    """Refuse what would be taken apart: a text, a mapping, a table of columns (BadInput)."""
    if isinstance(items, str | bytes | Mapping):
        raise BadInput("items", items, "give a list of items; of a single one, [item]")
    if not isinstance(items, Iterable):
        raise BadInput("items", type(items).__name__, "give a list of items; of one, [item]")
    if hasattr(items, "itertuples"):
        remedy = 'give a list of rows: items.to_dict("records")'
        raise BadInput("items", type(items).__name__, remedy)


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
