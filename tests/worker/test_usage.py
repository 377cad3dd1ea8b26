"""How well a machine is used: read from a machine of files, added up by job, written in batches."""

import os
import sys
import textwrap
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spindown.contract.usage import UsageEnd, UsageRecord, decode_usage, usage_prefix
from spindown.domain.fleet import GpuUse, Worker
from spindown.domain.offer import CapacityType
from spindown.error import Unreachable
from spindown.memory.clock import MemoryClock
from spindown.memory.interception import PortCall, intercept
from spindown.memory.store import MemoryObjectStore
from tests.slot import ScriptedRunner, SlotWorld, square
from tests.work import WORKLOAD, a_worker, items
from worker.child.runner import Broken
from worker.home import WorkerSettings
from worker.slot import Slot
from worker.usage.journal import Journal
from worker.usage.meter import Gauge, Machine, Meter, Use, slot_gpus
from worker.usage.reading import (
    Gpu,
    Process,
    read_gpus,
    read_memory_total,
    read_processes,
    tree_of,
)
from worker.usage.sampler import Sampler

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
GIB = 1024**3


def write_process(
    proc: Path, number: int, *, parent: int, session: int, seconds: float = 0.0, pages: int = 0
) -> None:
    """Write what proc(5) says of a process, with a name made to mislead."""
    ticks = int(seconds * TICKS / 2)
    fields = ["S", parent, session, session, *[0] * 7, ticks, 0, ticks, 0, *[0] * 6, pages, 0]
    (proc / str(number)).mkdir(exist_ok=True)
    text = f"{number} ((a) b () {' '.join(map(str, fields))}\n"
    (proc / str(number) / "stat").write_text(text)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    root = tmp_path / "proc"
    root.mkdir()
    (root / "meminfo").write_text("MemTotal:       16777216 kB\nMemFree: 1 kB\n")
    (root / "self").mkdir()
    write_process(root, 1, parent=0, session=1, seconds=900)
    write_process(root, 40, parent=1, session=40, seconds=10, pages=100)
    return root


def fake_smi(tmp_path: Path, body: str) -> str:
    script = tmp_path / "nvidia-smi"
    script.write_text(f"#!{sys.executable}\n{textwrap.dedent(body)}")
    script.chmod(0o755)
    return str(script)


def test_reads_what_each_process_has_used(proc: Path) -> None:
    found = read_processes(proc)

    assert set(found) == {1, 40}
    assert found[40] == Process(parent=1, session=40, cpu_seconds=10.0, memory_bytes=100 * PAGE)
    assert read_memory_total(proc) == 16 * GIB


def test_reads_the_real_machine_it_runs_on() -> None:
    mine = read_processes(Path("/proc"))[os.getpid()]

    assert mine.parent == os.getppid()
    assert mine.session == os.getsid(0)
    assert 0 < mine.memory_bytes < read_memory_total(Path("/proc"))
    assert mine.cpu_seconds == pytest.approx(sum(os.times()[:4]), abs=1.0)


@pytest.mark.parametrize(
    ("parent", "session", "belongs"),
    [
        pytest.param(40, 40, True, id="a child"),
        pytest.param(1, 40, True, id="an orphan"),
        pytest.param(41, 42, True, id="a session of its own"),
        pytest.param(1, 1, False, id="somebody else's"),
    ],
)
def test_a_tree_is_all_that_a_process_has_started(
    proc: Path, parent: int, session: int, *, belongs: bool
) -> None:
    write_process(proc, 41, parent=40, session=40)
    write_process(proc, 42, parent=parent, session=session, pages=7)

    tree = tree_of(read_processes(proc), 40)

    assert len(tree) == 2 + belongs
    assert (7 * PAGE in {process.memory_bytes for process in tree}) is belongs


def test_reads_gpus_as_nvidia_smi_prints_them(tmp_path: Path) -> None:
    command = fake_smi(
        tmp_path,
        """
        import sys
        assert sys.argv[1:] == [
            "--query-gpu=index,utilization.gpu,memory.used,memory.total",
            "--format=csv,noheader,nounits",
        ]
        print("0, 35, 1024, 15360")
        print("1, [N/A], 0, [Not Supported]")
        """,
    )

    assert read_gpus(command) == {
        0: Gpu(35.0, 1 * GIB, 15 * GIB),
        1: Gpu(None, 0.0, None),
    }


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("raise SystemExit(9)", id="fails"),
        pytest.param("print('No devices were found')", id="finds none"),
    ],
)
def test_no_gpu_is_read_where_nvidia_smi_tells_none(tmp_path: Path, body: str) -> None:
    assert read_gpus(fake_smi(tmp_path, body)) == {}
    assert read_gpus(str(tmp_path / "nowhere")) == {}


def a_machine(at: float, cpu_seconds: float, *, gib: float = 1.0, **gpus: Gpu) -> Machine:
    return Machine(
        at=at,
        processes={40: Process(1, 40, cpu_seconds, int(gib * GIB))},
        cpus=8,
        memory_bytes=16 * GIB,
        gpus={int(name[1:]): gpu for name, gpu in gpus.items()},
    )


def test_a_meter_tells_means_and_maxima_of_the_slots_share() -> None:
    meter = Meter(slots=2, gpus=[1])
    meter.begin()
    busy = {"g0": Gpu(100.0, 8 * GIB, 8 * GIB), "g1": Gpu(20.0, 2 * GIB, 8 * GIB)}
    meter.take(a_machine(0.0, 100.0, gib=2.0, **busy), 40)
    # Two cores of the four that are the slot's, then all four.
    meter.take(a_machine(5.0, 110.0, gib=4.0, **busy), 40)
    meter.take(a_machine(10.0, 130.0, gib=3.0, g1=Gpu(60.0, 4 * GIB, 8 * GIB)), 40)

    assert meter.end() == Use(
        cpu_mean=75.0,
        cpu_max=100.0,
        memory_mean=37.5,
        memory_max=50.0,
        gpu_mean=33.33,
        gpu_max=60.0,
        vram_mean=33.33,
        vram_max=50.0,
    )


def test_a_meter_that_saw_nothing_says_so() -> None:
    meter = Meter(slots=1, gpus=None)
    meter.take(a_machine(0.0, 100.0), 41)
    assert set(vars_of(meter.end()).values()) == {None}
    meter.take(a_machine(5.0, 100.0), 40)
    meter.begin()
    assert set(vars_of(meter.end()).values()) == {None}


def test_cpu_time_of_the_job_before_or_of_a_process_before_is_not_counted() -> None:
    meter = Meter(slots=1, gpus=None)
    meter.take(a_machine(0.0, 100.0), 40)
    meter.begin()
    meter.take(a_machine(5.0, 500.0), 40)
    assert meter.end().cpu_max is None
    # A new process began at nothing; a child that ended unwaited for has taken time along.
    meter.take(replace(a_machine(10.0, 0.0), processes={41: Process(1, 41, 1.0, 0)}), 41)
    assert meter.end().cpu_max is None
    meter.take(replace(a_machine(15.0, 0.0), processes={41: Process(1, 41, 0.5, 0)}), 41)
    assert meter.end().cpu_max == 0.0


def vars_of(use: Use) -> Mapping[str, float | None]:
    return {name: getattr(use, name) for name in Use.__slots__}


@pytest.mark.parametrize(
    ("gpus", "slots", "own"),
    [
        (0.0, 2, [None, None]),
        (0.25, 1, [None]),
        (4.0, 1, [None]),
        (4.0, 2, [[0, 2], [1, 3]]),
        (1.0, 2, [[0], [0]]),
    ],
)
def test_gpus_are_shared_out_over_slots(
    gpus: float, slots: int, own: list[list[int] | None]
) -> None:
    worker = a_worker(gpu_count=gpus, slots=slots)
    assert [slot_gpus(worker, slot) for slot in range(slots)] == own


class Plant:
    """A slot that is sampled on a machine of files."""

    def __init__(self, tmp_path: Path, proc: Path, runner: ScriptedRunner) -> None:
        smi = fake_smi(tmp_path, 'print("0, 80, 3840, 15360")')
        self.slot = SlotWorld(tmp_path / "work", runner=runner)
        runner.pid = 40
        self.world = self.slot.world
        worker: Worker = self.world.worker()
        journal = Journal(self.world.ports.objects, self.world.clock, self.slot.log)
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
        bench = replace(self.slot.bench, recorder=recorder)
        self.slot.slot = Slot(bench, poll_at_most=timedelta(seconds=20))
        self.journal = journal

    def records(self) -> list[UsageRecord]:
        self.journal.write()
        return read_all(self.world.objects)


def read_all(objects: MemoryObjectStore) -> list[UsageRecord]:
    return [
        record
        for found in objects.list(usage_prefix(WORKLOAD))
        for record in decode_usage(objects.get(found.key).data, workload=WORKLOAD)
    ]


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
    one.slot.slot.step()
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
        one.slot.slot.step()
    [a, b] = one.records()
    assert (a.job_id, a.items, a.cpu_mean, b.job_id) == ("a", 1, None, "b")
    assert len(list(one.world.objects.list(usage_prefix(WORKLOAD)))) == 1


def test_a_failed_job_and_an_interrupted_one_say_so(plant: Callable[..., Plant]) -> None:
    answers = [[Broken("no")], None]
    one = plant(script=lambda task, batch: answers.pop(0) or square(task, batch))
    one.world.send({"job_id": "a", "items": items(4)})
    one.slot.slot.step()

    def interrupt(polls: int) -> None:
        one.slot.watch.interrupt(one.world.clock.now(), "test")

    one.slot.runner.before_poll = interrupt
    one.world.clock.advance(timedelta(hours=1))
    one.slot.slot.step()
    assert [record.end for record in one.records()] == [UsageEnd.FAILED, UsageEnd.INTERRUPTED]


def test_nothing_is_looked_at_while_no_process_runs(
    plant: Callable[..., Plant], proc: Path
) -> None:
    one = plant()
    one.slot.runner.pid = None
    (proc / "meminfo").unlink()
    one.sampler.sample()


def test_a_fault_of_the_sampler_is_told_and_takes_no_record_along(
    plant: Callable[..., Plant], proc: Path
) -> None:
    one = plant()
    one.world.send({"job_id": "a", "items": items(1)})
    one.slot.slot.step()
    (proc / "meminfo").unlink()
    one.sampler.start()
    for _ in range(500):
        if one.slot.events("usage_not_sampled"):
            break
        threading.Event().wait(0.02)
    one.sampler.stop()
    assert "meminfo" in one.slot.events("usage_not_sampled")[0]["traceback"]
    assert [record.job_id for record in read_all(one.world.objects)] == ["a"]


RECORD = UsageRecord(
    job_id="j",
    epoch=1,
    workload=WORKLOAD,
    instance_id="i-1",
    instance_type="g5.xlarge",
    zone="eu-west-1a",
    capacity_type="spot",
    gpu="A10G",
    gpu_count=1.0,
    slots=1,
    price_per_hour=0.5,
    started_at=MemoryClock().now(),
    end=UsageEnd.COMPLETED,
    seconds=60.0,
    items=10,
)


class Shelf:
    """A journal over a store that can be broken."""

    def __init__(self, log: Any) -> None:
        self.clock = MemoryClock()
        self.store = MemoryObjectStore(self.clock)
        self.is_broken = False
        self.puts = 0
        self.journal = Journal(intercept(self.store, "objects", self._pass), self.clock, log)

    def _pass(self, call: PortCall, proceed: Callable[[], Any]) -> Any:
        if self.is_broken:
            raise Unreachable("no S3")
        self.puts += 1
        return proceed()


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(SlotWorld(tmp_path).log)


def test_records_wait_for_others_and_go_into_one_object(shelf: Shelf) -> None:
    for epoch in (1, 2):
        shelf.journal.add(replace(RECORD, epoch=epoch))
        shelf.clock.advance(timedelta(minutes=4))
        shelf.journal.write_if_due()
        assert shelf.puts == epoch - 1
    shelf.journal.write_if_due()
    shelf.journal.write()
    assert shelf.puts == 1
    assert [record.epoch for record in read_all(shelf.store)] == [1, 2]


def test_many_records_do_not_wait(shelf: Shelf) -> None:
    for epoch in range(1000):
        shelf.journal.add(replace(RECORD, epoch=epoch))
    shelf.journal.write_if_due()
    assert shelf.puts == 1


def test_records_of_two_days_lie_in_two_partitions(shelf: Shelf) -> None:
    tomorrow = RECORD.started_at + timedelta(days=1)
    for started_at in (tomorrow, RECORD.started_at, tomorrow):
        shelf.journal.add(replace(RECORD, started_at=started_at))
    shelf.journal.write()
    objects = [shelf.store.get(found.key).data for found in shelf.store.list("")]
    assert [len(data.splitlines()) for data in objects] == [1, 2]


def test_what_cannot_be_written_waits_for_the_next_time(shelf: Shelf) -> None:
    shelf.is_broken = True
    shelf.journal.add(RECORD)
    shelf.journal.write()
    shelf.is_broken = False
    shelf.journal.write()
    assert read_all(shelf.store) == [RECORD]


def test_a_gauge_tells_the_gpus_of_the_machine_since_it_was_last_read() -> None:
    gauge = Gauge()
    gauge.take([Gpu(20.0, 2 * GIB, 16 * GIB), Gpu(40.0, 4 * GIB, 16 * GIB)])
    gauge.take([Gpu(60.0, 8 * GIB, 16 * GIB), Gpu(None, 1.0, None)])

    assert gauge.read() == GpuUse(percent=40.0, vram_percent=50.0, vram_gib=8.0)
    assert gauge.read() is None


def test_without_a_gpu_a_gauge_tells_nothing() -> None:
    gauge = Gauge()
    gauge.take([])

    assert gauge.read() is None


def test_the_sampler_fills_the_gauge_while_a_job_runs(tmp_path: Path, proc: Path) -> None:
    plant = Plant(tmp_path, proc, ScriptedRunner())

    plant.sampler.sample()

    assert plant.sampler.gauge.read() == GpuUse(percent=80.0, vram_percent=25.0, vram_gib=3.75)
