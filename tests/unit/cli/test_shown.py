"""What the pages show of commands is what these say today, but for numbers and machines."""

import pytest

from spindown.cli.results import _print_progress
from spindown.contract.job.manifest import JobState
from spindown.job.result import JobProgress
from tests.page import form, shown


def test_the_summary_of_a_job_is_as_the_page_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    examples = list(shown("spindown results first --summary"))
    assert [one.split()[1] for one in examples] == ["running", "completed"]

    for example, state in zip(examples, (JobState.RUNNING, JobState.COMPLETED), strict=True):
        progress = JobProgress(
            job_id="first", state=state, is_held=True, items_done=96, items=168, cost_usd=0.000266
        )
        _print_progress(progress, as_json=False)

        assert form(capsys.readouterr().out) == form(example)
