"""Two regions: one list to launch from, and no region that is in another's way."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.contract import tag
from spindown.contract.decision import Outcome
from spindown.contract.row import breaker_sort_key, throughput_sort_key
from spindown.control.market import refresh
from spindown.domain.fleet import WorkerState
from spindown.domain.reason import Reason, ReasonCode
from spindown.error import AccessDenied, Throttled, Unreachable
from spindown.memory import PortCall
from spindown.port import LaunchRequest, RefusalKind
from tests.control import (
    AWAY,
    AWAY_ZONE,
    REGION,
    ZONES,
    ControlWorld,
    a_pool_of,
    codes,
    pools,
)
from tests.failure import only_in, refuse
from tests.unit.control.abroad import CHEAP_AWAY, DEAR_AWAY, MINUTE, a_world


def test_launches_where_an_item_is_cheapest_and_names_home() -> None:
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
    assert instance.tags[tag.QUEUE_URL] == "https://sqs/demo--classify"


def test_a_launch_at_home_says_nothing_that_its_template_says() -> None:
    world = a_world(DEAR_AWAY)
    world.send()

    world.tick()

    (instance,) = world.compute.instances(region=REGION, tags={})
    assert tag.LAUNCH in instance.tags
    # Whose it is every template says.
    assert not instance.tags.keys() & tag.HOME - {tag.REGION}


def test_large_items_stay_at_home_once_they_were_seen() -> None:
    world = a_world()
    world.put(
        throughput_sort_key("T4", 1.0), count=100, hours=0.1, reports=9, moved=100, gib_in=5.0
    )
    world.send()

    decision = world.tick()

    assert pools(decision) == [f"g4dn.xlarge/{ZONES[0]}/spot"]
    transfer = {c.region: c.parts["transfer"] for c in decision.candidates}
    assert transfer[REGION] == 0.0
    assert transfer[AWAY] == pytest.approx(5 / 101 * 0.02, rel=0.01)


def test_the_policy_may_drop_a_region_while_the_system_runs() -> None:
    world = a_world(regions=frozenset({REGION}))
    world.send()

    decision = world.tick()

    assert pools(decision) == [f"g4dn.xlarge/{ZONES[0]}/spot"]
    (left_out,) = [r for r in decision.rejections if r.constraint == "regions"]
    assert left_out.reason == Reason(ReasonCode.REGION_LEFT_OUT, {"region": AWAY})


def test_a_dry_region_is_passed_over_for_the_next_in_the_list() -> None:
    world = a_world()
    world.dry(a_pool_of("g4dn.xlarge", AWAY_ZONE))
    world.send()

    decision = world.tick()

    assert [a.outcome for a in decision.requests] == ["capacity", "launched"]
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
    (closed,) = [r for r in again.rejections if r.constraint == "regions"]
    assert closed.offers == 2


@pytest.mark.parametrize("error", [Unreachable("no answer"), Throttled("slow down")])
def test_a_region_with_unreadable_prices_closes_itself_alone(error: Exception) -> None:
    world = a_world()

    def fail(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "spot_prices" and call.kwargs["region"] == AWAY:
            raise error
        return proceed()

    world.interfere = fail
    world.send()

    assert pools(world.tick()) == [f"g4dn.xlarge/{ZONES[0]}/spot"]


def test_an_image_that_fails_in_one_region_stops_it_alone() -> None:
    world = a_world(max_workers=1, scale_up_timeout=MINUTE, pool_cooldown=timedelta(0))
    world.tick()
    world.put(
        breaker_sort_key(AWAY), silent=2, launch_version=world.view().breakers[AWAY].launch_version
    )
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


def test_an_unreadable_outpost_is_said_and_the_others_go_on() -> None:
    world = a_world()
    settings = world.workload_settings()
    world.settings.deploy(
        replace(
            settings,
            regions={REGION: settings.regions[REGION]},
            unread={AWAY: "nothing is deployed there"},
        )
    )
    world.send()

    decision = world.tick()

    assert pools(decision) == [f"g4dn.xlarge/{ZONES[0]}/spot"]
    assert ReasonCode.REGION_UNREAD in codes(decision)


def test_the_catalogue_reads_egress_prices_for_two_regions() -> None:
    world = a_world(CHEAP_AWAY)
    world.market.set_transfer_price(AWAY, REGION, 0.09)

    catalogue = refresh(world.ports).catalogue

    assert catalogue.transfer_price == {AWAY: {REGION: 0.09}, REGION: {}}
    assert refresh(ControlWorld().ports).catalogue.transfer_price == {}
    world.send()
    (away, *_) = [c for c in world.tick().candidates if c.region == AWAY]
    # Inputs at the usual rate of home, and no outputs are known of.
    assert away.parts["transfer"] == pytest.approx(0.01 / 1024 * 0.02)
