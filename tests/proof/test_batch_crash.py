"""Batches are followed to their end, whatever dies at which call: each starts, and people hear."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from spindown.contract.job.batch import OPEN, submitted_key
from spindown.contract.job.manifest import JobState, Manifest, encode_manifest, manifest_key
from spindown.domain.batch import FORGOTTEN_AFTER, EndsTold, OnFailure
from spindown.domain.fleet import Backlog
from spindown.domain.reason import ReasonCode
from spindown.error import NotFound
from spindown.job.batch_end import LISTED_EVERY, look_at_batches
from spindown.job.cancel import cancel
from spindown.job.lost_message import LOOKED_AT_AFTER, count_lost, redrive_lost
from spindown.job.manifest_store import load_manifest
from spindown.job.result import read_batch, read_progress
from spindown.job.submit import Draft, submit_items
from spindown.memory import PortCall, intercept
from spindown.port import ObjectStore
from spindown.user import Item
from spindown.worker.child.runner import BatchDone, Event, ItemDone, Task
from tests.control import WORKLOAD
from tests.proof.fault import FAULTS, Fault, Kind
from tests.proof.recovery import recover
from tests.proof.sweep import sweep
from tests.proof.world import MINUTE, ProofWorld, a_world


def submit(world: ProofWorld, name: str, after: str = "", **more: Any) -> None:
    """Send a batch of three jobs, as a command does; it may die of it."""
    ports = world.user_ports()
    draft = Draft(workload=WORKLOAD, batch_id=name, items_per_job=2, after=after, **more)
    items = [f"{name}-{n}" for n in range(5)]
    submit_items(items, draft, queue=ports.queue, store=ports.objects)


def look(world: ProofWorld, *, is_nudged: bool = True, told: EndsTold = EndsTold.ALL) -> Any:
    """Follow the batches, as the scaler does after its tick."""

    def store_of(workload: str) -> ObjectStore:
        assert workload == WORKLOAD
        return intercept(world.objects, "objects", world.work_call)

    return look_at_batches(
        WORKLOAD, world.ports, world.user_ports, store_of, told=told, is_nudged=is_nudged
    )


def follow(world: ProofWorld) -> None:
    """Look until nothing is followed any more, while workers do what there is."""
    world.faults.arm(None)
    for _ in range(20):
        recover(world)
        world.clock.advance(LISTED_EVERY)
        look(world, is_nudged=False)
        if not (world.view().batches or list(world.objects.list(OPEN))):
            return
    raise AssertionError(world.view().batches)


def states(world: ProofWorld, name: str) -> Counter[JobState | None]:
    jobs = read_batch(name, world.objects).jobs
    return Counter(read_progress(job_id, world.objects).state for job_id in jobs)


def told(world: ProofWorld) -> list[str]:
    return [text for subject, text in world.topic.said if ": batch " in subject]


def failing(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
    """Let the first item of each job fail."""
    return [
        ItemDone(index=item.index, error=None if item.index else "it is bad") for item in batch
    ] + [BatchDone()]


DONE = Counter({JobState.COMPLETED: 3})
CANCELLED = Counter({JobState.CANCELLED: 3})


def test_a_batch_that_is_over_is_told_once() -> None:
    world = a_world()
    submit(world, "a")
    look(world)
    before = told(world)
    follow(world)
    for _ in range(3):
        world.clock.advance(LISTED_EVERY)
        look(world)

    assert before == []
    (text,) = told(world)
    assert "Batch a " in text
    assert "5 items" in text
    assert not world.view().batches


@pytest.mark.parametrize(
    ("ends", "fails", "is_waited_for", "texts"),
    [
        (EndsTold.ALL, True, False, 1),
        (EndsTold.FAILED, True, False, 1),
        (EndsTold.FAILED, False, False, 0),
        (EndsTold.NONE, True, False, 0),
        # As `map` of Python sends it: its caller knows the end, unless the caller has died.
        (EndsTold.ALL, False, True, 0),
        (EndsTold.ALL, True, True, 1),
    ],
)
def test_only_the_ends_that_somebody_wants_are_told(
    ends: EndsTold, fails: bool, is_waited_for: bool, texts: int
) -> None:
    world = a_world()
    world.script = failing if fails else world.script
    submit(world, "a", is_waited_for=is_waited_for)
    recover(world)

    look(world, told=ends)

    assert len(told(world)) == texts
    assert not world.view().batches
    if texts:
        assert "3 items failed" in told(world)[0]


def test_the_children_of_a_split_job_are_of_its_batch() -> None:
    world = a_world(max_items_per_job=2)
    ports = world.user_ports()
    draft = Draft(workload=WORKLOAD, batch_id="a", items_per_job=7)
    submit_items(range(10), draft, queue=ports.queue, store=ports.objects)

    follow(world)

    (text,) = told(world)
    assert "10 items" in text


def send(world: ProofWorld, name: str, after: str = "", *, jobs: int = 1) -> None:
    """Send a batch of so many jobs, an item each."""
    ports = world.user_ports()
    draft = Draft(workload=WORKLOAD, batch_id=name, items_per_job=1, after=after)
    submit_items(range(jobs), draft, queue=ports.queue, store=ports.objects)


def leave(world: ProofWorld, job_id: str, state: JobState = JobState.COMPLETED) -> None:
    """Write the manifest of a job of one item."""
    done = int(state is JobState.COMPLETED)
    job = Manifest(job_id=job_id, epoch=1, owner="i-1/0", state=state, items=1, next_item=done)
    world.objects.put(manifest_key(job_id), encode_manifest(job))


def finish(world: ProofWorld, name: str, *, jobs: int = 1, first: int = 0) -> None:
    """Write the manifests of a batch's jobs as those that have completed them."""
    for number in range(first, jobs):
        leave(world, f"{name}-{number:05d}")


def test_a_look_goes_on_where_the_last_one_stopped() -> None:
    world = a_world()
    send(world, "a", jobs=250)
    finish(world, "a", jobs=250)
    slow, read = {manifest_key("a-00200")}, []

    def listen(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "get" and call.args[0].endswith("manifest.json"):
            read.append(call.args[0])
            if call.args[0] in slow:
                slow.clear()
                world.clock.advance(2 * MINUTE)
        return proceed()

    store: ObjectStore = intercept(world.objects, "objects", listen)
    look_at_batches(WORKLOAD, world.ports, world.user_ports, lambda _: store, is_nudged=True)
    (place,) = world.view().batches["a"].path
    read.clear()
    look_at_batches(WORKLOAD, world.ports, world.user_ports, lambda _: store, is_nudged=True)

    # The second reads what the first has left, and no more.
    assert 100 < place < 250
    assert len(set(read)) == len(read) == 250 - place
    assert world.view().batches == {}
    assert len(told(world)) == 1


@pytest.mark.parametrize("end", [JobState.COMPLETED, JobState.CANCELLED, JobState.FAILED])
def test_a_job_that_was_sent_back_counts_as_it_ends(end: JobState) -> None:
    world = a_world()
    send(world, "a", jobs=3)
    send(world, "b", after="a")
    leave(world, "a-00000", JobState.FAILED)
    look(world)
    finish(world, "a", jobs=3, first=1)
    leave(world, "a-00000", JobState.RUNNING)
    look(world)
    early = told(world)
    leave(world, "a-00000", end)

    look(world)

    assert early == []
    subjects = [subject for subject, _ in world.topic.said]
    assert [one.rpartition(" ")[2] for one in subjects] == [end.value]
    began = any('"b-' in body for body in world.bodies())
    assert began is (end is JobState.COMPLETED)


def test_counting_once_more_comes_to_an_end() -> None:
    world = a_world()
    send(world, "a", jobs=250)
    leave(world, "a-00000", JobState.FAILED)
    look(world)
    finish(world, "a", jobs=250, first=1)

    def read_slowly(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "get" and call.args[0].endswith("manifest.json"):
            world.clock.advance(timedelta(seconds=0.2))
        return proceed()

    store: ObjectStore = intercept(world.objects, "objects", read_slowly)
    for _ in range(4):
        look_at_batches(WORKLOAD, world.ports, world.user_ports, lambda _: store)

    assert len(told(world)) == 1
    assert world.view().batches == {}


def test_one_look_reads_all_of_a_large_batch() -> None:
    world = a_world()
    send(world, "a", jobs=3000)
    look(world)
    finish(world, "a", jobs=3000)
    send(world, "b", after="a")

    look(world)

    assert len([body for body in world.bodies() if '"b-' in body]) == 1


def test_batches_after_the_same_one_share_its_reads() -> None:
    world = a_world()
    send(world, "a", jobs=50)
    for number in range(60):
        send(world, f"b{number}", after="a")
    look(world)
    finish(world, "a", jobs=50)
    read: Counter[str] = Counter()

    def listen(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "get":
            read[call.args[0]] += 1
        return proceed()

    store: ObjectStore = intercept(world.objects, "objects", listen)
    look_at_batches(WORKLOAD, world.ports, world.user_ports, lambda _: store)

    assert len([body for body in world.bodies() if '"job_id": "b' in body]) == 60
    assert {read[manifest_key(f"a-{number:05d}")] for number in range(50)} == {1}


def test_one_look_goes_through_all_batches() -> None:
    world = a_world()
    for number in range(60):
        send(world, f"a{number}")
        finish(world, f"a{number}")

    look(world)

    assert len(told(world)) == 60


def test_without_batches_a_look_is_one_read_in_ten_minutes() -> None:
    world = a_world()
    look(world)
    world.calls.clear()
    for _ in range(9):
        world.clock.advance(MINUTE)
        look(world, is_nudged=False)

    assert world.calls == {"table.query": 9}


def test_a_batch_after_another_is_sent_when_that_is_done() -> None:
    world = a_world()
    submit(world, "a")
    submit(world, "b", after="a")
    look(world)
    early = {body for body in world.bodies() if '"b-' in body}
    follow(world)

    assert early == set()
    assert (states(world, "a"), states(world, "b")) == (DONE, DONE)
    assert len(told(world)) == 2


@pytest.mark.parametrize(
    ("on_failure", "ends"), [(OnFailure.START, DONE), (OnFailure.CANCEL, CANCELLED)]
)
def test_what_follows_a_failed_batch_starts_or_is_cancelled(
    on_failure: OnFailure, ends: Counter[JobState | None]
) -> None:
    world = a_world()
    world.script = failing
    submit(world, "a")
    submit(world, "b", after="a", on_failure=on_failure)
    # Of a chain each link hears of the one before.
    submit(world, "c", after="b", on_failure=on_failure)

    follow(world)

    assert (states(world, "b"), states(world, "c")) == (ends, ends)
    texts = [words for words in told(world) if words.startswith("Batch b is over")]
    assert any("(a, " in words for words in texts) is (on_failure is OnFailure.CANCEL)
    fences = [load_manifest(one, world.objects) for one in read_batch("b", world.objects).jobs]
    why = ReasonCode.BEFORE_DID_NOT_SUCCEED.value
    assert all(
        fence is not None and (fence.manifest.code == why) is (on_failure is OnFailure.CANCEL)
        for fence in fences
    )


def test_batches_whose_predecessors_wait_unseen_all_start() -> None:
    """More wait than are followed at once, by names before those of what they wait for."""
    world = a_world()
    submit(world, "download")
    recover(world)
    follow(world)
    numbers = range(505)
    for number in numbers:
        send(world, f"prepare-{number}", "download")
        send(world, f"check-{number}", f"prepare-{number}")
        send(world, f"analyze-{number}", f"check-{number}")
    sent: set[str] = set()
    for _ in range(60):
        look(world)
        world.clock.advance(MINUTE)
        while message := world.queue.receive(wait=timedelta(0), visibility=MINUTE):
            world.queue.delete(message.receipt_handle)
            name = json.loads(message.body)["job_id"].removesuffix("-00000")
            sent.add(name)
            finish(world, name)
        assert len(world.view().batches) <= 1000
        if len(sent) == 3 * len(numbers):
            break

    assert len(sent) == 3 * len(numbers)


def test_a_batch_that_is_cancelled_while_it_waits_never_starts() -> None:
    world = a_world()
    submit(world, "a")
    submit(world, "b", after="a")
    look(world)
    list(cancel(WORKLOAD, read_batch("b", world.objects).jobs, world.user_ports()))

    follow(world)

    assert (states(world, "a"), states(world, "b")) == (DONE, CANCELLED)
    assert world.dead_letters.bodies() == []


def test_what_waits_is_not_lost_and_not_sent_by_a_redrive() -> None:
    world = a_world()
    submit(world, "a")
    submit(world, "b", after="a")
    world.clock.advance(LOOKED_AT_AFTER)
    waiting: Backlog = world.queue.backlog()
    lost = count_lost(
        WORKLOAD,
        objects=world.objects,
        queues=[world.queue],
        table=world.table,
        now=world.now,
        reads_at_most=100,
    )

    assert waiting.visible == 3
    assert lost == 0
    assert list(redrive_lost(WORKLOAD, world.user_ports())) == []


@pytest.mark.parametrize("after", ["gone", "other/a", "../a", "a/b/c"])
def test_what_waits_for_no_batch_harms_nobody_and_is_forgotten(after: str) -> None:
    world = a_world()
    submit(world, "b", after=after)
    submit(world, "z")

    failed = look(world)
    recover(world)
    look(world)
    world.clock.advance(FORGOTTEN_AFTER)
    look(world)

    assert list(failed) == ["b"]
    assert states(world, "z") == DONE
    assert not world.view().batches


@pytest.mark.parametrize("ends", EndsTold)
def test_a_batch_that_waits_too_long_is_cancelled_and_told(ends: EndsTold) -> None:
    world = a_world()
    submit(world, "b", after="gone")
    look(world)
    world.clock.advance(FORGOTTEN_AFTER)
    look(world, told=ends)

    jobs = read_batch("b", world.objects).jobs
    fences = [load_manifest(job_id, world.objects) for job_id in jobs]
    ended = {fence and (fence.manifest.state, fence.manifest.code) for fence in fences}
    assert ended == {(JobState.CANCELLED, ReasonCode.WAITED_TOO_LONG.value)}
    assert [text for text in told(world) if "gone" in text] == told(world)
    assert len(told(world)) == (ends is not EndsTold.NONE)
    assert not world.view().batches
    assert list(world.objects.list(OPEN)) == []


def test_of_a_batch_that_is_never_over_people_are_told() -> None:
    world = a_world()
    submit(world, "a")
    look(world)
    world.clock.advance(FORGOTTEN_AFTER)
    look(world, told=EndsTold.FAILED)

    assert set(states(world, "a")) == {None}
    assert len(told(world)) == 1
    assert not world.view().batches


def test_marks_of_strangers_are_passed_over() -> None:
    world = a_world()
    for name in ("nothing", "a/b", "..", "x" * 300, "\u202e"):
        world.objects.put(f"{OPEN}{name}", b"")
    world.objects.put("batches/bad.json", b"{")
    world.objects.put(f"{OPEN}bad", b"")
    submit(world, "a")

    recover(world)
    look(world)

    assert len(told(world)) == 1


def test_what_a_submitter_stored_too_large_is_not_read() -> None:
    world = a_world()
    submit(world, "a")
    submit(world, "b", after="a")
    recover(world)
    world.objects.put(submitted_key("b", 0), b"x" * (16 * 1024**2 + 1))

    failed = look(world)

    assert set(failed) == {"b"}
    assert not read_progress(f"{read_batch('b', world.objects).jobs[-1]}", world.objects).is_over


def test_two_looks_at_once_tell_once() -> None:
    world = a_world()
    submit(world, "a")
    recover(world)
    second = partial(look, world)
    world.faults.arm(Fault(at=8, kind=Kind.MEANWHILE, meanwhile=second))

    look(world)

    assert world.faults.hit is not None
    assert len(told(world)) == 1


def test_a_submit_that_meets_a_look_is_heard_by_the_next() -> None:
    world = a_world()
    look(world)

    def send() -> None:
        submit(world, "late")
        look(world)

    # The marks have been listed, and the look is not over.
    submit(world, "a")
    world.faults.arm(Fault(at=6, kind=Kind.MEANWHILE, meanwhile=send))
    look(world)
    early = set(world.view().batches)
    world.clock.advance(MINUTE)
    look(world, is_nudged=False)

    assert early == {"a"}
    assert set(world.view().batches) == {"a", "late"}


def begun() -> ProofWorld:
    """Return a world in which a batch is done, and another waits for it."""
    world = a_world()
    submit(world, "a")
    recover(world)
    submit(world, "b", after="a")
    return world


def after_a_failed_one() -> ProofWorld:
    world = a_world()
    world.script = failing
    submit(world, "a")
    recover(world)
    submit(world, "b", after="a")
    world.script = a_world().script
    return world


@pytest.mark.proof
@pytest.mark.parametrize("kind", FAULTS, ids=lambda kind: kind.replace(" ", "-"))
@pytest.mark.parametrize(
    ("prepare", "ends"), [(begun, DONE), (after_a_failed_one, CANCELLED)], ids=["start", "cancel"]
)
def test_a_fault_at_any_call_of_a_look_loses_nothing(
    prepare: Any, ends: Counter[JobState | None], kind: Kind
) -> None:
    def tell(world: ProofWorld, fault: Fault) -> bool:
        world.faults.arm(fault)
        # The second look follows what the first has started, and tells how it ended.
        was_hit = False
        for _ in range(2):
            world.control(partial(look, world))
            was_hit = was_hit or world.faults.hit is not None
            world.clock.advance(LISTED_EVERY)
        follow(world)
        assert states(world, "b") == ends
        texts = Counter(told(world))
        # Only a look that ends between the text and its mark tells twice.
        assert len(texts) == 2
        assert sum(texts.values()) <= 3
        return was_hit

    assert sweep(prepare, tell, kind) > 15


@pytest.mark.proof
@pytest.mark.parametrize("kind", FAULTS, ids=lambda kind: kind.replace(" ", "-"))
def test_a_submit_that_dies_at_any_call_never_starts_early(kind: Kind) -> None:
    def prepare() -> ProofWorld:
        world = a_world()
        submit(world, "a")
        return world

    def tell(world: ProofWorld, fault: Fault) -> bool:
        world.faults.arm(fault)
        world.control(partial(submit, world, "b", after="a"))
        was_hit = world.faults.hit is not None
        world.faults.arm(None)
        assert not [body for body in world.bodies() if '"b-' in body]
        follow(world)
        assert states(world, "a") == DONE
        try:
            done = states(world, "b")
        except NotFound:
            return was_hit
        # Whole or not at all.
        assert done in (DONE, Counter({None: 3}))
        return was_hit

    assert sweep(prepare, tell, kind) >= 3


@pytest.mark.proof
@pytest.mark.parametrize("kind", FAULTS, ids=lambda kind: kind.replace(" ", "-"))
def test_a_job_sent_back_after_a_fault_leaves_no_part(kind: Kind) -> None:
    def prepare() -> ProofWorld:
        world = a_world()
        send(world, "a", jobs=2)
        send(world, "b", after="a", jobs=3)
        leave(world, "a-00000", JobState.FAILED)
        look(world)
        finish(world, "a", jobs=2, first=1)
        return world

    def tell(world: ProofWorld, fault: Fault) -> bool:
        world.faults.arm(fault)
        world.control(partial(look, world))
        was_hit = world.faults.hit is not None
        leave(world, "a-00000")
        follow(world)
        assert states(world, "b") in (DONE, CANCELLED)
        return was_hit

    assert sweep(prepare, tell, kind) > 10
