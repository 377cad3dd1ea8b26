"""A Linux kernel of its own as a process: tests that need what the kernel here does not give.

User-mode Linux (Linux, Documentation/virt/uml/user_mode_linux_howto_v2.rst) runs on the files of
this machine, which it may only read; what its programs write is in its memory.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
_KERNEL = "linux.uml"
_SECONDS = 300.0
_INIT = """\
#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs -o size=1g tmpfs /mnt
mount -t cgroup2 cgroup2 /sys/fs/cgroup
export HOME=/mnt TMPDIR=/mnt PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
export PYTHONDONTWRITEBYTECODE=1
cd {root}
{command}
echo "guest: status $?"
halt -f
"""


def run_in_guest(command: Sequence[str], directory: Path, *, memory: str = "2G") -> str:
    """Run a program as root in a machine of its own; return what it prints.

    Args:
        command: the program and its arguments, which hold no quotes.
        directory: where the script is kept that starts it.
        memory: of the machine.
    """
    if sys.platform != "linux" or shutil.which(_KERNEL) is None:
        pytest.fail("a guest needs user-mode Linux (apt-get install user-mode-linux)")
    init = directory / "init"
    init.write_text(_INIT.format(root=ROOT, command=" ".join(command)))
    init.chmod(0o755)
    options = [f"mem={memory}", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro"]
    # Its network is none, its console is this process's.
    options += ["quiet", f"init={init}", "con=null", "con0=null,fd:1"]
    done = subprocess.run(
        [_KERNEL, *options],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_SECONDS,
        cwd=directory,
        env={
            "HOME": str(directory),
            "TMPDIR": str(directory),
            "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
        },
    )
    said = done.stdout.decode(errors="replace")
    assert re.search(r"^guest: status 0\r?$", said, re.MULTILINE), said
    return said
