"""A folder with its command: run where it is unpacked, and only if it is what its address names."""

import hashlib
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from spindown.contract.folder import COMMAND_NAME, EXIT_STATUS, folder_key
from spindown.contract.pack import Member, pack_members
from spindown.contract.run_spec import RunSpec
from spindown.user import Item
from spindown.worker.child.code import Code
from spindown.worker.child.command import CommandRunner
from spindown.worker.child.container import Machine
from spindown.worker.child.failure_cause import Broken, FailureCause, MemoryKills
from spindown.worker.child.folder import _LOOKED_AT_MOST, say_not_kept
from spindown.worker.child.output import OutputLog
from spindown.worker.child.runner import Event, ItemDone, Task, run_module
from spindown.worker.log import open_log
from tests.local.waiting import until
from tests.worker.child.batch import drain

Run = Callable[..., list[Event]]


#: A child of the shell is killed, and the shell says so by its own status.
KILLED_BY_SOMEBODY = ("sh -c 'kill -9 $$'; exit $?", "sleep 60 & kill -9 $!; wait $!")


def pack(command: list[str], files: Mapping[str, str]) -> bytes:
    members = {name: Member(data=text.encode()) for name, text in files.items()}
    return pack_members({**members, COMMAND_NAME: Member(data=json.dumps(command).encode())})


def address_of(archive: bytes) -> str:
    return f"s3://bucket/{folder_key('lab', hashlib.sha256(archive).hexdigest())}"


class Cell:
    """A slot that takes folders."""

    def __init__(
        self, place: Path, *, kills: MemoryKills | None = None, group: Path | None = None
    ) -> None:
        self.place = place
        (place / "code").mkdir()
        (place / "tmp").mkdir()
        code = Code(root=place / "code", spec=RunSpec(folders=True, batch_size=1), digest="d")
        argv = run_module(sys.executable, "spindown.worker.child.folder")
        env = {"PATH": os.environ["PATH"], "TMPDIR": str(place / "tmp")}
        machine = Machine(argv=argv, env=env)
        log = open_log(io.StringIO())
        self.runner = CommandRunner(code, machine, slot=0, log=log, kills=kills, group=group)
        self.log = OutputLog()

    def begin(self, archive: bytes, address: str = "") -> None:
        local = self.place / "archive"
        local.write_bytes(archive)
        outputs = self.place / "job" / "outputs"
        outputs.mkdir(parents=True)
        task = Task(job_id="j", outputs=outputs, output_log=self.log)
        self.runner.begin(task, [Item(0, address or address_of(archive), local)])

    def done(self) -> ItemDone:
        (found, _) = drain(self.runner)
        assert isinstance(found, ItemDone)
        return found


@pytest.fixture
def cell(tmp_path: Path) -> Iterator[Cell]:
    cell = Cell(tmp_path)
    yield cell
    cell.runner.kill()


def test_its_command_runs_in_a_copy_and_leaves_files(cell: Cell) -> None:
    command = ["sh", "-c", "cat data.txt; echo made > outputs/made.txt; exit 3"]
    cell.begin(pack(command, {"data.txt": "of the folder\n"}))

    done = cell.done()

    assert (done.value, done.files) == ({EXIT_STATUS: 3}, ("made.txt",))
    assert "3" in (done.error or "")
    assert cell.log.read() == b"of the folder\n"


@pytest.mark.parametrize(("status", "has_failed"), [(0, False), (1, True), (65, True)])
def test_an_item_fails_by_its_exit_status(cell: Cell, status: int, has_failed: bool) -> None:
    cell.begin(pack(["sh", "-c", f"exit {status}"], {}))
    done = cell.done()
    assert (done.value, done.error is not None) == ({EXIT_STATUS: status}, has_failed)


def test_a_command_that_is_not_there_has_a_status(cell: Cell) -> None:
    cell.begin(pack(["no-such-program"], {}))
    assert cell.done().value == {EXIT_STATUS: 127}


def test_files_that_are_not_kept_are_told(cell: Cell) -> None:
    changes = "echo 1 > a; echo 2 > b; echo 3 > d; echo longer > data.txt; mkdir __pycache__ .c"
    keeps = "echo 4 > outputs/kept; echo 5 > __pycache__/x; echo 6 > .c/x"
    cell.begin(pack(["sh", "-c", f"{changes}; {keeps}"], {"data.txt": "old", "same": "same"}))

    assert cell.done().files == ("kept",)

    (said,) = cell.log.read().decode().splitlines()
    assert said.startswith("[spindown] 4 ")
    assert ": a, b, d and 1 more;" in said
    assert "outputs/" in said


def test_a_look_at_files_that_are_not_kept_ends(tmp_path: Path) -> None:
    for number in range(_LOOKED_AT_MOST + 5):
        (tmp_path / f"{number:05d}").touch()

    assert f" {_LOOKED_AT_MOST:,} " in say_not_kept(tmp_path, {})


def test_other_bytes_than_the_address_names_never_run(cell: Cell) -> None:
    evil = pack(["sh", "-c", "echo owned"], {})
    cell.begin(evil, address_of(pack(["true"], {})))

    done = cell.done()

    assert (done.value, bool(done.error)) == (None, True)
    assert b"owned\n" not in cell.log.read()


@pytest.mark.parametrize("key", ["workloads/lab/inputs/{}.zip", "folders/lab/workloads/{}.zip"])
def test_what_lies_where_senders_write_never_runs(cell: Cell, key: str) -> None:
    evil = pack(["sh", "-c", "echo owned"], {})
    cell.begin(evil, f"s3://bucket/{key.format(hashlib.sha256(evil).hexdigest())}")

    assert cell.done().error
    assert b"owned\n" not in cell.log.read()


def test_an_item_that_is_no_address_never_runs(cell: Cell) -> None:
    outputs = cell.place / "job" / "outputs"
    outputs.mkdir(parents=True)
    task = Task(job_id="j", outputs=outputs, output_log=cell.log)
    cell.runner.begin(task, [Item(0, {"command": ["sh", "-c", "echo owned"]})])

    assert cell.done().error


def test_what_kills_the_command_is_no_exit_status(cell: Cell) -> None:
    cell.begin(pack(["sh", "-c", f"kill -{signal.SIGSEGV.value} $$"], {}))

    (broken,) = drain(cell.runner)

    assert isinstance(broken, Broken)
    assert broken.cause is FailureCause.KILLED


@pytest.mark.parametrize("script", KILLED_BY_SOMEBODY)
def test_a_kill_below_a_shell_is_not_for_want_of_memory(cell: Cell, script: str) -> None:
    cell.begin(pack(["sh", "-c", script], {}))

    done = cell.done()

    assert (done.value, bool(done.error)) == ({EXIT_STATUS: 137}, True)


def test_a_command_that_is_told_to_stop_has_no_result(cell: Cell) -> None:
    script = "trap 'echo told; exit 0' TERM; echo begun; while :; do sleep 0.1; done"
    cell.begin(pack(["sh", "-c", script], {}))
    until(lambda: cell.runner.poll(timedelta(0)) is None and b"begun" in cell.log.read())

    assert cell.runner.stop(timedelta(seconds=10)) == []
    assert b"told\n" in cell.log.read()
