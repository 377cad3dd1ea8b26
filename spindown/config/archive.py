"""A workload's code as it is deployed: the files of its folder, and how to call them.

Equal files and equal settings give equal bytes.
"""

import ast
import io
import os
import stat
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path, PurePosixPath

from pydantic import ValidationError

from spindown.config.entrypoint import check_entrypoint
from spindown.config.function import module_of, read_functions, read_tree, say_unread
from spindown.config.run import RunConfig
from spindown.config.schema import WorkloadConfig
from spindown.config.validation_error import translate
from spindown.contract.location import is_whole
from spindown.contract.pack import Member, is_left_out, pack_members
from spindown.contract.run_spec import (
    RUN_SPEC_NAME,
    RunSpec,
    code_version,
    decode_run_spec,
    encode_run_spec,
)
from spindown.domain.lease import VISIBILITY_CAP
from spindown.error import ConfigError

#: Name of the file of requirements inside the archive, where its lines are given.
REQUIREMENTS_NAME = "spindown-requirements.txt"

_ANY_EXECUTE = 0o111
_REPLACE_LINK = "replace this link by what it points at"


def find_code(root: Path, name: str, workload: WorkloadConfig) -> Path | None:
    """Return the directory or the file of a workload's code.

    Return None for a workload without code: its image holds all.

    Raises:
        ConfigError: there is none, or it lacks the module or the requirements that the workload
            names.
    """
    run = workload.run
    if run.code is None:
        return None
    code = (root / run.code).resolve()
    field = f"workload.{name}.run"
    if not code.is_dir() and not _is_module(code):
        remedy = "name a folder or a Python file beside spindown.toml"
        raise ConfigError(f"{field}.code", str(run.code), remedy)
    directory, module = module_of(code) if _is_module(code) else (code, None)
    if run.entrypoint is not None:
        asked = run.entrypoint.partition(":")[0]
        if module is not None and asked != module:
            raise ConfigError(f"{field}.entrypoint", run.entrypoint, f"name {module}:callable")
        if module is None and _find_module(directory, asked) is None:
            remedy = f"name a module below {run.code}/"
            raise ConfigError(f"{field}.entrypoint", run.entrypoint, remedy)
    if isinstance(run.requirements, str) and not (directory / run.requirements).is_file():
        place = run.code if module is None else run.code.parent
        raise ConfigError(f"{field}.requirements", run.requirements, f"name a file below {place}/")
    return code


def check_code(root: Path, workloads: Mapping[str, WorkloadConfig]) -> None:
    """Check, before anything is deployed, that workers will find what they are to call.

    Args:
        root: the folder of spindown.toml.
        workloads: what the file says of each.

    Raises:
        ModuleUnread: the Python that runs here cannot read the module of an entrypoint.
        ConfigError: as ``find_code``; or nothing in the module binds the name.
    """
    for name, workload in workloads.items():
        code, run = find_code(root, name, workload), workload.run
        if code is None or run.code is None or run.entrypoint is None:
            continue
        is_file, field = _is_module(code), f"workload.{name}.run.entrypoint"
        path = code if is_file else _find_module(code, run.entrypoint.partition(":")[0])
        if path is not None:
            shown = run.code if is_file else run.code / path.relative_to(code)
            check_entrypoint(field, run.entrypoint, path, str(shown))


def _is_module(code: Path) -> bool:
    return code.suffix == ".py" and code.is_file()


def _find_module(directory: Path, asked: str) -> Path | None:
    """Return the file of a module below a directory; None: there is none."""
    module = directory.joinpath(*asked.split("."))
    # As Python looks for it.
    places = (module / "__init__.py", module.with_suffix(".py"))
    return next((path for path in places if path.is_file()), None)


def run_spec(workload: WorkloadConfig) -> RunSpec:
    """Return how a worker calls the workload's code."""
    run = workload.run
    return RunSpec(
        entrypoint=run.entrypoint or "",
        command=run.command or (),
        image=run.image or "",
        folders=run.folders,
        results=run.results,
        requirements=REQUIREMENTS_NAME if isinstance(run.requirements, tuple) else run.requirements,
        allow_source_builds=run.allow_source_builds,
        batch_size=1 if run.folders else run.batch_size,
        item_timeout=_item_timeout(run),
        setup_timeout=run.setup_timeout,
        job_timeout=run.job_timeout,
        stop_grace=run.stop_grace,
        slots=str(run.slots),
        inputs=workload.inputs,
        env=run.env,
        secrets=run.secrets,
        on_new_code=run.on_new_code,
    )


def _item_timeout(run: RunConfig) -> timedelta:
    """Return how long an item may take; a command of a folder, if nothing is said, all its time."""
    is_said = "item_timeout" in run.model_fields_set
    return VISIBILITY_CAP if run.folders and not is_said else run.item_timeout


def pack_workload(root: Path, name: str, workload: WorkloadConfig) -> bytes:
    """Return the archive of a workload (raises ConfigError as ``find_code`` and ``pack``)."""
    asked = workload.run.requirements
    lines = asked if isinstance(asked, tuple) else ()
    return pack(find_code(root, name, workload), run_spec(workload), lines)


def pack(code: Path | None, spec: RunSpec, requirements: Sequence[str] = ()) -> bytes:
    """Return the archive of the code, if there is any, and of the spec that says how to call it.

    Args:
        code: as ``find_code`` finds it.
        spec: how it is called.
        requirements: lines of the file that the spec names, if the code has not got it.

    Raises:
        ConfigError: a link leads out of the directory or to a folder, or a file has the name of one
            of ours.
    """
    members = {} if code is None else _pack_code(code, spec)
    if requirements:
        members[REQUIREMENTS_NAME] = Member(data="".join(f"{x}\n" for x in requirements).encode())
    digests = {name: member.digest for name, member in members.items()}
    spec = replace(spec, version=code_version(spec, digests))
    members[RUN_SPEC_NAME] = Member(data=encode_run_spec(spec))
    return pack_members(members)


def differs_from(version: str, root: Path, name: str, workload: WorkloadConfig) -> bool:
    """Tell whether a workload's code here is other code than the one of a version.

    Args:
        version: of what is deployed; "": not known, so nothing differs.
        root: the folder of spindown.toml.
        name: the workload.
        workload: what the file says of it.

    Raises:
        ConfigError: its code cannot be packed.
    """
    if not version:
        return False
    return version != read_version(pack_workload(root, name, workload))


def is_deployed(version: str, path: Path, name: str) -> bool:
    """Tell whether a decorated function's code is the one of a version (raises ConfigError)."""
    table = read_functions(path, path.name).get(name)
    if table is None:
        raise ConfigError("function", name, f"decorate it where {path.name} defines it")
    run = {key: table["run"].get(key) for key in ("entrypoint", "code", "requirements")}
    try:
        workload = WorkloadConfig(run=RunConfig(**run))
    except ValidationError as exc:
        wrong = translate(exc, RunConfig, run)
        raise ConfigError(f"{name}: {wrong.field}", wrong.value, wrong.remedy) from None
    return version == read_version(pack_workload(path.parent, name, workload))


def read_version(data: bytes) -> str:
    """Return the version that the spec in an archive of code names."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return decode_run_spec(archive.read(RUN_SPEC_NAME)).version


def _pack_code(code: Path, spec: RunSpec) -> dict[str, Member]:
    directory = code if code.is_dir() else module_of(code)[0]
    members = {}
    for path in code_files(code, spec.requirements):
        name = path.relative_to(directory)
        if not path.resolve().is_relative_to(directory.resolve()):
            raise ConfigError("run.code", str(name), _REPLACE_LINK)
        if str(name) in {RUN_SPEC_NAME, REQUIREMENTS_NAME}:
            raise ConfigError("run.code", str(name), "rename this file: Spindown writes its own")
        members[name.as_posix()] = _read_member(path, str(name))
    return members


def _read_member(path: Path, name: str) -> Member:
    if not is_whole(name):
        raise ConfigError("run.code", name, "rename this file, in UTF-8")
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            # A pipe, say: reading it could wait for ever.
            raise ConfigError("run.code", name, "take this out: it is no file")
        return Member(data=path.read_bytes(), is_executable=bool(mode & _ANY_EXECUTE))
    except OSError as exc:
        raise ConfigError(
            "run.code", name, f"name a file that can be read ({exc.strerror})"
        ) from exc


def code_files(code: Path, requirements: str | None) -> Sequence[Path]:
    """Return the files that go into the archive of a workload, in order (raises ConfigError).

    Args:
        code: as ``find_code`` finds it. A Python file goes with the modules and packages beside it
            that it imports, and with those that they import.
        requirements: the file of requirements beside that; None: there is none.
    """
    if code.is_dir():
        return sorted(_files_below(code))
    directory, module = module_of(code)
    found, left = set[Path](), [code]
    if "." in module:
        left += _files_below(directory / module.partition(".")[0])
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left += _imported(path, directory) if path.suffix == ".py" else ()
    if requirements is not None and (directory / requirements).is_file():
        found.add(directory / requirements)
    return sorted(found)


def _files_below(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder of code, in which no link may lead to a folder (ConfigError)."""
    for parent, folders, names in os.walk(folder):
        folders[:] = [each for each in folders if not is_left_out(PurePosixPath(each))]
        for each in folders:
            if (path := Path(parent, each)).is_symlink():
                raise ConfigError("run.code", str(path.relative_to(folder)), _REPLACE_LINK)
        yield from (Path(parent, x) for x in names if not is_left_out(PurePosixPath(x)))


def _imported(path: Path, directory: Path) -> Iterator[Path]:
    """Yield the files below a directory that a module imports from there; packages as a whole."""
    try:
        tree = read_tree(path)
    except OSError as exc:
        remedy = f"name a file that can be read ({exc.strerror})"
        raise ConfigError("run.code", str(path), remedy) from exc
    except (SyntaxError, ValueError) as exc:
        raise ConfigError("run.code", str(path), f"mend its {say_unread(exc)}") from exc
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                yield from _files_of(one.name, directory)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for one in node.names:
                yield from _files_of(f"{node.module}.{one.name}", directory)


def _files_of(module: str, directory: Path) -> Iterator[Path]:
    first, *rest = module.split(".")
    if first == "spindown":
        return
    place = directory / first
    if (place / "__init__.py").is_file():
        yield from _files_below(place)
    elif place.with_suffix(".py").is_file():
        yield place.with_suffix(".py")
    elif rest and place.is_dir():
        yield from _files_of(".".join(rest), place)
