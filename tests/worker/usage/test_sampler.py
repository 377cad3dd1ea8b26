"""Every job leaves a record of what it used."""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from spindown.contract.job.manifest import JobState
from spindown.contract.usage import UsageEnd, UsageRecord, usage_prefix
from spindown.domain.fleet import GpuUse, Worker
from spindown.domain.offer import CapacityType
from spindown.job.cancel import cancel
from tests.local.waiting import until
from tests.slot import ScriptedRunner, SlotWorld, square
from tests.work import WORKLOAD, items
from tests.worker.usage.machine import fake_smi, read_all
from worker.child.ending import Broken, FailureCause
from worker.home import WorkerSettings
from worker.slot import Slot
from worker.usage.journal import UsageJournal
from worker.usage.sampler import Sampler


class Plant:
    """A slot that is sampled on a machine of files."""

    def __init__(self, tmp_path: Path, proc: Path, runner: ScriptedRunner) -> None:
        smi = fake_smi(tmp_path, 'print("0, 80, 3840, 15360")')
        self.slot = SlotWorld(tmp_path / "work", runner=runner)
        runner.pid = 40
        self.world = self.slot.world
        worker: Worker = self.world.worker()
        journal = UsageJournal(self.world.ports.objects, self.world.clock, self.slot.log)
        self.sampler = Sampler(
            worker,
            workload=WORKLOAD,
            journal=journal,
            settings=WorkerSettings(
                scratch=tmp_path,
                python="",
                proc=proc,
                nvidia_smi=smi,
                usage_interval=timedelta(seconds=0.02),
            ),
            log=self.slot.log,
        )
        recorder = self.sampler.watch(0, runner)
        context = replace(self.slot.context, recorder=recorder)
        self.slot.slot = Slot(context)
        self.journal = journal

    def records(self) -> list[UsageRecord]:
        self.journal.write()
        return read_all(self.world.objects)


@pytest.fixture
def plant(tmp_path: Path, proc: Path) -> Callable[..., Plant]:
    (tmp_path / "work").mkdir()
    return lambda **runner: Plant(tmp_path, proc, ScriptedRunner(**runner))


def test_a_job_leaves_a_record_of_what_it_used(plant: Callable[..., Plant]) -> None:
    one = plant()

    def look(polls: int) -> None:
        one.world.clock.advance(timedelta(seconds=6))
        one.sampler.sample()

    one.slot.runner.before_poll = look
    one.world.send({"job_id": "j", "batch_id": "b", "items": items(4)})
    one.slot.step()
    [record] = one.records()
    assert record == UsageRecord(
        job_id="j",
        batch_id="b",
        epoch=1,
        workload=WORKLOAD,
        instance_id="i-1",
        instance_type="g4dn.xlarge",
        region="us-east-1",
        zone="us-east-1a",
        capacity_type=CapacityType.SPOT.value,
        gpu="T4",
        gpu_count=1.0,
        slots=1,
        price_per_hour=0.36,
        started_at=record.started_at,
        end=UsageEnd.COMPLETED,
        seconds=one.slot.runner.polls * 6.0,
        items=4,
        cpu_mean=0.0,
        cpu_max=0.0,
        memory_mean=record.memory_max,
        memory_max=record.memory_max,
        gpu_mean=80.0,
        gpu_max=80.0,
        vram_mean=25.0,
        vram_max=25.0,
    )


def test_a_job_too_short_to_be_seen_has_a_record_all_the_same(
    plant: Callable[..., Plant],
) -> None:
    one = plant()
    for name in ("a", "b"):
        one.world.send({"job_id": name, "items": items(1)})
        one.slot.step()
    [a, b] = one.records()
    assert (a.job_id, a.items, a.cpu_mean, b.job_id) == ("a", 1, None, "b")
    assert len(list(one.world.objects.list(usage_prefix(WORKLOAD)))) == 1


def test_a_failed_job_and_an_interrupted_one_say_so(plant: Callable[..., Plant]) -> None:
    answers = [[Broken(FailureCause.ENDED, "no")], None]
    one = plant(script=lambda task, batch: answers.pop(0) or square(task, batch))
    one.world.send({"job_id": "a", "items": items(4)})
    one.slot.step()

    def interrupt(polls: int) -> None:
        one.slot.metadata.announce_interruption(one.world.clock.now())
        one.slot.watch.look()

    one.slot.runner.before_poll = interrupt
    one.world.clock.advance(timedelta(hours=1))
    one.slot.step()
    assert [record.end for record in one.records()] == [UsageEnd.FAILED, UsageEnd.INTERRUPTED]


def test_a_cancelled_job_s_record_alone_has_what_its_slot_cost(
    plant: Callable[..., Plant],
) -> None:
    one = plant()
    one.world.send({"job_id": "a", "items": items(4)})

    def work_then_cancel(polls: int) -> None:
        one.world.clock.advance(timedelta(minutes=5))
        if polls == 2:
            list(cancel(WORKLOAD, ["a"], one.world.ports))

    one.slot.runner.before_poll = work_then_cancel
    one.slot.step()

    [record] = one.records()
    manifest = one.world.manifest("a")
    assert (manifest.state, manifest.cost_usd) == (JobState.CANCELLED, 0.0)
    assert (record.end, record.items) == (UsageEnd.LOST, 0)
    assert record.seconds >= timedelta(minutes=10).total_seconds()
    assert record.dollars == pytest.approx(0.36 * record.seconds / 3600)


def test_nothing_is_looked_at_while_no_process_runs(
    plant: Callable[..., Plant], proc: Path
) -> None:
    one = plant()
    one.slot.runner.pid = None
    (proc / "meminfo").unlink()
    one.sampler.sample()


def test_records_are_written_on_after_a_fault_of_the_sampler(
    plant: Callable[..., Plant], proc: Path
) -> None:
    one = plant()
    (proc / "meminfo").unlink()
    one.sampler.start()
    while not one.slot.events("usage_not_sampled"):
        threading.Event().wait(0.01)
    one.slot.runner.pid = None
    one.world.send({"job_id": "j", "items": items(1)})
    one.slot.step()
    one.world.clock.advance(timedelta(minutes=6))
    for _ in range(500):
        if read_all(one.world.objects):
            break
        threading.Event().wait(0.01)
    assert [record.job_id for record in read_all(one.world.objects)] == ["j"]
    one.sampler.stop()


def test_a_sampler_fault_is_told_and_loses_no_record(
    plant: Callable[..., Plant], proc: Path
) -> None:
    one = plant()
    one.world.send({"job_id": "a", "items": items(1)})
    one.slot.step()
    (proc / "meminfo").unlink()
    one.sampler.start()
    for _ in range(500):
        if one.slot.events("usage_not_sampled"):
            break
        threading.Event().wait(0.02)
    one.sampler.stop()
    assert "meminfo" in one.slot.events("usage_not_sampled")[0]["traceback"]
    assert [record.job_id for record in read_all(one.world.objects)] == ["a"]


def test_the_sampler_fills_the_gauge_while_a_job_runs(tmp_path: Path, proc: Path) -> None:
    plant = Plant(tmp_path, proc, ScriptedRunner())

    plant.sampler.sample()

    assert plant.sampler.gauge.read() == GpuUse(percent=80.0, vram_percent=25.0, vram_gib=3.75)


def test_a_silent_machine_keeps_no_worker_from_its_end(
    plant: Callable[..., Plant], proc: Path
) -> None:
    one = plant()
    (proc / "77").mkdir()
    os.mkfifo(proc / "77" / "stat")
    one.sampler.start()
    # Who has the other end open may write: it is being read.
    line = until(lambda: open_line(proc / "77" / "stat"))
    began = time.monotonic()
    one.sampler.stop(patience=timedelta(seconds=0.05))
    assert time.monotonic() - began < 5.0
    assert one.slot.events("usage_left_behind")
    os.close(line)


def open_line(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return 0
