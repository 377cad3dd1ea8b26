"""The processes of a machine of files."""

from pathlib import Path

import pytest

from tests.worker.usage.machine import write_process


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    root = tmp_path / "proc"
    root.mkdir()
    (root / "meminfo").write_text("MemTotal:       16777216 kB\nMemFree: 1 kB\n")
    (root / "self").mkdir()
    write_process(root, 1, parent=0, session=1, seconds=900)
    write_process(root, 40, parent=1, session=40, seconds=10, pages=100)
    return root
