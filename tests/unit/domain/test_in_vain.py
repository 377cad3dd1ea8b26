"""Interruptions keep a job from any progress: what it may cost, and where it goes on."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.in_vain import (
    NOTHING_IN_VAIN,
    GoesOn,
    InVain,
    SpotTerms,
    goes_on,
    has_on_demand,
    may_be_risked,
    pays_here,
)
from spindown.domain.offer import CapacityType
from spindown.domain.policy import Policy, Rung
from tests.builders import minutes

T4 = SpotTerms(price=0.20, listed=0.50, speed=1.0, rate=0.5)
SPOT_ONLY = Policy(ladder=(Rung(after=minutes(0), capacity_types=frozenset({CapacityType.SPOT})),))
#: Rounding.
EXACT = 1.0 + 1e-9


def after(*hours: float, boot: float = 0.1, terms: SpotTerms = T4) -> InVain:
    found = NOTHING_IN_VAIN
    for each in hours:
        found = found.after(each, boot, terms)
    return found


def test_worked_example() -> None:
    first, second = after(2.0), after(2.0, 1.0)

    assert first.dollars == pytest.approx(0.42)
    assert may_be_risked(first, T4, Policy())
    assert second.dollars == pytest.approx(0.64)
    assert not may_be_risked(second, T4, Policy())


def test_nothing_in_vain_goes_anywhere() -> None:
    assert goes_on(NOTHING_IN_VAIN, T4, Policy()) is GoesOn.ANYWHERE
    assert may_be_risked(NOTHING_IN_VAIN, replace(T4, price=0.49), Policy())


def test_an_unsure_pool_is_left_before_the_bound() -> None:
    in_vain = after(4.0)

    assert may_be_risked(in_vain, T4, Policy())
    assert goes_on(in_vain, replace(T4, rate=0.01), Policy()) is GoesOn.ANYWHERE
    assert goes_on(in_vain, T4, Policy()) is GoesOn.SURER


def test_from_on_demand_a_job_goes_to_no_unsure_pool() -> None:
    assert goes_on(after(4.0), None, Policy()) is GoesOn.SURER
    assert may_be_risked(after(4.0, 4.0, 4.0), None, Policy())


def test_work_counts_not_hours() -> None:
    fast = replace(T4, price=0.40, listed=1.00, speed=2.0)

    assert after(2.0, terms=fast).hours == 4.0
    assert after(2.0, terms=replace(fast, slots=2)).hours == 2.0
    assert after(2.0, terms=replace(fast, slots=2)).dollars == pytest.approx(0.42)


@pytest.mark.parametrize(
    ("policy", "is_open"),
    [
        pytest.param(Policy(), True, id="a later rung"),
        pytest.param(SPOT_ONLY, False, id="no rung"),
        pytest.param(Policy(max_price_per_hour=0.49), False, id="over the ceiling"),
        pytest.param(Policy(max_price_per_gpu_hour=0.49), False, id="over the GPU's ceiling"),
        pytest.param(Policy(ladder=()), True, id="no ladder"),
    ],
)
def test_what_the_ladder_ever_allows(policy: Policy, *, is_open: bool) -> None:
    in_vain, terms = after(*[1.0] * 20), replace(T4, gpus=1.0)

    assert has_on_demand(terms, policy) is is_open
    assert goes_on(in_vain, terms, policy) is (GoesOn.SURER if is_open else GoesOn.NOWHERE)


def test_one_interruption_gives_no_job_up() -> None:
    assert goes_on(after(4.0), T4, SPOT_ONLY) is GoesOn.SURER
    assert goes_on(after(4.0), replace(T4, price=0.50), SPOT_ONLY) is not GoesOn.NOWHERE


def test_an_unknown_price_on_demand_bounds_too() -> None:
    unknown = replace(T4, listed=None)

    assert may_be_risked(after(*[1.0] * 5), unknown, Policy())
    assert not may_be_risked(after(*[1.0] * 11), unknown, Policy())


hours = st.floats(0.0, 20.0, allow_nan=False)
attempts = st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0)), max_size=30)


@given(takes=st.floats(0.01, 20.0), boot=st.floats(0.0, 0.5), tries=attempts)
def test_at_most_twice_on_demand(
    takes: float, boot: float, tries: list[tuple[float, float]]
) -> None:
    """Whoever picks prices and reclaims: each try is (share of the price on demand, share done)."""
    policy, listed = Policy(), 0.5
    on_demand = listed * (boot + takes)
    in_vain = NOTHING_IN_VAIN
    for share, done in tries:
        terms = SpotTerms(price=share * listed, listed=listed, speed=1.0)
        if not may_be_risked(in_vain, terms, policy):
            break
        in_vain = in_vain.after(done * takes, boot, terms)
        assert in_vain.dollars <= on_demand * EXACT

    assert in_vain.dollars + on_demand <= 2.0 * on_demand * EXACT


@given(takes=st.floats(0.01, 20.0), boot=st.floats(0.0, 0.5), tries=attempts)
def test_given_up_within_twice_on_demand(
    takes: float, boot: float, tries: list[tuple[float, float]]
) -> None:
    listed, in_vain = 0.5, NOTHING_IN_VAIN
    for share, done in tries:
        terms = SpotTerms(price=share * listed, listed=listed, speed=1.0)
        if not may_be_risked(in_vain, terms, SPOT_ONLY):
            assert goes_on(in_vain, terms, SPOT_ONLY) is GoesOn.NOWHERE
            break
        in_vain = in_vain.after(done * takes, boot, terms)

    assert in_vain.dollars <= 2.0 * listed * (boot + takes) * EXACT


@given(length=hours, boot=st.floats(0.001, 0.5), rates=st.tuples(st.floats(0, 5), st.floats(0, 5)))
def test_a_surer_pool_never_pays_less(
    length: float, boot: float, rates: tuple[float, float]
) -> None:
    in_vain = after(length, boot=boot)
    sure, unsure = (replace(T4, rate=rate) for rate in sorted(rates))

    assert pays_here(in_vain, sure) or not pays_here(in_vain, unsure)
