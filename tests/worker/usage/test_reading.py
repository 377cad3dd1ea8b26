"""What the machine tells: processes, control groups, cores, network, disks."""

import os
from pathlib import Path

import pytest

from spindown.worker.usage.reading import (
    Groups,
    Process,
    Processes,
    SlotUse,
    read_cores,
    read_disks,
    read_memory_total,
    read_network,
    read_text,
    use_of,
)
from tests.worker.usage.machine import GIB, write_group, write_process

PAGE = os.sysconf("SC_PAGE_SIZE")
CONTAINER = "system.slice/docker-9f.scope"


def test_reads_what_a_process_and_its_machine_have(proc: Path) -> None:
    found = Processes(proc).trees([40])

    assert found == {40: [Process(parent=1, session=40, cpu_seconds=10.0, memory_bytes=100 * PAGE)]}
    assert read_memory_total(proc) == 16 * GIB


def test_reads_the_real_machine_it_runs_on() -> None:
    proc = Path("/proc")
    mine = Processes(proc).trees([os.getpid()])[os.getpid()]
    own = next(one for one in mine if one.parent == os.getppid())

    assert own.session == os.getsid(0)
    assert 0 < own.memory_bytes < read_memory_total(proc)
    assert own.cpu_seconds == pytest.approx(sum(os.times()[:4]), abs=1.0)
    assert len(read_cores(proc)) == os.cpu_count()
    assert all(0 <= busy <= total for busy, total in read_cores(proc))
    assert min(*read_network(proc), *read_disks(proc)) >= 0


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

    tree = Processes(proc).trees([40])[40]

    assert len(tree) == 2 + belongs
    assert (7 * PAGE in {process.memory_bytes for process in tree}) is belongs


def test_strangers_are_read_once_and_newcomers_always(proc: Path) -> None:
    processes = Processes(proc)
    processes.trees([40])
    # Whoever reads it again takes it for a child.
    write_process(proc, 1, parent=40, session=40)
    write_process(proc, 41, parent=40, session=40, pages=3)

    assert len(processes.trees([40])[40]) == 2
    assert len(processes.trees([40, 41])[40]) == 3


@pytest.mark.parametrize("text", ["", "40 (a) S", f"40 (a) S {'9' * 5000} " + "0 " * 30])
def test_a_process_that_tells_nothing_is_left_out(proc: Path, text: str) -> None:
    (proc / "40" / "stat").write_text(text)

    assert Processes(proc).trees([40]) == {}


def a_container(proc: Path, cgroups: Path, **files: str) -> Groups:
    (proc / "40" / "cgroup").write_text(f"0::/{CONTAINER}\n")
    told = {
        "cpu_stat": "usage_usec 2500000\nnr_throttled 3\nthrottled_usec 500000\n",
        "memory_current": f"{5 * GIB}\n",
        "memory_stat": f"anon 1\ninactive_file {2 * GIB}\n",
        "memory_peak": f"{6 * GIB}\n",
        # The second device is a volume on the first.
        "io_stat": "259:0 rbytes=100 wbytes=7 rios=1\n253:0 rbytes=100 wbytes=7\n8:0\n",
        **files,
    }
    write_group(cgroups / CONTAINER, **told)
    return Groups(proc, cgroups)


def test_a_container_is_told_by_its_own_group(proc: Path, tmp_path: Path) -> None:
    groups = a_container(proc, tmp_path)

    assert groups.use_of(40) == SlotUse(
        source=str(tmp_path / CONTAINER),
        cpu_seconds=2.5,
        memory_bytes=3 * GIB,
        cache_bytes=2 * GIB,
        throttled_seconds=0.5,
        memory_peak=6 * GIB,
        disk=(100, 7),
    )


def test_what_a_group_does_not_tell_is_none(proc: Path, tmp_path: Path) -> None:
    groups = a_container(proc, tmp_path, cpu_stat="usage_usec 10\n", memory_peak="")
    (tmp_path / CONTAINER / "io.stat").unlink()

    found = groups.use_of(40)

    assert found is not None
    assert (found.throttled_seconds, found.memory_peak, found.disk) == (None, None, None)


@pytest.mark.parametrize(
    "line",
    [
        "0::/system.slice/spindown-worker.service",
        "0::/system.slice",
        "0::/",
        "0::/../../outside",
        "1:memory:/system.slice/docker-9f.scope",
        "0::/not/there",
        "",
    ],
)
def test_a_group_that_is_not_its_own_is_not_read(proc: Path, tmp_path: Path, line: str) -> None:
    a_container(proc, tmp_path)
    (proc / "40" / "cgroup").write_text(f"{line}\n")

    assert Groups(proc, tmp_path).use_of(40) is None


@pytest.mark.parametrize("number", ["-1", "9" * 21, "9" * 5000, "1e9", "max", "½"])
def test_a_number_that_is_none_is_not_told(proc: Path, tmp_path: Path, number: str) -> None:
    assert a_container(proc, tmp_path, memory_current=number).use_of(40) is None


def test_no_link_is_followed_and_no_file_read_without_end(tmp_path: Path) -> None:
    (tmp_path / "long").write_text("x" * 1_000_000)
    (tmp_path / "link").symlink_to(tmp_path / "long")

    assert len(read_text(str(tmp_path / "long"))) == 65536
    assert read_text(str(tmp_path / "link")) == ""
    assert read_text(str(tmp_path)) == ""


def test_reads_cores_network_and_whole_disks(proc: Path) -> None:
    assert read_cores(proc) == [(7, 90)]
    assert read_network(proc) == (1000, 200)
    assert read_disks(proc) == (8 * 512, 16 * 512)


def test_trees_add_up(proc: Path) -> None:
    write_process(proc, 41, parent=40, session=40, seconds=2, pages=5)

    use = use_of(40, Processes(proc).trees([40])[40])

    assert (use.source, use.cpu_seconds, use.memory_bytes) == ("40", 12.0, 105 * PAGE)
    assert (use.memory_peak, use.throttled_seconds, use.disk) == (None, None, None)
