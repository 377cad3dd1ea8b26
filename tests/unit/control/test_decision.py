"""A decision is stored when it changes, with the reason of every offer not taken."""

import json

import pytest

from spindown.contract.decision import decision_prefix
from spindown.domain.reason import Reason, ReasonCode
from spindown.error import NotFound, Unreachable
from tests.builders import minutes
from tests.control import WORKLOAD, ControlWorld, a_pool_of, with_policy
from tests.failure import failing


def test_a_decision_is_stored_when_it_changes_and_only_then() -> None:
    world = ControlWorld()
    world.run(5)
    idle = [found.key for found in world.objects.list(decision_prefix(WORKLOAD))]
    world.send()
    world.tick(minutes(1))
    keys = [found.key for found in world.objects.list(decision_prefix(WORKLOAD))]

    row = world.view().decision
    assert len(idle) == 1
    assert len(keys) == 2
    assert row is not None
    assert row.key == keys[-1]
    stored = json.loads(world.objects.get(row.key).data)
    assert stored["outcome"] == "launched"
    assert stored["candidates"][0]["offer"] == "g4dn.xlarge/us-west-2a/spot"
    parts = stored["candidates"][0]["parts"]
    assert sum(parts.values()) == pytest.approx(stored["candidates"][0]["cost_per_item"])


@pytest.mark.parametrize("error", [Unreachable("no answer"), NotFound("no bucket")])
def test_a_decision_that_was_not_stored_is_stored_next_tick(error: Exception) -> None:
    world = ControlWorld()
    world.interfere = failing(error, "put", times=1)
    world.tick()
    lost, told = list(world.objects.list(decision_prefix(WORKLOAD))), world.view().decision
    world.tick(minutes(1))

    assert lost == []
    assert told is not None
    assert told.notes[-1] == Reason(ReasonCode.DECISION_UNSTORED, {"said": str(error)})
    assert len(list(world.objects.list(decision_prefix(WORKLOAD)))) == 1


def test_every_offer_that_is_not_taken_has_its_reason() -> None:
    world = with_policy(max_price_per_hour=0.3)
    world.dry(a_pool_of("g4dn.xlarge"))
    world.send()
    world.tick()
    world.send(400)

    decision = world.tick(minutes(1))

    offers = len(decision.candidates) + sum(r.offers for r in decision.rejections)
    assert offers == 3 * 2 * 2
    assert {r.constraint for r in decision.rejections} == {"max_price_per_hour", "pool_cooldown"}


def test_what_was_launched_is_told_apart_from_what_was_adopted() -> None:
    world = with_policy(max_workers=4, drain_within=minutes(10))
    world.send()
    world.compute.lose_next_answer(is_carried_out=True)
    world.tick()
    world.send(100)

    decision = world.tick(minutes(1))

    assert decision.summary.launched == {"g4dn.xlarge/us-west-2a/spot": 3}
    assert decision.summary.adopted == {"g4dn.xlarge/us-west-2a/spot": 1}
