"""The first process of a process tree: it starts the program, adopts orphans, and ends them all.

Started by ``worker.process_tree.process_tree`` as
``python -I -S subreaper.py REPORT_FD GROUP PROGRAM ARG...``.
A process may leave its session, its group and its parent, close its pipes and block every signal;
from its nearest ancestor that is a *subreaper* it cannot get away (prctl(2),
PR_SET_CHILD_SUBREAPER). So the subreaper ends only when it has no child any more, and it kills all
of them

- when its standard input ends: the worker wants the end of the tree, or is gone itself,
- when the program has ended, whose status becomes its own.

SIGTERM goes on to the program's group. The subreaper has the worker's user, so that code of another
user can neither signal nor trace it. It imports nothing of ours, to start quickly.
"""

import ctypes
import os
import resource
import select
import signal
import sys
from contextlib import suppress

#: linux/prctl.h.
_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36
#: What Python ignores and a program expects to have its usual effect.
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
#: Seconds between two looks at processes that were killed and have not ended.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.001, 1.0
_CHUNK = 65536
#: Standard input, on which nothing ever comes but its end.
_LINE = 0


class Subreaper:
    """The process tree, seen from its root; one thread, one program."""

    def __init__(self, command: list[str], report_fd: int, group: str) -> None:
        """Start a program; to ``report_fd`` goes the number of the error that forbids it.

        ``group``: directory of the control group for all of the tree; "": the worker's.
        """
        self._libc = ctypes.CDLL(None)
        self._libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._woken, waker = os.pipe()
        for fd in (self._woken, waker):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        #: As waitpid gives it, once the program has ended.
        self._status: int | None = None
        if group:
            _enter(group, report_fd)
        self._program = os.fork()
        if self._program == 0:
            self._become(command, report_fd)
        self._let_go_of_all_but(self._woken, waker)

    def run(self) -> int:
        """See the tree to its end; return the status of its program."""
        is_over = False
        while self._reap() and self._status is None and not is_over:
            is_over = _LINE in self._wait(None, _LINE)
        pause = _FIRST_PAUSE
        while self._reap():
            for pid in _children(os.getpid()):
                # Somebody may have given it more rights than we have.
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            self._wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        return self._status or 0

    def _become(self, command: list[str], report_fd: int) -> None:
        try:
            os.setsid()
            # Should anybody end us after all, the program does not live on.
            self._libc.prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
            for number in _IGNORED_BY_PYTHON:
                signal.signal(number, signal.SIG_DFL)
            os.set_inheritable(report_fd, False)  # noqa: FBT003 - takes it by position only
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.execvp(command[0], command)  # noqa: S606 - the user's own program
        except OSError as exc:
            os.write(report_fd, str(exc.errno).encode())
        finally:
            os._exit(127)

    def _let_go_of_all_but(self, *kept: int) -> None:
        """Hold no end of the program's pipes: they end with the program, not with us."""
        nothing = os.open(os.devnull, os.O_WRONLY)
        for fd in (1, 2):
            os.dup2(nothing, fd)
        low = 3
        for fd in sorted(kept):
            os.closerange(low, fd)
            low = fd + 1
        os.closerange(low, os.sysconf("SC_OPEN_MAX"))

    def _wait(self, seconds: float | None, *also: int) -> list[int]:
        """Wait for a signal or an end of file; pass on what the program is to hear."""
        found = select.select([self._woken, *also], [], [], seconds)[0]
        if self._woken in found and signal.SIGTERM in os.read(self._woken, _CHUNK):
            with suppress(ProcessLookupError):
                os.killpg(self._program, signal.SIGTERM)
        return found

    def _reap(self) -> bool:
        """Take note of who has ended; tell whether anybody is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._program:
                self._status = status


def _enter(group: str, report_fd: int) -> None:
    """Enter a control group, with all that comes after."""
    try:
        fd = os.open(f"{group}/cgroup.procs", os.O_WRONLY)
        # Who writes 0 means itself (cgroups(7)).
        os.write(fd, b"0")
        os.close(fd)
    except OSError as exc:
        os.write(report_fd, str(exc.errno).encode())
        os._exit(127)


def _children(pid: int) -> list[int]:
    """Return the children of a process (proc(5)); not every kernel keeps a list of them."""
    try:
        return [int(child) for child in _read(f"/proc/{pid}/task/{pid}/children").split()]
    except FileNotFoundError:
        everybody = map(int, filter(str.isdecimal, os.listdir("/proc")))  # noqa: PTH208 - as below
        return [one for one in everybody if _parent(one) == pid]


def _parent(pid: int) -> int:
    try:
        # The name stands in parentheses and may hold any character, so look from the end.
        return int(_read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def _read(path: str) -> bytes:
    # Without pathlib, whose import takes as long as all the others.
    fd = os.open(path, os.O_RDONLY)
    try:
        return b"".join(iter(lambda: os.read(fd, _CHUNK), b""))
    finally:
        os.close(fd)


def main() -> None:
    """Run a process tree, and end as its program did."""
    status = Subreaper(sys.argv[3:], int(sys.argv[1]), sys.argv[2]).run()
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        # Its own image is nothing that anybody wants to look at.
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
