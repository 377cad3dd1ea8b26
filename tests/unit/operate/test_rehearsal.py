"""What doctor makes of what EC2 says to the scaler of launches that are not made."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest

from spindown.contract.rehearsal import POOLS_AT_MOST, Rehearsal, RehearsedPool
from spindown.domain.offer import CapacityType, Offer
from spindown.error import AccessDenied
from spindown.operate.doctor.examine import find
from spindown.operate.doctor.finding import Severity
from spindown.operate.doctor.rehearsal import (
    Rehearsed,
    check_rehearsals,
    name_unasked,
    sample,
)
from spindown.operate.doctor.subject import in_local_system
from spindown.port import RefusalKind
from tests.builders import a_type, an_offer
from tests.unit.operate.examined import ZONES, Examined

SPOT, ON_DEMAND = CapacityType.SPOT, CapacityType.ON_DEMAND
DENIED = ("UnauthorizedOperation", RefusalKind.ACCOUNT)
DRY = ("InsufficientInstanceCapacity", RefusalKind.CAPACITY)
Refuse = Callable[[RehearsedPool], tuple[str, RefusalKind] | None]


def severities(world: Examined) -> list[Severity]:
    found = world.report().findings
    return [one.severity for one in found if one.what == "rehearsal of classify"]


def only(refusal: tuple[str, RefusalKind], condition: Callable[[RehearsedPool], bool]) -> Refuse:
    return lambda pool: refusal if condition(pool) else None


def test_each_finding_is_there_before_the_next_is_asked() -> None:
    world = Examined()
    subject = world.subject()
    asked, found = list[str](), dict[str, int]()
    for finding in find(subject, replace(world.ports(subject), tell=asked.append)):
        found[finding.what] = len(asked)

    assert found["credentials"] == 1 < found["account plan"] < len(asked)
    assert found["rehearsal of classify"] == len(asked)


def test_no_step_is_told_that_is_not_taken_in_a_local_system() -> None:
    world = Examined()
    there, here = list[str](), list[str]()
    for subject, told in ((world.subject(), there), (in_local_system(world.subject()), here)):
        list(find(subject, replace(world.ports(subject), tell=told.append)))

    # After the credentials comes the account, of which a local system has none.
    assert there[0] == here[0]
    assert there[1] not in here


def test_every_pool_that_may_be_bought_is_asked_about() -> None:
    world = Examined()

    assert severities(world) == [Severity.GOOD]
    types = ("g4dn.xlarge", "g6.xlarge")
    assert {(one.instance_type, one.zone, one.capacity_type) for one in world.rehearsed} == set(
        product(types, ZONES, CapacityType)
    )
    assert {one.architecture for one in world.rehearsed} == {"x86_64"}


def test_before_a_deploy_there_is_nobody_to_rehearse() -> None:
    world = Examined(is_deployed=False)

    assert severities(world) == []
    assert world.rehearsed == []


@pytest.mark.parametrize(
    "condition",
    [
        pytest.param(lambda pool: pool.instance_type == "g4dn.xlarge", id="type"),
        pytest.param(lambda pool: pool.zone == ZONES[0], id="zone"),
        pytest.param(lambda pool: pool.capacity_type is SPOT, id="capacity type"),
    ],
)
def test_what_is_refused_in_part_is_left_out(condition: Callable[[RehearsedPool], bool]) -> None:
    world = Examined(refuse=only(DENIED, condition))

    assert severities(world) == [Severity.GOOD, Severity.WARNING]
    assert world.report().can_launch


def test_the_best_offer_is_one_that_is_not_refused() -> None:
    assert "best g4dn.xlarge" in Examined().finding("offers for classify").found
    world = Examined(refuse=only(DENIED, lambda pool: pool.instance_type == "g4dn.xlarge"))

    assert "best g6.xlarge" in world.finding("offers for classify").found


@pytest.mark.parametrize(("refusal", "can_launch"), [(DENIED, False), (DRY, True)])
def test_what_is_refused_everywhere_blocks_until_a_person_acts(
    refusal: tuple[str, RefusalKind], can_launch: bool
) -> None:
    world = Examined(refuse=only(refusal, lambda _: True))

    worst = Severity.WARNING if can_launch else Severity.BLOCKED
    assert severities(world) == [worst]
    if not can_launch:
        assert not world.report().can_launch


def test_each_code_is_told_with_its_own_mend() -> None:
    world = Examined(
        refuse=lambda pool: (
            DENIED if pool.zone == ZONES[0] else ("OptInRequired", RefusalKind.ACCOUNT)
        )
    )
    found = [x for x in world.report().findings if x.what == "rehearsal of classify"]

    assert len({one.remedy for one in found}) == len(found) == 2


@pytest.mark.parametrize("ended", ["slow down", AccessDenied("InvokeFunction: no")], ids=str)
def test_without_a_whole_answer_it_warns(ended: str | AccessDenied) -> None:
    world = Examined(ended=ended)

    assert Severity.WARNING in severities(world)
    assert world.report().can_launch


@pytest.mark.parametrize("is_used_up", [True, False])
def test_our_own_limit_of_a_minute_is_no_warning(*, is_used_up: bool) -> None:
    answer = Rehearsal(ended="no more in this minute", is_used_up=is_used_up)

    (found,) = check_rehearsals({"ocr": Rehearsed(offers=3, answer=answer)})

    assert found.severity is (Severity.GOOD if is_used_up else Severity.WARNING)


def many(types: int, zones: int) -> list[Offer]:
    """Return offers of many pools in the order of their rank: type by type, spot first."""
    return [
        an_offer(a_type(f"g{number}.xlarge"), zone=f"us-west-2{chr(97 + zone)}", capacity_type=kind)
        for number in range(types)
        for kind in CapacityType
        for zone in range(zones)
    ]


def test_of_hundreds_a_sample_has_every_zone_and_many_types() -> None:
    asked = sample(many(60, 4))

    assert len(asked) == len({one.pool for one in asked}) == POOLS_AT_MOST
    assert {(one.zone, one.capacity_type) for one in asked} == {
        (f"us-west-2{zone}", kind) for zone in "abcd" for kind in CapacityType
    }
    # 8 pools of the best type, then the best of 8 further types on spot and on demand.
    assert len({one.instance_type.name for one in asked}) == 9


def test_zones_that_nobody_asked_about_are_named() -> None:
    offers = many(1, 13)

    unasked = name_unasked(offers, sample(offers))

    assert unasked == ("us-west-2l, on-demand, x86_64", "us-west-2m, on-demand, x86_64")
    one = Rehearsed(offers=26, answer=Rehearsal(), unasked=unasked)
    (finding,) = check_rehearsals({"ocr": one})
    assert all(each in finding.found for each in unasked)
    assert name_unasked(many(60, 4), sample(many(60, 4))) == ()


def test_of_few_all_are_asked_the_best_first() -> None:
    offers = many(2, 2)

    asked = sample(offers)

    assert asked[0] == offers[0]
    assert {one.pool for one in asked} == {one.pool for one in offers}
