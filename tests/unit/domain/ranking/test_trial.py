"""When a GPU that a workload has never run on is tried."""

from dataclasses import replace

import pytest

from spindown.domain.learning import Knowledge, ThroughputRecord, throughput
from spindown.domain.offer import InstanceRequirements
from spindown.domain.ranking.exploration import BONUS_AT_MOST, exploration_bonus
from tests.builders import a_cpu_type, a_demand, a_policy, a_ranking, an_offer
from tests.unit.domain.ranking.reading import measured, names


def used(*lives: int) -> Knowledge:
    """Return knowledge of kinds that so many workers had each."""
    return Knowledge(
        throughput={
            (f"GPU {number}", 1.0): ThroughputRecord(items=100, hours=1.0, reports=9, lives=each)
            for number, each in enumerate(lives)
        }
    )


@pytest.mark.parametrize(
    ("lives", "hoped"),
    [
        pytest.param((), 1.0, id="nothing has run"),
        pytest.param((0,), 4 / (1 / 1.5 + 3), id="a row that counts none is of one"),
        pytest.param((1,), 1.0909, id="one"),
        pytest.param((6,), 1.2857, id="six"),
        pytest.param((4, 2), 1.2857, id="six on two kinds"),
        pytest.param((60,), 1.4651, id="sixty"),
        pytest.param((10**9,), BONUS_AT_MOST, id="no end of them"),
    ],
)
def test_the_more_workers_there_were_the_more_a_trial_may_cost(
    lives: tuple[int, ...], hoped: float
) -> None:
    assert exploration_bonus(used(*lives)) == pytest.approx(hoped, abs=1e-4)


def test_a_modest_data_sheet_earns_an_unknown_gpu_one_trial() -> None:
    # A data sheet of 1.9 T4s at 2.3 times the price.
    offers = [an_offer(), an_offer("g5.xlarge", instance_price=0.48)]
    known = measured(T4=1000.0)
    demand = a_demand(need_items_per_hour=8000.0, backlog_items=8000.0, jobs=80)

    first = a_ranking(offers, knowledge=known, demand=demand).best
    assert first is not None
    assert (first.offer, first.workers, first.measured) == (offers[1], 1, False)
    alive = replace(known, alive=frozenset({("A10G", 1.0)}))
    second = a_ranking(offers, knowledge=alive, demand=demand).best
    assert second is not None
    assert (second.offer, second.workers) == (offers[0], 8)
    assert names(a_ranking(offers, demand=demand)) == ["g4dn.xlarge", "g5.xlarge"]
    for slots, order in ((1, ["g5.xlarge", "g4dn.xlarge"]), (2, ["g4dn.xlarge", "g5.xlarge"])):
        beside = replace(demand, slots=slots)
        assert names(a_ranking(offers, knowledge=known, demand=beside)) == order


@pytest.mark.parametrize(
    ("name", "is_tried"),
    [
        pytest.param("m7i.4xlarge", False, id="the same vCPUs"),
        pytest.param("c7a.2xlarge", True, id="other vCPUs"),
    ],
)
def test_machines_with_known_vcpus_are_not_tried(name: str, is_tried: bool) -> None:
    known = Knowledge(
        throughput={("c7i vCPU", 8.0): ThroughputRecord(items=100, hours=1.0, reports=9)}
    )
    offer = an_offer(a_cpu_type(name))
    wanted = InstanceRequirements(gpu_count_min=0.0, gpu_count_max=0.0)

    (first,) = a_ranking([offer], knowledge=known, requirements=wanted).top(1)

    expected = throughput(known, offer.instance_type, a_policy()).items_per_hour
    assert (first.items_per_hour > expected) is is_tried


def test_a_workload_that_ran_little_does_not_promise_much() -> None:
    # 1.2 times the best by its data sheet: lost on a few workers, found again over many.
    offers = [an_offer(), an_offer("g5.xlarge", instance_price=0.48)]
    record = ThroughputRecord(items=10_000, hours=10.0, reports=50)
    demand = a_demand(need_items_per_hour=8000.0, backlog_items=8000.0, jobs=80)

    def best(lives: int) -> str:
        known = Knowledge(throughput={("T4", 1.0): replace(record, lives=lives)})
        return names(a_ranking(offers, knowledge=known, demand=demand))[0]

    assert [best(1), best(2), best(10)] == ["g4dn.xlarge", "g4dn.xlarge", "g5.xlarge"]


def test_once_it_has_run_a_gpu_is_ranked_by_what_it_did() -> None:
    offers = [an_offer(), an_offer("g5.xlarge", instance_price=0.48)]
    demand = a_demand(need_items_per_hour=8000.0, backlog_items=8000.0, jobs=80)

    modest = a_ranking(offers, knowledge=measured(T4=1000.0, A10G=2900.0), demand=demand)
    honest = a_ranking(offers, knowledge=measured(T4=1000.0, A10G=1900.0), demand=demand)

    assert names(modest) == ["g5.xlarge", "g4dn.xlarge"]
    assert names(honest) == ["g4dn.xlarge", "g5.xlarge"]
