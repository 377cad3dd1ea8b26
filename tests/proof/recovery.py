"""The end of a story: what still works goes on, until all is done and nothing runs."""

from collections.abc import Callable
from datetime import timedelta

from spindown.control.market import refresh
from spindown.job.shape_queue import remove_unused
from tests.proof.world import MINUTE, ProofWorld

#: The dead-man timer of an instance (net 2), which fires when nothing else has.
DEAD_MAN = timedelta(hours=2)
#: What recovery may take: put-backs, breakers, quarantines and lifetimes all end before.
RECOVERY = timedelta(hours=16)
#: Finished rows move to the history within this.
_TIDY = timedelta(minutes=20)
_HOUR = timedelta(hours=1)


def recover(world: ProofWorld, watch: Callable[[], None] = lambda: None) -> None:
    """Let everything that still works go on until all is done and nothing runs.

    Processes on instances that are gone die; those that died before stay dead, so that
    their instances are left to the nets.
    """
    world.faults.arm(None)
    world.dry_up_all(None)
    give_up_at = world.now + RECOVERY
    while not _is_at_rest(world):
        assert world.now < give_up_at, _unrest(world)
        go_on(world)
        watch()
    for pause in (_TIDY, MINUTE, MINUTE):
        world.tick(pause)


def go_on(world: ProofWorld) -> None:
    """Let one minute pass in which everybody does what is theirs."""
    world.clock.advance(MINUTE)
    if world.now - world.refreshed_at >= _HOUR:
        world.refreshed_at = world.now
        refresh(world.ports)
        remove_unused(world.workload, world.ports)
    ended = {i.instance_id for i in world.instances} - {i.instance_id for i in world.running}
    for process in world.live:
        if process.instance_id in ended:
            process.die()
    world.tick()
    for instance_id in world.bootable:
        if instance_id not in world.processes:
            world.boot(instance_id)
    for process in world.live:
        process.beat()
        process.look()
        process.work()
        process.retire()
    for found in world.processes.values():
        died_at = found[-1].died_at
        if died_at is not None and world.now - died_at > DEAD_MAN:
            world.power_off(found[-1].instance_id)


def _is_at_rest(world: ProofWorld) -> bool:
    view = world.view()
    live = [w for w in view.workers.values() if w.ended_at is None]
    # One without an answer may still turn out to have given an instance, that has ended since.
    open_launches = [x for x in view.launches.values() if x.is_open]
    return not (world.bodies() or world.running or live or view.leases or open_launches)


def _unrest(world: ProofWorld) -> str:
    view = world.view()
    return (
        f"still there after {RECOVERY}: messages {world.bodies()}, instances"
        f" {[(i.instance_id, i.launched_at) for i in world.running]}, leases {view.leases},"
        f" workers {list(view.workers.values())}, breaker {view.breaker},"
        f" decision {view.decision}"
    )
