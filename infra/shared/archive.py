"""The files that are deployed: archives whose bytes follow from their content alone.

There are two kinds: the kit from which workers install themselves, and the code of a workload.

The digest of an archive is its name, an unchanged archive is not uploaded again, and whoever pins
the digest pins the content. What is deployed under one label, deploy after deploy, lies in one
folder. A role may read that folder, since instances that boot during a deploy are still launched
with the archives of the release before, and those that run may start their worker again.
"""

import hashlib
import io
import zipfile
from dataclasses import replace
from datetime import timedelta
from pathlib import Path, PurePosixPath

from aws_cdk import Aws, FileAssetPackaging, IStackSynthesizer, Stage
from constructs import Construct

from spindown.config import RunConfig, WorkloadConfig
from spindown.contract.image import Kit
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
from spindown.infra.shared.kit import pack_kit


class Archive(Construct):
    """An archive that is uploaded with the deployment's other assets.

    It goes to the synthesizer directly: CDK's own file asset would name it by another digest.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        data: bytes,
        folder: str,
        label: str,
        assets: IStackSynthesizer,
    ) -> None:
        """Add ``data`` to a folder of the bucket of assets; the upload calls it ``label``."""
        super().__init__(scope, construct_id)
        #: SHA-256 of the archive, and its name.
        self.digest = hashlib.sha256(data).hexdigest()
        stage = Stage.of(self)
        assert stage is not None  # noqa: S101 - an app is a stage, and every stack is in one
        path = Path(stage.asset_outdir) / f"asset.{self.digest}.zip"
        path.write_bytes(data)
        place = assets.add_file_asset(
            # The key is made of it, and so it may name a folder.
            source_hash=f"{folder}/{self.digest}",
            file_name=path.name,
            packaging=FileAssetPackaging.FILE,
            display_name=label,
        )
        #: Where the archive lies, as ``s3://bucket/key``.
        self.uri = f"s3://{place.bucket_name}/{place.object_key}"
        releases = place.object_key.replace(f"{self.digest}{path.suffix}", "*")
        #: The ARN of that object and of those that other releases have in its folder.
        self.releases_arn = f"arn:{Aws.PARTITION}:s3:::{place.bucket_name}/{releases}"


class KitArchive(Archive):
    """The kit, one for all workloads."""

    def __init__(self, scope: Construct, construct_id: str, *, assets: IStackSynthesizer) -> None:
        super().__init__(
            scope,
            construct_id,
            data=pack_kit(),
            folder="spindown/kit",
            label="Worker kit",
            assets=assets,
        )

    @property
    def kit(self) -> Kit:
        """Return the kit's address and digest, as user data names them."""
        return Kit(uri=self.uri, sha256=self.digest)


_ANY_EXECUTE = 0o111


class CodeArchive(Archive):
    """The archive of one workload; its digest is what the manifest of a job pins."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        root: Path,
        deployment: str,
        name: str,
        workload: WorkloadConfig,
        assets: IStackSynthesizer,
    ) -> None:
        """Pack the code of ``workload``; its path is relative to ``root`` (raises ConfigError)."""
        data = pack(find_code(root, name, workload), run_spec(workload))
        super().__init__(
            scope,
            construct_id,
            data=data,
            folder=f"spindown/code/{deployment}/{name}",
            label=f"Code of {name}",
            assets=assets,
        )
        #: ``RunSpec.version`` of what is in it.
        self.version = read_version(data)
        #: The digest if the code has requirements that an image must hold, else None.
        self.requirements_digest = self.digest if workload.run.requirements else None


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
