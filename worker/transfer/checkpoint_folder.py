"""The user's own checkpoint of one job: a directory that commits carry along.

Only what has changed since the last commit is uploaded. What is uploaded is what lay there when
it was taken: the code replaces files by renaming, as it is told to, and a file that it changes in
place is left for the next time. Committed in ``job.commit``, uploaded by
``job.attachment.checkpoint_store``.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from spindown.contract.job.manifest import Manifest, StateFile
from spindown.job.attachment.checkpoint_store import State, restore_state
from spindown.job.claimed_job import LocalFile
from spindown.port import WorkPorts
from spindown.worker.code_folder import (
    Stamp,
    check_amount,
    open_to_code,
    remove_tree,
    stamp_files,
    stamp_of,
    take_file,
)

#: A file may still be under way that was changed so lately; clocks of file systems step by 10 ms.
_SETTLED_AFTER_NS = 20_000_000
#: The directory is looked through for a tenth of the time at the most while nothing comes of it.
_REST = 10
_UNDER_WAY = (".tmp", ".part")


@dataclass(frozen=True, slots=True)
class _Known:
    stamp: Stamp
    file: StateFile


class UserState:
    """The state directory of one attempt; the slot's thread takes, the writer's commits."""

    def __init__(
        self,
        root: Path,
        private: Callable[[], Path],
        *,
        below: Path,
        clock_ns: Callable[[], int] = time.time_ns,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Watch ``root``, which lies ``below`` a directory that the code cannot replace.

        ``private`` makes a directory that only the worker may enter.
        """
        self.root = root
        self._below = below
        self._private = private
        self._clock_ns = clock_ns
        self._monotonic = monotonic
        self._rests_until = 0.0
        self._taken: Mapping[str, Stamp] = {}
        self._known: dict[str, _Known] = {}
        #: Not all of what is to be brought back is there.
        self._is_coming = False

    def restore(self, manifest: Manifest, ports: WorkPorts) -> str | None:
        """Bring back what earlier attempts committed; return what was wrong with it, if any.

        Damaged or missing state falls back to the state of an older manifest, and last to none.
        """
        self._is_coming = True
        # Nobody else may enter it before all is there: code of an earlier job may still run.
        remove_tree(self.root)
        self.root.mkdir(mode=0o700)
        found, trouble = restore_state(manifest, self.root, ports)
        stamps, now = stamp_files(self.root), ports.clock.now()
        # A job is held for hours, so what does not age now does not before it is given back.
        aging = {file.path for file in found if file.is_aging(now)}
        self._taken = {path: stamp for path, stamp in stamps.items() if path not in aging}
        self._known = {
            file.path: _Known(stamps[file.path], file) for file in found if file.path in self._taken
        }
        open_to_code(self.root)
        self._is_coming = False
        return trouble

    def take(self, *, at_rest: bool = False, urgent: bool = True) -> State | None:
        """Take the state as it is for the next commit; None: unchanged, or not whole yet.

        Raises TooMuch: it is more than a state may be.

        Args:
            at_rest: nobody writes any more, so a fresh file is a whole one.
            urgent: a commit is made anyway. Else, asked again and again, it says None also if the
                last look was in vain, took long and is not long past.
        """
        began = self._monotonic()
        if self._is_coming or (not urgent and began < self._rests_until):
            return None
        state = self._take(at_rest=at_rest)
        if state is None:
            ended = self._monotonic()
            self._rests_until = ended + _REST * (ended - began)
        return state

    def _take(self, *, at_rest: bool) -> State | None:
        stamps = self._stamps()
        if stamps == self._taken:
            return None
        now = self._clock_ns()
        if not at_rest and any(now - at < _SETTLED_AFTER_NS for _, _, at in stamps.values()):
            return None
        check_amount([size for _, size, _ in stamps.values()], self.root)
        copies = self._private() / "state"
        remove_tree(copies)
        copies.mkdir()
        state: list[StateFile | LocalFile] = []
        for number, (path, stamp) in enumerate(stamps.items()):
            known = self._known.get(path)
            if known is not None and known.stamp == stamp:
                state.append(known.file)
                continue
            local = copies / str(number)
            status = take_file(self.root, path, local, below=self._below)
            if status is None or stamp_of(status)[1:] != stamp[1:]:
                return None
            state.append(LocalFile(path=path, local=local))
        self._taken = stamps
        return tuple(state)

    def note_commit(self, before: Manifest, after: Manifest) -> None:
        """Learn from two manifests what lies in S3 now, so that it is not uploaded again."""
        if after.user_state is before.user_state:
            # It changed while it was uploaded, and was left out: all of it is still to be taken.
            self.forget()
            return
        committed = {file.path: file for file in after.user_state}
        self._known = {
            path: _Known(stamp, committed[path])
            for path, stamp in self._taken.items()
            if path in committed
        }

    def forget(self) -> None:
        """Take all of it the next time: what was taken last has not become the job's state."""
        self._taken = {}

    def _stamps(self) -> Mapping[str, Stamp]:
        found = stamp_files(self.root)
        return {path: found[path] for path in sorted(found) if not _is_under_way(path)}


def _is_under_way(path: str) -> bool:
    """Tell whether a name says that the file is not whole, or none of anybody's business."""
    parts = PurePosixPath(path).parts
    return any(part.startswith(".") or part.endswith(_UNDER_WAY) for part in parts)
