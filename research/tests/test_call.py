"""Calls of AWS's interfaces are counted before the ports of a simulation, and change nothing."""

from collections.abc import Callable
from typing import Any

import pytest

from research.compare.claim.call import Count, call_table, call_targets, counted, idle_tick
from spindown.domain.control_cost import TICK
from spindown.domain.list_price import PRICES, Usage
from spindown.memory import PortCall
from spindown.simulator import Run, simulate
from tests.simulator.scene import HOUR, a_policy, a_scenario, an_arrival


def test_a_run_whose_calls_are_counted_is_the_same_run() -> None:
    scenario = a_scenario(an_arrival(), an_arrival(at=HOUR), length=2 * HOUR)
    result, calls = counted(scenario, a_policy(), 1)

    assert result.to_json() == simulate(scenario, a_policy(), 1).to_json()
    assert calls["months"] == pytest.approx(2 / 730)


@pytest.mark.parametrize(
    ("call", "answer", "calls", "usage", "units"),
    [
        ("work table.get", None, 1, Usage.TABLE_READ, 1),
        ("control table.query", {}, 1, Usage.TABLE_READ, 3),
        ("work table.write", {}, 1, Usage.TABLE_WRITE, 1),
        ("work table.transact", None, 1, Usage.TABLE_WRITE, 4),
        ("work objects.put", "", 1, Usage.OBJECT_WRITE, 1),
        ("work objects.get", None, 1, Usage.OBJECT_READ, 1),
        ("work objects.delete", None, 1, Usage.OBJECT_WRITE, 0),
        ("work objects.expire", None, 0, Usage.OBJECT_WRITE, 0),
        ("control queue.backlog", None, 1, Usage.QUEUE_REQUEST, 1),
        ("work queue.next_visible_at", None, 0, Usage.QUEUE_REQUEST, 0),
        # A poll looks at once, then waits: on AWS these are one request.
        ("work polls.receive", None, 0, Usage.QUEUE_REQUEST, 0),
        ("work polls.receive", "a message", 1, Usage.QUEUE_REQUEST, 1),
        ("work polls.wait", "a poll", 1, Usage.QUEUE_REQUEST, 1),
        ("work polls.give_up", None, 0, Usage.QUEUE_REQUEST, 0),
        ("control compute.launch", None, 1, Usage.QUEUE_REQUEST, 0),
    ],
)
def test_what_a_call_uses_up(
    call: str, answer: Any, calls: int, usage: Usage, units: float
) -> None:
    port, _, method = call.partition(".")
    count, who = Count(), port.partition(" ")[0]

    made = PortCall(port=port, method=method, args=(["one", "other"],))
    assert count(made, lambda: answer) is answer
    assert count.calls[who] == calls
    assert count.dollars[who] == pytest.approx(PRICES[usage].each * units)


def test_an_idle_tick_costs_what_the_page_of_costs_says() -> None:
    calls, dollars = idle_tick(a_scenario(), a_policy())

    called = (Usage.QUEUE_REQUEST, Usage.TABLE_READ, Usage.TABLE_WRITE)
    assert dollars == pytest.approx(sum(TICK.used[x] * PRICES[x].each for x in called))
    assert calls == pytest.approx(4, abs=0.2)


def test_ticks_that_a_simulation_leaves_out_are_paid_for() -> None:
    busy, day = a_scenario(length=HOUR), a_scenario()
    (short, less), (long, more) = (counted(each, a_policy(), 1) for each in (busy, day))

    # Each hour has 60 ticks, and one refresh of the offers, which is a few calls.
    minutes = (long.seconds - short.seconds) / 60
    assert long.ticks - short.ticks < minutes / 2
    spared = more["control_calls"] - less["control_calls"]
    assert spared == pytest.approx(4 * minutes, rel=0.1)


def test_workers_call_for_work_and_functions_for_machines() -> None:
    made: list[tuple[str, str]] = []

    def hear(call: PortCall, proceed: Callable[[], Any]) -> Any:
        made.append((call.port, call.method))
        return proceed()

    Run(a_scenario(an_arrival(), length=HOUR), a_policy(), 1, interceptor=hear).run()

    assert made.count(("control compute", "launch")) == 1
    assert made.count(("work queue", "delete")) == 1
    assert made.count(("control queue", "delete")) == 0


CALLS = {
    "control_calls": 4000.0,
    "control_dollars": 0.05,
    "work_calls": 9000.0,
    "work_dollars": 0.2,
    "months": 0.1,
}


@pytest.mark.parametrize(
    ("dollars", "verdicts"),
    [(40.0, ["holds", "holds"]), (5.0, ["holds", "**does not hold**"])],
)
def test_calls_are_told_per_1000_items_and_judged_by_bill(
    dollars: float, verdicts: list[str]
) -> None:
    results = {
        "S5": {"1": {"calls": CALLS, "ours 10 min": {"items": 2000.0, "dollars": dollars}}},
        "S6": {"1": {"ours 10 min": {"items": 2000.0}}},
    }

    assert "| S5 | 2,000, 0.025 | 4,500, 0.1 | 0.50 |" in call_table(results)
    assert "S6" not in call_table(results)
    assert [line.split(" | ")[-1].removesuffix(" |") for line in call_targets(results)] == verdicts
