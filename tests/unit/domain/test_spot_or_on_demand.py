"""The price ladder: what may be bought after which wait, and what a deadline opens."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.offer import CapacityType
from spindown.domain.policy import Policy, Rung
from spindown.domain.spot_or_on_demand import (
    PurchaseMode,
    allows,
    bring_forward,
    ladder_now,
    open_ladder,
    price_ceilings,
)
from tests.builders import NOW, ON_DEMAND, SPOT, a_policy, a_ranking, an_offer, minutes
from tests.unit.domain.ranking.reading import RUNGS

LADDER = (
    Rung(after=timedelta(0), capacity_types=frozenset({SPOT}), max_price_per_hour=1.0),
    Rung(after=minutes(30), capacity_types=frozenset(CapacityType), max_price_per_hour=3.0),
)


@pytest.mark.parametrize(
    ("waited", "spot", "on_demand"),
    [
        pytest.param(0, 0.30, None, id="first rung"),
        pytest.param(4.9, 0.30, None, id="just before the second"),
        pytest.param(5, 0.60, None, id="second rung"),
        pytest.param(15, 2.0, 2.0, id="last rung, up to the ceiling"),
    ],
)
def test_the_ladder_is_climbed_by_waiting(
    waited: float, spot: float, on_demand: float | None
) -> None:
    policy = Policy(ladder=RUNGS, start_within=minutes(60), max_price_per_hour=2.0)

    found = price_ceilings(policy, minutes(waited))

    assert (found.get(SPOT), found.get(ON_DEMAND)) == (spot, on_demand)


def test_every_default_rung_says_when_it_really_opens() -> None:
    policy = Policy()
    last = policy.ladder[-1].after

    assert last <= policy.start_within
    assert price_ceilings(policy, last - timedelta(seconds=1)).keys() == {SPOT}
    assert price_ceilings(policy, last).keys() == {SPOT, ON_DEMAND}


def test_what_was_open_once_stays_open() -> None:
    rungs = (
        Rung(after=timedelta(0), capacity_types=frozenset({SPOT})),
        Rung(after=minutes(5), capacity_types=frozenset({ON_DEMAND}), max_price_per_hour=1.0),
    )
    policy = Policy(ladder=rungs, start_within=minutes(60), max_price_per_hour=2.0)

    assert price_ceilings(policy, minutes(6)) == {SPOT: 2.0, ON_DEMAND: 1.0}


def test_a_later_rung_takes_nothing_back() -> None:
    rungs = (
        Rung(after=timedelta(0), capacity_types=frozenset({SPOT}), max_price_per_hour=1.5),
        Rung(after=minutes(5), capacity_types=frozenset({SPOT}), max_price_per_hour=0.5),
    )
    policy = Policy(ladder=rungs, start_within=minutes(60), max_price_per_hour=2.0)

    assert price_ceilings(policy, minutes(6)) == {SPOT: 1.5}


def test_nothing_is_open_before_the_first_rung() -> None:
    policy = a_policy(ladder=RUNGS[1:2], start_within=minutes(60))

    found = a_ranking([an_offer()], policy=policy, waited=minutes(2))

    assert not found.candidates
    assert found.rejected[0].constraint == "ladder"
    assert found.rejected[0].retry_at == NOW + minutes(3)


def test_rungs_are_brought_forward_to_a_wait() -> None:
    policy = Policy(ladder=RUNGS, start_within=minutes(60), max_price_per_hour=2.0)

    sooner = bring_forward(policy, minutes(7))

    assert [rung.after for rung in sooner.ladder] == [minutes(0), minutes(5), minutes(7)]
    assert price_ceilings(sooner, minutes(6.9)) == price_ceilings(policy, minutes(6.9))
    assert price_ceilings(sooner, minutes(7)) == {SPOT: 2.0, ON_DEMAND: 2.0}
    assert bring_forward(policy, minutes(30)) == policy


def test_what_is_brought_forward_says_when_it_opens() -> None:
    policy = a_policy(ladder=RUNGS[1:2], start_within=minutes(60))

    found = a_ranking([an_offer()], policy=bring_forward(policy, minutes(4)), waited=minutes(2))

    assert found.rejected[0].retry_at == NOW + minutes(2)


@given(wait=st.integers(0, 30), waited=st.integers(0, 90))
def test_an_earlier_opening_opens_all_after_it_and_closes_none(wait: int, waited: int) -> None:
    policy = Policy(ladder=RUNGS, start_within=minutes(60), max_price_per_hour=2.0)

    before = price_ceilings(policy, minutes(waited))
    found = price_ceilings(bring_forward(policy, minutes(wait)), minutes(waited))

    assert all(found[kind] >= most for kind, most in before.items())
    assert found == (price_ceilings(policy, minutes(60)) if waited >= wait else before)


@pytest.mark.parametrize(
    ("wanted", "open_now"),
    [
        (PurchaseMode.SPOT, [({SPOT}, 1.0)]),
        (PurchaseMode.ANY, [({SPOT}, 1.0), (set(CapacityType), 3.0)]),
        (PurchaseMode.ON_DEMAND, [({ON_DEMAND}, 3.0)]),
        (ON_DEMAND, [({ON_DEMAND}, 3.0)]),
        (SPOT, [({SPOT}, 1.0), ({SPOT}, 3.0)]),
    ],
)
def test_a_mode_opens_rungs_whatever_the_wait(
    wanted: PurchaseMode | CapacityType, open_now: list[tuple[set[CapacityType], float]]
) -> None:
    rungs = open_ladder(Policy(ladder=LADDER), wanted).ladder

    assert [(set(r.capacity_types), r.max_price_per_hour) for r in rungs] == open_now
    assert all(rung.after == timedelta(0) for rung in rungs)


def test_a_kind_that_no_rung_allows_is_never_asked_for() -> None:
    policy = Policy(ladder=LADDER[:1])

    assert allows(policy, SPOT)
    assert not allows(policy, ON_DEMAND)
    assert open_ladder(policy, PurchaseMode.ON_DEMAND).ladder == policy.ladder
    assert allows(a_policy(), ON_DEMAND)


@pytest.mark.parametrize("wanted", [*PurchaseMode, *CapacityType])
def test_no_ladder_stays_none(wanted: PurchaseMode | CapacityType) -> None:
    assert open_ladder(a_policy(), wanted).ladder == ()


@pytest.mark.parametrize(
    ("waited", "opens_in", "kinds", "is_late", "is_early"),
    [
        pytest.param(0, None, {SPOT}, False, False, id="by the wait"),
        pytest.param(30, None, set(CapacityType), False, False, id="its own rung"),
        pytest.param(60, None, set(CapacityType), True, False, id="start_within is over"),
        pytest.param(5, 1, {SPOT}, False, False, id="start deadlines can wait a minute"),
        pytest.param(5, 0, set(CapacityType), True, True, id="start deadlines need it now"),
        pytest.param(30, 0, set(CapacityType), False, False, id="nothing is left to open early"),
    ],
)
def test_without_a_mode_the_wait_or_start_deadlines_open_it(
    waited: int, opens_in: int | None, kinds: set[CapacityType], is_late: bool, is_early: bool
) -> None:
    policy = Policy(ladder=LADDER, start_within=minutes(60))
    opens = None if opens_in is None else minutes(opens_in)

    found = ladder_now(policy, minutes(waited), override=None, opens_in=opens)

    assert price_ceilings(found.policy, found.waited).keys() == kinds
    assert (found.is_late, found.is_early) == (is_late, is_early)


@pytest.mark.parametrize(
    ("override", "kinds", "is_late"),
    [
        (PurchaseMode.SPOT, {SPOT}, False),
        (PurchaseMode.ANY, set(CapacityType), True),
        (PurchaseMode.ON_DEMAND, {ON_DEMAND}, True),
        (SPOT, {SPOT}, False),
        (ON_DEMAND, {ON_DEMAND}, True),
    ],
)
def test_a_mode_rules_whatever_the_wait_and_start_deadlines(
    override: PurchaseMode | CapacityType, kinds: set[CapacityType], is_late: bool
) -> None:
    policy = Policy(ladder=LADDER, start_within=minutes(60))

    for waited in (0, 90):
        found = ladder_now(policy, minutes(waited), override=override, opens_in=minutes(0))

        assert price_ceilings(found.policy, found.waited).keys() == kinds
        assert (found.is_late, found.is_early) == (is_late, False)
