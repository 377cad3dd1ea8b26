from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.fleet import Backlog, Launch, LaunchState, Lease, Worker, WorkerState
from spindown.domain.learning import Knowledge
from spindown.domain.policy import Policy
from spindown.domain.sizing import (
    Bounds,
    Capacity,
    Sizing,
    Waiting,
    ask_patiently,
    capacity,
    latest_launch,
    missing,
    patience,
    size,
    vcpus_left,
    waited_for,
    window,
)
from tests.builders import (
    NOW,
    SPOT,
    a_backlog,
    a_booting_worker,
    a_launch,
    a_lease,
    a_policy,
    a_ranking,
    a_type,
    a_worker,
    an_offer,
    minutes,
)

#: Boot 6 min, 100 items a job, a T4 does 1000 an hour, drain within an hour.
KNOWLEDGE = Knowledge(boots=(360.0,), items_per_job=(100.0,))
POLICY = a_policy(max_workers=50, throughput_estimate=1000.0)


def present(
    workers: list[Worker] | None = None,
    leases: list[Lease] | None = None,
    launches: list[Launch] | None = None,
    policy: Policy = POLICY,
) -> Capacity:
    return capacity(
        workers=workers or [],
        leases=leases or [],
        launches=launches or [],
        knowledge=KNOWLEDGE,
        policy=policy,
        now=NOW,
    )


def sized(
    visible: int,
    workers: list[Worker] | None = None,
    leases: list[Lease] | None = None,
    launches: list[Launch] | None = None,
    policy: Policy = POLICY,
    waited: timedelta = timedelta(0),
    **changes: Any,
) -> Sizing:
    """Size a fleet of T4s at 0.22 USD/h as one tick does: missing, rank, size."""
    found = present(workers, leases, launches, policy)
    backlog = a_backlog(visible)
    knowledge = changes.get("knowledge", KNOWLEDGE)
    demand = missing(backlog=backlog, capacity=found, knowledge=knowledge, policy=policy)
    patient = None
    if visible < policy.scale_up_threshold:
        waiting = [Waiting(since=NOW - waited, jobs=visible)] if visible else []
        patient = patience(waiting, found, knowledge=knowledge, policy=policy, now=NOW)
        demand = ask_patiently(demand, patient, knowledge, policy)
    ranking = a_ranking([an_offer()], demand=demand, knowledge=knowledge, policy=policy)
    return size(
        **{
            "patience": patient,
            "backlog": backlog,
            "backlog_since": NOW - waited if visible else None,
            "demand": demand,
            "capacity": found,
            "best": ranking.best,
            "knowledge": KNOWLEDGE,
            "policy": policy,
            "now": NOW,
            **changes,
        }
    )


def test_the_worked_need() -> None:
    found = present([a_worker()])
    demand = missing(backlog=a_backlog(20), capacity=found, knowledge=KNOWLEDGE, policy=POLICY)

    assert demand.need_items_per_hour == pytest.approx(2000 / 0.9 - 1000)
    assert demand.backlog_items == pytest.approx(2000 - 900)
    assert demand.jobs == 19


@pytest.mark.parametrize(
    ("drain_within", "expected"),
    [
        pytest.param(minutes(60), minutes(54), id="the target less a boot"),
        pytest.param(minutes(12), minutes(6), id="two boots"),
        pytest.param(minutes(7), minutes(6), id="never below one boot"),
        pytest.param(minutes(1), minutes(6), id="shorter than a boot"),
    ],
)
def test_never_plans_below_one_boot(drain_within: timedelta, expected: timedelta) -> None:
    assert window(KNOWLEDGE, a_policy(drain_within=drain_within)) == expected


def test_an_empty_queue_wants_nothing() -> None:
    assert sized(0).wanted == 0


def test_wants_as_many_as_the_need_takes() -> None:
    # 2000 items in 0.9 h: 2222 an hour, three T4s.
    assert sized(20).wanted == 3


def test_wants_no_more_workers_than_jobs() -> None:
    policy = replace(POLICY, throughput_estimate=1.0)

    assert sized(2, policy=policy).wanted == 2


def test_what_is_launched_is_not_launched_again() -> None:
    first = sized(20)
    fleet = [a_booting_worker(f"i-{n}", age=timedelta(0)) for n in range(first.wanted)]

    assert sized(20, fleet).wanted == 0


@given(
    visible=st.integers(1, 500),
    drain=st.integers(1, 120),
    ages=st.lists(st.integers(0, 9), min_size=1, max_size=30),
)
def test_the_same_backlog_never_makes_launches_run_away(
    visible: int, drain: int, ages: list[int]
) -> None:
    # The trap: a drain target below the boot time, and ticks that see the backlog unchanged.
    policy = replace(POLICY, drain_within=minutes(drain), max_workers=10**6)
    fleet = [
        a_booting_worker(f"i-{n}", age=timedelta(0))
        for n in range(sized(visible, policy=policy).wanted)
    ]

    for minute in sorted(ages):
        aged = [replace(w, launched_at=NOW - minutes(minute)) for w in fleet]
        assert sized(visible, aged, policy=policy, waited=minutes(minute)).wanted == 0


def test_one_large_job_takes_one_worker_however_long_it_is() -> None:
    policy = replace(POLICY, throughput_estimate=1.0)

    assert sized(1, policy=policy).wanted == 1
    booting = [a_booting_worker(age=minutes(1))]
    assert sized(1, booting, policy=policy, waited=minutes(60)).wanted == 0


def test_an_open_intent_counts_as_capacity() -> None:
    assert sized(20, launches=[a_launch(count=3)]).wanted == 0
    assert present(launches=[a_launch(count=3)]).workers == 3


@pytest.mark.parametrize(
    "launch",
    [
        pytest.param(a_launch(state=LaunchState.LAUNCHED), id="its workers are there"),
        pytest.param(a_launch(state=LaunchState.REFUSED), id="refused"),
        pytest.param(a_launch(intended_at=NOW - minutes(13)), id="too old to come true"),
    ],
)
def test_a_settled_intent_is_no_capacity(launch: Launch) -> None:
    assert present(launches=[launch]) == present()


def test_an_interrupting_worker_is_no_capacity() -> None:
    leaving = a_worker(interrupted_at=NOW + minutes(2))

    assert present([leaving]) == present()
    assert sized(20, [leaving]).wanted == 3


@pytest.mark.parametrize("state", [WorkerState.DRAINED, WorkerState.CONDEMNED, WorkerState.ENDED])
def test_a_worker_that_is_ending_is_no_capacity(state: WorkerState) -> None:
    assert present([a_worker(state=state)]) == present()


def busy(items_done: int = 0, items: int = 100) -> tuple[Worker, Lease]:
    worker = a_worker(state=WorkerState.BUSY, busy_slots=1)
    return worker, a_lease(items=items, items_done=items_done)


@pytest.mark.parametrize(
    ("items", "done", "share"),
    [
        pytest.param(100, 0, 1.0, id="six minutes of work are within the boot's time"),
        pytest.param(550, 0, 0.5, id="33 minutes of the hour"),
        pytest.param(550, 450, 1.0, id="nearly done"),
        pytest.param(5000, 0, 0.0, id="busy for longer than the window"),
    ],
)
def test_a_busy_slot_counts_with_the_time_that_is_left(items: int, done: int, share: float) -> None:
    worker, lease = busy(done, items)

    # (54 + 6 - 33) / 54 = 0.5 for 550 items at 1000 an hour.
    assert present([worker], [lease]).items_per_hour == pytest.approx(1000 * share)


def test_a_busy_slot_without_a_lease_row_is_taken_to_be_half_done() -> None:
    worker, _ = busy()

    found = present([worker])

    assert found.free_slots == 0
    assert found.next_free == minutes(3)


def test_slots_count_one_by_one() -> None:
    worker = a_worker(
        gpu_count=4.0, slots=4, state=WorkerState.BUSY, busy_slots=1, instance_type="g4dn.12xlarge"
    )
    lease = a_lease(items=5000)

    found = present([worker], [lease])

    assert found.items_per_hour == pytest.approx(3000)
    assert found.free_slots == 3


HELD = replace(POLICY, scale_up_threshold=10, start_within=minutes(30))


@pytest.mark.parametrize(
    ("visible", "waited", "held"),
    [
        pytest.param(1, 0, True, id="a little work waits for more"),
        pytest.param(1, 21.9, True, id="until just before the clock"),
        pytest.param(1, 22, False, id="the clock: 30 - 6 boot - 1 tick - 1 retry"),
        pytest.param(1, 500, False, id="long overdue"),
        pytest.param(3, 9.9, True, id="three jobs of 6 min: the third starts 12 min after"),
        pytest.param(3, 10, False, id="so the clock of three is 12 min earlier"),
        pytest.param(10, 0, False, id="the threshold"),
    ],
)
def test_work_below_the_threshold_starts_when_the_clock_says_so(
    visible: int, waited: float, held: bool
) -> None:
    found = sized(visible, policy=HELD, waited=minutes(waited))

    assert (found.wanted == 0) is held
    latest = minutes(22) - minutes(6) * (visible - 1)
    assert found.hold_until == (NOW - minutes(waited) + latest if held else None)
    assert found.waited == minutes(waited)


@given(
    start=st.integers(0, 120),
    boot=st.integers(0, 3600),
    tick=st.integers(1, 300),
    waited=st.integers(0, 7200),
)
def test_a_hold_never_passes_its_limit(start: int, boot: int, tick: int, waited: int) -> None:
    policy = replace(HELD, start_within=minutes(start), tick=timedelta(seconds=tick))
    knowledge = Knowledge(boots=(float(boot),))
    since = NOW - timedelta(seconds=waited)

    limit = latest_launch(since, knowledge, policy)
    found = sized(1, policy=policy, waited=NOW - since, knowledge=knowledge)

    slack = minutes(start) - timedelta(seconds=boot + 2 * tick)
    assert limit == since + max(slack, timedelta(0))
    assert found.hold_until == (limit if limit > NOW else None)
    assert (found.wanted > 0) is (limit <= NOW)


def test_a_busy_fleet_does_not_starve_a_waiting_job() -> None:
    # Within a day's drain target one busy worker is enough, but it is busy for five hours.
    policy = replace(POLICY, drain_within=timedelta(hours=24), start_within=minutes(30))
    worker, lease = busy(items=5000)

    early = sized(1, [worker], [lease], policy=policy, waited=minutes(21))
    late = sized(1, [worker], [lease], policy=policy, waited=minutes(22))

    assert early.wanted == 0
    assert late.wanted == 1
    assert "start_within" in late.reason


def test_a_slot_that_is_free_in_time_is_waited_for() -> None:
    policy = replace(POLICY, drain_within=timedelta(hours=24), start_within=minutes(30))
    worker, lease = busy(items=100)

    assert sized(1, [worker], [lease], policy=policy, waited=minutes(23)).wanted == 0


def test_a_job_with_a_free_slot_launches_nothing() -> None:
    assert sized(1, [a_worker()], waited=minutes(60)).wanted == 0


def test_warm_workers_are_kept_without_work_or_hold() -> None:
    policy = replace(HELD, warm_workers=2)

    assert sized(0, policy=policy).wanted == 2
    assert sized(0, [a_worker()], policy=policy).wanted == 1
    found = sized(3, policy=policy)
    assert found.wanted == 2
    assert found.hold_until is not None


@pytest.mark.parametrize(
    ("bounds", "wanted", "bound"),
    [
        pytest.param({}, 3, "", id="none"),
        pytest.param({"budget_left": 0.0}, 0, "budget", id="budget is used up"),
        pytest.param({"headroom_per_hour": 0.44}, 2, "max_dollars_per_hour", id="dollars an hour"),
        pytest.param({"quota_vcpus_left": 7.0}, 1, "quota", id="quota"),
        pytest.param(
            {"quota_vcpus_left": 7.0, "headroom_per_hour": 0.1},
            0,
            "max_dollars_per_hour",
            id="the tightest",
        ),
        pytest.param({"quota_vcpus_left": 12.0}, 3, "", id="just enough"),
    ],
)
def test_bounds_cut_what_is_wanted_and_are_named(
    bounds: dict[str, float], wanted: int, bound: str
) -> None:
    found = sized(20, bounds=Bounds(**bounds))

    assert (found.wanted, found.unbounded, found.bound) == (wanted, 3, bound)
    assert bound in found.reason


def test_a_budget_pays_for_whole_workers() -> None:
    demand = missing(backlog=a_backlog(20), capacity=present(), knowledge=KNOWLEDGE, policy=POLICY)
    best = a_ranking([an_offer()], demand=demand, knowledge=KNOWLEDGE, policy=POLICY).best
    assert best is not None

    assert sized(20, bounds=Bounds(budget_left=best.expected_dollars * 2.5)).wanted == 2


def test_budget_comes_before_start_within() -> None:
    found = sized(20, waited=timedelta(hours=9), bounds=Bounds(budget_left=0.0))

    assert found.wanted == 0


def test_max_workers_counts_the_live_and_not_the_interrupted() -> None:
    policy = replace(POLICY, max_workers=2)
    live = a_worker("i-1", state=WorkerState.BUSY, busy_slots=1)
    leaving = a_worker("i-2", interrupted_at=NOW + minutes(1))

    found = sized(50, [live, leaving], policy=policy)

    assert (found.wanted, found.bound) == (1, "max_workers")


def test_more_workers_than_allowed_want_nothing() -> None:
    policy = replace(POLICY, max_workers=1)
    fleet = [a_worker(f"i-{n}", state=WorkerState.BUSY, busy_slots=1) for n in range(3)]

    assert sized(500, fleet, policy=policy).wanted == 0


def test_says_so_when_no_offer_fits() -> None:
    found = sized(20, best=None)

    assert (found.wanted, found.bound) == (0, "offers")
    assert found.unbounded > 0


def test_a_quota_counts_all_that_ec2_has_not_taken_back() -> None:
    kinds = {"g4dn.xlarge": a_type()}
    fleet = [
        a_worker("i-1"),
        a_worker("i-2", interrupted_at=NOW),
        a_worker("i-3", state=WorkerState.CONDEMNED),
        a_worker("i-4", state=WorkerState.ENDED),
        a_worker("i-5", region="eu-west-1"),
        a_worker("i-6", instance_type="unknown"),
    ]

    assert vcpus_left({"us-west-2/G/Spot": 16.0, "us-west-2/P/Spot": 8.0}, fleet, kinds) == {
        "us-west-2/G/Spot": 4.0,
        "us-west-2/P/Spot": 8.0,
    }
    assert fleet[0].capacity_type is SPOT


def test_no_work_has_waited_no_time() -> None:
    assert waited_for(None, NOW) == timedelta(0)
    assert waited_for(NOW + minutes(1), NOW) == timedelta(0)


fleets = st.lists(
    st.one_of(
        st.builds(a_worker, interrupted_at=st.sampled_from([None, NOW + minutes(1)])),
        st.builds(a_booting_worker, age=st.integers(0, 20).map(minutes)),
        st.just(a_worker(state=WorkerState.BUSY, busy_slots=1)),
    ),
    max_size=8,
).map(lambda fleet: [replace(w, instance_id=f"i-{n}") for n, w in enumerate(fleet)])


@given(
    fleet=fleets,
    visible=st.integers(0, 300),
    more=st.integers(0, 300),
    most=st.integers(0, 20),
    warm=st.integers(0, 3),
    threshold=st.integers(1, 50),
    waited=st.integers(0, 90),
    drain=st.integers(1, 600),
)
def test_sizing_is_within_bounds_and_grows_with_the_backlog(
    fleet: list[Worker],
    visible: int,
    more: int,
    most: int,
    warm: int,
    threshold: int,
    waited: int,
    drain: int,
) -> None:
    policy = replace(
        HELD,
        max_workers=most,
        warm_workers=warm,
        scale_up_threshold=threshold,
        drain_within=minutes(drain),
    )

    fewer = sized(visible, fleet, policy=policy, waited=minutes(waited))
    larger = sized(visible + more, fleet, policy=policy, waited=minutes(waited))

    counted = sum(not w.is_interrupting for w in fleet)
    assert 0 <= fewer.wanted <= max(0, most - counted)
    assert fewer.wanted <= max(visible, warm)
    # From the threshold on it is the drain target that counts, below it the promise.
    if not visible < threshold <= visible + more:
        assert larger.wanted >= fewer.wanted


def test_a_backlog_that_nobody_sees_is_none() -> None:
    assert Backlog(visible=0, in_flight=0).is_empty
    assert not a_backlog(0, 1).is_empty


@pytest.mark.parametrize(
    "change", [{"draining_at": NOW}, {"rebalance_at": NOW}], ids=["drains", "at risk"]
)
def test_a_worker_that_takes_no_new_job_is_no_capacity_but_takes_its_place(
    change: dict[str, Any],
) -> None:
    lease = a_lease(items=100, items_done=0)
    busy = a_worker(slots=2, state=WorkerState.BUSY, busy_slots=1)
    leaving = replace(busy, **change)

    found = present([leaving], [lease])

    assert (found.items_per_hour, found.free_slots, found.workers) == (0.0, 0, 1)
    assert found.next_free is None
    assert present([busy], [lease]).free_slots == 1


def test_a_lease_that_has_run_out_keeps_no_slot() -> None:
    lapsed = a_lease(deadline=NOW)

    assert present([a_worker()], [lapsed]).free_slots == 1
    assert present([a_worker()], [a_lease(deadline=NOW + minutes(1))]).free_slots == 0
