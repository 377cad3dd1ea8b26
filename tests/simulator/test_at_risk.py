"""A rebalance recommendation is a hint: it buys nothing, whenever it comes."""

import pytest

from spindown.contract.event import RebalanceRecommendation
from spindown.control.instance_event import react
from spindown.domain.policy import Policy
from spindown.ec2sim import Turn
from spindown.simulator import Run, SimResult
from tests.simulator.scene import DAY, HOUR, REGION, a_listing, a_scenario, an_arrival


def advised(after: float) -> SimResult:
    """Return a day with one job in which EC2 sees a risk for each machine of that age."""
    listings = (a_listing(), a_listing("g6.xlarge", on_demand=0.8))
    run = Run(a_scenario(an_arrival(), listings=listings, length=DAY / 4), Policy(), 1)
    advice = [at * 10.0 for at in range(int(6 * HOUR / 10.0))]

    def advise() -> None:
        now = run.agenda.now
        for instance_id, instance in list(run.world.compute.ec2.instances.items()):
            if (now - instance.launched_at).total_seconds() >= after and instance.state.is_alive:
                event = RebalanceRecommendation(instance_id=instance_id, region=REGION, at=now)
                react(event, run.world.control, holder="advice")

    for at in advice:
        run.agenda.plan_at(at, Turn.EVENT, advise)
    return run.run()


@pytest.mark.parametrize("after", [30.0, 80.0, 300.0])
def test_one_job_needs_one_machine_that_is_at_risk(after: float) -> None:
    result = advised(after)

    # 2,879 machines and $16.41 in two days, and no job begun, while each left at 30 s.
    assert (result.jobs_done, result.launches) == (1, 1)
