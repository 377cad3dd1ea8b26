"""When people are told of a batch, and what becomes of the one that waits for it."""

from datetime import timedelta

import pytest

from spindown.domain.batch import (
    FORGOTTEN_AFTER,
    BatchEnd,
    BatchTally,
    EndsTold,
    OnFailure,
    end_of_job,
    is_forgotten,
    is_told,
    start_or_cancel,
)
from tests.builders import NOW

ALL, FAILED, NONE = EndsTold
COMPLETED = BatchEnd.COMPLETED


@pytest.mark.parametrize(
    ("end", "told", "is_waited_for", "expected"),
    [
        (COMPLETED, ALL, False, True),
        (COMPLETED, ALL, True, False),
        (COMPLETED, FAILED, False, False),
        (COMPLETED, NONE, False, False),
        (BatchEnd.CANCELLED, ALL, False, True),
        (BatchEnd.CANCELLED, ALL, True, False),
        (BatchEnd.CANCELLED, FAILED, False, False),
        (BatchEnd.FAILED, ALL, True, True),
        (BatchEnd.FAILED, FAILED, True, True),
        (BatchEnd.FAILED, NONE, False, False),
        (None, ALL, True, True),
        (None, FAILED, False, True),
        (None, NONE, False, False),
    ],
)
def test_people_are_told_of_ends(
    end: BatchEnd | None, told: EndsTold, *, is_waited_for: bool, expected: bool
) -> None:
    assert is_told(end, told, is_waited_for=is_waited_for) is expected


@pytest.mark.parametrize(
    ("tally", "end"),
    [
        (BatchTally(items=5), BatchEnd.COMPLETED),
        (BatchTally(items=5, cancelled=1), BatchEnd.CANCELLED),
        (BatchTally(items=5, items_failed=1, cancelled=1), BatchEnd.FAILED),
        (BatchTally(given_up=1), BatchEnd.FAILED),
    ],
)
def test_a_batch_ends_as_its_worst_job(tally: BatchTally, end: BatchEnd) -> None:
    assert tally.end is end


@pytest.mark.parametrize("on_failure", OnFailure)
def test_what_waits_starts_after_success(on_failure: OnFailure) -> None:
    assert start_or_cancel(BatchTally(items=5), on_failure) is OnFailure.START
    assert start_or_cancel(BatchTally(given_up=1), on_failure) is on_failure


def test_a_batch_is_given_up_after_30_days() -> None:
    assert not is_forgotten(NOW, NOW + FORGOTTEN_AFTER - timedelta(seconds=1))
    assert is_forgotten(NOW, NOW + timedelta(days=30))


@pytest.mark.parametrize(
    ("state", "failed", "end"),
    [
        ("completed", 0, BatchEnd.COMPLETED),
        ("completed", 1, BatchEnd.FAILED),
        ("failed", 0, BatchEnd.FAILED),
        ("cancelled", 0, BatchEnd.CANCELLED),
        ("cancelled", 1, BatchEnd.FAILED),
    ],
)
def test_a_job_ends_as_a_batch_of_it_alone(state: str, failed: int, end: BatchEnd) -> None:
    assert end_of_job(state, items_failed=failed) is end
