"""A workload's code as one archive whose bytes follow from its content alone.

The same files give the same archive on every machine: names sorted, times and owners fixed. So
its digest is its name, an unchanged workload is not deployed again, and a manifest that pins
the digest pins the code.
"""

import hashlib
import io
import zipfile
from pathlib import Path, PurePosixPath

from aws_cdk import FileAssetPackaging, IStackSynthesizer, Stage
from constructs import Construct

from spindown.config import WorkloadConfig
from spindown.contract.run import RUN_SPEC_NAME, RunSpec, encode_run_spec
from spindown.error import ConfigError

#: The earliest time that a zip archive can hold.
_NO_TIME = (1980, 1, 1, 0, 0, 0)
_REGULAR_FILE = 0o100644 << 16
_EXECUTABLE_FILE = 0o100755 << 16
_ANY_EXECUTE = 0o111

#: What tools leave beside code. Hidden files and folders are left out as well.
_LEFT_OUT = frozenset({"__pycache__", "node_modules"})


class CodeArchive(Construct):
    """The archive of one workload, uploaded with the deployment's other assets.

    It goes to the synthesizer as it is: CDK's own file asset would name it by another digest.
    """

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
        super().__init__(scope, construct_id)
        data = pack(find_code(root, name, workload), run_spec(workload))
        #: SHA-256 of the archive, and its name.
        self.digest = hashlib.sha256(data).hexdigest()
        stage = Stage.of(self)
        assert stage is not None  # noqa: S101 - an app is a stage, and every stack is in one
        path = Path(stage.asset_outdir) / f"asset.{self.digest}.zip"
        path.write_bytes(data)
        place = assets.add_file_asset(
            source_hash=self.digest,
            file_name=path.name,
            packaging=FileAssetPackaging.FILE,
            display_name=f"Code of {name}",
        )
        self.bucket = place.bucket_name
        self.key = place.object_key

    @property
    def uri(self) -> str:
        """Return where the archive lies, as ``s3://bucket/key``."""
        return f"s3://{self.bucket}/{self.key}"


def find_code(root: Path, name: str, workload: WorkloadConfig) -> Path:
    """Return the directory of a workload's code, found from where spindown.toml lies.

    Raises:
        ConfigError: it does not exist, or it lacks the module or the requirements it names.
    """
    run = workload.run
    directory = (root / run.code).resolve()
    field = f"workload.{name}.run"
    if not directory.is_dir():
        raise ConfigError(f"{field}.code", str(run.code), "name a directory beside spindown.toml")
    module = directory.joinpath(*run.entrypoint.partition(":")[0].split("."))
    if not (module.with_suffix(".py").is_file() or (module / "__init__.py").is_file()):
        raise ConfigError(f"{field}.entrypoint", run.entrypoint, f"name a module below {run.code}/")
    if run.requirements is not None and not (directory / run.requirements).is_file():
        raise ConfigError(
            f"{field}.requirements", run.requirements, f"name a file below {run.code}/"
        )
    return directory


def run_spec(workload: WorkloadConfig) -> RunSpec:
    """Return how the workload's code is called, as its worker reads it."""
    run = workload.run
    return RunSpec(
        entrypoint=run.entrypoint,
        requirements=run.requirements,
        batch_size=run.batch_size,
        item_timeout=run.item_timeout,
        setup_timeout=run.setup_timeout,
        slots=str(run.slots),
        inputs=workload.inputs,
        env=run.env,
    )


def pack(directory: Path, spec: RunSpec) -> bytes:
    """Return the archive of a directory and of how to call what is in it.

    Raises:
        ConfigError: a link leads out of the directory, or a file has the name of ours.
    """
    members = {RUN_SPEC_NAME: (encode_run_spec(spec), _REGULAR_FILE)}
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory)
        if _is_left_out(PurePosixPath(name)) or path.is_dir():
            continue
        if not path.resolve().is_relative_to(directory.resolve()):
            raise ConfigError("run.code", str(name), "replace this link by what it points at")
        if str(name) == RUN_SPEC_NAME:
            raise ConfigError("run.code", str(name), "rename this file: Spindown writes its own")
        runs = path.stat().st_mode & _ANY_EXECUTE
        members[name.as_posix()] = path.read_bytes(), _EXECUTABLE_FILE if runs else _REGULAR_FILE
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as made:
        for member, (data, mode) in sorted(members.items()):
            info = zipfile.ZipInfo(member, date_time=_NO_TIME)
            info.create_system, info.external_attr = _UNIX, mode
            info.compress_type = zipfile.ZIP_DEFLATED
            made.writestr(info, data)
    return archive.getvalue()


#: What made the archive, for the file modes to be read as such.
_UNIX = 3


def _is_left_out(name: PurePosixPath) -> bool:
    return any(
        part in _LEFT_OUT or part.startswith(".") or part.endswith((".pyc", ".egg-info"))
        for part in name.parts
    )
