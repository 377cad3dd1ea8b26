"""A workload that needs no GPU, from the catalogue to what its workers have shown."""

from dataclasses import replace

from spindown.contract.row import throughput_sort_key
from spindown.control.market import refresh
from spindown.domain.learning import Knowledge
from spindown.domain.offer import InstanceRequirements
from spindown.ledger.knowledge import read_knowledge
from tests.builders import a_cpu_type, minutes
from tests.control import REGION, ZONES, ControlWorld, pools

NO_GPU = InstanceRequirements(gpu_count_min=0.0, gpu_count_max=0.0)
SMALL = a_cpu_type("c7i.xlarge", vcpus=4, memory_mib=8_192)


def a_world(requirements: InstanceRequirements = NO_GPU) -> ControlWorld:
    """Return a market of GPUs and of three types without: two cheap ones, and a costly one."""
    world = ControlWorld(requirements=requirements)
    for kind, on_demand, spot in (
        (SMALL, 0.18, 0.07),
        (a_cpu_type("c7a.2xlarge"), 0.41, 0.16),
        (a_cpu_type("r7i.2xlarge", memory_mib=65_536), 0.53, 0.30),
    ):
        world.market.offer(kind, region=REGION, zones=ZONES, on_demand=on_demand, spot=spot)
    return world


def test_a_worker_is_launched_and_known_by_its_vcpus() -> None:
    world = a_world()
    world.send()

    decision = world.tick()

    (worker,) = world.workers()
    assert pools(decision)[0].startswith(worker.instance_type)
    assert worker.instance_type in {"c7i.xlarge", "c7a.2xlarge"}
    assert (worker.gpu_name, worker.gpu_count, worker.slots) == ("", 0.0, 1)
    family = worker.instance_type.partition(".")[0]
    assert worker.processor == (f"{family} vCPU", float(worker.vcpus))
    assert {one.speed_source for one in decision.candidates} == {"benchmark", "estimated"}
    assert not [one for one in decision.candidates if one.offer.startswith("g")]


def test_what_it_showed_decides_the_next_launch() -> None:
    world = a_world()
    # Twenty jobs on each: c7i is far slower than its benchmark says, c7a as fast.
    for name, count, items in (("c7i vCPU", 4.0, 200.0), ("c7a vCPU", 8.0, 8_000.0)):
        world.put(throughput_sort_key(name, count), count=items, hours=20.0, reports=20, lives=20)
    world.send()

    decision = world.tick()

    first = decision.candidates[0]
    assert first.offer.startswith("c7a.2xlarge")
    assert first.speed_source == "measured"
    assert pools(decision)[0].startswith("c7a.2xlarge")


def test_memory_that_none_has_is_said_to_be_what_rules_all_out() -> None:
    world = a_world(replace(NO_GPU, memory_mib_min=100_000))
    world.send()

    decision = world.tick()

    assert decision.requests == ()
    assert {one.constraint for one in decision.rejections} == {"memory_mib_min"}


def test_a_quota_of_standard_types_bounds_a_launch() -> None:
    world = a_world(replace(NO_GPU, instance_types=frozenset({"c7i.xlarge"})))
    for code in ("L-34B43A08", "L-1216C47A"):
        world.market.limit(code, 3.0, region=REGION)
    refresh(world.ports)
    world.send()

    decision = world.tick()

    assert decision.requests == ()
    assert {one.constraint for one in decision.rejections} >= {"quota"}


def test_live_workers_count_as_their_vcpus() -> None:
    world = a_world()
    world.send()
    world.tick()
    world.tick(minutes(1))

    known = read_knowledge({}, slots="per-gpu", workers=world.workers())

    assert known == replace(Knowledge(), alive=frozenset(w.processor for w in world.workers()))
    assert all(name.endswith(" vCPU") for name, _ in known.alive)
