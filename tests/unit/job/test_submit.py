"""A submit makes jobs of a batch that can be found again."""

import json
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.contract.job.batch import Batch, submitted_key
from spindown.ec2sim import MemoryClock
from spindown.error import BadInput, NotFound, PreconditionFailed
from spindown.job.result import find_jobs
from spindown.job.submit import (
    Draft,
    SendStage,
    name_batch,
    own_folder,
    submit_items,
    submit_uri,
    upload,
)
from spindown.memory.queue import MemoryJobQueue
from spindown.memory.store import MemoryObjectStore
from spindown.port import Absent, Matches


class World:
    def __init__(self) -> None:
        self.clock = MemoryClock()
        self.queue = MemoryJobQueue(self.clock, Random(1))
        self.store = MemoryObjectStore(self.clock)

    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(body) for body in self.queue.bodies()]


@given(st.integers(min_value=1, max_value=50), st.integers(min_value=1, max_value=20))
def test_every_item_lies_in_exactly_one_job_in_order(count: int, per_job: int) -> None:
    world = World()
    draft = Draft(workload="ocr", batch_id="b", items_per_job=per_job)

    batch = submit_items(range(count), draft, queue=world.queue, store=world.store)

    messages = sorted(world.messages(), key=lambda message: str(message["job_id"]))
    assert [item for message in messages for item in message["items"]] == list(range(count))
    assert [message["job_id"] for message in messages] == list(batch.jobs)
    assert batch.items == count


def test_the_jobs_of_a_batch_are_found_by_its_name() -> None:
    world = World()
    draft = Draft(workload="ocr", batch_id="b", items_per_job=2)

    batch = submit_items(["x", "y", "z"], draft, queue=world.queue, store=world.store)

    assert find_jobs("b", world.store) == batch.jobs


def test_nothing_is_found_under_a_name_that_nobody_gave() -> None:
    with pytest.raises(NotFound):
        find_jobs("b", World().store)


def test_a_job_over_a_uri_is_one_message_of_unknown_size() -> None:
    world = World()
    draft = Draft(workload="ocr", batch_id="b", tenant="acme", params={"lang": "de"})

    batch = submit_uri(
        {"prefix_uri": "s3://inputs/scans/"}, draft, queue=world.queue, store=world.store
    )

    (message,) = world.messages()
    assert message == {
        "prefix_uri": "s3://inputs/scans/",
        "job_id": "b-00000",
        "batch_id": "b",
        "schema": 1,
        "tenant": "acme",
        "params": {"lang": "de"},
    }
    assert batch.items is None


@pytest.mark.parametrize(
    ("items", "field"),
    [
        pytest.param([], "items", id="no items"),
        pytest.param([object()], "items", id="an item that is not JSON"),
        pytest.param([float("nan")], "items", id="a number that JSON lacks"),
        pytest.param(["x" * 600_000, "x" * 600_000], "items_per_job", id="too large a job"),
    ],
)
def test_refuses_what_no_message_can_hold_and_sends_nothing(items: list[Any], field: str) -> None:
    world = World()
    draft = Draft(workload="ocr", batch_id="b")

    with pytest.raises(BadInput) as caught:
        submit_items(items, draft, queue=world.queue, store=world.store)

    assert caught.value.field == field
    assert world.messages() == []


def test_an_item_too_large_for_a_message_is_named() -> None:
    world = World()
    draft = Draft(workload="ocr", batch_id="b", items_per_job=2)

    items = ["a", "b", "c", "\xe9" * 500_000]
    large = replace(draft, params={"text": "x" * 1_000_000})

    with pytest.raises(BadInput) as caught:
        submit_items(items, draft, queue=world.queue, store=world.store)

    assert (caught.value.field, caught.value.value) == ("item 3", "1,000,002 bytes")
    assert "file" in caught.value.remedy
    with pytest.raises(BadInput, match=r"params is '1,000,\d\d\d bytes'"):
        submit_items(["a"], large, queue=world.queue, store=world.store)


@pytest.mark.parametrize(
    "text", ["\ud800", "\ufffe and \uffff", "half of \ude00 a pair", "\U0001f600"]
)
def test_text_that_no_message_may_hold_arrives_all_the_same(text: str) -> None:
    world = World()
    draft = Draft(workload="ocr", batch_id="b", params={text: 1})

    submit_items([text], draft, queue=world.queue, store=world.store)

    (body,) = world.queue.bodies()
    assert not set("\ud800\ude00\ufffe\uffff") & set(body)
    assert (json.loads(body)["items"], json.loads(body)["params"]) == ([text], {text: 1})


def test_refuses_a_uri_that_no_worker_would_take() -> None:
    world = World()
    draft = Draft(workload="ocr", batch_id="b")

    with pytest.raises(BadInput, match="s3://bucket/prefix/"):
        submit_uri({"prefix_uri": "https://inputs/"}, draft, queue=world.queue, store=world.store)

    assert world.messages() == []


def test_refuses_shared_faults_before_it_reads_an_item() -> None:
    world = World()
    items = iter(["a"])
    draft = Draft(workload="ocr", batch_id="b", tenant="two words")

    with pytest.raises(BadInput, match=r"message\.tenant is 'two words'"):
        submit_items(items, draft, queue=world.queue, store=world.store)

    assert next(items) == "a"


def test_files_are_uploaded_in_order_under_the_batch(tmp_path: Path) -> None:
    world = World()
    names = [f"{n}.txt" for n in range(20)]
    for name in names:
        (tmp_path / name).write_text(name)

    pairs = [(tmp_path / name, name) for name in names]
    uris = list(upload(pairs, store=world.store, root="s3://bucket/", folder="b"))

    assert uris == [f"s3://bucket/inputs/b/{name}" for name in names]
    assert world.store.get("inputs/b/7.txt").data == b"7.txt"


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    world = World()
    pairs = [(tmp_path / "absent", "absent")]

    with pytest.raises(BadInput, match="absent"):
        list(upload(pairs, store=world.store, root="s3://bucket/", folder="b"))


def test_two_submits_of_one_name_replace_no_file_of_each_other() -> None:
    random = Random(1)

    first, second = own_folder("monday", random), own_folder("monday", random)

    assert first != second
    assert {first.partition("/")[0], second.partition("/")[0]} == {"monday"}


def test_batch_names_sort_by_time() -> None:
    random = Random(1)
    earlier = name_batch(datetime(2026, 11, 20, 9, tzinfo=UTC), random)
    later = name_batch(datetime(2026, 11, 20, 10, tzinfo=UTC), random)

    assert earlier < later


def test_a_batch_whose_name_was_used_sends_nothing() -> None:
    world = World()
    draft = Draft(workload="ocr", batch_id="b")
    submit_items(["x"], draft, queue=world.queue, store=world.store)
    before = world.queue.bodies()

    with pytest.raises(BadInput):
        submit_items(["x", "y"], draft, queue=world.queue, store=world.store)

    assert world.queue.bodies() == before
    assert world.store.get(submitted_key("b", 0)).data.decode().splitlines() == before


class RepeatedStore(MemoryObjectStore):
    """A store whose every conditional write meets what an earlier try of it has written."""

    may_be_own = True
    #: What somebody else has written under each key; None: the writer's own earlier try.
    others: bytes | None = None

    def put(self, key: str, data: bytes, *, condition: Absent | Matches | None = None) -> str:
        super().put(key, data if self.others is None else self.others, condition=condition)
        raise PreconditionFailed(key, may_be_own=self.may_be_own)


@pytest.mark.parametrize(
    ("may_be_own", "others", "is_sent"),
    [(True, None, True), (True, b"{}", False), (False, None, False)],
)
def test_a_submit_knows_its_own_writes_again(
    may_be_own: bool, others: bytes | None, is_sent: bool
) -> None:
    world = World()
    store = RepeatedStore(world.clock)
    store.may_be_own, store.others = may_be_own, others
    draft = Draft(workload="ocr", batch_id="b")

    with nullcontext() if is_sent else pytest.raises(BadInput):
        submit_items(["x"], draft, queue=world.queue, store=store)

    assert bool(world.queue.bodies()) is is_sent


def test_a_submit_tells_each_stage_before_it_begins() -> None:
    world = World()
    told: list[tuple[SendStage, int, int]] = []

    def note(_: Batch, stage: SendStage) -> None:
        stored = len(list(world.store.list("submitted/b/")))
        told.append((stage, stored, len(world.queue.bodies())))

    draft = Draft(workload="ocr", batch_id="b", items_per_job=1)
    submit_items([1, 2], draft, queue=world.queue, store=world.store, begun=note)

    # What may be on the queue lies stored, so that it can be sent again.
    assert told == [
        (SendStage.NAMED, 0, 0),
        (SendStage.SENDING, 1, 0),
        (SendStage.SENT, 1, 2),
    ]


def test_the_messages_of_a_batch_lie_stored() -> None:
    world = World()
    draft = Draft(workload="ocr", batch_id="b", items_per_job=1)

    submit_items(["x" * 900_000] * 25, draft, queue=world.queue, store=world.store)

    stored = [world.store.get(found.key).data for found in world.store.list("submitted/b/")]
    lines = [line.decode() for data in stored for line in data.splitlines()]
    assert sorted(lines) == sorted(world.queue.bodies())
    assert len(stored) == 3
