"""A deployment whose workload has types: a small one, and one that only a larger machine does."""

from dataclasses import replace
from typing import Any

from spindown.contract.learned_size import LearnedSizes, encode_sizes, sizes_key
from spindown.domain.policy import JobNeeds, JobType, Rightsize
from spindown.domain.rightsizing.type_size import TypeSize
from tests.builders import a_type
from tests.control import PRICES, REGION, WORKLOAD, ZONES
from tests.proof.world import MINUTE, POLICY, ProofWorld

LARGE: dict[str, Any] = {"type": "large"}
SMALL = "c0m8"
_TYPES = (
    JobType(name="small", needs=JobNeeds(memory_gib=8)),
    JobType(name="large", needs=JobNeeds(memory_gib=48)),
)
_MOST = JobNeeds(memory_gib=64)


def a_typed_world(**policy: Any) -> ProofWorld:
    """Return a deployment in which nothing has happened yet."""
    types = {"types": _TYPES, "requirements_at_most": _MOST, **policy}
    world = ProofWorld(policy=replace(POLICY, **types), budget=1000.0)
    kind = a_type("g4dn.2xlarge", memory_mib=64 * 1024)
    on_demand, spot = PRICES["g5.xlarge"]
    world.market.offer(kind, region=REGION, zones=ZONES, on_demand=on_demand, spot=spot)
    return world


def sent() -> ProofWorld:
    """Return a world in which jobs of two types and of none wait to be routed."""
    world = a_typed_world()
    world.submit(3, type="small")
    world.submit(2, **LARGE)
    world.submit(2, stored=True)
    return world


def told() -> ProofWorld:
    """Return a world in which S3's events of two objects wait to be routed, one of them twice."""
    world = a_typed_world()
    world.send_again(world.drop("in/a.png"))
    world.drop("in/b.png")
    return world


def sent_to_learned_sizes() -> ProofWorld:
    """Return the same where jobs of the large type have been learned to be small."""
    world = sent()
    world.change_policy(rightsize=Rightsize.APPLY)
    size = TypeSize(of=_TYPES[1].needs, slots="per-gpu", needs=JobNeeds(memory_gib=8))
    learned = encode_sizes(LearnedSizes(sizes={"large": size}))
    world.objects.put(sizes_key(WORKLOAD), learned)
    return world


def routed() -> ProofWorld:
    """Return the same after a tick that has routed them."""
    world = sent()
    world.tick()
    assert not world.queue.bodies()
    return world


def left_by_types() -> ProofWorld:
    """Return a world without types, in which routed jobs of no type wait."""
    world = a_typed_world()
    world.submit(3)
    world.submit(2, stored=True)
    world.tick()
    assert not world.queue.bodies()
    world.change_policy(types=(), requirements_at_most=JobNeeds())
    world.tick()
    return world


def shrunk() -> ProofWorld:
    """Return a world in which routed jobs wait for a shape that none comes to any more."""
    world = routed()
    small, large = _TYPES
    world.change_policy(
        types=(small, replace(large, needs=small.needs)), requirements_at_most=JobNeeds()
    )
    return world


def typed_at_work() -> ProofWorld:
    """Return the same with workers of both shapes that have jobs in hand."""
    world = routed()
    for _ in range(4):
        world.tick(MINUTE)
        for instance_id in world.bootable:
            world.boot(instance_id)
        for process in world.live:
            if process.is_free:
                process.step(0)
                process.step(0)
            process.beat()
    assert len({process.shape for process in world.live}) > 1
    return world


def grow_small(world: ProofWorld) -> None:
    """Let the small type need what only the larger machine has."""
    world.change_policy(types=(replace(_TYPES[0], needs=JobNeeds(memory_gib=48)), _TYPES[1]))
