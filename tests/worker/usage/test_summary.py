"""The last line of a job says how it ended."""

import pytest

from spindown.worker.usage.summary import summarise
from tests.builders import a_usage_record


@pytest.mark.parametrize(
    ("items", "failed", "word"),
    [(1, 0, "completed"), (1, 1, "failed"), (10, 10, "failed"), (10, 3, "failed")],
)
def test_a_job_of_which_an_item_failed_has_failed(items: int, failed: int, word: str) -> None:
    error = "the command ended\nwith status 7"
    said = summarise(a_usage_record(items=items, items_failed=failed), error)

    assert said.split()[0] == word
    assert ("status 7" in said) == bool(failed)
    assert "\n" not in said


def test_an_item_that_failed_in_an_earlier_attempt_counts() -> None:
    assert summarise(a_usage_record(items=2), items_failed=1).split()[0] == "failed"
