"""A kit as it is deployed, stub programs, and scripts run with them."""

import base64
import hashlib
import os
import subprocess
import sysconfig
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spindown.contract.run_spec import RUN_SPEC_NAME, RunSpec, encode_run_spec
from spindown.infra.shared.worker_kit import kit_members

ROOT = Path(__file__).parents[2]
SYSTEM = ROOT / "worker" / "system"
#: EC2 takes no more user data than this, before base64 (EC2 User Guide, "Run commands at launch").
USER_DATA_BYTES_MAX = 16 * 1024


def make_wheel(directory: Path, name: str, files: Mapping[str, str]) -> Path:
    """Write a wheel, version 1.0, of the given files."""
    info = f"{name}-1.0.dist-info"
    members = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},{digest(text.encode())},\n" for path, text in members.items())
    path = directory / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as made:
        for member, text in {**members, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            made.writestr(member, text)
    return path


def digest(data: bytes) -> str:
    """Return a digest as a wheel records it."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def make_kit(directory: Path) -> Path:
    """Lay out a kit."""
    for name, member in kit_members().items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(member.data)
    return directory


def lend_packages(kit: Path) -> None:
    """Lock the worker on one package: all that the environment of the tests has already.

    So the install needs no network, and still takes what it takes from a locked, hashed wheel.
    """
    lent = make_wheel(kit / "wheels", "lent", {"lent.pth": sysconfig.get_path("purelib") + "\n"})
    sha256 = hashlib.sha256(lent.read_bytes()).hexdigest()
    (kit / "locks" / "worker.txt").write_text(f"lent==1.0 --hash=sha256:{sha256}\n")


def zip_code(
    path: Path, files: Mapping[str, str | bytes], *, requirements: str | None, **values: Any
) -> Path:
    """Write a workload's code archive; ``values`` are of its RunSpec."""
    spec = RunSpec(entrypoint="code:run", requirements=requirements, **values)
    with zipfile.ZipFile(path, "w") as made:
        made.writestr(RUN_SPEC_NAME, encode_run_spec(spec))
        for name, data in files.items():
            made.writestr(name, data)
    return path


class Stubs:
    """Programs of the system that only say what they were asked for, first on the PATH."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "bin"
        self.directory.mkdir()
        self.log = directory / "calls"
        self.log.touch()

    def add(self, name: str, script: str = "") -> None:
        """Add a program; ``script`` is what it does after it has said what it was asked for."""
        path = self.directory / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >>"{self.log}"\n{script}\n')
        path.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        """Every call so far, name and arguments."""
        return self.log.read_text().splitlines()

    def calls_of(self, name: str) -> list[str]:
        """The calls of one program, its arguments."""
        return [call.removeprefix(f"{name} ") for call in self.calls if call.startswith(f"{name} ")]

    def run(self, *command: object, **env: str) -> "subprocess.CompletedProcess[str]":
        """Run a program in their midst; a ``.sh`` by the system's shell."""
        shell = ["sh"] if str(command[0]).endswith(".sh") else []
        return subprocess.run(
            [*shell, *map(str, command)],
            check=False,
            capture_output=True,
            text=True,
            # Not the checkout, from which Python would import.
            cwd=self.directory,
            env={**os.environ, **env, "PATH": f"{self.directory}{os.pathsep}{os.environ['PATH']}"},
        )
