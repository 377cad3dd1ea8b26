"""Which traits of pools are asked last, by who has kept silent and who has checked in."""

from datetime import datetime, timedelta

import pytest

from spindown.domain.offer import CapacityType, Pool
from spindown.domain.useless_trait import UselessTrait, asked_last, clear_useful, count_useless
from tests.builders import NOW

ON_DEMAND, SPOT = CapacityType.ON_DEMAND, CapacityType.SPOT
T4_A = Pool(instance_type="g4dn.xlarge", zone="us-west-2a", capacity_type=SPOT)
T4_B = Pool(instance_type="g4dn.2xlarge", zone="us-west-2b", capacity_type=ON_DEMAND)
L4_B = Pool(instance_type="g6.xlarge", zone="us-west-2b", capacity_type=SPOT)


def after(*silent: Pool) -> dict[str, UselessTrait]:
    traits: dict[str, UselessTrait] = {}
    for pool in silent:
        traits = dict(count_useless(traits, pool, NOW))
    return traits


@pytest.mark.parametrize(
    ("silent", "in_a_row", "last"),
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
    silent: list[Pool], in_a_row: int, last: dict[str, int]
) -> None:
    assert asked_last(after(*silent), in_a_row, NOW) == last


def test_after_an_outage_of_all_nothing_is_asked_last() -> None:
    traits = after(T4_A, L4_B, T4_B, T4_A, T4_A)

    assert clear_useful(traits, T4_B, NOW) == {}
    # One trait that was never of no use may be what makes the difference.
    on_demand = Pool(instance_type="g6.xlarge", zone="us-west-2a", capacity_type=ON_DEMAND)
    assert clear_useful(after(T4_A, L4_B), on_demand, NOW).keys() == {"g4dn", "us-west-2b", "spot"}


def test_what_is_of_use_clears_its_own_traits_only() -> None:
    traits = after(T4_A, T4_A, T4_A)

    left = clear_useful(traits, L4_B, NOW)

    assert asked_last(left, 0, NOW) == {"g4dn": 3, "us-west-2a": 3}
    # It came up before.
    assert clear_useful(traits, L4_B, NOW - timedelta(seconds=1)) == traits


@pytest.mark.parametrize(
    ("at", "last"),
    [
        pytest.param(NOW + timedelta(hours=5), {"g4dn", "us-west-2a", "spot"}, id="soon"),
        pytest.param(NOW + timedelta(hours=6), {"g4dn", "us-west-2a"}, id="spot is tried again"),
        pytest.param(NOW + timedelta(hours=24), set(), id="all are"),
    ],
)
def test_a_useless_trait_is_tried_again(at: datetime, last: set[str]) -> None:
    traits = after(T4_A, T4_A, T4_A)

    assert asked_last(traits, 0, at).keys() == last
    # The first that keeps silent then renews it.
    assert asked_last(count_useless(traits, T4_A, at), 0, at).keys() == {
        "g4dn",
        "us-west-2a",
        "spot",
    }
