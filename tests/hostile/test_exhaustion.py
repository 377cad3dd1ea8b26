"""Code that takes all there is of something: its job ends, the worker goes on with the next."""

import subprocess
import textwrap
import tracemalloc
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from spindown.contract.job.manifest import JobState
from spindown.error import NotFound
from spindown.worker.child.failure_cause import FailureCause
from tests.hostile.cell import CODE_USER, Cell
from tests.slot import SlotWorld

#: What the first job does; every other one is honest.
RUN = """
def run(batch, ctx):
    out = ctx.output_dir(batch[0])
    if ctx.job_id == "bad":
        take(out, ctx.state_dir)
    (out / "made").write_text("x" * 4096)
    (SLOT / "tmp" / "temporary").write_text("x" * 4096)
    return [Result(batch[0], 1)]
"""
RUN_GOOD = "    return [Result(batch[0], 1)]\n"
FORK_BOMB = """
def take(out, state):
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        try:
            os.fork()
        except OSError:
            pass
"""
THREADS = """
def take(out, state):
    while True:
        threading.Thread(target=time.sleep, args=(60,)).start()
"""
FILE_HANDLES = """
def take(out, state):
    opened = []
    while True:
        opened += [os.open("/dev/null", os.O_RDONLY), *os.pipe()]
"""
FILL = """
def fill(folder):
    with (folder / "ballast").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(2**20))
        except OSError:
            pass
"""
DISK = {
    "results": f"{FILL}\ndef take(out, state):\n    fill(out)\n    time.sleep(60)\n",
    "state": f"{FILL}\ndef take(out, state):\n    fill(state)\n    time.sleep(60)\n",
    "temporary files": f"{FILL}\ndef take(out, state):\n    fill(SLOT / 'tmp')\n    os._exit(1)\n",
    "setup's files": f"{FILL}\ndef take(out, state):\n    fill(SLOT / 'setup')\n    os._exit(1)\n",
    "file names": """
def take(out, state):
    try:
        for n in range(10**6):
            (out / str(n)).touch()
    except OSError:
        pass
    time.sleep(60)
""",
}


def run_both(slot: SlotWorld) -> None:
    """Let the slot work on the hostile job and on an honest one."""
    slot.world.send({"job_id": "bad", "items": ["s3://inputs/0/module.py"]})
    assert slot.step()
    slot.world.send({"job_id": "good", "items": ["s3://inputs/1/module.py"]})
    # The first may come back meanwhile, and does the same again.
    while slot.step() and not is_completed(slot, "good"):
        pass
    assert is_completed(slot, "good")


def is_completed(slot: SlotWorld, job_id: str) -> bool:
    """Tell whether a job was claimed and is done."""
    try:
        return slot.world.manifest(job_id).state is JobState.COMPLETED
    except NotFound:
        return False


def processes(cell: Cell) -> list[str]:
    """Return what runs as the code's user in a cell; other tests have theirs."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            status, place = (path / "status").read_text(), (path / "cwd").readlink()
        except OSError:
            continue
        is_here = place.is_relative_to(cell.directory)
        if f"\nUid:\t{CODE_USER}\t" in status and "\nState:\tZ" not in status and is_here:
            found.append(status)
    return found


@pytest.mark.parametrize("what", ["processes", "threads"])
def test_a_bomb_ends_with_its_job(cell: Cell, what: str) -> None:
    take = {"processes": FORK_BOMB, "threads": THREADS}[what]
    slot = cell.hold(take + RUN, item_timeout=timedelta(seconds=3))
    run_both(slot)

    assert processes(cell) != []
    cell.runners[0].kill()
    assert processes(cell) == []


#: 12 MB of lists take some 350 MB in the worker, which has no bound, as its slots have.
FAT = {
    "returned": "return [Result(batch[0], [[] for _ in range(4 * 10**6)])]",
    "written to the line": """
        data = b'{"type": "results", "done": true, "results": [{"index": 0, "seconds": 0, '
        data += b'"value": [' + b"[]," * (4 * 10**6) + b"[]]}]}"
        data, line = len(data).to_bytes(4, "big") + data, int(sys.argv[2])
        while data:
            data = data[os.write(line, data):]
        time.sleep(60)
    """,
}


@pytest.mark.parametrize("name", sorted(FAT))
def test_fat_results_take_no_memory_of_the_worker(cell: Cell, name: str) -> None:
    act = textwrap.indent(textwrap.dedent(FAT[name]), " " * 8)
    slot = cell.hold(f"def run(batch, ctx):\n    if ctx.job_id == 'bad':\n{act}\n" + RUN_GOOD)
    slot.world.send({"job_id": "bad", "items": ["x"]})
    tracemalloc.start()
    try:
        assert slot.step()
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 64 * 1024**2

    slot.world.send({"job_id": "good", "items": ["x"]})
    while slot.step() and not is_completed(slot, "good"):
        pass
    assert is_completed(slot, "good")


def test_file_handles_are_the_code_s_own(cell: Cell) -> None:
    slot = cell.hold(FILE_HANDLES + RUN)
    run_both(slot)

    [record] = slot.world.records("bad")
    assert "Too many open files" in str(record.error)


@pytest.fixture
def small_disk(cell: Cell) -> Iterator[Cell]:
    """Give the slot a file system of its own, of 80 MiB and 5,000 files."""
    work = cell.directory / "disk"
    work.mkdir()
    options = "size=80m,nr_inodes=5000"
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(work)]
    subprocess.run(mount, check=True)
    cell.slot = work / "slot-0"
    try:
        yield cell
    finally:
        for runner in cell.runners:
            runner.kill()
        subprocess.run(["umount", "--lazy", str(work)], check=True)


@pytest.mark.proof
@pytest.mark.parametrize("name", sorted(DISK))
def test_a_full_disk_ends_the_job_that_filled_it(small_disk: Cell, name: str) -> None:
    slot = small_disk.hold(DISK[name] + RUN)
    run_both(slot)

    failed = {event["cause"] for event in slot.events("attempt_failed")}
    assert failed
    assert failed <= {FailureCause.DISK_FULL, FailureCause.ENDED, FailureCause.TOO_MUCH}
    assert small_disk.left == {"tmp/temporary"}
