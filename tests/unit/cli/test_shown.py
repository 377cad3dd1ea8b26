"""What the pages show of commands is what these say today, but for numbers and machines."""

from datetime import timedelta

import pytest

from spindown.cli.results import _print_progress
from spindown.contract import row as rows
from spindown.contract.decision import Outcome
from spindown.contract.job.manifest import JobState
from spindown.contract.row import DecisionRow, DoneRow, SpendRow
from spindown.domain.fleet import WorkerState
from spindown.job.result import JobProgress
from spindown.ledger import account_key
from spindown.port import Write
from tests.builders import NOW, a_lease, a_worker
from tests.page import form, shown
from tests.unit.operate.test_status import World, screen_of


def test_the_summary_of_a_job_is_as_the_page_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    examples = list(shown("spindown results first --summary"))
    assert [one.split()[1] for one in examples] == ["running", "completed"]

    for example, state in zip(examples, (JobState.RUNNING, JobState.COMPLETED), strict=True):
        progress = JobProgress(
            job_id="first", state=state, is_held=True, items_done=96, items=168, cost_usd=0.000266
        )
        _print_progress(progress, NOW, as_json=False)

        assert form(capsys.readouterr().out) == form(example)


def test_the_screen_of_a_workload_is_as_the_page_shows_it() -> None:
    world = World()
    worker = a_worker("i-0", state=WorkerState.BUSY, busy_slots=1, launched_at=NOW)
    world.put(rows.worker_sort_key("i-0"), worker)
    world.put(rows.lease_sort_key("i-0", 0), a_lease("i-0", job_id="first"))
    day = SpendRow(dollars=0.01, on_demand_dollars=0.02, busy_seconds=60.0, refusals=1)
    world.put(rows.spend_sort_key(NOW), day)
    world.put(rows.done_sort_key(NOW), DoneRow(items=144))
    month = account_key(rows.budget_sort_key(NOW))
    world.table.write(Write(key=month, add={"dollars": 0.01, "committed": 0.5}))
    decided = NOW - timedelta(seconds=4)
    world.put(rows.DECISION, DecisionRow(at=decided, digest="a", key="k", outcome=Outcome.IDLE))

    (example, *_) = shown("spindown status C")

    begins = ("today", "saved", "instance ")
    assert lines_of(example, *begins) == lines_of(screen_of(world.status(), width=400), *begins)
    assert "N ago: nothing waits" in " ".join(form(example))


def lines_of(screen: str, *begins: str) -> list[list[str]]:
    """Return the form of the lines that begin so, with what a narrow screen has put below each."""
    lines = [line.strip("│ ") for line in screen.splitlines()]
    whole = "\n".join(lines).replace(";\n", "; ").splitlines()
    return [form(line) for line in whole if line.startswith(begins)]
