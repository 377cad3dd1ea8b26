"""Interruptions keep a job from any progress: what it may cost, and where it goes on."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.commit_interval import slowdown
from spindown.domain.offer import CapacityType
from spindown.domain.policy import Policy, Rung
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.retry_or_dead_letter import never_done, too_long
from spindown.domain.wasted_work import (
    NOTHING_WASTED,
    Attempts,
    GoesOn,
    SpotTerms,
    WastedWork,
    goes_on,
    has_on_demand,
    may_be_risked,
    pays_here,
    terms_of_offer,
)
from tests.builders import an_offer, minutes

T4 = SpotTerms(price=0.20, listed=0.50, speed=1.0, rate=0.5)
SPOT_ONLY = Policy(ladder=(Rung(after=minutes(0), capacity_types=frozenset({CapacityType.SPOT})),))
#: Rounding.
EXACT = 1.0 + 1e-9


def after(*hours: float, boot: float = 0.1, terms: SpotTerms = T4) -> WastedWork:
    found = NOTHING_WASTED
    for each in hours:
        found = found.after(each, boot, terms)
    return found


def test_worked_example() -> None:
    first, second = after(2.0), after(2.0, 1.0)

    assert first.dollars == pytest.approx(0.42)
    assert may_be_risked(first, T4, Policy())
    assert second.dollars == pytest.approx(0.64)
    assert not may_be_risked(second, T4, Policy())


def test_nothing_wasted_goes_anywhere() -> None:
    assert goes_on(NOTHING_WASTED, T4, Policy()) is GoesOn.ANYWHERE
    assert may_be_risked(NOTHING_WASTED, replace(T4, price=0.49), Policy())


def test_an_unsure_pool_is_left_before_the_bound() -> None:
    wasted_work = after(4.0)

    assert may_be_risked(wasted_work, T4, Policy())
    assert goes_on(wasted_work, replace(T4, rate=0.01), Policy()) is GoesOn.ANYWHERE
    assert goes_on(wasted_work, T4, Policy()) is GoesOn.STABLE


def test_from_on_demand_a_job_goes_to_no_unsure_pool() -> None:
    assert goes_on(after(4.0), None, Policy()) is GoesOn.STABLE
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
        pytest.param(Policy(max_price_per_hour=0.50), True, id="the ceiling itself"),
        pytest.param(Policy(max_dollars_per_hour=0.49), False, id="over the fleet's ceiling"),
        pytest.param(Policy(max_dollars_per_hour=0.50), True, id="the fleet's ceiling itself"),
    ],
)
def test_what_the_ladder_ever_allows(policy: Policy, *, is_open: bool) -> None:
    wasted_work, terms = after(*[1.0] * 20), replace(T4, gpus=1.0)

    assert has_on_demand(terms, policy) is is_open
    assert goes_on(wasted_work, terms, policy) is (GoesOn.STABLE if is_open else GoesOn.NOWHERE)


@pytest.mark.parametrize(
    ("gpus", "ceiling", "is_open"), [(0.0, 0.01, True), (4.0, 0.125, True), (4.0, 0.12, False)]
)
def test_a_ceiling_per_gpu_is_of_all_gpus(gpus: float, ceiling: float, *, is_open: bool) -> None:
    policy = Policy(max_price_per_gpu_hour=ceiling)

    assert has_on_demand(replace(T4, gpus=gpus), policy) is is_open


def test_attempts_are_counted_with_the_shortest_boot() -> None:
    def boot(*boots: float) -> float:
        found = NOTHING_WASTED
        for number, each in enumerate(boots, start=1):
            found = found.after(1.0, each, T4)
            assert found.attempts == number
        return found.boot

    assert boot(0.2) == 0.2
    assert boot(0.2, 0.1) == boot(0.1, 0.2) == 0.1


#: Two slots, each twice as fast as a T4. 4 h of a T4 are 2 h of a slot: half of what the machine
#: costs in that time.
FAST = SpotTerms(price=0.5, listed=2.0, speed=4.0, slots=2)


@pytest.mark.parametrize(
    ("wasted_work", "most"),
    [
        # 0.5 x (0.125 / 2 + 1) more, up to 2.0 x as much.
        pytest.param(WastedWork(attempts=1, hours=4.0, boot=0.125), 1.59375, id="in vain"),
        # Of the item: 0.5 x (0.125 / 2 + 6 / 2) more, up to twice 2.0 x as much.
        pytest.param(
            WastedWork(of_item=Attempts(attempts=1, hours=4.0, boot=0.125)),
            10.71875,
            id="with state",
        ),
    ],
)
def test_a_slot_is_risked_up_to_its_bound(wasted_work: WastedWork, most: float) -> None:
    def spent(dollars: float) -> WastedWork:
        if wasted_work.attempts:
            return replace(wasted_work, dollars=dollars)
        return replace(wasted_work, of_item=replace(wasted_work.of_item, dollars=dollars))

    assert may_be_risked(spent(most), FAST, Policy())
    assert not may_be_risked(spent(most + 1e-9), FAST, Policy())


@pytest.mark.parametrize(
    ("has_waited_in_vain", "policy"),
    [
        pytest.param(False, SPOT_ONLY, id="none is allowed"),
        pytest.param(True, Policy(), id="none came"),
    ],
)
def test_with_state_spot_goes_on_where_none_stays(
    policy: Policy, *, has_waited_in_vain: bool
) -> None:
    of_item = Attempts(attempts=9, hours=9.0, boot=0.1, dollars=1e6)

    assert may_be_risked(
        WastedWork(of_item=of_item, has_waited_in_vain=has_waited_in_vain), T4, policy
    )
    assert not may_be_risked(WastedWork(of_item=of_item), T4, Policy())


def test_new_state_leaves_what_the_item_has_cost() -> None:
    of_item = Attempts(attempts=2, hours=1.0, boot=0.1, dollars=0.3)
    lasting = WastedWork(of_item=of_item, has_waited_in_vain=True, item_hours=5.0)

    assert replace(lasting, attempts=1, hours=1.0, boot=0.1, dollars=0.2).saved() == lasting


def test_a_reason_tells_of_the_attempts_that_say_most() -> None:
    wasted_work = replace(after(2.0), has_waited_in_vain=True)
    saved = replace(wasted_work, of_item=after(2.0, 1.0))

    assert never_done(wasted_work) == Reason(
        ReasonCode.NEVER_DONE,
        {
            "attempts": 1,
            "hours": 2.0,
            "dollars": wasted_work.dollars,
            "saves": False,
            "has_waited_in_vain": True,
        },
    )
    about = never_done(saved).about
    assert (about["attempts"], about["dollars"], about["saves"]) == (2, saved.of_item.dollars, True)


def test_an_item_takes_too_long_once_all_attempts_have() -> None:
    policy = Policy(max_item_time=minutes(180))
    wasted_work = after(2.0).worked(minutes(90)).worked(minutes(-9)).worked(minutes(75))
    about = {"hours": 3.0, "most": 3.0, "dollars": 7.0}

    assert not too_long(wasted_work, 7.0, policy)
    found = too_long(wasted_work.worked(minutes(15)), 7.0, policy)
    assert found == Reason(ReasonCode.ITEM_TOO_LONG, about)


def test_what_an_offer_costs_and_how_surely_it_stays() -> None:
    one = an_offer(on_demand_price=0.50)
    four = an_offer("g4dn.12xlarge", on_demand_price=None)

    assert terms_of_offer(one, 0.3, "per-gpu") == SpotTerms(
        price=0.22, listed=0.52, speed=1.0, slots=1, gpus=1.0, rate=0.3
    )
    found = terms_of_offer(four, 0.0, "per-gpu")
    assert found is not None
    assert (found.listed, found.slots, found.gpus) == (None, 4, 4.0)
    assert found.speed > 1.0
    assert terms_of_offer(replace(one, capacity_type=CapacityType.ON_DEMAND), 0.3, "2") is None


def test_going_on_pays_up_to_the_price_on_demand() -> None:
    """4 h of a T4 are 2 h of a slot."""
    wasted_work = WastedWork(attempts=1, hours=4.0, boot=0.1)
    dearest = 2.0 / slowdown(rate=0.5, boot=0.1, interval=2.0, cost=0.0)

    assert pays_here(wasted_work, replace(FAST, rate=0.5, price=dearest * 0.999))
    assert not pays_here(wasted_work, replace(FAST, rate=0.5, price=dearest * 1.001))
    assert pays_here(wasted_work, replace(FAST, rate=0.0, price=2.0))


def test_going_on_pays_where_nothing_takes_it_back() -> None:
    short = WastedWork(attempts=1, hours=0.5, boot=0.1)
    unsure = replace(T4, rate=9.0)

    assert not pays_here(short, unsure)
    assert pays_here(short, None)
    # An attempt that had not begun to compute says nothing of how long the next would take.
    assert pays_here(replace(short, hours=0.0), unsure)


def test_with_state_a_job_leaves_on_demand_for_anywhere() -> None:
    assert goes_on(WastedWork(of_item=after(4.0)), None, Policy()) is GoesOn.ANYWHERE


def test_one_interruption_gives_no_job_up() -> None:
    assert goes_on(after(4.0), T4, SPOT_ONLY) is GoesOn.STABLE
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
    wasted_work = NOTHING_WASTED
    for share, done in tries:
        terms = SpotTerms(price=share * listed, listed=listed, speed=1.0)
        if not may_be_risked(wasted_work, terms, policy):
            break
        wasted_work = wasted_work.after(done * takes, boot, terms)
        assert wasted_work.dollars <= on_demand * EXACT

    assert wasted_work.dollars + on_demand <= 2.0 * on_demand * EXACT


@given(takes=st.floats(0.01, 20.0), boot=st.floats(0.0, 0.5), tries=attempts)
def test_given_up_within_twice_on_demand(
    takes: float, boot: float, tries: list[tuple[float, float]]
) -> None:
    listed, wasted_work = 0.5, NOTHING_WASTED
    for share, done in tries:
        terms = SpotTerms(price=share * listed, listed=listed, speed=1.0)
        if not may_be_risked(wasted_work, terms, SPOT_ONLY):
            assert goes_on(wasted_work, terms, SPOT_ONLY) is GoesOn.NOWHERE
            break
        wasted_work = wasted_work.after(done * takes, boot, terms)

    assert wasted_work.dollars <= 2.0 * listed * (boot + takes) * EXACT


@given(length=hours, boot=st.floats(0.001, 0.5), rates=st.tuples(st.floats(0, 5), st.floats(0, 5)))
def test_a_stabler_pool_never_pays_less(
    length: float, boot: float, rates: tuple[float, float]
) -> None:
    wasted_work = after(length, boot=boot)
    sure, unsure = (replace(T4, rate=rate) for rate in sorted(rates))

    assert pays_here(wasted_work, sure) or not pays_here(wasted_work, unsure)
