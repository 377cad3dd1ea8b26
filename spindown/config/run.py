"""``[workload.NAME.run]``: the user's code, and how it is called."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from spindown import builtin
from spindown.config.duration import format_duration
from spindown.config.form import (
    AtLeastOne,
    Duration,
    Flag,
    SecretReference,
    TomlTable,
    check_partition,
    name_pattern,
    remedy,
)
from spindown.contract.run_spec import OnNewCode, Results
from spindown.domain.worker_lifecycle import STOP_GRACE_AT_MOST

ImageReference = Annotated[
    str,
    name_pattern(
        "an image",
        r"[a-z0-9][a-z0-9._/:-]{0,254}(:[\w.-]{1,128})?(@sha256:[0-9a-f]{64})?",
        "the form registry/name:tag or registry/name@sha256:...",
    ),
    BeforeValidator(check_partition),
]
VariableName = Annotated[
    str, name_pattern("a variable", r"[A-Za-z_][A-Za-z0-9_]*", "letters, digits and _")
]
VariableValue = Annotated[str, name_pattern("a value", r"[^\0]*", "any signs but NUL")]
Requirement = Annotated[
    str, name_pattern("a requirement", r"[^\r\n]+", "one line, as in requirements.txt")
]

#: What ``verify`` stands for. Each item is a call of its own, so that one is committed soon.
_BUILT_IN: Mapping[str, Any] = {
    "entrypoint": "verification:run",
    "code": Path(builtin.__file__).parent,
    "batch_size": 1,
}

_SLOTS = range(1, 65)


def _check_slots(value: object) -> object:
    is_number = isinstance(value, int) and not isinstance(value, bool) and value in _SLOTS
    if not is_number and value not in {"per-gpu", "per-instance"}:
        raise ValueError('write "per-gpu", "per-instance" or a whole number from 1 to 64')
    return value


class RunConfig(TomlTable):
    """``[workload.NAME.run]``: the user's code and how it is called.

    Exactly one of ``entrypoint``, ``command``, ``image``, ``folders`` and ``verify``; an image may
    have a command besides.
    """

    #: ``module:callable``, found below ``code``.
    entrypoint: (
        Annotated[
            str,
            name_pattern(
                "an entrypoint", r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", "the form module:callable"
            ),
        ]
        | None
    ) = None
    #: A program and its arguments, started in ``code``.
    command: tuple[Annotated[str, Field(min_length=1)], ...] | None = Field(
        default=None, min_length=1
    )
    #: A container image.
    image: ImageReference | None = None
    #: Whether jobs are folders with a command, as ``spindown run`` sends them.
    folders: Flag = False
    #: Whether its jobs are those of ``spindown verify``, whose code is Spindown's own.
    verify: Flag = False
    #: Directory of the user's code, or one Python file, which goes with what it imports from beside
    #: it; relative to spindown.toml. Images and folders may do without.
    code: Path | None = None
    #: requirements.txt below ``code``, or its lines; installed on the instance.
    requirements: Annotated[
        str | tuple[Requirement, ...] | None,
        BeforeValidator(lambda value: None if value == [] else value),
    ] = None
    #: Whether a requirement without a wheel is built on the instance, which runs its code.
    allow_source_builds: Flag = False
    results: Results = Results.PER_ITEM
    batch_size: AtLeastOne = 16
    item_timeout: Duration = timedelta(minutes=10)
    setup_timeout: Duration = timedelta(minutes=15)
    job_timeout: Duration | None = None
    stop_grace: Duration = timedelta(seconds=10)
    env: dict[VariableName, VariableValue] = Field(default_factory=dict)
    #: Environment variable -> SSM parameter, or name or ARN of a secret of Secrets Manager.
    secrets: dict[VariableName, SecretReference] = Field(default_factory=dict)
    slots: Annotated[
        Literal["per-gpu", "per-instance"] | Annotated[int, Field(ge=1, le=64)],
        BeforeValidator(_check_slots),
    ] = "per-gpu"
    on_new_code: OnNewCode = OnNewCode.RESTART
    #: Whether the code may ask instance metadata, and so act with the worker's role.
    metadata_access: Flag = False

    @model_validator(mode="before")
    @classmethod
    def _bring_own_code(cls, written: object) -> object:
        """Name the code of ``spindown verify``, so that it is packed and called as any code is."""
        if not isinstance(written, Mapping) or written.get("verify") is not True:
            return written
        for key in ("entrypoint", "command", "image", "folders", "code", "requirements", "results"):
            # A list has no hash.
            if written.get(key) not in (_BUILT_IN.get(key), None, False):
                raise remedy(key, "leave it out: the code of `spindown verify` is Spindown's own")
        return {**written, **_BUILT_IN}

    @model_validator(mode="after")
    def _have_time(self) -> "RunConfig":
        for name in ("item_timeout", "setup_timeout", "job_timeout"):
            if (length := getattr(self, name)) is not None and not length:
                raise remedy(name, "make it longer than zero")
        return self

    @model_validator(mode="after")
    def _take_folders_alone(self) -> "RunConfig":
        if not self.folders:
            return self
        if (self.entrypoint, self.command, self.image) != (None, None, None):
            raise remedy("folders", "leave it out beside entrypoint, command or image")
        if self.results is not Results.PER_ITEM:
            raise remedy("results", "leave it out: the result of a folder is its exit status")
        return self

    @model_validator(mode="after")
    def _have_one_mode(self) -> "RunConfig":
        called = (self.entrypoint, self.command, self.image)
        if not self.folders and called == (None, None, None):
            raise remedy("entrypoint", "give one of entrypoint, command, image, folders and verify")
        if self.entrypoint is not None and (self.command or self.image):
            raise remedy("entrypoint", "leave it out beside command or image")
        if self.code is None and self.image is None and not self.folders:
            raise remedy("code", "name the directory of the code")
        if self.requirements is not None and (self.code is None or self.image is not None):
            raise remedy("requirements", "leave it out: an image brings its own packages")
        if self.allow_source_builds and self.requirements is None:
            raise remedy("allow_source_builds", "leave it out: there are no requirements")
        if self.stop_grace > STOP_GRACE_AT_MOST:
            raise remedy("stop_grace", f"make it at most {format_duration(STOP_GRACE_AT_MOST)}")
        if both := set(self.env) & set(self.secrets):
            raise remedy("secrets", f"take {min(both)} out of env or of secrets")
        if self.entrypoint is not None and self.results is not Results.PER_ITEM:
            raise remedy("results", "leave it out: an entrypoint gives a result for each item")
        return self
