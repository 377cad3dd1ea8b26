"""A machine of files: its processes, its GPUs, the records it has left."""

import os
import sys
import textwrap
from pathlib import Path

from spindown.contract.usage import UsageRecord, decode_usage, usage_prefix
from spindown.memory.store import MemoryObjectStore
from tests.work import WORKLOAD

TICKS = os.sysconf("SC_CLK_TCK")
GIB = 1024**3


def write_process(
    proc: Path, number: int, *, parent: int, session: int, seconds: float = 0.0, pages: int = 0
) -> None:
    """Write what proc(5) says of a process, with a name made to mislead."""
    ticks = int(seconds * TICKS / 2)
    fields = ["S", parent, session, session, *[0] * 7, ticks, 0, ticks, 0, *[0] * 6, pages, 0]
    (proc / str(number)).mkdir(exist_ok=True)
    text = f"{number} ((a) b () {' '.join(map(str, fields))}\n"
    (proc / str(number) / "stat").write_text(text)


def fake_smi(tmp_path: Path, body: str) -> str:
    script = tmp_path / "nvidia-smi"
    script.write_text(f"#!{sys.executable}\n{textwrap.dedent(body)}")
    script.chmod(0o755)
    return str(script)


def read_all(objects: MemoryObjectStore) -> list[UsageRecord]:
    return [
        record
        for found in objects.list(usage_prefix(WORKLOAD))
        for record in decode_usage(objects.get(found.key).data, workload=WORKLOAD)
    ]
