"""What counts as capacity, and with how much of its time."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.domain.fleet import Launch, LaunchState, Offered, WorkerState
from spindown.domain.learning import Knowledge
from spindown.domain.schedule import capacity, places, unanswered_dollars
from tests.builders import NOW, a_launch, a_lease, a_worker, minutes
from tests.unit.domain.schedule.demand import POLICY, busy, present, sized


def test_an_open_intent_counts_as_capacity() -> None:
    assert sized(20, launches=[a_launch(count=3)]).allowed == 0
    assert present(launches=[a_launch(count=3)]).workers == 3


@pytest.mark.parametrize(
    "launch",
    [
        pytest.param(a_launch(state=LaunchState.LAUNCHED), id="its workers are there"),
        pytest.param(a_launch(state=LaunchState.REFUSED), id="refused"),
        pytest.param(a_launch(intended_at=NOW - minutes(61)), id="too old to come true"),
    ],
)
def test_a_settled_intent_is_no_capacity(launch: Launch) -> None:
    assert present(launches=[launch]) == present()


def test_an_interrupting_worker_is_no_capacity() -> None:
    leaving = a_worker(interrupted_at=NOW + minutes(2), noticed_at=NOW)

    assert present([leaving]) == present()
    assert sized(20, [leaving]).allowed == 3


@pytest.mark.parametrize("state", [WorkerState.CONDEMNED, WorkerState.ENDED])
def test_a_worker_that_is_ending_is_no_capacity(state: WorkerState) -> None:
    assert present([a_worker(state=state)]) == present()


@pytest.mark.parametrize(
    "said", [{"state": WorkerState.DRAINED}, {"interrupted_at": NOW + minutes(2)}]
)
def test_who_says_it_leaves_keeps_its_place_till_ec2_says_so(said: dict[str, Any]) -> None:
    leaving = a_worker(**said)

    assert present([leaving]) == replace(present(), workers=1)
    assert present([replace(leaving, gone_at=NOW)]) == present()


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


def test_a_busy_slot_without_a_lease_row_counts_as_half_done() -> None:
    worker, _ = busy()

    found = present([worker])

    assert found.free_slots == 0
    assert found.next_free == minutes(3)


def test_a_lease_without_an_item_count_counts_as_half_done() -> None:
    worker, lease = busy(items=0)

    assert present([worker], [lease]).next_free == minutes(3)


def test_a_job_with_every_item_done_needs_no_time() -> None:
    worker, lease = busy(100, 100)

    assert present([worker], [lease]).next_free == minutes(0)


@pytest.mark.parametrize(
    ("done", "beat_ago", "rest"),
    [
        pytest.param(10, 6, minutes(264), id="90 items at 20 an hour, less 6 minutes"),
        pytest.param(10, 0, minutes(270), id="heard of now"),
        pytest.param(90, 0, minutes(10 / 3), id="at 180 an hour"),
        pytest.param(0, 20, minutes(15.88), id="30 min less 3.6 s overdue, 99 items, 20 min ago"),
        pytest.param(0, 1, minutes(34.88), id="the same, a minute ago"),
    ],
)
def test_a_job_goes_on_at_the_pace_of_its_last_heartbeat(
    done: int, beat_ago: int, rest: timedelta
) -> None:
    worker, lease = busy(done)
    beat_at = NOW - minutes(beat_ago)
    at_work = replace(
        lease, claimed_at=beat_at - minutes(30), deadline=beat_at + minutes(25), items=100
    )

    policy = replace(POLICY, lease_duration=minutes(25))
    found = present([worker], [at_work], policy=policy).next_free

    assert found is not None
    assert found.total_seconds() == pytest.approx(rest.total_seconds(), abs=0.001)


@pytest.mark.parametrize(
    ("since_claim", "rest"),
    [
        pytest.param(0, 6, id="just claimed"),
        pytest.param(2, 4, id="as usual"),
        pytest.param(6, 0, id="just about to end"),
        pytest.param(7, 1, id="overdue"),
        pytest.param(60, 54, id="the longer it has been overdue, the longer it may last"),
    ],
)
def test_a_job_of_one_item_is_not_about_to_end_for_ever(since_claim: int, rest: int) -> None:
    worker, lease = busy(0, 1)
    at_work = replace(lease, claimed_at=NOW - minutes(since_claim))
    slow = replace(POLICY, throughput_estimate=10.0)

    (slot,) = present([worker], [at_work], policy=slow).slots

    assert slot.items_per_hour == 10.0
    assert slot.free_in == minutes(rest)


@pytest.mark.parametrize(
    ("done_here", "rest"),
    [
        pytest.param(0, 11.88, id="none since: the first is 6 min less 3.6 s overdue"),
        pytest.param(1, 99 * 6, id="99 at one in 6 minutes"),
    ],
)
def test_work_before_a_job_resumed_tells_nothing_of_its_pace(done_here: int, rest: float) -> None:
    worker, lease = busy(900 + done_here, 1000)
    resumed = replace(lease, claimed_at=NOW - minutes(6), first_item=900)

    found = present([worker], [resumed]).next_free

    assert found is not None
    assert found.total_seconds() == pytest.approx(60.0 * rest, abs=0.001)


def test_what_is_launching_comes_on_top_of_what_runs() -> None:
    found = present([a_worker()], launches=[a_launch(count=2)])

    assert [slot.free_in for slot in found.slots] == [minutes(0), minutes(6), minutes(6)]


def test_every_worker_and_every_launch_adds_its_slots() -> None:
    fleet = [
        a_worker("i-draining", draining_at=NOW),
        a_worker("i-short", state=WorkerState.BUSY, busy_slots=1),
        a_worker("i-idle", slots=2),
        a_worker("i-long", state=WorkerState.BUSY, busy_slots=1),
        a_worker("i-booting", state=WorkerState.BOOTING, launched_at=NOW - minutes(2)),
    ]
    leases = [a_lease("i-short", items=50), a_lease("i-long", items=100)]
    launches = [
        a_launch("launch-1", intended_at=NOW - minutes(1), items_per_hour=900.0),
        a_launch("launch-2", count=2, slots=4, items_per_hour=2000.0),
    ]

    found = present(fleet, leases, launches)

    assert found.items_per_hour == pytest.approx(4 * 1000.0 + 900.0 + 2 * 2000.0)
    assert found.free_slots == 2 + 1 + 1 + 8
    assert found.workers == 5 + 1 + 2
    assert found.next_free == minutes(3)
    seen = [(slot.free_in, slot.items_per_hour) for slot in found.slots]
    assert seen == [
        (minutes(3), 1000.0),
        (minutes(0), 500.0),
        (minutes(0), 500.0),
        (minutes(6), 1000.0),
        (minutes(4), 1000.0),
        (minutes(5), 900.0),
        *[(minutes(6), 500.0)] * 8,
    ]


def test_an_intent_may_come_true_for_two_slow_boots() -> None:
    # Boots of six minutes.
    assert present(launches=[a_launch(intended_at=NOW - minutes(12))]).free_slots == 1
    assert present(launches=[a_launch(intended_at=NOW - minutes(13))]).free_slots == 0


def test_an_unanswered_launch_counts_as_what_it_may_have_given() -> None:
    # EC2 has not answered since: what it gave may run, though it should have checked in.
    silent = a_launch(count=3, intended_at=NOW - minutes(60))

    found = present(launches=[silent])

    assert (found.workers, found.slots, found.items_per_hour) == (3, (), 0.0)


@pytest.mark.parametrize(("watched", "count"), [(60, 3), (61, 0)], ids=["new", "for long"])
def test_an_old_launch_counts_until_ticks_have_watched(watched: int, count: int) -> None:
    silent = a_launch(count=3, intended_at=NOW - minutes(600))

    assert places([], [silent], NOW, NOW - minutes(watched)) == count
    assert places([], [silent], NOW) == 0


def test_an_unknown_boot_takes_as_long_as_the_policy_says() -> None:
    policy = replace(POLICY, boot_estimate=minutes(4))
    found = capacity(
        workers=[], launches=[a_launch()], knowledge=Knowledge(), policy=policy, now=NOW
    )

    assert [slot.free_in for slot in found.slots] == [minutes(4)]


def test_slots_count_one_by_one() -> None:
    worker = a_worker(
        gpu_count=4.0, slots=4, state=WorkerState.BUSY, busy_slots=1, instance_type="g4dn.12xlarge"
    )
    lease = a_lease(items=5000)

    found = present([worker], [lease])

    assert found.items_per_hour == pytest.approx(3000)
    assert found.free_slots == 3


def test_a_worker_taking_no_new_job_has_a_place_but_no_capacity() -> None:
    lease = a_lease(items=100, items_done=0)
    busy = a_worker(slots=2, state=WorkerState.BUSY, busy_slots=1)
    leaving = replace(busy, draining_at=NOW)

    found = present([leaving], [lease])

    assert (found.items_per_hour, found.free_slots, found.workers) == (0.0, 0, 1)
    assert found.next_free is None
    assert present([busy], [lease]).free_slots == 1
    assert present([replace(busy, rebalance_at=NOW)], [lease]).free_slots == 1


def test_a_lease_that_has_run_out_keeps_no_slot() -> None:
    lapsed = a_lease(deadline=NOW)

    assert present([a_worker()], [lapsed]).free_slots == 1
    assert present([a_worker()], [a_lease(deadline=NOW + minutes(1))]).free_slots == 0


@pytest.mark.parametrize(
    ("changes", "dollars"),
    [
        pytest.param({"count": 3}, 3 * 0.7, id="each as the dearest of its pools"),
        pytest.param({"count": 3, "offered": {}}, 0.0, id="nobody knows of what"),
        pytest.param({"state": LaunchState.LAUNCHED}, 0.0, id="its workers are there"),
        pytest.param({"intended_at": NOW - minutes(60)}, 0.7, id="of an hour ago"),
        pytest.param({"intended_at": NOW - minutes(61)}, 0.0, id="too old to come true"),
    ],
)
def test_a_launch_without_an_answer_may_cost_what_it_asked_for(
    changes: dict[str, Any], dollars: float
) -> None:
    prices = (("a", 0.5), ("b", 0.7), ("c", 0.6))
    offered = {name: Offered(price_per_hour=price) for name, price in prices}
    launch = a_launch("launch-1", **{"offered": offered, **changes})

    assert unanswered_dollars([launch], NOW) == pytest.approx(dollars)
    assert unanswered_dollars([launch, launch], NOW) == pytest.approx(2 * dollars)
    assert unanswered_dollars([], NOW) == 0.0
