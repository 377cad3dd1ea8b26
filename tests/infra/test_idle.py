"""The estimate of an idle tick is what the real tick does over an idle hour."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from spindown.aws.cloudwatch import metric_events
from spindown.control.alert.cost_rise import judge
from spindown.control.market import refresh
from spindown.domain.control_cost import JUDGEMENT, REFRESH, TICK
from spindown.domain.list_price import Usage
from spindown.memory import PortCall
from tests.control import ControlWorld

TICKS = 60
#: A transaction counts each of its writes twice (Amazon DynamoDB Developer Guide, "Read and write
#: capacity").
TRANSACTED = 2


def test_an_idle_tick_uses_what_the_estimate_says() -> None:
    calls: list[PortCall] = []

    def count(call: PortCall, proceed: Callable[[], Any]) -> Any:
        calls.append(call)
        return proceed()

    world = ControlWorld(budget=100.0)
    world.run(5)
    world.interfere = count

    world.run(TICKS)

    written = sum(
        TRANSACTED * len(call.args[0]) if call.method == "transact" else 1
        for call in calls
        if call.port == "table" and call.method in {"write", "transact"}
    )
    read = sum(
        call.method in {"query", "query_each", "get"} for call in calls if call.port == "table"
    )
    assert written / TICKS == TICK.used[Usage.TABLE_WRITE]
    assert read / TICKS <= TICK.used[Usage.TABLE_READ]
    assert sum(call.port == "queue" for call in calls) / TICKS == TICK.used[Usage.QUEUE_REQUEST]
    assert not [call for call in calls if call.port == "objects"]


def test_an_idle_hour_of_advice_uses_what_the_estimate_says() -> None:
    world = ControlWorld(budget=100.0)
    world.run(5)
    refresh(world.ports)
    judge(world.ports)
    calls: list[PortCall] = []

    def count(call: PortCall, proceed: Callable[[], Any]) -> Any:
        calls.append(call)
        return proceed()

    world.interfere = count
    before = len(world.metrics.data)
    judge(world.ports)

    assert [call.method for call in calls if call.port == "table"] == ["query_each"]
    assert JUDGEMENT.used[Usage.TABLE_READ] == TICK.used[Usage.TABLE_READ]
    assert not [call for call in calls if call.port in {"topic", "objects", "queue"}]
    assert len(world.metrics.data) - before == JUDGEMENT.metrics


def test_an_idle_tick_sends_as_many_metrics_as_estimated() -> None:
    world = ControlWorld(budget=100.0)
    world.run(5)
    before = len(world.metrics.data)

    world.tick(timedelta(minutes=1))

    sent = world.metrics.data[before:]
    # The clock in memory stands still during a tick, so that its time is 0 and is not sent.
    assert len({datum.name for datum in sent} | {"TickSeconds"}) == TICK.metrics
    assert sum(len(event) for event in metric_events(sent, world.now)) < 500


def test_a_refresh_sends_as_many_metrics_as_estimated() -> None:
    world = ControlWorld()

    refresh(world.ports)

    assert len(world.metrics.data) == REFRESH.metrics
