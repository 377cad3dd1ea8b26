"""A worker does what its machine is large enough for, and sends the rest to be routed again."""

import json
from dataclasses import dataclass, replace
from typing import Any

import pytest

from spindown.contract.codec import encode, to_json
from spindown.contract.job.manifest import JobState
from spindown.contract.job.message import JobMessage, encode_job, parse_job
from spindown.domain.policy import JobNeeds, JobType, Policy
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.shape import Sized
from spindown.job.claim import ClaimOutcome, Declined, claim
from spindown.job.claimed_job import ClaimedJob
from spindown.job.release import release
from spindown.job.route import fail_unclaimed
from spindown.memory import MemoryJobQueue
from spindown.port import Message, Outgoing, Write
from tests.builders import minutes
from tests.work import WORKLOAD, WorkWorld, a_slot_id

TYPED = replace(
    Policy(),
    types=(
        JobType(name="small", needs=JobNeeds(memory_gib=8)),
        JobType(name="large", needs=JobNeeds(memory_gib=60)),
    ),
    requirements_at_most=JobNeeds(memory_gib=16),
)


@pytest.fixture
def world() -> WorkWorld:
    return WorkWorld(policy=TYPED)


@pytest.fixture
def intake(world: WorkWorld) -> MemoryJobQueue:
    """Return the entry queue, where the world's is that of a shape."""
    queue = MemoryJobQueue(world.clock, world.ports.random, name="intake")
    world.ports = replace(world.ports, queue_of={"": queue}.__getitem__)
    return queue


def take(world: WorkWorld, shape: str, **asked: Any) -> ClaimedJob | Declined:
    """Send a job, and let a worker of a shape receive it."""
    world.send({"job_id": "j", "items": ["a"], **asked})
    return world.claim(a_slot_id(shape=shape))


@pytest.mark.parametrize(
    ("shape", "asked"),
    [
        ("c0m8", {"type": "small"}),
        ("c0m64", {"type": "small"}),
        ("c0m8", {}),
        ("c0m16", {"type": "small", "requirements": {"memory_gib": 16}}),
    ],
)
def test_a_job_that_fits_is_held(
    world: WorkWorld, intake: MemoryJobQueue, shape: str, asked: dict[str, Any]
) -> None:
    held = take(world, shape, **asked)

    assert isinstance(held, ClaimedJob)
    assert held.lease.shape == shape
    assert intake.bodies() == []


@pytest.mark.parametrize(
    "asked",
    [{"type": "large"}, {"type": "gone"}, {"requirements": {"memory_gib": 40}}],
)
def test_a_job_of_another_machine_is_routed_again(
    world: WorkWorld, intake: MemoryJobQueue, asked: dict[str, Any]
) -> None:
    declined = take(world, "c0m8", **asked)

    assert isinstance(declined, Declined)
    assert declined.outcome is ClaimOutcome.OTHER_SHAPE
    (body,) = intake.bodies()
    assert parse_job(body).job_id == "j"
    assert world.queue.bodies() == []
    assert world.lease(a_slot_id()) is None


def test_a_refused_twin_keeps_no_job_from_its_machine(
    world: WorkWorld, intake: MemoryJobQueue
) -> None:
    world.send({"job_id": "j", "items": ["a"], "type": "small"})
    twin = JobMessage(job_id="j", items=("other",), type="gone")
    about = {"type": "gone", "known": "small"}
    fail_unclaimed(twin, Reason(ReasonCode.TYPE_UNKNOWN, about), WORKLOAD, world.ports)
    refused = world.manifest("j")
    held = world.claim(a_slot_id(shape="c0m8"))

    assert (refused.state, refused.code) == (JobState.FAILED, ReasonCode.TYPE_UNKNOWN)
    assert isinstance(held, ClaimedJob)
    told = world.manifest("j")
    assert (told.state, told.epoch, told.code, told.reason) == (JobState.RUNNING, 1, "", "")
    assert told.finished_at is None
    assert world.dead_letters.bodies() == intake.bodies() == []


def test_a_refused_twin_ends_no_job_that_waits_again(
    world: WorkWorld, intake: MemoryJobQueue
) -> None:
    held = take(world, "c0m8", type="small")
    assert isinstance(held, ClaimedJob)
    slot_id, row = a_slot_id(shape="c0m8"), world.worker_row()
    release(held, slot_id=slot_id, worker_row=row, ports=world.ports, policy=TYPED)
    twin = JobMessage(job_id="j", items=("a",), type="gone")
    about = {"type": "gone", "known": "small"}
    _, has_failed = fail_unclaimed(
        twin, Reason(ReasonCode.TYPE_UNKNOWN, about), WORKLOAD, world.ports
    )
    again = world.claim(a_slot_id("i-2", shape="c0m8"))

    assert has_failed
    assert isinstance(again, ClaimedJob)
    assert (again.manifest.epoch, again.manifest.losses) == (2, 0)
    assert world.dead_letters.bodies() == intake.bodies() == []


def test_without_types_a_typed_job_is_a_dead_letter() -> None:
    world = WorkWorld()
    declined = take(world, "", type="small")

    assert isinstance(declined, Declined)
    assert (declined.outcome, declined.code) == (ClaimOutcome.FORBIDDEN, ReasonCode.NO_TYPES)
    assert len(world.dead_letters.bodies()) == 1
    assert world.queue.bodies() == []


def test_a_machine_of_before_the_types_leaves_jobs_to_be_routed(world: WorkWorld) -> None:
    declined = take(world, "", type="large")

    assert isinstance(declined, Declined)
    assert declined.outcome is ClaimOutcome.PUT_BACK
    assert world.queue.backlog().in_flight == 1


def test_a_job_without_a_type_costs_no_further_call() -> None:
    world = WorkWorld()
    held = take(world, "")

    assert isinstance(held, ClaimedJob)
    calls = [name for name in world.calls if name.startswith(("queue", "dead_letters"))]
    assert calls == ["queue.receive"]


@dataclass
class Twice:
    """A world in which a job that one shape works on was sent again, as one of another shape."""

    world: WorkWorld
    held: ClaimedJob
    copies: MemoryJobQueue
    copy: Message

    def claim(self) -> Declined:
        """Let a worker of the other shape deal with the copy."""
        mine = self.world.queue
        ports = replace(
            self.world.ports, queue=self.copies, queue_of={"": mine, "c0m8": mine}.__getitem__
        )
        slot_id = a_slot_id("i-2", shape="c0m64")
        declined = claim(
            self.copy,
            slot_id=slot_id,
            worker_row=self.world.worker_row("i-2"),
            ports=ports,
            policy=TYPED,
        )
        assert isinstance(declined, Declined)
        return declined


def sent_twice(world: WorkWorld, shape: str = "c0m8") -> Twice:
    held = take(world, shape, **({"type": "small"} if shape else {}))
    assert isinstance(held, ClaimedJob)
    copies = MemoryJobQueue(world.clock, world.ports.random, name="copies")
    body = {"job_id": "j", "items": ["a"], "type": "large"}
    copies.send([Outgoing(body=json.dumps(body))])
    copy = copies.receive(wait=minutes(0), visibility=minutes(5))
    assert copy is not None
    return Twice(world, held, copies, copy)


@pytest.mark.parametrize("shape", ["c0m8", ""])
def test_a_copy_in_another_queue_is_one_too_many(world: WorkWorld, shape: str) -> None:
    twice = sent_twice(world, shape)

    assert twice.claim().outcome is ClaimOutcome.COPY
    assert world.lease(a_slot_id()) == twice.held.lease
    assert twice.copies.bodies() == []
    assert world.queue.backlog().in_flight == 1


@pytest.mark.parametrize("shape", ["c0m8", "../other", "dlq"])
def test_the_handle_of_another_queue_is_no_holder_s(world: WorkWorld, shape: str) -> None:
    twice = sent_twice(world)
    if shape == "c0m8":
        # The holder's own message is visible just now.
        world.queue.extend(twice.held.lease.receipt_handle, minutes(0))
    else:
        world.table.write(Write(key=a_slot_id().lease_key, set={"shape": shape}))

    assert twice.claim().outcome is ClaimOutcome.PUT_BACK
    lease = world.lease(a_slot_id())
    assert lease is not None
    assert lease.receipt_handle == twice.held.lease.receipt_handle
    assert len(twice.copies.bodies()) == 1


def take_sized(world: WorkWorld, shape: str, of: JobNeeds) -> ClaimedJob | Declined:
    """Send a small job that was given 4 GiB when its type needed ``of``."""
    sized = Sized(of=of, needs=JobNeeds(memory_gib=4))
    body = encode_job(JobMessage(job_id="j", items=("a",), type="small"))
    attributes = {"sized": to_json(encode(sized))}
    world.queue.send([Outgoing(body=body, attributes=attributes)])
    return world.claim(a_slot_id(shape=shape))


def test_a_job_keeps_what_it_was_given_when_it_was_routed(
    world: WorkWorld, intake: MemoryJobQueue
) -> None:
    held = take_sized(world, "c0m4", JobNeeds(memory_gib=8))

    assert isinstance(held, ClaimedJob)
    assert held.manifest.sized is not None
    assert held.manifest.sized.needs == JobNeeds(memory_gib=4)
    assert held.manifest.routed_at == held.message.sent_at
    assert intake.bodies() == []


@pytest.mark.parametrize(("before", "stated"), [({}, ()), ({"memory_gib": 8}, ("memory_gib",))])
def test_a_job_knows_what_it_was_sent_with_once_it_grows(
    world: WorkWorld, before: dict[str, Any], stated: tuple[str, ...]
) -> None:
    first = take(world, "c0m8", type="small", requirements=before)
    assert isinstance(first, ClaimedJob)
    assert first.manifest.stated == stated
    world.clock.advance(minutes(60))
    message = {"job_id": "j", "items": ["a"], "type": "small", "requirements": {"memory_gib": 16}}
    world.send(message)
    grown = world.claim(a_slot_id(shape="c0m16"))

    assert isinstance(grown, ClaimedJob)
    assert grown.manifest.stated == stated


def test_what_was_given_to_a_type_of_before_counts_no_more(
    world: WorkWorld, intake: MemoryJobQueue
) -> None:
    assert isinstance(take_sized(world, "c0m4", JobNeeds(memory_gib=6)), Declined)
    assert len(intake.bodies()) == 1


def test_without_a_shape_nobody_has_given_anything() -> None:
    world = WorkWorld()
    body = encode_job(JobMessage(job_id="j", items=("a",)))
    world.queue.send([Outgoing(body=body, attributes={"sized": "{}"})])
    held = world.claim(a_slot_id())

    assert isinstance(held, ClaimedJob)
    assert held.manifest.sized is None
    assert held.manifest.routed_at is None
