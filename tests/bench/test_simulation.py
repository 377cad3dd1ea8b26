"""What a simulated month says of the shipped policy, and how fast it says it.

Figures of two kinds. Of the policy: dollars and waits against what people run instead, on traffic
and a market of our own making. Of the simulator: wall time of months, which is that of the shipped
code itself, since all of it runs. Read them beside docs/bench; nothing here is tuned to pass.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from time import perf_counter

import pytest

from spindown.domain.policy import Policy
from spindown.simulator import BASELINES, SimResult, SimScenario, simulate, simulate_baseline
from spindown.simulator.sample import daily_stream, office_batches, sample_market
from spindown.simulator.scenario import DAY
from tests.bench.record import record

pytestmark = pytest.mark.bench

#: A drain target that keeps the 95th percentile of the waits near ten minutes.
PROMPT = Policy(drain_within=timedelta(minutes=8), start_within=timedelta(minutes=4))


def an_office_month(seed: int = 1) -> SimScenario:
    return SimScenario(
        name="office month",
        arrivals=office_batches(seed=seed),
        listings=sample_market(seed=seed),
        length=30 * DAY,
    )


def timed(call: Callable[[], SimResult]) -> tuple[SimResult, float]:
    start = perf_counter()
    return call(), perf_counter() - start


def told(result: SimResult) -> dict[str, float | int | str]:
    return {
        "dollars": round(result.dollars, 2),
        "billed_hours": round(result.billed_seconds / 3600, 1),
        "work_hours": round(result.work_seconds / 3600, 1),
        "wait_p50_min": round(result.wait.p50 / 60, 1),
        "wait_p95_min": round(result.wait.p95 / 60, 1),
        "launches": result.launches,
        **{
            f"share_{cause}": round(part / result.dollars, 3) for cause, part in result.bill.items()
        },
    }


def test_an_office_month_against_what_people_run() -> None:
    scenario = an_office_month()
    warm = simulate_baseline(scenario, BASELINES["warm"], 1)
    classic = simulate_baseline(scenario, BASELINES["classic-alarm"], 1)
    prompt, prompt_wall = timed(lambda: simulate(scenario, PROMPT, 1))
    patient, patient_wall = timed(lambda: simulate(scenario, Policy(), 1))

    named = {"warm": warm, "classic": classic, "prompt": prompt, "patient": patient}
    figures = {
        f"{name}_{key}": value for name, each in named.items() for key, value in told(each).items()
    }
    record(
        "simulation",
        {
            **figures,
            "warm_over_prompt": round(warm.dollars / prompt.dollars, 2),
            "classic_over_prompt": round(classic.dollars / prompt.dollars, 2),
            "prompt_wall_s": round(prompt_wall, 1),
            "patient_wall_s": round(patient_wall, 1),
        },
    )
    assert all(each.jobs_done == each.jobs for each in named.values())
    assert warm.dollars / prompt.dollars >= 11
    assert classic.dollars / prompt.dollars >= 1.8


def test_days_of_four_thousand_jobs() -> None:
    days = 3
    scenario = SimScenario(
        name="stream",
        arrivals=daily_stream(seed=1, days=days),
        listings=sample_market(seed=1, days=days),
        length=days * DAY,
    )
    policy = replace(PROMPT, max_workers=64)
    result, wall = timed(lambda: simulate(scenario, policy, 1))

    record(
        "simulation_speed",
        {
            **told(result),
            "jobs": result.jobs,
            "events": result.events,
            "ticks": result.ticks,
            "wall_s": round(wall, 1),
            "events_a_second": round(result.events / wall),
            "thirty_days_s": round(wall * 30 / days),
        },
    )
    assert result.jobs_done == result.jobs
