"""The environment in which programs talk to the local system instead of AWS.

One set of variables serves the deploy, the functions, the guests and the user's own shell. The
keys are made up; the emulator takes any, and none of them opens anything.
"""

import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from spindown.contract.settings import ENV_SPOT_ADVISOR

ACCOUNT = "000000000000"
ACCESS_KEY = "spindown-local"
SECRET_KEY = "not-a-secret"  # noqa: S105 - the emulator takes any
PROFILE = "spindown-local"
#: Where the gateway serves the spot advisor's file.
ADVISOR_PATH = "/spot-advisor-data.json"

#: What must not leak in from the user's shell, or calls would go somewhere else.
_FOREIGN_PREFIX = "AWS_"
_LOOPBACK = "127.0.0.1,localhost"


def aws_environment(endpoint: str, region: str) -> dict[str, str]:
    """Return the variables that point every AWS SDK and tool at `endpoint`."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_EC2_METADATA_DISABLED": "true",
        ENV_SPOT_ADVISOR: f"{endpoint}{ADVISOR_PATH}",
        "NO_PROXY": _LOOPBACK,
        "no_proxy": _LOOPBACK,
    }


def cleaned(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without anything that speaks of AWS."""
    return {
        name: value for name, value in environment.items() if not name.startswith(_FOREIGN_PREFIX)
    }


def outer_environment() -> dict[str, str]:
    """Return this process's own environment without anything that speaks of AWS."""
    return cleaned(os.environ)


@contextmanager
def environment_of_process(changes: Mapping[str, str]) -> Iterator[None]:
    """Give this process, and what it starts, a clean environment with `changes`.

    MiniStack reads its settings from the environment and hands its own environment to functions.
    """
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(cleaned(before) | dict(changes))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@contextmanager
def temporary_files_in(directory: Path) -> Iterator[None]:
    """Keep this process's temporary files in a directory that is empty before and gone after.

    MiniStack unpacks functions into temporary directories, which a killed process leaves behind.
    """
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    before, tempfile.tempdir = tempfile.tempdir, str(directory)
    try:
        yield
    finally:
        tempfile.tempdir = before
        shutil.rmtree(directory, ignore_errors=True)


def write_profile(path: Path, *, endpoint: str, region: str) -> None:
    """Write an AWS config file whose profiles point at the local system."""
    section = "\n".join(
        [
            f"region = {region}",
            f"endpoint_url = {endpoint}",
            f"aws_access_key_id = {ACCESS_KEY}",
            f"aws_secret_access_key = {SECRET_KEY}",
        ]
    )
    path.write_text(f"[default]\n{section}\n\n[profile {PROFILE}]\n{section}\n", encoding="utf-8")


def export_lines(profile: Path) -> str:
    """Return the lines a user pastes into a shell to work against the local system."""
    settings = {"AWS_CONFIG_FILE": str(profile), "AWS_PROFILE": PROFILE}
    lines = [f"export {name}={shlex.quote(value)}" for name, value in settings.items()]
    return "\n".join([*lines, "unset AWS_ENDPOINT_URL AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY"])
