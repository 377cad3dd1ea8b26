"""Tags of the account: every launch bears them, and none of them hides one of our own."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest

from spindown.contract import tag
from spindown.domain.offer import CapacityType
from spindown.domain.policy import Policy, Rung
from spindown.memory import PortCall
from spindown.port import LaunchRequest
from tests.control import REGION, SPOT_TEMPLATE, TEMPLATE, ControlWorld

TAGS = {"team": "vision", "cost:center": "12"}


def a_launch(tags: Mapping[str, str], kind: CapacityType) -> LaunchRequest:
    """Return what EC2 was asked for."""
    ladder = (Rung(after=timedelta(0), capacity_types=frozenset({kind})),)
    world = ControlWorld(policy=Policy(ladder=ladder), tags=tags)
    seen: list[LaunchRequest] = []

    def record(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "launch":
            seen.append(call.args[0])
        return proceed()

    world.interfere = record
    world.send()
    world.tick()
    (request,) = seen
    return request


@pytest.mark.parametrize(
    ("kind", "template"),
    [(CapacityType.SPOT, SPOT_TEMPLATE), (CapacityType.ON_DEMAND, TEMPLATE)],
)
def test_a_launch_bears_them_and_is_made_for_its_market(kind: CapacityType, template: Any) -> None:
    request = a_launch(TAGS, kind)

    assert request.tags.items() >= TAGS.items()
    assert request.template == template


def test_without_them_one_template_serves_both() -> None:
    request = a_launch({}, CapacityType.SPOT)

    assert request.template == TEMPLATE


def test_none_of_them_hides_whose_a_launch_is() -> None:
    request = a_launch({tag.WORKLOAD: "mine", tag.LAUNCH: "mine"}, CapacityType.SPOT)

    assert "mine" not in request.tags.values()


def test_a_launch_whose_answer_was_lost_is_adopted_with_them() -> None:
    world = ControlWorld(tags=TAGS)
    world.send()
    world.compute.lose_next_answer(is_carried_out=False)
    world.tick()

    again = world.tick(timedelta(minutes=1))

    assert [one.outcome for one in again.requests] == ["adopted"]
    (bill,) = world.compute.bills()
    seen = world.compute.instance(region=REGION, instance_id=bill.instance_id)
    assert seen.tags.items() >= TAGS.items()
