"""The functions' deployment package, made without Docker: locked wheels and our own packages.

The package is made for the Python and the processor of Lambda. For the local system it is made for
the interpreter of its emulator, in which the functions run.

botocore's service models are cut down to what the functions call. Otherwise a client of EC2 reads
the description of hundreds of operations to use seven, and a function waits for that at every
start. The cut changes no answer: an operation that `CALLED` does not list is missing from its
client.
"""

import gzip
import hashlib
import json
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import jsii
from aws_cdk import AssetHashType, BundlingOptions, ILocalBundling
from aws_cdk import aws_lambda as lambda_
from uv import find_uv_bin

from spindown.error import ConfigError
from spindown.infra.shared.pinned_uv import NO_COLOUR, why_failed
from spindown.infra.shared.worker_kit import PACKAGE, files_of

LOCK = PACKAGE / "locks" / "functions.txt"
#: DuckDB, which makes the tables of usage: three times all the rest, so only their maker has it.
TABLE_LOCK = PACKAGE / "locks" / "tables.txt"

RUNTIME = lambda_.Runtime.PYTHON_3_14
ARCHITECTURE = lambda_.Architecture.ARM_64
_VERSION = RUNTIME.name.removeprefix("python")

#: Where Lambda unpacks the package; tracebacks name it.
_MOUNTED_AT = "/var/task"

#: Seconds; a download of Python is part of it.
_COMPILED_WITHIN = 300.0

#: The parts of Spindown that functions import.
PARTS = (
    "__init__.py",
    "aws",
    "builtin",
    "config",
    "contract",
    "control",
    "domain",
    "error.py",
    "functions",
    "job",
    "ledger",
    "operate",
    "port.py",
    "user.py",
    "reason_text.py",
)

#: What uv installs beside the packages, and what no function reads.
_LEFT_OUT = ("bin", ".lock", "boto3/data")


class Target(StrEnum):
    """Where the package runs; the values of the context key ``bundle``."""

    LAMBDA = "lambda"
    HOST = "host"

    @property
    def options(self) -> tuple[str, ...]:
        """Return the options by which uv takes wheels for this target."""
        if self is Target.HOST:
            return ("--python", sys.executable)
        # Lambda's Python 3.14 has glibc 2.34 (Lambda runtimes: Amazon Linux 2023).
        return ("--python-platform", "aarch64-manylinux_2_28", "--python-version", _VERSION)

    def fingerprint(self, python: str) -> str:
        """Return a text that is different where the wheels are; ``python`` makes the package."""
        if self is Target.HOST:
            return f"{sysconfig.get_platform()} {python}"
        return " ".join(self.options)


def digest(target: Target, locks: Sequence[Path] = (LOCK,), *, python: str = sys.version) -> str:
    """Return the SHA-256 of everything that the package is made from.

    For Lambda it is the same whoever deploys. Bytecode is not part of it: with or without, the
    package does the same.
    """
    found = hashlib.sha256(target.fingerprint(python).encode())
    # This module decides what is in the package, so it is part of the digest.
    for path in (*locks, PACKAGE / "infra" / "control" / "bundle.py", *files_of(PARTS)):
        found.update(f"\0{path.relative_to(PACKAGE)}\0".encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def make_bundle(directory: Path, target: Target, locks: Sequence[Path] = (LOCK,)) -> None:
    """Fill ``directory`` with what locks name and our own (raises ConfigError if uv cannot)."""
    command = [
        find_uv_bin(),
        "pip",
        "install",
        "--quiet",
        *NO_COLOUR,
        "--no-deps",
        "--only-binary=:all:",
        "--require-hashes",
        *(f"--requirement={lock}" for lock in locks),
        f"--target={directory}",
        *target.options,
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if why := why_failed(done):
        raise ConfigError(
            " and ".join(f"locks/{lock.name}" for lock in locks),
            why,
            "make its packages reachable, then run the command again",
        )
    for name in _LEFT_OUT:
        path = directory / name
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    trim_models(directory / "botocore" / "data")
    for path in files_of(PARTS):
        copy = directory / path.relative_to(PACKAGE.parent)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


def python_of_lambda(version: tuple[int, int] = sys.version_info[:2]) -> list[str]:
    """Return the command of Lambda's Python: this one, or that which uv finds or downloads.

    Args:
        version: of this Python.
    """
    if "{}.{}".format(*version) == _VERSION:
        return [sys.executable]
    options = ["--quiet", *NO_COLOUR, "--no-project", "--python", _VERSION]
    return [find_uv_bin(), "run", *options, "--", "python"]


def compile_sources(directory: Path, python: Sequence[str]) -> str:
    """Put bytecode beside every module; return why there is none, or "".

    Lambda keeps no bytecode. Without it in the package each cold start compiles what it imports,
    which doubles the start (docs/bench/cold_start.json). It is never checked by time: the zip has
    no true times.
    """
    how = ["--invalidation-mode", "unchecked-hash", "-q", "-j", "0"]
    places = ["-s", str(directory), "-p", _MOUNTED_AT, str(directory)]
    try:
        done = subprocess.run(
            [*python, "-I", "-m", "compileall", *how, *places],
            check=False,
            capture_output=True,
            text=True,
            timeout=_COMPILED_WITHIN,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        return str(exc)
    return why_failed(done)


@cache
def _tell_slower(why: str) -> None:
    """Say that functions start slower, and of several packages only once."""
    sys.stderr.write(
        "spindown: functions of this version of Spindown start half a second slower, "
        f"since no Python {_VERSION} was found or fetched to compile them: install "
        f"one, and remove cdk.out, before you deploy ({why})\n"
    )


@jsii.implements(ILocalBundling)
class FunctionBundle:
    """The package as an asset of CDK; its hash follows from its content.

    So an unchanged package is neither made nor uploaded again.
    """

    def __init__(self, target: Target, locks: Sequence[Path] = (LOCK,)) -> None:
        #: Why the package could not be made; CDK keeps only the text of the error.
        self.failure: ConfigError | None = None
        self._target = target
        self._locks = locks

    @property
    def code(self) -> lambda_.Code:
        """Return the package."""
        return lambda_.Code.from_asset(
            str(PACKAGE / "functions"),
            asset_hash=digest(self._target, self._locks),
            asset_hash_type=AssetHashType.CUSTOM,
            bundling=BundlingOptions(image=RUNTIME.bundling_image, local=self),
        )

    def try_bundle(self, output_dir: str, *_: Any, **_options: Any) -> bool:
        """Fill the directory; True tells CDK that no container is needed."""
        try:
            make_bundle(Path(output_dir), self._target, self._locks)
        except ConfigError as exc:
            self.failure = exc
            raise
        # CDK has opened it to everybody, for users of containers: none is needed here.
        Path(output_dir).chmod((Path(output_dir) / PACKAGE.name).stat().st_mode)
        if self._target is Target.LAMBDA:
            why = compile_sources(Path(output_dir), python_of_lambda())
            if why:
                _tell_slower(why)
        return True


Json = dict[str, Any]

#: Service -> the operations that functions call; an empty list means all of them.
CALLED: Mapping[str, Sequence[str]] = {
    "dynamodb": (),
    "ec2": (
        "CreateFleet",
        "DescribeInstanceTypeOfferings",
        "DescribeInstanceTypes",
        "DescribeInstances",
        "DescribeSpotInstanceRequests",
        "DescribeSpotPriceHistory",
        "RunInstances",
        "TerminateInstances",
    ),
    "imagebuilder": ("GetImage", "StartImagePipelineExecution"),
    "lambda": ("Invoke",),
    "pricing": ("GetProducts",),
    "s3": (),
    "secretsmanager": ("GetSecretValue",),
    "service-quotas": ("ListServiceQuotas",),
    "sns": ("Publish",),
    "sqs": (),
    "ssm": ("GetParameter", "GetParameters"),
}


def trim_models(data: Path) -> None:
    """Cut botocore's ``data`` directory down to the services and operations that are called."""
    for directory in sorted(path for path in data.iterdir() if path.is_dir()):
        if directory.name not in CALLED:
            shutil.rmtree(directory)
            continue
        *old, newest = sorted(directory.iterdir())
        for version in old:
            shutil.rmtree(version)
        _rewrite(newest / "service-2.json.gz", CALLED[directory.name])


def _rewrite(path: Path, operations: Sequence[str]) -> None:
    model = trim(json.loads(gzip.decompress(path.read_bytes())), operations)
    # uv may have linked the file from its cache, which other environments share.
    path.unlink()
    # Without a time in the file the same model gives the same bytes.
    path.write_bytes(gzip.compress(json.dumps(model, separators=(",", ":")).encode(), mtime=0))


def trim(model: Mapping[str, Any], operations: Sequence[str]) -> Json:
    """Return ``model`` with these operations, the shapes they need, and no documentation."""
    kept = {
        name: _undocumented(operation)
        for name, operation in model["operations"].items()
        if not operations or name in operations
    }
    shapes: Json = {}
    needed = list(_shapes_of(kept))
    while needed:
        name = needed.pop()
        if name not in shapes:
            shapes[name] = _undocumented(model["shapes"][name])
            needed.extend(_shapes_of(shapes[name]))
    rest = {key: value for key, value in model.items() if key != "documentation"}
    return {**rest, "operations": kept, "shapes": dict(sorted(shapes.items()))}


def _shapes_of(value: Any) -> Iterator[str]:
    """Yield the names of the shapes that a part of a model refers to."""
    if isinstance(value, Mapping):
        if isinstance(value.get("shape"), str):
            yield value["shape"]
        for part in value.values():
            yield from _shapes_of(part)
    elif isinstance(value, list):
        for part in value:
            yield from _shapes_of(part)


def _undocumented(value: Any) -> Any:
    """Return a part of a model without documentation; a member may also have that name."""
    if isinstance(value, Mapping):
        return {
            key: _undocumented(part)
            for key, part in value.items()
            if key != "documentation" or not isinstance(part, str)
        }
    return [_undocumented(part) for part in value] if isinstance(value, list) else value
