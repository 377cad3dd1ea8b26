"""``spindown local run``: one batch of a workload on this machine, as a worker would run it.

The code is packed and unpacked as for a deploy, and called in a child with the worker's own runner.
There is no queue, no emulator and no machine to wait for. Nothing of it is kept but the files of
items, where a folder for them is given.
"""

import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from spindown import config as configuration
from spindown.cli.render.line import print_aside
from spindown.cli.results import to_json
from spindown.cli.submit import find_files
from spindown.config import WorkloadConfig
from spindown.config.archive import check_code, pack_workload, run_spec
from spindown.contract.codec import from_json
from spindown.contract.codec import to_json as check_json
from spindown.contract.job.result import ItemStatus, OutputFile, Record, to_row
from spindown.contract.log import USER_OUTPUT, USER_PROGRESS
from spindown.contract.run_spec import RunMode
from spindown.error import BadInput, ContractError, SpindownError, printable
from spindown.job.attachment.checkpoint_store import measure
from spindown.reason_text import say_count
from spindown.user import Item
from spindown.worker.child.code import Code, has_code, unpack
from spindown.worker.child.command import CommandRunner
from spindown.worker.child.container import Container, Machine, find_runtime
from spindown.worker.child.failure_cause import Broken
from spindown.worker.child.runner import BatchDone, ChildRunner, ItemDone, Runner, Task
from spindown.worker.log import EventLog

#: All that the code gets of this shell's environment, as on an instance.
_KNOWN = ("PATH", "LANG", "LC_ALL", "TZ")
_JOB = "local"
_POLL = timedelta(seconds=1)


class BatchFailed(SpindownError):
    """The batch has no result for an item; the text is one sentence."""


def run_batch(
    config: Path, workload: str, items: Sequence[str], params: str, outputs: Path | None
) -> None:
    """Run items as one batch, print each record as it comes (raises BadInput, BatchFailed)."""
    loaded = configuration.load(config, named="--config")
    if workload not in loaded.workloads:
        raise BadInput("workload", workload, f"name one of {', '.join(loaded.workloads)}")
    asked = _read_params(params)
    batch = read_items(items)
    with tempfile.TemporaryDirectory(prefix="spindown-") as made:
        folder = Path(made)
        chosen = loaded.workloads[workload]
        code = _unpack(config.resolve().parent, workload, chosen, folder)
        job = folder / "slot-0" / _JOB
        for each in (folder / "slot-0" / "tmp", job / "outputs", job / "state"):
            each.mkdir(parents=True)
        task = Task(job_id=_JOB, params=asked, outputs=job / "outputs", state=job / "state")
        runner = _make_runner(code, folder / "slot-0")
        try:
            failed = _run(runner, task, batch)
        finally:
            runner.kill()
        if outputs is not None:
            shutil.copytree(task.outputs, outputs, dirs_exist_ok=True)
    if failed:
        raise BatchFailed(f"{failed} of {say_count(len(batch), 'item')} failed")


def read_items(texts: Sequence[str]) -> Sequence[Item]:
    """Return the items of a batch: files as ``submit`` sends them, else what a text says.

    Raises:
        BadInput: a folder has no file that is sent.
    """
    found = list[Item]()
    for text in texts:
        found += _read_files(len(found), text) or [read_value(len(found), text)]
    return found


def _read_files(first: int, text: str) -> Sequence[Item]:
    """Return the items of a file or a folder; none: it is neither."""
    path = Path(text)
    # A value may be too long for the name of either.
    is_file = is_folder = False
    with suppress(OSError):
        is_file, is_folder = path.is_file(), path.is_dir()
    if not (is_file or is_folder):
        return ()
    files, left_out = find_files([text])
    if is_folder:
        hidden = f"; {say_count(left_out, 'hidden file')} left out" if left_out else ""
        print_aside(f"{text} is a folder: {say_count(len(files), 'file')}, one item each{hidden}")
    return [
        Item(first + n, f"s3://local/{name}", one.resolve()) for n, (one, name) in enumerate(files)
    ]


def read_value(index: int, text: str) -> Item:
    """Return an item that is no file: a JSON value, else the text itself."""
    value = _read_json(text)
    if value is None and Path(text).suffix and not text.split()[1:] and "://" not in text:
        print_aside(f"{text} is no file here: the text itself is the item")
    return Item(index, text if value is None and text.strip() != "null" else value)


def _read_json(text: str) -> Any:
    """Return what a message may hold of a text; None: it is no such JSON."""
    try:
        value = from_json("value", text)
        check_json(value)
    except (ContractError, ValueError):
        return None
    return value


def _read_params(text: str) -> Mapping[str, Any]:
    params = _read_json(text)
    if not isinstance(params, dict):
        raise BadInput("--params", text, """write a JSON object such as '{"size": 3}'""")
    return params


def _unpack(root: Path, name: str, workload: WorkloadConfig, folder: Path) -> Code:
    """Put the code where a worker would have it (raises BadInput)."""
    spec = run_spec(workload)
    if spec.mode is RunMode.FOLDER:
        raise BadInput("workload", name, "name one with code: this one runs folders that are sent")
    missing = [variable for variable in spec.secrets if variable not in os.environ]
    if missing:
        raise BadInput("environment", missing[0], "export it here: no secret is read from AWS")
    known = {variable: os.environ[variable] for variable in spec.secrets}
    check_code(root, {name: workload})
    archive = folder / "code.zip"
    archive.write_bytes(pack_workload(root, name, workload))
    unpack(archive, folder / "code")
    whole = replace(spec, env={**spec.env, **known})
    return Code(root=folder / "code", spec=whole, digest="")


def _make_runner(code: Code, folder: Path) -> Runner:
    shell = {name: os.environ[name] for name in _KNOWN if name in os.environ}
    env = {**shell, "TMPDIR": str(folder / "tmp"), **code.spec.env}
    logger = logging.getLogger("spindown.local.run")
    logger.propagate = False
    logger.handlers = [_Printer()]
    logger.setLevel(logging.INFO)
    log = EventLog(logger)
    match code.spec.mode:
        case RunMode.ENTRYPOINT:
            scratch = folder / "setup"
            scratch.mkdir()
            return ChildRunner(
                code, slot=0, scratch=scratch, python=sys.executable, env=env, log=log
            )
        case RunMode.IMAGE:
            container = Container(
                runtime=find_runtime(shell),
                image=code.spec.image,
                argv=code.spec.command,
                gpus=(),
                user=f"{os.getuid()}:{os.getgid()}",
                slot=0,
                owner=f"local-{os.getpid()}",
                code=code.root if has_code(code) else None,
                env=code.spec.env,
                secrets=frozenset(code.spec.secrets),
                client_env=shell,
            )
            return CommandRunner(code, container, slot=0, log=log)
        case _:
            place = Machine(argv=code.spec.command, env=env)
            return CommandRunner(code, place, slot=0, log=log)


def _run(runner: Runner, task: Task, items: Sequence[Item]) -> int:
    """Print a record for each item; return how many failed."""
    values, failed = {item.index: item.value for item in items}, 0
    runner.begin(task, items)
    while True:
        match runner.poll(_POLL):
            case ItemDone() as done:
                failed += done.error is not None
                record = _record(done, values[done.index], task.outputs)
                print(to_json(to_row(record)), flush=True)
            case Broken() as broken:
                raise BatchFailed(broken.reason)
            case BatchDone():
                return failed
            case None:
                pass


def _record(done: ItemDone, item: Any, outputs: Path) -> Record:
    """Return what a worker would commit of an item; a file's key is where ``--outputs`` has it."""
    return Record(
        job_id=_JOB,
        index=done.index,
        item=item,
        status=ItemStatus.OK if done.error is None else ItemStatus.FAILED,
        result=done.value,
        error=done.error,
        traceback=done.traceback,
        outputs=tuple(_describe(f"{done.index}/{name}", name, outputs) for name in done.files),
        seconds=done.seconds,
    )


def _describe(key: str, name: str, outputs: Path) -> OutputFile:
    size, digest = measure(outputs / key)
    return OutputFile(path=name, key=key, bytes=size, sha256=digest)


class _Printer(logging.Handler):
    """Prints what the code prints to stderr, as it comes."""

    def emit(self, record: logging.LogRecord) -> None:
        fields = getattr(record, "fields", {})
        if record.getMessage() == USER_OUTPUT:
            sys.stderr.write(printable(fields["text"]) + "\n")
        elif record.getMessage() == USER_PROGRESS:
            print_aside(f"{fields['done']}/{fields['of']} {fields['text']}".rstrip())
