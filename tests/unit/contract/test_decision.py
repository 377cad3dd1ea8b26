"""A decision's digest: what a person would call the same decision has the same one."""

import json
from dataclasses import replace

import pytest

from spindown.contract.codec import decode
from spindown.contract.decision import (
    ActionRecord,
    CandidateRecord,
    Decision,
    LaunchRequestRecord,
    Outcome,
    RequestOutcome,
    SizingRecord,
)
from spindown.domain.reason import Reason, ReasonCode
from tests.builders import NOW, minutes

DECISION = Decision(
    workload="classify",
    at=NOW,
    outcome=Outcome.HELD,
    fence=4,
    visible=2,
    workers={"idle": 1},
    sizing=SizingRecord(need_items_per_hour=12.0, wanted=0, waited_seconds=60),
    candidates=(
        CandidateRecord(
            offer="g4dn.xlarge/us-west-2a/spot",
            region="us-west-2",
            price_per_hour=0.2,
            cost_per_item=0.001,
        ),
    ),
)


@pytest.mark.parametrize(
    "changes",
    [
        {"at": NOW + minutes(1)},
        {"fence": 5},
        {"visible": 3, "in_flight": 1},
        {"workers": {"busy": 1}},
        {"source": "spindown.nudge"},
        {"candidates": (replace(DECISION.candidates[0], price_per_hour=0.21),)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_every_tick_changes_is_not_another_decision(changes: dict[str, object]) -> None:
    assert replace(DECISION, **changes).digest == DECISION.digest  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"outcome": Outcome.LAUNCHED},
        {"held_until": NOW},
        {
            "requests": (
                LaunchRequestRecord(
                    launch_id="a", pools=(), count=1, outcome=RequestOutcome.CAPACITY
                ),
            )
        },
        {"actions": (ActionRecord(kind="condemn", subject="i-1"),)},
        {"candidates": ()},
        {"notes": (Reason(ReasonCode.CATALOGUE_OLD),)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_was_decided_otherwise_is_another_decision(changes: dict[str, object]) -> None:
    assert replace(DECISION, **changes).digest != DECISION.digest  # type: ignore[arg-type]


def test_a_decision_survives_its_json() -> None:
    assert decode(Decision, json.loads(DECISION.to_json())) == DECISION


def test_decisions_of_a_day_lie_under_that_day_in_order_of_time() -> None:
    later = replace(DECISION, at=NOW + minutes(1))

    assert DECISION.key.startswith("decisions/classify/2026-11-20/120000.000000-")
    assert DECISION.key < later.key
