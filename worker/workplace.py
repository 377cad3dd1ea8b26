"""What one attempt at a job has on this machine: its directories, its state, its output."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from spindown.app.port import ObjectStore
from spindown.app.work.attachment.log import keep_log
from spindown.app.work.held import Finished, Held
from spindown.error import SpindownError
from worker.child.runner import Task
from worker.child.tape import Tape
from worker.log import EventLog
from worker.transfer.state import UserState


class Workplace:
    """The place of one attempt; nothing of it is left when it is removed."""

    def __init__(self, held: Held, scratch: Path) -> None:
        # The epoch is in the name: a fetch of an attempt that was broken off may still come in.
        name = f"{held.job_id}.{held.manifest.epoch}"
        self._epoch = held.manifest.epoch
        self._scratch = scratch / name
        #: Only the worker may enter it; it lies beside what a container is given.
        self._taken = scratch / f"{name}.taken"
        self.inputs = self._scratch / "inputs"
        self.outputs = self._scratch / "outputs"
        self.files = self._taken / "files"
        self.state = UserState(self._scratch / "state", self._taken / "state")
        self.tape = Tape()
        #: What of it lies in S3.
        self._kept = b""

    def open(self) -> None:
        """Make the directories."""
        self._scratch.mkdir(parents=True, exist_ok=True)
        # Not with the mode that its parent gives on, which would let the user's code in.
        self._taken.mkdir(mode=0o700, exist_ok=True)
        self._taken.chmod(0o700)
        self.state.open()

    def task(self, held: Held) -> Task:
        """Return what a batch of the job is part of."""
        return Task(
            job_id=held.job_id,
            params=held.job.params,
            outputs=self.outputs,
            state=self.state.root,
            tape=self.tape,
        )

    def clear(self, finished: Sequence[Finished]) -> None:
        """Remove the files of items that are committed."""
        for one in finished:
            if one.files:
                shutil.rmtree(self.outputs / str(one.record.index), ignore_errors=True)
                shutil.rmtree(one.files[0].local.parent, ignore_errors=True)

    def keep_log(self, job_id: str, objects: ObjectStore, log: EventLog) -> None:
        """Keep what the code has printed so far; the work is safe even if this fails."""
        text = self.tape.read()
        if text == self._kept:
            return
        try:
            keep_log(job_id, self._epoch, text, objects)
            self._kept = text
        except SpindownError as exc:
            log.warning("log_not_kept", reason=str(exc))

    def remove(self) -> None:
        """Remove all of it."""
        for path in (self._scratch, self._taken):
            shutil.rmtree(path, ignore_errors=True)
