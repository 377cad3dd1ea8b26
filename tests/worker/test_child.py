"""The user's code in a real process: whatever it does, the worker hears it in plain words."""

import io
import json
import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spindown.contract.run import RunSpec
from spindown.user import Item
from worker.child.code import Code
from worker.child.frame import encode_frame, read_frame
from worker.child.output import LINE_BYTES, LINES_A_SECOND, Output
from worker.child.runner import BatchDone, Broken, ChildRunner, Event, ItemDone, Task
from worker.log import open_log

Make = Callable[..., ChildRunner]


@pytest.fixture
def output() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def make(tmp_path: Path, output: io.StringIO) -> Iterator[Make]:
    made: list[ChildRunner] = []

    def make(source: str, **spec: Any) -> ChildRunner:
        root = tmp_path / "code"
        root.mkdir(exist_ok=True)
        (root / "job.py").write_text(_PRELUDE + textwrap.dedent(source))
        values = {"entrypoint": "job:run", "item_timeout": timedelta(seconds=30), **spec}
        code = Code(root=root, spec=RunSpec(**values), digest="d")
        runner = ChildRunner(
            code,
            slot=1,
            scratch=tmp_path / "setup",
            python=sys.executable,
            env={"CUDA_VISIBLE_DEVICES": "1"},
            log=open_log(output),
        )
        made.append(runner)
        return runner

    yield make
    for runner in made:
        runner.kill()


_PRELUDE = """\
import ctypes, os, signal, subprocess, sys, threading
from spindown.user import Context, Item, Result
"""


def run_batch(runner: ChildRunner, tmp_path: Path, count: int = 3, **task: Any) -> list[Event]:
    """Run one batch of numbers to its end."""
    work = Task(job_id="j", outputs=tmp_path / "out", **task)
    runner.begin(work, [Item(index, index) for index in range(count)])
    events: list[Event] = []
    while not events or isinstance(events[-1], ItemDone):
        event = runner.poll(timedelta(seconds=10))
        if event is not None:
            events.append(event)
    return events


def answers(events: list[Event]) -> dict[int, Any]:
    return {e.index: e.error or e.value for e in events if isinstance(e, ItemDone)}


def test_gives_each_result_as_it_comes(make: Make, tmp_path: Path) -> None:
    runner = make(
        """
        def run(batch, ctx):
            for item in batch:
                yield Result(item, {"square": item.value ** 2, "factor": ctx.params["factor"]})
        """
    )
    events = run_batch(runner, tmp_path, params={"factor": 2})
    assert answers(events)[2] == {"square": 4, "factor": 2}
    assert events[-1] == BatchDone()


def test_loads_the_model_once_for_many_batches(make: Make, tmp_path: Path) -> None:
    runner = make(
        """
        loaded = []
        def setup(ctx):
            loaded.append(ctx.slot)
        def run(batch, ctx):
            return [Result(item, loaded) for item in batch]
        """
    )
    assert answers(run_batch(runner, tmp_path))[0] == [1]
    assert answers(run_batch(runner, tmp_path))[0] == [1]


def test_shows_a_child_only_its_own_gpu(make: Make, tmp_path: Path) -> None:
    runner = make(
        """
        def run(batch, ctx):
            return [Result(item, os.environ["CUDA_VISIBLE_DEVICES"]) for item in batch]
        """
    )
    assert answers(run_batch(runner, tmp_path, 1)) == {0: "1"}


def test_printing_does_not_disturb_the_line(
    make: Make, tmp_path: Path, output: io.StringIO
) -> None:
    runner = make(
        r"""
        def run(batch, ctx):
            for item in batch:
                print("noise", item.index)
                os.write(1, b"\x00\x00\x00\x02{}\xff\n")
                os.write(2, b"more noise\n")
                subprocess.run(["echo", "noise of a child"])
                yield Result(item, item.value)
        """
    )
    assert answers(run_batch(runner, tmp_path)) == {0: 0, 1: 1, 2: 2}
    runner.kill()
    lines = [json.loads(line) for line in output.getvalue().splitlines()]
    texts = [line["text"] for line in lines if line["event"] == "user_output"]
    assert {"noise 0", "more noise", "noise of a child"} <= set(texts)
    assert {line["job_id"] for line in lines} == {"j"}


def test_a_flood_of_output_is_counted_and_a_long_line_comes_in_pieces(
    output: io.StringIO,
) -> None:
    seconds = iter([0.0, *[0.5] * 150, 1.5, 1.6, 1.6])
    told = Output(open_log(output).bind(slot=3), clock=lambda: next(seconds))
    told.job_id = "j"
    told.read(io.BytesIO(b"noise\n" * 150 + b"later\n" + b"x" * (LINE_BYTES + 10) + b"\n"))

    lines = [json.loads(line) for line in output.getvalue().splitlines()]
    assert [line.get("text", line.get("lines")) for line in lines] == [
        *["noise"] * LINES_A_SECOND,
        150 - LINES_A_SECOND,
        "later",
        "x" * LINE_BYTES,
        "x" * 10,
    ]
    assert lines[LINES_A_SECOND]["event"] == "user_output_left_out"
    assert {(line["job_id"], line["slot"]) for line in lines} == {("j", 3)}


def test_output_left_out_at_the_end_is_told_too(output: io.StringIO) -> None:
    told = Output(open_log(output), clock=lambda: 0.0)
    told.read(io.BytesIO(b"noise\n" * (LINES_A_SECOND + 1) + b"bang\n\n"))

    assert json.loads(output.getvalue().splitlines()[-1])["lines"] == 3
    assert told.last_line == "bang"


def test_an_item_that_raises_fails_alone(make: Make, tmp_path: Path) -> None:
    runner = make(
        """
        def run(batch, ctx):
            for item in batch:
                if item.value == 1:
                    raise ValueError("I do not like one")
                yield Result(item, "fine")
        """
    )
    found = answers(run_batch(runner, tmp_path))
    assert found == {0: "fine", 1: "ValueError: I do not like one", 2: "fine"}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return [Result(batch[0], {1, 2})]", "the result is not JSON: TypeError"),
        ("return [Result(batch[0], float('nan'))]", "the result is not JSON: ValueError"),
        ("x = []\n    for _ in range(200): x = [x]\n    return [Result(batch[0], x)]", "64 levels"),
        ("return []", "gave no result for this item"),
        ("return [Result(batch[0], 1), Result(batch[0], 2)]", None),
        ("return [42]", "must give spindown.user.Result, not int"),
        ("sys.exit('enough')", "SystemExit: enough"),
        ("return [Result(batch[0], error='not today')]", "not today"),
    ],
    ids=["not JSON", "NaN", "deep", "none", "two", "no Result", "exit", "error"],
)
def test_says_what_is_wrong_with_a_result(
    make: Make, tmp_path: Path, body: str, says: str | None
) -> None:
    runner = make(f"def run(batch, ctx):\n    {body}\n")
    [done, end] = run_batch(runner, tmp_path, 1)
    assert isinstance(done, ItemDone)
    assert end == BatchDone()
    if says is None:
        assert (done.value, done.error) == (1, None)
    else:
        assert done.error is not None
        assert says in done.error


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("raise RuntimeError('no licence')", "cannot be loaded: RuntimeError: no licence"),
        ("import not_there", "cannot be loaded: ModuleNotFoundError: No module named 'not_there'"),
        ("x = 1", "cannot be loaded: AttributeError: module 'job' has no attribute 'run'"),
        ("run = 3", "cannot be loaded: TypeError: job:run is not callable"),
        ("def setup(ctx):\n    raise OSError('no model')\ndef run(b, c): ...", "OSError: no model"),
        ("def setup(ctx):\n    os._exit(3)\ndef run(b, c): ...", "ended with status 3"),
        ("def (", "SyntaxError"),
    ],
    ids=["raises", "no module", "no entrypoint", "not callable", "setup", "setup exits", "syntax"],
)
def test_says_why_code_cannot_be_loaded(make: Make, tmp_path: Path, source: str, says: str) -> None:
    [broken] = run_batch(make(source), tmp_path)
    assert isinstance(broken, Broken)
    assert says in broken.reason


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
    assert "killed by SIGSEGV" in broken.reason
    assert "touching null" in broken.reason


def test_a_kill_for_memory_is_told_as_such(make: Make, tmp_path: Path) -> None:
    runner = make("def run(batch, ctx):\n    os.kill(os.getpid(), signal.SIGKILL)\n")
    [broken] = run_batch(runner, tmp_path)
    assert isinstance(broken, Broken)
    assert "most likely for want of memory" in broken.reason


def test_memory_that_runs_out_fails_the_attempt_and_keeps_what_was_done(
    make: Make, tmp_path: Path
) -> None:
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
    assert end == Broken("memory ran out: MemoryError at item 1")
    assert runner.pid is None


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
    assert events[-1] == Broken(
        "a batch of 3 items took longer than 0.3 s (item_timeout times items)"
    )


def test_a_setup_that_hangs_is_ended_after_its_timeout(make: Make, tmp_path: Path) -> None:
    runner = make(
        "def setup(ctx):\n    threading.Event().wait()\ndef run(b, c): ...",
        setup_timeout=timedelta(seconds=0.3),
    )
    assert run_batch(runner, tmp_path) == [Broken("setup took longer than 0.3 s")]


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


def test_names_the_files_of_an_item_but_no_link(make: Make, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    runner = make(
        f"""
        def run(batch, ctx):
            for item in batch:
                where = ctx.output_dir(item) / "deep"
                where.mkdir()
                (where / "a.txt").write_text("a")
                (where / "link").symlink_to("{tmp_path / "secret"}")
                yield Result(item, None)
        """
    )
    [done, _] = run_batch(runner, tmp_path, 1)
    assert isinstance(done, ItemDone)
    assert done.files == ("deep/a.txt",)
    assert (tmp_path / "out" / "0" / "deep" / "a.txt").read_text() == "a"


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
        _PRELUDE
        + "def setup(ctx):\n    print(os.getpid(), flush=True)\n    threading.Event().wait()\n"
        + "def run(b, c): ...\n"
    )
    program = f"""
import sys
from pathlib import Path
from spindown.contract.run import RunSpec
from worker.child.code import Code
from worker.child.process import Child
from worker.log import open_log
from worker.child.output import LINE_BYTES, LINES_A_SECOND, Output
from worker.child.runner import ChildRunner
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


def test_large_batches_and_results_pass_whole(make: Make, tmp_path: Path) -> None:
    runner = make("def run(batch, ctx):\n    return [Result(i, i.value[::-1]) for i in batch]\n")
    text = "ab" * 500_000
    runner.begin(Task(job_id="j", outputs=tmp_path), [Item(0, text)])
    event = None
    while event is None:
        event = runner.poll(timedelta(seconds=10))
    assert isinstance(event, ItemDone)
    assert event.value == text[::-1]


def test_frames_survive_being_cut() -> None:
    whole = encode_frame({"type": "done"})
    for cut in range(len(whole)):
        assert read_frame(io.BytesIO(whole[:cut])) is None
    assert read_frame(io.BytesIO(whole)) == {"type": "done"}


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
