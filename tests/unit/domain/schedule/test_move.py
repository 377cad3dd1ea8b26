"""When it pays to move a job to a cheaper machine."""

import pytest

from spindown.domain.policy import Policy
from spindown.domain.schedule import TimeReserve, judge, pays_at
from tests.builders import NOW, ON_DEMAND, minutes
from tests.unit.domain.schedule.unfinished import RESERVE, a_job


def test_moving_pays_when_the_saving_outlives_the_move() -> None:
    verdict = judge(a_job(600, work=5.0, on=ON_DEMAND), RESERVE, NOW)
    # 5 h of work; a change of a sixth of an hour; a band of 5 %.
    expected = 0.95 * 0.03 * (5 - 1 / 6) / (5 + 1 / 6)

    assert pays_at(verdict, 0.03, RESERVE, Policy()) == pytest.approx(expected)


def test_moving_never_pays_for_less_work_than_a_change_takes() -> None:
    verdict = judge(a_job(600, work=0.1, on=ON_DEMAND), RESERVE, NOW)

    assert pays_at(verdict, 100.0, RESERVE, Policy()) == 0.0


@pytest.mark.parametrize(
    ("rate", "hours"),
    [
        pytest.param(0.0, 40.0, id="never: until the work is done"),
        pytest.param(0.01, 40.0, id="after the work is done"),
        pytest.param(0.1, 10.0, id="after 10 h"),
        pytest.param(1.0, 1.0, id="after an hour"),
    ],
)
def test_spot_that_is_taken_back_saves_for_no_longer(rate: float, hours: float) -> None:
    reserve = TimeReserve(change=minutes(10), rate=rate)
    verdict = judge(a_job(600, work=40.0, on=ON_DEMAND), reserve, NOW)

    limit = pays_at(verdict, 1.0, reserve, Policy())

    assert limit == pytest.approx(0.95 * (hours - 1 / 6) / (hours + 1 / 6))
