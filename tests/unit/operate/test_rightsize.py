"""`rightsize` reads what jobs have used and names the machines that would be enough."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.contract.usage import OTHER_TYPES, encode_usage, measured_key
from spindown.control import market
from spindown.control.rightsizing import learn_sizes
from spindown.domain.offer import HOURS_PER_MONTH, InstanceRequirements
from spindown.domain.policy import Dispatch, JobNeeds, JobType, Policy, Rightsize
from spindown.domain.reason import ReasonCode
from spindown.domain.rightsizing.workload_size import RequirementKey
from spindown.operate.rightsize import needs_beside_others, rightsize
from spindown.operate.why import explain
from spindown.reason_text import say
from tests.builders import NOW, a_type, a_usage_record
from tests.control import REGION, WORKLOAD, ZONES, ControlWorld
from tests.reading import only_reading

#: What a job of a minute left behind that used a fifth of an L4.
USED = {
    "instance_type": "g6.xlarge",
    "workload": WORKLOAD,
    "vcpus": 4.0,
    "memory_gib": 16.0,
    "vram_gib": 22.4,
    "cpu_mean": 0.4,
    "cpu_max": 2.0,
    "memory_mean": 1.6,
    "memory_max": 3.2,
    "gpu_mean": 80.0,
    "gpu_max": 100.0,
    "vram_mean": 2.24,
    "vram_max": 4.48,
}


def keep(world: ControlWorld, **changes: Any) -> None:
    record = a_usage_record(**{**USED, **changes})
    world.objects.put(measured_key(record, record.started_at.date()), encode_usage([record]))


def asking_for_much(**changes: Any) -> ControlWorld:
    """Return a world in which only the dearer GPUs are allowed."""
    return ControlWorld(requirements=InstanceRequirements(gpu_memory_mib_min=20 * 1024, **changes))


def test_finds_the_cheaper_machine_that_requirements_rule_out() -> None:
    world = asking_for_much()
    keep(world)

    found = rightsize(WORKLOAD, only_reading(world.ports), days=14)

    assert found.now is not None
    assert found.then is not None
    assert found.now.offer.instance_type.name == "g6.xlarge"
    assert found.then.offer.instance_type.name == "g4dn.xlarge"
    assert found.saving == pytest.approx(1 - found.then.cost_per_item / found.now.cost_per_item)
    assert found.saving > 0
    assert found.advice is not None
    assert {one.key: one.advised for one in found.advice.extents}[RequirementKey.VRAM] == 6


def test_counts_jobs_time_and_dollars_of_the_days_asked_for() -> None:
    world = asking_for_much()
    for job, hours in (
        ("a", 0),
        ("b", 14 * 24 - 1),
        ("earlier that day", 14 * 24 + 1),
        ("old", 480),
    ):
        keep(world, job_id=job, started_at=NOW - timedelta(hours=hours))

    found = rightsize(WORKLOAD, world.ports, days=14)

    assert (found.jobs, found.seconds, found.types) == (2, 120.0, ("g6.xlarge",))
    assert found.dollars == pytest.approx(2 * 0.5 / 60)


def test_without_a_job_nothing_is_said_of_machines() -> None:
    found = rightsize(WORKLOAD, asking_for_much().ports, days=14)

    assert (found.jobs, found.advice, found.now, found.then) == (0, None, None, None)


def test_one_object_that_cannot_be_read_hides_no_other() -> None:
    world = asking_for_much()
    keep(world)
    world.objects.put(f"measured/{WORKLOAD}/{NOW:%Y-%m-%d}/a.jsonl", b"{broken")

    assert rightsize(WORKLOAD, world.ports, days=14).jobs == 1


def test_what_ran_on_a_type_sold_no_more_counts() -> None:
    world = asking_for_much()
    keep(world, instance_type="p2.xlarge")

    found = rightsize(WORKLOAD, world.ports, days=14)

    assert found.advice is not None
    assert found.advice.vram_share_max == pytest.approx(20.0)


@pytest.mark.parametrize("share", [None, 0.0])
def test_a_share_that_is_not_told_is_no_fault(share: float | None) -> None:
    world = asking_for_much()
    keep(world, vram_gib=share, memory_gib=share or 0.0)

    found = rightsize(WORKLOAD, world.ports, days=14)

    assert found.advice is not None
    assert found.advice.vram_share_max is None


def test_requirements_that_fit_save_nothing() -> None:
    world = ControlWorld()
    keep(world)

    found = rightsize(WORKLOAD, world.ports, days=14)

    assert found.saving == 0.0
    assert found.now == found.then


def a_typed_world(**policy: Any) -> ControlWorld:
    types = (JobType(name="scan", needs=JobNeeds(memory_gib=32)), JobType(name="idle"))
    world = ControlWorld(policy=replace(Policy(), types=types, **policy))
    large = a_type("g4dn.2xlarge", memory_mib=32 * 1024)
    world.market.offer(large, region=REGION, zones=ZONES, on_demand=1.5, spot=0.5)
    market.refresh(world.ports)
    for number in range(6):
        keep(world, type="scan", job_id=f"j{number}", shape="c0m32")
    world.clock.advance(timedelta(hours=1))
    learn_sizes(WORKLOAD, world.ports)
    return world


def test_types_that_workers_make_up_cost_no_reads() -> None:
    def ask(made_up: int) -> tuple[Counter[str], list[tuple[str, int]]]:
        world = a_typed_world()
        for number in range(made_up):
            keep(world, type=f"x{number:02}", job_id=f"x{number}")
        before = world.calls.copy()
        found = rightsize(WORKLOAD, world.ports, days=14)
        calls = world.calls - before
        # Each job is an object.
        calls["objects.get"] -= made_up
        others = [one for one in found.sizings if not one.is_declared]
        assert not any(one.dispatches for one in others)
        return calls, [(one.name, one.jobs) for one in others]

    (few, shown), (many, told) = ask(1), ask(25)

    assert shown == [("x00", 1)]
    assert told == [*((f"x{number:02}", 1) for number in range(20)), (OTHER_TYPES, 5)]
    assert many == few


def test_tells_each_type_asked_used_and_advised() -> None:
    scan, idle = rightsize(WORKLOAD, only_reading(a_typed_world().ports), days=14).sizings

    assert (scan.name, scan.jobs, scan.asked) == ("scan", 6, JobNeeds(memory_gib=32))
    assert (scan.used.memory_gib, scan.cores) == (3.2, 0.4)
    assert (scan.given, scan.reasons) == (scan.asked, ())
    assert scan.advised.memory_gib is not None
    assert scan.advised.memory_gib < 32
    assert scan.dollars == pytest.approx(6 * 0.5 / 60 * HOURS_PER_MONTH / 24)
    assert scan.dollars_asked == pytest.approx(scan.dollars)
    assert scan.dollars_advised is not None
    assert scan.dollars_advised < scan.dollars
    assert (idle.jobs, idle.cores, idle.dollars) == (0, None, 0.0)
    # Six jobs at once: no machine has the memory of eight, and those of a pool are used again.
    assert [each.dispatch for each in scan.dispatches] == [Dispatch.POOL, Dispatch.DEDICATED]
    assert (scan.dispatch, idle.dispatches) == (Dispatch.POOL, ())


CPU_JOB = {"gpu_count": 0.0, "cpu_p95": 2.4, "memory_max": 3.0}
GPU_JOB = {**CPU_JOB, "gpu_count": 1.0, "gpu_mean": 10.0, "vram_max": 5.0}


@pytest.mark.parametrize(
    ("used", "given", "needs"),
    [
        (CPU_JOB, JobNeeds(), JobNeeds(vcpus=3, memory_gib=3.0)),
        (CPU_JOB, JobNeeds(vcpus=1, memory_gib=8.0), JobNeeds(vcpus=1, memory_gib=8.0)),
        ({**CPU_JOB, "cpu_p95": None}, JobNeeds(), None),
        ({**CPU_JOB, "memory_max": None}, JobNeeds(vcpus=1), None),
        (GPU_JOB, JobNeeds(), JobNeeds(vcpus=3, memory_gib=3.0, gpus=1, gpu_memory_gib=5.0)),
        ({**GPU_JOB, "vram_max": 0.0}, JobNeeds(), JobNeeds(vcpus=3, memory_gib=3.0)),
        ({**GPU_JOB, "vram_max": None}, JobNeeds(), None),
        ({**GPU_JOB, "gpu_mean": 97.0}, JobNeeds(), None),
    ],
)
def test_side_by_side_a_job_needs_what_was_seen(
    used: dict[str, Any], given: JobNeeds, needs: JobNeeds | None
) -> None:
    assert needs_beside_others([a_usage_record(**used)], given, 8) == needs


def test_a_size_in_force_is_given_with_its_reason() -> None:
    world = a_typed_world(rightsize=Rightsize.APPLY)
    scan, _ = rightsize(WORKLOAD, world.ports, days=14).sizings

    assert (scan.given.memory_gib or 0) < 32
    assert [reason.code for reason in scan.reasons] == [ReasonCode.SIZE_LOWERED]
    assert explain(WORKLOAD, world.ports, last=1).sizes == {"scan": scan.reasons}
    assert (scan.dollars_asked or 0) > scan.dollars


def test_too_few_jobs_of_a_type_get_no_advice() -> None:
    world = a_typed_world()
    keep(world, type="idle", shape="c0m32")
    learn_sizes(WORKLOAD, world.ports)

    scan, idle = rightsize(WORKLOAD, world.ports, days=14).sizings

    assert scan.advised != JobNeeds()
    assert (idle.jobs, idle.advised, idle.dollars_advised) == (1, JobNeeds(), None)


def test_with_types_nothing_is_said_of_the_workload_as_a_whole() -> None:
    found = rightsize(WORKLOAD, a_typed_world().ports, days=14)

    assert (found.advice, found.now, found.then) == (None, None, None)


def test_a_size_that_is_asked_for_is_advised_as_it_is_asked_for() -> None:
    world = a_typed_world()
    # On the scale of sizes it is 32.
    world.change_policy(types=(JobType(name="scan", needs=JobNeeds(memory_gib=30)),))
    for number in range(6):
        job = {"type": "scan", "job_id": f"j{number}", "shape": "c0m32"}
        keep(world, **job, memory_gib=32.0, memory_max=24.0, started_at=world.clock.now())
    world.clock.advance(timedelta(hours=1))
    learn_sizes(WORKLOAD, world.ports)

    (scan,) = rightsize(WORKLOAD, world.ports, days=14).sizings

    assert scan.advised == scan.asked == JobNeeds(memory_gib=30)


def test_a_lowered_size_says_what_was_asked_for() -> None:
    world = a_typed_world(rightsize=Rightsize.APPLY)
    (reason,) = rightsize(WORKLOAD, world.ports, days=14).sizings[0].reasons

    assert reason.about["asked"] == 32
    assert "asked for" not in say(reason)
    assert "(64 asked for)" in say(replace(reason, about={**reason.about, "asked": 64.0}))
