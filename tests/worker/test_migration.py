"""A job moves from a worker that runs to one that takes over: real workers, real code."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from spindown.contract.job.manifest import JobState
from spindown.contract.row import requeued_sort_key, worker_partition
from spindown.domain.fleet import WorkerState
from spindown.domain.offer import CapacityType
from spindown.domain.reason import ReasonCode
from spindown.port import Key
from tests.plant import QUICK, Plant
from tests.work import WORKLOAD, items

POLICY = replace(
    QUICK,
    idle_timeout=timedelta(seconds=0.3),
    checkpoint_interval=timedelta(minutes=10),
    finish_within=timedelta(hours=12),
)
#: Stops at the third item wherever a file does not say "go".
WAITS_AT_TWO = """
    import threading
    from pathlib import Path
    from spindown.user import Result
    def run(batch, ctx):
        for item in batch:
            go = Path(__file__).parents[1] / "go"
            while item.index == 2 and not go.exists():
                threading.Event().wait(0.02)
            yield Result(item, item.value)
"""


def test_a_job_handed_over_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    dear = Plant(make(tmp_path / "dear"), WAITS_AT_TWO, policy=POLICY)
    world = dear.world
    cheap = Plant(
        make(tmp_path / "cheap"), WAITS_AT_TWO, policy=POLICY, world=world, instance_id="i-2"
    )
    (tmp_path / "cheap" / "go").touch()
    world.send({"job_id": "a", "items": items(6)})
    dear.start(capacity_type=CapacityType.ON_DEMAND)
    dear.until(lambda: dear.items_done(0) == 2)

    # As the scaler launches a takeover, and tells the other to leave once it is there.
    cheap.start(warm_until=world.clock.now() + timedelta(minutes=10))
    cheap.until(lambda: world.worker("i-2").state is WorkerState.IDLE)
    world.change_worker("i-1", migrating_at=world.clock.now())
    dear.join()
    cheap.until(lambda: world.manifest("a").state is JobState.COMPLETED)
    world.change_worker("i-2", warm_until=None)
    cheap.join()

    manifest = world.manifest("a")
    assert (manifest.epoch, manifest.interruptions, manifest.losses) == (2, 0, 0)
    assert manifest.failures == ()
    assert [(part.first, part.last) for part in manifest.parts] == [(0, 1), (2, 5)]
    assert [record.index for record in world.records("a")] == list(range(6))
    assert sum(world.metrics.values("ItemsDone")) == 6
    assert not sum(world.metrics.values("ItemsRedone"))
    assert world.worker("i-1").reason.code is ReasonCode.MIGRATED
    assert dear.has_powered_off
    assert world.queue.backlog().is_empty
    due = Key(partition=worker_partition(WORKLOAD), sort=requeued_sort_key("a"))
    assert world.table.get(due) is None
    # Both write to the log that was opened last.
    assert len(cheap.events("migrated")) == 1


def make(path: Path) -> Path:
    path.mkdir()
    return path
