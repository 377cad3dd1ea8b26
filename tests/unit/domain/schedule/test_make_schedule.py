"""What start deadlines and finish deadlines ask for together."""

from dataclasses import replace
from typing import Any

import pytest

from spindown.domain.schedule import DeadlineForecast, Schedule, make_schedule, missing
from spindown.domain.spot_or_on_demand import PurchaseMode
from tests.builders import NOW, a_backlog, a_start_plan, a_worker, minutes
from tests.unit.domain.schedule.demand import KNOWLEDGE, POLICY, present

#: Two of five jobs are urgent and spot may be taken back once too often.
URGENT = DeadlineForecast(mode=PurchaseMode.ON_DEMAND, urgent=2)


def joined(
    finish: DeadlineForecast | None = None,
    *,
    visible: int = 5,
    threshold: int | None = 1,
    idle: int = 0,
    **start: Any,
) -> Schedule:
    return make_schedule(
        a_start_plan(**start),
        finish,
        backlog=a_backlog(visible),
        capacity=present([a_worker(f"i-{n}") for n in range(idle)]),
        knowledge=KNOWLEDGE,
        policy=replace(POLICY, scale_up_threshold=threshold),
    )


@pytest.mark.parametrize(
    ("threshold", "slots", "is_planned"),
    [
        pytest.param(6, 0, True, id="few messages are visible"),
        # 500 items within 54 minutes are 556 an hour.
        pytest.param(5, 0, False, id="as many as make a launch due"),
        pytest.param(5, 1, True, id="start deadlines ask for more: 1000 an hour"),
        pytest.param(None, 0, True, id="there is no threshold"),
    ],
)
def test_start_deadlines_rule_few_jobs_or_if_they_ask_for_more(
    threshold: int | None, slots: int, is_planned: bool
) -> None:
    found = joined(threshold=threshold, slots=slots)

    assert (found.start_plan is not None) == is_planned
    throughput = found.demand.need_items_per_hour
    assert throughput == pytest.approx(slots * 1000.0 if is_planned else 500 / 0.9)


@pytest.mark.parametrize("threshold", [None, 1000])
def test_jobs_that_share_no_slot_wait_for_no_others(threshold: int | None) -> None:
    found = joined(threshold=threshold, is_for_one=True, slots=0)

    assert found.start_plan is None
    assert found.demand.need_items_per_hour == pytest.approx(500 / 0.9)


def test_without_a_finish_deadline_the_wait_opens_the_ladder() -> None:
    found = joined(ladder_opens_at=NOW + minutes(3))

    assert (found.ladder_override, found.on_demand_at_most, found.forecast) == (None, None, None)
    assert found.ladder_opens_at == NOW + minutes(3)


def test_urgent_jobs_get_slots_and_no_more_than_these_on_demand() -> None:
    found = joined(URGENT, threshold=99, slots=0)

    assert found.ladder_override is PurchaseMode.ON_DEMAND
    assert found.on_demand_at_most == 2
    assert found.demand.slots == 2
    assert found.start_plan is not None
    assert (found.start_plan.slots, found.start_plan.side_by_side) == (2, 2)


@pytest.mark.parametrize(
    ("idle", "opens", "at_most"),
    [
        pytest.param(1, PurchaseMode.ON_DEMAND, 1, id="one has none"),
        pytest.param(2, PurchaseMode.SPOT, None, id="each has one: the others wait for spot"),
    ],
)
def test_free_slots_are_for_urgent_jobs_first(
    idle: int, opens: PurchaseMode, at_most: int | None
) -> None:
    found = joined(URGENT, idle=idle)

    assert (found.ladder_override, found.on_demand_at_most) == (opens, at_most)


def test_jobs_that_are_not_visible_yet_get_no_slot() -> None:
    assert joined(URGENT, visible=1).on_demand_at_most == 1


def test_deadlines_of_running_jobs_leave_the_ladder_as_it_is() -> None:
    found = joined(DeadlineForecast(), threshold=1)

    assert (found.ladder_override, found.on_demand_at_most) == (None, None)
    assert found.demand == missing(
        backlog=a_backlog(5), capacity=present(), knowledge=KNOWLEDGE, policy=POLICY
    )
