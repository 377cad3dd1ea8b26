"""A limit that is lowered while work is plentiful is kept within a job, and for no machine more."""

from typing import Any

import pytest

from spindown.control.policy_edit import edit_policy
from spindown.domain.policy import Policy
from spindown.simulator import Run
from spindown.simulator.world import WORKLOAD
from tests.simulator.scene import HOUR, a_scenario, an_arrival

#: A job of ten minutes comes each two minutes: work for five.
ARRIVALS = [an_arrival(at=30.0 + n * 120.0, items=60, item_seconds=10.0) for n in range(120)]


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ({"max_workers": 2}, 2),
        ({"max_dollars_per_hour": 0.5}, 2),
        ({"max_price_per_hour": 0.1}, 0),
    ],
)
def test_a_lowered_limit_holds_after_the_jobs_in_hand(limits: dict[str, Any], left: int) -> None:
    run = Run(a_scenario(*ARRIVALS, length=4 * HOUR), Policy(max_workers=8), 1)
    while run.agenda.seconds < HOUR:
        run.step()
    control = run.world.control
    before, launched = run.world.compute.running, len(run.world.compute.bills())
    edit_policy(WORKLOAD, limits, settings=control.settings, table=run.world.table)
    while run.agenda.seconds < 1.5 * HOUR:
        run.step()

    assert before > 3
    while run.agenda.seconds < 3 * HOUR:
        assert run.world.compute.running <= left
        run.step()
    assert run.world.compute.running == left
    assert len(run.world.compute.bills()) == launched
