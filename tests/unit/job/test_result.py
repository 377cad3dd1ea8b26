"""Results are what the manifests committed."""

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from spindown.contract.job.batch import batch_key
from spindown.contract.job.manifest import JobState, Manifest, Part, encode_manifest, manifest_key
from spindown.contract.job.message import child_id, derived_id
from spindown.domain.retry_or_dead_letter import Failure
from spindown.ec2sim import MemoryClock
from spindown.error import ContractError, NotFound
from spindown.job.result import SPLITS_MAX, find_jobs, read_progress, read_records
from spindown.memory.store import MemoryObjectStore
from tests.builders import NOW


def a_store() -> MemoryObjectStore:
    return MemoryObjectStore(MemoryClock())


def a_manifest(job_id: str, **changes: Any) -> Manifest:
    values: dict[str, Any] = {"epoch": 1, "owner": "i-1/0", "state": JobState.COMPLETED}
    return Manifest(job_id=job_id, **{**values, **changes})


def put_manifest(store: MemoryObjectStore, manifest: Manifest) -> None:
    store.put(manifest_key(manifest.job_id), encode_manifest(manifest))


def put_part(store: MemoryObjectStore, job_id: str, first: int, last: int) -> Part:
    lines = [
        json.dumps({"job_id": job_id, "index": n, "status": "ok"}) for n in range(first, last + 1)
    ]
    data = "".join(line + "\n" for line in lines).encode()
    key = f"jobs/{job_id}/parts/{first}-{last}.jsonl"
    store.put(key, data)
    digest = hashlib.sha256(data).hexdigest()
    return Part(key=key, first=first, last=last, bytes=len(data), sha256=digest)


def test_reads_the_committed_parts_in_order_and_no_other() -> None:
    store = a_store()
    parts = (put_part(store, "j", 0, 1), put_part(store, "j", 2, 4))
    put_part(store, "j", 5, 9)
    put_manifest(store, a_manifest("j", parts=parts))

    assert [record["index"] for record in read_records("j", store)] == [0, 1, 2, 3, 4]


def test_reads_the_children_of_a_job_that_was_split() -> None:
    store = a_store()
    parts = (put_part(store, "j.00000", 0, 1),)
    put_manifest(store, a_manifest("j.00000", parent="j", parts=parts))
    put_manifest(store, a_manifest("j", state=JobState.SPLIT, children=("j.00000", "j.00001")))

    assert len(list(read_records("j", store))) == 2


def test_a_part_with_other_bytes_than_committed_is_an_error() -> None:
    store = a_store()
    part = put_part(store, "j", 0, 1)
    store.expire(part.key)
    store.put(part.key, b"{}\n")
    put_manifest(store, a_manifest("j", parts=(part,)))

    with pytest.raises(ContractError, match="restore it"):
        list(read_records("j", store))


@pytest.mark.parametrize("told", [-1, 1024**4])
def test_a_part_of_another_size_than_told_is_not_read(told: int) -> None:
    store = a_store()
    part = put_part(store, "j", 0, 1)
    false = replace(part, bytes=told if told > 0 else part.bytes - 1)
    put_manifest(store, a_manifest("j", parts=(false,)))

    with pytest.raises(ContractError, match=part.key):
        list(read_records("j", store))


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(b"{oops", id="no JSON"),
        pytest.param(b"[" * 200_000 + b"]" * 200_000, id="too deep"),
        pytest.param(b'{"a": ' + b"9" * 5000 + b"}", id="too many digits"),
        pytest.param(b'{"a": "\xff\xfe"}', id="no UTF-8"),
        pytest.param(b"[1]", id="no object"),
    ],
)
def test_a_committed_line_that_is_no_record_is_named(line: bytes) -> None:
    store = a_store()
    part = put_part(store, "j", 0, 0)
    store.put(part.key, line + b"\n")
    digest = hashlib.sha256(line + b"\n").hexdigest()
    put_manifest(store, a_manifest("j", parts=(replace(part, sha256=digest, bytes=len(line) + 1),)))

    with pytest.raises(ContractError) as caught:
        list(read_records("j", store))
    assert part.key in caught.value.field


def test_a_part_that_is_gone_is_an_error_and_no_job_that_waits() -> None:
    store = a_store()
    parts = (put_part(store, "j.00000", 0, 1), put_part(store, "j.00000", 2, 3))
    store.expire(parts[1].key)
    put_manifest(store, a_manifest("j.00000", parent="j", parts=parts))
    put_manifest(store, a_manifest("j", state=JobState.SPLIT, children=("j.00000", "j.00001")))

    with pytest.raises(ContractError, match="restore it"):
        list(read_records("j", store))


def test_of_a_truncated_manifest_the_last_readable_one_counts() -> None:
    store = a_store()
    put_manifest(store, a_manifest("j", parts=(put_part(store, "j", 0, 1),)))
    store.put(manifest_key("j"), b'{"job_id": "j", "epo')

    assert len(list(read_records("j", store))) == 2
    assert read_progress("j", store).state is JobState.COMPLETED


def test_a_truncated_index_of_a_batch_is_one_sentence() -> None:
    store = a_store()
    store.put(batch_key("b"), b'{"batch_id": "b", "jo')

    with pytest.raises(ContractError, match="restore batches/b"):
        find_jobs("b", store)


@pytest.mark.parametrize("job", ["../../home", "a/b", "..", "", "/etc", "a\nb"])
def test_an_index_that_names_a_path_is_damaged(job: str) -> None:
    store = a_store()
    index = {"batch_id": "b", "workload": "w", "jobs": ["b-00000", job]}
    store.put(batch_key("b"), json.dumps(index).encode())

    with pytest.raises(ContractError, match="restore batches/b"):
        find_jobs("b", store)


def test_a_job_that_nobody_claimed_has_no_state() -> None:
    assert read_progress("j", a_store()).state is None


@pytest.mark.parametrize(
    ("states", "state", "done"),
    [
        pytest.param((JobState.COMPLETED, JobState.COMPLETED), "completed", 4, id="all"),
        pytest.param((JobState.COMPLETED, JobState.RUNNING), "split", 4, id="some"),
        pytest.param((JobState.COMPLETED, JobState.FAILED), "failed", 4, id="failed"),
        pytest.param((JobState.COMPLETED,), "split", 2, id="one not claimed"),
    ],
)
def test_a_split_job_is_over_when_its_children_are(
    states: tuple[JobState, ...], state: str, done: int
) -> None:
    store = a_store()
    for child, child_state in zip(("j.00000", "j.00001"), states, strict=False):
        part = put_part(store, child, 0, 1)
        put_manifest(store, a_manifest(child, parent="j", state=child_state, parts=(part,)))
    put_manifest(store, a_manifest("j", state=JobState.SPLIT, children=("j.00000", "j.00001")))

    progress = read_progress("j", store)

    assert (progress.state, progress.items_done) == (JobState(state), done)


@pytest.mark.parametrize(
    "children", [("j",), ("j", "j.00000"), ("j.00000", "j.00000"), ("k",), ("j.00001",)]
)
def test_only_children_that_a_split_makes_are_read(children: tuple[str, ...]) -> None:
    store = a_store()
    for name in ("j.00000", "j.00001", "k"):
        put_manifest(store, a_manifest(name, parts=(put_part(store, name, 0, 1),)))
    put_manifest(store, a_manifest("j", state=JobState.SPLIT, children=children))
    of_splits = [child for number, child in enumerate(children) if child == f"j.{number:05d}"]

    assert len(list(read_records("j", store))) == 2 * len(of_splits)
    assert read_progress("j", store).items_done == 2 * len(of_splits)


@pytest.mark.parametrize("children", [(), ("k",)])
def test_a_job_that_was_split_into_nothing_has_failed(children: tuple[str, ...]) -> None:
    store = a_store()
    put_manifest(store, a_manifest("j", state=JobState.SPLIT, children=children, items=2))

    progress = read_progress("j", store)

    assert (progress.state, progress.jobs_left) == (JobState.FAILED, 0)
    assert "damaged" in progress.reason


def test_jobs_that_name_each_other_as_children_have_an_end() -> None:
    store = a_store()
    put_manifest(store, a_manifest("j", state=JobState.SPLIT, children=("j.00000",)))
    put_manifest(store, a_manifest("j.00000", state=JobState.SPLIT, children=("j",), parent="j"))

    assert list(read_records("j", store)) == []
    assert read_progress("j", store).items_done == 0


@pytest.mark.parametrize("splits", [SPLITS_MAX, SPLITS_MAX + 1, 1200])
def test_splits_without_end_are_one_sentence(splits: int) -> None:
    store, job_id = a_store(), "j"
    for _ in range(splits):
        child = child_id(job_id, 0)
        put_manifest(store, a_manifest(job_id, state=JobState.SPLIT, children=(child,)))
        job_id = child
    put_manifest(store, a_manifest(job_id, parts=(put_part(store, job_id, 0, 1),)))
    damaged: list[str] = []

    found = list(read_records("j", store, lambda job, _: damaged.append(job)))

    if splits == SPLITS_MAX:
        assert (len(found), damaged, read_progress("j", store).items_done) == (2, [], 2)
        return
    assert (found, len(damaged)) == ([], 1)
    with pytest.raises(ContractError, match=r"\.00000\.00000"):
        list(read_records("j", store))
    with pytest.raises(ContractError, match=r"\.00000\.00000"):
        read_progress("j", store)


def test_of_a_split_job_only_what_is_tried_again_is_failing() -> None:
    store = a_store()
    children = tuple(child_id("j", n) for n in range(3))
    put_manifest(store, a_manifest("j", state=JobState.SPLIT, children=children))
    failures = tuple(
        Failure(at=NOW, instance_id="i-1", epoch=epoch, kind="failure", reason=reason)
        for epoch, reason in ((1, "a"), (2, "b"))
    )
    gone = {"failures": failures, "reason": "too often", "code": "failed-too-often"}
    put_manifest(store, a_manifest(children[0], state=JobState.CANCELLED, reason="cancelled"))
    put_manifest(store, a_manifest(children[1], state=JobState.FAILED, **gone))
    half = read_progress("j", store)
    put_manifest(store, a_manifest(children[2], state=JobState.RUNNING, failures=failures[:1]))
    tried = read_progress("j", store)
    put_manifest(store, a_manifest(children[2]))
    over = read_progress("j", store)

    assert (half.failures, half.last_failure, half.is_given_up) == (0, "", True)
    assert (tried.failures, tried.last_failure) == (1, "a")
    assert (over.state, over.failures) == (JobState.FAILED, 2)
    assert {(one.reason, one.code) for one in (half, tried, over)} == {
        ("too often", "failed-too-often")
    }


def test_a_record_of_another_job_is_damage() -> None:
    store = a_store()
    part = put_part(store, "other", 0, 1)
    put_manifest(store, a_manifest("j", parts=(part,)))

    with pytest.raises(ContractError):
        list(read_records("j", store))


def test_failed_items_are_read_from_parts_that_have_one() -> None:
    store = a_store()
    good = put_part(store, "j", 0, 1)
    rows = [{"job_id": "j", "index": n, "status": ("ok", "failed")[n % 2]} for n in (2, 3)]
    data = "\n".join(map(json.dumps, rows)).encode()
    store.put("jobs/j/parts/bad.jsonl", data)
    bad = replace(
        good,
        key="jobs/j/parts/bad.jsonl",
        failed=1,
        bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
    )
    put_manifest(store, a_manifest("j", parts=(replace(good, sha256="never read"), bad)))

    found = read_records("j", store, failed_only=True)

    assert [record["index"] for record in found] == [3]


def test_a_job_with_a_failed_item_is_told_as_failed() -> None:
    store = a_store()
    part = replace(put_part(store, "j", 0, 1), failed=1)
    put_manifest(store, a_manifest("j", parts=(part,), state=JobState.COMPLETED))

    found = read_progress("j", store)

    assert (found.state, found.word) == (JobState.COMPLETED, "failed")


def test_a_job_is_found_by_the_id_that_sqs_gave_its_message() -> None:
    store = a_store()
    put_manifest(store, a_manifest(derived_id("0a1b-2c3d")))

    assert find_jobs("0a1b-2c3d", store) == (derived_id("0a1b-2c3d"),)
    with pytest.raises(NotFound):
        find_jobs("0a1b-2c3e", store)
