"""Two regions: one list, one fleet, and no region that is in another's way."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.app.ledger import Ledger
from spindown.app.offers import refresh
from spindown.app.port import LaunchRequest, RefusalKind
from spindown.contract import tag
from spindown.contract.decision import Outcome
from spindown.contract.row import throughput_sort
from spindown.domain.fleet import WorkerState
from spindown.domain.policy import Policy
from spindown.error import AccessDenied, Throttled, Unreachable
from spindown.memory import PortCall
from tests.control import (
    AWAY,
    AWAY_ZONE,
    DEPLOYMENT,
    REGION,
    WORKLOAD,
    ZONES,
    ControlWorld,
    a_pool_of,
    pools,
)
from tests.failure import only_in, refuse

CHEAP_AWAY = (("g4dn.xlarge", 0.10),)
DEAR_AWAY = (("g4dn.xlarge", 0.30),)
MINUTE = timedelta(minutes=1)


def a_world(away: tuple[tuple[str, float], ...] = CHEAP_AWAY, **policy: Any) -> ControlWorld:
    return ControlWorld(policy=Policy(**{"mib_per_item_estimate": 0.01, **policy}), away=away)


def test_launches_where_an_item_is_cheapest_and_says_where_home_is() -> None:
    world = a_world()
    requests: list[LaunchRequest] = []

    def note(call: PortCall, proceed: Callable[[], Any]) -> Any:
        requests.extend(one for one in call.args if isinstance(one, LaunchRequest))
        return proceed()

    world.interfere = note
    world.send()

    decision = world.tick()

    assert pools(decision) == [f"g4dn.xlarge/{AWAY_ZONE}/spot"]
    (worker,) = world.workers()
    assert (worker.region, worker.zone) == (AWAY, AWAY_ZONE)
    (request,) = requests
    assert (request.region, request.template.id) == (AWAY, "lt-2")
    (instance,) = world.compute.instances(region=AWAY, tags={})
    assert instance.tags[tag.REGION] == REGION
    assert instance.tags[tag.BUCKET] == "demo-bucket"
    assert instance.tags[tag.QUEUE_URL] == "https://sqs/demo-classify"


def test_a_launch_at_home_says_nothing_that_its_template_says() -> None:
    world = a_world(DEAR_AWAY)
    world.send()

    world.tick()

    (instance,) = world.compute.instances(region=REGION, tags={})
    assert tag.LAUNCH in instance.tags
    assert not instance.tags.keys() & tag.HOME


def test_large_items_stay_at_home_once_they_were_seen() -> None:
    world = a_world()
    world.put(throughput_sort("T4", 1.0), count=100, hours=0.1, reports=9, moved=100, gib_in=5.0)
    world.send()

    decision = world.tick()

    assert pools(decision) == [f"g4dn.xlarge/{ZONES[0]}/spot"]
    transfer = {c.region: c.parts["transfer"] for c in decision.candidates}
    assert transfer[REGION] == 0.0
    assert transfer[AWAY] == pytest.approx(5 / 101 * 0.02, rel=0.01)


def test_the_policy_may_leave_a_region_out_while_the_system_runs() -> None:
    world = a_world(regions=frozenset({REGION}))
    world.send()

    decision = world.tick()

    assert pools(decision) == [f"g4dn.xlarge/{ZONES[0]}/spot"]
    (left_out,) = [r for r in decision.rejections if r.reason == "regions"]
    assert f"regions of the policy leaves {AWAY} out" in left_out.example


def test_a_dry_region_is_passed_over_for_the_next_in_the_list() -> None:
    world = a_world()
    world.dry(a_pool_of("g4dn.xlarge", AWAY_ZONE))
    world.send()

    decision = world.tick()

    assert [a.outcome for a in decision.attempts] == ["capacity", "launched"]
    assert pools(decision) == [f"g4dn.xlarge/{ZONES[0]}/spot"]


@pytest.mark.parametrize("error", [AccessDenied("no grant"), Throttled("slow down")])
def test_a_region_that_refuses_closes_itself_alone(error: Exception) -> None:
    world = a_world(max_workers=2)
    world.interfere = only_in(AWAY, refuse(error))
    world.send()

    decision = world.tick()

    assert decision.outcome is Outcome.LAUNCHED
    assert pools(decision) == [f"g4dn.xlarge/{ZONES[0]}/spot"]
    world.send(40)
    again = world.tick(timedelta(seconds=5))
    assert all(pool.startswith(f"g4dn.xlarge/{ZONES[0]}") for pool in pools(again))
    (closed,) = [r for r in again.rejections if r.reason == "regions"]
    assert closed.offers == 2


@pytest.mark.parametrize("error", [Unreachable("no answer"), Throttled("slow down")])
def test_a_region_whose_prices_cannot_be_read_closes_itself_alone(error: Exception) -> None:
    world = a_world()

    def fail(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "spot_prices" and call.kwargs["region"] == AWAY:
            raise error
        return proceed()

    world.interfere = fail
    world.send()

    assert pools(world.tick()) == [f"g4dn.xlarge/{ZONES[0]}/spot"]


def test_an_image_that_fails_in_one_region_stops_that_region_alone() -> None:
    world = a_world(max_workers=1, scale_up_timeout=MINUTE, unavailable_for=timedelta(0))
    world.send()
    for _ in range(12):
        world.tick(MINUTE)
        if world.workers(WorkerState.BOOTING) and world.workers()[-1].region == REGION:
            break

    view = world.view()
    assert view.breakers[AWAY].open_until is not None
    assert view.breaker.open_until is None
    (booting,) = world.workers(WorkerState.BOOTING)
    assert booting.region == REGION


def test_a_full_quota_of_one_region_says_nothing_of_the_other() -> None:
    world = a_world()
    world.compute.refuse_next(
        RefusalKind.QUOTA, "MaxSpotInstanceCountExceeded", pool=a_pool_of("g4dn.xlarge", AWAY_ZONE)
    )
    world.send()

    decision = world.tick()

    assert pools(decision) == [f"g4dn.xlarge/{ZONES[0]}/spot"]


def test_an_outpost_that_cannot_be_read_is_said_and_the_others_go_on() -> None:
    world = a_world()
    settings = world.workload_settings()
    world.settings.deploy(
        replace(
            settings,
            outposts={REGION: settings.outposts[REGION]},
            unread={AWAY: "nothing is deployed there"},
        )
    )
    world.send()

    decision = world.tick()

    assert pools(decision) == [f"g4dn.xlarge/{ZONES[0]}/spot"]
    assert f"{AWAY} is left out: nothing is deployed there" in decision.notes


def test_workers_of_a_region_that_does_not_answer_are_taken_as_running() -> None:
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


def test_a_throttle_abroad_while_an_answer_is_looked_for_does_not_close_home() -> None:
    world = a_world(max_workers=2)
    world.compute.lose_next_answer(is_carried_out=False)
    world.send()
    world.tick()
    world.interfere = only_in(AWAY, refuse(Throttled("slow down")))
    world.send(40)

    decision = world.tick(MINUTE)

    assert world.view().backlog.backoffs.keys() == {AWAY}
    assert any("without an answer: slow down" in note for note in decision.notes)
    assert pools(decision) == [f"g4dn.xlarge/{ZONES[0]}/spot"]


def test_a_throttle_where_all_workers_are_is_counted_once_and_there_alone() -> None:
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


def test_a_region_that_ends_nothing_keeps_no_orphan_elsewhere_alive() -> None:
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


def test_the_catalogue_reads_what_leaving_a_region_costs_once_there_are_two() -> None:
    world = a_world(CHEAP_AWAY)
    world.market.set_transfer_price(AWAY, REGION, 0.09)

    catalogue = refresh(world.ports).catalogue

    assert catalogue.transfer_price == {AWAY: {REGION: 0.09}, REGION: {}}
    assert refresh(ControlWorld().ports).catalogue.transfer_price == {}
    world.send()
    (away, *_) = [c for c in world.tick().candidates if c.region == AWAY]
    # Inputs at the usual rate of home, and no outputs are known of.
    assert away.parts["transfer"] == pytest.approx(0.01 / 1024 * 0.02)


def test_what_ran_in_a_region_that_is_given_up_ends_and_costs_no_more() -> None:
    world = a_world(idle_timeout=timedelta(hours=9))
    worker = world.launched()
    settings = world.workload_settings()
    # The outpost's teardown has ended its instances; no event told so.
    world.compute.terminate(region=AWAY, instance_ids=[worker.instance_id])
    world.interfere = only_in(AWAY, refuse(AccessDenied("no grant")))
    home = {REGION: settings.outposts[REGION]}
    world.settings.deploy(replace(settings, outposts=home, regions=()))

    world.run(30)

    ended = Ledger(world.table, WORKLOAD).read_ended()[worker.instance_id]
    assert ended.state is WorkerState.ENDED


def test_an_outpost_is_used_from_the_tick_after_its_deploy() -> None:
    world = a_world()
    settings = world.workload_settings()
    home = {REGION: settings.outposts[REGION]}
    world.settings.deploy(replace(settings, outposts=home, unread={AWAY: "not yet"}))
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
    home = {REGION: settings.outposts[REGION]}
    world.settings.deploy(replace(settings, outposts=home, unread={AWAY: "gone"}))
    world.send()

    decision = world.tick(timedelta(seconds=5))

    assert pools(decision) == [f"g4dn.xlarge/{ZONES[0]}/spot"]
    assert f"{AWAY} is left out: its outpost is gone" in decision.notes


def test_the_end_prices_of_one_region_do_not_wait_for_anothers() -> None:
    world = a_world(max_workers=2)
    world.send()
    world.tick()
    world.dry(a_pool_of("g4dn.xlarge", AWAY_ZONE))
    world.send(40)
    world.tick(MINUTE)
    assert [w.region for w in world.workers()] == [AWAY, REGION]
    for worker in world.workers():
        world.compute.power_off(worker.instance_id)

    def fail(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "spot_prices" and call.kwargs["region"] == AWAY:
            raise Unreachable("no answer")
        return proceed()

    world.interfere = fail
    world.clock.advance(40 * MINUTE)
    world.tick()

    prices = {w.region: w.end_price_per_hour for w in world.workers(WorkerState.ENDED)}
    assert prices[AWAY] is None
    assert prices[REGION] is not None
