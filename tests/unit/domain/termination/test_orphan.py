"""Rows without an instance, and instances without a row."""

from datetime import timedelta
from typing import Any

import pytest

from spindown.domain.fleet import LaunchState, WorkerState
from spindown.domain.termination import Terminations
from tests.builders import NOW, a_booting_worker, a_launch, a_worker, minutes
from tests.unit.domain.termination.fleet import POLICY, Box, reaped


def test_a_row_unknown_to_ec2_is_lost_once_it_cannot_be_late() -> None:
    young = a_booting_worker("i-young", age=minutes(4))
    old = a_worker("i-old")
    ended = a_worker("i-ended", state=WorkerState.ENDED)

    found = reaped(young, old, ended, instances=[])

    assert found == Terminations(lost_rows=("i-old",))
    # Whatever comes before it in the list, and not a moment earlier.
    just = a_booting_worker("i-just", age=minutes(5))
    assert reaped(ended, old, just, instances=[]).lost_rows == ("i-old",)


def test_an_instance_that_no_row_knows_is_an_orphan() -> None:
    found = reaped(
        a_worker("i-ours"), instances=[Box(instance_id="i-ours"), Box(instance_id="i-x")]
    )

    assert found.orphans == ("i-x",)


@pytest.mark.parametrize(
    ("box", "launches"),
    [
        pytest.param(Box(launched_at=NOW - minutes(4)), [], id="its row may be on the way"),
        pytest.param(Box(launched_at=NOW - minutes(5)), [], id="its row may be just late"),
        pytest.param(
            Box(), [a_launch(intended_at=NOW - minutes(30))], id="an intent of the same instant"
        ),
        pytest.param(Box(state="terminated"), [], id="gone"),
        pytest.param(
            Box(), [a_launch(intended_at=NOW - minutes(31))], id="an open intent may adopt it"
        ),
        pytest.param(
            Box(), [a_launch(intended_at=NOW - minutes(40))], id="what was asked for once more"
        ),
    ],
)
def test_what_may_still_be_ours_is_no_orphan(box: Box, launches: list[Any]) -> None:
    assert reaped(instances=[box], launches=launches).orphans == ()


def test_a_launch_alone_keeps_no_instance() -> None:
    answered = a_launch(state=LaunchState.LAUNCHED, instance_ids=("i-1",))

    assert reaped(instances=[Box()], launches=[answered]).orphans == ("i-1",)


@pytest.mark.parametrize("age", [0, 29, 41, 24 * 60])
def test_an_intent_protects_nothing_before_or_long_after_it(age: int) -> None:
    intent = a_launch(intended_at=NOW - minutes(age))

    assert reaped(instances=[Box()], launches=[intent]).orphans == ("i-1",)


@pytest.mark.parametrize(
    ("age", "orphans"),
    [
        pytest.param(POLICY.max_lifetime + POLICY.lifetime_grace, (), id="within its lifetime"),
        pytest.param(
            POLICY.max_lifetime + POLICY.lifetime_grace + minutes(1), ("i-1",), id="past it"
        ),
    ],
)
def test_whose_row_cannot_be_read_may_be_at_work(age: timedelta, orphans: tuple[str, ...]) -> None:
    found = reaped(instances=[Box(launched_at=NOW - age)], unreadable={"i-1"})

    assert found.orphans == orphans
