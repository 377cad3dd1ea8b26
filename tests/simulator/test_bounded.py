"""Dollars per useful second of simulated runs are bounded, whatever the world does."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spindown.contract.job.manifest import decode_manifest, manifest_key
from spindown.domain.offer import CapacityType
from spindown.domain.policy import Policy, Rung
from spindown.simulator import Arrival, Faults, Run, SimResult, SimScenario
from tests.bounded import RunRecord, is_bounded
from tests.simulator.scene import DAY, HOUR, REGION, a_listing, a_scenario, a_zone

ON_DEMAND = 0.50
#: A boot, the longest idle timeout here, five ticks that a machine stays for a job that is to come.
EACH = 900.0
SPOT_ONLY = Policy(
    ladder=(Rung(after=timedelta(0), capacity_types=frozenset({CapacityType.SPOT})),)
)
POLICIES = {
    name: replace(policy, max_item_time=timedelta(days=1))
    for name, policy in {
        "default": Policy(),
        "spot only": SPOT_ONLY,
        "ceiling": Policy(max_price_per_hour=0.49),
        "deadline": Policy(finish_within=timedelta(hours=14)),
    }.items()
}


def a_record(run: Run, result: SimResult) -> RunRecord:
    """Return the record of a run whose machines have one slot each."""
    return RunRecord(
        dollars=result.dollars,
        price_per_hour=ON_DEMAND,
        useful_seconds=result.busy_seconds - result.redo_seconds,
        given_up_seconds=_given_up(run),
        # A message may come twice.
        causes=2 * result.jobs + result.interruptions + result.refusals,
        seconds_each=EACH,
    )


def _given_up(run: Run) -> float:
    """Return how long the jobs in the dead letters have been tried at the longest."""
    seconds, queue = 0.0, run.world.dead_letters
    while letter := queue.receive(wait=timedelta(0), visibility=timedelta(hours=1)):
        stored = run.world.objects.get(manifest_key(letter.attributes["job_id"]))
        wasted_work = decode_manifest(stored.data).wasted_work
        # Twice the longest attempt, or as long as the policy lets an item take.
        seconds += max(wasted_work.hours, wasted_work.item_hours / 2.0) * HOUR
    return seconds


def a_world(
    arrivals: Sequence[Arrival], rates: tuple[float, float], *, silent: float, doubled: float
) -> SimScenario:
    zones = {
        f"{REGION}{name}": a_zone(reclaims_per_hour=rate)
        for name, rate in zip("ab", rates, strict=True)
    }
    return a_scenario(
        *arrivals,
        listings=(a_listing(zones=zones),),
        overtime=4 * DAY,
        notice_missing=silent,
        faults=Faults(doubled=doubled, doubled_within=HOUR),
    )


arrivals = st.lists(
    st.builds(
        Arrival,
        at=st.floats(0.0, 4 * HOUR),
        items=st.integers(1, 3),
        item_seconds=st.sampled_from([10.0, 600.0, HOUR, 4 * HOUR, 8 * HOUR]),
        keeps_state=st.booleans(),
        uses_state=st.booleans(),
    ),
    min_size=1,
    max_size=3,
).map(lambda found: sorted(found, key=lambda each: each.at))
rates = st.sampled_from([0.02, 0.5, 1.0, 3.0])
LONG = Arrival(at=30.0, items=1, item_seconds=8 * HOUR)
USELESS = replace(LONG, keeps_state=True, uses_state=False)


def check(
    work: Sequence[Arrival],
    rates: tuple[float, float],
    silent: float,
    doubled: float,
    policy: str,
    seed: int,
) -> None:
    going = Run(a_world(work, rates, silent=silent, doubled=doubled), POLICIES[policy], seed)
    result = going.run()

    assert result.jobs_done + result.dead_letters >= result.jobs
    assert is_bounded(a_record(going, result)), result


AROUND = {
    "work": arrivals,
    "rates": st.tuples(rates, rates),
    "silent": st.sampled_from([0.0, 0.5, 1.0]),
    "doubled": st.sampled_from([0.0, 1.0]),
    "policy": st.sampled_from(sorted(POLICIES)),
    "seed": st.integers(0, 9),
}


@settings(max_examples=3)
@given(**AROUND)
def test_bounded_whatever_the_world_does(**world: object) -> None:
    check(**world)  # type: ignore[arg-type]


@pytest.mark.proof
@example(work=[LONG], rates=(0.5, 0.5), silent=0.0, doubled=0.0, policy="default", seed=1)
@example(work=[LONG], rates=(1.0, 1.0), silent=0.0, doubled=0.0, policy="spot only", seed=1)
@example(work=[USELESS], rates=(1.0, 1.0), silent=0.0, doubled=0.0, policy="spot only", seed=1)
@settings(max_examples=150)
@given(**AROUND)
def test_bounded_in_many_worlds(**world: object) -> None:
    check(**world)  # type: ignore[arg-type]


def test_what_was_found_before_is_above_the_bound() -> None:
    """86 machines for an item of 8 h; 324 reclaims of one of 10 h that was never done."""
    done = RunRecord(
        dollars=29.22,
        price_per_hour=ON_DEMAND,
        useful_seconds=8 * HOUR,
        causes=2 + 85,
        seconds_each=EACH,
    )
    never = replace(done, dollars=57.10, useful_seconds=0.0, causes=2 + 324)

    assert not is_bounded(done)
    assert not is_bounded(never)
    assert is_bounded(replace(done, dollars=5.67, causes=2 + 5))
