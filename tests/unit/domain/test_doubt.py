"""Which traits of pools are asked last, by who has kept silent and who has checked in."""

from datetime import datetime, timedelta

import pytest

from spindown.domain.doubt import Doubt, doubt_less, doubt_more, doubted
from spindown.domain.offer import CapacityType, Pool
from tests.builders import NOW

ON_DEMAND, SPOT = CapacityType.ON_DEMAND, CapacityType.SPOT
T4_A = Pool(instance_type="g4dn.xlarge", zone="us-west-2a", capacity_type=SPOT)
T4_B = Pool(instance_type="g4dn.2xlarge", zone="us-west-2b", capacity_type=ON_DEMAND)
L4_B = Pool(instance_type="g6.xlarge", zone="us-west-2b", capacity_type=SPOT)


def after(*silent: Pool) -> dict[str, Doubt]:
    doubts: dict[str, Doubt] = {}
    for pool in silent:
        doubts = dict(doubt_more(doubts, pool, NOW))
    return doubts


@pytest.mark.parametrize(
    ("silent", "in_a_row", "asked_last"),
    [
        pytest.param([T4_A], 0, {}, id="one, and then others checked in"),
        pytest.param([T4_A], 1, {"g4dn": 1, "us-west-2a": 1}, id="one may be chance"),
        pytest.param(
            [T4_A, L4_B],
            2,
            {"g4dn": 1, "us-west-2a": 1, "g6": 1, "us-west-2b": 1, "spot": 2},
            id="two of one capacity type",
        ),
        pytest.param(
            [T4_A, T4_B],
            2,
            {"g4dn": 2, "us-west-2a": 1, "us-west-2b": 1},
            id="two of one family",
        ),
        pytest.param([T4_A, T4_B, T4_B], 0, {"g4dn": 3}, id="three of one family, for good"),
    ],
)
def test_the_next_differs_from_what_kept_silent(
    silent: list[Pool], in_a_row: int, asked_last: dict[str, int]
) -> None:
    assert doubted(after(*silent), in_a_row, NOW) == asked_last


def test_after_an_outage_of_all_nothing_is_doubted() -> None:
    doubts = after(T4_A, L4_B, T4_B, T4_A, T4_A)

    assert doubt_less(doubts, T4_B, NOW) == {}
    # One trait that was never of no use may be what makes the difference.
    on_demand = Pool(instance_type="g6.xlarge", zone="us-west-2a", capacity_type=ON_DEMAND)
    assert doubt_less(after(T4_A, L4_B), on_demand, NOW).keys() == {"g4dn", "us-west-2b", "spot"}


def test_what_is_of_use_clears_its_own_traits_only() -> None:
    doubts = after(T4_A, T4_A, T4_A)

    left = doubt_less(doubts, L4_B, NOW)

    assert doubted(left, 0, NOW) == {"g4dn": 3, "us-west-2a": 3}
    # It came up before.
    assert doubt_less(doubts, L4_B, NOW - timedelta(seconds=1)) == doubts


@pytest.mark.parametrize(
    ("at", "asked_last"),
    [
        pytest.param(NOW + timedelta(hours=5), {"g4dn", "us-west-2a", "spot"}, id="soon"),
        pytest.param(NOW + timedelta(hours=6), {"g4dn", "us-west-2a"}, id="spot is tried again"),
        pytest.param(NOW + timedelta(hours=24), set(), id="all are"),
    ],
)
def test_a_doubt_lasts_until_it_is_tried_again(at: datetime, asked_last: set[str]) -> None:
    doubts = after(T4_A, T4_A, T4_A)

    assert doubted(doubts, 0, at).keys() == asked_last
    # The first that keeps silent then renews it.
    assert doubted(doubt_more(doubts, T4_A, at), 0, at).keys() == {"g4dn", "us-west-2a", "spot"}
