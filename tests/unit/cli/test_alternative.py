"""Simulations side by side: a Ctrl-C reaches the one process that a person started."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import timedelta

import psutil
import pytest

from spindown.cli.simulate.alternative import (
    Simulations,
    _line_of_each,
    _say_done,
    baselines,
    frontier,
    ours,
    simulate_all,
)
from spindown.config.check import check_policy
from spindown.domain.policy import Policy
from tests.local.waiting import until
from tests.simulator.scene import HOUR, a_scenario, an_arrival

SCENARIO = a_scenario(an_arrival(), an_arrival(at=HOUR), length=2 * HOUR)


def test_simulations_ignore_a_ctrl_c_for_their_parent(
    capfd: pytest.CaptureFixture[str],
) -> None:
    alternatives = [ours(Policy()), *baselines("warm", Policy()), frontier(Policy())[0]]
    told: list[int | None] = []

    def report(*_: object) -> None:
        for child in multiprocessing.active_children() if not told else ():
            os.kill(child.pid or 0, signal.SIGINT)
            told.append(child.pid)

    outcomes = simulate_all(SCENARIO, alternatives, seed=1, processes=2, report=report)

    assert len(told) == 2
    assert all(one.result.jobs_done == 2 for one in outcomes)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("processes", [1, 2])
def test_what_is_asked_for_again_is_not_simulated_again(processes: int) -> None:
    now, later = ours(Policy()), frontier(Policy())[0]
    with Simulations(SCENARIO, seed=1, processes=processes) as simulations:
        (first,) = simulations.run([now], lambda *_: None, [later])
        both = simulations.run([later, replace(now, name="other")], lambda *_: None)

    alone = simulate_all(SCENARIO, [later], seed=1, processes=1, report=lambda *_: None)
    assert both == [alone[0].result, first]
    assert both[1] is first


def test_likely_simulations_nobody_asks_for_end_with_the_others() -> None:
    arrivals = [an_arrival(at=n * HOUR / 4) for n in range(4_000)]
    (brief,) = baselines("warm", Policy())[:1]
    with Simulations(
        a_scenario(*arrivals, length=1_000 * HOUR), seed=1, processes=3
    ) as simulations:
        simulations.run([brief], lambda *_: None, [brief, *frontier(Policy())])
        began = time.monotonic()

    assert time.monotonic() - began < 20.0
    assert until(lambda: not multiprocessing.active_children())


def test_a_ctrl_c_ends_all_simulations_at_once() -> None:
    arrivals = [an_arrival(at=n * HOUR / 4) for n in range(4_000)]
    endless = a_scenario(*arrivals, length=1_000 * HOUR)
    began: list[float] = []

    def report(*_: object) -> None:
        began.append(time.monotonic())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate_all(
            endless, [ours(Policy()), *frontier(Policy())], seed=1, processes=2, report=report
        )

    assert time.monotonic() - began[0] < 20.0
    # They are dead; the pool's own thread may still be taking note of it.
    assert until(lambda: not multiprocessing.active_children())


@pytest.mark.parametrize(("deadline", "tried"), [(20, (1, 2, 4, 10)), (13, (1, 2, 4))])
def test_tries_no_promise_that_contradicts_the_deadline(
    deadline: float, tried: tuple[int, ...]
) -> None:
    within, boot = timedelta(minutes=deadline), timedelta(minutes=3)
    policy = Policy(finish_within=within, boot_estimate=boot, max_failures=3)
    starts = [one.policy.start_within for one in frontier(policy)]

    assert starts == [timedelta(minutes=minutes) for minutes in tried]
    assert all(check_policy(one.policy) for one in frontier(policy))


def test_simulations_end_with_whoever_started_them() -> None:
    program = """
import multiprocessing, sys
from spindown.cli.simulate.alternative import baselines, frontier, ours, simulate_all
from spindown.domain.policy import Policy
from tests.simulator.scene import HOUR, a_scenario, an_arrival

def report(*_):
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)

if __name__ == "__main__":
    endless = a_scenario(*(an_arrival(at=n * HOUR) for n in range(4_000)), length=4_000 * HOUR)
    simulate_all(endless, frontier(Policy()), seed=1, processes=2, report=report)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        children = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        parent.terminate()

    assert len(children) == 2
    assert not psutil.wait_procs(children, timeout=30)[1]


@pytest.mark.parametrize(
    ("share", "seconds", "said"),
    [
        (0.01, 10.0, "1% done"),
        (0.1, 2072.0, "10% done, about 5.2 h left"),
        (0.5, 600.0, "50% done, about 10.0 min left"),
        (0.98, 98.0, "98% done, about 2 s left"),
        (0.99, 99.0, "99% done"),
        (1.0, 100.0, "100% done"),
    ],
)
def test_what_is_left_is_told_while_it_tells_something(
    share: float, seconds: float, said: str
) -> None:
    assert _say_done([share], [1.0], seconds) == (share, said)


def test_what_takes_long_tells_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = iter([0.0, 1.0, 12.0, 12.0, 12.0, 13.0, 14.0])
    report = _line_of_each(["ours", "warm"], [1.0, 0.0], lambda: next(seconds))

    for number, share in ((0, 0.1), (0, 0.4), (0, 0.5), (1, 1.0)):
        report(number, share)

    assert capsys.readouterr().err.splitlines() == [
        "spindown: simulating ours, warm ...",
        "spindown: simulating, 40% done, about 18 s left",
        "spindown: simulated warm, 1 of 2",
    ]
