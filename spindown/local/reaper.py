"""The last net: whatever the local system has started ends with it, however it ends itself.

Everything is started with a token in its environment. The reaper is a small process apart that
waits at a pipe; when the local system is gone, killed included, the pipe closes and the reaper
kills every process that carries the token. Being found by what they carry, processes that have
left their group or lost their parent are found too.
"""

import os
import subprocess
import sys
from contextlib import suppress

import psutil

TOKEN_VARIABLE = "SPINDOWN_LOCAL_TOKEN"  # noqa: S105 - the name of a mark, no secret
#: Two scans without a find: a process may be forking while the first one runs.
_QUIET_SCANS = 2
_MOST_SCANS = 50


def carriers(token: str) -> list[psutil.Process]:
    """Return the processes that carry the token, without this one and those it runs in."""
    spared = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.pid not in spared and process.environ().get(TOKEN_VARIABLE) == token:
                found.append(process)
    return found


def kill_all(token: str) -> int:
    """Kill every process that carries the token; return how many."""
    killed, quiet = 0, 0
    for _ in range(_MOST_SCANS):
        found = carriers(token)
        quiet = 0 if found else quiet + 1
        if quiet == _QUIET_SCANS:
            break
        for process in found:
            with suppress(psutil.Error):
                process.kill()
                killed += 1
        psutil.wait_procs(found, timeout=1)
    return killed


class Reaper:
    """Holds the pipe at which the reaper's process waits, until it is closed."""

    def __init__(self, token: str, *, environment: dict[str, str]) -> None:
        """Start the process; it must not carry the token itself."""
        self._token = token
        self._process = subprocess.Popen(
            [sys.executable, "-m", "spindown.local.reaper", token],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Ctrl-C in the terminal must not reach it.
            start_new_session=True,
        )

    def close(self) -> None:
        """Let it kill what is left, and wait for its end."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()


def main() -> None:
    """Wait until the pipe closes, then kill every carrier of the token."""
    token = sys.argv[1]
    sys.stdin.buffer.read()
    kill_all(token)


if __name__ == "__main__":
    main()
