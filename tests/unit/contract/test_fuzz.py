"""Whatever bytes come, a parser gives a value or says in one sentence what is wrong with them.

Messages come from whoever may send to a queue, manifests from a bucket, results from a
program, settings from a person. Each parser gets anything at all, and valid documents with a piece
changed. The slow tier tries many more and stores how many (docs/bench/fuzz.json).
"""

import io
import json
import os
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spindown import config
from spindown.contract.event import parse_instance_event, parse_wake_up
from spindown.contract.job.manifest import Manifest, decode_manifest, encode_manifest
from spindown.contract.job.message import encode_job, items_key, parse_items, parse_job
from spindown.contract.location import check_declared, parse_location
from spindown.contract.run_spec import RunSpec, decode_run_spec, encode_run_spec
from spindown.error import SpindownError
from spindown.worker.child.program_call import BadResult, ProgramCall, ResultReader
from spindown.worker.child.runner import Task
from tests.bench.record import record
from tests.unit.contract.manifest import WHOLE

ROOT = Path(__file__).parents[3]
FAST, SLOW = 50, 3_000
COUNTS: Counter[str] = Counter()

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["s3://b/../etc", "s3://", "../x", "\0", "9" * 400, "ünï", "-inf", "{}"])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4)
    ),
    max_leaves=8,
)


def documents(*known: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return objects whose keys are mostly those that the parser knows."""
    return st.dictionaries(st.sampled_from(known) | st.text(max_size=8), values, max_size=6)


def written(objects: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    return objects.map(lambda value: json.dumps(value).encode())


@st.composite
def changed(draw: st.DrawFn, whole: bytes) -> bytes:
    """Return a valid document with a piece of it cut out or replaced."""
    first = draw(st.integers(0, len(whole)))
    last = draw(st.integers(first, min(len(whole), first + 8)))
    return whole[:first] + draw(st.binary(max_size=6)) + whole[last:]


def a_text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


_MESSAGE = documents(
    "items", "items_uri", "prefix_uri", "stored", "job_id", "batch_id", "tenant", "params", "schema"
)
_VALID_MESSAGE = b'{"items":["s3://b/k",{"a":1}],"job_id":"j","params":{"w":64},"schema":1}'
_EVENT = documents("source", "detail", "detail-type", "region", "time", "workload", "alarmData")
_SETTINGS = documents("deployment", "workload")
_EXAMPLE = (ROOT / "spindown.toml").read_text(encoding="utf-8")


def message(data: bytes) -> None:
    """A message that is taken names its items in one way, and comes back as it was."""
    parsed = parse_job(a_text(data))
    assert parse_job(encode_job(parsed)) == parsed
    if parsed.job_id is not None:
        key = items_key(parsed.job_id)
        assert key.split("/")[1:] == [parsed.job_id, "items.jsonl"]
        assert parsed.job_id not in {"", ".", ".."}
    for uri in (parsed.items_uri, parsed.prefix_uri):
        assert uri is None or uri.startswith("s3://")


def manifest(data: bytes) -> None:
    read: Manifest = decode_manifest(data)
    assert decode_manifest(encode_manifest(read)) == read


def run_spec(data: bytes) -> None:
    read: RunSpec = decode_run_spec(data)
    assert decode_run_spec(encode_run_spec(read)) == read
    assert bool(read.entrypoint) != bool(read.command or read.image)


def item_list(data: bytes) -> None:
    parse_items(data, "items.jsonl")


def location(data: bytes) -> None:
    """What a declared prefix covers is below it, whatever the key looks like."""
    uri = a_text(data)
    place = check_declared(uri, ["s3://mine/inputs/"])
    assert place == parse_location(uri)
    assert (place.bucket, place.key[:7]) == ("mine", "inputs/")
    assert not {".", ".."} & set(place.key.split("/"))


def settings_file(data: bytes) -> None:
    try:
        document = tomllib.loads(data.decode(errors="replace"))
    except tomllib.TOMLDecodeError:
        return
    config.parse(document)


def settings_document(document: dict[str, Any]) -> None:
    config.parse(document)


def wake_up(event: object) -> None:
    parse_wake_up(event, deployment="lab")


def instance_event(event: object) -> None:
    parse_instance_event(event)


class _Given(ResultReader):
    """Reads results from bytes instead of a file."""

    def __init__(self, data: bytes) -> None:
        outputs = Path("outputs-that-are-not-there")
        task = Task(job_id="j", outputs=outputs)
        self._call = ProgramCall(task=task, batch=(), directory=outputs, output=outputs, env={})
        self._file = io.FileIO(_as_file(data), "rb")
        self._rest = bytearray()
        self.left = {0, 1, 2}


def _as_file(data: bytes) -> int:
    read, write = os.pipe()
    os.write(write, data)
    os.close(write)
    return read


def program_results(data: bytes) -> None:
    reader = _Given(data)
    try:
        for done in reader.read(1.0, is_last=True):
            assert done.index in {0, 1, 2}
            json.dumps(done.value, allow_nan=False)
    finally:
        reader.close()


_RESULTS = st.lists(
    written(documents("index", "value", "error")) | st.binary(max_size=20), max_size=5
).map(b"\n".join)

#: Name -> what it is given, and what must hold for it.
CHECKS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], None]]] = {
    "message": (written(_MESSAGE) | st.binary() | changed(_VALID_MESSAGE), message),
    "manifest": (written(values) | st.binary() | changed(encode_manifest(WHOLE)), manifest),
    "run_spec": (
        written(documents("entrypoint", "command", "image", "env", "batch_size", "slots"))
        | changed(encode_run_spec(RunSpec(command=("a", "b"), env={"A": "1"}))),
        run_spec,
    ),
    "item_list": (written(values) | st.binary(), item_list),
    "location": (
        st.text(max_size=40).map(lambda text: f"s3://mine/inputs/{text}".encode("utf-8", "replace"))
        | st.binary()
        | changed(b"s3://mine/inputs/a/b.png"),
        location,
    ),
    "settings_file": (changed(_EXAMPLE.encode()) | st.binary(), settings_file),
    "settings_document": (_SETTINGS, settings_document),
    "wake_up": (_EVENT | values, wake_up),
    "instance_event": (_EVENT | values, instance_event),
    "program_results": (_RESULTS, program_results),
}


def answer(check: Callable[[Any], None], value: Any) -> str | None:
    """Return the one sentence that a parser says; any other error is a failure."""
    try:
        check(value)
    except (SpindownError, BadResult) as exc:
        return str(exc)
    return None


def fuzz(name: str, examples: int) -> None:
    strategy, check = CHECKS[name]

    @settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(strategy)
    def run(value: Any) -> None:
        COUNTS[name] += 1
        said = answer(check, value)
        assert said is None or (said and said.isprintable()), said

    run()


@pytest.mark.parametrize("name", sorted(CHECKS))
def test_a_parser_takes_anything(name: str) -> None:
    fuzz(name, FAST)


@pytest.fixture(scope="module")
def stored() -> Iterator[None]:
    """Store how much was tried, once all has been."""
    COUNTS.clear()
    yield
    if COUNTS.keys() == CHECKS.keys():
        record("fuzz", {**dict(sorted(COUNTS.items())), "all": COUNTS.total()})


@pytest.mark.proof
@pytest.mark.parametrize("name", sorted(CHECKS))
def test_a_parser_takes_very_much(name: str, stored: None) -> None:
    fuzz(name, SLOW)
