"""What people are told of jobs that are late, whatever a worker has written of them."""

from dataclasses import replace

import pytest

from spindown.contract.decision import DeadlineRecord
from spindown.control.alert.deadline import find_deadlines
from tests.builders import NOW, minutes

LATE = DeadlineRecord(job_id="j-1", due_at=NOW, work_seconds=60.0, slack_seconds=-60.0)


def test_late_jobs_are_named() -> None:
    (alert,) = find_deadlines([LATE], "ocr", NOW + minutes(1))

    assert "j-1, due" in alert.says


@pytest.mark.parametrize("job_id", ["call 555-0100", "555" * 100_000, "j\n555"])
def test_what_is_no_id_is_told_nobody(job_id: str) -> None:
    (alert,) = find_deadlines([replace(LATE, job_id=job_id)], "ocr", NOW + minutes(1))

    assert "555" not in alert.says
    assert "due" in alert.says
