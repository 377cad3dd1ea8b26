"""Launching: in the order of the list, once, and never past a bound of the policy."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from spindown.contract.decision import Outcome
from spindown.domain.fleet import WorkerState
from spindown.domain.offer import CapacityType
from spindown.domain.policy import RankBy
from spindown.domain.reason import ReasonCode
from spindown.error import Unreachable
from spindown.memory import PortCall
from spindown.operate.plan import plan_next_tick
from tests.builders import minutes
from tests.control import (
    PRICES,
    STRICT,
    WORKLOAD,
    ZONES,
    ControlWorld,
    a_pool_of,
    pools,
    with_policy,
)


def test_launches_the_cheapest_offer_for_the_first_message() -> None:
    world = ControlWorld()
    world.send()

    decision = world.tick()

    assert decision.outcome is Outcome.LAUNCHED
    assert pools(decision) == ["g4dn.xlarge/us-west-2a/spot"]
    (worker,) = world.workers()
    assert worker.state is WorkerState.BOOTING
    assert worker.price_per_hour == pytest.approx(0.20 + 100 * 0.08 / 730 + 0.005)
    assert (worker.gpu_name, worker.slots) == ("T4", 1)
    assert world.metric("InstancesLaunched") == 1


def test_does_not_launch_the_same_backlog_again_while_it_boots() -> None:
    world = ControlWorld()
    world.send(3)
    world.tick()
    booting = len(world.workers())

    assert all(d.outcome is Outcome.ENOUGH for d in world.run(3))
    assert len(world.workers()) == booting


def test_tries_dry_pools_strictly_in_the_order_of_the_list() -> None:
    world = with_policy(**STRICT)
    dry = [a_pool_of(name, zone) for name in ("g4dn.xlarge", "g6.xlarge") for zone in ZONES]
    world.dry(*dry)
    world.send()

    decision = world.tick()

    tried = [request.pools for request in decision.requests]
    assert tried == [(str(pool),) for pool in dry] + [("g5.xlarge/us-west-2a/spot",)]
    assert tried == [(c.offer,) for c in decision.candidates[: len(tried)]]
    assert [a.outcome for a in decision.requests] == ["capacity"] * 4 + ["launched"]


@pytest.mark.parametrize("rank_by", ["cost_per_item", "price"])
@pytest.mark.parametrize("dry", range(7))
def test_with_the_first_k_dry_the_list_is_tried_in_order(rank_by: str, dry: int) -> None:
    world = with_policy(band=0.0, rank_by=RankBy(rank_by))
    # No two pools cost the same, and the order is not that of the names.
    for n, (name, zone) in enumerate((n, z) for n in reversed(PRICES) for z in ZONES):
        world.market.move_spot_price(name, zone, 0.20 + 0.031 * n)
    world.send()
    order = [c.offer for c in plan_next_tick(WORKLOAD, world.ports).candidates]
    assert len(order) == 6
    world.dry(*(offer.pool for offer in order[:dry]))

    decision = world.tick()

    tried = [request.pools for request in decision.requests]
    assert tried == [(str(offer),) for offer in order[: dry + 1]]
    assert pools(decision) == [str(offer) for offer in order[dry : dry + 1]]
    assert [c.offer for c in decision.candidates] == [str(offer) for offer in order]


def test_asks_for_a_band_of_equal_offers_in_one_request() -> None:
    world = with_policy(band=0.05)
    world.dry(a_pool_of("g4dn.xlarge", ZONES[0]))
    world.send()

    decision = world.tick()

    (request,) = decision.requests
    assert request.pools == tuple(str(a_pool_of("g4dn.xlarge", zone)) for zone in ZONES)
    assert pools(decision) == ["g4dn.xlarge/us-west-2b/spot"]


def test_stops_after_a_bounded_number_of_tries() -> None:
    world = with_policy(**STRICT, max_requests_per_tick=2)
    world.dry(*(a_pool_of(name, zone) for name in ("g4dn.xlarge", "g6.xlarge") for zone in ZONES))
    world.send()

    first, second = world.tick(), world.tick(minutes(1))

    assert len(first.requests) == 2
    assert first.summary.ended_early.code is ReasonCode.TRIES_USED_UP
    # The next tick goes on where this one stopped, since what was dry is remembered.
    assert [a.pools[0] for a in second.requests] == [
        "g6.xlarge/us-west-2a/spot",
        "g6.xlarge/us-west-2b/spot",
    ]


def test_begins_no_request_when_its_time_is_up() -> None:
    world = with_policy(**STRICT)
    world.dry(a_pool_of("g4dn.xlarge"))
    world.send()

    def slow(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "launch":
            world.clock.advance(timedelta(seconds=45))
        return proceed()

    world.interfere = slow
    decision = world.tick()

    assert len(decision.requests) == 1
    assert decision.summary.ended_early.code is ReasonCode.TIME_IS_UP


def test_max_dollars_per_hour_bounds_the_fleet() -> None:
    world = with_policy(max_dollars_per_hour=0.5, max_workers=10, drain_within=minutes(10))
    world.send(100)

    world.run(3)

    assert len(world.workers()) == 2


@pytest.mark.parametrize(
    ("left", "bought"),
    [
        # At 0.216 an hour there is room for five. Each of the next type costs 0.366 or 0.466.
        pytest.param({}, ["g6.xlarge", "g6.xlarge", "g6.xlarge"], id="the cheapest is dry"),
        pytest.param({"us-west-2a": 2}, ["g4dn.xlarge"] * 2 + ["g6.xlarge"], id="it has two"),
    ],
)
def test_the_hourly_ceiling_holds_for_dearer_offers_too(
    left: dict[str, int], bought: list[str]
) -> None:
    world = with_policy(**STRICT, max_dollars_per_hour=1.1, max_workers=10)
    for zone in ZONES:
        world.compute.set_capacity(a_pool_of("g4dn.xlarge", zone), left.get(zone, 0))
    world.send(100)

    decision = world.tick()

    assert [pool.partition("/")[0] for pool in pools(decision)] == bought
    assert sum(worker.price_per_hour for worker in world.workers()) <= 1.1


def test_the_hourly_ceiling_counts_a_band_at_its_dearest() -> None:
    world = with_policy(band=2.0, max_dollars_per_hour=1.0, max_workers=10)
    for zone in ZONES:
        world.dry(a_pool_of("g4dn.xlarge", zone), a_pool_of("g6.xlarge", zone))
    world.send(100)

    world.tick()

    assert 0.0 < sum(worker.price_per_hour for worker in world.workers()) <= 1.0


def test_an_unanswered_launch_counts_against_the_hourly_ceiling() -> None:
    world = with_policy(**STRICT, max_dollars_per_hour=1.1, max_workers=10)
    world.send(100)

    def lose(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.port != "compute":
            return proceed()
        if call.method == "launch":
            proceed()
        raise Unreachable("no answer")

    world.interfere = lose
    world.tick()
    (intent,) = world.view().launches.values()
    world.tick(minutes(1))

    assert list(world.view().launches) == [intent.launch_id]


def test_max_workers_bounds_the_fleet_without_reading_prices() -> None:
    world = with_policy(max_workers=2, drain_within=minutes(10))
    world.send(100)
    world.tick()
    before = world.calls["table.query_each"]

    decision = world.tick(minutes(1))

    assert len(world.workers()) == 2
    assert decision.summary.why.code is ReasonCode.MAX_WORKERS
    assert world.calls["table.query_each"] - before == 1


def test_fills_the_need_from_several_bands_when_pools_are_small() -> None:
    world = with_policy(max_workers=10, drain_within=minutes(20), band=0.0)
    world.compute.set_capacity(a_pool_of("g4dn.xlarge"), 1)
    world.compute.set_capacity(a_pool_of("g4dn.xlarge", ZONES[1]), 1)
    world.send(10)

    decision = world.tick()

    launched = pools(decision)
    assert {"g4dn.xlarge/us-west-2a/spot", "g4dn.xlarge/us-west-2b/spot"} < set(launched)
    assert world.tick(minutes(1)).requests == ()


def test_says_which_constraint_is_in_the_way_when_nothing_fits() -> None:
    world = with_policy(max_price_per_hour=0.01)
    world.send()

    decision = world.tick()

    assert decision.outcome is Outcome.NOTHING_FITS
    assert {r.constraint for r in decision.rejections} == {"max_price_per_hour"}
    (nearest,) = [x for x in decision.notes if x.code is ReasonCode.NEAREST_OFFER]
    assert str(nearest.about["offer"]).startswith("g4dn.xlarge")
    assert world.metric("NothingFits") == 1


def test_marks_a_launch_with_template_version_token_and_tag() -> None:
    world = ControlWorld()
    seen: list[Any] = []

    def record(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "launch":
            seen.append(call.args[0])
        return proceed()

    world.interfere = record
    world.send()
    decision = world.tick()

    (request,) = seen
    assert request.template.version == "3"
    assert len(request.client_token) == 64
    lives_for = world.policy.max_lifetime + world.policy.lifetime_grace
    assert request.tags == {
        "spindown:deployment": "demo",
        "spindown:workload": "classify",
        "spindown:launch": decision.requests[0].launch_id,
        "spindown:lease-until": f"{world.now + lives_for:%Y-%m-%dT%H:%M:%SZ}",
    }
    assert request.capacity_type is CapacityType.SPOT
