"""What a deadline asks for: to wait, to buy, to move, by the slack of a job."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.learning import Knowledge, PoolRecord, ThroughputRecord
from spindown.domain.offer import CapacityType
from spindown.domain.schedule import TimeReserve, judge, reserve_of
from spindown.domain.spot_or_on_demand import PurchaseMode
from tests.builders import NOW, ON_DEMAND, SPOT, a_policy, a_pool, minutes
from tests.unit.domain.schedule.unfinished import RESERVE, a_job


@pytest.mark.parametrize(
    ("slack", "mode"),
    [
        pytest.param(41, PurchaseMode.SPOT, id="3 changes and 1 loss in 10 h are 40 min"),
        pytest.param(40, PurchaseMode.ANY, id="what is held back is used up"),
        pytest.param(20.1, PurchaseMode.ANY, id="still more than two changes"),
        pytest.param(20, PurchaseMode.ON_DEMAND, id="two changes"),
        pytest.param(-600, PurchaseMode.ON_DEMAND, id="too late for anything"),
    ],
)
def test_a_job_waits_for_spot_until_its_slack_covers_losses(
    slack: float, mode: PurchaseMode
) -> None:
    assert judge(a_job(slack), RESERVE, NOW).mode is mode


@pytest.mark.parametrize(
    ("on", "slack", "moves_to"),
    [
        pytest.param(ON_DEMAND, 30, SPOT, id="back to spot from three changes on"),
        pytest.param(ON_DEMAND, 29.9, None, id="not with less"),
        pytest.param(SPOT, 30, SPOT, id="to cheaper spot, if there is any"),
        pytest.param(SPOT, 29.9, None, id="stays where it is"),
        pytest.param(SPOT, 10, None, id="can lose one change yet"),
        pytest.param(SPOT, 9.9, ON_DEMAND, id="cannot"),
        pytest.param(ON_DEMAND, -60, None, id="nothing is surer than on demand"),
        pytest.param(None, 600, None, id="what waits is not moved"),
    ],
)
def test_a_job_that_runs_moves_by_its_slack(
    on: CapacityType | None, slack: float, moves_to: CapacityType | None
) -> None:
    assert judge(a_job(slack, on=on), RESERVE, NOW).moves_to is moves_to


def test_less_work_holds_back_less() -> None:
    assert judge(a_job(35, work=10.0), RESERVE, NOW).mode is PurchaseMode.ANY
    assert judge(a_job(35, work=1.0), RESERVE, NOW).mode is PurchaseMode.SPOT


def test_a_wait_ends_when_its_purchase_mode_changes() -> None:
    job = a_job(90)

    verdict = judge(job, RESERVE, NOW)

    assert verdict.waits_until == NOW + minutes(50)
    assert judge(job, RESERVE, verdict.waits_until).mode is PurchaseMode.ANY
    assert judge(job, RESERVE, verdict.waits_until - minutes(1)).mode is PurchaseMode.SPOT


def test_a_change_is_a_slow_boot_two_ticks_and_repeated_work() -> None:
    policy = a_policy(checkpoint_interval=minutes(2.5))
    knowledge = Knowledge(boots=(180.0,))

    reserve = reserve_of(knowledge, policy)
    assert (reserve.change, reserve.redone) == (minutes(7.5), minutes(2.5))


def test_no_more_is_held_back_than_a_job_has_to_lose() -> None:
    reserve = TimeReserve(change=minutes(35), redone=minutes(30), rate=0.0)
    # Six minutes of work: a change takes 11 minutes of it, not 35.
    slacks = (33.1, 33, 22.1, 22)
    modes = [judge(a_job(slack, work=0.1), reserve, NOW).mode for slack in slacks]
    held = a_job(19.9, work=0.1, on=SPOT, held=minutes(9))

    assert modes == [PurchaseMode.SPOT, PurchaseMode.ANY, PurchaseMode.ANY, PurchaseMode.ON_DEMAND]
    assert judge(held, reserve, NOW).moves_to is ON_DEMAND
    assert judge(replace(held, held=minutes(8)), reserve, NOW).moves_to is None
    assert judge(a_job(34.9, on=SPOT), reserve, NOW).moves_to is ON_DEMAND


def test_an_item_longer_than_a_checkpoint_may_be_lost_whole() -> None:
    policy = a_policy(checkpoint_interval=minutes(2.5))
    record = ThroughputRecord(items=60.0, hours=20.0, reports=60)
    knowledge = Knowledge(boots=(180.0,), throughput={("T4", 1.0): record})

    # Three items an hour.
    assert reserve_of(knowledge, policy).change == pytest.approx(minutes(25), rel=0.01)


def test_the_losses_to_expect_are_those_of_all_spot_pools() -> None:
    pools = {
        a_pool(): PoolRecord(interruptions=3.0, hours=6.0),
        a_pool("g5.xlarge"): PoolRecord(interruptions=0.0, hours=0.0),
    }

    assert reserve_of(Knowledge(pools=pools), a_policy()).rate == pytest.approx(0.1, rel=0.01)


@given(
    slacks=st.lists(st.floats(-100, 500), min_size=1, max_size=8),
    on=st.sampled_from([None, SPOT, ON_DEMAND]),
)
def test_less_slack_never_asks_for_less(slacks: list[float], on: CapacityType | None) -> None:
    order = [PurchaseMode.SPOT, PurchaseMode.ANY, PurchaseMode.ON_DEMAND]
    found = [judge(a_job(slack, on=on), RESERVE, NOW) for slack in sorted(slacks)]

    ranks = [order.index(each.mode) for each in found]
    assert ranks == sorted(ranks, reverse=True)
