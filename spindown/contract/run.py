"""How a workload's code is called: ``spindown-run.json`` at the root of the code archive.

Written at synthesis from ``[workload.NAME.run]``, read by the worker; so it changes only with
the code, and the archive's digest covers both.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from spindown.contract.codec import decode, encode
from spindown.error import ContractError, NewerSchema

SCHEMA = 1

#: Name of the file inside the archive.
RUN_SPEC_NAME = "spindown-run.json"

_ENTRYPOINT = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """How to call the user's code."""

    #: ``module:callable``, found below the archive's root.
    entrypoint: str
    #: requirements.txt below the root, installed with the image; None: none.
    requirements: str | None = None
    #: Items a call, at most.
    batch_size: int = 16
    #: A call over n items may take n times as long.
    item_timeout: timedelta = timedelta(minutes=10)
    #: Bound of importing the code and of its ``setup``.
    setup_timeout: timedelta = timedelta(minutes=15)
    #: "per-gpu", "per-instance" or a number: how many children share an instance.
    slots: str = "per-gpu"
    #: ``s3://bucket/prefix`` that jobs may read, besides what ``submit`` uploads.
    inputs: tuple[str, ...] = ()
    #: Added to the environment of the children.
    env: Mapping[str, str] = field(default_factory=dict)
    schema: int = SCHEMA


def encode_run_spec(spec: RunSpec) -> bytes:
    """Return the file's bytes, the same for equal values."""
    return (json.dumps(encode(spec), indent=2, sort_keys=True) + "\n").encode()


def decode_run_spec(data: bytes) -> RunSpec:
    """Read the file (raises ContractError, NewerSchema)."""
    try:
        row = json.loads(data)
    except (ValueError, RecursionError) as exc:
        raise ContractError(RUN_SPEC_NAME, data[:100], "deploy again: it is not JSON") from exc
    if not isinstance(row, dict):
        raise ContractError(RUN_SPEC_NAME, row, "deploy again: it is not an object")
    spec = decode(RunSpec, row)
    if spec.schema > SCHEMA:
        raise NewerSchema(f"{RUN_SPEC_NAME} schema", spec.schema, "start workers of this version")
    if not _ENTRYPOINT.fullmatch(spec.entrypoint):
        raise ContractError("run.entrypoint", spec.entrypoint, "write it as module:callable")
    if spec.batch_size < 1:
        raise ContractError("run.batch_size", spec.batch_size, "make it at least 1")
    for name in ("item_timeout", "setup_timeout"):
        if getattr(spec, name) <= timedelta(0):
            raise ContractError(f"run.{name}", getattr(spec, name), "make it longer than zero")
    return spec
