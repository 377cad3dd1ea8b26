"""The user's code may write to the worker's line: whatever comes fails its job and nothing else."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.user import Item
from spindown.worker.child.failure_cause import Broken, FailureCause
from spindown.worker.child.runner import BadFrame, ItemDone, Task, read_results
from spindown.worker.code_folder import find_fault
from tests.worker.child.batch import Make, run_batch

#: Writes a frame of its own, and then works as it should.
FORGER = """
import json, struct
frames = {frames!r}
def forge():
    for data in frames:
        os.write(int(sys.argv[2]), struct.pack(">I", len(data)) + data)
"""
RUN = """
def run(batch, ctx):
    forge()
    return [Result(item, item.value) for item in batch]
"""


def done(**changes: Any) -> dict[str, Any]:
    return {
        "type": "results",
        "results": [{"index": 0, "seconds": 1.0, "value": 1, **changes}],
        "done": False,
    }


@pytest.mark.parametrize(
    "frame",
    [
        {"type": "results"},
        {"type": "results", "results": 5, "done": True},
        {"type": "results", "results": [5], "done": True},
        {"type": "results", "results": [], "done": 1},
        {"type": "broken"},
        {"type": "memory", "reason": 5},
        {"type": "memory", "reason": ""},
        {"type": "memory", "reason": "", "peak_bytes": -1},
        {"type": "memory", "reason": "", "peak_bytes": 10**400},
        {"type": ["x"]},
        {"type": "ready"},
        done(index=99_999),
        done(index=-1),
        done(index=True),
        done(index="x"),
        done(seconds=-1.0),
        done(seconds=10**400),
        done(seconds="x"),
        done(files="abc"),
        done(files=[5]),
        done(error={"a": 1}),
        done(error="a", traceback=["b"]),
    ],
    ids=lambda frame: json.dumps(frame)[-90:],
)
def test_a_forged_frame_fails_the_job(make: Make, tmp_path: Path, frame: dict[str, Any]) -> None:
    runner = make(FORGER.format(frames=[json.dumps(frame).encode()]) + RUN)

    *_, last = run_batch(runner, tmp_path)

    assert isinstance(last, Broken)
    assert last.cause is FailureCause.BAD_RESULT
    assert runner.pid is None


def test_an_answer_comes_once(make: Make, tmp_path: Path) -> None:
    forged = [json.dumps(done(value="forged")).encode()]
    runner = make(FORGER.format(frames=forged) + RUN)

    *_, last = run_batch(runner, tmp_path)

    assert isinstance(last, Broken)
    assert last.cause is FailureCause.BAD_RESULT


def test_no_answer_comes_before_its_batch(make: Make, tmp_path: Path) -> None:
    forged = [json.dumps(done()).encode()]
    runner = make(FORGER.format(frames=forged) + "forge()\n" + RUN)

    [last] = run_batch(runner, tmp_path)

    assert isinstance(last, Broken)
    assert last.cause is FailureCause.BAD_RESULT


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b"[" * 100_000, b'{"type": NaN}'])
def test_what_is_no_frame_ends_the_child(make: Make, tmp_path: Path, data: bytes) -> None:
    runner = make(FORGER.format(frames=[data]) + RUN)

    *_, last = run_batch(runner, tmp_path)

    assert isinstance(last, Broken)


def test_an_empty_frame_is_passed_over(make: Make, tmp_path: Path) -> None:
    empty = json.dumps({"type": "results", "results": [], "done": False}).encode()
    runner = make(FORGER.format(frames=[empty] * 3) + RUN)
    runner.begin(Task(job_id="j", outputs=tmp_path), [Item(0, "a")])
    event = None
    while event is None:
        event = runner.poll(timedelta(seconds=10))

    assert isinstance(event, ItemDone)
    assert event.value == "a"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
ROWS = st.dictionaries(
    st.sampled_from(["index", "seconds", "value", "error", "traceback", "files"]),
    VALUES | st.just(0),
)
FRAMES = st.fixed_dictionaries(
    {"type": st.just("results")},
    optional={"results": st.lists(ROWS | VALUES, max_size=3) | VALUES, "done": VALUES},
)


@given(frame=FRAMES)
def test_a_frame_is_answers_or_bad(frame: dict[str, Any]) -> None:
    try:
        found = read_results(frame, {0, 1}, 100)
    except BadFrame:
        return
    assert {one.index for one in found} <= {0, 1}
    for one in found:
        assert 0.0 <= one.seconds < float("inf")
        assert one.error is None or isinstance(one.error, str)
        assert all(
            find_fault(file) is None or "file" in str(find_fault(file)) for file in one.files
        )
