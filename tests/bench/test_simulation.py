"""What a simulated month says of the shipped policy, and how fast it says it.

Figures of two kinds. Of the policy: dollars and waits against what people run instead, on traffic
and a market of our own making. Of the simulator: the time of a month, which is that of the shipped
code itself, since all of it runs: an event is a heartbeat, a claim, a commit or a tick of a
fleet of twenty, each a few conditional writes, so that no simulator that runs them can do 200,000
events a second; ``profile_...`` says where the time goes (ADR 32). Read them beside
docs/bench; nothing here is tuned to pass. Times are of the processor, since a simulation waits for
nothing; on a machine that others use they are still up to twice what they are on a quiet one.
"""

from collections import Counter
from collections.abc import Callable
from cProfile import Profile
from datetime import timedelta
from pstats import Stats
from time import process_time

import pytest

from spindown.cli.history.gather import default_subject
from spindown.domain.policy import Policy
from spindown.simulator import BASELINES, SimResult, SimScenario, simulate, simulate_baseline
from spindown.simulator.sample import daily_stream, office_batches, sample_market
from spindown.simulator.scenario import DAY
from tests.bench.record import record

pytestmark = pytest.mark.bench

#: The promise under which what people run is compared (docs/benchmarks.md).
TEN_MINUTES = Policy(start_within=timedelta(minutes=10), drain_within=timedelta(minutes=20))


def an_office_month() -> SimScenario:
    return SimScenario(
        name="office month",
        arrivals=office_batches(seed=1),
        listings=sample_market(seed=1),
        length=30 * DAY,
    )


def timed(call: Callable[[], SimResult]) -> tuple[SimResult, float]:
    start = process_time()
    return call(), process_time() - start


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
    scenario, first = an_office_month(), default_subject().policy
    warm = simulate_baseline(scenario, BASELINES["warm"], 1)
    classic = simulate_baseline(scenario, BASELINES["classic-alarm"], 1)
    ours, ours_seconds = timed(lambda: simulate(scenario, TEN_MINUTES, 1))
    shipped, shipped_seconds = timed(lambda: simulate(scenario, first, 1))

    named = {"warm": warm, "classic": classic, "ten_minutes": ours, "defaults": shipped}
    figures = {
        f"{name}_{key}": value for name, each in named.items() for key, value in told(each).items()
    }
    record(
        "simulation",
        {
            **figures,
            "warm_over_ten_minutes": round(warm.dollars / ours.dollars, 2),
            "classic_over_ten_minutes": round(classic.dollars / ours.dollars, 2),
            "ten_minutes_cpu_s": round(ours_seconds, 1),
            "defaults_cpu_s": round(shipped_seconds, 1),
        },
    )
    assert all(each.jobs_done == each.jobs for each in named.values())
    assert ours.wait.p95 <= TEN_MINUTES.start_within.total_seconds()
    assert shipped.wait.p95 <= first.start_within.total_seconds()
    assert warm.dollars / ours.dollars >= 11
    assert classic.dollars / ours.dollars >= 1.8


def a_stream(days: float) -> SimScenario:
    return SimScenario(
        name="stream",
        arrivals=daily_stream(seed=1, days=days),
        listings=sample_market(seed=1, days=days),
        length=days * DAY,
    )


#: Parts of a run: the one function of that name in its module, which does all of each.
PARTS = {
    "reconcile": ("control/tick.py", "run_tick"),
    "heartbeats": ("simulator/worker.py", "beat"),
    "claims": ("job/claim.py", "claim"),
    "commits": ("simulator/worker.py", "_commit"),
    "ends_of_jobs": ("simulator/worker.py", "_close"),
}
#: Layers by folder; everything else is the standard library.
LAYERS = ("domain", "control", "job", "ledger", "contract", "memory", "ec2sim", "simulator")


def profile_of(call: Callable[[], SimResult]) -> dict[str, float]:
    """Return by the profiler where the time goes: by part of a run, and by layer of the code.

    A part has the time of all that it calls, a layer only its own and the interpreter's on its
    behalf. Calls an event do not depend on the machine.
    """
    profile = Profile(builtins=False)
    result = profile.runcall(call)
    stats = Stats(profile)
    whole = stats.total_tt  # type: ignore[attr-defined]
    parts = Counter[str]()
    found = dict.fromkeys((*(f"part_{part}" for part in PARTS), "layer_library"), 0.0)
    for (path, _, name), (_, _, own, cumulative, _) in stats.stats.items():  # type: ignore[attr-defined]
        layer = next((x for x in LAYERS if f"spindown/{x}/" in path), "library")
        found[f"layer_{layer}"] = found.get(f"layer_{layer}", 0.0) + own
        for part, (file, function) in PARTS.items():
            if path.endswith(file) and name == function:
                found[f"part_{part}"] += cumulative
                parts[part] += 1
    assert parts == dict.fromkeys(PARTS, 1)
    shares = {f"profile_{key}": round(seconds / whole, 3) for key, seconds in found.items()}
    calls = stats.total_calls  # type: ignore[attr-defined]
    return {**shares, "python_calls_an_event": round(calls / result.events)}


#: The target is a month of 4,000 jobs a day; every day of this traffic is like another.
DAYS, MONTH_DAYS = 3, 30


def test_a_month_of_four_thousand_jobs_a_day() -> None:
    policy = Policy(
        start_within=timedelta(minutes=4), drain_within=timedelta(minutes=8), max_workers=64
    )
    result, wall = timed(lambda: simulate(a_stream(DAYS), policy, 1))

    record(
        "simulation_speed",
        {
            **told(result),
            "days": DAYS,
            "jobs": result.jobs,
            "events": result.events,
            "ticks": result.ticks,
            "cpu_s": round(wall, 1),
            "events_a_second": round(result.events / wall),
            "ms_a_job": round(1000 * wall / result.jobs, 2),
            "thirty_days_s": round(wall * MONTH_DAYS / DAYS),
            **profile_of(lambda: simulate(a_stream(0.5), policy, 1)),
        },
    )
    assert result.jobs_done == result.jobs
