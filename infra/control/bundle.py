"""The functions' deployment package, made without Docker: locked wheels and our own packages.

Made for Python and processor of Lambda; for the local system, whose emulator runs functions in
its own interpreter, for that interpreter instead.
"""

import compileall
import hashlib
import py_compile
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import jsii
from aws_cdk import AssetHashType, BundlingOptions, ILocalBundling
from aws_cdk import aws_lambda as lambda_
from uv import find_uv_bin

from infra.control import model
from spindown.error import ConfigError

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "locks" / "functions.txt"

RUNTIME = lambda_.Runtime.PYTHON_3_14
ARCHITECTURE = lambda_.Architecture.ARM_64

#: Where Lambda unpacks the package; tracebacks name it.
_MOUNTED_AT = "/var/task"

#: What of ours a function imports.
_PACKAGES = (
    "functions",
    "spindown/__init__.py",
    "spindown/error.py",
    "spindown/app",
    "spindown/aws",
    "spindown/config",
    "spindown/contract",
    "spindown/domain",
)

#: How the package is made decides its content too.
_OWN_MAKING = (Path(__file__).resolve(), Path(model.__file__).resolve())

#: What uv installs besides the packages themselves and no function reads.
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
        return ("--python-platform", "aarch64-manylinux2014", "--python-version", "3.14")

    @property
    def fingerprint(self) -> str:
        """Return what tells apart the wheels of two targets."""
        if self is Target.HOST:
            return f"{sysconfig.get_platform()} {sys.version}"
        return " ".join((*self.options, "compiled" if self.is_compiled else "source"))

    @property
    def is_compiled(self) -> bool:
        """Tell whether bytecode goes into the package: if this Python's is the target's.

        Lambda keeps none, so without it each cold start compiles what it imports, which takes
        as long as the rest of it (docs/bench/cold_start.json). On this machine Python keeps it.
        """
        return self is Target.LAMBDA and RUNTIME.name == "python{}.{}".format(*sys.version_info)


def digest(target: Target) -> str:
    """Return the SHA-256 of everything that the package is made from."""
    found = hashlib.sha256(target.fingerprint.encode())
    for path in (LOCK, *_OWN_MAKING, *sources()):
        found.update(f"\0{path.relative_to(ROOT)}\0".encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def sources() -> Iterator[Path]:
    """Yield our own files that go into the package, in a fixed order."""
    for name in _PACKAGES:
        path = ROOT / name
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (one for one in found if one.is_file() and "__pycache__" not in one.parts)


def make_bundle(directory: Path, target: Target) -> None:
    """Fill ``directory`` with the package (raises ConfigError if uv cannot)."""
    command = [
        find_uv_bin(),
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--require-hashes",
        f"--requirement={LOCK}",
        f"--target={directory}",
        *target.options,
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        said = " ".join(done.stderr.split())[-300:]
        raise ConfigError(
            "locks/functions.txt", said, "make its packages reachable, then run the command again"
        )
    for name in _LEFT_OUT:
        path = directory / name
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    model.trim_models(directory / "botocore" / "data")
    for path in sources():
        copy = directory / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    if target.is_compiled:
        compile_sources(directory)


def compile_sources(directory: Path) -> None:
    """Put this Python's bytecode beside every module, for good: the zip has no true times."""
    compileall.compile_dir(
        directory,
        quiet=1,
        workers=0,
        stripdir=str(directory),
        prependdir=_MOUNTED_AT,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )


@jsii.implements(ILocalBundling)
class FunctionBundle:
    """The package as CDK takes it; its hash follows from what goes into it.

    So an unchanged one is neither made nor uploaded again.
    """

    def __init__(self, target: Target) -> None:
        #: Why the package could not be made; CDK itself keeps the words of it only.
        self.failure: ConfigError | None = None
        self._target = target

    @property
    def code(self) -> lambda_.Code:
        """Return the package as an asset, for all functions."""
        return lambda_.Code.from_asset(
            str(ROOT / "functions"),
            asset_hash=digest(self._target),
            asset_hash_type=AssetHashType.CUSTOM,
            bundling=BundlingOptions(image=RUNTIME.bundling_image, local=self),
        )

    def try_bundle(self, output_dir: str, *_: Any, **_options: Any) -> bool:
        """Fill the directory; True tells CDK that no container is needed."""
        try:
            make_bundle(Path(output_dir), self._target)
        except ConfigError as exc:
            self.failure = exc
            raise
        return True
