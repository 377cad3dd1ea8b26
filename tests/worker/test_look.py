"""What a look at the user's directory takes, and how often it looks."""

import os
import resource
from datetime import timedelta
from pathlib import Path

import pytest

from spindown.job.claimed_job import LocalFile
from spindown.worker.code_folder import list_files, take_file
from spindown.worker.transfer.checkpoint_folder import UserState
from tests.work import items
from tests.worker.settled import write_settled

JOB = {"job_id": "j", "items": items(5)}
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def state(tmp_path: Path) -> UserState:
    (tmp_path / "copies").mkdir()
    (tmp_path / "state").mkdir()
    return UserState(tmp_path / "state", lambda: tmp_path / "copies", below=tmp_path)


def test_a_file_under_way_is_not_taken(state: UserState) -> None:
    for name in ("a.tmp", "b.part", ".hidden", "dir.tmp/c", ".git/d"):
        write_settled(state.root / name, "x")
    assert state.take() is None
    (state.root / "fresh").write_text("just now")
    assert state.take() is None
    taken = state.take(at_rest=True)
    assert taken is not None
    assert [file.path for file in taken] == ["fresh"]


def test_state_is_taken_once_and_again_when_it_changes(state: UserState) -> None:
    write_settled(state.root / "step", "1")
    assert state.take() is not None
    assert state.take() is None
    write_settled(state.root / "step", "12")
    assert state.take() is not None
    (state.root / "step").unlink()
    assert state.take() == ()


class Walks:
    """A clock by which each look at the directory takes ``each`` seconds, and that counts them."""

    TIME_NS = 10**18

    def __init__(self, each: float) -> None:
        self.now = 100.0
        self.each = each
        self.count = 0

    def monotonic(self) -> float:
        return self.now

    def time_ns(self) -> int:
        self.count += 1
        self.now += self.each
        return self.TIME_NS

    def state(self, tmp_path: Path) -> UserState:
        (tmp_path / "copies").mkdir()
        (tmp_path / "state").mkdir()
        return UserState(
            tmp_path / "state",
            lambda: tmp_path / "copies",
            below=tmp_path,
            clock_ns=self.time_ns,
            monotonic=self.monotonic,
        )


@pytest.mark.parametrize(
    ("each", "count"),
    [
        pytest.param(0.001, 300, id="cheap: at every look"),
        pytest.param(0.5, 11, id="a tenth of the time at the most"),
        pytest.param(6.0, 1, id="once a minute"),
    ],
)
def test_a_large_restless_directory_is_read_in_proportion(
    tmp_path: Path, each: float, count: int
) -> None:
    walks = Walks(each)
    state = walks.state(tmp_path)
    (state.root / "log").write_text("grows")
    os.utime(state.root / "log", ns=(Walks.TIME_NS, Walks.TIME_NS))

    for look in range(300):
        walks.now = max(walks.now, 100 + look * 0.2)
        assert state.take(urgent=False) is None

    assert walks.count == count


def test_only_a_vain_look_delays_the_next_and_no_commit_waits(tmp_path: Path) -> None:
    walks = Walks(60)
    state = walks.state(tmp_path)
    for text in ("1", "12"):
        write_settled(state.root / "step", text)
        assert state.take(urgent=False) is not None
    os.utime(state.root / "step", ns=(Walks.TIME_NS, Walks.TIME_NS))
    assert state.take(urgent=False) is None
    write_settled(state.root / "step", "123")
    assert state.take(urgent=False) is None
    assert state.take() is not None
    write_settled(state.root / "step", "1234")
    assert state.take(at_rest=True) is not None


def test_what_is_taken_stays_when_the_code_replaces_the_file(state: UserState) -> None:
    write_settled(state.root / "step", "old")
    taken = state.take()
    assert taken is not None
    write_settled(state.root / "step.tmp", "newer")
    (state.root / "step.tmp").rename(state.root / "step")
    [file] = taken
    assert isinstance(file, LocalFile)
    assert file.local.read_text() == "old"


def test_a_link_never_brings_a_file_of_somebody_else(state: UserState, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the worker's own")
    (state.root / "direct").symlink_to(secret)
    (state.root / "folder").symlink_to(tmp_path)
    os.mkfifo(state.root / "pipe")
    assert state.take(at_rest=True) is None
    into = tmp_path / "into"
    for name in ("direct", "folder/secret", "../secret", str(secret), "pipe", "", "none"):
        assert take_file(state.root, name, into, below=tmp_path) is None, name
        assert not into.exists(), name
    assert list_files(state.root) == []


def test_a_machine_that_can_open_no_file_does_not_blame_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "a").write_text("x")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            take_file(tmp_path, "a", tmp_path / "b", below=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert take_file(tmp_path, "a", tmp_path / "b", below=tmp_path) is not None
