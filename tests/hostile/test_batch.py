"""What a submitter or a worker writes of batches: it harms no other batch, and stops no look.

Who submits may write each index, mark and message of its workload, and a worker each manifest.
"""

import json
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from spindown.contract.job.batch import (
    OPEN,
    batch_key,
    open_key,
    submitted_key,
    submitted_prefix,
)
from spindown.contract.job.manifest import JobState, Manifest, encode_manifest, manifest_key
from spindown.domain.batch import FORGOTTEN_AFTER
from spindown.domain.reason import ReasonCode
from spindown.error import ContractError
from spindown.job.batch_end import LISTED_EVERY, look_at_batches
from spindown.job.result import read_batch
from spindown.job.submit import Draft, submit_items
from spindown.memory import Interceptor, PortCall, intercept
from spindown.port import ObjectStore
from tests.control import WORKLOAD
from tests.proof.fault import Crashed
from tests.proof.recovery import recover
from tests.proof.test_batch_crash import DONE, look, states, submit, told
from tests.proof.world import MINUTE, ProofWorld, a_world


def forge(world: ProofWorld, name: str, jobs: list[str], **more: Any) -> None:
    """Write an index and a mark, as whoever submits may."""
    index = {"batch_id": name, "workload": WORKLOAD, "jobs": jobs, **more}
    world.objects.put(batch_key(name), json.dumps(index).encode())
    world.objects.put(open_key(name), b"")


def leave(world: ProofWorld, job_id: str, state: JobState, **more: Any) -> None:
    """Write a manifest, as a worker may."""
    job = Manifest(job_id=job_id, epoch=1, owner="i-1/0", state=state, **more)
    world.objects.put(manifest_key(job_id), encode_manifest(job))


def work_off(world: ProofWorld) -> None:
    """Look while workers do what there is."""
    for _ in range(5):
        recover(world)
        world.clock.advance(LISTED_EVERY)
        look(world)


def test_an_index_cancels_no_job_of_another_batch() -> None:
    world = a_world()
    forge(world, "over", ["over-00000"])
    leave(world, "over-00000", JobState.CANCELLED)
    for name in ("evil", "nightl", "nightly-0"):
        forge(world, name, [f"nightly-{n:05d}" for n in range(3)], after="over")
    look(world)
    submit(world, "nightly")

    work_off(world)

    assert states(world, "nightly") == DONE


def test_an_index_speaks_for_no_other_batch() -> None:
    world = a_world()
    submit(world, "a")
    submit(world, "b", after="a")
    look(world)
    forge(world, "over", [])
    # Under its own key, in the name of the batch that waits.
    index = {"batch_id": "b", "workload": WORKLOAD, "jobs": [], "after": "over"}
    world.objects.put(batch_key("evil"), json.dumps(index).encode())
    world.objects.put(open_key("evil"), b"")
    look(world)
    early = [body for body in world.bodies() if '"b-' in body]

    work_off(world)

    assert early == []
    assert (states(world, "a"), states(world, "b")) == (DONE, DONE)


@pytest.mark.parametrize("replaced", ["index", "manifest"])
def test_what_is_replaced_by_less_stops_no_other(replaced: str) -> None:
    world = a_world()
    forge(world, "a", ["a-00000", "a-00001"])
    leave(world, "a-00000", JobState.COMPLETED)
    children = ("a-00001.00000", "a-00001.00001")
    leave(world, "a-00001", JobState.SPLIT, children=children)
    leave(world, children[0], JobState.COMPLETED)
    leave(world, children[1], JobState.SPLIT, children=("a-00001.00001.00000",))
    submit(world, "z")
    look(world)
    if replaced == "index":
        forge(world, "a", ["a-00000"])
    else:
        leave(world, "a-00001", JobState.SPLIT)

    recover(world)
    failed = look(world)

    assert set(failed) == {"a"}
    assert len(told(world)) == 1


def test_people_are_told_no_words_of_a_manifest() -> None:
    world = a_world()
    forge(world, "before", ["before-00000"])
    leave(world, "before-00000", JobState.COMPLETED)
    forge(world, "a", ["a-00000"], after="before")
    why = ReasonCode.BEFORE_DID_NOT_SUCCEED.value
    words = "call 555-0100 " * 30_000
    leave(world, "a-00000", JobState.CANCELLED, reason=words, code=why)

    work_off(world)

    (text,) = (text for text in told(world) if text.startswith("Batch a "))
    assert "(before, " in text
    assert "555" not in text


@pytest.mark.parametrize("after", ["\ud800", "\x00", "x" * 500_000, "é"])
def test_what_no_row_holds_stops_no_look(after: str) -> None:
    world = a_world()
    forge(world, "a", ["a-00000"], after=after)
    submit(world, "z")

    recover(world)
    look(world)

    assert len(told(world)) == 1
    assert "a" not in world.view().batches


def test_an_index_of_many_values_takes_no_memory() -> None:
    world = a_world()
    world.objects.put(batch_key("a"), b'{"jobs":[' + b"[]," * 3_000_000 + b"1]}")

    tracemalloc.start()
    with pytest.raises(ContractError):
        read_batch("a", world.objects, at_most_bytes=64 * 1024**2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 32 * 1024**2


def test_marks_without_a_batch_hide_none_behind_them() -> None:
    world = a_world()
    for number in range(2500):
        world.objects.put(f"{OPEN}!{number}", b"")
    submit(world, "a")
    recover(world)

    for _ in range(3):
        look(world)
        world.clock.advance(LISTED_EVERY)

    assert len(told(world)) == 1
    assert list(world.objects.list(OPEN)) == []


def test_marks_of_damaged_batches_are_removed_in_the_end() -> None:
    world = a_world()
    world.objects.put(batch_key("bad"), b"{")
    world.objects.put(open_key("bad"), b"")
    look(world)
    before = [one.key for one in world.objects.list(OPEN)]
    world.clock.advance(FORGOTTEN_AFTER)
    look(world)

    assert before == [open_key("bad")]
    assert list(world.objects.list(OPEN)) == []


@pytest.mark.parametrize(
    "line", [b"x", b"{}", b'{"items": [1], "job_id": "other-00000"}', b'{"items": [1]}']
)
def test_messages_that_are_not_the_batch_s_are_not_sent(line: bytes) -> None:
    world = a_world()
    submit(world, "a")
    recover(world)
    submit(world, "b", after="a")
    world.objects.put(submitted_key("b", 0), (line + b"\n") * 1000)
    world.calls.clear()

    failed = look(world)

    assert set(failed) == {"b"}
    assert not [body for body in world.bodies() if "other" in body]


def test_a_line_longer_than_any_message_is_not_read() -> None:
    world = a_world()
    submit(world, "a")
    recover(world)
    submit(world, "b", after="a")
    head, tail = b'{"job_id":"b-00000","items":[', b"{}]}\n"
    world.objects.put(submitted_key("b", 0), head + b"{}," * 1_000_000 + tail)
    tracemalloc.start()

    failed = look(world)

    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert set(failed) == {"b"}
    assert "submit again" in failed["b"]
    assert most < 16 * 1024**2


def look_through(world: ProofWorld, listen: Interceptor) -> None:
    """Look, with each call on the bucket made by ``listen``."""
    objects: ObjectStore = intercept(world.objects, "objects", listen)
    look_at_batches(
        WORKLOAD,
        world.ports,
        lambda: replace(world.user_ports(), objects=objects),
        lambda _: objects,
        is_nudged=True,
    )


def test_a_start_lists_no_jobs_of_other_batches() -> None:
    world = a_world()
    submit(world, "a")
    recover(world)
    # All that ``submit`` names by itself begins so.
    submit(world, "b", after="a")
    listed = []

    def listen(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "list":
            listed.append(call.args[0])
        return proceed()

    look_through(world, listen)

    assert len([body for body in world.bodies() if '"b-' in body]) == 3
    assert set(listed) == {OPEN}


def test_what_is_put_beside_a_batch_s_messages_changes_no_start() -> None:
    world = a_world()
    submit(world, "a")
    recover(world)
    submit(world, "b", after="a")
    for name in ("00000-forged.jsonl", "00001.jsonl", "99999.jsonl", "forged"):
        world.objects.put(f"{submitted_prefix('b')}{name}", b'{"items": [1], "job_id": "x"}\n')

    assert look(world) == {}
    assert len([body for body in world.bodies() if '"b-' in body]) == 3
    assert not [body for body in world.bodies() if '"x"' in body]


def test_a_batch_that_takes_all_time_keeps_none_from_its_turn() -> None:
    world = a_world()
    for number in range(5):
        submit(world, f"z{number}")
    forge(world, "a", ["a-00000"])
    recover(world)

    def listen(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.args == (manifest_key("a-00000"),):
            # The function is ended at its timeout.
            raise Crashed
        return proceed()

    look(world)
    submit(world, "z5")
    recover(world)
    for _ in range(30):
        with suppress(Crashed):
            look_through(world, listen)
        world.clock.advance(LISTED_EVERY)

    assert len(told(world)) == 6


@pytest.mark.parametrize("dollars", [0.01, 1e9, -1e9])
def test_a_start_that_takes_long_goes_on_in_the_next_look(dollars: float) -> None:
    world = a_world()
    forge(world, "a", ["a-00000", "a-00001"])
    for number in range(2):
        leave(world, f"a-{number:05d}", JobState.COMPLETED, cost_usd=dollars)
    ports = world.user_ports()
    draft = Draft(workload=WORKLOAD, batch_id="b", items_per_job=1, after="a")
    submit_items(range(600), draft, queue=ports.queue, store=ports.objects)

    def listen(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.args == (manifest_key("b-00000"),):
            world.clock.advance(2 * MINUTE)
        return proceed()

    counts = []
    for _ in range(2):
        look_through(world, listen)
        counts.append(len([body for body in world.bodies() if '"b-' in body]))

    assert counts == [500, 600]
