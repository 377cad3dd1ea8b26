"""A function of one item, which runs here or on the machines of a workload: ``@spindown.function``.

A worker imports this where its code uses the decorator. So at the top it takes nothing that an
instance has not got.
"""

import functools
import inspect
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Never, TypeVar, Unpack, overload

from spindown.client.item import check_item, check_json
from spindown.client.mapper import Mapper, Work
from spindown.client.option import (
    PLACE,
    FunctionOptions,
    StreamOptions,
    SubmitOptions,
    check_items,
    check_options,
    check_text,
    refuse_options,
)
from spindown.client.stream import ItemResult
from spindown.contract.job.manifest import JobState
from spindown.contract.name import workload_of
from spindown.error import BadInput, ItemFailed, JobFailed, NoCredentials
from spindown.user import Context, Item, Result

if TYPE_CHECKING:
    from spindown.client.workload import Submission, Workload

T = TypeVar("T")
R = TypeVar("R")

#: Modules that no worker can import: those of scripts, notebooks and prompts.
_NO_MODULES = frozenset({"__main__", "__mp_main__"})


class Function(Mapper[T, R]):
    """A function of one item. A call runs it here; ``map`` and the like run it on its workload."""

    def __init__(self, call: Callable[Concatenate[T, ...], R], name: str | None) -> None:
        """Take a function (raises BadInput: no worker could run it).

        Args:
            call: the function.
            name: the workload; None: named after the function.
        """
        check_text("name", name)
        self._signature = _check(call)
        self._call = call
        self._usual: Workload[T, R] | None = None
        functools.update_wrapper(self, call)
        self.name = name or workload_of(call.__name__)

    def __repr__(self) -> str:
        return f"<spindown.function {self._call.__module__}.{self._call.__qualname__}>"

    def __reduce__(self) -> str:
        """Tell pickle where it is found, as a function is."""
        return self._call.__qualname__

    def __call__(self, item: T, **params: Any) -> R:
        """Run it here, on an item."""
        return self._call(item, **params)

    def run_batch(self, batch: Sequence[Item], ctx: Context) -> Iterator[Result]:
        """Run it on items of a job, as a worker does; one that is a file comes as its path."""
        for item in batch:
            given: Any = item.value if item.path is None else item.path
            yield Result(item, self._call(given, **ctx.params))

    @property
    def local(self) -> Mapper[T, R]:
        """Return the same calls in this process: what a worker does with the items, without one."""
        return _Here(self)

    def workload(
        self,
        *,
        config: str | Path = "spindown.toml",
        deployment: str | None = None,
        local_system: bool = False,
        **unknown: Never,
    ) -> "Workload[T, R]":
        """Return the workload that runs it.

        Args:
            config: the file that describes its deployment.
            deployment: name of the deployment, in place of a file.
            local_system: whether it runs in the local system of this directory.
            unknown: what is none of these, which is refused.

        Raises:
            BadInput: it is not deployed, or what is deployed is not this code.
        """
        refuse_options(unknown, PLACE)
        from spindown.cli.option import CONFIG_FILE  # noqa: PLC0415 - slow, and not on instances
        from spindown.client.workload import Workload  # noqa: PLC0415 - likewise

        code = self._find_code()
        try:
            return Workload(
                self.name,
                config=config,
                deployment=deployment,
                local_system=local_system,
                function=code,
            )
        except NoCredentials:
            remedy = f"log in to AWS, or write {self._call.__name__}.workload(local_system=True)"
            raise NoCredentials("credentials", None, remedy) from None
        except BadInput as exc:
            if exc.field != "workload":
                raise
            file = "" if Path(config) == CONFIG_FILE else f" --config {shlex.quote(str(config))}"
            remedy = say_deploy(code.name, file, is_local=local_system)
            raise BadInput("function", self.name, remedy) from None

    def _find_code(self) -> Path:
        if self._call.__module__ in _NO_MODULES:
            remedy = "move it into a module of its own, and import it: no worker has a __main__"
            raise BadInput("function", self._call.__qualname__, remedy)
        return Path(inspect.getfile(self._call)).resolve()

    def begin(self, items: Iterable[Any], how: StreamOptions, *, in_order: bool) -> Work:
        """Send items, as ``Workload`` does."""
        check_options(how, StreamOptions)
        return self._workload(how).begin(items, how, in_order=in_order)

    def submit(self, items: Iterable[T], **how: Unpack[SubmitOptions]) -> "Submission[R]":
        """Send items as one batch and return at once, as ``Workload.submit`` does."""
        check_options(how, SubmitOptions)
        return self._workload(how).submit(items, **how)

    def _workload(self, how: SubmitOptions) -> "Workload[T, R]":
        self.check_params(how)
        if self._usual is None:
            self._usual = self.workload()
        return self._usual

    def check_params(self, how: SubmitOptions) -> Mapping[str, Any]:
        """Return the keyword arguments of each call (raises BadInput: it does not take them)."""
        given = dict(how.get("params") or {})
        try:
            self._signature.bind(None, **given)
        except TypeError as exc:
            raise BadInput("params", given, f"give what {self.name} takes by name ({exc})") from exc
        params: Mapping[str, Any] = check_json("params", given)
        return params


def say_deploy(code: str, place: str, *, is_local: bool) -> str:
    """Return the commands that deploy a function.

    Args:
        code: its file, as ``functions`` of spindown.toml names it.
        place: options that name the file of the deployment, each with a space before it.
        is_local: to the local system, and not to AWS.
    """
    deploy = "local up" if is_local else "deploy"
    init = f"`spindown init --function {code}{place}`"
    return f"deploy it: {init}, then `spindown {deploy}{place}`"


def _check(call: Callable[..., Any]) -> inspect.Signature:
    """Return how a function is called (raises BadInput: no worker could find it, or run it)."""
    if not inspect.isfunction(call):
        raise BadInput("function", call, "decorate what `def` makes, below all other decorators")
    name = call.__qualname__
    if call.__name__ == "<lambda>":
        raise BadInput("function", name, "write it with def: no worker can find it without a name")
    if "<locals>" in name:
        remedy = "move it out of the function that it is in: no worker has what is inside of that"
        raise BadInput("function", name, remedy)
    if "." in name:
        raise BadInput("function", name, "move it out of its class: a worker has no object of it")
    if inspect.iscoroutinefunction(call) or inspect.isasyncgenfunction(call):
        raise BadInput("function", name, "write it without async: a worker waits for each call")
    if inspect.isgeneratorfunction(call):
        raise BadInput("function", name, "return a value in place of yield: an item has one result")
    signature = inspect.signature(call)
    by_place = [one for one in signature.parameters.values() if one.kind in _BY_PLACE]
    if not by_place or any(one.default is one.empty for one in by_place[1:]):
        remedy = "let it take one item by its place, and all else by name"
        raise BadInput("function", f"{name}{signature}", remedy)
    return signature


_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class _Here(Mapper[T, R]):
    """A function's calls in this process."""

    def __init__(self, function: Function[T, R]) -> None:
        self._function = function

    def begin(self, items: Iterable[Any], how: StreamOptions, *, in_order: bool) -> Work:  # noqa: ARG002 - in both orders it is one after the other
        """Begin with the first item; the others follow as results are read."""
        check_options(how, StreamOptions)
        check_items(items)
        return _HereWork(self._function, items, self._function.check_params(how))


class _HereWork(Generic[T, R]):
    """Items that this process computes one after the other, by what a worker's child runs."""

    total: int | None = None

    def __init__(
        self, function: Function[T, R], items: Iterable[Any], params: Mapping[str, Any]
    ) -> None:
        self.name = function.name
        self._function = function
        self._items = items
        self._params = params

    def describe(self) -> str:
        """Say nothing: it is here."""
        return ""

    def stop(self) -> None:
        """Do nothing: what is under way is one item."""

    def leave(self) -> None:
        """Compute no further item."""

    def results(self) -> Iterator[ItemResult[R]]:
        """Yield what comes of the items."""
        for index, given in enumerate(self._items):
            yield self._compute(index, given)

    def _compute(self, index: int, given: Any) -> ItemResult[R]:
        from spindown.worker.child.frame import read_frame  # noqa: PLC0415 - for this alone
        from spindown.worker.child.runner import read_results  # noqa: PLC0415
        from spindown.worker.child.user_code import ServedBatch  # noqa: PLC0415

        value = check_item(index, given)
        if isinstance(value, str) and value.startswith("s3://"):
            remedy = "give the pathlib.Path of a file: here nothing is fetched from S3"
            raise BadInput(f"item {index}", value, remedy)
        path = str(given.resolve()) if isinstance(given, Path) else None
        item = {"index": index, "value": value, "path": path}
        # No folder for files: a function is not told where it would be.
        batch = {"job_id": "", "params": self._params, "outputs": os.devnull, "items": [item]}
        answers, raised = BytesIO(), list[BaseException]()
        ServedBatch(batch, self._function.run_batch, 0, answers.write, raised.append).serve()
        for exc in raised:
            if isinstance(exc, KeyboardInterrupt):
                # It was for this process, and says nothing of the item.
                raise exc
        answers.seek(0)
        known = {"index": index, "item": value, "workload": self.name}
        while frame := read_frame(answers):
            if frame["type"] == "memory":
                cause = f"memory ran out: {frame['reason']}"
                lost = JobFailed(**known, state=JobState.FAILED, cause=cause)
                return ItemResult(index=index, item=value, error=lost)
            for done in read_results(frame, {index}, 0):
                error = None
                if done.error is not None:
                    error = ItemFailed(**known, error=done.error, traceback=done.traceback)
                return ItemResult(
                    index=index, item=value, error=error, seconds=done.seconds, _value=done.value
                )
        raise AssertionError("a batch answers every item")


@overload
def function(call: Callable[Concatenate[T, ...], R], /) -> Function[T, R]: ...
@overload
def function(
    *, name: str | None = None, **options: Unpack[FunctionOptions]
) -> Callable[[Callable[Concatenate[T, ...], R]], Function[T, R]]: ...
def function(
    call: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    **options: Unpack[FunctionOptions],
) -> Any:
    """Make a function of one item a workload; ``functions`` of spindown.toml names its file.

    Args:
        call: the function, where nothing else is said.
        name: the workload; None: named after the function, with hyphens.
        options: see ``FunctionOptions``. A deploy reads them in the file, which it does not run: so
            write them as literals. Here they have no effect.

    Raises:
        BadInput: no worker could run it.
    """
    del options
    if call is not None:
        return Function(call, name)
    return lambda made: Function(made, name)
