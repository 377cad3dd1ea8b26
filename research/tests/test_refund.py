"""Refunds in the mean: against every rule by backward induction, and against many drawn lives."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from research.bound.refund import refund_share
from research.compare.integral.age import (
    SHORT,
    fair_surcharge,
    long_hour,
    short_hour,
    spared,
)
from research.compare.integral.bill import Bill, mean_charge
from research.compare.integral.market import Market
from tests.simulator.scene import HOUR, a_listing, a_scenario, a_zone

NOTICE = 120.0 / HOUR
STEP = 30.0 / HOUR


def _best_of_every_rule(rate: float, share: float, boot: float) -> float:
    """Return the most that a rule gains of what the share allows, in hours; it may live 3 hours.

    Backwards over age: end now, or go on for a step in which notice may come. Who has notice lives
    on if that will be free, and else ends at once.
    """

    def ended(age: float) -> float:
        return (1.0 - share) * (age - boot) - age

    dies = 1.0 - math.exp(-rate * STEP)
    steps = round(3.0 / STEP)
    best = ended(steps * STEP)
    for step in reversed(range(steps)):
        age = step * STEP
        notice = age + STEP / 2.0
        is_free = notice + NOTICE < 1.0
        noticed = (1.0 - share) * (notice + NOTICE - boot) if is_free else ended(notice)
        best = max(ended(age) if step else -math.inf, dies * noticed + (1.0 - dies) * best)
    return best


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.24, 1.4, 5.0])
@pytest.mark.parametrize("boot", [0.0, 0.026])
def test_no_rule_without_foresight_gets_more_hours_free(rate: float, boot: float) -> None:
    share = refund_share(rate, boot)

    assert _best_of_every_rule(rate, share, boot) <= 1e-4
    if share > 0.0:
        assert _best_of_every_rule(rate, 0.99 * share, boot) > 0.0


def _drawn_charge(rate: float, plan: float, random: Random) -> float:
    """Return the hours that one plan is charged, each machine replaced at its notice."""
    charged = 0.0
    while True:
        notice = random.expovariate(rate)
        if notice >= plan:
            return charged + plan
        charged += 0.0 if notice + NOTICE < 1.0 else min(notice + NOTICE, plan)
        plan -= notice
        if plan <= NOTICE:
            return charged


@pytest.mark.parametrize(("rate", "plan"), [(0.24, 0.5), (0.24, 2.0), (1.0, 1.0), (1.0, 5.0)])
def test_a_plan_is_charged_what_drawn_lives_are(rate: float, plan: float) -> None:
    random, count = Random(3), 20_000
    drawn = math.fsum(_drawn_charge(rate, plan, random) for _ in range(count)) / count

    # Minutes are rounded so that it is never cheaper.
    assert 0.995 * drawn <= mean_charge(rate)[round(plan * 60)] <= 1.04 * drawn


def test_a_machine_stays_in_the_cheapest_zone_of_its_launch() -> None:
    zones = {
        "us-west-2a": a_zone(spot=((0.0, 0.10), (600.0, 0.40))),
        "us-west-2b": a_zone(spot=((0.0, 0.20),)),
    }
    scenario = a_scenario(listings=(a_listing(zones=zones),))
    market = Market(scenario, is_refunded=False)
    bill = Bill(scenario, market, 1.0)
    extra = (bill(1290.0, 1890.0) - 0.20 * 690 / HOUR) / (690 / HOUR)

    assert bill(300.0, 900.0) == pytest.approx((0.10 * 390 + 0.40 * 300 + extra * 690) / HOUR)
    assert 0.0 < extra < 0.05


def test_long_plans_pay_in_full_beyond_eight_hours() -> None:
    scenario = a_scenario(
        listings=(a_listing(zones={"us-west-2a": a_zone(reclaims_per_hour=0.1)}, on_demand=None),)
    )
    bill = Bill(scenario, Market(scenario, is_refunded=False), 1.0)

    eight, nine = (bill(90.0, hours * HOUR) for hours in (8.0, 9.0))
    assert nine - eight == pytest.approx(bill(90.0, 10.0 * HOUR) - nine)
    assert bill(90.0, HOUR) < eight / 8.0


def _best_of_every_rule_by_age(rate: float) -> float:
    """Return the most by which a rule is charged less in the mean than lives of its ages are."""

    def ended(age: float) -> float:
        return age - rate * spared(age) - age

    dies = 1.0 - math.exp(-rate * STEP)
    steps = round(3.0 / STEP)
    best = ended(steps * STEP)
    for step in reversed(range(steps)):
        age = step * STEP
        notice = age + STEP / 2.0
        lived = notice + NOTICE
        noticed = lived - rate * spared(lived) if lived < 1.0 else ended(notice)
        best = max(ended(age) if step else -math.inf, dies * noticed + (1.0 - dies) * best)
    return best


@pytest.mark.parametrize("rate", [0.02, 0.1, 0.24, 1.4])
def test_no_rule_is_charged_less_than_lives_of_its_ages(rate: float) -> None:
    assert _best_of_every_rule_by_age(rate) <= 1e-4


@given(st.floats(0.02, 2.0), st.floats(0.0, 0.5), st.floats(0.01, 3.0), st.floats(0.05, 2.0))
def test_both_lines_are_below_the_charge_of_every_age(
    rate: float, surcharge: float, hours: float, price: float
) -> None:
    charged = price * (hours - rate * spared(hours))

    if hours <= SHORT:
        assert short_hour(price, rate) * hours <= charged + 1e-9
    else:
        assert surcharge + long_hour(price, rate, surcharge) * hours <= charged + 1e-9


def test_a_fair_surcharge_meets_the_charge_of_long_lives() -> None:
    fair = fair_surcharge(2.0, 0.1)

    assert fair + SHORT * long_hour(2.0, 0.1, fair) == pytest.approx(
        2.0 * (SHORT - 0.1 * spared(SHORT))
    )
    assert fair_surcharge(2.0, 0.0) == 0.0
