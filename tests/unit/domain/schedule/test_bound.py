"""What cuts the number of launches, and by what name it is told."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.domain.fleet import WorkerState
from spindown.domain.machine_count import Bounds, share_places, vcpus_left
from spindown.domain.reason import ReasonCode
from spindown.domain.schedule import missing
from tests.builders import NOW, SPOT, a_backlog, a_ranking, a_type, a_worker, an_offer, minutes
from tests.unit.domain.schedule.demand import KNOWLEDGE, POLICY, present, sized


@pytest.mark.parametrize(
    ("bounds", "wanted", "bound"),
    [
        pytest.param({}, 3, "", id="none"),
        pytest.param({"budget_workers": 0.0}, 0, "budget", id="budget is used up"),
        pytest.param({"headroom_per_hour": 0.44}, 2, "max_dollars_per_hour", id="dollars an hour"),
        pytest.param({"quota_vcpus_left": 7.0}, 1, "quota", id="quota"),
        pytest.param(
            {"quota_vcpus_left": 7.0, "headroom_per_hour": 0.1},
            0,
            "max_dollars_per_hour",
            id="the tightest",
        ),
        pytest.param({"quota_vcpus_left": 12.0}, 3, "", id="just enough"),
        pytest.param(
            {"headroom_per_hour": 0.1, "is_on_test": True},
            0,
            "max_dollars_per_hour",
            id="no test without room",
        ),
    ],
)
def test_bounds_cut_what_is_wanted_and_are_named(
    bounds: dict[str, Any], wanted: int, bound: str
) -> None:
    found = sized(20, bounds=Bounds(**bounds))

    assert (found.allowed, found.wanted, found.bound) == (wanted, 3, bound)
    assert found.reason.about.get("bound", "") == bound


def test_a_budget_pays_for_whole_workers() -> None:
    demand = missing(backlog=a_backlog(20), capacity=present(), knowledge=KNOWLEDGE, policy=POLICY)
    best = a_ranking([an_offer()], demand=demand, knowledge=KNOWLEDGE, policy=POLICY).best
    assert best is not None

    assert sized(20, bounds=Bounds(budget_workers=2.5)).allowed == 2


def test_budget_comes_before_start_within() -> None:
    found = sized(20, waited=timedelta(hours=9), bounds=Bounds(budget_workers=0.0))

    assert found.allowed == 0


def test_max_workers_counts_the_live_and_not_the_interrupted() -> None:
    policy = replace(POLICY, max_workers=2)
    live = a_worker("i-1", state=WorkerState.BUSY, busy_slots=1)
    leaving = a_worker("i-2", interrupted_at=NOW + minutes(1), noticed_at=NOW)

    found = sized(50, [live, leaving], policy=policy)

    assert (found.allowed, found.bound) == (1, "max_workers")


def test_more_workers_than_allowed_want_nothing() -> None:
    policy = replace(POLICY, max_workers=1)
    fleet = [a_worker(f"i-{n}", state=WorkerState.BUSY, busy_slots=1) for n in range(3)]

    assert sized(500, fleet, policy=policy).allowed == 0


def test_says_so_when_no_offer_fits() -> None:
    found = sized(20, best=None)

    assert (found.allowed, found.bound) == (0, "offers")
    assert found.wanted == 1
    # Of what the need is; the ranking says why no offer fits.
    assert found.reason.code is ReasonCode.THROUGHPUT_MISSING


def test_a_quota_counts_all_that_ec2_has_not_taken_back() -> None:
    kinds = {"g4dn.xlarge": a_type()}
    fleet = [
        a_worker("i-1"),
        a_worker("i-2", interrupted_at=NOW, noticed_at=NOW),
        a_worker("i-3", state=WorkerState.CONDEMNED),
        a_worker("i-4", state=WorkerState.ENDED),
        a_worker("i-5", region="eu-west-1"),
        a_worker("i-6", instance_type="unknown"),
    ]

    assert vcpus_left({"us-west-2/G/Spot": 20.0, "us-west-2/P/Spot": 8.0}, fleet, kinds) == {
        "us-west-2/G/Spot": 8.0,
        "us-west-2/P/Spot": 8.0,
    }
    assert fleet[0].capacity_type is SPOT


def test_a_version_on_test_gets_one_machine() -> None:
    found = sized(20, bounds=Bounds(is_on_test=True))

    assert (found.allowed, found.wanted, found.bound) == (1, 3, "test")


def test_each_shape_gets_a_place_before_any_gets_all() -> None:
    many, one, none = sized(20), replace(sized(20), allowed=1), replace(sized(20), allowed=0)

    assert share_places([many, one, none], 4) == [many, one, none]
    shared = share_places([many, one, none], 3)
    assert [(each.allowed, each.bound) for each in shared] == [(2, "shape"), (1, ""), (0, "")]
