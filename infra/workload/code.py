"""A workload's code as an archive: its files, and how they are called."""

from pathlib import Path, PurePosixPath

from aws_cdk import IStackSynthesizer
from constructs import Construct

from infra.archive import Archive, Member, pack_members
from spindown.config import WorkloadConfig
from spindown.contract.run import RUN_SPEC_NAME, RunSpec, encode_run_spec
from spindown.error import ConfigError

_ANY_EXECUTE = 0o111

#: What tools leave beside code. Hidden files and folders are left out as well.
_LEFT_OUT = frozenset({"__pycache__", "node_modules"})


class CodeArchive(Archive):
    """The archive of one workload; its digest is what the manifest of a job pins."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        root: Path,
        name: str,
        workload: WorkloadConfig,
        assets: IStackSynthesizer,
    ) -> None:
        """Pack the code of ``workload``; ``root`` is where its path begins (ConfigError)."""
        data = pack(find_code(root, name, workload), run_spec(workload))
        super().__init__(scope, construct_id, data=data, label=f"Code of {name}", assets=assets)
        #: The archive's digest if an image must have its requirements, None if it has none.
        self.requirements_digest = self.digest if workload.run.requirements else None


def find_code(root: Path, name: str, workload: WorkloadConfig) -> Path | None:
    """Return the directory of a workload's code, found from where spindown.toml lies.

    None: it has none, since its image holds all.

    Raises:
        ConfigError: it does not exist, or it lacks the module or the requirements it names.
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
    """Return how the workload's code is called, as its worker reads it."""
    run = workload.run
    return RunSpec(
        entrypoint=run.entrypoint or "",
        command=run.command or (),
        image=run.image or "",
        results=run.results,
        requirements=run.requirements,
        batch_size=run.batch_size,
        item_timeout=run.item_timeout,
        setup_timeout=run.setup_timeout,
        job_timeout=run.job_timeout,
        stop_grace=run.stop_grace,
        slots=str(run.slots),
        inputs=workload.inputs,
        env=run.env,
        secrets=run.secrets,
    )


def pack(directory: Path | None, spec: RunSpec) -> bytes:
    """Return the archive of a directory, if there is one, and of how to call what is in it.

    Raises:
        ConfigError: a link leads out of the directory, or a file has the name of ours.
    """
    members = {RUN_SPEC_NAME: Member(data=encode_run_spec(spec))}
    if directory is not None:
        members |= _pack_code(directory)
    return pack_members(members)


def _pack_code(directory: Path) -> dict[str, Member]:
    members = {}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory)
        if _is_left_out(PurePosixPath(name)) or path.is_dir():
            continue
        if not path.resolve().is_relative_to(directory.resolve()):
            raise ConfigError("run.code", str(name), "replace this link by what it points at")
        if str(name) == RUN_SPEC_NAME:
            raise ConfigError("run.code", str(name), "rename this file: Spindown writes its own")
        is_executable = bool(path.stat().st_mode & _ANY_EXECUTE)
        members[name.as_posix()] = Member(data=path.read_bytes(), is_executable=is_executable)
    return members


def _is_left_out(name: PurePosixPath) -> bool:
    return any(
        part in _LEFT_OUT or part.startswith(".") or part.endswith((".pyc", ".egg-info"))
        for part in name.parts
    )
