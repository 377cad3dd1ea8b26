"""A machine of a base image, on which scripts of EC2 and of Image Builder run."""

import hashlib
import zipfile
from dataclasses import replace
from pathlib import Path

from spindown.contract.image import Kit, UvBinary
from tests.worker_system.kit import Stubs

_CODE = b"code"
#: Its name is its digest.
CODE_URI = f"s3://assets/{hashlib.sha256(_CODE).hexdigest()}.zip"
#: Answers as instance metadata does, but only to those who bring a token.
METADATA = """
case "$*" in
    *"-X PUT"*/latest/api/token*) echo TOKEN ;;
    *"meta-data/placement/region"*"X-aws-ec2-metadata-token: TOKEN"*) echo eu-north-1 ;;
    *"meta-data/tags/instance/spindown:code"*"X-aws-ec2-metadata-token: TOKEN"*)
        echo @code@ ;;
    *) exit 22 ;;
esac
""".replace("@code@", CODE_URI)
#: What starts the worker.
START = [
    "systemctl enable --now spindown-deadman.timer",
    "systemctl enable --now spindown-worker.service",
    "systemctl stop spindown-start.timer",
]


class Machine:
    """A machine with a kit and code to fetch, its system's programs replaced by stubs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.stubs = Stubs(directory)
        for name in ("sleep", "sysctl", "systemctl", "systemd-run"):
            self.stubs.add(name)
        self.stubs.add("curl", METADATA)
        self.stubs.add("aws", f'echo "in $AWS_DEFAULT_REGION"; cp "{directory}/${{4##*/}}" "$5"')
        (directory / CODE_URI.rpartition("/")[2]).write_bytes(_CODE)
        self.kit = self.make_kit('echo "install.sh $*" >>"$CALLS"')
        #: Where user data tells when it began.
        self.begun = directory / "begun"
        #: What the last script has printed.
        self.said = ""

    def add_uv(self, machine: str) -> Kit:
        """Put a uv beside the kit, for what ``uname -m`` says; return the kit that names both."""
        data = b"#!/bin/sh\n"
        (self.directory / "uv.bin").write_bytes(data)
        uv = UvBinary("s3://assets/uv.bin", hashlib.sha256(data).hexdigest())
        return replace(self.kit, uv={machine: uv})

    def make_kit(self, install: str) -> Kit:
        """Write the kit that is fetched, with this install.sh."""
        path = self.directory / "kit.zip"
        with zipfile.ZipFile(path, "w") as made:
            made.writestr("system/install.sh", install)
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        return Kit(uri="s3://assets/kit.zip", sha256=sha256)

    def run(self, text: str) -> int:
        """Run a script; return its exit status."""
        script = self.directory / "script.sh"
        script.write_text(text.replace("/run/spindown-begun", str(self.begun)))
        done = self.stubs.run(script, CALLS=str(self.stubs.log), TMPDIR=str(self.directory))
        self.said = done.stdout + done.stderr
        return done.returncode

    @property
    def fetched(self) -> list[str]:
        """Return the names under which what was fetched from S3 is kept; nobody is first."""
        return sorted(call.split("/")[-1] for call in self.stubs.calls_of("aws"))

    def tamper(self) -> None:
        """Put other bytes where the code lies."""
        (self.directory / CODE_URI.rpartition("/")[2]).write_bytes(b"other")

    @property
    def is_ended(self) -> bool:
        return "systemctl poweroff" in self.stubs.calls
