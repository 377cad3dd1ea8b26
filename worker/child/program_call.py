"""What a program is told of its items, and what it tells of them: files and environment.

A Python function is called in ``user_code``. The contract, the same for a command and a container
(docs/programs.md):

SPINDOWN_JOB_ID      the job
SPINDOWN_SLOT        which slot of the instance works on it, from 0 on
SPINDOWN_PARAMS      file: the job's ``params``, a JSON object
SPINDOWN_ITEMS       file: a JSON object a line: index, value, path (of its input, or null), output
SPINDOWN_RESULTS     file to append to: {"index": 3, "value": ...} or {"index": 3, "error": "..."};
                     an item with an error has failed, and keeps a value and files that it has
SPINDOWN_OUTPUT      directory for result files: of item 3 in ``3/``; of a whole job as they lie
SPINDOWN_CHECKPOINT  directory that outlives an interruption
SPINDOWN_ITEM        of a call of a single item: its value, as it is or as JSON, up to 64 KiB
SPINDOWN_INPUT       likewise the path of its input, or ""
SPINDOWN_ITEM_OUTPUT likewise its directory
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from spindown.contract.codec import DEPTH_MAX, TooDeep, load_strict, to_json
from spindown.contract.run_spec import Results
from spindown.user import Item
from spindown.worker.child.frame import ANSWERS_MEMORY_MAX, weigh
from spindown.worker.child.runner import ItemDone, Task
from spindown.worker.code_folder import TooMuch, list_files, make_own, make_shared, make_shared_in

#: A line of results, or the one result of a whole job, is not longer.
LINE_BYTES_MAX = 16 * 1024 * 1024
_READ_BYTES = 1024 * 1024
#: Beyond the first line no more is read at a time: what takes much memory is then committed.
_READ_AT_ONCE_BYTES = 4 * 1024 * 1024
#: Of a value in the environment; Linux takes no string of more than 128 KiB there.
_ITEM_BYTES = 64 * 1024
_ERROR_CHARACTERS = 2000
#: Beside the directories of calls: the home of a container's user.
HOME = "home"


class BadResult(Exception):
    """What the program wrote is no result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramCall:
    """One call of a program."""

    task: Task
    batch: Sequence[Item]
    #: Holds the files of the call; below it nothing else lies.
    directory: Path
    #: Where the job's files go: the item's own directories lie below, or it is the job's own.
    output: Path
    #: The SPINDOWN_ variables.
    env: Mapping[str, str]


def open_call(
    task: Task, batch: Sequence[Item], *, slot: int, number: int, results: Results
) -> ProgramCall:
    """Write the files of a call; the directories that it names are there then."""
    job = task.outputs.parent
    if not (job / HOME).exists():
        make_shared(job / HOME)
    directory = job / f"call-{number}"
    make_own(directory)
    # The code appends to it, and cannot put another file in its place.
    (directory / "results.jsonl").touch()
    (directory / "results.jsonl").chmod(0o660)
    state = task.state or directory / "checkpoint"
    if task.state is None:
        make_shared(state)
    for item in batch:
        make_shared_in(task.outputs, str(item.index))
    (directory / "params.json").write_text(to_json(dict(task.params)), encoding="utf-8")
    lines = [to_json(_described(item, task.outputs)) + "\n" for item in batch]
    (directory / "items.jsonl").write_text("".join(lines), encoding="utf-8")
    whole = results is Results.PER_JOB
    output = task.outputs / str(batch[0].index) if whole else task.outputs
    env = {
        "SPINDOWN_JOB_ID": task.job_id,
        "SPINDOWN_SLOT": str(slot),
        "SPINDOWN_PARAMS": str(directory / "params.json"),
        "SPINDOWN_ITEMS": str(directory / "items.jsonl"),
        "SPINDOWN_RESULTS": str(directory / "results.jsonl"),
        "SPINDOWN_OUTPUT": str(output),
        "SPINDOWN_CHECKPOINT": str(state),
    }
    if len(batch) == 1:
        [item] = batch
        value = item.value if isinstance(item.value, str) else to_json(item.value)
        data = value.replace("\0", "").encode(errors="replace")
        env |= {
            "SPINDOWN_ITEM": data.decode() if len(data) <= _ITEM_BYTES else "",
            "SPINDOWN_INPUT": "" if item.path is None else str(item.path),
            "SPINDOWN_ITEM_OUTPUT": str(task.outputs / str(item.index)),
        }
    return ProgramCall(task=task, batch=batch, directory=directory, output=output, env=env)


def _described(item: Item, outputs: Path) -> dict[str, Any]:
    return {
        "index": item.index,
        "value": item.value,
        "path": None if item.path is None else str(item.path),
        "output": str(outputs / str(item.index)),
    }


class ResultReader:
    """Reads what the program appends to its results, line by line.

    The file is opened before the program starts and never by its name again, which the program
    could have made to stand for another one.
    """

    def __init__(self, call: ProgramCall) -> None:
        self._call = call
        path = call.directory / "results.jsonl"
        self._file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb", buffering=0)
        self._rest = bytearray()
        #: Items without an answer.
        self.left = {item.index for item in call.batch}

    def close(self) -> None:
        """Let the file go."""
        self._file.close()

    def read(self, seconds: float, *, is_last: bool = False) -> list[ItemDone]:
        """Return results that came since the last look (raises BadResult).

        What it has written while nobody looked may be more than fits into memory at once, so there
        may be more: none are left when none are returned.

        Args:
            seconds: time that they took together.
            is_last: the program has ended, so a line without its end is a line too.
        """
        found = list(map(self._parse, self._next_lines(is_last=is_last)))
        return [replace(done, seconds=seconds / len(found)) for done in found]

    def _next_lines(self, *, is_last: bool) -> list[bytes]:
        """Return the next whole lines, and at last what has no end; empty: there are none now."""
        while len(self._rest) < _READ_AT_ONCE_BYTES or b"\n" not in self._rest:
            data = self._file.read(_READ_BYTES)
            if not data:
                break
            self._rest += data
            if len(self._rest) > LINE_BYTES_MAX and b"\n" not in self._rest:
                raise BadResult(f"a line of its results is longer than {LINE_BYTES_MAX} bytes")
        else:
            is_last = False
        whole, end, rest = self._rest.rpartition(b"\n")
        self._rest = bytearray() if is_last else bytearray(rest)
        lines = bytes(whole + end + (rest if is_last else b"")).split(b"\n")
        return [line for line in lines if line.strip()]

    def read_whole(self) -> Any:
        """Return the one JSON value that stands for a whole job; None: there is none."""
        data = self._file.read(LINE_BYTES_MAX + 1)
        if len(data) > LINE_BYTES_MAX:
            raise BadResult(f"its result is longer than {LINE_BYTES_MAX} bytes")
        return _load(data) if data.strip() else None

    def _parse(self, line: bytes) -> ItemDone:
        row = _load(line)
        index = row.get("index") if isinstance(row, dict) else None
        if not isinstance(index, int) or isinstance(index, bool):
            raise BadResult(f"a line of its results names no index: {_shown(line)}")
        if index not in self.left:
            raise BadResult(f"a line of its results names no open item: {_shown(line)}")
        self.left.discard(index)
        value, error = row.get("value"), row.get("error")
        try:
            files = tuple(list_files(self._call.task.outputs / str(index)))
        except TooMuch as exc:
            value, files, error = None, (), str(exc) if error is None else error
        if error is not None:
            error = str(error)[:_ERROR_CHARACTERS]
        return ItemDone(index=index, value=value, error=error, files=files, size=weigh(line))


def _load(data: bytes) -> Any:
    if weigh(data) > ANSWERS_MEMORY_MAX:
        raise BadResult(
            f"a result has so many values that it takes more than {ANSWERS_MEMORY_MAX} bytes of "
            f"memory: write it to a file: {_shown(data)}"
        )
    try:
        return load_strict(data)
    except TooDeep as exc:
        raise BadResult(f"a result nests deeper than {DEPTH_MAX} levels") from exc
    except (ValueError, RecursionError) as exc:
        raise BadResult(f"what it wrote as a result is not JSON: {_shown(data)}") from exc


def _shown(data: bytes) -> str:
    return repr(data[:100].decode(errors="replace"))
