"""The example program under the whole worker: asked to stop by a notice, resumed elsewhere."""

import sys
from datetime import timedelta
from pathlib import Path

from spindown.contract.job.manifest import JobState
from spindown.contract.run_spec import RunSpec
from spindown.domain.fleet import WorkerState
from spindown.job.attachment.log import read_logs
from tests.plant import Plant
from tests.work import WorkWorld

PROGRAM = Path(__file__).parents[2] / "examples" / "simulate" / "simulate.py"
SPEC = RunSpec(
    command=(sys.executable, "job.py"),
    item_timeout=timedelta(minutes=1),
    stop_grace=timedelta(seconds=5),
)
STEPS = 6000


def a_plant(scratch: Path, instance_id: str, world: WorkWorld | None = None) -> Plant:
    scratch.mkdir()
    return Plant(scratch, PROGRAM.read_text(), spec=SPEC, instance_id=instance_id, world=world)


def test_a_notice_costs_none_of_the_steps_that_were_done(tmp_path: Path) -> None:
    one = a_plant(tmp_path / "1", "i-1")
    whole = {"job_id": "whole", "items": [{"steps": STEPS}]}
    two = {"job_id": "j", "items": [{"steps": 20}, {"steps": STEPS}, {"steps": "many"}]}
    one.world.send(two)
    one.start()
    one.until(lambda: one.items_done(0) == 1)
    one.metadata.announce_interruption(one.world.clock.now() + timedelta(seconds=2))
    one.until(lambda: one.world.worker("i-1").state is WorkerState.DRAINED)
    manifest = one.world.manifest("j")
    assert (manifest.next_item, manifest.released, manifest.interruptions) == (1, True, 1)
    assert [file.path for file in manifest.user_state] == ["plate.json"]
    one.daemon.stop()

    other = a_plant(tmp_path / "2", "i-2", one.world)
    one.world.send(whole)
    other.start()
    other.join()

    manifest = one.world.manifest("j")
    assert (manifest.state, manifest.epoch, manifest.failures) == (JobState.COMPLETED, 2, ())
    _, resumed, bad = one.world.records("j")
    assert resumed.result["resumed_at"] > 0
    assert resumed.result["steps"] == STEPS
    assert "steps" in str(bad.error)
    [undisturbed] = one.world.records("whole")
    assert undisturbed.result["resumed_at"] == 0
    assert resumed.result["mean"] == undisturbed.result["mean"]
    plates = [one.world.objects.get(r.outputs[0].key).data for r in (resumed, undisturbed)]
    assert plates[0] == plates[1]
    logs = dict(read_logs("j", one.world.objects))
    assert logs[1].startswith("item 0: ")
    assert f"item 1: from step {resumed.result['resumed_at']} " in logs[2]
