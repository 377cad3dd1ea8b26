"""A clean Debian in a directory: programs run in it, and systemd boots it in namespaces."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.worker_system.kit import ROOT, make_kit

#: Its Python, for which the kit takes wheels.
SUITE, PYTHON = "bookworm", "3.11"

_ENTER = """
set -eu
r=$1 && shift
mount --make-rprivate /
mount --bind "$r" "$r"
mount -t proc proc "$r/proc"
mount -t sysfs sysfs "$r/sys"
mount -t tmpfs tmpfs "$r/run"
mount -t tmpfs tmpfs "$r/dev"
for node in null zero random urandom; do
    touch "$r/dev/$node"
    mount --bind "/dev/$node" "$r/dev/$node"
done
"""
_RUN = f'{_ENTER}exec chroot "$r" "$@"'

#: `reboot` in a process namespace ends its first process by SIGINT when the power is to go off, and
#: by SIGHUP when it is to come back (reboot(2)).
_BOOT = f"""{_ENTER}
mount -t cgroup2 cgroup2 "$r/sys/fs/cgroup"
touch "$r/dev/console"
mount --bind "$r/console" "$r/dev/console"
mkdir -p "$r/run/systemd/system"
cp -r "$r/boot/units/." "$r/run/systemd/system"
chroot "$r" ip link set lo up
chroot "$r" ip address add 169.254.169.254/32 dev lo
export container=lxc
exec chroot "$r" /lib/systemd/systemd --unit=boot.target --show-status=no
"""
_POWERED_OFF = {-2, 130}


class CleanRoot:
    """The directory, with the kit in ``/kit`` and the worker installed from it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        # A root is open to its users, which a temporary directory is not.
        directory.chmod(0o755)
        _need_tools()
        include = "--include=ca-certificates,iproute2,python3,systemd"
        _check(["debootstrap", "--variant=minbase", include, SUITE, str(directory)])
        make_kit(directory / "kit")
        locks = [f"--requirement={ROOT}/locks/{name}.txt" for name in ("worker", "bootstrap")]
        target = ["--only-binary=:all:", f"--python-version={PYTHON}", "--no-deps"]
        wheels = f"--dest={directory}/kit/wheels"
        _check([sys.executable, "-m", "pip", "download", "-q", *target, wheels, *locks])
        (directory / "console").touch()

    def run(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Run a program as root, with the network of this machine for its packages."""
        isolation = ["--mount", "--pid", "--fork", "--kill-child"]
        return self._unshare(isolation, _RUN, command, timeout=300)

    def run_apart(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Run a program as root in a network of its own, in which there is nobody else."""
        isolation = ["--mount", "--net", "--pid", "--fork", "--kill-child"]
        return self._unshare(isolation, _RUN, command, timeout=300)

    def boot(self, units: Mapping[str, str]) -> bool:
        """Boot ``boot.target``; tell whether the instance then powered itself off in time.

        Args:
            units: unit files and drop-ins, which last for this boot.
        """
        shutil.rmtree(self.directory / "boot", ignore_errors=True)
        for name, text in units.items():
            path = self.directory / "boot" / "units" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        spaces = ["mount", "net", "uts", "ipc", "cgroup", "pid", "fork", "kill-child"]
        try:
            done = self._unshare([f"--{one}" for one in spaces], _BOOT, (), timeout=60)
        except subprocess.TimeoutExpired:
            return False
        assert done.returncode in _POWERED_OFF, done.stderr
        return True

    def _unshare(
        self, options: list[str], script: str, arguments: tuple[str, ...], *, timeout: float
    ) -> "subprocess.CompletedProcess[str]":
        path = "/usr/sbin:/usr/bin:/sbin:/bin"
        proxies = {name: value for name, value in os.environ.items() if name.endswith("_proxy")}
        return subprocess.run(
            ["unshare", *options, "sh", "-c", script, "sh", str(self.directory), *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=timeout,
            env={"PATH": path, "HOME": "/root", **proxies},
        )


def _need_tools() -> None:
    missing = [name for name in ("debootstrap", "unshare") if shutil.which(name) is None]
    if missing or os.geteuid() != 0:
        pytest.fail(
            "a clean root needs to be made by root on Linux, with the packages debootstrap and "
            f"util-linux (missing here: {', '.join(missing) or 'root'})"
        )


def _check(command: list[str]) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
