"""What the user's code leaves where everybody may write: temporary files, shared memory, queues.

The code of all slots has one user, so each slot's code also has a group that nobody else has. By
that group what one slot has left is told from what its neighbours use.
"""

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from spindown.worker.code_folder import remove_tree

#: The group of slot 0; the next slots have the next. systemd's table of UIDs and GIDs
#: (systemd.io/UIDS-GIDS) calls 1879048192 to 2147483647 unused.
FIRST_GROUP = 1_879_048_192
#: Tells the launcher the group of the code.
GROUP_VARIABLE = "SPINDOWN_GROUP"
#: Files that shared memory, semaphores and message queues of POSIX are, beside temporary ones.
PLACES = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), Path("/dev/mqueue"))  # noqa: S108
#: What ipcrm(1) is told -> where the kernel lists them (proc_pid_sysvipc(5)), and what it calls
#: their number.
_SYSTEM_V = {"-m": ("shm", "shmid"), "-q": ("msg", "msqid"), "-s": ("sem", "semid")}
_IPCRM_SECONDS = 30.0
#: Files go at some 50,000 a second; what is left then goes after the slot's next job.
_SECONDS_MAX, _SECONDS_TO_COUNT = 60.0, 5.0
#: A command line has room for these.
_AT_ONCE = 1000


def group_of_slot(slot: int) -> int:
    """Return the group that the code of a slot alone has."""
    return FIRST_GROUP + slot


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """What the code of one slot has left, once nothing of it runs."""

    #: Of the user's code.
    user: int
    #: By which the slot's own is known.
    groups: frozenset[int]
    #: Becomes that user and runs its arguments.
    launcher: Sequence[str]
    places: Sequence[Path] = PLACES
    proc: Path = Path("/proc")
    #: Seconds.
    monotonic: Callable[[], float] = time.monotonic

    def remove(self) -> int:
        """Remove all of it, as far as that can be done; return how many files are still there.

        They are nobody's any more, or the code of a neighbour, which has the same user, makes more.
        """
        end, left = self.monotonic() + _SECONDS_MAX, 0
        for place in self.places:
            # Not every machine has each of them.
            with suppress(OSError):
                found = False
                # As it goes, and not again: there may be millions.
                for path in self._files(place, end):
                    found = True
                    remove_tree(path)
                if found:
                    soon = self.monotonic() + _SECONDS_TO_COUNT
                    left += sum(1 for _ in self._files(place, soon))
        self._remove_objects()
        return left

    def _remove_objects(self) -> None:
        found = list(self._objects())
        for first in range(0, len(found), _AT_ONCE):
            named = [word for one in found[first : first + _AT_ONCE] for word in one]
            # Only their owner may remove them.
            command = [*self.launcher, "ipcrm", *named]
            with suppress(OSError, subprocess.SubprocessError):
                subprocess.run(command, check=False, capture_output=True, timeout=_IPCRM_SECONDS)

    def _files(self, place: Path, end: float) -> Iterator[Path]:
        """Yield the slot's files of a place.

        A directory in which somebody makes files may have no last entry, so there is an end (s).
        """
        with os.scandir(place) as entries:
            for entry in entries:
                if self.monotonic() >= end:
                    break
                with suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    if status.st_uid == self.user and status.st_gid in self.groups:
                        yield place / entry.name

    def _objects(self) -> Iterator[tuple[str, str]]:
        """Yield shared memory, queues and semaphores of System V, as ipcrm is told of them."""
        for option, (name, number) in _SYSTEM_V.items():
            with suppress(OSError):
                head, *lines = (self.proc / "sysvipc" / name).read_text().splitlines()
                columns = head.split()
                for line in lines:
                    row = dict(zip(columns, line.split(), strict=False))
                    # Who has made it cannot be changed afterwards.
                    if int(row["cuid"]) == self.user and int(row["cgid"]) in self.groups:
                        yield option, row[number]


def leftovers_of_slot(
    slot: int, slots: int, code_user: str, launcher: Sequence[str]
) -> Leftovers | None:
    """Return what finds the leftovers of a slot; None: the code has no user of its own.

    Args:
        slot: its number.
        slots: how many the machine has.
        code_user: ``uid:gid`` of the user's code.
        launcher: becomes that user and runs its arguments; empty: nothing does.
    """
    user, group = map(int, code_user.split(":")) if launcher else (os.getuid(), os.getgid())
    if user == os.getuid():
        return None
    own = {group_of_slot(slot)}
    # The code may give files to its user's group. Where it has neighbours, they may have moved
    # theirs there, with the group that such files have below the slot.
    return Leftovers(
        user=user, groups=frozenset(own | {group} if slots == 1 else own), launcher=launcher
    )
