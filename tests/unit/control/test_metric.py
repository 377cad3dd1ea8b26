"""A tick sends metrics of everything while something goes on, and next to none in silence."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from spindown.contract.metric import METRICS, Emitter
from spindown.contract.row import DEPLOYMENT_PARTITION
from spindown.control.observe.observation import ACCOUNT
from spindown.domain.fleet import WorkerState
from spindown.domain.reason import ReasonCode
from spindown.error import Unreachable
from spindown.memory import PortCall
from spindown.port import Datum
from tests.control import WORKLOAD, ControlWorld, a_pool_of, codes, with_policy
from tests.failure import failing


def test_every_metric_is_in_the_table_with_its_dimensions() -> None:
    world = ControlWorld(budget=100.0)
    world.launched(3)
    world.send(400)
    world.run(3)

    for datum in world.metrics.data:
        metric = METRICS[datum.name]
        assert set(datum.dimensions) == set(metric.dimensions), datum
        assert metric.emitters & {Emitter.SCALER, Emitter.OFFERS}


MINUTE = timedelta(minutes=1)


def metrics_of_a_tick(world: ControlWorld) -> list[Datum]:
    before = len(world.metrics.data)
    world.tick(MINUTE)
    return list(world.metrics.data[before:])


def test_an_idle_tick_sends_only_what_is_not_zero() -> None:
    world = ControlWorld()
    world.run(2)

    sent = metrics_of_a_tick(world)

    assert {datum.name: datum.value for datum in sent} == {"Ticks": 1}


def test_an_idle_tick_still_sends_what_is_wrong() -> None:
    world = ControlWorld()
    world.settings.put_live(WORKLOAD, '{"max_workers": "many"}')
    world.run(6)

    sent = metrics_of_a_tick(world)

    assert {datum.name: datum.value for datum in sent} == {
        "Ticks": 1,
        "PolicyInvalid": 1,
        "Alerts": 1,
    }


def test_tells_the_age_of_the_spot_prices_behind_a_launch() -> None:
    world = with_policy(max_price_per_hour=0.01)
    world.send()
    world.tick()
    fresh = world.metric("SpotPriceAge")

    world.interfere = failing(Unreachable("no answer"), "spot_prices")
    world.run(6)

    assert (fresh, world.metric("SpotPriceAge")) == (0, 6 * MINUTE.total_seconds())


def test_a_tick_with_work_sends_zeros_too() -> None:
    world = ControlWorld()
    world.launched()

    sent = metrics_of_a_tick(world)

    assert {datum.value for datum in sent if datum.name == "BadRows"} == {0}
    assert len([datum for datum in sent if datum.name == "Workers"]) == len(WorkerState) - 1
    (of_type,) = [datum for datum in sent if datum.name == "WorkersOfType"]
    assert (of_type.dimensions["InstanceType"], of_type.value) == ("g4dn.xlarge", 1)


def test_a_refused_launch_is_counted_by_the_pool_that_refused() -> None:
    world = ControlWorld()
    pool = a_pool_of("g4dn.xlarge")
    world.dry(pool)
    world.send()

    sent = metrics_of_a_tick(world)

    refusals = {d.dimensions["Pool"]: d.value for d in sent if d.name == "Refusals"}
    assert refusals[str(pool)] >= 1


def test_an_unreadable_month_for_metrics_stops_no_tick() -> None:
    world = with_policy(idle_timeout=600 * MINUTE)
    worker = world.launched()
    world.finish(world.claim(worker.instance_id))
    world.ports.cache.forget(ACCOUNT, "")

    def refuse(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "query" and call.args[0] == DEPLOYMENT_PARTITION:
            raise Unreachable("no answer")
        return proceed()

    world.interfere = refuse
    decision = world.tick(5 * MINUTE)

    assert ReasonCode.NO_ANSWER in codes(decision)
    assert world.view().workers[worker.instance_id].accrued_until == world.now
