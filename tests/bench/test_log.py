"""How old a printed line is when ``spindown logs --follow`` shows it, in the local system.

A batch of 21 jobs, of which one runs at a time, is followed, and its first machine beside it: each
look at the batch reads the states of 20 jobs as well. The age of a line is from the worker's time
of it to this process's, by one clock. What CloudWatch Logs and a network add is not here.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from statistics import median, quantiles

import pytest

from spindown.contract.log import USER_OUTPUT
from tests.bench.record import record
from tests.e2e.world import SWIFT, World, deployed

pytestmark = pytest.mark.bench

JOBS = 21
LINES = 40
LIMIT_S = 2.0
CODE = """
import time
from spindown.user import Result

def run(batch, ctx):
    for item in batch:
        for number in range(20):
            print("line", number)
            time.sleep(0.37)
        yield Result(item, None)
"""
CONFIG = f"""
[deployment]
name = "talk"
region = "us-east-1"
zones = ["us-east-1a"]
alarm_batches = "none"

[workload.talk.run]
entrypoint = "talk:run"
code = "code"

[workload.talk.policy]
{SWIFT}
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "talk.py").write_text(CODE, encoding="utf-8")
    path = tmp_path / "spindown.toml"
    path.write_text(CONFIG, encoding="utf-8")
    with deployed(path) as world:
        yield world


def ages_of(world: World, name: str) -> list[float]:
    """Return the ages of lines as they are shown, seconds, of those printed once one was shown."""
    began, ages = None, list[float]()
    with world.followed("logs", name, "--follow", "--json") as follower:
        assert follower.stdout is not None
        for row in map(json.loads, follower.stdout):
            if row.get("event") != USER_OUTPUT or "at" not in row:
                continue
            now, at = datetime.now(UTC), datetime.fromisoformat(row["at"])
            began = began or now
            if at >= began:
                ages.append((now - at).total_seconds())
            if len(ages) == LINES:
                break
    return ages


def test_a_printed_line_is_shown_within_two_seconds(world: World) -> None:
    items = world.directory / "items.jsonl"
    items.write_text("\n".join(str(number) for number in range(JOBS)), encoding="utf-8")
    batch = world.spindown_json("submit", "talk", "--items", str(items), "--items-per-job", "1")
    machine = world.worker_at_work("talk").instance_id

    with ThreadPoolExecutor() as pool:
        of_batch, of_instance = pool.map(ages_of, [world] * 2, [batch["batch_id"], machine])
    world.spindown("cancel", batch["batch_id"])

    slow = [quantiles(ages, n=20)[-1] for ages in (of_batch, of_instance)]
    record(
        "log",
        {
            "batch_median_s": round(median(of_batch), 2),
            "batch_p95_s": round(slow[0], 2),
            "instance_median_s": round(median(of_instance), 2),
            "instance_p95_s": round(slow[1], 2),
            "limit_s": LIMIT_S,
            "jobs": JOBS,
            "lines_each": LINES,
        },
    )
    assert max(slow) <= LIMIT_S
