"""What checkpoints cost the computing, and how soon a job that is given back can be taken.

A slot with a real child and a real clock, over ports in memory each of whose calls takes as long
as one of S3's, SQS's or DynamoDB's. What counts for the first figure is the time in which the
child has nothing to do while the slot sees to a commit; for the second, all between the last
manifest and the message that is visible again.
"""

import io
import sys
import textwrap
import threading
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

import pytest

from spindown.aws.clock import SystemClock
from spindown.contract.job.manifest import JobState
from spindown.contract.run_spec import RunSpec
from spindown.domain.commit_interval import interval_hours
from spindown.domain.policy import Policy
from spindown.memory.interception import PortCall
from spindown.user import Item
from spindown.worker.child.code import Code
from spindown.worker.child.runner import BatchDone, ChildRunner, Event, ItemDone, Task
from spindown.worker.log import open_log
from tests.bench.record import record
from tests.slot import ScriptedRunner, SlotWorld
from tests.work import WorkWorld

pytestmark = pytest.mark.bench

#: A PUT of some hundred KiB to S3 from the same region; other calls are quicker.
CALL_SECONDS = 0.05
#: Far more often than "auto" ever would, to have many commits in little time.
INTERVAL = timedelta(seconds=1)
ITEMS, BATCH, ITEM_SECONDS = 160, 4, 0.05
#: The mean time between interruptions that the figures are asked for.
MEAN_HOURS = 2.3
SHARE_LIMIT = 0.01
VISIBLE_LIMIT_SECONDS = 1.0

CODE = f"""
    import os, threading
    from spindown.user import Result
    def run(batch, ctx):
        for item in batch:
            threading.Event().wait({ITEM_SECONDS})
            under_way = ctx.state_dir / "weights.tmp"
            under_way.write_bytes(os.urandom(1 << 20))
            under_way.rename(ctx.state_dir / "weights")
            yield Result(item, item.index)
"""


class Stopwatch:
    """Lets each call to a port take its time, and notes when it ended."""

    def __init__(self) -> None:
        self.ends: list[tuple[float, str]] = []

    def after(self, call: PortCall) -> None:
        threading.Event().wait(CALL_SECONDS)
        self.ends.append((monotonic(), f"{call.port}.{call.method}"))


class Observed:
    """A runner, and the times in which it waited for its next batch."""

    def __init__(self, runner: ChildRunner) -> None:
        self._runner = runner
        self._done_at: float | None = None
        self.waits: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def begin(self, task: Task, batch: Sequence[Item]) -> None:
        if self._done_at is not None:
            self.waits.append(monotonic() - self._done_at)
        self._runner.begin(task, batch)

    def poll(self, timeout: timedelta) -> Event | None:
        event = self._runner.poll(timeout)
        if isinstance(event, BatchDone):
            self._done_at = monotonic()
        return event


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[ChildRunner]:
    root = tmp_path / "code"
    root.mkdir()
    (root / "job.py").write_text(textwrap.dedent(CODE))
    runner = ChildRunner(
        Code(root=root, spec=RunSpec(entrypoint="job:run"), digest="d"),
        slot=0,
        scratch=tmp_path / "setup",
        python=sys.executable,
        env={},
        log=open_log(io.StringIO()),
    )
    yield runner
    runner.kill()


def run_job(tmp_path: Path, runner: Observed, policy: Policy) -> tuple[WorkWorld, float]:
    """Run a job to its end; return its world, and the seconds of its busy time."""
    world = WorkWorld(clock=SystemClock(), policy=policy, after=Stopwatch().after)
    scratch = tmp_path / f"slot-{policy.checkpoint_interval}"
    scratch.mkdir()
    slot = SlotWorld(
        scratch,
        runner=runner,  # type: ignore[arg-type]
        policy=policy,
        batch_size=BATCH,
        world=world,
    )
    world.send({"job_id": "j", "items": list(range(ITEMS))})
    slot.step()
    manifest = world.manifest("j")
    assert manifest.state is JobState.COMPLETED
    return world, manifest.busy_seconds


def test_checkpoints_cost_under_1_percent_of_item_time(tmp_path: Path, runner: ChildRunner) -> None:
    runner.warm()
    without, often = Observed(runner), Observed(runner)
    run_job(tmp_path, without, Policy(checkpoint_interval=timedelta(hours=1)))
    world, busy = run_job(tmp_path, often, Policy(checkpoint_interval=INTERVAL))

    commits = len(world.manifest("j").parts)
    stall = max(sum(often.waits) - len(often.waits) * median(without.waits), 0.0)
    # File, part and manifest, one after the other: what "auto" is told a checkpoint costs.
    cost = 3 * CALL_SECONDS
    auto = interval_hours(Policy(), cost_hours=cost / 3600, rate=1 / MEAN_HOURS) * 3600
    record(
        "checkpoint",
        {
            "commits": commits,
            "state_mib_per_commit": 1,
            "call_ms": CALL_SECONDS * 1000,
            "wait_ms_between_batches": round(1000 * median(without.waits), 3),
            "stall_ms_per_commit": round(1000 * stall / commits, 3),
            "share_at_one_second": round(stall / busy, 5),
            "auto_interval_s": round(auto, 1),
            "share_at_auto": round(stall / commits / auto, 6),
            "limit": SHARE_LIMIT,
        },
    )
    assert commits > 3
    assert stall / commits / auto < SHARE_LIMIT


def test_a_job_that_is_given_back_is_visible_at_once(tmp_path: Path) -> None:
    watch = Stopwatch()
    world = WorkWorld(clock=SystemClock(), after=watch.after)
    runner = ScriptedRunner(script=lambda *_: [ItemDone(index=0), *[None] * 9])
    slot = SlotWorld(tmp_path, runner=runner, world=world)

    def leave(polls: int) -> None:
        if polls == 3:
            slot.leave()

    runner.before_poll = leave
    world.send({"job_id": "j", "items": list(range(ITEMS))})
    slot.step()

    assert world.queue.backlog().visible == 1
    names = [name for _, name in watch.ends]
    last = len(names) - 1 - names[::-1].index("objects.put")
    shown = len(names) - 1 - names[::-1].index("queue.extend")
    took = watch.ends[shown][0] - watch.ends[last][0]
    calls = shown - last
    record(
        "release",
        {
            "calls": calls,
            "call_ms": CALL_SECONDS * 1000,
            "last_commit_to_visible_ms": round(1000 * took, 1),
            "of_it_our_code_ms": round(1000 * (took - calls * CALL_SECONDS), 1),
            "limit_ms": 1000 * VISIBLE_LIMIT_SECONDS,
        },
    )
    assert took < VISIBLE_LIMIT_SECONDS
