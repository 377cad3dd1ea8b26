"""Run the command of a folder: ``python -m spindown.worker.child.folder``, as the user's code.

The worker starts it for a job of a workload that takes folders (``run.folders``). Input: the
variables of ``worker.child.call``; the item is the address of an archive, and its input the local
copy. The copy must have the digest that the address names. Effects: unpacks it into TMPDIR, runs
its command there, and writes ``{"exit_status": N}`` as the item's result; the item has failed
unless that is 0.

Exit status: 0: the command has ended by itself; 65: the item is no archive; 1: told to stop. A
command that a signal ended ends this process by the same signal.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from spindown.contract.folder import COMMAND_NAME, EXIT_STATUS, decode_command, digest_of
from spindown.error import ContractError
from spindown.worker.child.code import unpack
from spindown.worker.child.command import EX_DATAERR
from spindown.worker.child.failure_cause import MemoryKills

#: As a shell has it for what it cannot start.
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_KILLED = 128 + signal.SIGKILL
#: In the folder, unless it has such an entry itself: what lies there is fetched by who sent it.
OUTPUTS = "outputs"


def main(environment: Mapping[str, str]) -> int:
    """Run the command; return the exit status."""
    try:
        place = open_folder(environment["SPINDOWN_ITEM"], environment["SPINDOWN_INPUT"])
        command = decode_command((place / COMMAND_NAME).read_bytes())
    except (ContractError, OSError) as exc:
        _say(f"this item cannot be run: {exc}")
        return EX_DATAERR
    if not (place / OUTPUTS).exists():
        (place / OUTPUTS).symlink_to(environment["SPINDOWN_ITEM_OUTPUT"])
    kills = MemoryKills()
    status = _run(command, place, environment)
    if status is None:
        return 1
    if status == _KILLED and kills.has_killed:
        # A shell has told that its program was killed.
        status = -signal.SIGKILL
    if status < 0:
        # What killed it, such as want of memory, is what the worker must see.
        with suppress(OSError):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    index = json.loads(Path(environment["SPINDOWN_ITEMS"]).read_text(encoding="utf-8"))["index"]
    row = {"index": index, "value": {EXIT_STATUS: status}}
    if status:
        row["error"] = f"the command ended with status {status}"
    with Path(environment["SPINDOWN_RESULTS"]).open("a", encoding="utf-8") as results:
        results.write(json.dumps(row) + "\n")
    return 0


def open_folder(address: str, archive: str) -> Path:
    """Unpack an archive whose bytes are those that its address names; return the directory.

    Raises:
        ContractError: it is no archive, or another one.
    """
    digest = digest_of(address)
    remedy = "send the folder with `spindown run`"
    if not digest or not archive:
        raise ContractError("item", address, remedy)
    with Path(archive).open("rb") as opened:
        if hashlib.file_digest(opened, "sha256").hexdigest() != digest:
            raise ContractError("item", address, f"{remedy}: its bytes are not those of its name")
    place = Path(tempfile.mkdtemp(prefix="folder-"))
    unpack(Path(archive), place)
    return place


def _run(command: Sequence[str], place: Path, environment: Mapping[str, str]) -> int | None:
    """Run a command in its folder; return its status as ``Popen`` has it, None: told to stop."""
    signals: list[int] = []
    # The command hears of it too, since it is in the same group.
    signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
    try:
        process = subprocess.Popen(command, cwd=place, env=dict(environment))
    except OSError as exc:
        _say(f"{command[0]}: {exc.strerror}")
        return _NOT_FOUND if isinstance(exc, FileNotFoundError) else _NOT_EXECUTABLE
    status = process.wait()
    return None if signals else status


def _say(text: str) -> None:
    sys.stderr.write(f"[spindown] {text}\n")


if __name__ == "__main__":
    sys.exit(main(os.environ))
