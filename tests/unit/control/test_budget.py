"""What launches may take: each request counts at the dearest offer of its band."""

from dataclasses import replace

import pytest

from spindown.control.plan.launch_allowance import LaunchAllowance, affordable
from spindown.control.plan.launch_request import PlannedRequest
from spindown.domain.budget import LaunchBudget, worker_lifetimes
from spindown.domain.learning import Knowledge
from spindown.domain.offer import InstanceRequirements
from spindown.domain.ranking import rank
from tests.builders import NOW, a_demand, a_policy, an_offer, minutes

BUDGET = LaunchBudget(
    month_usd=2.0, left_usd=2.0, lifetimes=worker_lifetimes(Knowledge(), a_policy())
)
WHOLE = LaunchAllowance(workers=5, per_hour=1.0, budget=BUDGET, calls={"us-west-2": 3})


def a_request(count: int) -> PlannedRequest:
    """Return a request for spot at 0.22 and at 0.23 USD/h."""
    cheap = an_offer()
    offers = (cheap, replace(cheap, zone="us-west-2b", instance_price=0.21))
    found = rank(
        offers,
        demand=a_demand(),
        knowledge=Knowledge(),
        pool_cooldowns=[],
        policy=a_policy(),
        requirements=InstanceRequirements(),
        waited=minutes(0),
        now=NOW,
    )
    band = found.top(2)
    reserved = WHOLE.reserved(band, count)
    return PlannedRequest(band=tuple(band), count=count, reserved_usd=reserved)


def test_a_request_takes_what_its_dearest_offer_costs() -> None:
    request = a_request(3)

    left = WHOLE.after(request.band, 3)

    assert left.workers == 2
    assert left.per_hour == pytest.approx(1.0 - 3 * 0.23)
    assert left.budget is not None
    assert left.budget.left_usd == pytest.approx(2.0 - request.reserved_usd)
    assert left.calls == {"us-west-2": 4}


def test_a_refused_request_takes_only_a_call() -> None:
    assert WHOLE.after(a_request(3).band, 0) == replace(WHOLE, calls={"us-west-2": 4})


def test_so_many_are_affordable_as_the_dearest_offer_allows() -> None:
    band = a_request(1).band
    tight = replace(WHOLE, per_hour=4 * 0.22, budget=None)

    assert affordable(band, tight) == (list(band), 3)
    assert affordable(band, replace(tight, per_hour=0.225)) == ([band[0]], 1)
    assert affordable(band, replace(tight, per_hour=0.1))[0] == []
