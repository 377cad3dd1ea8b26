"""How a workload's code is called: ``spindown-run.json`` at the root of the code archive.

Written at synthesis from ``[workload.NAME.run]``, read by the worker; so it changes only with
the code, and the archive's digest covers both.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from spindown.contract.codec import decode, encode, from_json
from spindown.error import ContractError, NewerSchema

SCHEMA = 1

#: Name of the file inside the archive.
RUN_SPEC_NAME = "spindown-run.json"

#: What the code of each slot may print to the log in a day, with what the log adds to each line:
#: 0.13 USD at CloudWatch's 0.50 USD a GB.
LOG_BYTES_A_DAY = 256 * 1024 * 1024

_ECR = re.compile(r"(\d{12}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com)/")
_ENTRYPOINT = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


class RunMode(StrEnum):
    """What the user's code is to the worker."""

    #: A Python callable in a process that stays.
    ENTRYPOINT = "entrypoint"
    #: Any program, started for each call.
    COMMAND = "command"
    #: A container, started for each call.
    IMAGE = "image"
    #: The command of a folder that ``spindown run`` has sent (``contract.folder``).
    FOLDER = "folder"


class Results(StrEnum):
    """How a command or a container says what came of its items."""

    #: One line of JSON an item, as each is done.
    PER_ITEM = "per-item"
    #: It gets all items of a job at once, and its exit status stands for them all.
    PER_JOB = "per-job"


class OnNewCode(StrEnum):
    """What becomes of the results and the checkpoint of a job when new code takes it over."""

    #: They stay: the new code gives the same results, and reads the old checkpoint.
    KEEP = "keep"
    #: The job begins anew.
    RESTART = "restart"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """How to call the user's code: by exactly one of entrypoint, command, image, folders.

    An image may have a command besides: what its container runs instead of the image's own.
    """

    #: ``module:callable``, found below the archive's root; "": another mode.
    entrypoint: str = ""
    #: A program and its arguments, started in the archive's root.
    command: tuple[str, ...] = ()
    #: Reference of a container image.
    image: str = ""
    #: Whether each item names the archive of a folder, whose command is run.
    folders: bool = False
    results: Results = Results.PER_ITEM
    #: requirements.txt below the root, installed with the image; None: none.
    requirements: str | None = None
    #: Whether what has no wheel is built on the instance, by code of its own.
    allow_source_builds: bool = False
    #: Items a call, at most.
    batch_size: int = 16
    #: A call over n items may take n times as long.
    item_timeout: timedelta = timedelta(minutes=10)
    #: Bound of importing the code and of its ``setup``.
    setup_timeout: timedelta = timedelta(minutes=15)
    #: Bound of one attempt at a job, whatever its number of items; None: none.
    job_timeout: timedelta | None = None
    #: What a command has between SIGTERM and SIGKILL, to write its last checkpoint.
    stop_grace: timedelta = timedelta(seconds=10)
    #: "per-gpu", "per-instance" or a number: how many children share an instance.
    slots: str = "per-gpu"
    #: ``s3://bucket/prefix`` that jobs may read, besides what ``submit`` uploads.
    inputs: tuple[str, ...] = ()
    #: Added to the environment of the children.
    env: Mapping[str, str] = field(default_factory=dict)
    #: Likewise, but only the name of each secret is known here: variable -> ``is_parameter``.
    secrets: Mapping[str, str] = field(default_factory=dict)
    on_new_code: OnNewCode = OnNewCode.RESTART
    #: SHA-256 of all that changes results: the files, and what is run of them (``code_version``).
    #: Not of limits, environment, slots and inputs: a deploy of these restarts no job.
    version: str = ""
    schema: int = SCHEMA

    @property
    def mode(self) -> RunMode:
        """Return what the user's code is to the worker."""
        if self.folders:
            return RunMode.FOLDER
        if self.image:
            return RunMode.IMAGE
        return RunMode.COMMAND if self.command else RunMode.ENTRYPOINT


def code_version(spec: RunSpec, files: Mapping[str, bytes]) -> str:
    """Return the SHA-256 of what decides a job's results; see ``RunSpec.version``.

    ``files`` maps each name in the archive, but for the spec's, to the SHA-256 of its content.
    """
    called = (spec.entrypoint, spec.command, spec.image, spec.results, spec.requirements)
    parts = [called, sorted((name, digest.hex()) for name, digest in files.items())]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def is_parameter(secret: str) -> bool:
    """Tell whether a secret is a parameter of SSM; else it is one of Secrets Manager."""
    return secret.startswith("/")


def ecr_registry(image: str) -> str | None:
    """Return the registry of an image in Amazon ECR; None: it is elsewhere."""
    found = _ECR.match(image)
    return None if found is None else found[1]


def encode_run_spec(spec: RunSpec) -> bytes:
    """Return the file's bytes, the same for equal values."""
    return (json.dumps(encode(spec), indent=2, sort_keys=True) + "\n").encode()


def decode_run_spec(data: bytes) -> RunSpec:
    """Read the file (raises ContractError, NewerSchema)."""
    row = from_json(RUN_SPEC_NAME, data, "deploy again: it is not JSON")
    if not isinstance(row, dict):
        raise ContractError(RUN_SPEC_NAME, row, "deploy again: it is not an object")
    spec = decode(RunSpec, row)
    if spec.schema > SCHEMA:
        raise NewerSchema(f"{RUN_SPEC_NAME} schema", spec.schema, "start workers of this version")
    _check(spec)
    return spec


def _check(spec: RunSpec) -> None:
    if spec.mode is RunMode.ENTRYPOINT:
        if not _ENTRYPOINT.fullmatch(spec.entrypoint):
            raise ContractError("run.entrypoint", spec.entrypoint, "write it as module:callable")
    elif spec.entrypoint:
        remedy = "give one of entrypoint, command, image and folders"
        raise ContractError("run.entrypoint", spec.entrypoint, remedy)
    if spec.folders and (spec.command or spec.image):
        raise ContractError("run.folders", spec.folders, "leave command and image out beside it")
    if spec.batch_size < 1:
        raise ContractError("run.batch_size", spec.batch_size, "make it at least 1")
    for name in ("item_timeout", "setup_timeout", "job_timeout"):
        length = getattr(spec, name)
        if length is not None and length <= timedelta(0):
            raise ContractError(f"run.{name}", length, "make it longer than zero")
    if spec.stop_grace < timedelta(0):
        raise ContractError("run.stop_grace", spec.stop_grace, "make it zero or longer")
