"""Messages are routed by what they need: to the queue of a shape, or to the dead letters."""

import itertools
import json
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from spindown.contract.codec import encode
from spindown.contract.decision import Outcome
from spindown.contract.job.manifest import JobState, Manifest, manifest_key
from spindown.contract.job.message import (
    JobMessage,
    body_digest,
    encode_stored,
    needs_of,
    parse_job,
    stored_key,
)
from spindown.contract.learned_size import LearnedSizes, encode_sizes, sizes_key
from spindown.contract.row import lease_sort_key, shape_sort_key
from spindown.control.market import refresh
from spindown.control.plan.action import ActionKind
from spindown.domain.fleet import Lease
from spindown.domain.policy import Dispatch, JobNeeds, JobType, Policy, Rightsize
from spindown.domain.reason import ReasonCode
from spindown.domain.retry_or_dead_letter import MAX_RECEIVE_COUNT, UNREADABLE_FOR
from spindown.domain.rightsizing.type_size import TypeSize
from spindown.domain.shape import SCALES, parse_shape, shape_of
from spindown.error import AccessDenied, NotFound, Throttled, Unreachable
from spindown.job.cancel import cancel_unclaimed
from spindown.job.manifest_store import load_manifest, save_manifest
from spindown.job.message import first_sent_at
from spindown.job.redrive import redrive
from spindown.job.route import SHAPES_AT_MOST, Routed, route
from spindown.job.shape_queue import UNUSED_FOR, remove_unused
from spindown.job.source_search import find_by_object
from spindown.memory import PortCall
from spindown.port import Outgoing
from tests.builders import AT_ONCE, a_type, minutes
from tests.control import REGION, WORKLOAD, ZONES, ControlWorld, live_key

SMALL = "c0m8"
TYPES = (JobType(name="small", needs=JobNeeds(memory_gib=5)),)


@pytest.fixture
def world() -> ControlWorld:
    policy = replace(Policy(), types=TYPES, requirements_at_most=JobNeeds(memory_gib=64, vcpus=16))
    return ControlWorld(policy=policy)


def jobs_of(world: ControlWorld, shape: str) -> list[str]:
    return sorted(parse_job(body).job_id or "" for body in world.queue_of(shape).bodies())


def letters(world: ControlWorld) -> dict[str, str]:
    """Return job id -> code of the dead letters."""
    found = {}
    while message := world.dead_letters.receive(wait=timedelta(0), visibility=minutes(5)):
        found[message.attributes.get("job_id", "")] = message.attributes.get("code", "")
    return found


@pytest.mark.parametrize(
    ("asked", "shape"),
    [
        ({}, "c0m0"),
        ({"type": "small"}, SMALL),
        ({"type": "small", "requirements": {"memory_gib": 33}}, "c0m48"),
        ({"type": "small", "requirements": {"memory_gib": 1}}, "c0m1"),
        ({"requirements": {"vcpus": 6, "memory_gib": 0.5}}, "c8m1"),
        ({"type": "small", "requirements": {"architectures": ["x86_64"]}}, "c0m8x"),
        ({"type": "small", "requirements": {"architectures": ["x86_64", "arm64"]}}, SMALL),
    ],
)
def test_a_message_goes_to_the_queue_of_its_shape(
    world: ControlWorld, asked: dict[str, Any], shape: str
) -> None:
    world.ask("j", **asked)
    routed = world.route()

    assert (routed.routed, routed.rejected, routed.postponed) == (1, {}, 0)
    assert world.queue.bodies() == []
    assert jobs_of(world, shape) == ["j"]
    assert shape in world.view().shapes


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"type": "huge"}, ReasonCode.TYPE_UNKNOWN),
        ({"requirements": {"memory_gib": 65}}, ReasonCode.REQUIREMENT_FORBIDDEN),
        ({"type": "small", "requirements": {"gpus": 1}}, ReasonCode.REQUIREMENT_FORBIDDEN),
        ({"requirements": {"architectures": ["arm64"]}}, ReasonCode.REQUIREMENT_FORBIDDEN),
        ({"requirements": {"disk_gib": 1}}, ReasonCode.REQUIREMENT_FORBIDDEN),
    ],
)
def test_what_is_forbidden_is_a_dead_letter(
    world: ControlWorld, asked: dict[str, Any], code: ReasonCode
) -> None:
    world.ask("j", **asked)
    routed = world.route()

    assert routed.rejected == {code.value: 1}
    assert letters(world) == {"j": code.value}
    assert world.queue.bodies() == []


@pytest.mark.parametrize(
    ("dispatch", "disk_gib", "fits"),
    [("pool", 100, True), ("shared", 25, True), ("shared", 26, False)],
)
def test_jobs_that_share_a_machine_share_its_disk(
    world: ControlWorld, dispatch: str, disk_gib: int, *, fits: bool
) -> None:
    types = (JobType(name="small", needs=JobNeeds(memory_gib=5), dispatch=Dispatch(dispatch)),)
    most = JobNeeds(memory_gib=64, disk_gib=100)
    world.policy = replace(Policy(shared_slots=4), types=types, requirements_at_most=most)
    world.ask("j", type="small", requirements={"disk_gib": disk_gib})

    assert (world.route().routed == 1) is fits


def test_a_refused_job_of_a_source_is_known_by_its_object(world: ControlWorld) -> None:
    job_id = f"s3-{7:032x}"
    message = {"job_id": job_id, "items": ["s3://scans/a.png"], "type": "huge"}
    world.queue.send([Outgoing(body=json.dumps(message))])
    world.route()

    assert find_by_object("s3://scans/a.png", world.objects) == (job_id,)


@pytest.mark.parametrize(
    "asked",
    [
        {"requirements": {"memory": 5}},
        {"requirements": {"memory_gib": "5"}},
        {"requirements": {"memory_gib": -1}},
        {"requirements": {"vcpus": 1.5}},
        {"requirements": {"gpus": True}},
        {"requirements": {"architectures": []}},
        {"requirements": {"architectures": ["sparc"]}},
        {"requirements": [1]},
        {"type": "Small"},
        {"type": 5},
    ],
)
def test_what_cannot_be_read_is_a_dead_letter(world: ControlWorld, asked: dict[str, Any]) -> None:
    world.ask("j", **asked)

    assert world.route().rejected == {"malformed": 1}
    assert world.dead_letters.backlog().visible == 1


def test_a_message_without_an_id_gets_the_usual_one(world: ControlWorld) -> None:
    world.queue.send([Outgoing(body='{"items": [1], "type": "small"}', tenant="acme")])
    world.route()

    (body,) = world.queue_of(SMALL).bodies()
    assert json.loads(body)["job_id"].startswith("job-")
    message = world.queue_of(SMALL).receive(wait=timedelta(0), visibility=minutes(1))
    assert message is not None
    assert message.tenant == "acme"


def test_the_type_of_a_stored_body_counts(world: ControlWorld) -> None:
    data, pointer = encode_stored(JobMessage(items=(1,), job_id="j", type="small"))
    world.objects.put(stored_key("j", pointer.stored or ""), data)
    body = json.dumps({"job_id": "j", "stored": pointer.stored})
    world.queue.send([Outgoing(body=body)])
    world.queue.send([Outgoing(body=json.dumps({"job_id": "k", "stored": "0" * 64}))])
    world.route()

    assert [json.loads(text) for text in world.queue_of(SMALL).bodies()] == [json.loads(body)]
    assert letters(world) == {"k": ReasonCode.BODY_NOT_STORED.value}


def test_a_message_of_a_later_version_is_hidden_and_left(world: ControlWorld) -> None:
    world.queue.send([Outgoing(body='{"items": [], "schema": 99}')])

    assert world.route().postponed == 1
    assert world.queue.backlog().in_flight == 1
    assert world.dead_letters.bodies() == []


def test_a_cancelled_job_is_not_routed(world: ControlWorld) -> None:
    for name in ("gone", "stays"):
        world.ask(name, type="small")
    world.clock.advance(minutes(1))
    for name in ("gone", "sent-later"):
        cancel_unclaimed(name, world.work_ports())
    world.clock.advance(minutes(1))
    world.ask("sent-later", type="small")

    routed = world.route()

    assert (routed.routed, routed.dropped, routed.seen) == (1, 1, 3)
    assert jobs_of(world, SMALL) == ["stays"]
    assert letters(world) == {"sent-later": ReasonCode.SENT_AFTER_CANCEL.value}
    assert world.queue.bodies() == []


def test_a_job_whose_manifest_cannot_be_read_is_routed(world: ControlWorld) -> None:
    world.objects.put(manifest_key("j"), b"{")
    world.ask("j", type="small")
    denied(world, "versions", "manifest")

    assert world.route().routed == 1


def test_what_no_manifest_can_tell_ends_no_run() -> None:
    world = a_world_with_prices()
    for number in range(8):
        world.objects.put(manifest_key(f"j{number}"), b"{")
        world.ask(f"j{number}", requirements={"memory_gib": 100})
    world.ask("honest", type="small")
    denied(world, "versions", "manifest")

    code = ReasonCode.NO_SUCH_SIZE.value
    assert world.route() == Routed(routed=1, rejected={code: 8})
    assert letters(world) == {f"j{number}": code for number in range(8)}


def denied(world: ControlWorld, method: str, *keys: str, error: type = AccessDenied) -> None:
    """Let a method fail for what is called like this."""

    def deny(call: PortCall, proceed: Any) -> Any:
        if call.method == method and any(key in str(call.args[0]) for key in keys):
            raise error("no")
        return proceed()

    world.interfere = deny


def test_bodies_that_nobody_may_read_end_no_run_and_go(world: ControlWorld) -> None:
    for number in range(8):
        data, pointer = encode_stored(JobMessage(items=(1,), job_id=f"j{number}"))
        world.objects.put(stored_key(f"j{number}", pointer.stored or ""), data)
        body = json.dumps({"job_id": f"j{number}", "stored": pointer.stored})
        world.queue.send([Outgoing(body=body)])
    world.ask("honest", type="small")
    denied(world, "get", "bodies/")

    assert world.route() == Routed(routed=1, postponed=8)
    for _ in range(10):
        world.clock.advance(UNREADABLE_FOR / 4)
        world.route()
    assert world.queue.bodies() == []
    assert len(world.dead_letters.bodies()) == 8


@pytest.mark.parametrize("error", [Throttled, Unreachable])
def test_a_job_of_which_nothing_is_known_yet_is_not_placed(
    world: ControlWorld, error: type
) -> None:
    world.ask("j", type="small")
    over(world, "j")
    denied(world, "get", "manifest", error=error)
    early = world.route()
    world.interfere = None
    world.clock.advance(minutes(3))

    assert early == Routed(postponed=1)
    assert world.route() == Routed(dropped=1)


def over(world: ControlWorld, job_id: str, **ended: Any) -> None:
    """Let a job that was just asked for be over, as its worker left it."""
    job = parse_job(world.queue.bodies()[-1])
    known = Manifest(job_id=job_id, epoch=1, owner="i-1/0", state=JobState.COMPLETED)
    left = replace(known, released=True, body_digest=body_digest(job))
    save_manifest(replace(left, **ended), None, world.work_ports())


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.SPLIT])
def test_a_second_message_of_a_job_that_is_over_buys_nothing(state: JobState) -> None:
    world = ControlWorld(policy=replace(AT_ONCE, types=TYPES))
    world.ask("j", type="small")
    over(world, "j", state=state)
    routed = world.route()
    world.run(2)

    assert (routed.routed, routed.dropped) == (0, 1)
    assert world.workers() == []
    assert world.queue.bodies() == world.dead_letters.bodies() == []


def test_a_message_of_a_failed_job_is_a_dead_letter_as_it_was(world: ControlWorld) -> None:
    world.ask("j", type="small")
    code = ReasonCode.FAILED_TOO_OFTEN.value
    over(world, "j", state=JobState.FAILED, reason="it failed 5 times", code=code)

    assert world.route().rejected == {"failures": 1}
    letter = world.dead_letters.receive(wait=timedelta(0), visibility=minutes(5))
    assert letter is not None
    assert (letter.attributes["reason"], letter.attributes["code"]) == ("it failed 5 times", code)
    assert world.queue.bodies() == []


@pytest.mark.parametrize(
    "ended", [{"body_digest": "0" * 64}, {"state": JobState.RUNNING}], ids=["another's", "running"]
)
def test_a_message_whose_job_may_go_on_is_routed(
    world: ControlWorld, ended: dict[str, Any]
) -> None:
    world.ask("j", type="small")
    over(world, "j", **ended)

    assert world.route().routed == 1
    assert jobs_of(world, SMALL) == ["j"]


def test_a_dead_letter_of_a_failed_job_runs_once_sent_back(world: ControlWorld) -> None:
    world.ask("j", type="small")
    over(world, "j", state=JobState.FAILED, reason="it failed 5 times")
    world.route()
    list(redrive(WORKLOAD, world.work_ports()))

    assert world.route().routed == 1
    assert jobs_of(world, SMALL) == ["j"]


def test_a_refused_twin_leaves_what_waits_to_be_routed(world: ControlWorld) -> None:
    world.ask("j", type="huge")
    world.ask("j", type="small")
    routed = world.route()

    assert (routed.routed, routed.rejected) == (1, {ReasonCode.TYPE_UNKNOWN.value: 1})
    assert jobs_of(world, SMALL) == ["j"]


def test_what_is_refused_for_long_stays_in_the_queue(world: ControlWorld) -> None:
    world.ask("j", type="small")
    sent_at = world.now

    def deny(call: PortCall, proceed: Any) -> Any:
        if call.method == "create":
            raise AccessDenied("sqs:CreateQueue")
        return proceed()

    world.interfere = deny
    for _ in range(110):
        assert world.route().postponed
        world.clock.advance(minutes(3))
    world.interfere = None
    waiting = world.queue.receive(wait=timedelta(0), visibility=minutes(1))
    world.clock.advance(minutes(3))

    # SQS itself moves what it has handed out more often.
    assert waiting is not None
    assert waiting.receive_count < MAX_RECEIVE_COUNT
    assert world.route().routed == 1
    assert world.dead_letters.bodies() == []
    message = world.queue_of(SMALL).receive(wait=timedelta(0), visibility=minutes(1))
    assert message is not None
    assert first_sent_at(message) == sent_at


def test_a_copy_says_when_its_job_was_first_sent(world: ControlWorld) -> None:
    world.ask("j", type="small")
    sent_at = world.now
    world.clock.advance(minutes(1))
    world.route()

    message = world.queue_of(SMALL).receive(wait=timedelta(0), visibility=minutes(1))

    assert message is not None
    assert first_sent_at(message) == sent_at
    assert message.sent_at >= sent_at + minutes(1)


@pytest.mark.parametrize("said", ["2020-01-01T00:00:00Z", "2099-01-01T00:00:00Z", "now", "9" * 99])
def test_no_sender_dates_a_message_later_than_it_was(world: ControlWorld, said: str) -> None:
    world.queue.send([Outgoing(body="{}", attributes={"first_sent": said})])
    message = world.queue.receive(wait=timedelta(0), visibility=minutes(1))

    assert message is not None
    assert first_sent_at(message) <= message.sent_at


def test_a_copy_keeps_no_attribute_of_a_sender_s(world: ControlWorld) -> None:
    world.change_policy(rightsize=Rightsize.APPLY)
    learn(world)
    body = json.dumps({"items": ["a"], "job_id": "j", "type": "small"})
    attributes = {f"mine-{number}": "x" for number in range(10)}
    world.queue.send([Outgoing(body=body, attributes=attributes)])

    routed = world.route()

    (shape,) = world.view().shapes
    message = world.queue_of(shape).receive(wait=timedelta(0), visibility=minutes(1))
    assert routed.routed == 1
    assert message is not None
    assert set(message.attributes) == {"sized", "first_sent"}


def test_a_message_that_cannot_be_sent_comes_back(world: ControlWorld) -> None:
    world.ask("j", type="small")

    def fail(call: PortCall, proceed: Any) -> Any:
        if call.method == "send":
            raise Unreachable("no answer")
        return proceed()

    world.interfere = fail
    assert world.route().postponed == 1
    world.interfere = None
    world.clock.advance(minutes(3))

    assert world.route().routed == 1
    assert jobs_of(world, SMALL) == ["j"]


def test_a_queue_that_was_removed_is_made_again(world: ControlWorld) -> None:
    world.ask("j", type="small")
    world.route()
    world.queue_of(SMALL).remove()
    world.clock.advance(minutes(1))
    world.ask("k", type="small")
    world.route()

    assert jobs_of(world, SMALL) == ["k"]


def test_an_unused_queue_is_removed_step_by_step(world: ControlWorld) -> None:
    a_shape_in_use(world)
    world.clock.advance(UNUSED_FOR)
    removed = []
    for _ in range(3):
        removed.append(remove_unused(WORKLOAD, world.ports))
        world.clock.advance(minutes(60))

    assert removed == [0, 0, 1]
    assert SMALL not in world.view().shapes
    with pytest.raises(NotFound):
        world.queue_of(SMALL).backlog()


def a_shape_in_use(world: ControlWorld) -> None:
    """Route a job to a shape, and let somebody complete it."""
    world.ask("j", type="small")
    world.route()
    queue = world.queue_of(SMALL)
    message = queue.receive(wait=timedelta(0), visibility=minutes(1))
    assert message is not None
    queue.delete(message.receipt_handle)
    world.tick()


def test_a_queue_that_holds_anything_stays(world: ControlWorld) -> None:
    a_shape_in_use(world)
    world.clock.advance(UNUSED_FOR)
    world.queue_of(SMALL).send([Outgoing(body="{}")])
    for _ in range(4):
        assert remove_unused(WORKLOAD, world.ports) == 0
        world.clock.advance(minutes(60))

    assert world.queue_of(SMALL).bodies() == ["{}"]


def test_without_types_messages_go_back_and_queues_go(world: ControlWorld) -> None:
    world.ask("j", type="small")
    world.ask("plain")
    world.route()
    asked = sorted([*world.queue_of(SMALL).bodies(), *world.queue_of("c0m0").bodies()])
    world.change_policy(types=())
    world.tick()
    removed = []
    for _ in range(3):
        removed.append(remove_unused(WORKLOAD, world.ports))
        assert sorted(world.queue.bodies()) == asked
        world.clock.advance(minutes(60))

    assert removed == [0, 0, 2]
    assert not world.view().shapes
    assert not world.queue_of(SMALL).is_there


def test_the_queue_of_a_shape_of_no_job_goes_at_once(world: ControlWorld) -> None:
    a_shape_in_use(world)
    large = replace(TYPES[0], needs=JobNeeds(memory_gib=2))
    world.change_policy(types=(large,), requirements_at_most=JobNeeds())
    world.tick()
    removed = []
    for _ in range(3):
        removed.append(remove_unused(WORKLOAD, world.ports))
        world.clock.advance(minutes(60))

    assert removed == [0, 0, 1]


@pytest.mark.parametrize("steps", [1, 2])
def test_a_message_that_comes_meanwhile_is_not_lost(world: ControlWorld, steps: int) -> None:
    a_shape_in_use(world)
    world.clock.advance(UNUSED_FOR)
    for _ in range(steps):
        remove_unused(WORKLOAD, world.ports)
        world.clock.advance(minutes(60) if steps == 1 else minutes(31))
    world.ask("k", type="small")
    world.route()
    for _ in range(3):
        remove_unused(WORKLOAD, world.ports)
        world.clock.advance(minutes(60))
        world.route()

    assert jobs_of(world, SMALL) == ["k"]
    assert world.view().shapes[SMALL].closing_at is None


@pytest.mark.parametrize("pause", [timedelta(0), timedelta(seconds=30), minutes(5)])
def test_a_message_beside_any_call_of_a_removal_is_kept(pause: timedelta) -> None:
    """Let it be routed just before, or a little after, each call of the runs that remove."""
    for at in itertools.count(1):
        world = ControlWorld(policy=replace(Policy(), types=TYPES))
        a_shape_in_use(world)
        world.clock.advance(UNUSED_FOR)
        seen, removed = count_until(world, at, pause), 0
        for _ in range(4):
            removed += remove_unused(WORKLOAD, world.ports)
            world.clock.advance(minutes(60))
        world.interfere = None
        world.route()

        was_hit = len(seen) >= at
        assert jobs_of(world, SMALL) == (["k"] if was_hit else []), seen[-1]
        assert world.queue.bodies() == []
        if not was_hit:
            assert removed == 1
            break
    assert at > 12


def count_until(world: ControlWorld, at: int, pause: timedelta) -> list[PortCall]:
    """Let a message be routed at a call of the table or a queue; return what collects those."""
    seen: list[PortCall] = []

    def send() -> None:
        world.interfere = None
        world.clock.advance(pause)
        world.ask("k", type="small")
        world.route()
        world.interfere = listen

    def listen(call: PortCall, proceed: Any) -> Any:
        if call.port not in {"table", "queue"}:
            return proceed()
        seen.append(call)
        if len(seen) == at and not pause:
            send()
        try:
            return proceed()
        finally:
            if len(seen) == at and pause:
                send()

    world.interfere = listen
    return seen


def test_a_queue_that_holds_something_again_begins_anew(world: ControlWorld) -> None:
    a_shape_in_use(world)
    world.clock.advance(UNUSED_FOR)
    remove_unused(WORKLOAD, world.ports)
    is_closing = world.view().shapes[SMALL].closing_at is not None
    world.clock.advance(minutes(60))
    world.queue_of(SMALL).send([Outgoing(body="{}")])
    remove_unused(WORKLOAD, world.ports)

    assert is_closing
    assert world.view().shapes[SMALL].closing_at is None


def test_nothing_is_sent_to_a_queue_that_is_just_removed(world: ControlWorld) -> None:
    world.put(shape_sort_key(SMALL), shape=SMALL, url="u", used_at=world.now, removing_at=world.now)
    world.ask("j", type="small")
    first = world.route()
    world.clock.advance(minutes(20))
    second = world.route()

    assert (first.postponed, second.routed) == (1, 1)
    assert jobs_of(world, SMALL) == ["j"]
    assert (world.table.get(live_key(shape_sort_key(SMALL))) or {})["removing_at"] is None


def test_a_tick_routes_while_anything_waits(world: ControlWorld) -> None:
    world.ask("j", type="small")

    assert [action.kind for action in world.tick().actions] == [ActionKind.ROUTE.value]
    assert ActionKind.ROUTE.value not in [action.kind for action in world.tick().actions]


def test_a_flood_keeps_no_job_in_a_queue_that_is_given_up(world: ControlWorld) -> None:
    world.ask("j", type="small")
    world.route()
    world.change_policy(types=(replace(TYPES[0], needs=JobNeeds(memory_gib=2)),))
    world.change_policy(requirements_at_most=JobNeeds(vcpus=1))

    def flood(call: PortCall, proceed: Any) -> Any:
        if (call.port, call.method) == ("queue", "receive"):
            world.clock.advance(timedelta(seconds=5))
            world.queue.send([Outgoing(body="{")])
        return proceed()

    world.interfere = flood
    route(world.workload_settings(), world.policy, world.work_ports(), world.ports, threads=1)

    assert jobs_of(world, "c0m2") == ["j"]


def test_what_waits_for_a_type_of_another_name_buys_nothing(world: ControlWorld) -> None:
    for number in range(3):
        world.ask(f"j{number}", type="small")
    world.route()
    world.change_policy(types=(replace(TYPES[0], name="renamed"),))
    decision = world.tick()

    assert [action.kind for action in decision.actions] == [ActionKind.ROUTE.value]
    assert set(letters(world).values()) == {ReasonCode.TYPE_UNKNOWN.value}
    assert jobs_of(world, SMALL) == []


def fill_shapes(world: ControlWorld) -> None:
    """Let a sender make up more sizes than there are queues for."""
    world.change_policy(requirements_at_most=JobNeeds(memory_gib=8192, vcpus=512))
    sizes = [
        (vcpus, memory) for vcpus in SCALES["vcpus"][1:] for memory in SCALES["memory_gib"][1:]
    ]
    for vcpus, memory in sizes[:60]:
        asked = {"vcpus": vcpus, "memory_gib": memory}
        world.ask(f"j{vcpus}-{memory}", requirements=asked)


def route_all(world: ControlWorld) -> Routed:
    routed = world.route()
    while world.queue.backlog().visible:
        routed += world.route()
    return routed


def test_so_many_shapes_make_no_queue_without_end(world: ControlWorld) -> None:
    fill_shapes(world)
    world.ask("large", requirements={"vcpus": 512, "memory_gib": 8192})
    routed = route_all(world)

    shapes = world.view().shapes
    # Of jobs without a type, and one that is larger than these; the rest is left to the one type.
    assert len(shapes) <= SHAPES_AT_MOST // 2 + 1
    kept = [parse_job(body) for name in shapes for body in world.queue_of(name).bodies()]
    assert len(kept) == routed.routed
    assert (routed.routed, routed.rejected) == (61, {})
    for name in shapes:
        shape = parse_shape(name)
        assert shape is not None
        for body in world.queue_of(name).bodies():
            needs = needs_of(parse_job(body))
            assert needs is not None
            assert shape.covers(shape_of(needs))


def test_sizes_that_are_made_up_leave_room_for_each_type(world: ControlWorld) -> None:
    fill_shapes(world)
    route_all(world)
    big = JobType(name="big", needs=JobNeeds(memory_gib=500, gpus=1))
    world.change_policy(types=(*TYPES, big))
    for number in range(8):
        world.ask(f"made-up-{number}", requirements={"vcpus": 500})
    world.ask("s", type="small")
    world.ask("b", type="big")

    routed = world.route()

    assert (routed.routed, routed.postponed) == (10, 0)
    assert jobs_of(world, SMALL) == ["s"]
    assert jobs_of(world, "c0m512g1v0") == ["b"]


def test_sizes_that_are_made_up_leave_room_for_learned_ones(world: ControlWorld) -> None:
    world.change_policy(rightsize=Rightsize.APPLY)
    fill_shapes(world)
    route_all(world)
    learn(world)
    world.ask("s", type="small")
    world.route()

    assert jobs_of(world, "c0m4") == ["s"]


def test_a_made_up_size_is_a_type_s_once_that_gets_it(world: ControlWorld) -> None:
    world.change_policy(rightsize=Rightsize.APPLY, requirements_at_most=JobNeeds(memory_gib=8))
    world.ask("made-up", type="small", requirements={"memory_gib": 3})
    world.route()
    before = world.view().shapes["c0m4"]
    learn(world)
    world.ask("s", type="small")
    world.route()

    assert before.is_made_up
    assert not world.view().shapes["c0m4"].is_made_up
    assert not world.view().shapes["c0m4"].closing_at


def learn(world: ControlWorld) -> None:
    """Let it be known that jobs of the type need less than it asks for."""
    size = TypeSize(of=TYPES[0].needs, slots="per-gpu", needs=JobNeeds(memory_gib=3))
    learned = LearnedSizes(sizes={TYPES[0].name: size})
    world.objects.put(sizes_key(WORKLOAD), encode_sizes(learned))


def a_world_with_prices(**policy: Any) -> ControlWorld:
    """Return a world whose catalogue is stored: its largest machine has 64 GiB."""
    most = JobNeeds(memory_gib=512, vcpus=96)
    world = ControlWorld(policy=replace(AT_ONCE, types=TYPES, requirements_at_most=most, **policy))
    sell(world, 64)
    return world


def sell(world: ControlWorld, memory_gib: int) -> None:
    """Sell a machine with so much memory from now on."""
    kind = a_type(f"g4dn.{memory_gib}", memory_mib=memory_gib * 1024)
    world.market.offer(kind, region=REGION, zones=ZONES, on_demand=1.0, spot=0.5)
    refresh(world.ports)


def manifest_of(world: ControlWorld, job_id: str) -> Manifest | None:
    fence = load_manifest(job_id, world.work_objects)
    return None if fence is None else fence.manifest


def test_a_size_that_nobody_sells_fails_at_once() -> None:
    world = a_world_with_prices()
    world.ask("j", requirements={"memory_gib": 100}, batch_id="b")
    world.ask("k", requirements={"memory_gib": 60}, batch_id="b")
    routed = world.route()

    code = ReasonCode.NO_SUCH_SIZE.value
    assert (routed.routed, routed.rejected) == (1, {code: 1})
    assert letters(world) == {"j": code}
    told = manifest_of(world, "j")
    assert told is not None
    assert (told.state, told.code, told.batch_id) == (JobState.FAILED, code, "b")
    assert "128" in told.reason
    assert "64" in told.reason
    assert manifest_of(world, "k") is None


@pytest.mark.parametrize("is_of_gpu", [False, True])
def test_a_job_that_outgrows_what_is_sold_fails(is_of_gpu: bool) -> None:
    world = a_world_with_prices()
    begun = JobMessage(items=("a",), job_id="j", type="small")
    manifest = Manifest(
        job_id="j",
        epoch=3,
        owner="i-1/0",
        state=JobState.RUNNING,
        released=True,
        body_digest=body_digest(begun),
        next_item=1,
        ran_out_gib=64,
        ran_out_of_vram=is_of_gpu,
    )
    save_manifest(manifest, None, world.work_ports())
    world.ask("j", type="small", requirements={"memory_gib": 96})
    world.route()

    told = manifest_of(world, "j")
    assert told is not None
    assert (told.state, told.next_item, told.epoch) == (JobState.FAILED, 1, 3)
    # What happened comes first.
    assert told.reason.index("64") < told.reason.index("96")
    assert ("GPU" in told.reason) is is_of_gpu
    assert letters(world) == {"j": ReasonCode.NO_SUCH_SIZE.value}


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        # The message is not of this job.
        ({"body_digest": "0" * 64}, JobState.RUNNING),
        ({"body_digest": "0" * 64, "state": JobState.COMPLETED}, JobState.COMPLETED),
    ],
)
def test_a_message_of_no_size_leaves_another_s_job(
    changes: dict[str, Any], state: JobState
) -> None:
    world = a_world_with_prices()
    owned = Manifest(
        job_id="j", epoch=3, owner="i-1/0", state=JobState.RUNNING, released=True, items=1
    )
    save_manifest(replace(owned, **changes), None, world.work_ports())
    world.ask("j", requirements={"memory_gib": 96})
    world.route()

    told = manifest_of(world, "j")
    assert told is not None
    assert told.state is state
    assert letters(world) == {"j": ReasonCode.NO_SUCH_SIZE.value}


def lease(world: ControlWorld, deadline: datetime, *, epoch: int) -> None:
    """Let a worker hold the job until then."""
    held = Lease(
        instance_id="i-1",
        slot=0,
        job_id="j",
        epoch=epoch,
        receipt_handle="r",
        deadline=deadline,
        not_after=deadline,
        claimed_at=world.now,
        sent_at=world.now,
    )
    world.put(lease_sort_key("i-1", 0), **encode(held))


@pytest.mark.parametrize("is_over", [False, True])
def test_a_job_of_a_lost_worker_fails_once_its_lease_is_over(
    world: ControlWorld, *, is_over: bool
) -> None:
    world.ask("j", type="gone", batch_id="b")
    digest = body_digest(parse_job(world.queue.bodies()[0]))
    owned = Manifest(job_id="j", epoch=1, owner="i-1/0", state=JobState.RUNNING)
    save_manifest(replace(owned, body_digest=digest), None, world.work_ports())
    lease(world, world.now + minutes(-1 if is_over else 1), epoch=1)
    world.route()

    told = manifest_of(world, "j")
    assert told is not None
    assert told.state is (JobState.FAILED if is_over else JobState.RUNNING)
    assert letters(world) == {"j": ReasonCode.TYPE_UNKNOWN.value}


def test_a_queue_that_is_being_removed_stops_no_other(world: ControlWorld) -> None:
    world.put(shape_sort_key(SMALL), shape=SMALL, url="u", used_at=world.now, removing_at=world.now)
    for number in range(10):
        world.ask(f"j{number}", type="small")
    world.ask("k")
    routed = world.route()
    world.clock.advance(minutes(20))

    assert (routed.routed, routed.postponed) == (1, 10)
    assert jobs_of(world, "c0m0") == ["k"]
    assert world.route().routed == 10


def test_without_a_catalogue_no_size_is_refused(world: ControlWorld) -> None:
    world.change_policy(requirements_at_most=JobNeeds(memory_gib=512))
    world.ask("j", requirements={"memory_gib": 500})

    assert world.route().routed == 1


def test_a_forbidden_job_has_failed_where_its_batch_is_read(world: ControlWorld) -> None:
    world.ask("j", type="huge", batch_id="b")
    world.route()

    told = manifest_of(world, "j")
    assert told is not None
    assert told.code == ReasonCode.TYPE_UNKNOWN.value


def test_a_failed_size_runs_once_it_is_sold_and_sent_back() -> None:
    world = a_world_with_prices()
    world.ask("j", requirements={"memory_gib": 100})
    world.route()
    sell(world, 128)
    world.clock.advance(minutes(90))
    list(redrive(WORKLOAD, world.work_ports()))

    assert world.route().routed == 1
    assert jobs_of(world, "c0m128") == ["j"]


def test_a_size_of_which_the_quota_is_0_waits_with_a_reason() -> None:
    world = a_world_with_prices()
    for code in ("L-3819A6DF", "L-DB2E81BA"):
        world.market.limit(code, 0.0, region=REGION)
    refresh(world.ports)
    world.ask("j", requirements={"memory_gib": 60})
    decision = world.run(10)[-1]

    assert letters(world) == {}
    assert jobs_of(world, "c0m64") == ["j"]
    assert decision.outcome is Outcome.NOTHING_FITS
    assert ReasonCode.NO_QUOTA_LEFT in {note.code for note in decision.notes}
