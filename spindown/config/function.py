"""Workloads that Python files declare: functions that ``@spindown.function`` decorates.

A file is read and never run, so whoever deploys needs none of its packages, and reading has no
effect. What the decorator says must therefore be written as literals.
"""

import ast
import errno
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from spindown.config.form import Count, Name, NotNegative, TomlTable
from spindown.config.validation_error import translate
from spindown.contract.location import is_whole
from spindown.contract.name import workload_of
from spindown.error import ConfigError

#: Keys of ``[workload.NAME.run]`` that the decorator and its place say.
_SAID = frozenset({"command", "code", "entrypoint", "folders", "image", "requirements", "results"})
#: Each item is committed as soon as it is done, and none is tried twice if it raises.
_USUAL_RUN = {"batch_size": 1}


class FunctionConfig(TomlTable):
    """What ``@spindown.function`` takes."""

    name: Name | None = None
    gpu: str | tuple[str, ...] | None = Field(default=None, min_length=1)
    gpu_memory_gib: NotNegative = 0.0
    vcpus: Count = 0
    memory_gib: NotNegative = 0.0
    requirements: tuple[str, ...] = ()
    run: dict[str, Any] = Field(default_factory=dict)
    policy: dict[str, Any] = Field(default_factory=dict)


def add_functions(document: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
    """Return a parsed spindown.toml with the workloads of its ``functions`` (raises ConfigError).

    Args:
        document: as the file has it; what is wrong elsewhere stays so.
        folder: the folder of spindown.toml.
    """
    listed, written = document.get("functions", ()), document.get("workload", {})
    if not isinstance(listed, list) or not isinstance(written, dict):
        return document
    tables = dict(written)
    for code in listed:
        if not isinstance(code, str):
            return document
        for name, table in read_functions(folder / code, code).items():
            if name in tables:
                remedy = f"give its function {name} another name: there is a workload of this one"
                raise ConfigError("functions", code, remedy)
            tables[name] = table
    return {**document, "workload": tables}


def read_functions(path: Path, code: str) -> Mapping[str, dict[str, Any]]:
    """Return the table ``[workload.NAME]`` of each decorated function of a file, by its name.

    Raises:
        ConfigError: it is no Python file, decorates none, or one that could not run on a worker.
    """
    try:
        path = path.resolve()
        tree = read_tree(path)
    except OSError as exc:
        remedy = f"name a Python file that can be read ({exc.strerror})"
        raise ConfigError("functions", code, remedy) from exc
    except (SyntaxError, ValueError) as exc:
        raise ConfigError("functions", code, f"mend its {say_unread(exc)}") from exc
    if "." in path.stem:
        raise ConfigError("functions", code, "take the dots out of its name: none can import it")
    found: dict[str, dict[str, Any]] = {}
    for function, decorator in _decorated(tree):
        place = f"{code}:{decorator.lineno} {function.name}"
        if function not in tree.body:
            raise ConfigError(
                place, "not at the top level", "move it out, to the top of its module"
            )
        if isinstance(function, ast.AsyncFunctionDef):
            raise ConfigError(place, "async", "write it with def: a worker waits for each call")
        options = _read_options(decorator, place)
        name = options.name or workload_of(function.name)
        if name in found:
            raise ConfigError(place, name, "give it another name: the file has one of this")
        found[name] = _table(options, code, f"{module_of(path)[1]}:{function.name}", place)
    if not found:
        raise ConfigError("functions", code, "decorate a function of it with @spindown.function")
    return found


def read_tree(path: Path) -> ast.Module:
    """Return the syntax tree of a file (raises OSError, SyntaxError, ValueError)."""
    if not path.is_file():
        # A pipe, say: reading it could wait for ever.
        path.stat()
        raise OSError(errno.EINVAL, "no regular file", str(path))
    try:
        return ast.parse(path.read_bytes())
    except (RecursionError, MemoryError):
        raise SyntaxError("it is nested too deeply") from None


def say_unread(error: SyntaxError | ValueError) -> str:
    """Return where and why Python cannot read a file."""
    where, said = "text", str(error)
    if isinstance(error, SyntaxError):
        where, said = f"line {error.lineno}" if error.lineno else where, error.msg
    reader = f"Python {sys.version_info.major}.{sys.version_info.minor}"
    return f"{where}, which {reader} cannot read: {said}"


def module_of(path: Path) -> tuple[Path, str]:
    """Return the folder from which a file is imported, and as what."""
    folder, name = path.parent, path.stem
    while folder.name and (folder / "__init__.py").is_file():
        folder, name = folder.parent, f"{folder.name}.{name}"
    return folder, name


_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _decorated(tree: ast.Module) -> Iterator[tuple[_Function, ast.expr]]:
    modules, names = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {one.asname or one.name for one in node.names if one.name == "spindown"}
        elif isinstance(node, ast.ImportFrom) and node.module == "spindown":
            names |= {one.asname or one.name for one in node.names if one.name == "function"}
    for node in ast.walk(tree):
        if isinstance(node, _Function):
            for decorator in node.decorator_list:
                match decorator.func if isinstance(decorator, ast.Call) else decorator:
                    case ast.Attribute(value=ast.Name(id=module), attr="function"):
                        is_ours = module in modules
                    case ast.Name(id=name):
                        is_ours = name in names
                    case _:
                        is_ours = False
                if is_ours:
                    yield node, decorator


def _read_options(decorator: ast.expr, place: str) -> FunctionConfig:
    given: dict[str, Any] = {}
    call = decorator if isinstance(decorator, ast.Call) else None
    for unnamed in call.args if call else ():
        raise ConfigError(place, _shown(unnamed), "write each option by its name")
    for keyword in call.keywords if call else ():
        said = _shown(keyword.value)
        if keyword.arg is None:
            raise ConfigError(place, f"**{said}", "write each option by its name")
        try:
            given[keyword.arg] = ast.literal_eval(keyword.value)
        except (ValueError, TypeError, RecursionError) as exc:
            remedy = "write the value itself: a deploy reads the file and does not run it"
            raise ConfigError(f"{place}: {keyword.arg}", said, remedy) from exc
        texts = (one.value for one in ast.walk(keyword.value) if isinstance(one, ast.Constant))
        if not all(is_whole(one) for one in texts if isinstance(one, str)):
            raise ConfigError(f"{place}: {keyword.arg}", said, "write it in whole characters")
    try:
        return FunctionConfig.model_validate(given)
    except ValidationError as exc:
        wrong = translate(exc, FunctionConfig, given)
        raise ConfigError(f"{place}: {wrong.field}", wrong.value, wrong.remedy) from None


def _shown(written: ast.expr) -> str:
    """Return an expression as somebody wrote it."""
    try:
        return ast.unparse(written)
    except RecursionError:
        return "..."


def _table(options: FunctionConfig, code: str, entrypoint: str, place: str) -> dict[str, Any]:
    for key in sorted(_SAID & options.run.keys()):
        remedy = "leave it out: the function says it"
        raise ConfigError(f"{place}: run.{key}", options.run[key], remedy)
    run = {**_USUAL_RUN, **options.run, "entrypoint": entrypoint, "code": code}
    if options.requirements:
        run["requirements"] = list(options.requirements)
    needs: dict[str, Any] = {"vcpus_min": options.vcpus, "memory_gib_min": options.memory_gib}
    if options.gpu is None and not options.gpu_memory_gib:
        needs["gpu_count_min"] = 0
    else:
        needs["gpu_memory_gib_min"] = options.gpu_memory_gib
    if options.gpu is not None:
        needs["gpu_names"] = [options.gpu] if isinstance(options.gpu, str) else list(options.gpu)
    return {"run": run, "requirements": needs, "policy": options.policy}
