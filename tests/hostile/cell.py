"""A slot of a worker on this machine, whose code is hostile and has a user without any right.

The worker of these tests is root, which may do more than the worker of an instance: what it can be
led to write, read or remove, the code has reached. The code runs in the real child, started by the
script of an instance (``worker/system/run-code.sh``) with another user in its place.
"""

import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from spindown.contract.run_spec import RunMode, RunSpec
from spindown.domain.policy import Policy
from spindown.worker.child.code import Code
from spindown.worker.child.command import CommandRunner
from spindown.worker.child.container import Machine
from spindown.worker.child.runner import ChildRunner
from spindown.worker.code_folder import make_own, make_shared
from spindown.worker.log import open_log
from spindown.worker.machine.leftover import GROUP_VARIABLE, Leftovers, group_of_slot
from spindown.worker.workplace import SETUP, TEMPORARY
from tests.slot import SlotWorld
from tests.worker_system.kit import SYSTEM

#: A user with no file and no process of his own on this machine.
CODE_USER = 64_777
#: Of the slot alone, so that what other tests leave at the same time is told from its own.
CODE_GROUP = group_of_slot(os.getpid())
ENTRYPOINT = """\
import os, pathlib, signal, stat, sys, threading, time
from spindown.user import Context, Item, Result
SLOT = pathlib.Path({slot!r})
VICTIM = pathlib.Path({victim!r})
sys.dont_write_bytecode = True
def attempt(act, *arguments):
    try:
        act(*arguments)
    except OSError as exc:
        print("refused", act.__name__, exc)
def plant(path):
    # A link to the worker's own, wherever it may be put.
    attempt(path.parent.mkdir)
    attempt(os.symlink, VICTIM, path)
"""
PROGRAM = ENTRYPOINT.replace("from spindown.user import Context, Item, Result\n", "import json\n")


class Cell:
    """Directories of a worker, and what its code must not reach."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.chmod(0o755)
        #: As the worker's home: the code may go through it, and the worker may write it.
        self.victim = directory / "home"
        self.victim.mkdir(mode=0o751)
        (self.victim / "0").mkdir()
        (self.victim / "secret").write_text("SECRET", encoding="utf-8")
        (self.victim / "secret").chmod(0o600)
        (self.victim / "0" / "kept").write_text("kept", encoding="utf-8")
        self.slot = directory / "slot-0"
        self._launcher = self._make_launcher()
        self.runners: list[ChildRunner | CommandRunner] = []

    def open_slot(self) -> None:
        """Make the slot's directories as the daemon does, in a group that the code has."""
        work = self.slot.parent / f"work-{self.slot.name}"
        work.mkdir(exist_ok=True)
        os.chown(work, 0, CODE_USER)
        work.chmod(0o2750)
        self.slot = work / self.slot.name
        make_own(self.slot)
        for name in (SETUP, TEMPORARY):
            make_shared(self.slot / name)

    def hold(
        self, source: str, *, batch_size: int = 1, policy: Policy | None = None, **spec: Any
    ) -> SlotWorld:
        """Return a slot whose code is ``source``: its ``run``, or a program with ``command``."""
        if not self.slot.is_dir():
            self.open_slot()
        root = self.directory / "code"
        root.mkdir()
        is_program = "command" in spec
        head = (PROGRAM if is_program else ENTRYPOINT).format(
            slot=str(self.slot), victim=str(self.victim)
        )
        (root / "job.py").write_text(head + textwrap.dedent(source), encoding="utf-8")
        root.chmod(0o755)
        (root / "job.py").chmod(0o644)
        values = {"item_timeout": timedelta(seconds=20), **spec}
        if not is_program:
            values["entrypoint"] = "job:run"
        code = Code(root=root, spec=RunSpec(**values), digest="d")
        env = {
            "PATH": os.environ["PATH"],
            "TMPDIR": str(self.slot / TEMPORARY),
            GROUP_VARIABLE: str(CODE_GROUP),
        }
        runner = self._runner(code, env)
        leftovers = Leftovers(
            user=CODE_USER, groups=frozenset({CODE_GROUP}), launcher=(str(self._launcher),)
        )
        world = SlotWorld(
            self.slot, batch_size=batch_size, policy=policy, runner=runner, leftovers=leftovers
        )
        world.world.sources |= {f"s3://inputs/{n}/module.py": b"planted" for n in range(8)}
        return world

    def is_untouched(self) -> bool:
        """Tell whether all that belongs to the worker alone is as it was."""
        found = {path.relative_to(self.victim).as_posix() for path in self.victim.rglob("*")}
        text = (self.victim / "secret").read_text(encoding="utf-8")
        return found == {"0", "0/kept", "secret"} and text == "SECRET"

    def has_leaked(self, world: SlotWorld) -> bool:
        """Tell whether anything of the worker's own lies among results, state or logs."""
        objects = world.world.objects
        keys = [one.key for one in objects.list("")]
        return any(b"SECRET" in objects.get(key).data for key in keys)

    @property
    def left(self) -> set[str]:
        """Return what lies in the slot's directory, and in those that outlive a job."""
        kept = (SETUP, TEMPORARY)
        found = [path for name in kept for path in (self.slot / name).iterdir()]
        found += [path for path in self.slot.iterdir() if path.name not in {*kept, "alive"}]
        return {path.relative_to(self.slot).as_posix() for path in found}

    def _runner(self, code: Code, env: dict[str, str]) -> Any:
        log = open_log(sys.stderr)
        runner: ChildRunner | CommandRunner
        if code.spec.mode is RunMode.COMMAND:
            place = Machine(argv=code.spec.command, launcher=(str(self._launcher),), env=env)
            runner = CommandRunner(code, place, slot=0, log=log)
        else:
            runner = ChildRunner(
                code,
                slot=0,
                scratch=self.slot / SETUP,
                python=str(self._python),
                env=env,
                log=log,
            )
        self.runners.append(runner)
        return runner

    def _make_launcher(self) -> Path:
        home = self.directory / "nobody"
        home.mkdir()
        os.chown(home, CODE_USER, CODE_USER)
        folder = self.directory / "installed"
        (folder / "bin").mkdir(parents=True)
        (folder / "run" / "bin").mkdir(parents=True)
        script = (SYSTEM / "run-code.sh").read_text(encoding="utf-8")
        for name, ours in (
            ("--reuid=spindown-run", f"--reuid={CODE_USER}"),
            ("SPINDOWN_GROUP:-spindown-run", f"SPINDOWN_GROUP:-{CODE_USER}"),
            ("--groups=spindown-run", f"--groups={CODE_USER}"),
            ("HOME=/var/lib/spindown/run", f"HOME={home}"),
            # As many as a test can end while others run beside it.
            ("processes=$((4096 + 1024 * $(nproc)))", "processes=120"),
        ):
            assert name in script
            script = script.replace(name, ours)
        launcher = folder / "bin" / "run-code"
        self._python = folder / "bin" / "run-python"
        launcher.write_text(script, encoding="utf-8")
        python = f'#!/bin/sh\nexec {launcher} {sys.executable} "$@"\n'
        self._python.write_text(python, encoding="utf-8")
        for path in (launcher, self._python):
            path.chmod(0o755)
        return launcher


@contextmanager
def a_cell() -> Iterator[Cell]:
    """Make a cell that a user without rights can go through; nothing is left of it."""
    # The directory of a test's own may lie where no other user can go.
    directory = Path(tempfile.mkdtemp(prefix="spindown-cell-", dir="/tmp"))
    umask = os.umask(0o007)
    cell = Cell(directory)
    try:
        yield cell
    finally:
        os.umask(umask)
        for runner in cell.runners:
            runner.kill()
        subprocess.run(["rm", "-rf", str(directory)], check=True)
