"""A child runs the user's code: results as they come, models loaded once, files by name."""

import io
import json
from datetime import timedelta
from pathlib import Path

import pytest

from spindown.user import Item
from spindown.worker.child.failure_cause import Broken, FailureCause
from spindown.worker.child.frame import ANSWERS_BYTES_MAX, encode_frame, read_frame
from spindown.worker.child.runner import BatchDone, ItemDone, Task
from tests.worker.child.batch import Make, answers, failed, run_batch


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


def test_what_a_batch_had_given_is_there_when_it_is_stopped(make: Make, tmp_path: Path) -> None:
    runner = make("def run(batch, ctx):\n    return [Result(item, item.value) for item in batch]\n")
    runner.begin(Task(job_id="j", outputs=tmp_path), [Item(index, index) for index in range(9)])
    first = None
    while first is None:
        first = runner.poll(timedelta(seconds=10))
    given = [first, *runner.stop(timedelta(0))]
    assert answers(given) == {index: index for index in range(9)}
    assert runner.pid is None


def test_a_forked_copy_of_the_code_answers_nothing(make: Make, tmp_path: Path) -> None:
    runner = make(
        """
        def run(batch, ctx):
            copy = not os.fork()
            for item in batch:
                yield Result(item, "copy" if copy else "own")
        """
    )
    for _ in range(3):
        events = run_batch(runner, tmp_path)
        assert answers(events) == {0: "own", 1: "own", 2: "own"}
        assert len(events) == 3 + 1


def test_tells_where_in_the_code_an_item_failed(make: Make, tmp_path: Path) -> None:
    runner = make(
        """
        def deep(number):
            return 1 / number

        def run(batch, ctx):
            for item in batch:
                yield Result(item, deep(item.value))
        """
    )

    by_index = {one.index: one for one in run_batch(runner, tmp_path) if isinstance(one, ItemDone)}

    told = by_index[0].traceback or ""
    assert (by_index[0].error, by_index[1].traceback) == (
        "ZeroDivisionError: division by zero",
        None,
    )
    assert [line.split(" in ")[-1] for line in told.splitlines() if "File" in line] == [
        "run",
        "deep",
    ]


def test_tells_how_much_memory_an_answer_takes(make: Make, tmp_path: Path) -> None:
    runner = make("def run(batch, ctx):\n    return [Result(item, 'x' * 1000) for item in batch]\n")
    *done, _ = run_batch(runner, tmp_path)
    assert [1000 < one.size < 2000 for one in done if isinstance(one, ItemDone)] == [True] * 3


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


@pytest.mark.parametrize("kind", ["ValueError", "Panic", "KeyboardInterrupt", "GeneratorExit"])
def test_an_item_that_raises_fails_alone(make: Make, tmp_path: Path, kind: str) -> None:
    runner = make(
        f"""
        class Panic(BaseException):
            __module__ = "builtins"
        def run(batch, ctx):
            for item in batch:
                if item.value == 1:
                    raise {kind}("I do not like one")
                yield Result(item, "fine")
        """
    )
    found = answers(run_batch(runner, tmp_path))
    assert found == {0: "fine", 1: f"{kind}: I do not like one", 2: "fine"}


@pytest.mark.parametrize("note", ["", "see the manual\n", "at row 7"])
def test_an_exception_with_notes_is_told_by_its_own_line(
    make: Make, tmp_path: Path, note: str
) -> None:
    runner = make(
        f"""
        def run(batch, ctx):
            for item in batch:
                if item.value == 1:
                    wrong = ValueError("I do not like one")
                    wrong.add_note({note!r})
                    raise wrong
            return [Result(item, "fine") for item in batch]
        """
    )
    found = answers(run_batch(runner, tmp_path))
    assert found == {0: "fine", 1: "ValueError: I do not like one", 2: "fine"}


def test_the_log_says_why_items_come_a_second_time(
    make: Make, tmp_path: Path, output: io.StringIO
) -> None:
    runner = make(
        """
        def run(batch, ctx):
            if len(batch) > 1:
                raise ValueError("too many")
            return [Result(item, 1) for item in batch]
        """
    )
    assert answers(run_batch(runner, tmp_path)) == {0: 1, 1: 1, 2: 1}
    runner.kill()
    texts = [json.loads(line).get("text") for line in output.getvalue().splitlines()]
    (said,) = [text for text in texts if text]
    assert "ValueError: too many" in said
    assert said.endswith(": 3")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("return [Result(batch[0], {1, 2})]", "type set"),
        ("return [Result(batch[0], float('nan'))]", "nan (of type float)"),
        ("x = []\n    for _ in range(200): x = [x]\n    return [Result(batch[0], x)]", "64 levels"),
        ("return []", "result"),
        ("return [Result(batch[0], 1), Result(batch[0], 2)]", None),
        ("return [42]", "spindown.user.Result, not int"),
        ("sys.exit('enough')", "SystemExit: enough"),
        ("return [Result(batch[0], error='not today')]", "not today"),
        ("return [Result(batch[0], error=type('E', (), {'__str__': lambda _: 1 / 0})())]", "Zero"),
    ],
    ids=["not JSON", "NaN", "deep", "none", "two", "no Result", "exit", "error", "no words"],
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
        ("raise RuntimeError('no licence')", "RuntimeError: no licence"),
        ("import not_there", "ModuleNotFoundError: No module named 'not_there'"),
        ("x = 1", "run.entrypoint is 'job:run'"),
        ("run = 3", "run.entrypoint is 'job:run'"),
        ("def setup(ctx):\n    raise OSError('no model')\ndef run(b, c): ...", "OSError: no model"),
        ("def (", "SyntaxError"),
    ],
    ids=["raises", "no module", "no entrypoint", "not callable", "setup", "syntax"],
)
def test_says_why_code_cannot_be_loaded(make: Make, tmp_path: Path, source: str, says: str) -> None:
    [broken] = run_batch(make(source), tmp_path)
    assert isinstance(broken, Broken)
    assert broken.cause is FailureCause.NOT_LOADED
    assert says in broken.reason


def test_a_setup_that_exits_is_told_by_its_status(make: Make, tmp_path: Path) -> None:
    [broken] = run_batch(make("def setup(ctx):\n    os._exit(3)\ndef run(b, c): ..."), tmp_path)
    assert isinstance(broken, Broken)
    assert broken.cause is FailureCause.ENDED
    assert "status 3" in broken.reason


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


def test_large_batches_and_results_pass_whole(make: Make, tmp_path: Path) -> None:
    runner = make("def run(batch, ctx):\n    return [Result(i, i.value[::-1]) for i in batch]\n")
    text = "ab" * 500_000
    runner.begin(Task(job_id="j", outputs=tmp_path), [Item(0, text)])
    event = None
    while event is None:
        event = runner.poll(timedelta(seconds=10))
    assert isinstance(event, ItemDone)
    assert event.value == text[::-1]


def test_many_large_results_of_a_batch_come_a_few_at_a_time(make: Make, tmp_path: Path) -> None:
    runner = make(
        "def run(batch, ctx):\n    return [Result(item, 'x' * (3 << 20)) for item in batch]\n"
    )
    runner.begin(Task(job_id="j", outputs=tmp_path), [Item(index, index) for index in range(12)])
    events, most = [], 0
    while BatchDone() not in events:
        event = runner.poll(timedelta(seconds=10))
        if event is not None:
            events.append(event)
            child = runner._child
            assert child is not None
            most = max(most, child.frame_bytes)
    assert [event.index for event in events if isinstance(event, ItemDone)] == list(range(12))
    assert most <= ANSWERS_BYTES_MAX


def test_a_result_that_is_too_large_fails_its_item_alone(make: Make, tmp_path: Path) -> None:
    runner = make(
        """
        def run(batch, ctx):
            return [Result(item, "x" * (item.value << 24)) for item in batch]
        """
    )
    events = run_batch(runner, tmp_path, 2)
    assert failed(events) == {1}
    assert "16777216" in answers(events)[1]


def test_frames_survive_being_cut() -> None:
    whole = encode_frame({"type": "done"})
    for cut in range(len(whole)):
        assert read_frame(io.BytesIO(whole[:cut])) is None
    assert read_frame(io.BytesIO(whole)) == {"type": "done"}


def test_modules_of_the_code_may_have_the_names_of_ours(make: Make, tmp_path: Path) -> None:
    runner = make(
        """
        import functions, infra, worker

        def run(batch, ctx):
            found = worker.WHOSE + infra.WHOSE + functions.WHOSE
            return [Result(item, found) for item in batch]
        """
    )
    for name in ("functions", "infra", "worker"):
        (tmp_path / "code" / f"{name}.py").write_text("WHOSE = 'theirs'\n")

    assert set(answers(run_batch(runner, tmp_path)).values()) == {"theirs" * 3}
