"""Work that needs no GPU, in the made-up market."""

from spindown.domain.offer import InstanceRequirements
from spindown.simulator import simulate
from spindown.simulator.sample import CPU_TYPES, sample_market
from tests.simulator.scene import HOUR, a_policy, a_scenario, an_arrival

NO_GPU = InstanceRequirements(
    gpu_count_min=0.0, gpu_count_max=0.0, architectures=frozenset({"x86_64", "arm64"})
)


def test_machines_without_gpus_do_all_the_work_for_cents() -> None:
    # 100 s on a T4 are some six minutes on 8 of c7i's vCPUs.
    jobs = [an_arrival(at=60.0 + 120.0 * n, items=10, item_seconds=10.0) for n in range(20)]
    scenario = a_scenario(
        *jobs,
        listings=sample_market(seed=1, days=1, reclaims=0.0, instance_types=CPU_TYPES),
        length=6 * HOUR,
        requirements=NO_GPU,
    )

    result = simulate(scenario, a_policy(throughput_estimate=360.0), 1)

    assert result.items_done == 200
    assert sum(result.types.values()) == result.launches >= 1
    assert set(result.types) <= set(CPU_TYPES)
    # The work is 2,000 s on a T4: 28 vCPU-hours of c5, which cost about two cents each as spot.
    assert 0.1 < result.dollars < 1.5
    assert result.digest == simulate(scenario, a_policy(throughput_estimate=360.0), 1).digest
