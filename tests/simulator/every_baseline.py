"""What every baseline does, the shipped ones and the rare ones of the comparison."""

from collections.abc import Callable

import pytest

from spindown.simulator import Baseline, SimResult, SimScenario
from spindown.simulator.sample import office_batches, sample_market
from tests.simulator.scene import a_scenario, an_arrival

#: A scenario -> what it comes to.
Simulate = Callable[[SimScenario], SimResult]


def taken_often() -> SimScenario:
    """Return a day of which EC2 takes back twenty times as much as usual, often unannounced."""
    return a_scenario(
        *office_batches(seed=3, days=1, work_hours=4),
        listings=sample_market(seed=3, days=1, reclaims=20.0),
        notice_missing=0.3,
    )


def does_all_work_and_replays(run: Simulate) -> SimResult:
    """Do all work though EC2 takes machines back, and the same of the same seed."""
    result, again = (run(taken_often()) for _ in range(2))

    assert (result.jobs_done, result.items_done) == (result.jobs, result.items)
    assert sum(result.bill.values()) == pytest.approx(result.dollars)
    assert result.samples[-1].dollars == pytest.approx(result.dollars, rel=0.02)
    assert result.to_json() == again.to_json()
    return result


def has_slots_as_ours(run: Simulate, baseline: Baseline) -> None:
    """Do eight jobs of ten minutes on two machines of four slots.

    A machine for one job gives it all four, and is done with it in a quarter of the time.
    """
    result = run(a_scenario(*(an_arrival(at=30.0) for _ in range(8)), slots="4"))

    assert result.jobs_done == 8
    is_apart = baseline.one_slot
    assert result.busy_seconds == pytest.approx(8 * 150 if is_apart else 8 * 600 / 4)
    assert sum(result.bill.values()) == pytest.approx(result.dollars)
    if not baseline.least and not is_apart:
        assert result.launches == 2
