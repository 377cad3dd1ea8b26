"""How long an idle machine of a baseline waits: fixed, by chance, learned; against closed forms."""

import math
from random import Random

import pytest

from research.baseline import ALL, RARE, simulate_any
from research.baseline.idling import LearnedIdling, RandomIdling
from spindown.domain.offer import extra_price_per_hour
from spindown.simulator import SimScenario
from tests.simulator.scene import HOUR, a_scenario, an_arrival

BOOT = 90.0
EXTRA = extra_price_per_hour(100)


def cost(timeout: float, gap: float) -> float:
    """Return the idle seconds of a gap, and a boot if the machine was gone at its end."""
    return gap if gap <= timeout else timeout + BOOT


def test_a_wait_by_chance_has_the_distribution_of_its_source() -> None:
    idling = RandomIdling(BOOT, Random(1))
    waits = [idling.begin(0.0) for _ in range(20_000)]

    assert min(waits) >= 0.0
    assert max(waits) <= BOOT
    for share in (0.25, 0.5, 0.75):
        below = sum(wait <= share * BOOT for wait in waits) / len(waits)
        assert below == pytest.approx((math.exp(share) - 1) / (math.e - 1), abs=0.01)


@pytest.mark.parametrize("gap", [9.0, 45.0, 89.0, 91.0, 10_000.0])
def test_a_random_wait_costs_e_over_e_less_1_of_the_known_gap(
    gap: float,
) -> None:
    idling = RandomIdling(BOOT, Random(2))
    mean = sum(cost(idling.begin(0.0), gap) for _ in range(20_000)) / 20_000

    assert mean / min(gap, BOOT) == pytest.approx(math.e / (math.e - 1), rel=0.02)


def test_the_longest_wait_costs_at_worst_twice_the_known_gap() -> None:
    assert cost(BOOT, BOOT + 1) / BOOT == 2.0


def test_a_learned_wait_is_a_boot_until_five_gaps_are_known() -> None:
    idling = LearnedIdling(BOOT)
    for number, gap in enumerate((30.0, 30.0, 30.0, 600.0, 20.0)):
        assert idling.begin(1000.0 * number) == BOOT
        idling.needed(1000.0 * number + gap)

    # 30 s: (3 x 30 + 20 + 120) / 5; 0 s: 90; 20 s: (20 + 4 x 110) / 5; 600 s: 142.
    assert idling.begin(9000.0) == 30.0


def test_the_machine_idle_last_is_needed_first() -> None:
    idling = LearnedIdling(BOOT)
    for _ in range(5):
        idling.begin(0.0)
        idling.begin(50.0)
        idling.needed(60.0)
        idling.needed(80.0)

    # Gaps of 10 and of 80 s, five of each: to wait 10 costs 55, 80 costs 45, and none 90.
    assert idling.begin(100.0) == 80.0


def in_a_row(*gaps: float) -> SimScenario:
    """Return jobs of ten minutes on one machine: each comes so long after the last has ended."""
    # Sent at 30 s; the alarm of 120 s is the first to have seen it for 90 s; a boot of 90 s.
    at, arrivals = 210.0, [an_arrival(at=30.0)]
    for gap in gaps:
        at += 600.0 + gap
        arrivals.append(an_arrival(at=at))
    return a_scenario(*arrivals)


GAPS = (30.0, 30.0, 20.0, 20.0, 20.0, 20.0)


@pytest.mark.parametrize(
    ("name", "last_idle"), [("ski-rental", BOOT), ("ski-learned", 30.0), ("classic-alarm", 600.0)]
)
def test_an_episode_costs_a_boot_work_gaps_and_the_last_wait(name: str, last_idle: float) -> None:
    result = simulate_any(in_a_row(*GAPS), ALL[name], 1)

    life = BOOT + 7 * 600.0 + sum(GAPS) + last_idle
    assert result.launches == 1
    assert result.billed_seconds == pytest.approx(life)
    assert result.dollars == pytest.approx((0.20 + EXTRA) * life / HOUR)


def test_each_wait_draws_anew_from_the_seed_s_own_stream() -> None:
    scenario = in_a_row(*(2 * HOUR for _ in range(9)))
    one, other = (simulate_any(scenario, RARE["ski-random"], seed) for seed in (1, 2))
    random = Random("1/idle")
    drawn = [BOOT * math.log1p(random.random() * (math.e - 1)) for _ in range(10)]

    assert one.launches == 10
    assert one.idle_seconds == pytest.approx(sum(drawn))
    assert one.digest != other.digest
