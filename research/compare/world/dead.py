"""What a fleet costs whose control plane dies for good: bounded by its own end, and nothing lost.

Each worker alive may finish what it has, idle for its timeout and power off; one that boots may
boot first. That is the most that may be paid after the death, whatever happens to the functions.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from research.compare.source import Part
from research.compare.world.traffic import images
from spindown.domain.offer import CapacityType, extra_price_per_hour
from spindown.domain.policy import Policy
from spindown.simulator import Run
from spindown.simulator.scenario import SimScenario

#: The first hour in which it may die, and how many instances must be alive then.
_AFTER = 3 * 3600.0
_ALIVE = 3
#: Beside the idle timeout: the last long poll, the last commit, and the power going off.
_SLACK = 30.0


def die(seed: int, data: Path, part: Part, policy: Policy) -> Mapping[str, float]:
    """Run busy image requests, kill the functions for good, and see what that costs.

    They die at the first instant after three hours at which at least three instances are alive
    and nothing waits; nothing is sent from then on.
    """
    plain = images(10.0, 0.4)(seed, data, part)
    at = _death(plain, policy, seed)
    cut = tuple(each for each in plain.arrivals if each.at < at)
    run = Run(replace(plain, arrivals=cut, control_down=((at, math.inf),)), policy, seed)
    while run.agenda.seconds < at:
        run.step()
    compute = run.world.compute
    before = {bill.instance_id: bill for bill in compute.bills()}
    alive = [i for i, worker in run.world.workers.items() if worker.ended_at is None]
    allowed = sum(_allowed(run, instance_id) for instance_id in alive)
    result = run.run()
    after = {bill.instance_id: bill for bill in compute.bills()}
    spent = sum(after[i].dollars - before[i].dollars for i in alive)
    kept = len(run.world.queue.bodies())
    return {
        "alive": float(len(alive)),
        "dollars": spent,
        "allowed": allowed,
        "launched": float(len(after) - len(before)),
        "lost_jobs": float(result.jobs - result.jobs_done - kept),
    }


def _death(scenario: SimScenario, policy: Policy, seed: int) -> float:
    run = Run(scenario, policy, seed)
    while not run.is_over:
        run.step()
        is_due = run.agenda.seconds >= _AFTER and run.world.compute.running >= _ALIVE
        if is_due and not run.world.queue.backlog().visible:
            return run.agenda.seconds
    return run.agenda.seconds


def _allowed(run: Run, instance_id: str) -> float:
    """Return the USD that an instance may still cost."""
    worker, scenario = run.world.workers[instance_id], run.scenario
    longest = max(each.work_seconds for each in scenario.arrivals) / worker.speed
    seconds = longest + worker.life.standing.idle_timeout.total_seconds() + _SLACK
    if worker.checked_in_at is None:
        # Five of a thousand boots take longer than this.
        boot = scenario.boot
        seconds += boot.at_least + boot.median * math.exp(2.576 * boot.sigma)
    bills = run.world.compute.bills()
    pool = next(bill.pool for bill in bills if bill.instance_id == instance_id)
    (listing,) = (
        each
        for each in scenario.listings
        if each.instance_type.name == pool.instance_type and pool.zone in each.zones
    )
    dearest = max(price for _, price in listing.zones[pool.zone].spot)
    is_spot = pool.capacity_type is CapacityType.SPOT
    price = dearest if is_spot else listing.on_demand or 0.0
    return seconds / 3600.0 * (price + extra_price_per_hour(scenario.root_volume_gib))
