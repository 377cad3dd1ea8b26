"""Which workers the limits have no room for: the dearest, the oldest, and no more than must go."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.fleet import Worker, WorkerState
from spindown.domain.learning import Knowledge
from spindown.domain.offer import CapacityType
from spindown.domain.policy import Policy, Rung
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.surplus import find_surplus
from tests.builders import NOW, a_worker, minutes

prices = st.integers(1, 40).map(lambda cents: cents / 20)
fleets = st.lists(
    st.builds(
        a_worker,
        st.uuids().map(str),
        price_per_hour=prices,
        state=st.sampled_from([WorkerState.BOOTING, WorkerState.IDLE, WorkerState.BUSY]),
        launched_at=st.integers(1, 500).map(lambda ago: NOW - minutes(ago)),
        draining_at=st.sampled_from([None, None, NOW]),
    ),
    max_size=12,
    unique_by=lambda worker: worker.instance_id,
)
policies = st.builds(
    Policy,
    max_workers=st.integers(0, 12),
    max_dollars_per_hour=st.none() | st.integers(1, 20).map(float),
    max_price_per_hour=prices,
)


def surplus(
    *workers: Worker, for_particular_jobs: tuple[str, ...] = (), **policy: Any
) -> dict[str, Reason]:
    return find_surplus(
        workers,
        for_particular_jobs=for_particular_jobs,
        knowledge=Knowledge(),
        policy=Policy(**policy),
    )


def named(found: dict[str, Reason]) -> dict[str, ReasonCode]:
    return {name: reason.code for name, reason in found.items()}


def test_the_dearest_go_first_then_the_oldest() -> None:
    workers = [
        a_worker("i-young", launched_at=NOW - minutes(1)),
        a_worker("i-old", launched_at=NOW - minutes(2)),
        a_worker("i-dear", price_per_hour=0.23),
    ]

    assert surplus(*workers, max_workers=3) == {}
    assert list(surplus(*workers, max_workers=2)) == ["i-dear"]
    assert list(surplus(*workers, max_workers=1)) == ["i-old", "i-dear"]


def test_who_costs_more_an_hour_and_less_per_item_stays() -> None:
    fast = a_worker("i-fast", instance_type="g5.xlarge", gpu_name="A10G", price_per_hour=0.3)

    assert list(surplus(a_worker("i-slow"), fast, max_workers=1)) == ["i-slow"]


def test_who_leaves_makes_room_already() -> None:
    leaving = a_worker("i-leaving", draining_at=NOW, price_per_hour=9.0)

    assert surplus(leaving, a_worker("i-1"), max_workers=1, max_dollars_per_hour=1.0) == {}


def test_a_sum_above_the_ceiling_of_an_hour_ends_what_must_go() -> None:
    workers = [a_worker(f"i-{n}", price_per_hour=0.2 + n / 100) for n in range(3)]

    assert named(surplus(*workers, max_dollars_per_hour=0.42)) == {
        "i-2": ReasonCode.SURPLUS_DOLLARS
    }


def test_a_price_that_wobbles_about_a_ceiling_ends_nobody() -> None:
    two = [a_worker("i-1"), a_worker("i-2")]

    assert surplus(*two, max_dollars_per_hour=0.44 / 1.09) == {}
    assert len(surplus(*two, max_dollars_per_hour=0.44 / 1.11)) == 1
    assert surplus(a_worker(), max_price_per_hour=0.22 / 1.09) == {}
    assert named(surplus(a_worker(), max_price_per_hour=0.22 / 1.11)) == {
        "i-1": ReasonCode.TOO_DEAR_BY_NOW
    }


def test_what_a_later_rung_still_allows_stays() -> None:
    both = frozenset(CapacityType)
    ladder = (
        Rung(after=minutes(0), capacity_types=both, max_price_per_hour=0.1),
        Rung(after=minutes(5), capacity_types=frozenset({CapacityType.SPOT})),
    )
    dear = a_worker("i-on-demand", capacity_type=CapacityType.ON_DEMAND)

    assert list(surplus(a_worker(), dear, ladder=ladder)) == ["i-on-demand"]


def test_a_gpu_dearer_than_allowed_goes() -> None:
    assert list(surplus(a_worker(), max_price_per_gpu_hour=0.1)) == ["i-1"]


def test_a_takeover_beside_its_mover_ends_neither() -> None:
    workers = [a_worker("i-mover"), a_worker("i-takeover", price_per_hour=0.5)]

    assert surplus(*workers, for_particular_jobs=("i-takeover",), max_workers=1) == {}
    assert list(surplus(*workers, max_workers=1)) == ["i-takeover"]


@given(workers=fleets, policy=policies)
def test_the_rest_fits_and_nobody_goes_for_nothing(workers: list[Worker], policy: Policy) -> None:
    found = find_surplus(workers, for_particular_jobs=(), knowledge=Knowledge(), policy=policy)
    rest = [w for w in workers if w.takes_jobs and w.instance_id not in found]
    cost = sum(worker.price_per_hour for worker in rest)
    most = policy.max_dollars_per_hour

    assert len(rest) <= policy.max_workers
    assert most is None or cost <= most * 1.1 + 1e-6
    for worker in workers:
        if (reason := found.get(worker.instance_id)) is None:
            continue
        assert worker.takes_jobs
        if reason.code is ReasonCode.SURPLUS_WORKER:
            assert len(rest) == policy.max_workers
        elif reason.code is ReasonCode.SURPLUS_DOLLARS:
            assert most is not None
            assert cost + worker.price_per_hour > most
    again = [replace(w, surplus_at=NOW) if w.instance_id in found else w for w in workers]
    assert not find_surplus(again, for_particular_jobs=(), knowledge=Knowledge(), policy=policy)
