"""Real container runtimes in namespaces of their own: nothing of them outlives the test.

An engine is an instance as its containers see it: a network with a bridge, a registry on loopback
that holds one image, and instance metadata behind a route. Its ``bin`` directory holds the
runtime's client, which adds only what plays the machine: its address and its memory.
"""

import os
import resource
import shutil
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.local.waiting import until
from tests.proof.container.registry import IMAGE, PORT, write_image
from tests.worker_system.kit import ROOT, SYSTEM

#: What a container may take here, so that a test of memory spares the machine.
MEMORY = "96m"
METADATA = "http://169.254.169.254/"
_FETCH = ("wget", "-q", "-O-")
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
#: The worker's user on an instance, and the group that may use docker's socket.
_WORKER, _DOCKER_GROUP = 64003, 64004
#: Who builds the packages of the code.
_BUILDER = 64005
#: Program -> Debian's package that holds it.
_COMMON = {
    "busybox": "busybox-static",
    "ip": "iproute2",
    "iptables": "iptables",
    "nft": "nftables",
    "runc": "runc",
    "unshare": "util-linux",
}

#: Metadata is another machine: what goes there from a container is forwarded, as on EC2.
_MACHINE = """
set -eu
mount --make-rprivate /
mount -t tmpfs tmpfs /run
ip link set lo up
ip netns add metadata
ip link add outside type veth peer name inside netns metadata
ip address add 192.0.2.1/24 dev outside
ip link set outside up
ip -n metadata address add 192.0.2.2/24 dev inside
ip -n metadata address add 169.254.169.254/32 dev inside
ip -n metadata link set inside up
ip -n metadata route add default via 192.0.2.1
ip route add 169.254.169.254 via 192.0.2.2
echo 1 >/proc/sys/net/ipv4/ip_forward
end_with_me="setpriv --pdeathsig KILL"
ip netns exec metadata $end_with_me busybox httpd -f -p 169.254.169.254:80 -h "$1/metadata" &
$end_with_me "$2" -m tests.proof.container.registry "$1/image" &
"""


class Engine(ABC):
    """One runtime, started; ``close`` ends it with all that it runs."""

    #: As `find_runtime` names it.
    name: str
    #: Program -> package, besides what every engine needs.
    programs: Mapping[str, str]

    def __init__(self, directory: Path) -> None:
        _need({**_COMMON, **self.programs})
        self.directory = directory
        # What is mounted from below it is open to the user of the user's code.
        for path in (directory, *directory.parents[:3]):
            path.chmod(path.stat().st_mode | 0o711)
        for name in ("bin", "image", "metadata"):
            (directory / name).mkdir()
        (directory / "metadata" / "index.html").write_text("credentials")
        busybox = str(shutil.which("busybox", path=PATH))
        self.digest = write_image(directory / "image", busybox)
        self._write("bin/docker", "#!/bin/sh\nexit 1\n")
        self._start_machine()
        try:
            self._write(f"bin/{self.name}", self._client())
            until(lambda: self._can("info") and self._serves(), seconds=60)
        except BaseException:
            self._end_machine()
            raise

    @property
    def image(self) -> str:
        """The image by its digest, as a workload should name it."""
        return f"{IMAGE.rpartition(':')[0]}@{self.digest}"

    @property
    def env(self) -> dict[str, str]:
        """The environment of a worker that finds this runtime and no other."""
        return {"PATH": f"{self.directory}/bin:{PATH}", "HOME": str(self.directory)}

    def containers(self) -> Sequence[str]:
        """Return the names of all containers, ended ones included."""
        return self.ask("ps", "--all", "--format", "{{.Names}}").split()

    def ask(self, *arguments: str) -> str:
        """Run the runtime's client."""
        done = subprocess.run(
            [self.directory / "bin" / self.name, *arguments],
            check=False,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def inside(self, *command: str, uid: int = 0) -> "subprocess.CompletedProcess[str]":
        """Run a program of the instance itself."""
        enter = ["nsenter", "--target", str(self._init), "--net", "--mount"]
        user = ["setpriv", f"--reuid={uid}", "--clear-groups"] if uid else []
        return subprocess.run(
            [*enter, *user, *command],
            check=False,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def reaches_metadata(self, uid: int = 0) -> bool:
        """Tell whether a user of the instance, in no container, gets an answer."""
        asked = self.inside("busybox", "timeout", "3", "busybox", *_FETCH, METADATA, uid=uid)
        return asked.stdout == "credentials"

    def guard(self, uid: int) -> None:
        """Load the rule that worker/system/guard-metadata.sh loads, for users that are here."""
        rule = self.directory / "metadata.nft"
        text = (SYSTEM / "metadata.nft").read_text(encoding="utf-8")
        for name, user in (("spindown-run", uid), ("spindown-build", _BUILDER)):
            text = text.replace(f'"{name}"', str(user))
        rule.write_text(text, encoding="utf-8")
        done = self.inside("nft", "--file", str(rule))
        assert done.returncode == 0, done.stderr

    def unguard(self) -> None:
        """Take the rule away."""
        assert self.inside("nft", "delete", "table", "inet", "spindown").returncode == 0

    def close(self) -> None:
        """End everything."""
        self._end_machine()

    def _end_machine(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._holder.pid, signal.SIGKILL)
        self._holder.wait()

    @abstractmethod
    def _client(self) -> str:
        """Return the script that stands for the runtime's client."""

    def _start_machine(self, *spaces: str, script: str = "exec sleep infinity") -> None:
        """Start the namespaces, and in them a script that does not end."""
        with (self.directory / "log").open("w") as log:
            self._holder = subprocess.Popen(
                # The machine ends with the process of the test, however that ends.
                [
                    *("setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount", *spaces),
                    *("sh", "-c", _MACHINE + script, "sh", str(self.directory), sys.executable),
                ],
                cwd=ROOT,
                env={"PATH": PATH, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def _init(self) -> int:
        """A process in the namespaces: what the test has started has become it."""
        return self._holder.pid

    def _can(self, *arguments: str) -> bool:
        with suppress(AssertionError):
            self.ask(*arguments)
            return True
        assert self._holder.poll() is None, (self.directory / "log").read_text()
        return False

    def _serves(self) -> bool:
        url = f"http://127.0.0.1:{PORT}/v2/"
        return self.inside("busybox", *_FETCH, url).returncode == 0

    def _write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return path


class Docker(Engine):
    """Docker's daemon, as on AWS's deep learning images, and its client."""

    name = "docker"
    programs: Mapping[str, str] = {"dockerd": "docker.io", "docker-init": "docker.io"}

    def _start_machine(self, *spaces: str, script: str = "") -> None:
        root = self.directory
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        script = (
            f"exec dockerd --data-root {root}/data --exec-root {root}/exec --pidfile {root}/pid "
            f"--host unix://{root}/docker.sock --group {_DOCKER_GROUP} --storage-driver vfs "
            f"--exec-opt native.cgroupdriver=cgroupfs --default-ulimit nofile={limit}:{limit}"
        )
        kill_all = ("--pid", "--fork", "--kill-child", "--mount-proc")
        super()._start_machine(*kill_all, script=script)

    def _end_machine(self) -> None:
        with suppress(psutil.Error):
            # The other one sees it end, and all that it has started with it.
            psutil.Process(self._init).kill()
            self._holder.wait(timeout=20)
        super()._end_machine()

    @property
    def _init(self) -> int:
        """The first process of the namespace of processes, which the other one has forked."""
        return until(psutil.Process(self._holder.pid).children)[0].pid

    def _client(self) -> str:
        # With the rights that worker/system/spindown-worker.service leaves to what it starts.
        docker = (
            f"setpriv --reuid={_WORKER} --regid={_WORKER} --groups={_DOCKER_GROUP} --no-new-privs "
            f"--inh-caps=-all --bounding-set=-all {shutil.which('docker', path=PATH)}"
        )
        return (
            f"#!/bin/sh\nexport DOCKER_HOST=unix://{self.directory}/docker.sock\n"
            f"export HOME={self.directory}\n"
            f'if [ "$1" = run ]; then shift; set -- run --memory {MEMORY} "$@"; fi\n'
            f'exec {docker} "$@"\n'
        )


class Podman(Engine):
    """Podman, which has no daemon; each container has a monitor that is nobody's child."""

    name = "podman"
    programs: Mapping[str, str] = {"podman": "podman", "conmon": "conmon", "catatonit": "catatonit"}

    def close(self) -> None:
        """End everything, the monitors first."""
        self.ask("rm", "--all", "--force", "--time", "0")
        super().close()

    def _client(self) -> str:
        root = self.directory
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        # Limits of a process that may not raise its own, and what this kernel has of cgroups.
        (root / "containers.conf").write_text(
            f'[containers]\ndefault_ulimits = ["nofile={limit}:{limit}", "nproc={limit}:{limit}"]\n'
            '[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
        )
        (root / "storage.conf").write_text(
            f'[storage]\ndriver = "vfs"\ngraphroot = "{root}/graph"\nrunroot = "{root}/run"\n'
        )
        (root / "registries.conf").write_text(
            f'[[registry]]\nlocation = "localhost:{PORT}"\ninsecure = true\n'
        )
        names = {"CONF": "containers", "STORAGE_CONF": "storage", "REGISTRIES_CONF": "registries"}
        exports = "".join(
            f"export CONTAINERS_{name}={root}/{file}.conf\n" for name, file in names.items()
        )
        return (
            f"#!/bin/sh\n{exports}"
            f'if [ "$1" = run ]; then shift; set -- run --memory {MEMORY} "$@"; fi\n'
            f"exec nsenter --target {self._init} --net --mount -- "
            f'{shutil.which("podman", path=PATH)} "$@"\n'
        )


ENGINES: Mapping[str, type[Engine]] = {one.name: one for one in (Docker, Podman)}


def _need(programs: Mapping[str, str]) -> None:
    missing = {package for name, package in programs.items() if not shutil.which(name, path=PATH)}
    if missing or os.geteuid() != 0:
        pytest.fail(
            "No container was run: that needs root on Linux, and the packages that are missing "
            f"here: {', '.join(sorted(missing)) or 'none'} (apt-get install "
            f"{' '.join(sorted({*_COMMON.values(), *programs.values()}))})."
        )
