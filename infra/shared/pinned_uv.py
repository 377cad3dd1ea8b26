"""The uv by which instances install: fetched where one deploys, so that none needs pip for it.

It is the binary of the wheel that locks/bootstrap.txt pins, so its bytes are the same whoever
deploys, and the wheel of Spindown does not carry it.
"""

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from uv import find_uv_bin

from spindown.config.form import Architecture
from spindown.infra.shared.worker_kit import PACKAGE

#: Architecture -> what ``uname -m`` and the platforms of wheels call it.
MACHINES: Mapping[Architecture, str] = {"x86_64": "x86_64", "arm64": "aarch64"}

_LOCK = PACKAGE / "locks" / "bootstrap.txt"
#: Older than the glibc of any image that has Python 3.9.
_PLATFORM = "manylinux_2_17"
#: Seconds.
_FETCHED_WITHIN = 300.0
#: CDK forces colours on what it starts.
NO_COLOUR = ("--color", "never")
_SHOWN_CHARACTERS = 300


def fetch_uv(architecture: Architecture) -> bytes | None:
    """Return the binary; None if it cannot be fetched, which is said in one line.

    Instances then fetch it themselves.
    """
    with TemporaryDirectory() as directory:
        command = [
            *(find_uv_bin(), "pip", "install", "--quiet", *NO_COLOUR, "--no-deps"),
            "--only-binary=:all:",
            *("--require-hashes", f"--requirement={_LOCK}", f"--target={directory}"),
            *("--python", sys.executable),
            f"--python-platform={MACHINES[architecture]}-{_PLATFORM}",
        ]
        try:
            done = subprocess.run(
                command, check=False, capture_output=True, text=True, timeout=_FETCHED_WITHIN
            )
            why = why_failed(done)
        except subprocess.TimeoutExpired as exc:
            why = str(exc)
        if not why:
            return (Path(directory) / "bin" / "uv").read_bytes()
    sys.stderr.write(
        f"spindown: instances with {architecture} fetch uv with pip, which takes seconds of each "
        "install, since it could not be fetched here: make the package index reachable, then "
        f"deploy again ({why})\n"
    )
    return None


def why_failed(done: "subprocess.CompletedProcess[str]") -> str:
    """Return why a command failed that fetches or finds something; "": it did not."""
    if done.returncode == 0:
        return ""
    return say_cause(done.stderr + done.stdout) or f"it ended with {done.returncode} and no word"


def say_cause(said: str) -> str:
    """Return the host that uv could not reach and why; without a host what it said, shortened."""
    # Who may read an index from here is nobody's concern elsewhere.
    said = re.sub(r"(https?://)[^/\s`)]*@", r"\1", said)
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    # Each is the cause of the one before; what else is told may be a hint, with a link to help.
    causes = [line for line in lines if line.startswith(("cause: ", "Caused by: "))]
    host = re.search(r"(?:`|url \()https?://([^/\s`)]+)", said)
    if host is None or not causes:
        return " ".join(lines)[:_SHOWN_CHARACTERS]
    return f"{host[1]}: {causes[-1].partition(': ')[2][:_SHOWN_CHARACTERS]}"
