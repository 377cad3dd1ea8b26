"""What a deadline could do for the long jobs of a history."""

from dataclasses import dataclass, replace
from datetime import timedelta
from statistics import median
from typing import Any

from spindown.cli.advise.search import AdvisedSettings, Trial
from spindown.cli.history.gather import Gathered
from spindown.cli.simulate.table import format_wait
from spindown.config import format_duration
from spindown.domain.advice import LongJobs, find_long_jobs
from spindown.domain.offer import CapacityType, slot_count
from spindown.domain.policy import Policy
from spindown.simulator import Arrival, SimResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Postponed:
    """The long jobs, and the advised settings simulated with a deadline for all jobs."""

    long: LongJobs
    result: SimResult


def long_jobs(trial: Trial, gathered: Gathered, months: float) -> LongJobs | None:
    """Return the long jobs of a trial; None: none, or its policy gives a deadline nothing to do."""
    policy = trial.settings.policy
    counts = trial.result.types
    if policy.finish_within is not None or not _opens_on_demand(policy) or not counts:
        return None
    name = max(counts, key=lambda each: counts[each])
    listing = next(x for x in gathered.prices.listings if x.instance_type.name == name)
    spot = [price for zone in listing.zones.values() for _, price in zone.spot]
    if listing.on_demand is None or not spot:
        return None
    found = find_long_jobs(
        [_seconds(each, policy, listing.speed) for each in gathered.traffic.arrivals],
        months=months,
        spot=median(spot),
        on_demand=listing.on_demand,
    )
    if found is None:
        return None
    # Of a machine of several slots a job pays its share.
    slots = slot_count(listing.instance_type.gpu_count, gathered.subject.slots)
    return replace(found, more_an_hour=found.more_an_hour / slots)


def with_deadline(settings: AdvisedSettings, long: LongJobs) -> AdvisedSettings:
    """Return settings with the deadline that leaves long jobs time to wait."""
    return replace(settings, policy=replace(settings.policy, finish_within=long.within))


def say_postponed(postponed: Postponed, policy: Policy, months: float) -> str:
    """Say what a deadline would do, with its figures."""
    long, result = postponed.long, postponed.result
    within = format_duration(long.within)
    after = format_duration(_opens_after(policy))
    return (
        f"{long.jobs:,.0f} jobs a month take an hour or more, {long.hours:,.0f} hours in all, the "
        f"longest {format_wait(long.longest.total_seconds())}. No history says by when they must "
        f"be done. If {within} after they were sent is soon enough, finish_within={within} lets "
        f"them wait for spot where otherwise on-demand is bought within {after}: that spares "
        f"${long.more_an_hour:,.2f} an hour of such work, ${long.more_a_month:,.2f} a month if "
        "there were no spot for any of it. Simulated here, where spot never runs out, the month "
        f"costs ${result.dollars / months:,.2f} with it, and the last job is done after "
        f"{format_wait(result.sojourn.most)}."
    )


def postponed_to_json(postponed: Postponed, months: float) -> dict[str, Any]:
    """Return the same for programs."""
    long, result = postponed.long, postponed.result
    return {
        "jobs_a_month": long.jobs,
        "hours_a_month": long.hours,
        "longest_seconds": long.longest.total_seconds(),
        "finish_within": format_duration(long.within),
        "spared_an_hour": long.more_an_hour,
        "spared_a_month_at_most": long.more_a_month,
        "dollars_a_month": result.dollars / months,
        "finished_within_seconds": result.sojourn.most,
    }


def _seconds(arrival: Arrival, policy: Policy, speed: float) -> float:
    """Return how long a job takes, as the children that it is split into."""
    return min(arrival.items, policy.max_items_per_job) * arrival.item_seconds / speed


def _opens_on_demand(policy: Policy) -> bool:
    """Tell whether on-demand is bought after a wait, and not at once or never."""
    kinds = [rung.capacity_types for rung in policy.ladder]
    return any(CapacityType.ON_DEMAND in each for each in kinds[1:]) and (
        CapacityType.ON_DEMAND not in kinds[0]
    )


def _opens_after(policy: Policy) -> timedelta:
    """Return the longest wait before on-demand is bought: `start_within` opens every rung."""
    afters = [x.after for x in policy.ladder if CapacityType.ON_DEMAND in x.capacity_types]
    return min(*afters, policy.start_within)
