from dataclasses import dataclass

import pytest

from spindown.domain.policy import Policy
from spindown.domain.retry_or_dead_letter import (
    EpochEnd,
    Failure,
    dead_letter_reason,
    epoch_end,
    is_quarantined,
)
from tests.builders import a_failure


@dataclass(frozen=True, kw_only=True)
class Epoch:
    next_item: int = 0
    epoch_first: int = 0
    epoch_busy: float = 61.0
    released: bool = False


@pytest.mark.parametrize(
    ("job", "interrupted", "expected"),
    [
        pytest.param(Epoch(released=True), False, EpochEnd.RELEASED, id="released"),
        pytest.param(Epoch(released=True), True, EpochEnd.RELEASED, id="released at the notice"),
        pytest.param(Epoch(), True, EpochEnd.INTERRUPTED, id="interrupted"),
        pytest.param(
            Epoch(next_item=50, epoch_first=0), False, EpochEnd.PROGRESSED, id="got further"
        ),
        pytest.param(
            Epoch(next_item=50, epoch_first=50), False, EpochEnd.LOST, id="no further than before"
        ),
    ],
)
def test_how_an_epoch_ended(job: Epoch, interrupted: bool, expected: EpochEnd) -> None:
    assert epoch_end(job, interrupted=interrupted) is expected


def faults(*where: str) -> list[Failure]:
    """Return one fault a word: the instance, with a leading minus for a loss."""
    return [
        a_failure(instance_id=w.removeprefix("-"), kind="loss" if w.startswith("-") else "failure")
        for w in where
    ]


@pytest.mark.parametrize(
    ("where", "dead"),
    [
        pytest.param((), False, id="none"),
        pytest.param(("a", "b"), False, id="two on two"),
        pytest.param(("a", "a", "b"), True, id="three on two"),
        pytest.param(("-a", "-a", "-b"), True, id="three losses on two"),
        pytest.param(("-a", "a", "-b"), True, id="three of either kind on two"),
        pytest.param(("a", "a", "a", "a"), False, id="four on one instance"),
        pytest.param(("a", "a", "a", "a", "a"), True, id="five in all"),
        pytest.param(("-a",) * 5, True, id="five losses in all"),
    ],
)
def test_a_job_is_dead_after_3_losses_on_2_instances_or_5(
    where: tuple[str, ...], dead: bool
) -> None:
    reason = dead_letter_reason(faults(*where), Policy())

    assert bool(reason) is dead
    assert reason.about.get("failures") == (len(where) if dead else None)


def test_losses_have_a_limit_of_their_own() -> None:
    policy = Policy(max_losses=2, max_failures_on_two=4)

    assert dead_letter_reason(faults("-a", "-b"), policy)
    assert not dead_letter_reason(faults("a", "b"), policy)


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        pytest.param([], False, id="none yet"),
        pytest.param([("a", True), ("b", True)], False, id="too few"),
        pytest.param([("a", True), ("b", True), ("c", True)], True, id="three different"),
        pytest.param([("a", True), ("a", True), ("a", True)], False, id="one job three times"),
        pytest.param(
            [("a", True), ("b", True), ("c", False), ("d", True)], False, id="one succeeded"
        ),
        pytest.param(
            [("z", False), ("a", True), ("b", True), ("c", True)], True, id="the last three"
        ),
        pytest.param(
            [("a", True), ("b", True), ("a", False), ("c", True)], False, id="its latest counts"
        ),
    ],
)
def test_a_worker_whose_last_different_jobs_all_failed_ends(
    outcomes: list[tuple[str, bool]], expected: bool
) -> None:
    assert is_quarantined(outcomes, Policy(failures_to_quarantine=3)) is expected
