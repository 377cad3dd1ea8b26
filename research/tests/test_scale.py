"""The comparison of 4,000 mixed jobs a day, on worlds small enough to work out by hand."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from research.compare.grid import verdict
from research.scale.floor import best_plan, floor
from research.scale.page import learned_after, tables
from research.scale.rival import RIVALS, Rival, run_rival
from research.scale.story import BOOT, BestMachines, StoryJob, is_enough, mean_prices
from research.size import KINDS
from spindown.domain.offer import extra_price_per_hour
from spindown.domain.relative_throughput import relative_throughput
from spindown.simulator import Listing, TrueNeed, Zone
from tests.builders import a_cpu_type

HOUR = 3600.0
#: Of one core: what a vCPU of c7i does in an hour is an hour's work.
CORE = relative_throughput("c7i vCPU", 1.0)
HOURLY = next(kind for kind in KINDS if kind.name == "hourly")


def a_listing(name: str, vcpus: int, gib: int, price: float) -> Listing:
    machine = a_cpu_type(name, vcpus=vcpus, memory_mib=gib * 1024)
    return Listing(
        instance_type=machine,
        region="r",
        on_demand=price,
        speed=1.0,
        zones={"ra": Zone(spot=((0.0, price / 2),)), "rb": Zone(spot=((0.0, price),))},
    )


SMALL = a_listing("c7i.large", 2, 4, 1.0)
LARGE = a_listing("c7i.xlarge", 2, 8, 2.0)
SOLD = (SMALL, LARGE)
#: USD an hour beside the price: those of the cheapest zone are half of the list price.
EXTRA = extra_price_per_hour(30)


def a_job(gib: float, *, at: float = 0.0, hours: float = 10.0, peaks_at: float = 0.5) -> StoryJob:
    need = TrueNeed(memory_gib=gib, parallel=0.0, peaks_at=peaks_at)
    return StoryJob(at=at, kind=HOURLY, need=need, seconds=hours * HOUR * CORE)


def test_each_job_has_the_cheapest_machine_with_its_memory() -> None:
    best = BestMachines(SOLD, mean_prices(SOLD))

    for gib, wanted, price in ((2.0, SMALL, 0.5), (6.0, LARGE, 1.0)):
        dollars, machine = best.of(a_job(gib))
        assert dollars == pytest.approx(10 * (price + EXTRA))
        assert machine == wanted.instance_type
    with pytest.raises(ValueError, match="no machine"):
        best.of(a_job(9.0))
    assert not is_enough(SMALL.instance_type, TrueNeed(memory_gib=2.0))


@pytest.mark.parametrize(
    ("large", "machines", "dollars"),
    [
        # Of ten jobs of ten hours: one dies half-way and goes on; too many would.
        (1, ("c7i.large", "c7i.xlarge"), 9 * 10 * 0.5 + 5 * 0.5 + 10 * 1.0),
        (8, ("c7i.xlarge",), 10 * 10 * 1.0),
    ],
)
def test_the_best_plan_weighs_the_jobs_that_die(
    large: int, machines: tuple[str, ...], dollars: float
) -> None:
    jobs = [a_job(6.0) for _ in range(large)] + [a_job(2.0) for _ in range(10 - large)]
    prices = {x.instance_type.name: (x.on_demand or 0.0) / 2 for x in SOLD}

    plan = best_plan(jobs, SOLD, prices)

    assert plan.machines == machines
    assert plan.dollars == pytest.approx(dollars)
    assert plan.killed == (large if len(machines) > 1 else 0)


def test_who_knows_more_pays_no_more() -> None:
    random, monday_six = Random(1), 6 * HOUR
    usual = [a_job(random.uniform(1.0, 3.4), at=random.uniform(7, 24) * HOUR) for _ in range(60)]
    special = [a_job(random.uniform(5.0, 7.4), at=monday_six) for _ in range(20)]

    found = floor([*usual, *special], SOLD, 1)

    assert found.each[0] <= found.hour[0] <= found.type[0]
    # The hour tells all: none dies, and each has the machine that it would choose.
    assert found.hour[0] == pytest.approx(found.each[0])
    assert found.killed == (0,)
    assert found.type[0] > found.each[0]


def rival(name: str) -> Rival:
    return next(each for each in RIVALS if each.name == name)


def play(name: str, *jobs: StoryJob, sold: tuple[Listing, ...] | None = None) -> tuple[float, int]:
    """Return the machine hours that were paid, at a dollar each, and the launches."""
    node = a_listing("m7i.24xlarge", 96, 384, 1.0 - EXTRA)
    result = run_rival(replace(rival(name), machines=()), jobs, sold or (node,), 1, spot=False)
    assert result.jobs == len(jobs)
    return sum(result.dollars_by_day), result.launches


def boots(launches: int) -> list[float]:
    random = Random("1/boot")
    return [BOOT.draw(random) / HOUR for _ in range(launches)]


def test_what_packs_puts_jobs_on_one_machine() -> None:
    # Each asks for 8 vCPUs and 64 GiB, of which six fit on 384.
    jobs = [a_job(2.0, hours=2.0) for _ in range(7)]

    hours, launches = play("karpenter", *jobs)

    assert launches == 2
    # m7i's vCPUs are c7i's. What is empty ends at the next look.
    assert hours == pytest.approx(sum(boots(2)) + 2 * 2.0, abs=2 * 20 / HOUR)


def test_one_job_has_a_machine_of_one_size() -> None:
    hours, launches = play("one-size", *(a_job(2.0, hours=2.0) for _ in range(3)))

    assert launches == 3
    ten_minutes = 1 / 6
    assert hours == pytest.approx(sum(boots(3)) + 3 * (2.0 + ten_minutes), abs=3 * 20 / HOUR)


def test_a_small_job_keeps_a_large_node() -> None:
    """The node is under half used for nine hours, and stays: its job may not be moved."""
    first = [a_job(2.0, hours=1.0) for _ in range(5)]

    hours, launches = play("cluster", *first, a_job(2.0, hours=10.0))

    assert launches == 1
    assert hours == pytest.approx(boots(1)[0] + 10.0 + 1 / 6, abs=20 / HOUR)


def test_the_scheduler_spreads_or_packs() -> None:
    """After an hour one node has two jobs for six hours, the other one for two: who gets the next?

    Spread out, the first node is paid for six hours and the second until the next job's end.
    Packed, the second ends after two and the first with that job.
    """
    first = [a_job(2.0, hours=hours) for hours in (6.0, 6.0, 1.0, 1.0, 1.0, 1.0)]
    jobs = [*first, a_job(2.0, hours=2.0), a_job(2.0, at=1.5 * HOUR, hours=8.0)]

    spread, _ = play("cluster", *jobs)
    packed, _ = play("cluster-packed", *jobs)

    assert spread == pytest.approx(6.0 + 9.5, abs=0.5)
    assert packed == pytest.approx(9.5 + 2.0, abs=0.5)


FLAT = {"wait_p50_min": 0.0, "wait_p95_min": 1.0, "launches": 1}


def a_seed(days: int, dollars: float) -> dict[str, Any]:
    names = [f"{each.name}{where}" for each in RIVALS for where in ("", ", on demand")]
    return {
        "floor": {
            "each": [10.0] * days,
            "hour": [11.0] * days,
            "type": [12.0] * days,
            "machines": {"sql": ["c7i.large"]},
        },
        "rivals": {name: {"dollars_by_day": [dollars] * days, **FLAT} for name in names},
    }


def ours_of(days: int) -> dict[str, Any]:
    return {
        "dollars_by_day": [20.0] * 7 + [12.0] * (days - 7),
        "killed_by_day": [50] + [0] * (days - 1),
        "jobs_by_day": [1000] * days,
        "jobs": 1000 * days,
        "cpu_seconds": 60.0,
        "bill": {"work": 1.0},
        **FLAT,
    }


def test_tables_say_what_does_not_hold() -> None:
    told = tables({"cheap": {"1": a_seed(9, 30.0)}, "played": {"ours": ours_of(9)}})

    cells = [cell.strip() for cell in told.split("|")]
    assert {"2.50 (2.50-2.50)", "1.20 (1.20-1.20)", "0.56%", "0.00%"} <= set(cells)
    assert cells.count(verdict(holds=False)) == 2
    assert (learned_after(9), learned_after(3)) == (7, 2)


def test_dollars_of_others_are_of_the_seed_of_their_factors() -> None:
    cheap = {"1": a_seed(9, 30.0), "2": a_seed(9, 36.0)}

    told = tables({"cheap": cheap, "played": {"ours": ours_of(9)}})

    of_batch = [cell.strip() for cell in told.partition("| batch:")[2].split("|")]
    assert of_batch[1:3] == ["30.00", "2.50 (2.50-2.50)"]
    assert "20 %" in told
