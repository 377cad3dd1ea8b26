"""Every job leaves a record of what it used."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spindown.contract.codec import encode, to_json
from spindown.contract.job.manifest import JobState
from spindown.contract.usage import DeviceUse, UsageEnd, UsageRecord, measured_prefix
from spindown.domain.fleet import GpuUse, Worker
from spindown.domain.offer import CapacityType
from spindown.domain.policy import JobNeeds, JobType, Policy
from spindown.domain.shape import Sized, shape_of
from spindown.domain.value_range import ATTEMPT_SECONDS_MOST
from spindown.job.cancel import cancel
from spindown.memory import MemoryJobQueue
from spindown.port import Outgoing
from spindown.reason_text import say_dollars
from spindown.worker.child.failure_cause import Broken, FailureCause
from spindown.worker.settings import AskedMachine, WorkerSettings
from spindown.worker.slot import Slot
from spindown.worker.usage.journal import UsageJournal
from spindown.worker.usage.sampler import CORE_SHARE, Sampler
from spindown.worker.usage.summary import summarise
from tests.local.waiting import until
from tests.slot import ScriptedRunner, SlotWorld, square
from tests.work import WORKLOAD, items
from tests.worker.usage.machine import GIB, Device, gpus_of, read_all, write_process

BUSY = Device(gpu=80, used=15 * GIB // 4, total=15 * GIB, power=60_000)


class Plant:
    """A slot that is sampled on a machine of files."""

    def __init__(self, tmp_path: Path, proc: Path, runner: ScriptedRunner, **slot: Any) -> None:
        self.slot = SlotWorld(tmp_path / "work", runner=runner, **slot)
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
                cgroups=tmp_path / "cgroups",
                usage_interval=timedelta(seconds=0.02),
                asked=AskedMachine(vcpus=2.0, memory_gib=8.0),
            ),
            log=self.slot.log,
            find_gpus=lambda: gpus_of(BUSY),
        )
        self.sampler.find_gpus()
        recorder = self.sampler.watch(0, runner)
        self.recorder = recorder
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


def test_what_a_job_asked_for_stands_beside_what_it_used(tmp_path: Path, proc: Path) -> None:
    types = (JobType(name="small", needs=JobNeeds(memory_gib=8)),)
    policy = replace(Policy(), types=types)
    one = Plant(tmp_path, proc, ScriptedRunner(), policy=policy, shape="c0m8")
    job = {"job_id": "j", "items": items(1), "type": "small", "requirements": {"memory_gib": 6}}
    one.world.send(job)
    one.slot.step()

    [record] = one.records()
    # Of vCPUs it says nothing, and the workload does.
    assert (record.asked_memory_gib, record.asked_vcpus) == (6.0, 2.0)
    assert record.stated == "memory_gib"


def test_a_learned_size_is_not_what_a_job_asked_for(tmp_path: Path, proc: Path) -> None:
    types = (JobType(name="small", needs=JobNeeds(memory_gib=8)),)
    policy = replace(Policy(), types=types)
    one = Plant(tmp_path, proc, ScriptedRunner(), policy=policy, shape="c0m4")
    sized = Sized(of=types[0].needs, needs=JobNeeds(memory_gib=4.0))
    job = json.dumps({"job_id": "j", "items": items(1), "type": "small"})
    one.world.queue.send([Outgoing(body=job, attributes={"sized": to_json(encode(sized))})])
    one.slot.step()

    [record] = one.records()
    assert (record.shape, record.asked_memory_gib, record.stated) == ("c0m4", 8.0, "")


def test_a_job_leaves_a_record_of_what_it_used(plant: Callable[..., Plant], proc: Path) -> None:
    one = plant()

    def look(polls: int) -> None:
        one.world.clock.advance(timedelta(seconds=6))
        one.sampler.sample()
        write_process(proc, 40, parent=1, session=40, seconds=10 + polls, pages=100)

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
        vcpus=float(os.cpu_count() or 1),
        memory_gib=16.0,
        vram_gib=15.0,
        asked_vcpus=2.0,
        asked_memory_gib=8.0,
        cpu_seconds=record.cpu_seconds,
        cpu_mean=record.cpu_mean,
        cpu_p95=record.cpu_p95,
        cpu_max=record.cpu_max,
        memory_mean=record.memory_max,
        memory_p95=record.memory_max,
        memory_max=record.memory_max,
        memory_peak=record.memory_max,
        gpu_mean=80.0,
        gpu_p95=80.0,
        gpu_max=80.0,
        vram_mean=3.75,
        vram_p95=3.75,
        vram_max=3.75,
        power_mean=60.0,
        power_p95=60.0,
        power_max=60.0,
        disk_read=0,
        disk_written=0,
        net_in=0,
        net_out=0,
        devices=(DeviceUse(index=0, gpu_mean=80.0, gpu_max=80.0, vram_max=3.75, power_mean=60.0),),
        series=record.series,
    )
    assert record.cpu_seconds == one.slot.runner.polls - 1
    assert len(record.series.at) == one.slot.runner.polls
    [line] = one.slot.events("job_used")
    assert line["summary"] == summarise(record)


def test_a_job_too_short_to_be_seen_has_a_record_all_the_same(
    plant: Callable[..., Plant],
) -> None:
    one = plant()
    for name in ("a", "b"):
        one.world.send({"job_id": name, "items": items(1)})
        one.slot.step()
    [a, b] = one.records()
    assert (a.job_id, a.items, a.cpu_mean, b.job_id) == ("a", 1, None, "b")
    assert len(list(one.world.objects.list(measured_prefix(WORKLOAD)))) == 1


@pytest.mark.parametrize("hours", [-1, 24 * 40])
def test_a_clock_that_is_set_loses_no_record(plant: Callable[..., Plant], hours: int) -> None:
    def set_clock(polls: int) -> None:
        if polls == 1:
            one.world.clock.set_by(timedelta(hours=hours))

    one = plant(before_poll=set_clock)
    one.world.send({"job_id": "j", "items": items(1)})
    one.slot.step()

    [record] = one.records()
    assert record.seconds == (0.0 if hours < 0 else ATTEMPT_SECONDS_MOST)


def test_usage_and_manifest_tell_the_same_dollars(plant: Callable[..., Plant]) -> None:
    one = plant()
    one.slot.runner.before_poll = lambda _: one.world.clock.advance(timedelta(seconds=6))
    # What comes after the last portion was taken is in neither.
    one.world.after = lambda _: one.world.clock.advance(timedelta(seconds=1))
    one.world.send({"job_id": "a", "items": items(4)})

    one.slot.step()

    [record] = one.records()
    manifest = one.world.manifest("a")
    assert record.seconds == pytest.approx(manifest.busy_seconds)
    assert record.dollars == pytest.approx(manifest.cost_usd)
    assert manifest.cost_usd > 0.0


@pytest.mark.parametrize(
    ("cause", "needs", "end"),
    [
        (FailureCause.OUT_OF_MEMORY, JobNeeds(memory_gib=8), UsageEnd.OUTGROWN),
        (FailureCause.OUT_OF_GPU_MEMORY, JobNeeds(gpu_memory_gib=15), UsageEnd.OUTGROWN_GPU),
    ],
)
def test_what_ran_out_of_memory_costs_the_same_everywhere(
    tmp_path: Path, proc: Path, cause: FailureCause, needs: JobNeeds, end: UsageEnd
) -> None:
    most = JobNeeds(memory_gib=24, gpu_memory_gib=22)
    types = (JobType(name="small", needs=needs),)
    policy = replace(Policy(), types=types, requirements_at_most=most)
    runner = ScriptedRunner(script=lambda *_: [Broken(cause, "no room")])
    one = Plant(tmp_path, proc, runner, policy=policy, shape=shape_of(needs).name)
    intake = MemoryJobQueue(one.world.clock, one.world.ports.random, name="intake")
    one.slot.context = replace(
        one.slot.context,
        recorder=one.recorder,
        ports=replace(one.slot.context.ports, queue_of={"": intake}.__getitem__),
    )
    one.slot.slot = Slot(one.slot.context)
    runner.before_poll = lambda _: one.world.clock.advance(timedelta(seconds=6))
    one.world.after = lambda _: one.world.clock.advance(timedelta(seconds=1))
    one.world.send({"job_id": "j", "items": items(1), "type": "small"})
    one.slot.step()

    [record] = one.records()
    assert record.end is end
    assert record.dollars == pytest.approx(one.world.manifest("j").cost_usd)
    assert record.dollars > 0.0


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


def test_a_cancelled_job_s_record_has_all_that_its_slot_cost(
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
    # Who cancels counts up to then, and the slot works on until it hears of it.
    assert manifest.state is JobState.CANCELLED
    assert manifest.cost_usd == pytest.approx(record.dollars)
    assert manifest.busy_seconds == pytest.approx(record.seconds)
    assert (record.end, record.items) == (UsageEnd.CANCELLED, 0)
    (line,) = one.slot.events("job_used")
    assert say_dollars(manifest.cost_usd) in line["summary"]
    assert record.seconds >= timedelta(minutes=10).total_seconds()
    assert record.dollars == pytest.approx(0.36 * record.seconds / 3600)


def test_nothing_is_looked_at_while_there_is_no_job(
    plant: Callable[..., Plant], proc: Path
) -> None:
    one = plant()
    (proc / "meminfo").unlink()
    one.sampler.sample()
    one.recorder.begin()
    with pytest.raises(ValueError, match="MemTotal"):
        one.sampler.sample()


def test_a_fault_of_the_sampler_is_told_and_loses_no_record(
    plant: Callable[..., Plant], proc: Path
) -> None:
    one = plant()
    one.sampler.start()
    (proc / "meminfo").unlink()
    one.world.send({"job_id": "a", "items": items(1)})
    one.slot.step()
    until(lambda: bool(one.slot.events("usage_not_sampled")))
    assert "meminfo" in one.slot.events("usage_not_sampled")[0]["traceback"]
    # Nobody waits for a look that never comes.
    began = time.monotonic()
    for name in ("b", "c", "d", "e", "f", "g", "h", "i"):
        one.world.send({"job_id": name, "items": items(1)})
        one.slot.step()
    assert time.monotonic() - began < 8 * 0.25
    one.world.clock.advance(timedelta(minutes=6))
    until(lambda: len(read_all(one.world.objects)) == 9)
    one.sampler.stop()


def test_a_short_job_is_looked_at_as_it_begins_and_ends(
    plant: Callable[..., Plant], proc: Path
) -> None:
    one = plant()
    one.sampler.start()
    for name in ("a", "b"):
        one.world.send({"job_id": name, "items": items(1)})
        one.slot.step()
    one.sampler.stop()
    for record in one.records():
        assert record.memory_max is not None
        assert record.gpu_max == 80.0


def test_a_short_job_is_measured_by_the_group_of_its_slot(
    plant: Callable[..., Plant], tmp_path: Path
) -> None:
    group = tmp_path / "slot-0"
    group.mkdir()

    def has_used(seconds: int, peak_gib: int) -> None:
        (group / "cpu.stat").write_text(f"usage_usec {seconds}000000\n")
        (group / "memory.current").write_text(f"{GIB}\n")
        (group / "memory.peak").write_text(f"{peak_gib * GIB}\n")

    def work(_: int) -> None:
        # The look at the begin has been answered.
        until(lambda: one.sampler.spent > 0.0)
        has_used(seconds=7, peak_gib=3)

    has_used(seconds=5, peak_gib=2)
    one = plant(group=group, before_poll=work)
    one.sampler.start()
    one.world.send({"job_id": "a", "items": items(1)})
    one.slot.step()
    one.sampler.stop()
    (record,) = one.records()
    assert (record.cpu_seconds, record.memory_peak) == (2.0, 3.0)


def test_looks_become_rare_where_they_take_too_long(
    plant: Callable[..., Plant], proc: Path
) -> None:
    one = plant()
    # As if a machine with very many processes had been looked at.
    one.sampler.spent = 1000.0
    one.sampler.start()
    one.world.send({"job_id": "a", "items": items(1)})
    one.slot.step()
    one.sampler.stop()

    [record] = one.records()
    assert one.sampler.spent == 1000.0
    assert (record.memory_max, record.items) == (None, 1)
    assert CORE_SHARE == 0.005


def test_the_sampler_fills_the_gauge_while_a_job_runs(tmp_path: Path, proc: Path) -> None:
    plant = Plant(tmp_path, proc, ScriptedRunner())

    plant.sampler.sample()
    assert plant.sampler.gauge.read() is None
    plant.recorder.begin()
    plant.sampler.sample()

    assert plant.sampler.gauge.read() == GpuUse(percent=80.0, vram_percent=25.0, vram_gib=3.75)


def test_a_silent_machine_keeps_no_worker_from_its_end(
    plant: Callable[..., Plant], proc: Path
) -> None:
    one = plant()
    (proc / "77").mkdir()
    os.mkfifo(proc / "77" / "stat")
    one.sampler.start()
    one.recorder.begin()
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
