"""Run the command of a folder: ``python -m spindown.worker.child.folder``, as the user's code.

The worker starts it for a job of a workload that takes folders (``run.folders``). Input: the
variables of ``worker.child.program_call``; the item is the address of an archive, and its input
the local copy. The copy must have the digest that the address names. Effects: unpacks it into
TMPDIR, runs its command there, and writes ``{"exit_status": N}`` as the item's result; the item has
failed unless that is 0.

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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from spindown.contract.folder import COMMAND_NAME, EXIT_STATUS, decode_command, digest_of
from spindown.contract.pack import is_left_out
from spindown.error import ContractError, printable
from spindown.reason_text import say_count
from spindown.worker.child.code import unpack
from spindown.worker.child.command import EX_DATAERR
from spindown.worker.child.failure_cause import MemoryKills

#: As a shell has it for what it cannot start.
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
_KILLED = 128 + signal.SIGKILL
#: In the folder, unless it has such an entry itself: what lies there is fetched by who sent it.
OUTPUTS = "outputs"
#: Of the files that are not kept: how many are named, and beyond those that were sent looked at.
_NAMED = 3
_LOOKED_AT_MOST = 10_000
#: By which a changed file is known: bytes, and when it was written, in nanoseconds.
_Version = tuple[int, int]


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
    before = dict(_files_of(place))
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
    if said := say_not_kept(place, before):
        _say(said)
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


def say_not_kept(place: Path, before: Mapping[str, _Version]) -> str:
    """Return which files a command has written beside ``outputs/``, and how to keep such; "": none.

    Args:
        place: the folder that it ran in.
        before: its files before the command.
    """
    new, is_whole = list[str](), True
    for looked, (name, version) in enumerate(_files_of(place)):
        if looked == len(before) + _LOOKED_AT_MOST:
            is_whole = False
            break
        if before.get(name) != version:
            new.append(name)
    if not new:
        return ""
    # What else is printed is a line for each line of it, and a file's name may have several.
    named = ", ".join(printable(name) for name in new[:_NAMED])
    more = f" and {len(new) - _NAMED:,} more" if len(new) > _NAMED else ""
    count = ("" if is_whole else "at least ") + say_count(len(new), "new or changed file")
    are = "is" if len(new) == 1 else "are"
    how = f"only files in {OUTPUTS}/ are kept"
    return f"{count} outside {OUTPUTS}/ {are} not kept: {named}{more}; {how}"


def _files_of(place: Path) -> Iterator[tuple[str, _Version]]:
    """Yield the files below a folder; not hidden ones, what tools write, nor behind a link."""
    for parent, folders, names in os.walk(place):
        below = PurePosixPath(parent).relative_to(place)
        folders[:] = sorted(each for each in folders if not is_left_out(below / each))
        for name in sorted(names):
            path = Path(parent, name)
            if not is_left_out(below / name) and not path.is_symlink():
                with suppress(OSError):
                    found = path.stat()
                    yield str(below / name), (found.st_size, found.st_mtime_ns)


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
