"""A launch by the prices of ``[pricing]``: what is paid first, and no more of it than there is."""

from dataclasses import replace

import pytest

from spindown.domain.account_pricing import Discount, PaidMachines, Pricing
from spindown.domain.offer import CapacityType
from spindown.domain.policy import Rung
from spindown.domain.reason import ReasonCode
from spindown.operate.plan import plan_next_tick
from tests.builders import minutes
from tests.control import (
    REGION,
    WORKLOAD,
    ZONES,
    ControlWorld,
    a_pool_of,
    codes,
    with_policy,
)

PAID = PaidMachines(instance_type="g4dn.xlarge", count=1, region=REGION)
ONLY_SPOT = Rung(after=minutes(0), capacity_types=frozenset({CapacityType.SPOT}))


def paying(world: ControlWorld, pricing: Pricing) -> ControlWorld:
    settings, _ = world.settings.workload(WORKLOAD)
    world.settings.deploy(replace(settings, pricing=pricing))
    return world


def test_what_is_paid_for_comes_first_and_no_more_of_it() -> None:
    world = paying(with_policy(drain_within=minutes(1)), Pricing(paid=(PAID,)))
    world.send(40)

    decision = world.tick()

    kinds = [worker.capacity_type for worker in world.workers()]
    assert len(kinds) > 1
    assert kinds.count(CapacityType.ON_DEMAND) == 1
    (paid,) = [w for w in world.workers() if w.capacity_type is CapacityType.ON_DEMAND]
    assert paid.price_per_hour == pytest.approx(paid.extra_price, abs=1e-5)
    assert ReasonCode.PRICING_APPLIED in codes(decision)


def test_what_no_offer_is_cannot_be_launched() -> None:
    none = replace(PAID, instance_type="g6.xlrge", zone=ZONES[0])
    world = paying(ControlWorld(), Pricing(paid=(none, PAID)))

    made = plan_next_tick(WORKLOAD, world.ports)

    notes = {note.code: note.about for note in made.notes}
    assert notes[ReasonCode.PRICING_APPLIED] == {"discounts": 0, "paid": 2, "left": 1}
    assert notes[ReasonCode.PAID_UNMATCHED] == {
        "workload": WORKLOAD,
        "machines": f"g6.xlrge in {ZONES[0]}",
    }


@pytest.mark.parametrize(("band", "first_zone"), [(0.0, None), (0.0, 2), (0.6, None)])
def test_the_zones_of_a_region_share_what_is_paid_for(band: float, first_zone: int | None) -> None:
    policy = {"drain_within": minutes(1), "max_workers": 12, "band": band}
    count = 2 if first_zone is None else first_zone + 1
    world = paying(with_policy(**policy), Pricing(paid=(replace(PAID, count=count),)))
    pool = a_pool_of(PAID.instance_type, ZONES[0], CapacityType.ON_DEMAND)
    world.compute.set_capacity(pool, first_zone)
    world.send(400)

    for _ in range(3):
        world.tick(minutes(1))

        kinds = [worker.capacity_type for worker in world.workers()]
        assert kinds.count(CapacityType.ON_DEMAND) <= count
    assert kinds.count(CapacityType.ON_DEMAND) == 2


def test_one_that_runs_leaves_nothing_that_is_paid_for() -> None:
    world = paying(with_policy(ladder=(ONLY_SPOT,)), Pricing(paid=(PAID,)))
    worker = world.launched()
    world.claim(worker.instance_id)
    world.send(40)

    world.tick(minutes(1))

    assert worker.capacity_type is CapacityType.ON_DEMAND
    others = [w for w in world.workers() if w.instance_id != worker.instance_id]
    assert {w.capacity_type for w in others} == {CapacityType.SPOT}
    # Nor is it taken for one that the ladder has no room for.
    assert all(w.surplus_at is None for w in world.workers())


def test_a_discount_decides_what_is_bought_and_stamped() -> None:
    plain, world = ControlWorld(), ControlWorld()
    cheap = Discount(multiplier=0.01, families=frozenset({"g5"}))
    for one in (plain, paying(world, Pricing(discounts=(cheap,)))):
        one.send()
        one.tick()

    (before,), (after,) = plain.workers(), world.workers()
    assert before.instance_type != after.instance_type == "g5.xlarge"
    assert after.price_per_hour - after.extra_price < 0.02
