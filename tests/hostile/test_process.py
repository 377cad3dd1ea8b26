"""Code that goes at the worker's own process, at its modules, and at the files of a call."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import spindown
from spindown.contract.job.manifest import JobState
from spindown.worker.machine.leftover import FIRST_GROUP
from tests.hostile.cell import CODE_USER, Cell
from tests.worker_system.kit import SYSTEM

WORKER = """
import ctypes
def run(batch, ctx):
    ended = []
    subreaper = os.getppid()
    stat = pathlib.Path(f"/proc/{subreaper}/stat").read_text()
    worker = int(stat.rpartition(")")[2].split()[1])
    for pid in (subreaper, worker):
        for number in (signal.SIGSTOP, signal.SIGKILL):
            try:
                os.kill(pid, number)
                ended.append(pid)
            except PermissionError:
                pass
        for name in ("mem", "environ", "maps", "fd/0"):
            try:
                with open(f"/proc/{pid}/{name}", "rb") as file:
                    file.read(1)
                ended.append(name)
            except OSError:
                pass
        # PTRACE_ATTACH
        if ctypes.CDLL(None).ptrace(16, pid, 0, 0) == 0:
            ended.append("traced")
    for become in (os.setuid, os.setgid):
        try:
            become(0)
            ended.append(become.__name__)
        except PermissionError:
            pass
    return [Result(batch[0], [ended, os.getuid(), os.getgid(), os.getgroups()])]
"""


def test_the_worker_s_process_is_out_of_reach(cell: Cell) -> None:
    slot = cell.hold(WORKER)
    slot.world.send({"job_id": "j", "items": ["x"]})
    assert slot.step()

    [record] = slot.world.records("j")
    ended, user, group, groups = record.result
    assert (ended, user, groups) == ([], CODE_USER, [CODE_USER])
    # That of its slot.
    assert group >= FIRST_GROUP


#: What a program does with the files of its call, as "results" and of later calls.
CALLS = {
    "a link in place of results": """
        attempt(os.unlink, results)
        attempt(os.symlink, VICTIM / "secret", results)
    """,
    "a pipe in place of results": """
        attempt(os.unlink, results)
        attempt(os.mkfifo, results)
    """,
    "later calls": """
        for n in range(2, 9):
            plant(job / f"call-{n}")
            attempt(os.symlink, VICTIM, job / "outputs" / str(n - 1))
    """,
    "results without an end": "os.truncate(results, 2**40)",
    "the items of others": """
        items = pathlib.Path(os.environ["SPINDOWN_ITEMS"])
        attempt(os.unlink, items)
        attempt(os.symlink, VICTIM / "secret", items)
    """,
}


@pytest.mark.parametrize("name", sorted(CALLS))
def test_the_files_of_a_call_lead_nowhere_else(cell: Cell, name: str) -> None:
    source = "results = pathlib.Path(os.environ['SPINDOWN_RESULTS'])\njob = results.parent.parent\n"
    act = textwrap.dedent(CALLS[name])
    slot = cell.hold(source + act, command=(sys.executable, "job.py"))
    slot.world.send({"job_id": "j", "items": ["a", "b", "c"]})
    assert slot.step()

    assert cell.is_untouched()
    assert not cell.has_leaked(slot)
    state = slot.world.manifest("j").state
    assert state in {JobState.COMPLETED, JobState.RUNNING}
    assert cell.left == set()


def test_no_module_is_taken_from_where_the_worker_starts(tmp_path: Path) -> None:
    unit = (SYSTEM / "spindown-worker.service").read_text(encoding="utf-8")
    found = re.search(r"^ExecStart=\S+/python (.*)$", unit, re.MULTILINE)
    assert found is not None
    packages = tmp_path / ".local" / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    packages.mkdir(parents=True)
    for folder in (tmp_path, packages):
        for name in ("spindown", "json", "boto3", "usercustomize", "sitecustomize"):
            (folder / f"{name}.py").write_text("raise SystemExit('planted')\n")

    done = subprocess.run(
        [sys.executable, *found[1].split(), "--version"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)},
    )

    assert (done.stdout.strip(), done.stderr) == (spindown.__version__, "")
