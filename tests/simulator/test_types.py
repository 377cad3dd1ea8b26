"""Jobs of types: routed, run on machines that have enough, sized by what was learned."""

from datetime import timedelta
from typing import Any

import pytest

from spindown.contract.learned_size import decode_sizes, sizes_key
from spindown.contract.usage import UsageEnd
from spindown.domain.offer import VCPU, InstanceRequirements
from spindown.domain.policy import JobNeeds, JobType, Policy, Rightsize
from spindown.domain.relative_throughput import relative_throughput
from spindown.domain.rightsizing.type_size import SYSTEM_GIB, sized_at
from spindown.simulator import Arrival, Run, TrueNeed
from spindown.simulator.hardware import find_type
from spindown.simulator.world import WORKLOAD
from tests.simulator.scene import HOUR, a_listing, a_policy, a_scenario, a_zone

#: Each has 2 vCPUs; by name GiB and USD an hour, as spot and on demand.
_SOLD = {"c7i.large": (4, 0.10), "m7i.large": (8, 0.16), "r7i.large": (16, 0.25)}
NO_GPU = InstanceRequirements(
    gpu_count_min=0.0, gpu_count_max=0.0, architectures=frozenset({"x86_64"})
)
WORK_SECONDS = 600.0
#: A commit of the simulated bucket.
COMMIT = 0.3


def a_run(*arrivals: Arrival, length: float = 2 * HOUR, **policy: Any) -> Run:
    listings = tuple(
        a_listing(name, instance_type=found, on_demand=price, zones={"us-west-2a": _zone(price)})
        for name, (_, price) in _SOLD.items()
        if (found := find_type(name))
    )
    return Run(
        a_scenario(*arrivals, listings=listings, length=length, requirements=NO_GPU),
        _policy(**policy),
        1,
    )


def _zone(price: float) -> Any:
    return a_zone(spot=((0.0, price),))


def _policy(**changes: Any) -> Policy:
    types = (
        JobType(name="small", needs=JobNeeds(memory_gib=4)),
        JobType(name="large", needs=JobNeeds(memory_gib=16)),
    )
    return a_policy(**{"types": types, "idle_timeout": timedelta(0), "max_workers": 9, **changes})


def a_job(job_type: str, gib: float, *, at: float = 30.0, asked: JobNeeds | None = None) -> Arrival:
    need = TrueNeed(memory_gib=gib, peaks_at=0.5)
    return Arrival(
        at=at, item_seconds=WORK_SECONDS, job_type=job_type, requirements=asked, need=need
    )


def machines_of(run: Run) -> dict[str, str]:
    """Return job -> the instance types on which attempts at it were measured, in order."""
    found: dict[str, str] = {}
    for each in run.record.attempts:
        before = f"{found[each.job_id]} " if each.job_id in found else ""
        found[each.job_id] = before + each.instance_type
    return found


def outgrown(run: Run) -> list[str]:
    """Return the types of the attempts that ran out of memory, and were not the last."""
    return [each.type for each in run.record.attempts if each.end is UsageEnd.OUTGROWN]


def test_each_job_runs_on_a_machine_that_has_enough() -> None:
    asked = JobNeeds(memory_gib=8)
    jobs = a_job("small", 2.0), a_job("large", 12.0), a_job("small", 6.0, asked=asked)
    run = a_run(*jobs, requirements_at_most=asked)

    result = run.run()

    assert (result.jobs_done, result.dead_letters) == (3, 0)
    assert machines_of(run) == {
        "job-0000000": "c7i.large",
        "job-0000001": "r7i.large",
        "job-0000002": "m7i.large",
    }
    assert run.record.counts["declined"] == len(outgrown(run)) == 0
    # A boot, the work and its commit, a second of shutting down; each a machine of its own.
    assert result.busy_seconds == pytest.approx(3 * (WORK_SECONDS + COMMIT))
    assert result.dollars == pytest.approx(sum(result.bill.values()))
    assert result.accounted_dollars == pytest.approx(result.dollars, rel=0.02)


def test_out_of_memory_goes_to_the_next_size_once() -> None:
    run = a_run(a_job("small", 6.0), requirements_at_most=JobNeeds(memory_gib=16))

    result = run.run()

    assert (result.jobs_done, result.dead_letters, result.launches) == (1, 0, 2)
    assert machines_of(run) == {"job-0000000": "c7i.large m7i.large"}
    assert outgrown(run) == ["small"]
    # Half of the work was done in vain.
    assert result.busy_seconds == pytest.approx(1.5 * WORK_SECONDS + COMMIT)


def test_what_the_system_takes_no_job_has() -> None:
    fits, exceeds = 4.0 - SYSTEM_GIB, 4.0 - SYSTEM_GIB + 0.01
    run = a_run(
        a_job("small", fits), a_job("small", exceeds), requirements_at_most=JobNeeds(memory_gib=16)
    )

    run.run()

    assert machines_of(run) == {
        "job-0000000": "c7i.large",
        "job-0000001": "c7i.large m7i.large",
    }


def test_beyond_the_ceiling_a_job_fails_for_good() -> None:
    run = a_run(a_job("small", 6.0), length=6 * HOUR)

    result = run.run()

    assert (result.jobs_done, result.dead_letters) == (0, 1)
    assert set(machines_of(run)["job-0000000"].split()) == {"c7i.large"}
    assert not outgrown(run)


@pytest.mark.parametrize(
    ("rightsize", "gib", "last"),
    [(Rightsize.APPLY, 4.0, "c7i.large"), (Rightsize.ADVISE, None, "r7i.large")],
)
def test_learned_sizes_are_used_if_applied(
    rightsize: Rightsize, gib: float | None, last: str
) -> None:
    jobs = [a_job("large", 2.0, at=30.0 + 600.0 * n) for n in range(24)]
    run = a_run(*jobs, length=4.5 * HOUR, rightsize=rightsize)

    result = run.run()

    learned = decode_sizes(run.world.objects.get(sizes_key(WORKLOAD)).data).sizes["large"]
    assert sized_at(learned, run.agenda.now).needs.memory_gib == gib
    assert learned.advised.memory_gib == 4.0
    assert (result.jobs_done, outgrown(run)) == (24, [])
    assert machines_of(run)["job-0000023"] == last


def test_the_same_seed_gives_the_same_result() -> None:
    jobs = [a_job("small", 3.0, at=30.0) for _ in range(25)]

    first, second = a_run(*jobs).run(), a_run(*jobs).run()

    assert first.to_json() == second.to_json()
    assert first.jobs_done == 25


@pytest.mark.parametrize(
    ("parallel", "cores"),
    [
        # All vCPUs do all of the work; half of it waits for one; one does it; a GPU does it.
        (1.0, 8.0),
        (0.5, 8 / 4.5),
        (0.0, 1.0),
        (None, 1.0),
    ],
)
def test_work_of_one_core_leaves_the_others_idle(parallel: float | None, cores: float) -> None:
    need, machine = TrueNeed(parallel=parallel), find_type("c7i.2xlarge")

    assert machine is not None
    assert need.cores(machine.vcpus) == pytest.approx(cores)
    one = relative_throughput("c7i" + VCPU, 1.0)
    wanted = 3.0 if parallel is None else one * cores
    assert need.speed(machine, 3.0) == pytest.approx(wanted)
