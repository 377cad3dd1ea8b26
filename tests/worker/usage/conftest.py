"""The processes of a machine of files."""

from pathlib import Path

import pytest

from tests.worker.usage.machine import write_process


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    root = tmp_path / "proc"
    (root / "net").mkdir(parents=True)
    (root / "meminfo").write_text("MemTotal:       16777216 kB\nMemFree: 1 kB\n")
    (root / "self").mkdir()
    (root / "self" / "cgroup").write_text("0::/system.slice/spindown-worker.service\n")
    (root / "stat").write_text("cpu  9 0 0 9 0 0 0 0 0 0\ncpu0 5 1 1 80 3 0 0 0 0 0\nintr 1 2\n")
    (root / "net" / "dev").write_text(
        "Inter-|   Receive        |  Transmit\n face |bytes packets |bytes packets\n"
        "    lo: 900 9 0 0 0 0 0 0 900 9 0 0 0 0 0 0\n"
        "  ens5:1000 9 0 0 0 0 0 0 200 9 0 0 0 0 0 0\n"
        "docker0: 700 9 0 0 0 0 0 0 700 9 0 0 0 0 0 0\n"
    )
    (root / "diskstats").write_text(
        " 259 0 nvme0n1 5 0 8 1 6 0 16 1 0 1 1\n"
        " 259 1 nvme0n1p1 5 0 8 1 6 0 16 1 0 1 1\n"
        "   7 0 loop0 5 0 99 1 6 0 99 1 0 1 1\n"
    )
    write_process(root, 1, parent=0, session=1, seconds=900)
    write_process(root, 40, parent=1, session=40, seconds=10, pages=100)
    return root
