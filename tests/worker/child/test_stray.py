"""Nothing that the user's code starts outlives it, however it goes about it."""

import io
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from spindown.contract.run_spec import RunSpec
from spindown.user import Item
from spindown.worker.child.code import Code
from spindown.worker.child.command import CommandRunner
from spindown.worker.child.container import Machine
from spindown.worker.child.failure_cause import Broken
from spindown.worker.child.runner import BatchDone, ChildRunner, Event, Task
from spindown.worker.log import open_log
from spindown.worker.process_tree.process_tree import ProcessTree
from tests.worker.child.batch import PRELUDE, answers, drain

#: Leaves its parent, its session and its group, holds nothing and heeds nothing; tells its number.
STRAY = """
def stray(tell, depth=2):
    if os.fork():
        return
    os.setsid()
    if depth:
        stray(tell, depth - 1)
        os._exit(0)
    os.closerange(0, 64)
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.NSIG))
    with open(tell + ".new", "w") as told:
        told.write(str(os.getpid()))
    os.rename(tell + ".new", tell)
    threading.Event().wait()
"""


class Stray:
    """A process that has gone its own ways."""

    def __init__(self, told: Path) -> None:
        self.told = told
        self._stack = ExitStack()
        self._fd: int | None = None

    def meet(self) -> None:
        """Wait until it is on its own."""
        for _ in range(2000):
            if self.told.exists():
                break
            select.select([], [], [], 0.01)
        self._fd = os.pidfd_open(int(self.told.read_text()))
        self._stack.callback(os.close, self._fd)

    def has_ended(self, seconds: float = 10.0) -> bool:
        """Tell whether it ends in time."""
        assert self._fd is not None
        return select.select([self._fd], [], [], seconds)[0] == [self._fd]

    def close(self) -> None:
        if self._fd is not None:
            if not self.has_ended(0):
                signal.pidfd_send_signal(self._fd, signal.SIGKILL)
            self._stack.close()


@pytest.fixture
def stray(tmp_path: Path) -> Iterator[Stray]:
    stray = Stray(tmp_path / "stray")
    yield stray
    stray.close()


Write = Callable[[str], Code]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return what writes a module whose ``go`` lets a stray run."""

    def write(source: str) -> Code:
        go = f"\ndef go():\n    stray({str(tmp_path / 'stray')!r})\n"
        (tmp_path / "job.py").write_text(PRELUDE + STRAY + go + source)
        spec = RunSpec(entrypoint="job:run", item_timeout=timedelta(seconds=30))
        return Code(root=tmp_path, spec=spec, digest="d")

    return write


def a_child(code: Code) -> ChildRunner:
    log = open_log(io.StringIO())
    return ChildRunner(code, slot=0, scratch=code.root, python=sys.executable, env={}, log=log)


def a_command(code: Code) -> CommandRunner:
    spec = RunSpec(command=(sys.executable, "job.py"), item_timeout=timedelta(seconds=30))
    place = Machine(argv=spec.command, env={})
    code = Code(root=code.root, spec=spec, digest="d")
    return CommandRunner(code, place, slot=0, log=open_log(io.StringIO()))


def run(runner: ChildRunner | CommandRunner, tmp_path: Path) -> list[Event]:
    outputs = tmp_path / "job" / "outputs"
    outputs.mkdir(parents=True)
    runner.begin(Task(job_id="j", outputs=outputs), [Item(0, 0)])
    return drain(runner)


def test_a_stray_of_a_child_ends_with_it(write: Write, stray: Stray, tmp_path: Path) -> None:
    runner = a_child(write("def run(batch, ctx):\n    go()\n    return [Result(batch[0], 1)]\n"))
    assert answers(run(runner, tmp_path)) == {0: 1}
    stray.meet()
    assert not stray.has_ended(0.1), "the child goes on, and what it has started too"
    runner.kill()
    assert stray.has_ended(0)


@pytest.mark.parametrize(
    ("death", "says"), [("os.abort()", "SIGABRT"), ("os._exit(3)", "status 3")]
)
def test_a_stray_of_a_child_that_dies_ends_too(
    write: Write, stray: Stray, tmp_path: Path, death: str, says: str
) -> None:
    wait = f"    while not os.path.exists({str(stray.told)!r}):\n        pass\n    input_()\n"
    source = "def input_():\n    open('go').read()\ndef run(batch, ctx):\n    go()\n"
    os.mkfifo(tmp_path / "go")
    runner = a_child(write(f"{source}{wait}    {death}\n"))
    runner.begin(Task(job_id="j", outputs=tmp_path / "out"), [Item(0, 0)])
    assert runner.poll(timedelta(seconds=10)) is None, "it is ready"
    stray.meet()
    (tmp_path / "go").write_text("now")
    [broken] = drain(runner)
    assert isinstance(broken, Broken)
    assert says in broken.reason
    assert stray.has_ended(0)


def test_a_stray_of_a_program_ends_when_the_program_is_done(
    write: Write, stray: Stray, tmp_path: Path
) -> None:
    wait = f"while not os.path.exists({str(stray.told)!r}):\n    pass\n"
    runner = a_command(write(f"go()\n{wait}open('go').read()\n"))
    os.mkfifo(tmp_path / "go")
    outputs = tmp_path / "job" / "outputs"
    outputs.mkdir(parents=True)
    runner.begin(Task(job_id="j", outputs=outputs), [Item(0, 0)])
    assert runner.poll(timedelta(0)) is None
    stray.meet()
    (tmp_path / "go").write_text("now")
    assert drain(runner)[-1] == BatchDone()
    assert stray.has_ended(0)


def test_strays_end_with_a_worker_that_is_killed(
    write: Write, stray: Stray, tmp_path: Path
) -> None:
    code = write("go()\nthreading.Event().wait()\n")
    program = (
        "import sys\nfrom pathlib import Path\n"
        "from worker.process_tree.process_tree import ProcessTree\n"
        f"tree = ProcessTree([sys.executable, {str(code.root / 'job.py')!r}], "
        f"cwd=Path({str(tmp_path)!r}), env={{}})\ninput()\n"
    )
    worker = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE)
    stray.meet()
    worker.kill()
    worker.wait()
    assert stray.has_ended()
    assert worker.stdin is not None
    worker.stdin.close()


@pytest.mark.parametrize(
    ("program", "status"),
    [("exit 7", 7), ("kill -9 $$", -9), ("kill -11 $$", -11), ("kill 0", -15), ("exit 0", 0)],
)
def test_a_process_tree_ends_as_its_program_does(tmp_path: Path, program: str, status: int) -> None:
    tree = ProcessTree(["sh", "-c", program], cwd=tmp_path, env={"PATH": os.defpath})
    assert tree.status(10) == status
    tree.output.close()
    tree.end()


def test_a_program_finds_everything_as_if_started_alone(tmp_path: Path) -> None:
    tells = (
        "import os, signal, sys\n"
        "print(os.getpid() == os.getsid(0) == os.getpgrp(), os.listdir('/proc/self/fd'),\n"
        "      signal.getsignal(signal.SIGPIPE) in (signal.SIG_DFL, signal.SIG_IGN),\n"
        "      signal.pthread_sigmask(signal.SIG_BLOCK, []), sys.stdin.read() == '')\n"
        "print(open('/proc/self/status').read().split('SigIgn:')[1].split()[0])\n"
    )
    command = [sys.executable, "-c", tells]
    alone = subprocess.run(
        command, cwd=tmp_path, env={}, stdin=subprocess.DEVNULL, capture_output=True, check=True
    )
    tree = ProcessTree(command, cwd=tmp_path, env={})
    first, second = tree.output.read().decode().splitlines()
    # 3 is the directory itself.
    assert first == "True ['0', '1', '2', '3'] True set() True"
    # Whatever is ignored around the tests is inherited.
    assert second == alone.stdout.decode().splitlines()[1]
    assert tree.status(10) == 0
    tree.output.close()
    tree.end()


def test_what_cannot_start_says_why_and_leaves_no_descriptor(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no program")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for name, error in (("nowhere", FileNotFoundError), ("./data", PermissionError)):
        with pytest.raises(error, match=name):
            ProcessTree([name], cwd=tmp_path, env={"PATH": os.defpath})
    with pytest.raises(FileNotFoundError):
        ProcessTree(["sh"], cwd=tmp_path / "gone", env={})
    assert len(list(Path("/proc/self/fd").iterdir())) == before
