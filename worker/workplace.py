"""What one attempt at a job has on this machine: its directories, its state, its output."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from spindown.error import SpindownError
from spindown.job.attachment.log import keep_log
from spindown.job.claimed_job import ClaimedJob, Finished
from spindown.port import ObjectStore
from spindown.worker.child.output import OutputLog
from spindown.worker.child.runner import Task
from spindown.worker.code_folder import make_own, make_shared, remove_entries, remove_tree
from spindown.worker.log import EventLog
from spindown.worker.transfer.checkpoint_folder import UserState

#: In the directory of a slot: the code's temporary directory, and what ``setup`` may write.
TEMPORARY, SETUP = "tmp", "setup"


class Workplace:
    """The place of one attempt; nothing of it is left when it is removed.

    The code may write ``outputs`` and the state. What is around them and beside them belongs to the
    worker, also the directory of the slot, in which the places of later attempts will lie.
    """

    def __init__(self, held: ClaimedJob, scratch: Path) -> None:
        # The epoch is in the name: a fetch of an attempt that was broken off may still come in.
        name = f"{held.job_id}.{held.manifest.epoch}"
        self._epoch = held.manifest.epoch
        self._parent = scratch
        self._scratch = scratch / name
        self._private: Path | None = None
        self.inputs = self._scratch / "inputs"
        self.outputs = self._scratch / "outputs"
        self.state = UserState(self._scratch / "state", self.private, below=scratch)
        self.output_log = OutputLog()
        #: What of it lies in S3.
        self._kept = b""

    def open(self) -> None:
        """Make the directories that are there before the code."""
        try:
            make_own(self._scratch)
        except FileExistsError:
            # Of an attempt that broke off and could not be removed; nothing else has this name.
            remove_tree(self._scratch)
            make_own(self._scratch)
        make_shared(self.outputs)
        make_shared(self.state.root)

    def private(self) -> Path:
        """Return a directory that only the worker may enter; it is made when it is needed.

        It lies beside what a container is given, under a name that the code cannot have taken.
        """
        if self._private is None:
            prefix = f"{self._scratch.name[-64:]}.taken-"
            self._private = Path(tempfile.mkdtemp(prefix=prefix, dir=self._parent))
        return self._private

    def task(self, held: ClaimedJob, *, may_get_vram: bool) -> Task:
        """Return what a batch of the job is part of."""
        return Task(
            job_id=held.job_id,
            epoch=self._epoch,
            may_get_vram=may_get_vram,
            params=held.job.params,
            outputs=self.outputs,
            state=self.state.root,
            output_log=self.output_log,
        )

    def clear(self, finished: Sequence[Finished]) -> None:
        """Remove the files of items that are committed, also of those that failed."""
        remove_entries(self.outputs, (str(one.record.index) for one in finished))
        for one in finished:
            if one.files:
                remove_tree(one.files[0].local.parent)

    def keep_log(self, job_id: str, objects: ObjectStore, log: EventLog) -> None:
        """Keep what the code has printed so far; the work is safe even if this fails."""
        text = self.output_log.read()
        if text == self._kept:
            return
        try:
            keep_log(job_id, self._epoch, text, objects)
            self._kept = text
        except SpindownError as exc:
            log.warning("log_not_kept", reason=str(exc))

    def remove(self) -> None:
        """Remove all of it."""
        for path in (self._scratch, self._private):
            if path is not None:
                remove_tree(path)


def clear_slot(folder: Path) -> None:
    """Remove what the code of a slot has left besides jobs' own files; nothing of it runs."""
    for name in (SETUP, TEMPORARY):
        if (folder / name).exists():
            remove_tree(folder / name)
            make_shared(folder / name)
