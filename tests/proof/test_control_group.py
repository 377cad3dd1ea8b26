"""Jobs that share a machine are kept apart by a real kernel's control groups."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spindown.contract.folder import EXIT_STATUS
from spindown.worker.child.failure_cause import Broken, FailureCause, MemoryKills
from spindown.worker.child.runner import ItemDone
from tests.local.waiting import until
from tests.proof.guest.linux import run_in_guest
from tests.worker.child.batch import drain
from tests.worker.child.test_folder import KILLED_BY_SOMEBODY, Cell, pack

pytestmark = pytest.mark.proof


def test_jobs_on_one_machine_are_kept_apart(tmp_path: Path) -> None:
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--color=no"]
    inside = "tests/proof/guest/control_group.py"
    said = run_in_guest([sys.executable, "-m", "pytest", *options, inside], tmp_path)
    assert "3 passed" in said


#: A program below a shell takes more memory than its group may have.
TAKES_ALL = f"{sys.executable} -I -c 'bytearray(range(256)) * (2 << 20)'; exit $?"
MIB = 1024**2


@pytest.fixture
def group() -> Iterator[Path]:
    """Return a control group of this machine's kernel that may use 128 MiB."""
    memory = Path("/sys/fs/cgroup/memory")
    is_old = memory.is_dir()
    made = (memory if is_old else Path("/sys/fs/cgroup")) / f"spindown-{os.getpid()}"
    most = made / ("memory.limit_in_bytes" if is_old else "memory.max")
    try:
        made.mkdir()
        most.write_text(str(128 * MIB))
    except OSError as exc:
        pytest.fail(f"this needs the right to make a control group of memory: {exc}")
    yield made
    until(lambda: not (made / "cgroup.procs").read_text())
    made.rmdir()


@pytest.mark.parametrize("script", [TAKES_ALL, *KILLED_BY_SOMEBODY])
def test_only_the_kernel_s_count_tells_want_of_memory(
    tmp_path: Path, group: Path, script: str
) -> None:
    has_events = (group / "memory.events").exists()
    # Groups of version 1 have no such file: then the count of the whole machine tells.
    kills = MemoryKills(group=group) if has_events else MemoryKills()
    cell = Cell(tmp_path, kills=kills, group=group)
    cell.begin(pack(["sh", "-c", script], {}))
    found = drain(cell.runner)[0]
    cell.runner.kill()

    if script == TAKES_ALL:
        assert isinstance(found, Broken)
        assert found.cause is FailureCause.OUT_OF_MEMORY
    else:
        assert isinstance(found, ItemDone)
        assert found.value == {EXIT_STATUS: 137}
