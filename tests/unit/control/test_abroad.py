"""The fleet of a further region: seen, ended and paid for, also while its outpost comes or goes."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from spindown.contract import tag
from spindown.control.market import refresh
from spindown.domain.fleet import WorkerState
from spindown.domain.reason import Reason, ReasonCode
from spindown.error import AccessDenied, Throttled, Unreachable
from spindown.ledger import Ledger
from spindown.memory import PortCall
from tests.control import (
    AWAY,
    AWAY_ZONE,
    DEPLOYMENT,
    REGION,
    WORKLOAD,
    ZONES,
    a_pool_of,
    codes,
    pools,
)
from tests.failure import failing, only_in, refuse
from tests.unit.control.abroad import CHEAP_AWAY, MINUTE, a_world


def test_workers_of_a_silent_region_count_as_running() -> None:
    world = a_world(idle_timeout=timedelta(hours=9))
    worker = world.launched()
    world.interfere = only_in(AWAY, refuse(AccessDenied("no grant")))
    world.dry(a_pool_of("g4dn.xlarge", AWAY_ZONE))

    for _ in range(20):
        world.beat()
        world.tick(MINUTE)

    found = world.view().workers[worker.instance_id]
    assert found.state is WorkerState.IDLE


def test_a_lost_answer_abroad_is_adopted_there() -> None:
    world = a_world()
    world.compute.lose_next_answer()
    world.send()
    world.tick()

    decision = world.tick(MINUTE)

    assert pools(decision) == [f"g4dn.xlarge/{AWAY_ZONE}/spot"]
    assert [w.region for w in world.workers()] == [AWAY]


def test_a_throttle_abroad_during_a_search_leaves_home_open() -> None:
    world = a_world(max_workers=2)
    world.compute.lose_next_answer(is_carried_out=False)
    world.send()
    world.tick()
    world.interfere = only_in(AWAY, refuse(Throttled("slow down")))
    world.send(40)

    decision = world.tick(MINUTE)

    assert world.view().backlog.backoffs.keys() == {AWAY}
    assert ReasonCode.CALL_THROTTLED in codes(decision)
    assert pools(decision) == [f"g4dn.xlarge/{ZONES[0]}/spot"]


def test_a_throttled_launch_keeps_the_places_it_may_yet_fill() -> None:
    world = a_world(max_workers=2)
    world.interfere = failing(Throttled("slow down"), "launch", times=1)
    world.send(400)

    world.tick()
    world.run(4)

    running = [w for w in world.workers() if w.state is not WorkerState.ENDED]
    assert len(running) == 2


def test_a_throttle_where_all_workers_are_counts_once_and_there() -> None:
    world = a_world(idle_timeout=timedelta(hours=9))
    world.launched()
    world.interfere = only_in(AWAY, refuse(Throttled("slow down")))

    world.tick(MINUTE)

    backoffs = world.view().backlog.backoffs
    assert {region: known.throttles for region, known in backoffs.items()} == {AWAY: 1}


def test_a_reclaim_abroad_is_seen_and_replaced() -> None:
    world = a_world()
    worker = world.launched()
    lease = world.claim(worker.instance_id)
    world.compute.reclaim(worker.instance_id)

    decisions = world.run(4)

    launched = [pool for decision in decisions for pool in pools(decision)]
    assert lease.instance_id == worker.instance_id
    # Its pool has just reclaimed, so the next of the one list is at home.
    assert launched == [f"g4dn.xlarge/{ZONES[0]}/spot"]


def test_an_idle_tick_asks_each_further_region_once_and_seldom() -> None:
    calls = {}
    for name, away in (("one", ()), ("two", CHEAP_AWAY)):
        world = a_world(away, idle_timeout=timedelta(hours=9))
        worker = world.launched()
        world.run(5)
        world.calls.clear()
        for _ in range(10):
            world.beat()
            world.tick(MINUTE)
        calls[name] = world.calls["compute.instances"] + world.calls["compute.reclaimed"]
        assert world.view().workers[worker.instance_id].state is WorkerState.IDLE

    assert calls["two"] <= calls["one"] + 1


def test_an_orphan_abroad_is_found_and_ended() -> None:
    world = a_world()
    worker = world.launched()
    world.finish(world.claim(worker.instance_id))
    world.remove(f"worker#{worker.instance_id}")
    world.remove(f"launch#{worker.launch_id}")

    world.run(35)

    (instance,) = world.compute.instances(region=AWAY, tags={})
    assert instance.state in {"shutting-down", "terminated"}


def test_a_region_that_ends_nothing_saves_no_orphan_elsewhere() -> None:
    world = a_world()
    worker = world.launched()
    orphan = world.launch_astray(**{tag.DEPLOYMENT: DEPLOYMENT, tag.WORKLOAD: WORKLOAD})
    world.change(worker.instance_id, state=WorkerState.CONDEMNED, condemned_at=world.now)

    def refuse_to_end(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "terminate" and call.kwargs["region"] == AWAY:
            raise Unreachable("no answer")
        return proceed()

    world.interfere = refuse_to_end
    world.run(20)

    states = {i.instance_id: i.state for i in world.compute.instances(region=REGION, tags={})}
    assert states[orphan] in {"shutting-down", "terminated"}


def test_what_ran_in_a_removed_region_ends_and_costs_no_more() -> None:
    world = a_world(idle_timeout=timedelta(hours=9))
    worker = world.launched()
    settings = world.workload_settings()
    # The outpost's teardown has ended its instances; no event told so.
    world.compute.terminate(region=AWAY, instance_ids=[worker.instance_id])
    world.interfere = only_in(AWAY, refuse(AccessDenied("no grant")))
    home = {REGION: settings.regions[REGION]}
    world.settings.deploy(replace(settings, regions=home, outposts=()))

    world.run(30)

    ended = Ledger(world.table, WORKLOAD).read_ended()[worker.instance_id]
    assert ended.state is WorkerState.ENDED


def test_an_outpost_is_used_from_the_tick_after_its_deploy() -> None:
    world = a_world()
    settings = world.workload_settings()
    home = {REGION: settings.regions[REGION]}
    world.settings.deploy(replace(settings, regions=home, unread={AWAY: "not yet"}))
    refresh(world.ports)
    world.tick()

    world.settings.deploy(settings)
    world.send()
    decision = world.tick(timedelta(seconds=30))

    assert pools(decision) == [f"g4dn.xlarge/{AWAY_ZONE}/spot"]


def test_nothing_is_launched_in_an_outpost_that_is_just_going() -> None:
    world = a_world()
    refresh(world.ports)
    world.tick()
    settings = world.workload_settings()
    home = {REGION: settings.regions[REGION]}
    world.settings.deploy(replace(settings, regions=home, unread={AWAY: "gone"}))
    world.send()

    decision = world.tick(timedelta(seconds=5))

    assert pools(decision) == [f"g4dn.xlarge/{ZONES[0]}/spot"]
    assert Reason(ReasonCode.REGION_REMOVED, {"region": AWAY}) in decision.notes


def test_the_prices_of_one_region_do_not_wait_for_anothers() -> None:
    world = a_world(max_workers=2)
    world.send()
    world.tick()
    world.dry(a_pool_of("g4dn.xlarge", AWAY_ZONE))
    world.send(40)
    world.tick(MINUTE)
    before = {w.region: w.price_per_hour for w in world.workers()}
    assert set(before) == {AWAY, REGION}
    for zone in (AWAY_ZONE, *ZONES):
        world.market.move_spot_price("g4dn.xlarge", zone, 0.9)

    def fail(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "spot_prices" and call.kwargs["region"] == AWAY:
            raise Unreachable("no answer")
        return proceed()

    world.interfere = fail
    world.tick(7 * MINUTE)

    after = {w.region: w.price_per_hour for w in world.workers()}
    assert after[AWAY] == before[AWAY]
    assert after[REGION] > 0.9 > before[REGION]
