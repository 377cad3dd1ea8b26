"""A job that runs out of memory goes on with more, as far as the policy allows."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from spindown.contract.codec import decode, encode, to_json
from spindown.contract.job.manifest import JobState
from spindown.contract.job.message import JobMessage, encode_stored, parse_job, stored_key
from spindown.contract.row import requeued_sort_key, worker_partition
from spindown.domain.fleet import RequeuedJob
from spindown.domain.policy import JobNeeds, JobType, Policy
from spindown.domain.shape import Sized
from spindown.job.claim import claim
from spindown.job.claimed_job import ClaimedJob
from spindown.job.message import SIZED
from spindown.memory import MemoryJobQueue
from spindown.memory.interception import PortCall
from spindown.port import Key, Outgoing
from spindown.user import Item
from spindown.worker.child.failure_cause import Broken, FailureCause
from spindown.worker.child.runner import Event, Task
from spindown.worker.usage.journal import UsageRecorder
from tests.slot import ScriptedRunner, SlotWorld, square
from tests.work import WORKLOAD, WorkWorld, a_slot_id, items

TYPED = replace(
    Policy(),
    types=(JobType(name="small", needs=JobNeeds(memory_gib=8)),),
    requirements_at_most=JobNeeds(memory_gib=24),
)
JOB = {"job_id": "j", "items": items(5), "type": "small"}


def run_out(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
    if batch[0].index < 2:
        return square(task, batch)
    return [Broken(FailureCause.OUT_OF_MEMORY, "killed")]


def a_slot(tmp_path: Path, shape: str, policy: Policy = TYPED) -> tuple[SlotWorld, MemoryJobQueue]:
    """Return a slot of a machine of a shape, and the entry queue."""
    world = WorkWorld(policy=policy)
    intake = MemoryJobQueue(world.clock, world.ports.random, name="intake")
    world.ports = replace(world.ports, queue_of={"": intake}.__getitem__)
    runner = ScriptedRunner(script=run_out)
    return SlotWorld(tmp_path, runner=runner, world=world, shape=shape), intake


def only(queue: MemoryJobQueue) -> dict[str, Any]:
    (body,) = queue.bodies()
    found: dict[str, Any] = json.loads(body)
    return found


def test_a_job_without_memory_is_sent_to_the_next_step(tmp_path: Path) -> None:
    slot, intake = a_slot(tmp_path, "c0m8")
    slot.world.send(JOB)
    slot.step()

    manifest = slot.world.manifest("j")
    assert (manifest.state, manifest.next_item, manifest.released) == (JobState.RUNNING, 2, True)
    assert manifest.failures == ()
    assert slot.world.queue.bodies() == []
    assert only(intake)["requirements"] == {"memory_gib": 16}
    assert only(intake)["type"] == "small"
    assert slot.world.lease() is None
    assert [event["memory_gib"] for event in slot.events("job_outgrown")] == [16]


def test_it_may_be_taken_before_its_first_message_is_gone(tmp_path: Path) -> None:
    slot, intake = a_slot(tmp_path, "c0m8")
    world, taken = slot.world, list[object]()
    queues = {"": intake, "c0m8": world.queue}
    world.ports = replace(world.ports, queue_of=queues.__getitem__)

    def be_quicker(call: PortCall) -> None:
        if (call.port, call.method) != ("queue", "delete"):
            return
        world.before = None
        copy = intake.receive(wait=timedelta(0), visibility=timedelta(minutes=5))
        assert copy is not None
        of_larger = replace(world.ports, queue=intake)
        taken.append(
            claim(
                copy,
                slot_id=a_slot_id("i-2", shape="c0m16"),
                worker_row=world.worker_row("i-2"),
                ports=of_larger,
                policy=world.policy,
            )
        )

    world.before = be_quicker
    world.send(JOB)
    slot.step()

    assert [type(each) for each in taken] == [ClaimedJob]
    assert len(intake.bodies()) == 1


@pytest.mark.parametrize(("peak", "failures"), [(0.5, 1), (2.0, 0), (None, 0)])
def test_it_counts_if_it_had_used_little(tmp_path: Path, peak: float | None, failures: int) -> None:
    slot, intake = a_slot(tmp_path, "c0m8")
    broken = Broken(FailureCause.OUT_OF_MEMORY, "MemoryError", peak)
    slot.runner.script = lambda task, batch: [broken]
    slot.world.send(JOB)
    slot.step()

    manifest = slot.world.manifest("j")
    assert len(manifest.failures) == failures
    assert manifest.ran_out_gib == 8
    assert only(intake)["requirements"] == {"memory_gib": 16}


def test_what_always_seems_to_run_out_is_given_up(tmp_path: Path) -> None:
    slot, intake = a_slot(tmp_path, "c0m8", replace(TYPED, max_failures=1))
    broken = Broken(FailureCause.OUT_OF_MEMORY, "MemoryError", 0.5)
    slot.runner.script = lambda task, batch: [broken]
    slot.world.send(JOB)
    slot.step()

    assert intake.bodies() == []
    assert slot.world.manifest("j").state is JobState.FAILED


def test_its_next_machine_is_known_before_it_is_routed(tmp_path: Path) -> None:
    """Whole: with what its type asks for beside, as it is learned."""
    types = (JobType(name="small", needs=JobNeeds(vcpus=4, memory_gib=8)),)
    slot, _ = a_slot(tmp_path, "c2m8", replace(TYPED, types=types))
    learned = Sized(of=types[0].needs, needs=JobNeeds(vcpus=2))
    attributes = {SIZED: to_json(encode(learned))}
    slot.world.queue.send([Outgoing(body=json.dumps(JOB), attributes=attributes)])
    slot.step()

    key = Key(worker_partition(WORKLOAD), requeued_sort_key("j"))
    row = slot.world.table.get(key)
    assert row is not None
    assert decode(RequeuedJob, row).shape == "c2m16"


def test_what_a_machine_has_besides_its_shape_counts(tmp_path: Path) -> None:
    slot, intake = a_slot(tmp_path, "c0m1")
    slot.slot._context = replace(slot.context, memory_gib=7.6)
    slot.world.send({**JOB, "requirements": {"memory_gib": 1, "vcpus": 0}})
    slot.step()

    assert only(intake)["requirements"] == {"memory_gib": 16, "vcpus": 0}


def test_a_stored_body_is_stored_anew(tmp_path: Path) -> None:
    slot, intake = a_slot(tmp_path, "c0m8")
    data, pointer = encode_stored(JobMessage(items=tuple(items(5)), job_id="j", type="small"))
    slot.world.objects.put(stored_key("j", pointer.stored or ""), data)
    body = json.dumps({"job_id": "j", "stored": pointer.stored})
    slot.world.queue.send([Outgoing(body=body)])
    slot.step()

    again = parse_job(json.dumps(only(intake)))
    assert again.stored != pointer.stored
    stored = json.loads(slot.world.objects.get(stored_key("j", again.stored or "")).data)
    assert stored["requirements"] == {"memory_gib": 16}
    assert stored["items"] == items(5)


@pytest.mark.parametrize(
    ("shape", "policy"),
    [
        ("c0m24", TYPED),
        ("c0m8", replace(TYPED, requirements_at_most=JobNeeds())),
    ],
    ids=["at-the-ceiling", "no-ceiling"],
)
def test_beyond_the_ceiling_it_has_failed(tmp_path: Path, shape: str, policy: Policy) -> None:
    slot, intake = a_slot(tmp_path, shape, policy)
    slot.world.send(JOB)
    slot.step()

    assert intake.bodies() == []
    assert len(slot.world.manifest("j").failures) == 1
    assert slot.world.queue.backlog().visible == 1


GPU_TYPED = replace(
    Policy(),
    types=(JobType(name="train", needs=JobNeeds(gpu_memory_gib=15)),),
    requirements_at_most=JobNeeds(gpu_memory_gib=22),
)
TRAIN = {**JOB, "type": "train"}
NO_VRAM = Broken(FailureCause.OUT_OF_GPU_MEMORY, "OutOfMemoryError")


@dataclass(frozen=True)
class SeenGpu:
    """A recorder that has seen so much of a GPU."""

    vram_peak: float | None = None
    vram_gib: float = 0.0

    def begin(self) -> None:
        """Note nothing."""

    def end(self, *args: Any, **kwargs: Any) -> None:
        """Note nothing."""


def on_gpu(
    tmp_path: Path, shape: str, recorder: SeenGpu, policy: Policy = GPU_TYPED
) -> tuple[SlotWorld, MemoryJobQueue, list[bool]]:
    """Return a slot that lacks VRAM, the entry queue, and what the code was told of more."""
    slot, intake = a_slot(tmp_path, shape, policy)
    told: list[bool] = []

    def script(task: Task, batch: Sequence[Item]) -> Sequence[Event | None]:
        told.append(task.may_get_vram)
        return [NO_VRAM]

    slot.runner.script = script
    slot.slot._context = replace(slot.context, recorder=cast("UsageRecorder", recorder))
    slot.world.send(TRAIN)
    slot.step()
    return slot, intake, told


@pytest.mark.parametrize(
    ("peak", "gib", "step", "failures"),
    [(None, 0.0, 20, 0), (14.0, 15.0, 20, 0), (3.0, 15.0, 20, 1), (14.0, 16.0, 20, 0)],
)
def test_a_job_without_vram_is_sent_to_the_next_step(
    tmp_path: Path, peak: float | None, gib: float, step: int, failures: int
) -> None:
    slot, intake, told = on_gpu(tmp_path, "c0m0g1v15", SeenGpu(peak, gib))

    manifest = slot.world.manifest("j")
    assert told == [True]
    assert len(manifest.failures) == failures
    assert (manifest.ran_out_gib, manifest.ran_out_of_vram) == (max(gib, 15.0), True)
    assert only(intake)["requirements"] == {"gpu_memory_gib": step}
    assert [event["gpu_memory_gib"] for event in slot.events("job_outgrown")] == [step]


@pytest.mark.parametrize(
    ("shape", "policy"),
    [
        ("c0m0g1v22", GPU_TYPED),
        ("c0m0g1v15", replace(GPU_TYPED, requirements_at_most=JobNeeds())),
        ("c4m8", GPU_TYPED),
    ],
    ids=["at-the-ceiling", "no-ceiling", "no-gpu"],
)
def test_who_says_so_beyond_the_ceiling_has_failed(
    tmp_path: Path, shape: str, policy: Policy
) -> None:
    if shape == "c4m8":
        types = (JobType(name="train", needs=JobNeeds(vcpus=4, memory_gib=8)),)
        policy = replace(policy, types=types)
    slot, intake, told = on_gpu(tmp_path, shape, SeenGpu(), policy)

    assert told == [False]
    assert intake.bodies() == []
    assert len(slot.world.manifest("j").failures) == 1


def test_without_types_it_has_failed(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path, runner=ScriptedRunner(script=run_out))
    slot.world.send({"job_id": "j", "items": items(5)})
    slot.step()

    assert len(slot.world.manifest("j").failures) == 1
