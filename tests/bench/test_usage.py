"""What it costs a worker to look at a job: CPU of the looks, as a share of one core.

The shipped sampler looks at this machine, all of whose processes it must list, while a child with
processes of its own holds the slot. It looks once a second, as in a job's first minute, which is
the most that it ever does: the CPU seconds of a look are the share. GPUs answer from a table, so
NVIDIA's driver is not in it; what the sampler spends, driver included, it bounds itself.
"""

import io
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from statistics import median
from time import thread_time

import pytest

from spindown.ec2sim import MemoryClock
from spindown.memory.store import MemoryObjectStore
from spindown.worker.log import open_log
from spindown.worker.settings import WorkerSettings
from spindown.worker.usage.journal import UsageJournal
from spindown.worker.usage.sampler import CORE_SHARE, Sampler
from tests.bench.record import record
from tests.slot import ScriptedRunner
from tests.work import WORKLOAD, a_worker
from tests.worker.usage.machine import T4, gpus_of

pytestmark = pytest.mark.bench

LOOKS = 300
#: Processes of the job beside its first.
CHILDREN = 8
FAMILY = f"""
import subprocess, sys
for _ in range({CHILDREN}):
    subprocess.Popen([sys.executable, "-c", "input()"], stdin=0)
print("there", flush=True)
input()
"""


@pytest.fixture
def family() -> Iterator[int]:
    process = subprocess.Popen(
        [sys.executable, "-c", FAMILY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    yield process.pid
    process.communicate()


def test_looks_take_less_than_half_a_percent_of_a_core(family: int, tmp_path: Path) -> None:
    log = open_log(io.StringIO())
    journal = UsageJournal(MemoryObjectStore(MemoryClock()), MemoryClock(), log)
    settings = WorkerSettings(
        scratch=tmp_path, python=sys.executable, usage_interval=timedelta(hours=1)
    )
    sampler = Sampler(
        a_worker(),
        workload=WORKLOAD,
        journal=journal,
        settings=settings,
        log=log,
        find_gpus=lambda: gpus_of(T4),
    )
    sampler.find_gpus()
    runner = ScriptedRunner()
    runner.pid = family
    sampler.watch(0, runner).begin()
    spans = []
    for _ in range(LOOKS):
        began = thread_time()
        sampler.sample(with_cores=False)
        spans.append(thread_time() - began)
    processes = sum(path.name.isdecimal() for path in Path("/proc").iterdir())
    share = median(spans)
    record(
        "usage",
        {
            "looks": LOOKS,
            "processes": processes,
            "of_the_job": 1 + CHILDREN,
            "cpu_ms_per_look": round(1000.0 * share, 3),
            "percent_of_a_core_at_one_a_second": round(100.0 * share, 3),
            "percent_of_a_core_at_one_in_five": round(20.0 * share, 3),
            "limit": 100.0 * CORE_SHARE,
        },
    )
    assert share <= CORE_SHARE
