"""Ticks of an idle deployment are left out of a simulation, and nothing comes of it."""

from dataclasses import asdict, replace
from datetime import timedelta

import pytest

from spindown.domain.policy import Policy
from spindown.simulator import Run, SimResult
from spindown.simulator.run import QUIET
from spindown.simulator.sample import office_batches, sample_market
from tests.simulator.scene import DAY, a_listing, a_scenario, a_zone

#: What counts the ticks themselves; everything else is of the world and the policy.
_OF_TICKS = frozenset({"ticks", "events", "digest", "samples"})


def flat(result: SimResult) -> dict[str, float]:
    """Return the figures of a run, those within others too."""
    found: dict[str, float] = {}
    for name, value in asdict(result).items():
        if isinstance(value, dict):
            found |= {f"{name}.{key}": each for key, each in value.items()}
        elif name not in _OF_TICKS and not isinstance(value, str):
            found[name] = value
    return found


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.proof)])
@pytest.mark.parametrize("is_rough", [False, True], ids=["calm market", "reclaims"])
def test_a_tick_of_an_idle_deployment_decides_nothing(seed: int, *, is_rough: bool) -> None:
    rough = a_listing(zones={"us-west-2a": a_zone(reclaims_per_hour=2.0)})
    scenario = replace(
        a_scenario(),
        arrivals=office_batches(seed=seed, days=1, work_hours=3.0, gap_minutes=20.0),
        listings=(rough,) if is_rough else sample_market(seed=seed, days=1),
        notice_missing=0.3,
        length=DAY,
    )
    policy = Policy(start_within=timedelta(minutes=4), drain_within=timedelta(minutes=8))

    every_minute = Run(scenario, policy, seed, quiet=timedelta(minutes=1)).run()
    seldom = Run(scenario, policy, seed, quiet=QUIET).run()

    assert flat(seldom) == pytest.approx(flat(every_minute), rel=1e-9)
    assert seldom.ticks < every_minute.ticks / 2
    assert every_minute.jobs_done == every_minute.jobs
