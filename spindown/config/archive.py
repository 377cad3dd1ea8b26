"""A workload's code as it is deployed: the files of its folder, and how to call them.

Equal files and equal settings give equal bytes.
"""

import io
import zipfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path, PurePosixPath

from spindown.config.run import RunConfig
from spindown.config.schema import WorkloadConfig
from spindown.contract.pack import Member, is_left_out, pack_members
from spindown.contract.run import (
    RUN_SPEC_NAME,
    RunSpec,
    code_version,
    decode_run_spec,
    encode_run_spec,
)
from spindown.domain.lease import VISIBILITY_CAP
from spindown.error import ConfigError

_ANY_EXECUTE = 0o111


def find_code(root: Path, name: str, workload: WorkloadConfig) -> Path | None:
    """Return the directory of a workload's code; ``root`` is the folder of spindown.toml.

    Return None for a workload without code: its image holds all.

    Raises:
        ConfigError: the directory does not exist, or lacks the module or the requirements that
            the workload names.
    """
    run = workload.run
    if run.code is None:
        return None
    directory = (root / run.code).resolve()
    field = f"workload.{name}.run"
    if not directory.is_dir():
        raise ConfigError(f"{field}.code", str(run.code), "name a directory beside spindown.toml")
    if run.entrypoint is not None and not _has_module(directory, run.entrypoint):
        raise ConfigError(f"{field}.entrypoint", run.entrypoint, f"name a module below {run.code}/")
    if run.requirements is not None and not (directory / run.requirements).is_file():
        raise ConfigError(
            f"{field}.requirements", run.requirements, f"name a file below {run.code}/"
        )
    return directory


def _has_module(directory: Path, entrypoint: str) -> bool:
    module = directory.joinpath(*entrypoint.partition(":")[0].split("."))
    return module.with_suffix(".py").is_file() or (module / "__init__.py").is_file()


def run_spec(workload: WorkloadConfig) -> RunSpec:
    """Return how a worker calls the workload's code."""
    run = workload.run
    return RunSpec(
        entrypoint=run.entrypoint or "",
        command=run.command or (),
        image=run.image or "",
        folders=run.folders,
        results=run.results,
        requirements=run.requirements,
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


def pack(directory: Path | None, spec: RunSpec) -> bytes:
    """Return the archive of a directory, if there is one, and of the spec that says how to call it.

    Raises:
        ConfigError: a link leads out of the directory, or a file has the name of the spec.
    """
    members = {} if directory is None else _pack_code(directory)
    told = {name: member.digest for name, member in members.items()}
    spec = replace(spec, version=code_version(spec, told))
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
    return version != read_version(pack(find_code(root, name, workload), run_spec(workload)))


def read_version(data: bytes) -> str:
    """Return the version that the spec in an archive of code names."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return decode_run_spec(archive.read(RUN_SPEC_NAME)).version


def _pack_code(directory: Path) -> dict[str, Member]:
    members = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory)
        if is_left_out(PurePosixPath(name)) or path.is_dir():
            continue
        if not path.resolve().is_relative_to(directory.resolve()):
            raise ConfigError("run.code", str(name), "replace this link by what it points at")
        if str(name) == RUN_SPEC_NAME:
            raise ConfigError("run.code", str(name), "rename this file: Spindown writes its own")
        is_executable = bool(path.stat().st_mode & _ANY_EXECUTE)
        members[name.as_posix()] = Member(data=path.read_bytes(), is_executable=is_executable)
    return members
