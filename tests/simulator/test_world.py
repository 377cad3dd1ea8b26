"""The parts of the simulated world keep to the rules of the real one."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random

import pytest

from spindown.domain.offer import CapacityType
from spindown.domain.policy import Dispatch, Policy, Rung
from spindown.ec2sim import Agenda, Turn
from spindown.memory import MemoryClock, MemoryJobQueue
from spindown.port import Message, Outgoing
from spindown.simulator import Boot, Run, simulate
from spindown.simulator.poll_queue import PollQueue
from spindown.simulator.sample import daily_stream, office_batches
from spindown.simulator.scenario import value_at
from tests.simulator.scene import DAY, HOUR, a_listing, a_policy, a_scenario, a_zone, an_arrival

START = datetime(2026, 1, 5, tzinfo=UTC)


def test_at_one_instant_turns_come_first_then_planning_order() -> None:
    agenda, seen = Agenda(START), list[str]()
    for name, turn in (("tick", Turn.TICK), ("a", Turn.WORKER), ("b", Turn.WORKER)):
        agenda.plan_at(5.0, turn, lambda name=name: seen.append(name))  # type: ignore[misc]
    agenda.plan_at(4.0, Turn.TICK, lambda: seen.append("before"))
    agenda.plan_at(5.0, Turn.END, lambda: seen.append("end")).call_off()

    while agenda.step():
        pass
    assert seen == ["before", "a", "b", "tick"]
    assert agenda.seconds == 5.0


def test_messages_go_to_those_who_wait_at_random() -> None:
    agenda, got = Agenda(START), Counter[int]()
    queue = MemoryJobQueue(agenda.clock, Random(1))
    poll_queue = PollQueue(agenda, queue, Random(2))

    def take(poller: int, message: Message | None) -> None:
        if message is not None:
            queue.delete(message.receipt_handle)
            got[poller] += 1

    for _ in range(300):
        for poller in range(3):
            poll_queue.wait(partial(take, poller), timedelta(seconds=20))
        queue.send([Outgoing(body="{}")])
        poll_queue.serve()
        while agenda.step():
            pass

    assert got.total() == 300
    assert min(got.values()) > 70


def test_a_poll_hears_of_a_message_the_instant_it_reappears() -> None:
    agenda, heard = Agenda(START), list[float]()
    queue = MemoryJobQueue(agenda.clock, Random(1))
    poll_queue = PollQueue(agenda, queue, Random(2))
    queue.send([Outgoing(body="{}")])
    poll_queue.receive(timedelta(seconds=7))
    poll_queue.wait(lambda m: heard.append(agenda.seconds), timedelta(seconds=20))

    poll_queue.serve()
    while agenda.step():
        poll_queue.serve()
    assert heard == [7.0]


def test_the_queue_tells_when_its_next_hidden_message_shows() -> None:
    clock = MemoryClock(START)
    queue = MemoryJobQueue(clock, Random(1))
    assert queue.next_visible_at() is None
    queue.send([Outgoing(body="a"), Outgoing(body="b", delay=timedelta(minutes=3))])
    message = queue.receive(wait=timedelta(0), visibility=timedelta(minutes=1))
    assert message is not None
    assert queue.next_visible_at() == START + timedelta(minutes=1)

    queue.delete(message.receipt_handle)
    assert queue.next_visible_at() == START + timedelta(minutes=3)


@pytest.mark.parametrize(("seconds", "value"), [(0.0, None), (1.0, 5.0), (2.9, 5.0), (3.0, 0.0)])
def test_a_value_holds_until_the_next_step(seconds: float, value: float | None) -> None:
    assert value_at(((1.0, 5.0), (3.0, 0.0)), seconds) == value


def test_half_of_all_boots_take_less_than_the_median() -> None:
    random, boot = Random(1), Boot(at_least=30, median=60, sigma=0.4)
    drawn = sorted(boot.draw(random) for _ in range(4000))

    assert drawn[0] > 30
    assert drawn[2000] == pytest.approx(90, rel=0.03)


def test_a_pool_gives_its_capacity_and_takes_back_the_excess() -> None:
    zone = a_zone(capacity=((0.0, 2.0), (2 * HOUR, 1.0)))
    only_spot = a_listing(on_demand=None, zones={"us-west-2a": zone})
    jobs = [an_arrival(at=30.0, items=720) for _ in range(4)]
    scenario = a_scenario(*jobs, listings=(only_spot,))
    run = Run(scenario, a_policy(drain_within=timedelta(minutes=30)), 1)
    peak = 0
    while not run.is_over:
        run.step()
        peak = max(peak, run.world.compute.running)
        if run.agenda.seconds > 2 * HOUR + 121:
            assert run.world.compute.running <= 1

    result = run.result()
    assert peak == 2
    assert result.interruptions == 1
    assert result.refusals > 0
    assert result.jobs_done == 4


def test_a_fall_of_capacity_takes_no_more_than_the_excess() -> None:
    zone = a_zone(capacity=((0.0, 4.0), (2 * HOUR, 2.0)))
    only_spot = a_listing(on_demand=None, zones={"us-west-2a": zone})
    jobs = [an_arrival(at=30.0, items=1500) for _ in range(4)]
    run = Run(a_scenario(*jobs, listings=(only_spot,)), a_policy(max_workers=4), 1)
    running: dict[int, int] = {}
    while run.agenda.seconds < 3 * HOUR:
        run.step()
        running[int(run.agenda.seconds)] = run.world.compute.running

    before = [count for at, count in running.items() if HOUR < at < 2 * HOUR]
    after = [count for at, count in running.items() if at > 2 * HOUR + 121]
    assert set(before) == {4}
    assert set(after) == {2}
    assert run.result().interruptions == 2


def test_capacity_changes_on_time_to_a_fraction_of_a_second() -> None:
    steps = ((0.0, 1.0), (HOUR + 1 / 3, 0.0), (2 * HOUR + 2 / 3, 1.0), (3 * HOUR + 1 / 7, 0.0))
    listing = a_listing(on_demand=None, zones={"us-west-2a": a_zone(capacity=steps)})
    run = Run(a_scenario(an_arrival(at=30.0, items=2000), listings=(listing,)), a_policy(), 1)
    seen: dict[int, int] = {}
    while run.agenda.seconds < 4 * HOUR:
        run.step()
        seen[int(run.agenda.seconds // 600)] = run.world.compute.running

    # At half past each hour: up, gone, up, gone.
    assert [seen[slot] for slot in (3, 9, 15, 21)] == [1, 0, 1, 0]


def test_prices_move_on_time() -> None:
    zone = a_zone(spot=((0.0, 0.20), (HOUR, 0.40)))
    scenario = a_scenario(
        an_arrival(at=30.0, items=720), listings=(a_listing(zones={"us-west-2a": zone}),)
    )
    result = simulate(scenario, a_policy(), 1)

    # Two hours of work begin at 0.20; the second hour of the instance begins after the move.
    assert 0.20 * 2 < result.dollars < 0.40 * 2.2


@pytest.mark.parametrize("missing", [0.0, 1.0])
def test_an_item_that_saves_state_goes_on_where_it_was(missing: float) -> None:
    # Gone for a minute every 2 hours; an item takes 5.
    falls = tuple((n * 2 * HOUR + 60.0 * up, 9.0 * up) for n in range(1, 9) for up in (0, 1))
    zone = a_zone(capacity=((0.0, 9.0), *falls))
    job = replace(an_arrival(items=1, item_seconds=5 * HOUR), keeps_state=True)
    listings = (a_listing(zones={"us-west-2a": zone}),)
    scenario = a_scenario(job, listings=listings, notice_missing=missing)
    spot = (Rung(after=timedelta(0), capacity_types=frozenset({CapacityType.SPOT})),)
    policy = a_policy(checkpoint_interval=timedelta(minutes=5), ladder=spot)

    result = simulate(scenario, policy, 1)

    assert (result.items_done, result.interruptions) == (1, 2)
    # With a notice the worker saves at the last moment; else at most an interval is lost.
    most = 2 * 300.0 * missing + 1.0
    assert result.redo_seconds <= most
    assert result.busy_seconds - 5 * HOUR == pytest.approx(result.redo_seconds, abs=1.0)


def test_a_job_too_large_is_split_and_counts_once() -> None:
    scenario = a_scenario(an_arrival(items=2500, item_seconds=1.0))
    result = simulate(scenario, a_policy(), 1)

    assert (result.jobs_done, result.items_done) == (1, 2500)


def test_a_dedicated_machine_that_split_a_job_takes_a_part() -> None:
    scenario = a_scenario(an_arrival(items=2500, item_seconds=1.0))
    result = simulate(scenario, a_policy(dispatch=Dispatch.DEDICATED), 1)

    assert (result.jobs_done, result.launches) == (1, 3)


def test_nobody_starts_anything_while_the_functions_are_down() -> None:
    scenario = a_scenario(an_arrival(at=30.0), control_down=((0.0, 6 * HOUR),))
    result = simulate(scenario, a_policy(), 1)

    assert result.wait.most > 6 * HOUR - 60
    assert result.jobs_done == 1


def test_a_nudge_starts_work_before_the_tick() -> None:
    slow = simulate(a_scenario(an_arrival(at=10.0)), a_policy(), 1)
    quick = simulate(a_scenario(an_arrival(at=10.0), nudged=True), a_policy(), 1)

    assert quick.wait.most == pytest.approx(1 + 90)
    assert slow.wait.most == pytest.approx(50 + 90)


def test_work_arriving_on_the_minute_does_not_delay_the_tick() -> None:
    jobs = [an_arrival(at=minute * 60.0, items=1) for minute in range(120)]
    result = simulate(a_scenario(*jobs), a_policy(), 1)

    assert result.wait.most <= 60 + 90
    assert result.wait.p50 < 60


def test_office_batches_hold_the_work_and_rest_at_night() -> None:
    arrivals = office_batches(seed=3, days=14, work_hours=100)

    assert sum(a.work_seconds for a in arrivals) == pytest.approx(100 * HOUR)
    assert {int(a.at // DAY) % 7 for a in arrivals} == {0, 1, 2, 3, 4}
    assert all(8 <= a.at % DAY / HOUR <= 17 for a in arrivals)


def test_a_daily_stream_has_its_rate_and_an_afternoon_peak() -> None:
    arrivals = daily_stream(seed=3, days=10, jobs_a_day=1000)

    assert len(arrivals) == pytest.approx(10_000, rel=0.05)
    hours = Counter(int(a.at % DAY // HOUR) for a in arrivals)
    assert hours[14] > 4 * hours[2]
    assert all(30 <= a.work_seconds <= 1800 + 1e-6 for a in arrivals)


def test_a_crowd_on_scarce_spot_gets_on_demand_by_its_promise() -> None:
    few = a_listing(zones={"us-west-2a": a_zone(capacity=((0.0, 2.0),))})
    jobs = [an_arrival(at=30.0, items=10) for _ in range(60)]
    promise = timedelta(minutes=20)
    patient = Policy(start_within=promise, scale_up_threshold=1000, max_workers=40)
    result = simulate(a_scenario(*jobs, listings=(few,)), patient, 1)

    assert result.on_demand_dollars > 0
    assert result.wait.p95 < 1.25 * promise.total_seconds()


@pytest.mark.parametrize("threshold", [1, 20, 1000])
def test_jobs_start_by_the_promise_whatever_the_drain_time(threshold: int) -> None:
    # 60 jobs of 10 min: three machines would work them off in the time to drain, the last of them
    # hours after the promise.
    jobs = [
        an_arrival(at=30.0 + 20.0 * number, items=10, item_seconds=60.0) for number in range(60)
    ]
    promise = timedelta(minutes=20)
    policy = Policy(
        start_within=promise,
        drain_within=timedelta(hours=4),
        scale_up_threshold=threshold,
        max_workers=40,
    )
    result = simulate(a_scenario(*jobs), policy, 1)

    assert result.wait.p95 < 1.25 * promise.total_seconds()
