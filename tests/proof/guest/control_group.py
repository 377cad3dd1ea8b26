"""Slots in control groups of a real kernel; ``test_control_group`` runs this in a guest."""

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from spindown.contract.job.manifest import JobState
from spindown.contract.usage import UsageEnd, UsageRecord, decode_usage, measured_prefix
from spindown.domain.fleet import Worker
from spindown.domain.policy import Dispatch
from spindown.worker.__main__ import Division, divide, make_runner
from spindown.worker.child.failure_cause import FailureCause
from spindown.worker.child.runner import Runner
from spindown.worker.log import open_log
from spindown.worker.process_tree.process_tree import ProcessTree
from spindown.worker.settings import WorkerSettings
from spindown.worker.usage.reading import read_group
from tests.plant import QUICK, Plant
from tests.work import WORKLOAD

SLOTS = 3
MIB = 1024**2
#: A job takes memory and holds it until the file ``go`` is there.
EATER = """
    import time
    from pathlib import Path
    from spindown.user import Result
    def run(batch, ctx):
        for item in batch:
            held = bytearray(b"x") * (item.value << 20)
            while not (Path(__file__).parents[1] / "go").exists():
                time.sleep(0.05)
            yield Result(item, len(held))
"""


def settings_of(scratch: Path) -> WorkerSettings:
    return WorkerSettings(scratch=scratch, python=sys.executable, env=os.environ, makes_groups=True)


@pytest.fixture(scope="module")
def division(tmp_path_factory: pytest.TempPathFactory) -> Division:
    found = divide(settings_of(tmp_path_factory.mktemp("w")), Dispatch.SHARED, open_log(sys.stdout))
    assert found.fault is None
    return found


class SharedPlant(Plant):
    """A worker whose slots are made as on an instance."""

    division = Division()

    def _make_runner(self, worker: Worker, slot: int) -> Runner:
        settings = settings_of(self.scratch)
        return make_runner(worker, slot, self.code, settings, self.log, self.division)


@pytest.fixture
def plant(division: Division, tmp_path: Path) -> Iterator[SharedPlant]:
    policy = replace(QUICK, dispatch=Dispatch.SHARED, max_failures=9, max_failures_on_two=9)
    one = SharedPlant(tmp_path, EATER, policy=policy)
    one.division = division
    yield one
    one.stop()


def records(one: Plant) -> dict[str, UsageRecord]:
    found = one.world.objects.list(measured_prefix(WORKLOAD))
    read = (decode_usage(one.world.objects.get(x.key).data, workload=WORKLOAD) for x in found)
    return {record.job_id: record for each in read for record in each}


def kills(division: Division, slot: int) -> int:
    assert division.groups is not None
    lines = (division.groups.slots / f"slot-{slot}" / "memory.events").read_text().splitlines()
    return {name: int(n) for name, n in map(str.split, lines)}["oom_kill"]


def test_who_takes_too_much_memory_dies_alone(plant: SharedPlant, division: Division) -> None:
    small, large = 60, 900
    for name, mib in (("a", small), ("b", large), ("c", small)):
        plant.world.send({"job_id": name, "items": [mib]})
    plant.start(slots=SLOTS)
    plant.until(lambda: bool(plant.events("attempt_failed")))
    (failed,) = plant.events("attempt_failed")
    assert failed["cause"] == FailureCause.OUT_OF_MEMORY
    assert plant.world.manifest("b").state is not JobState.COMPLETED
    (plant.scratch / "go").touch()
    plant.join()

    for name in ("a", "c"):
        assert plant.world.manifest(name).state is JobState.COMPLETED
    assert sum(kills(division, slot) > 0 for slot in range(SLOTS)) == 1
    used = records(plant)
    assert used["b"].end is UsageEnd.FAILED
    for name in ("a", "c"):
        # By the group itself, with all that its processes share counted once.
        peak = used[name].memory_peak
        assert peak is not None
        assert small * MIB < peak * 1024 * MIB < 4 * small * MIB
        assert used[name].throttled_seconds is not None


def test_slots_that_want_all_of_the_cpu_get_the_same(division: Division, tmp_path: Path) -> None:
    assert division.groups is not None
    groups = [division.groups.of_slot(slot) for slot in (SLOTS, SLOTS + 1)]
    burn = "while :; do :; done"
    trees = [
        ProcessTree(["sh", "-c", program], cwd=tmp_path, env={"PATH": os.defpath}, group=group)
        for program, group in zip(
            (burn, f"for n in 1 2 3 4; do ({burn}) & done; wait"), groups, strict=True
        )
    ]
    ends_at = time.monotonic() + 5.0
    while time.monotonic() < ends_at:
        trees[0].status(0.5)
    uses = [read_group(str(group), Path("/proc")) for group in groups]
    for tree in trees:
        tree.end()
        tree.output.close()
    spent = [use.cpu_seconds for use in uses if use is not None]
    assert len(spent) == len(groups)
    assert 0.35 < spent[0] / sum(spent) < 0.65


#: More processes than the machine has memory for, which the kernel would rather spare.
SPARED = """
import os, time
open("/proc/self/oom_score_adj", "w").write("-500")
for _ in range(40):
    if not os.fork():
        held = bytearray(b"x") * (80 << 20)
        time.sleep(600)
time.sleep(600)
"""


def test_memory_runs_out_among_the_slots_alone(division: Division, tmp_path: Path) -> None:
    assert division.groups is not None
    group = division.groups.of_slot(SLOTS + 2)
    program = [sys.executable, "-I", "-c", SPARED]
    tree = ProcessTree(program, cwd=tmp_path, env={"PATH": os.defpath}, group=group)
    ends_at = time.monotonic() + 120.0
    while not kills(division, SLOTS + 2) and time.monotonic() < ends_at:
        tree.status(0.5)
    tree.end()
    tree.output.close()

    # All that is killed is the slot's: the kernel names the group whose bound was met.
    assert kills(division, SLOTS + 2) > 0
    assert "oom_kill 0" in (division.groups.slots.parent / "worker" / "memory.events").read_text()
