"""Faults around the control plane cost time and a bounded sum, and never work."""

import math
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from spindown.domain.policy import Policy
from spindown.ec2sim import Agenda, Turn
from spindown.port import Outgoing
from spindown.simulator import Alarm, Arrival, Faults, Run, SimDelays, SimScenario, simulate
from spindown.simulator.fault import SimAlarm
from spindown.simulator.sample import daily_stream, sample_market
from tests.simulator.scene import DAY, HOUR, a_policy, a_scenario, an_arrival
from tests.simulator.test_world import START


def woken_at(kind: Alarm, *messages: float, taken: bool = True) -> list[float]:
    """Return when an alarm goes off; each message is taken a second later, or stays."""
    agenda, woken = Agenda(START), list[float]()
    waiting = 0

    def come() -> None:
        nonlocal waiting
        waiting += 1
        alarm.hear()

    def go() -> None:
        nonlocal waiting
        waiting -= 1

    alarm = SimAlarm(
        kind,
        agenda,
        Random(1),
        visible=lambda: waiting,
        wake=lambda: woken.append(agenda.seconds),
    )
    for at in messages:
        agenda.plan_at(at, Turn.ARRIVAL, come)
        if taken:
            agenda.plan_at(at + 1.0, Turn.WORKER, go)
    while (due := agenda.next_at()) is not None and due < START + timedelta(days=2):
        agenda.step()
    return woken


def test_an_alarm_is_1_to_2_min_late_and_15_after_a_quiet_night() -> None:
    first, second, third = woken_at(Alarm(), 100.0, 1000.0, 1000.0 + 7 * HOUR)

    assert 160.0 <= first <= 220.0
    assert 1060.0 <= second <= 1120.0
    assert third == 1900.0 + 7 * HOUR


def test_an_alarm_acts_on_changes_and_a_stuck_one_never() -> None:
    assert len(woken_at(Alarm(), 100.0, 1000.0, 5000.0, taken=False)) == 1
    assert woken_at(Alarm(is_stuck=True), 100.0) == []


def test_without_ticks_the_alarm_alone_starts_what_is_not_held() -> None:
    faults = Faults(alarm=Alarm(), ticks_lost=((0.0, 6 * HOUR),), spare_tick=None)
    held = a_scenario(an_arrival(at=30.0), faults=faults)

    assert simulate(held, a_policy(), 1).wait.most < 120 + 90 + 1
    # A launch that is held for more work waits for the next tick, which does not come.
    patient = a_policy(scale_up_threshold=100, start_within=timedelta(minutes=20))
    assert simulate(held, patient, 1).wait.most > 6 * HOUR - 60


def busy_hours(seed: int, **changes: Any) -> SimScenario:
    """Return seven hours of 40 short jobs each, as they come; after the first no schedule ticks."""
    random = Random(seed)
    jobs, at = list[Arrival](), random.expovariate(40 / HOUR)
    while at < 7 * HOUR:
        seconds = math.exp(random.uniform(math.log(20.0), math.log(300.0)))
        jobs.append(an_arrival(at, items=1, item_seconds=seconds))
        at += random.expovariate(40 / HOUR)
    return a_scenario(
        *jobs,
        listings=sample_market(seed=seed, days=1),
        length=8 * HOUR,
        faults=Faults(ticks_lost=((HOUR, 7 * HOUR),), **changes),
    )


_PROMISE = timedelta(minutes=10)


@pytest.mark.parametrize("alarm", [Alarm(), None], ids=["late alarm", "no alarm"])
def test_spare_ticks_keep_busy_hours_within_twice_the_promise(alarm: Alarm | None) -> None:
    result = simulate(busy_hours(1, alarm=alarm), Policy(start_within=_PROMISE), 1)

    assert result.wait.p95 <= 2 * _PROMISE.total_seconds()
    assert result.jobs_done == result.jobs > 250


def test_without_spare_ticks_an_alarm_leaves_work_for_hours() -> None:
    scenario = busy_hours(1, alarm=Alarm(), spare_tick=None)

    assert simulate(scenario, Policy(start_within=_PROMISE), 1).wait.p95 > HOUR


def test_what_is_sent_twice_is_done_once() -> None:
    jobs = [an_arrival(at=60.0 * n, items=6) for n in range(60)]
    scenario = a_scenario(*jobs, faults=Faults(doubled=1.0, doubled_within=900.0))
    plain = simulate(replace(scenario, faults=Faults()), a_policy(), 1)
    result = simulate(scenario, a_policy(), 1)

    assert (result.jobs_done, result.items_done) == (60, 360)
    assert result.busy_seconds == pytest.approx(plain.busy_seconds, rel=0.02)


def test_a_long_job_that_was_sent_twice_buys_two_machines() -> None:
    long = an_arrival(items=5, item_seconds=HOUR)
    scenario = a_scenario(long, faults=Faults(doubled=1.0, doubled_within=60.0))
    once = simulate(replace(scenario, faults=Faults()), a_policy(), 1)
    result = simulate(scenario, a_policy(), 1)

    # 49 and 1.6 times the dollars, while the second message was put back again and again.
    assert (once.launches, result.launches) == (1, 2)
    assert result.dollars < 1.02 * once.dollars


def test_what_a_later_version_reads_buys_one_in_11_hours() -> None:
    scenario = a_scenario(an_arrival(), length=4 * DAY)
    run = Run(scenario, a_policy(), 1)
    run.world.queue.send([Outgoing(body='{"schema": 2, "tasks": []}')])
    run.world.queue.send([Outgoing(body='{"schema": 2, "tasks": [1]}')])
    result = run.run()

    # For the three at first, and one in 11 hours until it is given up after 2 days. One such
    # message alone bought 101 in 8 hours once.
    assert result.launches <= 3 + 5
    assert (result.jobs_done, result.dead_letters) == (1, 2)


@pytest.mark.parametrize("seed", [1, 2])
def test_nothing_is_lost_when_everything_fails_at_once(seed: int) -> None:
    scenario = a_scenario(
        *daily_stream(seed=seed, days=0.5, jobs_a_day=200),
        listings=sample_market(seed=seed, days=1, reclaims=30.0),
        length=DAY / 2,
        notice_missing=0.5,
        control_down=((4 * HOUR, 6 * HOUR),),
        delays=SimDelays(described=60.0, ending=120.0, event=30.0),
        faults=Faults(alarm=Alarm(is_stuck=True), events_lost=0.5, doubled=0.1),
    )
    result = simulate(scenario, a_policy(), seed)

    assert result.interruptions > 5
    assert (result.jobs_done, result.items_done) == (result.jobs, result.items)
    assert result.dead_letters == 0


def test_a_fleet_without_control_ends_itself_in_time() -> None:
    jobs = [an_arrival(at=30.0 + n, items=60) for n in range(4)]
    died = 400.0
    scenario = a_scenario(*jobs, control_down=((died, math.inf),))
    run = Run(scenario, a_policy(drain_within=timedelta(minutes=11)), 1)
    while run.agenda.seconds < died:
        run.step()
    alive = run.world.compute.running
    result = run.run()
    ended = max(w.ended_at for w in run.world.workers.values() if w.ended_at is not None)

    assert alive > 1
    assert result.launches == alive
    assert result.jobs_done == 4
    # A job of ten minutes, two idle minutes, and the power going off.
    assert (ended - scenario.start).total_seconds() <= died + 600 + 120 + 30
