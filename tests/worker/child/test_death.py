"""A child that dies, hangs or runs out of memory is told as such, and takes nothing along."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

from spindown.user import Item
from spindown.worker.child.failure_cause import Broken, FailureCause
from spindown.worker.child.frame import ANSWERS_BYTES_MAX, FrameReader
from spindown.worker.child.runner import ChildRunner, Event, ItemDone, Task
from spindown.worker.process_tree.process_tree import Wedged, reap
from tests.worker.child.batch import PRELUDE, Make, answers, failed, run_batch


def test_a_segfault_is_told_by_its_signal_and_last_words(make: Make, tmp_path: Path) -> None:
    runner = make(
        """
        def run(batch, ctx):
            yield Result(batch[0], "done before")
            print("touching null")
            ctypes.string_at(0)
        """
    )
    events = run_batch(runner, tmp_path)
    assert answers(events) == {0: "done before"}
    [broken] = events[1:]
    assert isinstance(broken, Broken)
    assert broken.cause is FailureCause.KILLED
    assert "SIGSEGV" in broken.reason
    assert "touching null" in broken.reason


def test_a_death_is_told_at_once_though_its_forks_live_on(make: Make, tmp_path: Path) -> None:
    runner = make(
        """
        def run(batch, ctx):
            yield Result(batch[0], "x" * 999_999)
            if not os.fork():
                threading.Event().wait()
            os.kill(os.getpid(), signal.SIGKILL)
        """,
        item_timeout=timedelta(seconds=2),
    )
    runner.begin(Task(job_id="j", outputs=tmp_path), [Item(0, 0), Item(1, 1)])
    events: list[Event | None] = [None]
    while not isinstance(events[-1], Broken):
        events.append(runner.poll(timedelta(seconds=0.05)))
    done, broken = [event for event in events if event is not None]
    assert isinstance(done, ItemDone)
    assert isinstance(broken, Broken)
    assert broken.cause is FailureCause.KILLED


def test_a_child_that_closes_its_line_is_told_as_such(make: Make, tmp_path: Path) -> None:
    runner = make(
        """
        def run(batch, ctx):
            os.closerange(3, 64)
            threading.Event().wait()
        """
    )
    [broken] = run_batch(runner, tmp_path)
    assert isinstance(broken, Broken)
    assert broken.cause is FailureCause.SILENT


def test_rubbish_on_its_line_is_a_fault_of_the_code(make: Make, tmp_path: Path) -> None:
    runner = make(
        """
        def run(batch, ctx):
            for fd in range(3, 32):
                try:
                    os.write(fd, bytes(3) + b"\\2{]")
                except OSError:
                    pass
            threading.Event().wait()
        """
    )
    [broken] = run_batch(runner, tmp_path)
    assert isinstance(broken, Broken)
    assert broken.cause is FailureCause.SILENT


@pytest.mark.parametrize("said", [b"{]", b"[]", b"{}", b"\xff"], ids=repr)
def test_what_is_no_frame_ends_the_line(said: bytes) -> None:
    reads, writes = os.pipe()
    with os.fdopen(reads, "rb"), os.fdopen(writes, "wb") as line:
        line.write(len(said).to_bytes(4, "big") + said)
        line.flush()
        with pytest.raises(EOFError):
            FrameReader(reads).next(1.0)


def test_nobody_waits_for_a_frame_that_nothing_could_hold() -> None:
    reads, writes = os.pipe()
    with os.fdopen(reads, "rb"), os.fdopen(writes, "wb") as line:
        line.write((ANSWERS_BYTES_MAX + 1).to_bytes(4, "big"))
        line.flush()
        with pytest.raises(EOFError):
            FrameReader(reads).next(1.0)


def test_a_kill_that_the_kernel_says_nothing_of_is_a_kill(make: Make, tmp_path: Path) -> None:
    runner = make("def run(batch, ctx):\n    os.kill(os.getpid(), signal.SIGKILL)\n")
    [broken] = run_batch(runner, tmp_path)
    assert isinstance(broken, Broken)
    assert broken.cause is FailureCause.KILLED


def test_running_out_of_memory_fails_the_attempt_and_keeps_work(make: Make, tmp_path: Path) -> None:
    runner = make(
        """
        import resource
        def run(batch, ctx):
            resource.setrlimit(resource.RLIMIT_AS, (1 << 32, 1 << 32))
            for item in batch:
                if item.index:
                    bytearray(1 << 34)
                yield Result(item, "done before")
        """
    )
    *done, end = run_batch(runner, tmp_path, 2)
    assert answers(done) == {0: "done before"}
    assert isinstance(end, Broken)
    assert end.cause is FailureCause.OUT_OF_MEMORY
    assert end.reason.endswith("MemoryError at item 1")
    assert end.peak_gib is not None
    # A Python with the module, and not the 16 GiB for which there was no room.
    assert 0.001 < end.peak_gib < 4
    assert runner.pid is None


#: As PyTorch and CuPy have it, and one of the user's own.
NO_GPU_MEMORY = """
    class OutOfMemoryError({}):
        pass
    class Own(OutOfMemoryError):
        pass
    def run(batch, ctx):
        for item in batch:
            if item.index == 1:
                raise Own("CUDA out of memory")
            yield Result(item, "done")
"""


@pytest.mark.parametrize("base", ["RuntimeError", "MemoryError"])
def test_want_of_gpu_memory_ends_the_attempt_and_keeps_work(
    make: Make, tmp_path: Path, base: str
) -> None:
    runner = make(NO_GPU_MEMORY.format(base))
    *done, end = run_batch(runner, tmp_path, may_get_vram=True)

    assert answers(done) == {0: "done"}
    assert isinstance(end, Broken)
    assert (end.cause, end.peak_gib) == (FailureCause.OUT_OF_GPU_MEMORY, None)
    assert runner.pid is None


def test_on_the_largest_gpu_want_of_memory_fails_one_item(make: Make, tmp_path: Path) -> None:
    runner = make(NO_GPU_MEMORY.format("RuntimeError"))
    events = run_batch(runner, tmp_path)

    assert answers(events).keys() == {0, 1, 2}
    assert failed(events) == {1}
    assert not isinstance(events[-1], Broken)


@pytest.mark.parametrize(
    ("raised", "cause"),
    [
        ("MemoryError", FailureCause.OUT_OF_MEMORY),
        ("type('OutOfMemoryError', (RuntimeError,), {})", FailureCause.OUT_OF_GPU_MEMORY),
    ],
)
def test_a_model_that_does_not_fit_while_loading_is_told(
    make: Make, tmp_path: Path, raised: str, cause: FailureCause
) -> None:
    runner = make(f"def setup(ctx):\n    raise {raised}\ndef run(batch, ctx):\n    pass\n")
    [end] = run_batch(runner, tmp_path)

    assert isinstance(end, Broken)
    assert end.cause is cause


def test_what_a_failed_batch_held_is_free_for_single_items(make: Make, tmp_path: Path) -> None:
    runner = make(
        """
        import weakref
        class OutOfMemoryError(RuntimeError):
            pass
        class Tensor:
            pass
        held = weakref.WeakSet()
        def run(batch, ctx):
            if held:
                raise OutOfMemoryError
            mine = Tensor()
            held.add(mine)
            if len(batch) > 1:
                raise OutOfMemoryError
            return [Result(batch[0], "done")]
        """
    )
    events = run_batch(runner, tmp_path, may_get_vram=True)

    assert answers(events) == {0: "done", 1: "done", 2: "done"}


def test_a_hang_is_ended_after_the_item_timeout(make: Make, tmp_path: Path) -> None:
    runner = make(
        """
        def run(batch, ctx):
            yield Result(batch[0], "done before")
            threading.Event().wait()
        """,
        item_timeout=timedelta(seconds=0.1),
    )
    events = run_batch(runner, tmp_path)
    assert answers(events) == {0: "done before"}
    broken = events[-1]
    assert isinstance(broken, Broken)
    assert broken.cause is FailureCause.TIMEOUT
    assert "item_timeout" in broken.reason
    assert " 0.3 s " in broken.reason


def test_a_setup_that_hangs_is_ended_after_its_timeout(make: Make, tmp_path: Path) -> None:
    runner = make(
        "def setup(ctx):\n    threading.Event().wait()\ndef run(b, c): ...",
        setup_timeout=timedelta(seconds=0.3),
    )
    [broken] = run_batch(runner, tmp_path)
    assert isinstance(broken, Broken)
    assert broken.cause is FailureCause.TIMEOUT
    assert broken.reason.endswith(" 0.3 s")


def test_nobody_waits_for_ever_for_an_unkillable_process() -> None:
    # A process that nobody has killed stands for one on which that has no effect.
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as stuck:
        with pytest.raises(Wedged, match=r"0\.05 s"):
            reap(stuck, 0.05)
        stuck.kill()
        reap(stuck)


def test_a_child_ready_for_longer_than_a_setup_may_take_works(make: Make, tmp_path: Path) -> None:
    runner = make(
        "def setup(ctx):\n    print('up')\n"
        "def run(batch, ctx):\n    return [Result(item, 'fine') for item in batch]\n",
        setup_timeout=timedelta(seconds=1),
    )
    runner.warm()
    wait_until_overdue(runner)
    assert answers(run_batch(runner, tmp_path, 1)) == {0: "fine"}


def test_a_child_that_died_idle_is_no_fault_of_the_next_job(make: Make, tmp_path: Path) -> None:
    runner = make(
        "def run(batch, ctx):\n    return [Result(item, os.getpid()) for item in batch]\n"
    )
    first = answers(run_batch(runner, tmp_path, 1))[0]
    ended = os.pidfd_open(first)
    os.kill(first, signal.SIGKILL)
    assert select.select([ended], [], [], 10)[0] == [ended]
    os.close(ended)
    again = answers(run_batch(runner, tmp_path, 1))[0]
    assert isinstance(again, int)
    assert again != first


def test_a_new_child_takes_over_after_a_crash(make: Make, tmp_path: Path) -> None:
    runner = make(
        """
        def run(batch, ctx):
            if ctx.params.get("crash"):
                os.abort()
            return [Result(item, "alive") for item in batch]
        """
    )
    assert isinstance(run_batch(runner, tmp_path, params={"crash": True})[-1], Broken)
    assert answers(run_batch(runner, tmp_path, 1)) == {0: "alive"}


def test_an_end_takes_what_the_code_has_started_along(make: Make, tmp_path: Path) -> None:
    runner = make(
        """
        def run(batch, ctx):
            started = subprocess.Popen([sys.executable, "-c", "import time; input()"],
                                       stdin=subprocess.PIPE)
            yield Result(batch[0], started.pid)
            threading.Event().wait()
        """
    )
    runner.begin(Task(job_id="j", outputs=tmp_path), [Item(0, 0), Item(1, 1)])
    event = None
    while event is None:
        event = runner.poll(timedelta(seconds=10))
    assert isinstance(event, ItemDone)
    started = os.pidfd_open(event.value)
    runner.kill()

    ended, _, _ = select.select([started], [], [], 10)
    assert ended == [started]


def test_a_child_ends_with_its_worker_whatever_it_is_doing(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        PRELUDE
        + "def setup(ctx):\n    print(os.getpid(), flush=True)\n    threading.Event().wait()\n"
        + "def run(b, c): ...\n"
    )
    program = f"""
import sys
from pathlib import Path
from spindown.contract.run_spec import RunSpec
from spindown.worker.child.code import Code
from spindown.worker.child.process import Child
from spindown.worker.log import open_log
from spindown.worker.child.output import LINE_BYTES, LINES_A_SECOND, Output
from spindown.worker.child.runner import ChildRunner
code = Code(root=Path({str(tmp_path)!r}), spec=RunSpec(entrypoint="job:run"), digest="d")
runner = ChildRunner(code, slot=0, scratch=Path({str(tmp_path)!r}), python=sys.executable, env={{}},
                     log=open_log(sys.stdout))
runner.warm()
input()
"""
    worker = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert worker.stdout is not None
    pid = int(json.loads(worker.stdout.readline())["text"])
    assert is_running(pid)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    # Its output ends when the last process that could write to it has gone.
    assert worker.stdout.read() == ""
    worker.stdout.close()
    assert worker.stdin is not None
    worker.stdin.close()


def wait_until_overdue(runner: ChildRunner) -> None:
    """Wait until a setup of a second would have taken too long."""
    began = time.monotonic()
    pid = runner.pid
    assert pid is not None
    process = os.pidfd_open(pid)
    while (left := 1.1 - (time.monotonic() - began)) > 0:
        assert not select.select([process], [], [], left)[0]
    os.close(process)


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
