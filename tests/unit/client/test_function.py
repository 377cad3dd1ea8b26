"""A decorated function: in this process it does what a worker does, and what cannot run is told."""

import asyncio
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, assert_type

import pytest

import spindown
from spindown import BadInput, Function, ItemFailed, JobFailed, ResultStream
from spindown.client.function import say_deploy
from spindown.error import NoCredentials
from spindown.infra.shared.worker_kit import worker_wheel

CONFIG = """
[deployment]
name = "here"
region = "us-east-1"
zones = ["us-east-1a"]

[workload.size.run]
entrypoint = "size:run"
code = "code"
"""


@spindown.function(vcpus=1)
def halve(number: int, *, digits: int = 2) -> float:
    """Return half of it."""
    if number == 13:
        raise ValueError("not this one")
    return round(number / 2, digits)


@spindown.function(name="size")
def size_of(path: Path) -> int:
    return len(path.read_bytes())


@spindown.function
def give(what: str) -> Any:
    match what:
        case "set":
            return {1}
        case "memory":
            raise MemoryError
        case "exit":
            raise SystemExit(3)
        case "key":
            raise KeyboardInterrupt
    return (what,)


def test_a_call_runs_it_here() -> None:
    assert (halve(5), halve(5, digits=0)) == (2.5, 2.0)
    assert (halve.name, size_of.name, halve.__doc__) == ("halve", "size", "Return half of it.")
    assert pickle.loads(pickle.dumps(halve)) is halve  # noqa: S301 - our own


def test_all_calls_are_there_in_this_process(tmp_path: Path) -> None:
    (tmp_path / "four").write_bytes(b"four")

    assert list(halve.local.map(iter([4, 5]), params={"digits": 0})) == [2.0, 2.0]
    assert [one.index for one in halve.local.as_completed([1, 2])] == [0, 1]
    assert size_of.local.gather([tmp_path / "four"]) == [4]
    assert asyncio.run(halve.local.aio.gather([4])) == [2.0]


def test_items_are_computed_as_they_are_asked_for() -> None:
    taken = []

    def numbers() -> Iterator[int]:
        for number in (1, 2, 3):
            taken.append(number)
            yield number

    assert next(halve.local.map(numbers())) == 0.5
    assert taken == [1]


def test_an_item_that_raises_is_raised_as_from_a_machine() -> None:
    with pytest.raises(ItemFailed) as raised:
        halve.local.gather([1, 13])

    failure = raised.value
    assert (failure.index, failure.item, failure.workload) == (1, 13, "halve")
    assert failure.error == "ValueError: not this one"
    told = (failure.traceback or "").splitlines()
    assert [line.split(" in ")[-1] for line in told if "File" in line] == ["halve"]


def test_results_are_what_a_worker_would_have_sent() -> None:
    first, second, third, fourth = give.local.gather(
        ["a", "set", "memory", "exit"], return_exceptions=True
    )

    assert first == ["a"]
    assert isinstance(second, ItemFailed)
    assert "type set" in second.error
    assert isinstance(third, JobFailed)
    assert isinstance(fourth, ItemFailed)
    assert fourth.error == "SystemExit: 3"


def test_a_ctrl_c_is_of_the_person_and_not_of_the_item() -> None:
    with pytest.raises(KeyboardInterrupt):
        give.local.gather(["key"])


def test_a_forked_process_gets_its_results_too(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "import spindown\n@spindown.function\ndef job(item):\n    return item + 1\n"
    )
    program = (
        "import os, job\njob.job.local.gather([1])\nos.fork()\nprint(job.job.local.gather([1]))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], check=True, cwd=tmp_path, capture_output=True, text=True
    )

    assert done.stdout.count("[2]") == 2


class Array:
    """What shows itself in lines, and has a list in it, as an array of numpy."""

    def __repr__(self) -> str:
        return "[1\n2]"

    def tolist(self) -> list[int]:
        return [1, 2]


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({1}, "item 0 is {1}: it is of type set; give"),
        ({"a": [float("inf")]}, "item 0 is { a = [inf] }: ['a'][0] is inf (of type float)"),
        (Array(), "item 0 is [1 2]: it is of type tests.unit.client.test_function.Array; give its"),
        (float("nan"), "item 0 is nan"),
        (Path("none"), "item 0 is 'none'"),
        ("s3://some-bucket/key", "item 0 is 's3://"),
    ],
)
def test_an_item_that_cannot_be_sent_is_named(item: Any, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        give.local.gather([item])

    assert str(caught.value).startswith(said)


def test_params_are_what_the_function_takes_by_name() -> None:
    for ask in (halve.map, halve.submit, halve.local.map):
        with pytest.raises(BadInput) as caught:
            ask([1], params={"figures": 1})
        assert caught.value.field == "params"
        with pytest.raises(BadInput) as caught:
            ask([1], params={"digits": {1}})
        assert caught.value.field == "params"


async def waiting(item: int) -> int:
    return item


def yielding(item: int) -> Iterator[int]:
    yield item


def of_two(item: int, other: int) -> int:
    return item + other


def of_none() -> int:
    return 0


class Holder:
    def method(self, item: int) -> int:
        return item


@pytest.mark.parametrize(
    ("call", "mend"),
    [
        (lambda item: item, "write it with def: "),
        (Holder.method, "move it out of its class: "),
        (Holder, "decorate what `def` makes"),
        (waiting, "write it without async: "),
        (yielding, "return a value in place of yield: "),
        (of_two, "let it take one item by its place"),
        (of_none, "let it take one item by its place"),
    ],
)
def test_what_no_worker_could_run_is_refused(call: Any, mend: str) -> None:
    with pytest.raises(BadInput) as caught:
        spindown.function(call)

    assert caught.value.remedy.startswith(mend)


def test_a_function_inside_of_another_is_refused() -> None:
    def closure(item: int) -> int:
        return item

    with pytest.raises(BadInput) as caught:
        spindown.function(closure)

    assert caught.value.field == "function"


def test_what_a_script_defines_runs_only_here(tmp_path: Path) -> None:
    program = (
        "import spindown\n"
        "@spindown.function\ndef same(item):\n    return item\n"
        "print(same.local.gather([1]))\n"
        "try:\n    same.map([1])\nexcept spindown.BadInput as exc:\n    print(exc.value)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], check=True, cwd=tmp_path, capture_output=True, text=True
    )

    assert done.stdout.splitlines() == ["[1]", "same"]


def test_a_worker_without_any_package_has_the_decorator(tmp_path: Path) -> None:
    with zipfile.ZipFile(BytesIO(worker_wheel())) as wheel:
        wheel.extractall(tmp_path)
    (tmp_path / "job.py").write_text(
        "import spindown\n@spindown.function(gpu='L4')\ndef job(item):\n    return item + 1\n"
    )
    program = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from spindown.worker.child.user_code import load\n"
        "from spindown.user import Context, Item\n"
        "from pathlib import Path\n"
        f"run = load(Path({str(tmp_path)!r}), 'job:job', Context(Path()))\n"
        "print([one.value for one in run([Item(0, 1), Item(1, 2)], Context(Path()))])\n"
    )

    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program], check=False, capture_output=True, text=True
    )

    assert (done.stdout, done.stderr) == ("[2, 3]\n", "")


@pytest.mark.parametrize(
    ("call", "works"),
    [
        (lambda: halve.map([1]), "halve.workload(local_system=True)"),
        (lambda: spindown.Workload("size"), "Workload('size', local_system=True)"),
    ],
)
def test_without_credentials_the_local_call_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[[], object], works: str
) -> None:
    (tmp_path / "spindown.toml").write_text(CONFIG, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "absent"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    with pytest.raises(NoCredentials) as caught:
        call()

    assert works in caught.value.remedy


@pytest.mark.parametrize(("is_local", "command"), [(False, "deploy"), (True, "local up")])
def test_the_mend_deploys_where_it_was_asked_for(is_local: bool, command: str) -> None:
    said = say_deploy("digest.py", " --config a.toml", is_local=is_local)

    assert "`spindown init --function digest.py --config a.toml`" in said
    assert f"`spindown {command} --config a.toml`" in said


def test_a_workload_refuses_what_it_does_not_know() -> None:
    unknown: Any = {"local": True}

    calls: tuple[Callable[[], object], ...] = (
        lambda: halve.workload(**unknown),
        lambda: spindown.Workload("size", **unknown),
    )
    for call in calls:
        with pytest.raises(BadInput, match="local_system=True"):
            call()


def test_where_it_runs_is_no_option_of_a_call() -> None:
    how: Any = {"local_system": True}

    for call in (halve.map, halve.submit):
        with pytest.raises(BadInput) as caught:
            call([1], **how)
        assert caught.value.field == "option"


def what_type_checkers_see() -> None:
    """Hold the types of the calls: mypy checks this, and nobody runs it."""
    assert_type(halve, Function[int, float])
    assert_type(give, Function[str, Any])
    assert_type(halve(1), float)
    assert_type(halve.map([1]), ResultStream[float])
    assert_type(halve.local.gather([1]), list[float])
    assert_type(halve.workload(local_system=True).gather([1]), list[float])
    assert_type(halve.submit([1]).gather(), list[float])
    halve.map(["a"])  # type: ignore[list-item]
    spindown.function(cpus=1)  # type: ignore[call-overload]
