"""What the machine tells: processes and GPUs."""

import os
from pathlib import Path

import pytest

from tests.worker.usage.machine import GIB, fake_smi, write_process
from worker.usage.reading import Gpu, Process, read_gpus, read_memory_total, read_processes, tree_of

PAGE = os.sysconf("SC_PAGE_SIZE")


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
