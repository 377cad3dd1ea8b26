"""Sizes are learned each hour from what workers wrote, and applied where the policy says so."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.contract.learned_size import LearnedSizes, decode_sizes, encode_sizes, sizes_key
from spindown.contract.settings import WorkloadSettings
from spindown.contract.usage import UsageEnd, encode_usage, measured_key
from spindown.control.market import load_catalogue, refresh
from spindown.control.rightsizing import learn_sizes, learn_types, ranges_of, read_learned
from spindown.domain.account_pricing import PaidMachines, Pricing
from spindown.domain.offer import CapacityType, Catalogue, InstanceRequirements
from spindown.domain.policy import Dispatch, JobNeeds, JobType, Policy, Rightsize, Rung
from spindown.domain.reason import ReasonCode
from spindown.domain.rightsizing.type_size import (
    MEMORY,
    SeenAttempt,
    SizeInForce,
    SizeTrial,
    TypeHistory,
    TypeSize,
)
from spindown.domain.shape import Shape
from spindown.error import AccessDenied, SpindownError, Unreachable, Unreadable
from spindown.job.manifest_store import load_manifest
from spindown.job.route import read_sized, sizes_in_force
from spindown.memory import PortCall
from spindown.port import SETTINGS_FOR, Outgoing
from tests.builders import AT_ONCE, NOW, a_cpu_type, a_usage_record, minutes
from tests.control import REGION, WORKLOAD, ZONES, ControlWorld

#: More than any machine of the world has for less: sizes are told apart by their steps alone.
SCAN = JobType(name="scan", needs=JobNeeds(memory_gib=16))
POLICY = replace(
    Policy(),
    types=(SCAN,),
    requirements_at_most=JobNeeds(memory_gib=32),
    rightsize=Rightsize.APPLY,
)
SETTINGS = WorkloadSettings(
    name="w",
    queue_url="",
    dlq_url="",
    log_group="",
    regions={},
    requirements=InstanceRequirements(gpu_count_min=0.0),
)


@pytest.fixture
def world() -> ControlWorld:
    return ControlWorld(policy=POLICY)


def measure(world: ControlWorld, jobs: int = 6, *, size: int = 16, **changes: Any) -> None:
    """Let workers of a size write what some jobs used, and an hour go by."""
    for number in range(jobs):
        record = a_usage_record(
            **{
                "job_id": f"j{number}-{world.now:%d%H%M%S}",
                "workload": WORKLOAD,
                "type": "scan",
                "shape": Shape(memory_gib=size).name,
                "started_at": world.now,
                "routed_at": world.now,
                "vcpus": 4.0,
                "memory_gib": 16.0,
                "memory_max": 2.0,
                **changes,
            }
        )
        world.objects.put(measured_key(record, world.now.date()), encode_usage([record]))
    world.clock.advance(minutes(60))


def learned(world: ControlWorld) -> TypeSize:
    return read_learned(WORKLOAD, world.objects).sizes["scan"]


def history_of(world: ControlWorld) -> TypeHistory:
    return read_learned(WORKLOAD, world.objects).histories["scan"]


def shapes_with_jobs(world: ControlWorld) -> list[str]:
    return [name for name in world.view().shapes if world.queue_of(name).bodies()]


def test_a_type_that_uses_less_gets_less_step_by_step(world: ControlWorld) -> None:
    measure(world)
    assert learn_sizes(WORKLOAD, world.ports) == {"scan": [ReasonCode.SIZE_LOWERED.value]}
    assert learned(world).needs == JobNeeds(memory_gib=8)

    world.ask("j", type="scan")
    world.route()
    assert shapes_with_jobs(world) == ["c0m8"]


def test_the_same_records_are_read_once(world: ControlWorld) -> None:
    measure(world)
    for _ in range(3):
        learn_sizes(WORKLOAD, world.ports)
        world.clock.advance(minutes(60))

    history = read_learned(WORKLOAD, world.objects).histories["scan"]
    jobs = sum(sum(peaks.values()) for peaks in history.peaks[MEMORY].hours.values())
    assert jobs == pytest.approx(6, rel=0.01)


def test_a_run_that_cannot_write_loses_nothing(world: ControlWorld) -> None:
    measure(world)

    def fail(call: PortCall, proceed: Any) -> Any:
        if call.method == "put":
            raise Unreachable("no answer")
        return proceed()

    world.interfere = fail
    with pytest.raises(Unreachable):
        learn_sizes(WORKLOAD, world.ports)
    world.interfere = None
    learn_sizes(WORKLOAD, world.ports)

    assert learned(world).needs == JobNeeds(memory_gib=8)


def test_jobs_that_run_out_take_the_size_back(world: ControlWorld) -> None:
    measure(world)
    learn_sizes(WORKLOAD, world.ports)
    measure(world, 2, size=8, end=UsageEnd.OUTGROWN, items=0)
    changed = learn_sizes(WORKLOAD, world.ports)

    assert changed == {"scan": [ReasonCode.SIZE_BACK_FAILURES.value]}
    assert learned(world).needs == JobNeeds()
    world.ask("j", type="scan")
    world.route()
    assert shapes_with_jobs(world) == ["c0m16"]


def test_memory_that_ran_out_raises_nothing_else() -> None:
    """Of host memory and VRAM, both stated, only the one grows that jobs have run out of."""
    needs = JobNeeds(memory_gib=16, gpu_memory_gib=15)
    scan, most = replace(SCAN, needs=needs), JobNeeds(memory_gib=32, gpu_memory_gib=48)
    world = ControlWorld(policy=replace(POLICY, types=(scan,), requirements_at_most=most))
    shape = Shape(memory_gib=16, gpus=1, gpu_memory_gib=15).name
    measure(world, 6, shape=shape, end=UsageEnd.OUTGROWN, items=0)
    learn_sizes(WORKLOAD, world.ports)
    assert learned(world).needs == JobNeeds(memory_gib=32)

    shape = Shape(memory_gib=32, gpus=1, gpu_memory_gib=15).name
    measure(world, 6, shape=shape, end=UsageEnd.OUTGROWN_GPU, items=0, memory_max=None)
    learn_sizes(WORKLOAD, world.ports)
    assert learned(world).needs == JobNeeds(memory_gib=32, gpu_memory_gib=16)


@pytest.mark.parametrize("mode", [Rightsize.APPLY, Rightsize.ADVISE])
def test_dollars_without_a_square_stop_no_learning(mode: Rightsize) -> None:
    scan = JobType(name="scan", needs=JobNeeds(vcpus=16))
    most = JobNeeds(vcpus=32)
    world = ControlWorld(
        policy=replace(POLICY, types=(scan,), requirements_at_most=most, rightsize=mode)
    )
    used: dict[str, Any] = {"shape": Shape(vcpus=16).name, "cpu_mean": 8.0}
    measure(world, vcpus=16.0, **used)
    # Each within its bounds, the square of what they have cost is not.
    measure(world, vcpus=8.0, **used, price_per_hour=1e-6, seconds=1e-160)
    learn_sizes(WORKLOAD, world.ports)

    assert sum(trial.jobs for trial in history_of(world).scaling.values()) > 6.0


@pytest.mark.parametrize(
    "lie",
    [
        {"price_per_hour": 1000.0, "seconds": 1e9},
        {"seconds": 1e15},
        {"cpu_mean": 1e15, "slots": 1024},
        {"vcpus": 1e15, "memory_max": 1e15, "slots": 1024, "items": 10**9},
    ],
)
def test_what_cannot_be_makes_no_object_unreadable(lie: dict[str, Any]) -> None:
    types = (SCAN, JobType(name="other", needs=SCAN.needs))
    world = ControlWorld(policy=replace(POLICY, types=types))
    measure(world)
    measure(world, type="other")
    learn_sizes(WORKLOAD, world.ports)
    before = learned(world)
    measure(world, 20, type="other", **lie)
    learn_sizes(WORKLOAD, world.ports)

    assert learned(world).needs == before.needs != JobNeeds()
    most = (POLICY.max_lifetime + POLICY.lifetime_grace).total_seconds()
    tried = read_learned(WORKLOAD, world.objects).histories["other"].scaling
    assert sum(trial.seconds for trial in tried.values()) <= 27 * most


def test_an_unreadable_object_is_told_and_begun_anew(
    world: ControlWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world.objects.put(sizes_key(WORKLOAD), b"{")
    measure(world)
    learn_sizes(WORKLOAD, world.ports)

    assert learned(world).needs == JobNeeds(memory_gib=8)
    assert [record.message.split(":")[0] for record in caplog.records] == ["sizes_not_read"]


@pytest.mark.parametrize(
    "ended",
    [{"items": 4, "items_failed": 4}, {"items": 0, "end": UsageEnd.FAILED}],
    ids=["every item failed", "the job failed"],
)
def test_jobs_that_failed_shrink_nothing(world: ControlWorld, ended: dict[str, Any]) -> None:
    measure(world, 9, memory_max=0.03, **ended)
    learn_sizes(WORKLOAD, world.ports)

    assert learned(world).needs == JobNeeds()
    assert learned(world).advised == JobNeeds()


def test_shared_machines_are_priced_for_all_their_jobs() -> None:
    """Eight jobs of 2 GiB fit into the small machine, eight of 8 GiB only into the large one."""
    sql = JobType(name="sql", needs=JobNeeds(vcpus=1, memory_gib=2), dispatch=Dispatch.SHARED)
    kinds = {
        "m7a.2xlarge": a_cpu_type("m7a.2xlarge", vcpus=8, memory_mib=32 * 1024),
        "r7i.4xlarge": a_cpu_type("r7i.4xlarge", vcpus=16, memory_mib=128 * 1024),
    }
    catalogue = Catalogue(
        taken_at=NOW,
        instance_types=kinds,
        offerings={},
        on_demand={"r": {"m7a.2xlarge": 0.4, "r7i.4xlarge": 1.0}},
    )

    prices = ranges_of(sql, sql.needs, SETTINGS, replace(POLICY, types=(sql,)), catalogue)[
        MEMORY
    ].prices

    assert (prices[2], prices[4], prices[8], prices[16]) == (0.4, 0.4, 1.0, 1.0)
    assert 32 not in prices


def test_a_job_carries_what_it_was_given(world: ControlWorld) -> None:
    measure(world)
    learn_sizes(WORKLOAD, world.ports)
    world.ask("j", type="scan")
    world.route()
    message = world.queue_of("c0m8").receive(wait=timedelta(0), visibility=minutes(1))

    assert message is not None
    sized = read_sized(message)
    assert sized is not None
    assert sized.needs == JobNeeds(memory_gib=8)
    assert [reason.code for reason in sized.reasons] == [ReasonCode.SIZE_LOWERED]


def test_what_a_sender_says_of_sizes_is_taken_away(world: ControlWorld) -> None:
    body = json.dumps({"job_id": "j", "items": [1], "type": "scan"})
    forged = json.dumps({"of": {"memory_gib": 16}, "needs": {"memory_gib": 32}})
    world.queue.send([Outgoing(body=body, attributes={"sized": forged, "mine": "?"})])
    world.route()

    message = world.queue_of("c0m16").receive(wait=timedelta(0), visibility=minutes(1))
    assert message is not None
    assert not message.attributes.keys() & {"sized", "mine"}


def test_what_a_message_asks_for_itself_is_never_lowered(world: ControlWorld) -> None:
    measure(world)
    learn_sizes(WORKLOAD, world.ports)
    world.ask("j", type="scan", requirements={"memory_gib": 16})
    world.route()

    assert shapes_with_jobs(world) == ["c0m16"]


def test_a_type_that_people_change_has_their_word_at_once(world: ControlWorld) -> None:
    measure(world)
    learn_sizes(WORKLOAD, world.ports)
    world.change_policy(types=(replace(SCAN, needs=JobNeeds(memory_gib=20)),))
    world.ask("j", type="scan")
    world.route()

    assert shapes_with_jobs(world) == ["c0m32"]


@pytest.mark.parametrize("mode", [Rightsize.OFF, Rightsize.ADVISE])
def test_only_apply_changes_what_jobs_get(world: ControlWorld, mode: Rightsize) -> None:
    world.change_policy(rightsize=mode)
    measure(world)
    learn_sizes(WORKLOAD, world.ports)
    world.ask("j", type="scan")
    world.route()

    assert shapes_with_jobs(world) == ["c0m16"]
    sizes = read_learned(WORKLOAD, world.objects).sizes
    assert {name: size.needs for name, size in sizes.items()} == (
        {} if mode is Rightsize.OFF else {"scan": JobNeeds()}
    )


def test_without_types_nothing_is_called() -> None:
    world = ControlWorld()
    measure(world)
    calls: list[str] = []

    def note(call: PortCall, proceed: Any) -> Any:
        calls.append(call.method)
        return proceed()

    world.interfere = note
    assert learn_sizes(WORKLOAD, world.ports) == {}
    assert not {"get", "put", "list"} & set(calls)


def test_archived_objects_and_missing_rights_stop_no_learning(world: ControlWorld) -> None:
    errors: list[SpindownError] = [AccessDenied("GetObject"), Unreadable("InvalidObjectState")]

    def fail(call: PortCall, proceed: Any) -> Any:
        if errors and call.method == "get" and str(call.args[0]).startswith("measured/"):
            raise errors[-1]
        return proceed()

    world.interfere = fail
    while errors:
        measure(world)
        learn_sizes(WORKLOAD, world.ports)
        assert history_of(world)
        errors.pop()
    learn_sizes(WORKLOAD, world.ports)

    assert learned(world).needs == JobNeeds(memory_gib=8)


def test_sizes_that_cannot_be_read_leave_jobs_as_asked(world: ControlWorld) -> None:
    world.objects.put(sizes_key(WORKLOAD), b"{broken")
    world.ask("j", type="scan")

    assert world.route().routed == 1
    assert shapes_with_jobs(world) == ["c0m16"]
    measure(world)
    learn_sizes(WORKLOAD, world.ports)
    assert learned(world).needs == JobNeeds(memory_gib=8)


def test_a_worker_that_lies_gets_no_more_than_may_be_asked_for(world: ControlWorld) -> None:
    for _ in range(6):
        for size in (8, 16, 32, 64, 512):
            lie = {"memory_max": 8000.0, "items": 10**9, "price_per_hour": 900.0}
            measure(world, 20, size=size, end=UsageEnd.OUTGROWN, **lie)
        learn_sizes(WORKLOAD, world.ports)

    needs = learned(world).needs
    assert needs.memory_gib == 32
    world.ask("j", type="scan")
    world.route()
    assert shapes_with_jobs(world) == ["c0m32"]


def test_another_dispatch_has_the_type_s_own_word(world: ControlWorld) -> None:
    """What one job of a pool's machine needed says little of eight that share one."""
    measure(world)
    learn_sizes(WORKLOAD, world.ports)
    world.change_policy(dispatch=Dispatch.SHARED)
    world.ask("j", type="scan")
    world.route()
    assert shapes_with_jobs(world) == ["c0m16s"]

    learn_sizes(WORKLOAD, world.ports)
    assert learned(world).needs == JobNeeds()
    assert history_of(world).peaks[MEMORY].hours == {}


def test_another_number_of_slots_has_the_type_s_own_word(world: ControlWorld) -> None:
    measure(world)
    learn_sizes(WORKLOAD, world.ports)
    settings = world.workload_settings()
    assert sizes_in_force(settings, world.policy, world.ports)["scan"].needs != JobNeeds()
    settings = replace(settings, run=replace(settings.run, slots="4"))
    world.settings.deploy(settings)
    world.clock.advance(SETTINGS_FOR)
    assert sizes_in_force(settings, world.policy, world.ports) == {}

    learn_sizes(WORKLOAD, world.ports)
    assert learned(world).needs == JobNeeds()


def test_jobs_that_state_their_own_size_move_no_other(world: ControlWorld) -> None:
    measure(world, 9, stated="memory_gib vcpus")
    learn_sizes(WORKLOAD, world.ports)

    assert learned(world).needs == learned(world).advised == JobNeeds()


def test_a_type_that_is_no_more_is_forgotten(world: ControlWorld) -> None:
    measure(world, type="other")
    learn_sizes(WORKLOAD, world.ports)

    assert list(read_learned(WORKLOAD, world.objects).sizes) == ["scan"]


def test_what_is_learned_is_read_as_it_was_written(world: ControlWorld) -> None:
    measure(world)
    measure(world, 3, size=8, cpu_mean=2.0)
    learn_sizes(WORKLOAD, world.ports)
    known = read_learned(WORKLOAD, world.objects)

    assert known != LearnedSizes()
    assert decode_sizes(encode_sizes(known)) == known


def test_a_size_is_priced_beside_the_vcpus_in_force() -> None:
    """Eight vCPUs are advised, of which no machine has 32 GiB; two are in force."""
    scan = JobType(name="scan", needs=JobNeeds(vcpus=8, memory_gib=64))
    kinds = {
        "r7i.xlarge": a_cpu_type("r7i.xlarge", vcpus=4, memory_mib=32 * 1024),
        "m7i.4xlarge": a_cpu_type("m7i.4xlarge", vcpus=16, memory_mib=64 * 1024),
    }
    prices = {"r7i.xlarge": 1.0, "m7i.4xlarge": 4.0}
    advised = JobNeeds(vcpus=8, memory_gib=64)
    before = TypeSize(of=scan.needs, slots="per-gpu", needs=JobNeeds(vcpus=2), advised=advised)
    seen = [
        (
            "scan",
            SeenAttempt(
                at=NOW, shape=Shape(vcpus=2, memory_gib=64), vcpus=16.0, memory_gib=20.0, items=1.0
            ),
        )
    ] * 30

    after = learn_types(
        LearnedSizes(sizes={"scan": before}),
        seen,
        SETTINGS,
        replace(POLICY, types=(scan,)),
        Catalogue(taken_at=NOW, instance_types=kinds, offerings={}, on_demand={"r": prices}),
        NOW,
    )

    assert after.sizes["scan"].advised.memory_gib == 32.0


def a_cpu_world(
    needs: JobNeeds, machines: dict[tuple[int, int], float], **policy: Any
) -> ControlWorld:
    """Return a world that sells machines of so many vCPUs and GiB, on demand at a price."""
    types = (replace(SCAN, needs=needs),)
    applied = replace(AT_ONCE, types=types, rightsize=Rightsize.APPLY, **policy)
    no_gpu = InstanceRequirements(gpu_count_min=0.0, gpu_count_max=0.0)
    world = ControlWorld(policy=applied, requirements=no_gpu)
    for (vcpus, gib), price in machines.items():
        kind = a_cpu_type(f"m7i.{vcpus}x{gib}", vcpus=vcpus, memory_mib=gib * 1024)
        world.market.offer(kind, region=REGION, zones=ZONES, on_demand=price, spot=price * 0.4)
    refresh(world.ports)
    return world


def run_out(world: ControlWorld, shape: Shape) -> None:
    """Let jobs of a shape run out of its memory, and the hour's sizes be learned."""
    used: dict[str, Any] = {
        "shape": shape.name,
        "vcpus": float(shape.vcpus or 16),
        "cpu_mean": 10.0,
    }
    measure(world, 80, **used, memory_max=20.0)
    measure(world, 16, **used, memory_max=62.0, end=UsageEnd.OUTGROWN)
    refresh(world.ports)
    learn_sizes(WORKLOAD, world.ports)


#: Each is sold with more of one need, and none with more of both.
CROSSED = {(32, 64): 1.43, (16, 128): 1.06}


@pytest.mark.parametrize("calm_hours", [0, 1])
def test_no_size_is_learned_that_nobody_sells_beside(calm_hours: int) -> None:
    most = JobNeeds(memory_gib=128)
    world = a_cpu_world(JobNeeds(vcpus=32, memory_gib=64), CROSSED, requirements_at_most=most)
    shape = Shape(vcpus=32, memory_gib=64)
    for _ in range(calm_hours):
        measure(world, 40, shape=shape.name, vcpus=32.0, memory_max=40.0, cpu_mean=10.0)
        learn_sizes(WORKLOAD, world.ports)
    run_out(world, shape)
    world.ask("j", type="scan")

    assert world.route().routed == 1
    assert shapes_with_jobs(world) == ["c32m64"]


def test_memory_grows_beside_vcpus_with_which_it_is_sold() -> None:
    most = JobNeeds(memory_gib=128)
    world = a_cpu_world(JobNeeds(vcpus=16, memory_gib=64), CROSSED, requirements_at_most=most)
    run_out(world, Shape(vcpus=16, memory_gib=64))

    assert learned(world).needs == JobNeeds(memory_gib=128)


def put_sizes(world: ControlWorld, needs: JobNeeds) -> None:
    """Let sizes of a type be in force, whatever they were learned from."""
    known = read_learned(WORKLOAD, world.objects)
    size = TypeSize(of=world.policy.types[0].needs, slots="per-gpu", needs=needs)
    world.objects.put(sizes_key(WORKLOAD), encode_sizes(replace(known, sizes={"scan": size})))


def test_a_learned_size_that_nobody_sells_gives_way() -> None:
    """The type states 8 vCPUs, of which 32 are learned; a job has outgrown 64 GiB."""
    most = JobNeeds(memory_gib=128, vcpus=32)
    world = a_cpu_world(JobNeeds(vcpus=8, memory_gib=64), CROSSED, requirements_at_most=most)
    put_sizes(world, JobNeeds(vcpus=32))
    world.ask("j", type="scan", requirements={"memory_gib": 128})
    world.route()
    message = world.queue_of("c8m128").receive(wait=timedelta(0), visibility=minutes(1))

    assert message is not None
    # Its worker, too, goes by what the type states.
    assert read_sized(message) is None


def test_what_is_refused_is_told_as_people_have_asked() -> None:
    most = JobNeeds(memory_gib=256, vcpus=32)
    world = a_cpu_world(JobNeeds(vcpus=8, memory_gib=64), CROSSED, requirements_at_most=most)
    put_sizes(world, JobNeeds(vcpus=32))
    world.ask("j", type="scan", requirements={"memory_gib": 256})
    world.route()

    manifest = load_manifest("j", world.work_objects)
    assert manifest is not None
    assert "c8m256" in manifest.manifest.reason


#: A larger machine, above the ceiling of price also as spot.
DEAR = {(16, 64): 0.8, (32, 256): 2.1}


def test_no_size_is_learned_that_is_above_the_ceiling() -> None:
    most = JobNeeds(memory_gib=256)
    world = a_cpu_world(
        JobNeeds(memory_gib=64), DEAR, requirements_at_most=most, max_price_per_hour=0.5
    )
    run_out(world, Shape(memory_gib=64))
    world.ask("j", type="scan")
    world.run(10)

    assert learned(world).needs == JobNeeds()
    assert [worker.shape for worker in world.workers()] == ["c0m64"]


SPOT_ONLY = (Rung(after=timedelta(0), capacity_types=frozenset({CapacityType.SPOT})),)


def spot_rises(world: ControlWorld) -> None:
    for zone in ZONES:
        world.market.move_spot_price("m7i.32x256", zone, 1.9)


def the_ceiling_falls(world: ControlWorld) -> None:
    world.change_policy(max_price_per_hour=0.5)


@pytest.mark.parametrize("happens", [spot_rises, the_ceiling_falls])
def test_what_is_learned_outlives_an_hour_at_which_it_is_dear(
    happens: Callable[[ControlWorld], None],
) -> None:
    world = a_cpu_world(
        JobNeeds(memory_gib=64),
        DEAR,
        requirements_at_most=JobNeeds(memory_gib=256),
        ladder=SPOT_ONLY,
        max_price_per_hour=1.0,
    )
    run_out(world, Shape(memory_gib=64))
    before = history_of(world).sizes[MEMORY]
    happens(world)
    world.clock.advance(minutes(60))
    learn_sizes(WORKLOAD, world.ports)

    assert learned(world).needs == JobNeeds(memory_gib=256)
    after = history_of(world).sizes[MEMORY]
    assert (after.before, after.not_below) == (before.before, before.not_below) == (64, 256)


def test_a_trial_that_fails_is_taken_back_while_that_is_dear() -> None:
    world = a_cpu_world(
        JobNeeds(memory_gib=64), DEAR, requirements_at_most=JobNeeds(memory_gib=256)
    )
    run_out(world, Shape(memory_gib=64))
    known, catalogue = read_learned(WORKLOAD, world.objects), load_catalogue(world.objects)
    tried = SizeTrial(jobs=10.0, count=10.0, failed=5.0)
    trial = SizeInForce(size=128, before=256, top=256, tried=tried)
    history = known.histories["scan"]
    history = replace(history, sizes={**history.sizes, MEMORY: trial})

    after = learn_types(
        replace(known, histories={"scan": history}),
        [],
        world.workload_settings(),
        world.policy,
        catalogue,
        world.now,
        buyable={"m7i.16x64"},
    )

    assert after.sizes["scan"].needs == JobNeeds(memory_gib=256)


def test_a_size_grows_to_machines_that_are_paid_for() -> None:
    most = JobNeeds(memory_gib=256)
    pricing = Pricing(paid=(PaidMachines(instance_type="m7i.32x256", count=1, region=REGION),))
    world = a_cpu_world(
        JobNeeds(memory_gib=64),
        DEAR,
        requirements_at_most=most,
        ladder=SPOT_ONLY,
        max_price_per_hour=0.5,
    )
    world.settings.deploy(replace(world.workload_settings(), pricing=pricing))
    world.clock.advance(SETTINGS_FOR)
    run_out(world, Shape(memory_gib=64))

    assert learned(world).needs == JobNeeds(memory_gib=256)


def test_a_size_that_people_state_stays_above_the_ceiling() -> None:
    world = a_cpu_world(JobNeeds(memory_gib=256), DEAR, max_price_per_hour=0.5)
    learn_sizes(WORKLOAD, world.ports)

    assert learned(world).needs == JobNeeds()


SCAN_64 = JobNeeds(memory_gib=64)
SPOT_QUOTA, ON_DEMAND_QUOTA = "L-34B43A08", "L-1216C47A"
#: The larger ones have more vCPUs than the quotas of the tests hold.
SIZES = {(16, 64): 0.8, (32, 128): 1.6, (64, 256): 3.2}


def limit(world: ControlWorld, spot: float, on_demand: float, *, region: str = REGION) -> None:
    for code, vcpus in ((SPOT_QUOTA, spot), (ON_DEMAND_QUOTA, on_demand)):
        world.market.limit(code, vcpus, region=region)
    refresh(world.ports)


def run_out_each_hour(world: ControlWorld, hours: int = 3) -> None:
    """Let a fifth of the jobs run out of whatever memory their size has."""
    for _ in range(hours):
        size = learned(world).needs.memory_gib or SCAN_64.memory_gib
        run_out(world, Shape(memory_gib=int(size or 0)))


@pytest.mark.parametrize(
    ("spot", "on_demand", "ladder", "most"),
    [
        (16.0, 16.0, (), None),
        (32.0, 32.0, (), 128),
        # One quota is enough, if the policy ever buys so.
        (16.0, 32.0, (), 128),
        (16.0, 32.0, SPOT_ONLY, None),
    ],
)
def test_memory_grows_no_further_than_a_quota_holds(
    spot: float, on_demand: float, ladder: tuple[Rung, ...], most: float | None
) -> None:
    world = a_cpu_world(
        SCAN_64, SIZES, requirements_at_most=JobNeeds(memory_gib=512), ladder=ladder
    )
    limit(world, spot, on_demand)
    learn_sizes(WORKLOAD, world.ports)
    run_out_each_hour(world)
    world.ask("j", type="scan")
    world.run(10)

    assert learned(world).needs.memory_gib == most
    assert world.workers()


def test_a_quota_that_nobody_knows_bounds_no_size() -> None:
    world = a_cpu_world(SCAN_64, SIZES, requirements_at_most=JobNeeds(memory_gib=512))
    world.market.listings.quotas.clear()
    refresh(world.ports)
    learn_sizes(WORKLOAD, world.ports)
    run_out_each_hour(world)

    assert learned(world).needs == JobNeeds(memory_gib=256)


def put_in_force(world: ControlWorld, needs: JobNeeds) -> None:
    """Let a history say that sizes are in force; what is None stays as it is."""
    known = read_learned(WORKLOAD, world.objects)
    history = known.histories["scan"]
    sizes = {
        need: SizeInForce(size=int(getattr(needs, need) or one.size))
        for need, one in history.sizes.items()
    }
    known = replace(known, histories={"scan": replace(history, sizes=sizes)})
    world.objects.put(sizes_key(WORKLOAD), encode_sizes(known))


@pytest.mark.parametrize("needs", [JobNeeds(memory_gib=256), JobNeeds(vcpus=64)])
def test_a_size_beyond_a_lowered_quota_goes_back(needs: JobNeeds) -> None:
    """No job of it runs any more, so no record would ever bring it back."""
    stated = replace(SCAN_64, vcpus=16)
    most = JobNeeds(memory_gib=256, vcpus=64)
    world = a_cpu_world(stated, SIZES, requirements_at_most=most)
    learn_sizes(WORKLOAD, world.ports)
    put_in_force(world, needs)
    limit(world, 32.0, 32.0)
    learn_sizes(WORKLOAD, world.ports)
    world.ask("j", type="scan")
    world.run(10)

    halved = JobNeeds(memory_gib=128) if needs.memory_gib else JobNeeds(vcpus=32)
    assert learned(world).needs == halved
    assert world.workers()


def test_sizes_that_a_quota_holds_alone_fit_together() -> None:
    """Each of both is sold beside what the type states; no machine has both."""
    kinds = {(8, 64): 0.8, (32, 64): 1.43, (16, 128): 1.06, (64, 256): 3.2}
    most = JobNeeds(memory_gib=256, vcpus=64)
    world = a_cpu_world(JobNeeds(vcpus=8, memory_gib=64), kinds, requirements_at_most=most)
    learn_sizes(WORKLOAD, world.ports)
    put_in_force(world, JobNeeds(memory_gib=128, vcpus=32))
    limit(world, 32.0, 32.0)
    learn_sizes(WORKLOAD, world.ports)

    assert learned(world).needs == JobNeeds(memory_gib=128, vcpus=16)
