"""A sender makes up as many sizes of machines as there may be; jobs of others go where they did."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from spindown.contract.job.manifest import JobState, Manifest
from spindown.contract.job.message import body_digest, parse_job
from spindown.control.market import refresh, types_on_sale
from spindown.domain.out_of_memory import larger_needs
from spindown.domain.policy import JobNeeds, JobType, Policy
from spindown.domain.shape import (
    DEARER_AT_MOST,
    SCALES,
    Shape,
    parse_shape,
    price_of,
    shape_of,
)
from spindown.job.manifest_store import save_manifest
from spindown.job.route import SHAPES_AT_MOST, MessageRouter
from spindown.job.shape_queue import remove_unused
from tests.builders import a_type, minutes
from tests.control import REGION, WORKLOAD, ZONES, ControlWorld

LARGE = JobType(name="large", needs=JobNeeds(memory_gib=250, vcpus=16))
TYPES = (JobType(name="small", needs=JobNeeds(memory_gib=4)), LARGE)
POLICY = replace(Policy(), types=TYPES, requirements_at_most=JobNeeds(memory_gib=500, vcpus=64))


@pytest.fixture
def world() -> ControlWorld:
    return ControlWorld(policy=POLICY)


@pytest.fixture
def market(world: ControlWorld) -> ControlWorld:
    """Sell machines of each ratio of memory to vCPUs."""
    sizes = [(n, ratio * n) for n in (2, 4, 8, 16, 32, 48, 64) for ratio in (2, 4, 8)]
    sell(world, {f"m{gib}.{n}": (n, gib, n + gib / 16) for n, gib in sizes})
    return world


KINDS = {"x2.few": (4, 64, 9.0), "c7.many": (16, 16, 1.0), "m7.huge": (64, 512, 20.0)}


def sell(world: ControlWorld, kinds: Mapping[str, tuple[int, int, float]] = KINDS) -> None:
    """Sell types with so many vCPUs and GiB, at so many dollars."""
    for name, (vcpus, gib, price) in kinds.items():
        kind = a_type(name, vcpus=vcpus, memory_mib=gib * 1024)
        world.market.offer(kind, region=REGION, zones=ZONES, on_demand=price, spot=price / 2)
    refresh(world.ports)


def make_up(world: ControlWorld, **beside: str) -> None:
    """Ask for more sizes than there are queues for, the largest first."""
    sizes = [
        (vcpus, memory)
        for vcpus in reversed(SCALES["vcpus"][1:9])
        for memory in reversed(SCALES["memory_gib"][1:14])
    ]
    for vcpus, memory in sizes:
        asked = {"vcpus": vcpus, "memory_gib": memory}
        world.ask(f"evil-{vcpus}-{memory}", requirements=asked, **beside)
    route_all(world)


def route_all(world: ControlWorld) -> None:
    while world.queue.backlog().visible:
        world.route()


def where(world: ControlWorld) -> dict[str, str]:
    """Return honest job -> shape of the queue where it is."""
    bodies = [
        (name, body) for name in world.view().shapes for body in world.queue_of(name).bodies()
    ]
    placed = {parse_job(body).job_id or "": name for name, body in bodies}
    return {job_id: name for job_id, name in placed.items() if not job_id.startswith("evil")}


@pytest.mark.parametrize("beside", [{}, {"type": "small"}, {"type": "large"}])
def test_what_ran_out_of_memory_gets_a_machine_at_its_price(
    market: ControlWorld, beside: dict[str, str]
) -> None:
    make_up(market, **beside)
    asked = {"": Shape(memory_gib=16)}
    for name, shape, gib in (("small", "c0m4", 3.8), ("large", "c16m256", 250.0)):
        larger = larger_needs(name, None, shape=shape, memory_gib=gib, policy=POLICY)
        assert larger is not None
        market.ask(f"grown-{name}", type=name, requirements={"memory_gib": larger.memory_gib})
        asked[name] = shape_of(replace(larger, vcpus=16 if name == "large" else None))
    market.ask("grown-", requirements={"memory_gib": 12})
    market.ask("plain")
    route_all(market)

    found = where(market)
    assert found.pop("plain") == "c0m0"
    for name, least in asked.items():
        given = parse_shape(found[f"grown-{name}"])
        assert given is not None
        assert given.covers(least)
        assert dollars(market, given) == dollars(market, least)


def dollars(world: ControlWorld, shape: Shape) -> float:
    """Return what the cheapest machine of a shape costs an hour."""
    sold = types_on_sale(world.workload_settings(), world.ports, world.now)
    return price_of(shape, world.requirements, 1, sold)


TRAIN = tuple(
    JobType(name=f"train-{n}", needs=JobNeeds(vcpus=n, memory_gib=16, gpu_memory_gib=15))
    for n in (4, 8, 16)
)


def ask_for_both(world: ControlWorld, *, run_out: bool) -> int:
    """Ask for every pair of memory and VRAM; return how many, as of jobs that ran out or not."""
    count = 0
    for kind in TRAIN:
        for memory in (gib for gib in SCALES["memory_gib"] if 16 < gib <= 256):
            for vram in (gib for gib in SCALES["gpu_memory_gib"] if 15 < gib <= 80):
                name = f"{kind.name}-{memory}-{vram}"
                asked = {"memory_gib": memory, "gpu_memory_gib": vram}
                world.ask(name, type=kind.name, requirements=asked)
                count += 1
                if run_out:
                    ran_out(world, name)
    route_all(world)
    return count


def ran_out(world: ControlWorld, job_id: str) -> None:
    """Let a job that was just asked for have run out of memory, as its worker says."""
    digest = body_digest(parse_job(world.queue.bodies()[-1]))
    known = Manifest(job_id=job_id, epoch=1, owner="i-1/0", state=JobState.RUNNING)
    manifest = replace(known, released=True, body_digest=digest, ran_out_gib=16.0)
    save_manifest(manifest, None, world.work_ports())


@pytest.mark.parametrize("run_out", [False, True])
def test_pairs_of_memories_open_no_queue_each(*, run_out: bool) -> None:
    ceiling = JobNeeds(memory_gib=256, gpu_memory_gib=80)
    world = ControlWorld(policy=replace(POLICY, types=TRAIN, requirements_at_most=ceiling))
    asked = ask_for_both(world, run_out=run_out)

    assert len(world.view().shapes) <= SHAPES_AT_MOST + len(TRAIN) < asked
    assert world.dead_letters.bodies() == []


def test_one_who_names_every_type_leaves_each_a_queue(world: ControlWorld) -> None:
    """So small are the sizes that are made up that none takes an honest job."""
    sell(world)
    x86 = {"architectures": ["x86_64"]}
    for beside, vcpus in (({}, (1, 2)), ({"type": "small"}, (4, 8)), ({"type": "large"}, (1, 2))):
        for count in vcpus:
            for gib in SCALES["memory_gib"][1:9]:
                asked = {"vcpus": count, "memory_gib": gib, **(x86 if count == 2 else {})}
                name = f"evil-{beside.get('type', '')}-{count}-{gib}"
                world.ask(name, requirements=asked, **beside)
    route_all(world)
    world.ask("asia", type="large", requirements={"vcpus": 32, "memory_gib": 400})
    world.ask("few", type="small", requirements={"vcpus": 16})
    world.ask("none", requirements={"vcpus": 48})
    route_all(world)

    assert where(world) == {"asia": "c64m512", "few": "c16m16", "none": "c64m512"}
    assert world.dead_letters.bodies() == []


def test_a_size_that_nobody_sells_takes_no_job() -> None:
    fit = JobType(name="fit", needs=JobNeeds(vcpus=64, memory_gib=96))
    most = JobNeeds(memory_gib=512, vcpus=64)
    world = ControlWorld(policy=replace(POLICY, types=(fit,), requirements_at_most=most))
    sell(world, {"c7.many": (64, 128, 2.0), "x2.few": (8, 512, 9.0)})
    make_up(world)
    world.ask("honest", requirements={"vcpus": 7, "memory_gib": 130, "architectures": ["x86_64"]})
    route_all(world)

    # Not the queue of 64 vCPUs and 256 GiB, which no machine has.
    assert where(world) == {"honest": "c8m512x"}


def test_sizes_beyond_the_share_open_few_queues(market: ControlWorld) -> None:
    market.change_policy(max_price_per_hour=200.0)
    make_up(market, type="small")

    shapes = market.view().shapes
    # Beyond the share there are as many as cover all 21 machines on sale, each at twice its price.
    assert len(shapes) <= SHAPES_AT_MOST // 3 + 7
    asked = {job_id: parse_shape(name) for name, job_id in evil(market)}
    for job_id, given in asked.items():
        _, vcpus, memory = job_id.split("-")
        least = Shape(vcpus=int(vcpus), memory_gib=int(memory))
        assert given is not None
        assert given.covers(least)
        assert dollars(market, given) <= DEARER_AT_MOST * dollars(market, least)
    assert market.dead_letters.bodies() == []


def evil(world: ControlWorld) -> list[tuple[str, str]]:
    """Return shape of a queue and job that waits there, of those that were made up."""
    return [
        (name, parse_job(body).job_id or "")
        for name in world.view().shapes
        for body in world.queue_of(name).bodies()
    ]


@pytest.mark.parametrize(
    ("most", "quota", "paid"),
    [(2.0, None, 0.39), (0.4, None, 0.2), (2.0, 4.0, 0.2)],
    ids=["in reach", "above the ceiling of price", "above the quota"],
)
def test_no_job_waits_for_a_dearer_machine_out_of_reach(
    most: float, quota: float | None, paid: float
) -> None:
    world = ControlWorld(policy=replace(POLICY, max_price_per_hour=most))
    for code in ("L-1216C47A", "L-34B43A08") if quota else ():
        world.market.limit(code, quota or 0.0, region=REGION)
    sell(world, {"m7.small": (4, 16, 0.2), "m7.large": (8, 32, 0.39)})
    # A share of the sizes for jobs without a type.
    for architectures in ({}, {"architectures": ["x86_64"]}):
        for vcpus, gib in (*((8, 2**n) for n in range(6)), (1, 32), (2, 32)):
            asked = {"vcpus": vcpus, "memory_gib": gib, **architectures}
            world.ask(f"evil-{vcpus}-{gib}-{len(architectures)}", requirements=asked)
    route_all(world)
    world.ask("honest", requirements={"vcpus": 3, "memory_gib": 11})
    route_all(world)

    given = parse_shape(where(world)["honest"])
    assert given is not None
    assert dollars(world, given) == paid


def test_sizes_of_one_type_take_no_room_of_another_s(world: ControlWorld) -> None:
    for flood in ({}, {"type": "large"}):
        make_up(world, **flood)
    share = SHAPES_AT_MOST // 3
    for number in range(share):
        world.ask(f"j{number}", type="small", requirements={"vcpus": 1 + number, "disk_gib": 1})
    world.ask("own", type="small", requirements={"vcpus": 3})
    route_all(world)

    assert where(world)["own"] == "c4m4"


def test_what_has_no_queue_goes_to_the_cheapest_that_covers(world: ControlWorld) -> None:
    sell(world, {**KINDS, "c7.many": (16, 16, 1.2)})
    for vcpus, gib in ((4, 64), (16, 16)):
        world.ask(f"first-{vcpus}", requirements={"vcpus": vcpus, "memory_gib": gib})
    route_all(world)
    make_up(world)
    world.ask("cheap", requirements={"vcpus": 3, "memory_gib": 7})
    route_all(world)

    # A g4dn.xlarge costs less than half of what the queue for 16 vCPUs takes, and that for 64 GiB
    # seventeen times.
    assert where(world)["cheap"] == "c4m16"


def test_sizes_beyond_the_room_cost_no_more_reads(world: ControlWorld) -> None:
    make_up(world)
    calls = []
    for many in (10, 90):
        for number in range(many):
            asked = {"memory_gib": SCALES["memory_gib"][1 + number % 10], "vcpus": number % 60}
            world.ask(f"evil-{many}-{number}", requirements=asked)
        world.calls.clear()
        route_all(world)
        calls.append(world.calls["table.query"])

    assert calls[0] == calls[1]


def test_what_another_type_opens_takes_the_rest_at_once(world: ControlWorld) -> None:
    make_up(world)
    router = MessageRouter(
        world.workload_settings(), POLICY, world.work_ports(), world.ports.queue, tags={}
    )
    until = world.clock.now() + minutes(1)
    for job_id, vcpus, beside in (
        ("none", 3, {}),
        ("opens", 4, {"type": "small"}),
        ("takes", 3, {}),
    ):
        asked = {"vcpus": vcpus, "architectures": ["x86_64"]}
        world.ask(job_id, requirements=asked, **beside)
        router.run(until)

    assert where(world) == {"none": "c64m0x", "opens": "c4m4x", "takes": "c4m4x"}


def test_made_up_queues_that_are_empty_make_room(world: ControlWorld) -> None:
    make_up(world)
    world.ask("plain")
    route_all(world)
    for name in world.view().shapes:
        queue = world.queue_of(name)
        while message := queue.receive(wait=timedelta(0), visibility=minutes(1)):
            queue.delete(message.receipt_handle)
    world.tick()
    world.clock.advance(timedelta(days=2))
    for _ in range(3):
        remove_unused(WORKLOAD, world.ports)
        world.clock.advance(minutes(60))

    assert "c0m0" in world.view().shapes
    assert len(world.view().shapes) < SHAPES_AT_MOST // 4
