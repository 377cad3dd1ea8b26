"""Run one scenario with one seed under everybody, and keep what a table needs."""

import math
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from statistics import fmean

from research.baseline import ALL, DEADLINE_RULES, simulate_any, simulate_deadline
from research.bound import bought_work, bound, generous, optimal_schedule
from research.compare.case import MAX_WORKERS, Case, deadline_policy, patient_policy
from research.compare.claim.call import counted
from research.compare.claim.rival import AT_ITS_SPEED, ONLY, USUAL_TYPE, cheapest
from research.compare.relaxation import relaxed
from research.compare.source import Part
from research.compare.world.dead import die
from research.compare.world.trouble import noticed
from spindown.simulator import (
    OURS_ON_DEMAND,
    Listing,
    SimResult,
    SimScenario,
    on_demand_only,
    simulate,
)

#: Promises that the table is made for, minutes.
PROMISES = (10.0, 60.0)
#: Scenarios in which what a ranking over types saves is measured.
RANKED = frozenset({"S1", "S5", "S9"})

Figures = Mapping[str, float]


def measure(case: Case, seed: int, data: Path, part: Part) -> Mapping[str, Figures]:
    """Return figures by who or what: ours by promise, each baseline, bounds, single types."""
    scenario = case.scenario(seed, data, part)
    if case.deadline_hours is not None:
        return _measure_deadline(scenario, case.deadline_hours, seed)
    found: dict[str, Mapping[str, float]] = {}
    for minutes in PROMISES if case.is_main else PROMISES[:1]:
        name = f"{minutes:.0f} min"
        found |= _ours(scenario, minutes, seed)
        least = bound(scenario, start_within=minutes * 60.0)
        bounds = {
            "work": least.work,
            "bounded_wait": least.bounded_wait,
            "sparse_wait": least.sparse_wait,
            "zero_wait": least.zero_wait,
            "bought_wait": _as_bought(scenario, minutes),
        }
        tight = None
        if case.is_main:
            tight = relaxed(generous(scenario), start_within=minutes * 60.0)
        if tight is not None:
            bounds |= {
                "relaxed": tight.dollars,
                "relaxed_boots": tight.boots,
                "relaxed_boot_dollars": tight.boot_dollars,
            }
        found[f"bound {name}"] = bounds
    for name, baseline in ALL.items():
        result = simulate_any(scenario, baseline, seed, max_workers=MAX_WORKERS)
        found[name] = _told(result)
    if seed == 1:
        # As dear as ours to run, and told as one factor.
        policy = on_demand_only(patient_policy(PROMISES[0]))
        found[OURS_ON_DEMAND] = _told(simulate(scenario, policy, seed))
        found |= _at_its_speed(scenario, found, seed) if case.is_main else {}
    if case.name == "S8":
        policy = patient_policy(PROMISES[0])
        found["ours, noticed"] = _told(simulate(noticed(scenario), policy, seed))
    if case.name == "S11":
        found["dead"] = dict(die(seed, data, part, patient_policy(PROMISES[0])))
    if case.name in RANKED:
        found |= {
            f"{ONLY}{name}": _told(_alone(scenario, name, seed))
            for name in {USUAL_TYPE, _best_type(scenario)}
        }
    return found


def _ours(scenario: SimScenario, minutes: float, seed: int) -> dict[str, Mapping[str, float]]:
    """Return ours under a promise; with the first seed under the first one its calls as well."""
    policy, name = patient_policy(minutes), f"ours {minutes:.0f} min"
    if seed != 1 or minutes != PROMISES[0]:
        return {name: _told(simulate(scenario, policy, seed))}
    result, calls = counted(scenario, policy, seed)
    return {name: _told(result), "calls": calls}


def _at_its_speed(
    scenario: SimScenario, found: Mapping[str, Figures], seed: int
) -> dict[str, Figures]:
    """Return ours with the speed of the cheapest who keeps the first promise as its own."""
    who = cheapest(found)
    minutes = 0.0 if who is None else found[who]["wait_p95_min"]
    boot = scenario.boot.at_least + scenario.boot.median
    if minutes * 60.0 <= boot:
        return {}
    return {AT_ITS_SPEED: _told(simulate(scenario, patient_policy(minutes), seed))}


def _as_bought(scenario: SimScenario, minutes: float) -> float:
    """Return the sparse bound if every hour were charged, and each job stayed on one pool."""
    within = minutes * 60.0
    charged = bound(scenario, start_within=within, is_refunded=False)
    work = max(charged.work, bought_work(scenario, start_within=within))
    return charged.sparse_wait - charged.work + work


def _measure_deadline(scenario: SimScenario, hours: float, seed: int) -> Mapping[str, Figures]:
    deadline = hours * 3600.0
    found = {"ours": _told(simulate(scenario, deadline_policy(timedelta(hours=hours)), seed))}
    for name, rule in DEADLINE_RULES.items():
        result = simulate_deadline(scenario, rule, deadline=deadline, seed=seed)
        found[name] = _told(result)
    found["bound"] = {
        "dollars": optimal_schedule(scenario, deadline=deadline),
        "charged": optimal_schedule(scenario, deadline=deadline, is_refunded=False),
    }
    return found


def _best_type(scenario: SimScenario) -> str:
    """Return the type whose work costs least as spot, by the mean of its cheapest zone."""

    def price(listing: Listing) -> float:
        zones = [fmean(p for _, p in zone.spot) for zone in listing.zones.values() if zone.spot]
        return min(zones, default=math.inf) / scenario.throughput(listing)

    return min(scenario.listings, key=price).instance_type.name


def _alone(scenario: SimScenario, name: str, seed: int) -> SimResult:
    """Run the shipped policy on one type alone, in all its zones, as spot."""
    sold = tuple(each for each in scenario.listings if each.instance_type.name == name)
    return simulate(replace(scenario, listings=sold), patient_policy(PROMISES[0]), seed)


def _told(result: SimResult) -> dict[str, float]:
    return {
        "dollars": result.dollars,
        "work_hours": result.work_seconds / 3600.0,
        "billed_hours": result.billed_seconds / 3600.0,
        "wait_p50_min": result.wait.p50 / 60.0,
        "wait_p95_min": result.wait.p95 / 60.0,
        **{
            f"stay_{which}_min": getattr(result.sojourn, which) / 60.0
            for which in ("mean", "p95", "p99")
        },
        **{f"stood_{which}_min": getattr(result.stood, which) / 60.0 for which in ("p50", "p95")},
        "done_hours": result.sojourn.most / 3600.0,
        "jobs": float(result.jobs),
        "lost_jobs": float(result.jobs - result.jobs_done),
        "items": float(result.items),
        "busy_hours": result.busy_seconds / 3600.0,
        "redo_hours": result.redo_seconds / 3600.0,
        "refusals": float(result.refusals),
        "launches": float(result.launches),
        "interruptions": float(result.interruptions),
        "on_demand_dollars": result.on_demand_dollars,
        **{f"share_{cause}": part / result.dollars for cause, part in result.bill.items()},
    }
