"""Which files of the kernel are written so that slots are kept apart, and what goes without."""

import os
from pathlib import Path

import pytest

from spindown.domain.policy import Dispatch
from spindown.worker.__main__ import divide, gpu_share
from spindown.worker.child.failure_cause import MemoryKills
from spindown.worker.log import open_log
from spindown.worker.machine.control_group import (
    KEPT_BYTES,
    ControlGroups,
    NoGroups,
    open_groups,
    share_of_memory,
    share_of_processes,
)
from spindown.worker.process_tree.process_tree import ProcessTree
from spindown.worker.settings import WorkerSettings
from tests.builders import a_worker
from tests.worker_system.kit import SYSTEM

UNIT = "system.slice/spindown-worker.service"


def a_machine(root: Path, controllers: str = "cpu io memory pids") -> Path:
    """Return the directory of a worker's own group, as files."""
    (root / "proc" / "self").mkdir(parents=True)
    (root / "proc" / "self" / "cgroup").write_text(f"0::/{UNIT}\n")
    (root / "proc" / "meminfo").write_text(f"MemTotal: {16 * 1024**2} kB\n")
    own = root / "cgroup" / UNIT
    own.mkdir(parents=True)
    (own / "cgroup.controllers").write_text(f"{controllers}\n")
    (own / "cgroup.type").write_text("domain\n")
    (own / "cgroup.procs").write_text(f"{os.getpid()}\n")
    return own


def opened(root: Path) -> ControlGroups:
    return open_groups(root / "proc", root / "cgroup")


def test_the_worker_moves_and_hands_its_controllers_down(tmp_path: Path) -> None:
    own = a_machine(tmp_path)
    opened(tmp_path)
    assert (own / "worker" / "cgroup.procs").read_text() == f"{os.getpid()}\n"
    for group in (own, own / "slots"):
        assert (group / "cgroup.subtree_control").read_text() == "+cpu +memory +io +pids\n"


def test_all_slots_leave_the_worker_its_memory(tmp_path: Path) -> None:
    own = a_machine(tmp_path)
    group = opened(tmp_path).of_slot(0)
    assert group.parent == own / "slots"
    assert int((group.parent / "memory.max").read_text()) == 16 * 1024**3 - KEPT_BYTES


@pytest.mark.parametrize(("most", "told"), [(None, ("max", "0")), (2048, ("2048", "1"))])
def test_a_slot_has_a_group_with_its_bound(
    tmp_path: Path, most: int | None, told: tuple[str, str]
) -> None:
    a_machine(tmp_path)
    group = opened(tmp_path).of_slot(3, most)
    assert group.name == "slot-3"
    names = ("memory.max", "memory.oom.group")
    assert tuple((group / name).read_text().strip() for name in names) == told


@pytest.mark.parametrize(("slots", "told"), [(1, "max"), (2, "4096"), (8, "1024")])
def test_a_slot_leaves_processes_to_its_neighbours(tmp_path: Path, slots: int, told: str) -> None:
    own = a_machine(tmp_path)
    # The kernel's, where it counts processes.
    bound = own / "slots" / "slot-0" / "pids.max"
    bound.parent.mkdir(parents=True)
    bound.write_text("max\n")

    opened(tmp_path).of_slot(0, processes=share_of_processes(slots, cores=4))

    assert bound.read_text() == f"{told}\n"
    # All slots together have what run-code.sh gives to their user.
    script = (SYSTEM / "run-code.sh").read_text(encoding="utf-8")
    assert "processes=$((4096 + 1024 * $(nproc)))" in script


@pytest.mark.parametrize("controllers", ["hugetlb", "cpu pids", "memory"])
def test_without_a_controller_there_are_no_groups(tmp_path: Path, controllers: str) -> None:
    a_machine(tmp_path, controllers)
    with pytest.raises(NoGroups):
        opened(tmp_path)


def test_without_version_2_there_are_none(tmp_path: Path) -> None:
    a_machine(tmp_path)
    (tmp_path / "proc" / "self" / "cgroup").write_text("4:memory:/x\n")
    with pytest.raises(NoGroups):
        opened(tmp_path)


@pytest.mark.parametrize(
    ("dispatch", "makes_groups", "is_unfit"),
    [
        (Dispatch.POOL, True, False),
        (Dispatch.DEDICATED, True, False),
        (Dispatch.SHARED, True, True),
        (Dispatch.SHARED, False, False),
    ],
)
def test_a_machine_that_cannot_keep_jobs_apart_is_unfit(
    tmp_path: Path, dispatch: Dispatch, makes_groups: bool, is_unfit: bool
) -> None:
    settings = WorkerSettings(
        scratch=tmp_path, python="python", proc=tmp_path, makes_groups=makes_groups
    )
    with (tmp_path / "log").open("w") as log:
        found = divide(settings, dispatch, open_log(log))
    assert (found.fault is not None) is is_unfit
    assert found.groups is None


def test_kills_are_those_of_the_slots_own_group(tmp_path: Path) -> None:
    events = tmp_path / "memory.events"
    events.write_text("oom_kill 1\n")
    kills = MemoryKills(group=tmp_path)
    assert not kills.has_killed
    events.write_text("oom_kill 2\n")
    assert kills.has_killed


def test_a_program_whose_group_is_gone_is_not_started(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ProcessTree(["true"], cwd=tmp_path, env={"PATH": os.defpath}, group=tmp_path / "gone")


def test_slots_share_what_the_system_does_not_keep(tmp_path: Path) -> None:
    a_machine(tmp_path)
    gib = share_of_memory(tmp_path / "proc", 8) / 1024**3
    assert gib == pytest.approx(15.5 / 8)


@pytest.mark.parametrize(
    ("gpus", "slots", "percent"), [(0, 8, []), (1, 1, []), (1, 4, ["25"]), (4, 8, ["50"])]
)
def test_a_gpu_of_several_slots_is_shared_evenly(gpus: int, slots: int, percent: list[str]) -> None:
    worker = a_worker(gpu_count=float(gpus), slots=slots)
    shares = [list(gpu_share(worker, slot).values()) for slot in range(slots)]
    assert shares == [percent] * slots
