import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.machine_count import Load, share_work
from spindown.domain.notice_time import free_hours
from spindown.domain.policy import Policy
from spindown.domain.ranking.charged_hours import (
    REFUND_SHARE_AT_MOST,
    Overhead,
    charged_hours,
    pace,
    worker_hours,
)
from tests.builders import a_demand, minutes

POLICY = Policy(checkpoint_interval=minutes(15))
RARE = minutes(600)
OVERHEAD = Overhead(boot=0.05, idle=0.05, checkpoint=0.005, policy=POLICY)
LOAD = Load(items_per_hour=1000.0, workers=1, items=2000.0, slot_items_per_hour=1000.0)


def test_the_worked_example_without_interruptions() -> None:
    hours = worker_hours(LOAD, OVERHEAD, 0.0)

    assert (hours.work, hours.boot, hours.idle, hours.refund) == (2.0, 0.05, 0.05, 0.0)
    assert hours.redo == pytest.approx(0.04)
    assert hours.charged == pytest.approx(2.14)
    assert 0.23 * hours.charged / 2000 == pytest.approx(0.00024610, abs=5e-9)


def test_the_worked_example_with_interruptions() -> None:
    hours = worker_hours(LOAD, OVERHEAD, 0.5)

    assert hours.lived == pytest.approx(2.324306, abs=5e-7)
    assert hours.refund == pytest.approx(0.073722, abs=5e-7)
    assert 0.23 * hours.charged / 2000 == pytest.approx(0.00025882, abs=5e-9)


def test_a_refund_below_its_limit_counts_in_full() -> None:
    # With dear checkpoints and little boot, most of the interruptions' cost is redone work.
    overhead = Overhead(boot=1.0, idle=0.0, checkpoint=0.005, policy=POLICY)

    hours = worker_hours(LOAD, overhead, 0.5)

    assert hours.refund == pytest.approx(0.180408, abs=5e-7)


def test_of_a_short_life_only_the_hours_lived_can_be_free() -> None:
    # 18 minutes of work under checkpoints of ten hours.
    rare = Overhead(boot=0.1, idle=0.1, checkpoint=0.005, policy=Policy(checkpoint_interval=RARE))
    short = Load(items_per_hour=1000.0, workers=1, items=300.0, slot_items_per_hour=1000.0)

    hours = worker_hours(short, rare, 0.1)

    assert 0.5 < hours.lived < 0.9
    assert hours.refund == pytest.approx(free_hours(0.1, hours.lived))


def test_a_checkpoint_at_every_item_has_an_interval() -> None:
    # An item is 0.001 h, a checkpoint too.
    for items in (0, 1):
        policy = Policy(checkpoint_items=items)
        overhead = Overhead(boot=0.05, idle=0.05, checkpoint=0.001, policy=policy)
        assert pace(LOAD, overhead, 0.0)[0] == pytest.approx(2.0)


def test_a_checkpoint_every_n_items_bounds_the_interval() -> None:
    overhead = Overhead(boot=0.05, idle=0.05, checkpoint=0.001, policy=Policy(checkpoint_items=10))

    # 10 items at 1000 an hour are 0.01 h.
    assert list(pace(LOAD, overhead, 0.0)) == pytest.approx([1.1, 1.1])


overheads = st.builds(
    Overhead,
    boot=st.floats(0.0, 1.0),
    idle=st.floats(0.0, 1.0),
    checkpoint=st.floats(0.0, 0.1),
    policy=st.sampled_from(
        [Policy(), POLICY, Policy(checkpoint_items=20), Policy(checkpoint_interval=minutes(2))]
    ),
)
loads = st.builds(
    Load,
    items_per_hour=st.floats(1.0, 1e5),
    workers=st.just(1),
    items=st.floats(1.0, 1e6),
    slot_items_per_hour=st.floats(1.0, 1e5),
)


@given(load=loads, overhead=overheads, rate=st.floats(0.0, 20.0))
def test_both_ways_to_the_charged_hours_agree(load: Load, overhead: Overhead, rate: float) -> None:
    rest = overhead.boot + overhead.idle
    quick = charged_hours(load.work_hours, rest, rate, pace(load, overhead, rate))

    assert quick == pytest.approx(worker_hours(load, overhead, rate).charged, rel=1e-9)


@given(load=loads, overhead=overheads, rate=st.floats(0.0, 20.0), more=st.floats(1.001, 100.0))
def test_a_pool_that_is_reclaimed_more_never_costs_less(
    load: Load, overhead: Overhead, rate: float, more: float
) -> None:
    calmer, hotter = worker_hours(load, overhead, rate), worker_hours(load, overhead, rate * more)

    assert hotter.charged >= calmer.charged * (1 - 1e-9)


@given(load=loads, overhead=overheads, rate=st.floats(0.0, 20.0))
def test_no_part_is_negative_and_the_refund_keeps_its_limit(
    load: Load, overhead: Overhead, rate: float
) -> None:
    hours = worker_hours(load, overhead, rate)

    assert min(hours.work, hours.redo, hours.boot, hours.idle, hours.refund) >= 0.0
    assert hours.refund <= REFUND_SHARE_AT_MOST * hours.redo * (1 + 1e-9)
    assert hours.charged >= hours.work


@pytest.mark.parametrize(
    ("demand", "rate", "slots", "workers", "items", "useful"),
    [
        pytest.param({}, 1000.0, 1, 2, 1000.0, 1000.0, id="two share the backlog"),
        pytest.param({}, 5000.0, 1, 1, 2000.0, 5000.0, id="one is enough"),
        pytest.param({"jobs": 1}, 100.0, 1, 1, 2000.0, 100.0, id="one job, one worker"),
        pytest.param(
            {"backlog_items": 50.0}, 100.0, 1, 20, 100.0, 100.0, id="never below one job's items"
        ),
        pytest.param({"need_items_per_hour": -5.0}, 10.0, 1, 1, 2000.0, 10.0, id="at least one"),
        pytest.param({}, 1000.0, 4, 2, 1000.0, 1000.0, id="four jobs at once"),
        pytest.param({"jobs": 8}, 100.0, 4, 2, 1000.0, 100.0, id="no instance without a job"),
        pytest.param({"jobs": 1}, 4000.0, 4, 1, 2000.0, 1000.0, id="one job, one slot of four"),
        pytest.param({"jobs": 0}, 1000.0, 1, 1, 2000.0, 1000.0, id="kept warm, no job yet"),
        pytest.param({"slots": 8}, 9000.0, 4, 2, 1000.0, 9000.0, id="eight side by side"),
    ],
)
def test_the_backlog_is_shared_among_the_workers_it_needs(
    demand: dict[str, float], rate: float, slots: int, workers: int, items: float, useful: float
) -> None:
    load = share_work(a_demand(**demand), rate, slots)

    assert (load.workers, load.items, load.items_per_hour) == (workers, items, useful)
    assert load.slot_items_per_hour == rate / slots


def test_a_worker_does_an_item_at_least() -> None:
    crumb = a_demand(backlog_items=0.5, items_per_job=0.5, jobs=1)

    assert share_work(crumb, 1000.0, 1).items == 1.0
