"""A machine of its own: tests that need what the kernel here does not give.

QEMU emulates the processor, so it runs wherever a process may; it boots the kernel that Debian's
package ``linux-image-amd64`` leaves in ``/boot``, on the files of this machine, which it may only
read (9P). What its programs write is in its memory.
"""

import gzip
import lzma
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
_QEMU = "qemu-system-x86_64"
#: Needs no libraries.
_BUSYBOX = Path("/bin/busybox")
#: Modules by which the kernel sees the files; what they need is loaded before.
_MODULES = ("virtio_pci", "9pnet_virtio", "9p")
#: And those for disks of its own.
_DISK_MODULES = ("nvme", "ext4")
_SECONDS = 900.0
_INIT = """\
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
for module in /modules/*; do /bin/busybox insmod $module; done
/bin/busybox mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=1048576 host /root
exec /bin/busybox switch_root /root {script}
"""
_SCRIPT = """\
#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs -o size=1g tmpfs /mnt
mount -t cgroup2 cgroup2 /sys/fs/cgroup
export HOME=/mnt TMPDIR=/mnt PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
export PYTHONDONTWRITEBYTECODE=1
cd {root}
{command}
echo "guest: status $?"
echo o > /proc/sysrq-trigger
sleep 60
"""


def run_in_guest(
    command: Sequence[str], directory: Path, *, memory: str = "2G", disks: Sequence[Path] = ()
) -> str:
    """Run a program as root in a machine of its own; return what it prints.

    Args:
        command: the program and its arguments, which hold no quotes.
        directory: where the machine's first files are kept.
        memory: of the machine.
        disks: files that it has as NVMe disks, /dev/nvme0n1 and so on.
    """
    script = directory / "script"
    script.write_text(_SCRIPT.format(root=ROOT, command=" ".join(command)))
    script.chmod(0o755)
    kernel = _newest_kernel()
    start = directory / "start"
    wanted = (*_MODULES, *(_DISK_MODULES if disks else ()))
    start.write_bytes(_first_files(kernel.name.removeprefix("vmlinuz-"), script, wanted))
    options = [
        *("-accel", "tcg", "-cpu", "max", "-m", memory, "-no-reboot"),
        # Its network is none, its console is this process's.
        *("-nodefaults", "-display", "none", "-serial", "stdio"),
        *("-kernel", str(kernel), "-initrd", str(start)),
        # On a busy machine an emulated timer ticks too late for the kernel's check of it.
        *("-append", "console=ttyS0 quiet panic=-1 no_timer_check"),
        *("-fsdev", "local,id=host,path=/,readonly=on,security_model=none,multidevs=remap"),
        *("-device", "virtio-9p-pci,fsdev=host,mount_tag=host"),
    ]
    for number, disk in enumerate(disks):
        options += ["-drive", f"file={disk},format=raw,if=none,id=disk{number}"]
        options += ["-device", f"nvme,serial={number},drive=disk{number}"]
    done = subprocess.run(
        [_QEMU, *options],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_SECONDS,
        cwd=directory,
    )
    said = done.stdout.decode(errors="replace")
    assert re.search(r"^guest: status 0\r?$", said, re.MULTILINE), said
    return said


def _newest_kernel() -> Path:
    kernels = sorted(Path("/boot").glob("vmlinuz-*"), key=lambda path: path.stat().st_mtime)
    if shutil.which(_QEMU) is None or not _BUSYBOX.exists() or not kernels:
        packages = "qemu-system-x86 busybox-static linux-image-amd64"
        pytest.fail(f"a guest needs QEMU and a kernel (apt-get install {packages})")
    return kernels[-1]


def _first_files(release: str, script: Path, wanted: Sequence[str]) -> bytes:
    """Return the file system that the kernel starts from, as an archive."""
    modules = _modules(Path("/lib/modules") / release, wanted)
    return gzip.compress(
        _archive(
            {
                "init": _INIT.format(script=script).encode(),
                "bin/busybox": _BUSYBOX.read_bytes(),
                **{f"modules/{n:02}": data for n, data in enumerate(modules)},
                "proc/": b"",
                "root/": b"",
            }
        ),
        compresslevel=1,
    )


def _modules(directory: Path, names: Sequence[str]) -> Iterator[bytes]:
    """Return modules, each after those that it needs (modules.dep(5))."""
    needs: dict[str, tuple[str, ...]] = {}
    for line in (directory / "modules.dep").read_text().splitlines():
        path, _, rest = line.partition(":")
        needs[path] = tuple(reversed(rest.split()))
    places = {Path(path).name.partition(".")[0]: path for path in needs}
    wanted = [path for name in names for path in (*needs[places[name]], places[name])]
    for path in dict.fromkeys(wanted):
        data = (directory / path).read_bytes()
        yield lzma.decompress(data) if path.endswith(".xz") else data


def _archive(files: Mapping[str, bytes]) -> bytes:
    """Return files as an archive of cpio (Linux, driver-api/early-userspace/buffer-format)."""
    found = bytearray()
    parents = {f"{parent}/" for name in files for parent in Path(name).parents if parent.name}
    whole = {**dict.fromkeys(sorted(parents), b""), **files, "TRAILER!!!": b""}
    for number, (name, data) in enumerate(whole.items(), start=1):
        kind = stat.S_IFDIR if name.endswith("/") else stat.S_IFREG
        path = name.rstrip("/").encode() + b"\0"
        head = (number, kind | 0o755, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0)
        found += b"070701" + b"".join(b"%08X" % field for field in head) + path
        found += bytes(-len(found) % 4) + data
        found += bytes(-len(found) % 4)
    return bytes(found)
