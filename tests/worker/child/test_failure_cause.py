"""Why a process is gone: its exit status, and the kernel's count of kills for memory."""

import os
import signal
from pathlib import Path

import pytest

from spindown.worker.child.failure_cause import FailureCause, MemoryKills, describe_end


@pytest.mark.parametrize(
    ("status", "is_known", "cause", "says"),
    [
        (-signal.SIGKILL, True, FailureCause.OUT_OF_MEMORY, "memory"),
        (137, True, FailureCause.OUT_OF_MEMORY, "memory"),
        (-signal.SIGKILL, False, FailureCause.KILLED, "SIGKILL"),
        (137, False, FailureCause.ENDED, "status 137"),
        (-signal.SIGSEGV, True, FailureCause.KILLED, "SIGSEGV"),
        (-99, False, FailureCause.KILLED, "signal 99"),
        (1, True, FailureCause.ENDED, "status 1"),
    ],
)
def test_says_why_a_process_is_gone(
    status: int, is_known: bool, cause: FailureCause, says: str
) -> None:
    broken = describe_end(status, "last words", out_of_memory=is_known)
    assert broken.cause is cause
    assert says in broken.reason
    assert "last words" in broken.reason


def test_the_control_group_tells_of_kills_for_memory(tmp_path: Path) -> None:
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "self" / "cgroup").write_text("0::/system.slice/spindown-worker.service\n")
    group = tmp_path / "cgroup" / "system.slice" / "spindown-worker.service"
    group.mkdir(parents=True)
    events = group / "memory.events"
    events.write_text("low 0\noom 1\noom_kill 1\noom_group_kill 0\n")
    kills = MemoryKills(tmp_path / "proc", tmp_path / "cgroup")
    seen = [kills.has_killed]
    events.write_text("low 0\noom 2\noom_kill 2\noom_group_kill 0\n")
    seen.append(kills.has_killed)
    kills.mark()
    seen.append(kills.has_killed)
    assert seen == [False, True, False]
    assert not MemoryKills(tmp_path / "none", tmp_path / "cgroup").has_killed
    (tmp_path / "proc" / "vmstat").write_text("nr_free_pages 7\noom_kill 3\n")
    anywhere = MemoryKills(tmp_path / "proc", tmp_path / "cgroup", is_anywhere=True)
    without_groups = MemoryKills(tmp_path / "proc", tmp_path / "none")
    (tmp_path / "proc" / "vmstat").write_text("nr_free_pages 7\noom_kill 4\n")
    assert (anywhere.has_killed, without_groups.has_killed, kills.has_killed) == (True, True, False)
    assert os.path.exists("/proc/self/cgroup")  # noqa: PTH110 - the real one is there as well
