"""What a person reads of a plan: prices and costs in parts, reasons, and what would be launched."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from rich.console import Console

from spindown.cli.explain.plan import Sort, plan_to_json, render_plan, sort_candidates
from spindown.contract.settings import RegionSettings
from spindown.domain.account_pricing import Discount, PaidMachines, Pricing
from spindown.domain.offer import CapacityType, InstanceRequirements
from spindown.domain.policy import WarmSpan, Weekday
from spindown.domain.reason import ReasonCode
from spindown.operate.plan import PlannedTick, plan_next_tick
from tests.control import PRICES, REGION, WORKLOAD, ZONES, ControlWorld, a_pool_of, with_policy
from tests.reading import only_reading


def plan_of(world: ControlWorld, jobs: int = 3) -> PlannedTick:
    return plan_next_tick(WORKLOAD, only_reading(world.ports), jobs=jobs)


def screen_of(made: PlannedTick, *, width: int = 200, show_all: bool = False) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        for part in render_plan(made, made.candidates.candidates, show_all=show_all):
            console.print(part, markup=False, soft_wrap=isinstance(part, str))
    return captured.get()


def test_shows_price_throughput_and_its_origin_cost_and_parts() -> None:
    world = with_policy()
    world.market.move_volume_price(REGION, 0.096)

    head, first, *_ = screen_of(plan_of(world)).splitlines()

    names = "offer $/h items/h from $/1000 items work boot redo idle refund transfer"
    assert head.split() == [*names.split(), "alone", "volume", "IPv4"]
    assert first.split()[:4] == ["g4dn.xlarge/us-west-2a/spot", "0.218", "1,000", "datasheet"]
    assert first.split()[-3:] == ["0.2000", "0.0132", "0.0050"]


@pytest.mark.parametrize("width", [40, 50, 66, 90, 110, 120, 130, 140])
def test_no_number_is_cut_off_however_narrow_the_screen(width: int) -> None:
    said = screen_of(plan_of(with_policy(throughput_estimate=1e7)), width=width)

    assert "…" not in said
    assert "0.216" in said
    assert "10,000,000" in said or width < 70


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_an_offer_is_one_line(width: int) -> None:
    said = screen_of(plan_of(with_policy(throughput_estimate=1e7)), width=width)

    assert "g4dn.xlarge/us-west-2a/spot " in said


def test_a_narrow_screen_leaves_parts_out_and_keeps_the_cost() -> None:
    head, *_ = screen_of(plan_of(with_policy()), width=100).splitlines()

    assert head.split() == ["offer", "$/h", "items/h", "from", "$/1000", "items"]


def test_says_what_it_would_launch_now_and_why_that_many() -> None:
    world = with_policy(drain_within=timedelta(minutes=10), max_workers=3)

    made = plan_of(world, jobs=40)
    said = screen_of(made).splitlines()[-1]

    assert said.startswith("40 jobs wait;")
    assert made.plan.choice.sizing.reason.about == {
        "why": "over-capacity",
        "jobs": 40,
        "slots": 40,
        "bound": "max_workers",
        "allowed": 3,
        "wanted": 40,
    }
    assert "Would launch 3, first g4dn.xlarge/us-west-2a/spot at " in said


def test_sorts_by_what_an_item_costs_or_by_what_an_hour_does() -> None:
    made = plan_of(with_policy())

    by_cost, by_price = (sort_candidates(made, sort) for sort in (Sort.COST, Sort.PRICE))

    assert by_cost == made.candidates.candidates
    prices = [candidate.offer.price for candidate in by_price]
    assert prices == sorted(prices)
    assert by_cost != by_price
    assert set(by_cost) == set(by_price)


def test_says_that_nothing_is_launched_where_nothing_waits() -> None:
    made = plan_of(with_policy(), jobs=0)

    assert made.plan.choice.sizing.reason.code is ReasonCode.NOTHING_WAITS
    assert "0 jobs wait. " in " ".join(screen_of(made).split())


def test_says_what_the_mark_of_an_estimated_price_means() -> None:
    known, guessed = plan_of(with_policy()), with_policy()
    guessed.market.move_spot_price("g4dn.xlarge", ZONES[0], None)

    assert "~" not in screen_of(known)
    said = screen_of(plan_of(guessed))
    assert "~ no spot price is known: estimated by spot_price_ratio_estimate" in said


def test_shows_the_reason_for_every_offer_that_is_not_taken() -> None:
    world = with_policy()
    made = plan_of(world)

    few, all_of_them = screen_of(made), screen_of(made, show_all=True)

    assert "6 offers left out by ladder, such as g4dn.xlarge/us-west-2a/on-demand" in few
    for name in PRICES:
        for zone in ZONES:
            assert f"  {name}/{zone}/on-demand: on-demand at " in all_of_them
    listed = plan_to_json(made)
    told = {(r["offer"]["zone"], r["offer"]["instance_type"]["name"]) for r in listed["rejected"]}
    assert len(told) == 6
    assert all(rejection["reason"] for rejection in listed["rejected"])
    json.dumps(listed, allow_nan=False)


def test_one_offer_that_is_left_out_is_one() -> None:
    world = with_policy(band=0.0)
    world.dry(a_pool_of("g4dn.xlarge", ZONES[0]))
    world.send(3)
    world.tick()
    made = plan_of(world)

    few, all_of_them = screen_of(made), screen_of(made, show_all=True)

    assert "1 offer left out by pool_cooldown: g4dn.xlarge/us-west-2a/spot: " in few
    assert "1 offer left out by pool_cooldown:\n" in all_of_them


def test_says_which_constraint_removed_the_last_offers() -> None:
    world = with_policy(max_price_per_hour=0.1)

    made = plan_of(world)
    said = " ".join(screen_of(made).split())

    assert made.candidates.why_none().about == {
        "constraint": "max_price_per_hour",
        "last": 12,
        "offers": 12,
    }
    assert "The nearest: g4dn.xlarge/us-west-2a/spot: 0.2160 USD/h is above 0.1." in said


def test_every_pool_dry_says_when_the_first_comes_back() -> None:
    world = with_policy(band=0.0, ladder=(), max_requests_per_tick=12)
    pools = [(name, zone, kind) for name in PRICES for zone in ZONES for kind in CapacityType]
    world.dry(*(a_pool_of(*pool) for pool in pools))
    world.send(3)
    world.tick()

    made = plan_next_tick(WORKLOAD, world.ports)

    assert made.candidates.best is None
    said = " ".join(screen_of(made).split())
    assert made.candidates.why_none().about["constraint"] == "pool_cooldown"
    assert "The nearest: g4dn.xlarge/us-west-2a/" in said
    assert made.next_try_at == world.now + timedelta(minutes=3)


def test_no_zone_sells_nothing_and_a_tick_says_so() -> None:
    world = _without_zones(with_policy())
    world.send()

    said = screen_of(plan_next_tick(WORKLOAD, world.ports)).splitlines()[-1]
    decision = world.tick()

    assert "nothing is on sale in the zones where it may run" in said
    assert decision.summary.why.code is ReasonCode.NOTHING_ON_SALE
    assert world.metric("NothingFits") == 1


def test_tells_programs_what_is_paid_for() -> None:
    world = ControlWorld()
    plain = plan_to_json(plan_of(ControlWorld()))
    settings, _ = world.settings.workload(WORKLOAD)
    paid = PaidMachines(instance_type="g4dn.xlarge", count=3, region=REGION)
    world.settings.deploy(replace(settings, pricing=Pricing(paid=(paid,))))

    priced = plan_to_json(plan_of(world))

    assert plain["pricing"] is None
    assert priced["pricing"] == {"discounts": 0, "paid": 3, "left": 3}


def test_prints_what_workers_kept_warm_come_to_in_a_month() -> None:
    span = WarmSpan(
        days=frozenset(list(Weekday)[:5]),
        start=timedelta(hours=8),
        end=timedelta(hours=18),
        workers=2,
    )
    world = with_policy(warm_schedule=(span,))

    shown = screen_of(plan_of(world))

    # 434.5 hours at 0.216 USD.
    line = "435 worker-hours a month are kept warm: about 94 USD on g4dn.xlarge/us-west-2a/spot."
    assert line in shown.splitlines()
    assert "kept warm" not in screen_of(plan_of(with_policy()))


def test_notes_of_prices_and_quotas_are_printed() -> None:
    world = with_policy(max_price_per_hour=0.3)
    world.market.limit("L-3819A6DF", 0, region=REGION)

    shown = screen_of(plan_of(world))

    assert "quota us-west-2/G/Spot: 0 vCPUs are left, the smallest offer takes 4" in shown


def test_prices_that_are_the_accounts_own_are_told() -> None:
    world = with_policy()
    settings = replace(
        world.workload_settings(),
        pricing=Pricing(
            discounts=(Discount(multiplier=0.7),),
            paid=(PaidMachines(instance_type="g4dn.xlarge", count=2, region=REGION),),
        ),
    )
    world.settings.deploy(settings)

    shown = screen_of(plan_of(world))

    assert (
        "prices are those of [pricing]: 1 discount; "
        "2 of 2 machines already paid for can be launched"
    ) in shown


def _without_zones(world: ControlWorld) -> ControlWorld:
    settings: Any = world.workload_settings()
    regions = {
        region: RegionSettings(subnets={}, templates=place.templates)
        for region, place in settings.regions.items()
    }
    world.settings.deploy(replace(settings, regions=regions, requirements=InstanceRequirements()))
    return world
