"""A stream of results: what is given for each, and what leaving it does to the rest."""

import asyncio
import copy
import dataclasses
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice, pairwise
from types import SimpleNamespace
from typing import Any, assert_type

import pytest

from spindown import ItemFailed, ItemResult, JobFailed, ResultStream, WorkFailed, Workload
from spindown.client.mapper import Mapper
from spindown.client.option import StreamOptions
from spindown.client.workload import (
    FIRST_ITEMS,
    SECTION_ITEMS,
    _cancel_surely,
    section_sizes,
)
from spindown.error import BadInput, Unreachable

FAILURE = ItemFailed(
    index=1, item="b", workload="w", job_id="j", error="ValueError: no", traceback="line 7"
)


class Remembered:
    """Work whose results are given; it notes how often it was left."""

    name = "b-1"
    total = 3

    def __init__(self, found: Iterable[ItemResult[Any] | None]) -> None:
        self._found = found
        self.times_left = 0

    def results(self) -> Iterator[ItemResult[Any] | None]:
        yield from self._found

    def stop(self) -> None:
        self.is_stopped = True

    def leave(self) -> None:
        self.times_left += 1

    def describe(self) -> str:
        return f"{self.name} goes on"


class RememberedMapper(Mapper[str, int]):
    """Maps any items to the results that it was given."""

    def __init__(self, *found: ItemResult[Any] | None) -> None:
        self.work = Remembered(found)

    def begin(self, items: Iterable[Any], how: StreamOptions, *, in_order: bool) -> Remembered:
        return self.work


def ok(index: int) -> ItemResult[int]:
    return ItemResult(index=index, item="a", _value=index * 10)


def failed() -> ItemResult[int]:
    return ItemResult(index=1, item="b", error=FAILURE)


def test_all_values_come_and_nothing_is_left() -> None:
    mapper = RememberedMapper(ok(0), None, ok(1))

    assert list(mapper.map(["a", "b"])) == [0, 10]
    assert mapper.work.times_left == 0


def test_a_failure_ends_the_stream_and_leaves_the_rest() -> None:
    mapper = RememberedMapper(ok(0), failed(), ok(2))
    stream = mapper.map(["a", "b", "c"])

    assert next(stream) == 0
    with pytest.raises(ItemFailed) as raised:
        next(stream)

    assert raised.value.__notes__ == ["line 7"]
    assert list(stream) == []
    assert mapper.work.times_left == 1


def test_failures_can_be_values() -> None:
    mapper = RememberedMapper(ok(0), failed(), ok(2))

    assert mapper.gather(["a", "b", "c"], return_exceptions=True) == [0, FAILURE, 20]
    assert mapper.work.times_left == 0


def test_a_ctrl_c_says_what_becomes_of_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> Iterator[ItemResult[Any] | None]:
        yield ok(0)
        raise KeyboardInterrupt

    mapper = RememberedMapper()
    mapper.work = Remembered(interrupted())

    with pytest.raises(KeyboardInterrupt):
        mapper.gather(["a", "b"])

    assert capsys.readouterr().err == "spindown: b-1 goes on\n"
    assert mapper.work.times_left == 1


def test_a_break_leaves_the_rest_at_once() -> None:
    mapper = RememberedMapper(ok(0), ok(1))

    for _ in mapper.map(["a", "b"]):
        break

    assert mapper.work.times_left == 1


def test_it_is_left_once_however_often_it_is_closed() -> None:
    mapper = RememberedMapper(ok(0), ok(1))

    with mapper.results(["a", "b"]) as stream:
        next(stream)
        stream.close()

    assert mapper.work.times_left == 1


def test_what_takes_too_long_is_left() -> None:
    mapper = RememberedMapper(ok(0), *[None] * 1000)
    stream = mapper.map(["a", "b"], timeout=0.01)

    assert next(stream) == 0
    with pytest.raises(TimeoutError, match="b-1"):
        next(stream)

    assert mapper.work.times_left == 1


def test_results_without_end_end_at_the_timeout() -> None:
    mapper = RememberedMapper()
    mapper.work = Remembered(map(ok, count()))

    with pytest.raises(TimeoutError):
        mapper.gather(["a", "b"], timeout=0.05)

    assert mapper.work.times_left == 1


def test_no_terminal_obeys_what_an_error_says() -> None:
    evil = "\x1b]0;x\x07\n\u202e"
    item = ItemFailed(index=0, item="a", workload="w", error=evil, traceback=f"\tline 7\n{evil}")
    job = JobFailed(index=0, item="a", workload="w", job_id="j", state="failed", cause=evil)

    assert str(item).isprintable()
    assert str(job).isprintable()
    assert item.__notes__ == ["\tline 7\n\\x1b]0;x\\x07\n\\u202e"]
    assert (item.error, job.cause) == (evil, evil)


def test_a_task_that_is_cancelled_leaves_its_stream() -> None:
    mapper = RememberedMapper(*[None] * 1000)

    async def use() -> None:
        task = asyncio.create_task(mapper.aio.gather(["a"]))
        await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()

    asyncio.run(use())

    assert mapper.work.times_left == 1


def test_streams_of_one_loop_do_not_wait_for_each_other() -> None:
    count_of_streams = 3
    together = threading.Barrier(count_of_streams, timeout=60)

    class Meeting(RememberedMapper):
        def begin(self, items: Iterable[Any], how: StreamOptions, *, in_order: bool) -> Remembered:
            together.wait()
            return super().begin(items, how, in_order=in_order)

    async def use() -> list[list[int]]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        streams = [Meeting(ok(0)).aio.gather(["a"]) for _ in range(count_of_streams)]
        return list(await asyncio.gather(*streams))

    assert asyncio.run(use()) == [[0]] * count_of_streams


def test_what_is_told_of_progress_may_close_the_stream() -> None:
    mapper = RememberedMapper(ok(0), None, ok(1))
    stream: ResultStream[int] = mapper.map(["a", "b"], progress=lambda *_: stream.close())
    values = list[int]()
    reader = threading.Thread(target=lambda: values.extend(stream), daemon=True)

    reader.start()
    reader.join(timeout=60)

    assert not reader.is_alive()
    assert values == [0]
    assert mapper.work.times_left == 1


def test_a_signal_s_handler_may_close_the_stream_anywhere() -> None:
    mapper = RememberedMapper()
    held = threading.Lock()
    was_held = list[bool]()

    def found() -> Iterator[ItemResult[int] | None]:
        # As its handler does: in the thread that it came to, whatever that does.
        with held:
            stream.close()
        yield None

    class Locking(Remembered):
        def leave(self) -> None:
            super().leave()
            was_held.append(held.locked())

    mapper.work = Locking(found())
    stream: ResultStream[int] = mapper.map(["a", "b"])

    assert list(stream) == []
    assert was_held == [False]


def test_a_stream_that_is_closed_reads_no_further() -> None:
    ended = list[str]()

    def found() -> Iterator[ItemResult[int]]:
        try:
            yield ok(0)
            yield ok(1)
        finally:
            ended.append("ended")

    mapper = RememberedMapper()
    mapper.work = Remembered(found())
    stream = mapper.map(["a", "b"])
    next(stream)
    stream.close()

    assert ended == ["ended"]
    assert list(stream) == []


def test_a_forked_process_leaves_the_work_to_its_parent() -> None:
    mapper = RememberedMapper(ok(0), ok(1))
    stream = mapper.map(["a", "b"])

    if (child := os.fork()) == 0:
        try:
            stream.close()
        finally:
            os._exit(mapper.work.times_left)
    _, status = os.waitpid(child, 0)

    assert status == 0
    assert list(stream) == [0, 10]


def test_progress_is_told_with_failures_and_total() -> None:
    told: list[tuple[int, int, int | None]] = []
    mapper = RememberedMapper(ok(0), failed())

    mapper.gather(["a", "b"], return_exceptions=True, progress=lambda *seen: told.append(seen))

    assert told == [(1, 0, 3), (1, 1, 3)]


def test_a_notebook_shows_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    def display(cell: Any, *, display_id: bool) -> Any:
        shown.append(cell._repr_html_())
        return SimpleNamespace(update=lambda cell: shown.append(cell._repr_html_()))

    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    mapper = RememberedMapper(ok(0), None, ok(1))

    mapper.gather(["a", "b"])
    mapper.gather(["a", "b"], progress=False)

    assert len(shown) == 2
    assert 'max="3" value="2"' in shown[-1]


def test_a_failure_can_be_copied_to_another_process() -> None:
    again = copy.copy(FAILURE)

    assert (again.index, again.error, str(again)) == (1, FAILURE.error, str(FAILURE))


def test_a_result_can_be_copied_to_another_process() -> None:
    store: Any = threading.Lock()
    result: ItemResult[dict[str, int]] = ItemResult(
        index=0, item="a", files=("a.txt",), _value={"n": 1}, _source=({}, store)
    )

    again = copy.deepcopy(result)

    assert pickle.dumps(result)
    assert again == result
    assert again.result() == {"n": 1}
    assert dataclasses.asdict(result)["files"] == ("a.txt",)
    with pytest.raises(BadInput):
        again.download("got")


def test_an_error_that_is_raised_again_tells_one_place() -> None:
    result = failed()
    for _ in range(3):
        with pytest.raises(ItemFailed) as raised:
            result.result()

    assert len(raised.traceback) == 2


def test_to_import_the_package_loads_none_of_what_it_uses() -> None:
    slow = ("boto3", "pydantic", "typer", "rich", "spindown.client")
    program = f"import sys, spindown; print(sorted({set(slow)!r}.intersection(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)

    assert done.stdout.decode() == "[]\n"


@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_batch_is_cancelled_through_a_second_ctrl_c(
    times: int, capsys: pytest.CaptureFixture[str]
) -> None:
    left, cancelled = iter(range(times)), list[str]()

    def cancel() -> None:
        if next(left, None) is not None:
            raise KeyboardInterrupt
        cancelled.append("b-1")

    batch: Any = SimpleNamespace(id="b-1", options=" --local", is_there=True, cancel=cancel)
    _cancel_surely([batch])

    assert cancelled == ([] if times == 2 else ["b-1"])
    told = capsys.readouterr().err
    assert ("spindown cancel b-1 --local" in told) is (times == 2)
    assert told.count("\n") == times


def test_a_batch_that_cannot_be_cancelled_keeps_no_other() -> None:
    cancelled = list[str]()

    def refuse() -> None:
        raise Unreachable("S3")

    first: Any = SimpleNamespace(id="b-1", options=" --local", is_there=True, cancel=refuse)
    second: Any = SimpleNamespace(
        id="b-2", options="", is_there=True, cancel=lambda: cancelled.append("b-2")
    )
    with pytest.raises(Unreachable) as raised:
        _cancel_surely([first, second])

    assert cancelled == ["b-2"]
    assert "spindown cancel b-1 --local" in raised.value.__notes__[0]


def test_work_whose_stream_cannot_be_made_is_left() -> None:
    mapper = RememberedMapper(ok(0))
    no_number: Any = "60"

    with pytest.raises(TypeError):
        mapper.map(["a"], timeout=no_number)

    assert mapper.work.times_left == 1


def what_type_checkers_see(workload: Workload[str, dict[str, int]]) -> None:
    """Hold the types of the calls: mypy checks this, and nobody runs it."""
    assert_type(workload.map(["a"]), ResultStream[dict[str, int]])
    assert_type(
        workload.map(["a"], return_exceptions=True), ResultStream[dict[str, int] | WorkFailed]
    )
    assert_type(workload.gather(["a"], key="k"), list[dict[str, int]])
    assert_type(next(workload.as_completed(["a"])).result(), dict[str, int])
    assert_type(workload.submit(["a"]).gather(), list[dict[str, int]])
    workload.map([1])  # type: ignore[list-item]
    workload.map(["a"], on_exit="stop")  # type: ignore[call-overload]


def test_little_is_sent_ahead_of_what_is_read_of_an_iterator() -> None:
    of_iterator = list(islice(section_sizes(count()), 9))
    assert of_iterator[0] == FIRST_ITEMS
    assert all(size <= 2 * before for before, size in pairwise(of_iterator))
    assert of_iterator[-1] == next(section_sizes(["a"])) == SECTION_ITEMS
