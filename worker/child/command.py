"""Run any program for the items of a slot: one call after another, in a process or a container.

What it is told and tells stands in ``worker.child.program_call``. Its exit status means:

0    done: an item without a result failed, unless it is the only one of the call
65   (EX_DATAERR) the items without a result failed, the job goes on
any other, or a signal: the attempt failed, and what has a result is kept
"""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from spindown.contract.run_spec import Results
from spindown.user import Item
from spindown.worker.child.code import Code
from spindown.worker.child.container import Place
from spindown.worker.child.failure_cause import Broken, FailureCause, MemoryKills, describe_end
from spindown.worker.child.output import LogAllowance, Output
from spindown.worker.child.process import Program
from spindown.worker.child.program_call import BadResult, ProgramCall, ResultReader, open_call
from spindown.worker.child.runner import BatchDone, Event, ItemDone, Task
from spindown.worker.code_folder import TooMuch, list_files, remove_tree
from spindown.worker.log import EventLog

#: sysexits.h: "the input data was incorrect in some way".
EX_DATAERR = 65
_NO_RESULT = "the program gave no result for this item"
#: How often results are read, at least, while the program runs.
_LOOK_SECONDS = 0.1
#: What is taken at the end of a program that must stop, in memory.
_LAST_BYTES_MAX = 128 * 1024**2


class CommandRunner:
    """Runs a program once for each batch of a slot."""

    def __init__(
        self,
        code: Code,
        place: Place,
        *,
        slot: int,
        log: EventLog,
        kills: MemoryKills | None = None,
        group: Path | None = None,
    ) -> None:
        self._code = code
        self._place = place
        self._slot = slot
        self._log = log
        self._allowance = LogAllowance()
        self.group = group
        self._kills = kills or MemoryKills(group=group)
        self._calls = 0
        self._call: ProgramCall | None = None
        self._program: Program | None = None
        #: A program and the first of its processes.
        self._first: tuple[Program, int] | None = None
        self._reader: ResultReader | None = None
        self._preparation: Program | None = None
        self._is_prepared = not place.prepare()
        self._give_up_at = 0.0
        self._answered_at = 0.0
        self._answers: deque[Event] = deque()
        #: How the program has ended, while its last results are read.
        self._end: _ProgramEnd | None = None

    @property
    def pid(self) -> int | None:
        """Return the first of the program's processes, None if none runs."""
        # Read by another thread: what it takes hold of here may end meanwhile.
        program, call = self._program, self._call
        if program is None or call is None:
            return None
        if self._first is None or self._first[0] is not program:
            found = self._place.first_process(call, program.pid)
            if found is None:
                return None
            self._first = (program, found)
        return self._first[1]

    @property
    def has_begun(self) -> bool:
        """Tell whether the program runs."""
        return self._program is not None

    def warm(self) -> None:
        """Begin what must come before the first call, such as the pull of an image."""
        if self._is_prepared or self._preparation is not None:
            return
        output = Output(self._log, self._allowance)
        root = self._code.root
        env = self._place.environment(None)
        self._preparation = Program(self._place.prepare(), cwd=root, env=env, output=output)
        self._give_up_at = time.monotonic() + self._code.spec.setup_timeout.total_seconds()

    def begin(self, task: Task, batch: Sequence[Item]) -> None:
        """Hand over a batch; the next ``poll`` starts its call, as soon as all is prepared."""
        self._calls += 1
        self._call = open_call(
            task, batch, slot=self._slot, number=self._calls, results=self._code.spec.results
        )

    def poll(self, timeout: timedelta) -> Event | None:
        """Return the next event; a program out of time is killed."""
        if self._answers:
            return self._answers.popleft()
        if self._call is None:
            return Broken(FailureCause.ENDED, "the process was ended")
        try:
            if self._end is not None:
                return self._read_rest(self._call, self._end)
            if self._program is None and not self._is_ready(self._call, timeout):
                return None
            return self._look(self._call, timeout)
        except OSError as exc:
            reason = f"the program cannot be started: {exc.strerror}: {exc.filename}"
            broken = Broken(FailureCause.NOT_STARTED, reason)
        except BadResult as exc:
            broken = Broken(FailureCause.BAD_RESULT, str(exc))
        except _Failure as exc:
            broken = exc.broken
        self.kill()
        return broken

    def stop(self, grace: timedelta) -> Sequence[ItemDone]:
        """Ask the program to stop, end it after ``grace``; return what it still gave."""
        given: list[ItemDone] = []
        program = self._program
        try:
            if program is not None:
                program.ask_to_stop()
                ends_at = time.monotonic() + grace.total_seconds()
                while program.status(_LOOK_SECONDS) is None and time.monotonic() < ends_at:
                    given += self._read()
                program.kill()
            while found := self._read(is_last=True):
                given += found
                if sum(done.size for done in given) > _LAST_BYTES_MAX:
                    # The rest is computed again elsewhere.
                    break
        except BadResult as exc:
            self._log.warning("bad_result", reason=str(exc))
        given = [done for done in self._answers if isinstance(done, ItemDone)] + given
        self.kill()
        return given

    def kill(self) -> None:
        """End the program with all that it has started; the next batch gets a new one."""
        running = [one for one in (self._preparation, self._program) if one is not None]
        self._preparation = self._program = self._end = None
        self._answers.clear()
        try:
            for program in running:
                program.kill()
        finally:
            if self._call is not None:
                self._place.clean(self._call)
            self._close()

    def _is_ready(self, call: ProgramCall, timeout: timedelta) -> bool:
        """Start the call if what must come first has come."""
        if not self._is_prepared:
            self.warm()
            preparation = self._preparation
            if preparation is None:
                return False
            status = preparation.status(timeout.total_seconds())
            if status is None:
                if time.monotonic() > self._give_up_at:
                    limit = self._code.spec.setup_timeout.total_seconds()
                    reason = f"to prepare the program took longer than {limit:g} s"
                    raise _Failure(FailureCause.TIMEOUT, reason)
                return False
            preparation.kill()
            self._preparation = None
            if status != 0:
                last = preparation.output.last_line
                image = self._code.spec.image
                reason = f"the image {image} cannot be pulled (status {status}): {last}"
                raise _Failure(FailureCause.NOT_PULLED, reason)
            self._is_prepared = True
        self._start(call)
        return True

    def _start(self, call: ProgramCall) -> None:
        output = Output(self._log, self._allowance)
        output.belong_to(call.task.job_id, call.task.epoch, call.task.output_log)
        self._reader = ResultReader(call)
        self._kills.mark()
        self._answered_at = time.monotonic()
        seconds = self._code.spec.item_timeout.total_seconds() * len(call.batch)
        self._give_up_at = self._answered_at + seconds
        self._program = Program(
            self._place.command(call),
            cwd=self._code.root,
            env=self._place.environment(call),
            output=output,
            group=self.group,
        )

    def _look(self, call: ProgramCall, timeout: timedelta) -> Event | None:
        """Wait for the program's end; take what it has said meanwhile."""
        program = self._program
        if program is None:
            return None
        self._answers.extend(self._read())
        if not self._answers:
            left = self._give_up_at - time.monotonic()
            if left <= 0:
                limit = self._code.spec.item_timeout.total_seconds() * len(call.batch)
                raise _Failure(
                    FailureCause.TIMEOUT,
                    f"a call took longer than {limit:g} s "
                    f"(item_timeout times items, of which it had {len(call.batch)})",
                )
            status = program.status(min(timeout.total_seconds(), left, _LOOK_SECONDS))
            if status is not None:
                self._end = self._note_end(call, program, status)
                return self._read_rest(call, self._end)
            self._answers.extend(self._read())
        return self._answers.popleft() if self._answers else None

    def _read(self, *, is_last: bool = False) -> list[ItemDone]:
        if self._reader is None or self._code.spec.results is Results.PER_JOB:
            return []
        now = time.monotonic()
        found = self._reader.read(now - self._answered_at, is_last=is_last)
        if found:
            self._answered_at = now
        return found

    def _note_end(self, call: ProgramCall, program: Program, status: int) -> "_ProgramEnd":
        """End what a program has left, and return how it ended."""
        program.kill()
        self._program = None
        complaint = self._place.complaint(status, program.output.last_lines)
        last = program.output.last_line
        killed_for_memory = self._place.clean(call) or self._kills.has_killed
        broken = (
            Broken(FailureCause.NOT_STARTED, f"the container cannot be started: {complaint}")
            if complaint
            else describe_end(status, last, out_of_memory=killed_for_memory)
        )
        return _ProgramEnd(status, last or broken.reason, broken)

    def _read_rest(self, call: ProgramCall, end: "_ProgramEnd") -> Event:
        """Turn what a program that ended has still told into events, and at last its end."""
        try:
            found = self._read(is_last=True)
            rest = None if found else self._answer_rest(call, end.status, end.said)
        except BadResult as exc:
            reason = f"{exc}; {end.broken.reason}" if end.status else str(exc)
            raise BadResult(reason) from exc
        if found:
            self._answers.extend(found)
        else:
            self._close()
            self._answers.extend([end.broken] if rest is None else [*rest, BatchDone()])
        return self._answers.popleft()

    def _answer_rest(self, call: ProgramCall, status: int, said: str) -> Sequence[ItemDone] | None:
        """Answer for the items without a result; None: the attempt failed."""
        reader = self._reader
        if reader is None or status not in {0, EX_DATAERR}:
            return None
        seconds = time.monotonic() - self._answered_at
        if self._code.spec.results is Results.PER_JOB and status == 0:
            return _whole(call, reader.read_whole(), seconds)
        left = sorted(reader.left)
        if status == 0 and len(call.batch) == 1 and left:
            try:
                files = tuple(list_files(call.task.outputs / str(left[0])))
            except TooMuch as exc:
                return [ItemDone(index=left[0], error=str(exc))]
            return [ItemDone(index=left[0], files=files, seconds=seconds)]
        error = _NO_RESULT if status == 0 else said
        return [ItemDone(index=index, error=error) for index in left]

    def _close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        if self._call is not None:
            remove_tree(self._call.directory)
        self._reader = None
        self._call = None
        self._end = None


@dataclass(frozen=True, slots=True)
class _ProgramEnd:
    """How a program has ended."""

    status: int
    #: The last that it said, or why it ended.
    said: str
    #: The end of the attempt, if some items have no answer for good.
    broken: Broken


class _Failure(Exception):
    """Why an attempt cannot go on."""

    def __init__(self, cause: FailureCause, reason: str) -> None:
        super().__init__(reason)
        self.broken = Broken(cause, reason)


def _whole(call: ProgramCall, value: Any, seconds: float) -> Sequence[ItemDone]:
    """Answer for all items of a job at once: the first has what there is."""
    first, *others = (item.index for item in call.batch)
    try:
        files = tuple(list_files(call.output))
    except TooMuch as exc:
        raise BadResult(str(exc)) from exc
    done = ItemDone(index=first, value=value, files=files, seconds=seconds)
    return [done, *(ItemDone(index=index) for index in others)]
