"""A tick, an event or a command that fails at any port call, before its effect or after it.

Each episode is gone through once for every call that it makes and every kind of fault. Then
whoever is left goes on, and what must hold is checked: a single fault costs time and nothing else.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from spindown.contract.event import (
    InstanceEvent,
    InterruptionWarning,
    RebalanceRecommendation,
    StateChange,
)
from spindown.contract.row import BACKLOG, BOOT_PHASE, SpendRow
from spindown.control.bake import keep_images
from spindown.control.instance_event import react
from spindown.domain.notice_time import NOTICE
from spindown.job.old_message import resend
from spindown.job.shape_queue import UNUSED_FOR, remove_unused
from spindown.memory import PortCall
from tests.control import REGION
from tests.proof.fault import FAULTS, Fault, Kind
from tests.proof.invariant import Chronicle
from tests.proof.record import count_points
from tests.proof.recovery import go_on, recover
from tests.proof.sweep import sweep
from tests.proof.typed import (
    LARGE,
    left_by_types,
    routed,
    sent,
    sent_to_learned_sizes,
    shrunk,
    told,
    typed_at_work,
)
from tests.proof.world import MINUTE, ProofWorld, a_world


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """What is there, and what the control plane or a user then does."""

    prepare: Callable[[], ProofWorld]
    act: Callable[[ProofWorld], object]
    calls_at_least: int


def waiting(*counts: int) -> ProofWorld:
    """Return a world in which jobs wait and nothing runs."""
    world = a_world()
    for count in counts or (4, 9):
        world.submit(count)
    return world


def up(*counts: int) -> ProofWorld:
    """Return a world in which a worker is up and has no job yet."""
    world = waiting(*counts)
    world.tick()
    world.clock.advance(2 * MINUTE)
    for instance_id in world.bootable:
        world.boot(instance_id)
    return world


def at_work(*counts: int) -> ProofWorld:
    """Return a world in which every worker has committed a part of a job."""
    world = up(*counts)
    for process in world.live:
        for _ in range(4):
            process.step(0)
        process.checkpoint(0)
    return world


def unanswered(*, carried_out: bool) -> ProofWorld:
    world = waiting()
    world.compute.lose_next_answer(is_carried_out=carried_out)
    world.tick()
    world.clock.advance(MINUTE)
    return world


def reclaimed(notice: timedelta) -> ProofWorld:
    world = at_work()
    world.compute.reclaim(world.live[0].instance_id, notice=notice)
    return world


def with_all_to_do() -> ProofWorld:
    """Return a world whose next tick adopts, ends, requeues, charges and launches."""
    world = at_work()
    for _ in range(4):
        world.submit(10)
    world.compute.lose_next_answer(is_carried_out=True)
    world.tick(MINUTE)
    world.compute.reclaim(world.live[0].instance_id, notice=timedelta(0))
    world.live[0].die()
    world.clock.advance(11 * MINUTE)
    return world


def never_up() -> ProofWorld:
    """Return a world whose instance has not checked in for too long."""
    world = waiting()
    world.tick()
    world.broken |= set(world.bootable)
    world.clock.advance(max(world.policy.scale_up_timeout, 15 * MINUTE))
    return world


def wedged() -> ProofWorld:
    """Return a world whose worker has stopped in the middle of a job."""
    world = at_work()
    world.live[0].die()
    world.clock.advance(world.policy.heartbeat_stale_after + world.policy.lease_duration)
    # Ticks have reached the ledger all the time, as far as it says: the silence is the worker's.
    world.put(BACKLOG, seen_at=world.now)
    return world


def condemned() -> ProofWorld:
    world = wedged()
    # The row says so; EC2's answer to the call that ends the instance was lost.
    world.interfere = _without_terminate
    world.tick()
    world.interfere = world.faults
    world.clock.advance(MINUTE)
    return world


def _without_terminate(call: PortCall, proceed: Callable[[], Any]) -> Any:
    return {} if call.method == "terminate" else proceed()


def idle_for_ever() -> ProofWorld:
    """Return a world whose worker lives, has nothing to do and does not end itself."""
    world = up(0)
    for process in world.live:
        process.step(0)
        process.step(0)
        process.step(0)
    for _ in range(20):
        world.clock.advance(MINUTE)
        for process in world.live:
            process.beat()
    return world


def done_long_ago() -> ProofWorld:
    """Return a world whose worker has worked everything off and is gone."""
    world = up(2)
    for _ in range(8):
        go_on(world)
    world.clock.advance(20 * MINUTE)
    return world


def splitting() -> ProofWorld:
    """Return a world in which a job has been split and one of its children is at work."""
    world = up(9)
    for process in world.live:
        for _ in range(7):
            process.step(0)
    return world


def grown_old() -> ProofWorld:
    """Return a world whose messages nobody has claimed for a week, one without an id."""
    world = waiting(4, 2)
    world.dry_up_all(0)
    world.tick()
    world.clock.advance(timedelta(days=8))
    return world


def resend_messages(world: ProofWorld) -> object:
    until = world.now + 2 * MINUTE
    return resend(world.workload, world.ports, store=world.objects, until=until)


def tick(world: ProofWorld) -> object:
    return world.tick()


def route(world: ProofWorld) -> object:
    return world.route()


def removing() -> ProofWorld:
    """Return a world with queues that nobody has used for long, and a job for one of them."""
    world = routed()
    for _ in range(30):
        go_on(world)
        if not world.bodies():
            break
    world.clock.advance(UNUSED_FOR)
    world.submit(2, **LARGE)
    return world


def remove_and_route(world: ProofWorld) -> object:
    """Go through all steps of the removal while a message comes."""
    for step in range(4):
        remove_unused(world.workload, world.ports)
        if step == 2:
            world.route()
        world.clock.advance(60 * MINUTE)
    return world.route()


def take_types_away(world: ProofWorld) -> object:
    """Go through all runs of the hourly function until the queues of shapes are gone."""
    for _ in range(4):
        remove_unused(world.workload, world.ports)
        world.clock.advance(60 * MINUTE)
    return world.tick()


def earned(state: str = "") -> ProofWorld:
    """Return a world with an image that is earned, under way, done or failed, and waiting work."""
    world = a_world()
    world.stamp = "with this"
    world.settings.deploy(world.workload_settings())
    world.put(f"{BOOT_PHASE}install", samples=[120.0])
    # A dollar an hour; so few of them that no invariant of the bill sees it.
    day = SpendRow(instances=400, dollars=1e-7, boot_seconds=3.6e-4)
    world.put_day(world.now - timedelta(days=1), day)
    world.submit(4)
    if state:
        keep_images(world.workload, world.ports)
        (build,) = world.builder.builds
        if state == "failed":
            world.builder.fail(build, "no wheel")
        else:
            world.builder.finish(build, {REGION: "ami-1"}, stamp=world.stamp)
    if state == "used":
        keep_images(world.workload, world.ports)
    return world


def bake(world: ProofWorld) -> object:
    keep_images(world.workload, world.ports)
    # The next hour goes on with whatever was left.
    keep_images(world.workload, world.ports)
    assert len(world.builder.builds) == 1
    return world.tick()


def hear(kind: str) -> Callable[[ProofWorld], object]:
    """Return what handles an event about the first instance."""

    def act(world: ProofWorld) -> object:
        instance = world.instances[0]
        event: InstanceEvent
        match kind:
            case "notice":
                at = instance.notice.given_at if instance.notice else world.now
                event = InterruptionWarning(instance_id=instance.instance_id, region=REGION, at=at)
            case "rebalance":
                event = RebalanceRecommendation(
                    instance_id=instance.instance_id, region=REGION, at=world.now
                )
            case _:
                event = StateChange(
                    instance_id=instance.instance_id, region=REGION, at=world.now, state=kind
                )
        return react(event, world.ports, holder="event")

    return act


def cancel(world: ProofWorld) -> object:
    world.cancel("job0")
    return None


EPISODES = {
    "launches": Episode(prepare=waiting, act=tick, calls_at_least=6),
    "adopts": Episode(prepare=lambda: unanswered(carried_out=True), act=tick, calls_at_least=6),
    "asks-again": Episode(
        prepare=lambda: unanswered(carried_out=False), act=tick, calls_at_least=6
    ),
    "has-all-to-do": Episode(prepare=with_all_to_do, act=tick, calls_at_least=12),
    "gives-up-an-instance": Episode(prepare=never_up, act=tick, calls_at_least=6),
    "condemns": Episode(prepare=wedged, act=tick, calls_at_least=6),
    "terminates-again": Episode(prepare=condemned, act=tick, calls_at_least=5),
    "ends-the-idle": Episode(prepare=idle_for_ever, act=tick, calls_at_least=5),
    "tidies": Episode(prepare=done_long_ago, act=tick, calls_at_least=4),
    "sees-a-reclaim": Episode(prepare=lambda: reclaimed(NOTICE), act=tick, calls_at_least=5),
    "hears-a-notice": Episode(
        prepare=lambda: reclaimed(NOTICE), act=hear("notice"), calls_at_least=10
    ),
    "hears-of-an-end": Episode(
        prepare=lambda: reclaimed(timedelta(0)), act=hear("terminated"), calls_at_least=10
    ),
    "hears-a-rebalance": Episode(prepare=at_work, act=hear("rebalance"), calls_at_least=3),
    "begins-an-image": Episode(prepare=earned, act=bake, calls_at_least=10),
    "takes-an-image": Episode(prepare=lambda: earned("done"), act=bake, calls_at_least=10),
    "notes-a-failed-image": Episode(prepare=lambda: earned("failed"), act=bake, calls_at_least=10),
    "starts-from-an-image": Episode(prepare=lambda: earned("used"), act=tick, calls_at_least=6),
    "resends-messages": Episode(prepare=grown_old, act=resend_messages, calls_at_least=9),
    "routes": Episode(prepare=sent, act=route, calls_at_least=20),
    "routes-events": Episode(prepare=told, act=route, calls_at_least=15),
    "routes-to-learned-sizes": Episode(prepare=sent_to_learned_sizes, act=route, calls_at_least=20),
    "launches-by-shape": Episode(prepare=routed, act=tick, calls_at_least=10),
    "sees-shapes-at-work": Episode(prepare=typed_at_work, act=tick, calls_at_least=6),
    "removes-queues": Episode(prepare=removing, act=remove_and_route, calls_at_least=20),
    "takes-types-away": Episode(prepare=left_by_types, act=take_types_away, calls_at_least=15),
    "routes-again": Episode(prepare=shrunk, act=route, calls_at_least=8),
    "cancels-a-routed-job": Episode(prepare=typed_at_work, act=cancel, calls_at_least=5),
    "cancels-a-job": Episode(prepare=at_work, act=cancel, calls_at_least=5),
    "cancels-a-split": Episode(prepare=splitting, act=cancel, calls_at_least=8),
}


@pytest.mark.parametrize("name", ["hears-a-notice", "has-all-to-do", "routes"])
def test_a_crash_after_any_call_costs_time_and_nothing_else(name: str) -> None:
    go_through_all(EPISODES[name], Kind.CRASH_AFTER)


@pytest.mark.proof
@pytest.mark.parametrize("kind", FAULTS, ids=lambda kind: kind.replace(" ", "-"))
@pytest.mark.parametrize("name", EPISODES)
def test_a_fault_at_any_call_costs_time_and_nothing_else(name: str, kind: Kind) -> None:
    points = go_through_all(EPISODES[name], kind)
    count_points("control plane", name, kind, points)


def go_through_all(episode: Episode, kind: Kind) -> int:
    """Go through an episode once for every call in it; return how many that are."""
    points = sweep(episode.prepare, lambda world, fault: go_through(world, episode, fault), kind)
    assert points >= episode.calls_at_least
    return points


def go_through(world: ProofWorld, episode: Episode, fault: Fault) -> bool:
    """Go through an episode with a fault, and recover; tell whether there was such a call."""
    chronicle = Chronicle(world)
    chronicle.look()
    world.faults.arm(fault)
    world.control(lambda: episode.act(world))
    was_hit = world.faults.hit is not None
    chronicle.look()
    recover(world, chronicle.look)
    chronicle.close()
    return was_hit
