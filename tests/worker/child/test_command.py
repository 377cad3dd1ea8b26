"""Any program as a workload's code: real processes, whatever they do."""

import errno
import io
import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spindown.contract.run_spec import Results, RunSpec
from spindown.user import Item
from spindown.worker.child.code import Code
from spindown.worker.child.command import CommandRunner
from spindown.worker.child.container import Machine
from spindown.worker.child.failure_cause import Broken, FailureCause
from spindown.worker.child.output import OutputLog
from spindown.worker.child.program_call import BadResult, ResultReader, open_call
from spindown.worker.child.runner import BatchDone, Event, ItemDone, Task
from spindown.worker.log import open_log
from tests.local.waiting import until
from tests.worker.child.batch import answers, drain, failed

Make = Callable[..., CommandRunner]

_PRELUDE = """\
import json, os, signal, sys, threading
items = [json.loads(line) for line in open(os.environ["SPINDOWN_ITEMS"])]
params = json.load(open(os.environ["SPINDOWN_PARAMS"]))
def tell(**row):
    with open(os.environ["SPINDOWN_RESULTS"], "a") as results:
        results.write(json.dumps(row) + "\\n")
"""

_AS_IT_IS = "results = open(os.environ['SPINDOWN_RESULTS'], 'w')\n"


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[CommandRunner] = []

    def make(source: str, **spec: Any) -> CommandRunner:
        root = tmp_path / "code"
        root.mkdir(exist_ok=True)
        (root / "program.py").write_text(_PRELUDE + textwrap.dedent(source))
        values = {
            "command": (sys.executable, "program.py"),
            "item_timeout": timedelta(seconds=30),
            **spec,
        }
        code = Code(root=root, spec=RunSpec(**values), digest="d")
        place = Machine(argv=code.spec.command, env={"CUDA_VISIBLE_DEVICES": "1", "LEVEL": "3"})
        runner = CommandRunner(code, place, slot=1, log=open_log(io.StringIO()))
        made.append(runner)
        return runner

    yield make
    for runner in made:
        runner.kill()


def a_task(tmp_path: Path, **values: Any) -> Task:
    place = tmp_path / "job"
    for name in ("outputs", "state"):
        (place / name).mkdir(parents=True, exist_ok=True)
    return Task(job_id="j", outputs=place / "outputs", state=place / "state", **values)


def run_batch(runner: CommandRunner, tmp_path: Path, count: int = 3, **task: Any) -> list[Event]:
    runner.begin(a_task(tmp_path, **task), [Item(i, {"n": i}) for i in range(count)])
    return drain(runner)


def test_gives_each_result_as_it_is_written(make: Make, tmp_path: Path) -> None:
    runner = make(
        """
        for item in items:
            os.makedirs(item["output"] + "/deep")
            open(item["output"] + "/deep/a.txt", "w").write("x")
            tell(index=item["index"], value=item["value"]["n"] * params["factor"])
            if item["index"] == 1:
                tell(index=2, error="not today")
                break
        """
    )
    events = run_batch(runner, tmp_path, params={"factor": 2})
    assert answers(events) == {0: 0, 1: 2, 2: "not today"}
    assert events[-1] == BatchDone()
    assert [e.files for e in events if isinstance(e, ItemDone)] == [("deep/a.txt",)] * 2 + [()]
    assert [e.size > 10 for e in events if isinstance(e, ItemDone) and e.error is None] == [
        True
    ] * 2
    assert runner.pid is None


def test_results_unread_for_long_are_read_in_turns(tmp_path: Path) -> None:
    batch = [Item(index, index) for index in range(40)]
    call = open_call(a_task(tmp_path), batch, slot=0, number=1, results=Results.PER_ITEM)
    reader = ResultReader(call)
    with (call.directory / "results.jsonl").open("w") as file:
        for item in batch:
            file.write(json.dumps({"index": item.index, "value": "x" * 1024**2}) + "\n")

    turns = []
    while found := reader.read(1.0, is_last=True):
        turns.append(len(found))

    reader.close()
    assert max(turns) <= 5
    assert sum(turns) == 40


def test_what_a_program_leaves_unread_is_read_after_its_end(make: Make, tmp_path: Path) -> None:
    runner = make(
        """
        for item in items:
            tell(index=item["index"], value="x" * 3 * 1024**2)
        """
    )
    events = run_batch(runner, tmp_path)
    assert [len(value) for value in answers(events).values()] == [3 * 1024**2] * 3
    assert events[-1] == BatchDone()


@pytest.mark.parametrize("fat", ["[],", '{"a":1},'])
def test_a_line_of_too_many_values_is_no_result(make: Make, tmp_path: Path, fat: str) -> None:
    code = f"""
    with open(os.environ["SPINDOWN_RESULTS"], "w") as file:
        file.write('{{"index": 0, "value": [' + {fat!r} * 10**6 + '0]}}')
    """
    [broken] = run_batch(make(code), tmp_path)
    assert isinstance(broken, Broken)
    assert broken.cause is FailureCause.BAD_RESULT


def test_a_program_of_one_item_needs_only_its_exit_status(make: Make, tmp_path: Path) -> None:
    script = 'set -eu; test "$SPINDOWN_ITEM" = clip; test "$LEVEL$CUDA_VISIBLE_DEVICES" = 31\n'
    script += 'tr a-z A-Z <"$SPINDOWN_INPUT" >"$SPINDOWN_ITEM_OUTPUT/out.txt"'
    runner = make("", command=("sh", "-c", script))
    source = tmp_path / "in.txt"
    source.write_text("words")
    runner.begin(a_task(tmp_path), [Item(4, "clip", source)])
    [done, end] = drain(runner)
    assert isinstance(done, ItemDone)
    assert (done.index, done.value, done.error, done.files) == (4, None, None, ("out.txt",))
    assert end == BatchDone()
    assert (tmp_path / "job" / "outputs" / "4" / "out.txt").read_text() == "WORDS"


@pytest.mark.parametrize("value", ["a\0b", "\ud800", "x" * 2_000_000, {"deep": ["x" * 200_000]}])
def test_a_value_that_no_environment_holds_is_in_the_file_alone(
    make: Make, tmp_path: Path, value: Any
) -> None:
    runner = make("tell(index=0, value=[len(os.environ['SPINDOWN_ITEM']), items[0]['value']])")
    runner.begin(a_task(tmp_path), [Item(0, value)])
    [done, end] = drain(runner)
    assert end == BatchDone()
    assert isinstance(done, ItemDone)
    assert done.value[0] <= 65536
    assert done.value[1] == value


def test_a_whole_job_is_done_by_its_exit_status(make: Make, tmp_path: Path) -> None:
    runner = make(
        """
        open(os.environ["SPINDOWN_OUTPUT"] + "/mesh.bin", "w").write("mesh")
        json.dump({"items": len(items)}, open(os.environ["SPINDOWN_RESULTS"], "w"), indent=2)
        """,
        results=Results.PER_JOB,
    )
    [first, second, end] = run_batch(runner, tmp_path, 2)
    assert isinstance(first, ItemDone)
    assert (first.index, first.value, first.files) == (0, {"items": 2}, ("mesh.bin",))
    assert second == ItemDone(index=1)
    assert end == BatchDone()


@pytest.mark.parametrize(
    ("body", "expected", "cause", "says"),
    [
        (
            "tell(index=0, value=1)\nprint('oh')\nsys.exit(3)",
            {0: 1},
            FailureCause.ENDED,
            'status 3; its last output was "oh"',
        ),
        ("os.kill(os.getpid(), signal.SIGSEGV)", {}, FailureCause.KILLED, "SIGSEGV"),
        ("os.kill(os.getpid(), signal.SIGKILL)", {}, FailureCause.KILLED, "SIGKILL"),
        ("sys.exit(137)", {}, FailureCause.ENDED, "status 137"),
        ("tell(index=7)", {}, FailureCause.BAD_RESULT, '"index": 7'),
        ("tell(index=0)\ntell(index=0)", {}, FailureCause.BAD_RESULT, '"index": 0'),
        ("tell(value=1)", {}, FailureCause.BAD_RESULT, "index"),
        ("tell(index=0, value=float('nan'))", {}, FailureCause.BAD_RESULT, "JSON"),
        ("tell(index=0, value=float('inf'))", {}, FailureCause.BAD_RESULT, "JSON"),
        (
            _AS_IT_IS + 'results.write(\'{"index": 0, "value": -1e999}\')',
            {},
            FailureCause.BAD_RESULT,
            "JSON",
        ),
        (
            "x = []\nfor _ in range(99): x = [x]\ntell(index=0, value=x)",
            {},
            FailureCause.BAD_RESULT,
            "64 levels",
        ),
        (
            "open(os.environ['SPINDOWN_RESULTS'], 'wb').write(b'\\xff{]')",
            {},
            FailureCause.BAD_RESULT,
            "JSON",
        ),
    ],
    ids=[
        "it fails",
        "it crashes",
        "it is killed",
        "its shell saw it killed",
        "an item of nobody",
        "two results",
        "no index",
        "NaN",
        "infinity",
        "a number that no float holds",
        "deep",
        "bytes",
    ],
)
def test_says_why_a_program_failed(
    make: Make,
    tmp_path: Path,
    body: str,
    expected: dict[int, Any],
    cause: FailureCause,
    says: str,
) -> None:
    events = run_batch(make(body), tmp_path, 2)
    [broken] = [event for event in events if isinstance(event, Broken)]
    assert broken.cause is cause
    assert says in broken.reason
    assert answers(events).items() >= expected.items()


def test_an_item_without_a_result_fails_alone(make: Make, tmp_path: Path) -> None:
    *done, end = run_batch(make("tell(index=0)"), tmp_path, 2)
    assert failed(done) == {1}
    assert answers(done)[0] is None
    assert end == BatchDone()


def test_bad_input_fails_the_item_with_its_last_words(make: Make, tmp_path: Path) -> None:
    body = "tell(index=0, value=1)\nprint('bad header')\nsys.exit(65)"
    *done, end = run_batch(make(body), tmp_path, 2)
    assert answers(done) == {0: 1, 1: "bad header"}
    assert end == BatchDone()


def test_a_program_that_is_not_there_is_one_sentence(make: Make, tmp_path: Path) -> None:
    runner = make("", command=("./no-such-program",))
    [broken] = run_batch(runner, tmp_path, 1)
    assert isinstance(broken, Broken)
    assert broken.cause is FailureCause.NOT_STARTED
    assert broken.reason.endswith(f"{os.strerror(errno.ENOENT)}: ./no-such-program")


def test_a_hang_is_ended_with_all_that_it_has_started(make: Make, tmp_path: Path) -> None:
    runner = make(
        """
        import subprocess
        child = subprocess.Popen(["sleep", "600"])
        tell(index=0, value=child.pid)
        threading.Event().wait()
        """,
        item_timeout=timedelta(seconds=0.4),
    )
    events = run_batch(runner, tmp_path, 2)
    broken = events[-1]
    assert isinstance(broken, Broken)
    assert broken.cause is FailureCause.TIMEOUT
    assert "item_timeout" in broken.reason
    assert " 0.8 s " in broken.reason
    sleeper = answers(events)[0]
    until(lambda: not is_running(sleeper))


def is_running(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("obeys", [True, False], ids=["obeys", "does not listen"])
def test_is_asked_to_stop_and_ended_after_its_grace(
    make: Make, tmp_path: Path, obeys: bool
) -> None:
    runner = make(
        f"""
        def stop(*_):
            tell(index=1, value="at the end")
            with open(os.environ["SPINDOWN_CHECKPOINT"] + "/step", "w") as file:
                file.write("41")
            sys.exit(0) if {obeys} else None
        signal.signal(signal.SIGTERM, stop)
        tell(index=0, value="before")
        while True:
            threading.Event().wait(0.05)
        """
    )
    runner.begin(a_task(tmp_path), [Item(i, i) for i in range(3)])
    first: Event | None = None
    while first is None:
        first = runner.poll(timedelta(seconds=10))
    assert isinstance(first, ItemDone)
    assert (first.index, first.value) == (0, "before")
    given = runner.stop(timedelta(seconds=5 if obeys else 0.3))
    assert [(done.index, done.value) for done in given] == [(1, "at the end")]
    assert (tmp_path / "job" / "state" / "step").read_text() == "41"
    assert runner.pid is None
    after: Event | None = runner.poll(timedelta(0))
    assert isinstance(after, Broken)
    assert after.cause is FailureCause.ENDED


def test_cannot_make_the_worker_read_another_file_as_results(make: Make, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(json.dumps({"index": 0, "value": "the worker's own"}) + "\n")
    runner = make(
        f"""
        path = os.environ["SPINDOWN_RESULTS"]
        os.unlink(path)
        os.symlink({str(secret)!r}, path)
        """
    )
    assert failed(run_batch(runner, tmp_path, 2)) == {0, 1}


def test_a_line_that_python_prints_is_seen_while_it_runs(make: Make, tmp_path: Path) -> None:
    gate, output_log = tmp_path / "gate", OutputLog()
    os.mkfifo(gate)
    runner = make("print('begun'); open(params['gate']).read()")
    task = a_task(tmp_path, params={"gate": str(gate)}, output_log=output_log)
    runner.begin(task, [Item(0, {"n": 0})])
    runner.poll(timedelta(0))

    until(lambda: output_log.read() == b"begun\n")

    gate.write_text("")
    drain(runner)


def test_the_user_says_whether_python_holds_lines_back() -> None:
    own = Machine(argv=("a",), env={"PYTHONUNBUFFERED": ""}).environment(None)

    assert own == {"PYTHONUNBUFFERED": ""}


def test_output_goes_to_the_tape_of_its_job(make: Make, tmp_path: Path) -> None:
    output_log = OutputLog(head_bytes=40, tail_bytes=30)
    runner = make("for n in range(20): print(f'line {n:02}')")
    run_batch(runner, tmp_path, 1, output_log=output_log)
    kept = output_log.read().decode()
    assert kept.startswith("line 00\nline 01\n")
    assert kept.endswith("line 18\nline 19\n")
    assert "bytes left out]" in kept
    assert len(kept) < 110


def test_nothing_of_a_call_is_left_when_the_next_one_begins(make: Make, tmp_path: Path) -> None:
    runner = make("for item in items:\n    tell(index=item['index'])\n")
    for _ in range(3):
        assert run_batch(runner, tmp_path)[-1] == BatchDone()
        assert not list((tmp_path / "job").glob("call-*"))


def test_of_a_flood_of_results_only_enough_to_refuse_is_read(
    tmp_path: Path,
) -> None:
    call = open_call(a_task(tmp_path), [Item(0, 0)], slot=0, number=1, results=Results.PER_ITEM)
    reader = ResultReader(call)
    with (call.directory / "results.jsonl").open("wb") as results:
        for _ in range(60):
            results.write(b'{"index": 0}\n' * 80_000)
    with pytest.raises(BadResult, match="index"):
        reader.read(1.0, is_last=True)
    assert reader._file.tell() < 40 * 1024 * 1024
    reader.close()
