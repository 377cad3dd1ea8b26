"""``spindown results``: print what jobs have committed, or fetch it with its files."""

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from spindown.cli import option
from spindown.cli.render.bar import open_bar
from spindown.cli.render.batch import say_failed
from spindown.cli.render.line import clear_note, print_aside, print_line
from spindown.cli.session import Session, find_workload, open_session
from spindown.cli.wait import (
    end_to_json,
    going_on,
    say_failures,
    say_see_why,
    told_why,
    wait_for,
)
from spindown.contract.job.manifest import JobState, Manifest
from spindown.error import BadInput, ContractError, NotFound, SpindownError, printable
from spindown.installed import require
from spindown.job.lease_row import is_held
from spindown.job.result import JobProgress, count_items, read_progress, read_records
from spindown.operate.batch_status import cancelled_why
from spindown.operate.download import fetch_outputs
from spindown.operate.record_file import RecordFormat, index_of, write_csv, write_records
from spindown.port import ObjectStore
from spindown.reason_text import say_count, say_dollars, say_items


def results(  # noqa: PLR0913 - each is an option of the command line
    name: Annotated[str, typer.Argument(metavar="BATCH|JOB", help="A batch or a job.")],
    *,
    summary: Annotated[
        bool, typer.Option("--summary", help="Print one line for each job instead.")
    ] = False,
    failed: Annotated[
        bool,
        typer.Option("--failed", help="Only failed items: where, and the error's first line."),
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until all jobs are over.")] = False,
    download: Annotated[
        Path | None,
        typer.Option(help="Write the records into a file in this folder, and the items' files."),
    ] = None,
    output: Annotated[
        RecordFormat | None, typer.Option(help="What the records are written as; default: jsonl.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace files in the folder without asking.")
    ] = False,
    workload: option.OfWorkload = None,
    config: option.ConfigFile = option.CONFIG_FILE,
    deployment: option.Deployment = None,
    local: option.Local = False,
    as_json: option.Json = False,
) -> None:
    """Print the results committed so far, one JSON record an item. Exit 1 if something failed."""
    if summary and (failed or download or output):
        raise BadInput("--summary", "a line a job", "ask for records by a command of its own")
    if output is RecordFormat.PARQUET:
        _check_parquet(download)
    session = open_session(config, deployment=deployment, local=local)
    owner, jobs = find_workload(session, name, workload=workload, argument="BATCH or JOB")
    store = session.work_store(owner)
    if wait:
        with going_on(name, session.options):
            items = count_items(name, store)
            tell = told_why(
                session.check_there,
                session.ledger(owner).read,
                session.aws.clock.now,
                partial(session.expect_shape, owner, jobs),
            )
            wait_for(jobs, store, items=items, options=session.options, meanwhile=tell)
    found = _Committed(session, owner, jobs, failed_only=failed)
    if summary:
        with session.told_if_slow():
            found.print_progress(as_json=as_json)
        if not found.are_over:
            _tell_lost(session, owner, name)
    elif download is not None:
        _download(found, download, output or RecordFormat.JSONL, overwrite=overwrite)
    else:
        with session.told_if_slow():
            _print_records(found, output, is_brief=failed and not as_json)
    if not found.is_well:
        print_aside(found.say_trouble(name, session.options, is_listed=failed))
        raise typer.Exit(1)


def _check_parquet(download: Path | None) -> None:
    require("usage")
    if download is None:
        raise BadInput("--output", "parquet", "name a folder for the file with --download")


def _print_records(found: "_Committed", output: RecordFormat | None, *, is_brief: bool) -> None:
    if output is RecordFormat.CSV:
        write_csv(found.records(), _Stdout())
        return
    for record in found.records():
        clear_note()
        print(say_failed(record) if is_brief and output is None else to_json(record))


class _Stdout:
    """Stdout for what workers wrote: no terminal obeys it."""

    def write(self, text: str) -> None:
        """Write a text; a file gets it as it is."""
        clear_note()
        sys.stdout.write(printable(text, keep="\r\n\t") if sys.stdout.isatty() else text)


class _Committed:
    """What the jobs have committed, and whether something of it failed or cannot be read."""

    def __init__(
        self, session: Session, workload: str, jobs: Sequence[str], *, failed_only: bool
    ) -> None:
        self._jobs = jobs
        self._failed_only = failed_only
        self._is_held = partial(_is_held, session, workload)
        self._clock = session.aws.clock
        self._with_next_try = partial(session.with_next_try, workload)
        self.store: ObjectStore = session.work_store(workload)
        self.are_over = True
        self._items_failed = 0
        self._given_up = 0
        self._cancelled = 0
        #: Why, if nobody asked for it.
        self._cancelled_why = ""
        #: Parts of jobs that cannot be read, or fetched.
        self._damaged = 0

    @property
    def is_well(self) -> bool:
        """Tell whether nothing failed, as far as was looked."""
        return not (self._items_failed or self._given_up or self._cancelled or self._damaged)

    def say_trouble(self, name: str, options: str, *, is_listed: bool) -> str:
        """Return what is not well, and the command that tells more.

        Args:
            name: of the batch or the job.
            options: with which another command finds the same deployment.
            is_listed: whether the failed items are what was printed.
        """
        unread = "1 file or record"
        if self._damaged != 1:
            unread = f"{self._damaged:,} files or records"
        why = f" ({self._cancelled_why})" if self._cancelled_why else ""
        counts = {
            say_count(self._items_failed, "failed item"): self._items_failed,
            f"{say_count(self._given_up, 'job')} given up": self._given_up,
            f"{say_count(self._cancelled, 'job')} cancelled{why}": self._cancelled,
            f"{unread} could not be read (see above)": self._damaged,
        }
        said = ", ".join(words for words, count in counts.items() if count)
        is_to_list = bool(self._items_failed) and not is_listed
        more = ""
        if is_to_list or self._given_up or why:
            more = f"; {say_see_why(name, options, has_failed_items=is_to_list)}"
        return f"{said}, hence exit status 1{more}"

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield the records job by job; what cannot be read is told and hides no other."""
        waiting = []
        for job_id in self._jobs:
            try:
                yield from read_records(
                    job_id, self.store, self.note_damage, failed_only=self._failed_only
                )
                progress = self._read(job_id)
            except NotFound:
                waiting.append(job_id)
            except ContractError as exc:
                self.note_damage(job_id, exc)
            else:
                if progress.state is JobState.FAILED:
                    print_aside(f"{job_id} was given up: {progress.reason}")
        if len(waiting) == 1:
            print_aside(f"{waiting[0]} is waiting: no worker has claimed it yet")
        elif waiting:
            print_aside(f"{len(waiting):,} jobs are waiting: no worker has claimed them yet")

    def print_progress(self, *, as_json: bool) -> None:
        """Print a line for each job."""
        for job_id in self._jobs:
            try:
                progress = self._with_next_try(self._read(job_id))
                _print_progress(progress, self._clock.now(), as_json=as_json)
            except ContractError as exc:
                self.note_damage(job_id, exc)

    def _read(self, job_id: str) -> JobProgress:
        progress = read_progress(job_id, self.store, self._is_held)
        self.are_over = self.are_over and progress.is_over
        self._given_up += progress.state is JobState.FAILED
        self._cancelled += progress.state is JobState.CANCELLED
        self._cancelled_why = self._cancelled_why or cancelled_why([progress])
        self._items_failed += progress.items_failed
        return progress

    def note_damage(self, name: str, error: BadInput) -> None:
        """Say what cannot be read, or fetched, of one job."""
        self._damaged += 1
        print_aside(f"{name}: {error}")


def _download(
    found: _Committed, folder: Path, record_format: RecordFormat, *, overwrite: bool
) -> None:
    """Write records and files into a folder; none of its files is replaced without a yes."""
    path = folder / f"results.{record_format}"
    is_yes = overwrite or _ask(folder)
    if os.path.lexists(path) and not is_yes:
        raise BadInput("--download", str(path), "name an empty folder, or add --overwrite")
    folder.mkdir(parents=True, exist_ok=True)
    files = 0

    def fetch() -> Iterator[Mapping[str, Any]]:
        nonlocal files
        placed = _placed(found, folder / "files")
        fetches = fetch_outputs(placed, found.store, may_replace=is_yes)
        with open_bar() as show:
            for number, (record, fetched) in enumerate(fetches, 1):
                for one in fetched:
                    if isinstance(one, BadInput):
                        found.note_damage(f"{record['job_id']} item {record.get('index')}", one)
                    else:
                        files += 1
                words = f"{say_count(number, 'record')}, {say_count(files, 'file')} so far"
                show(words, number, None)
                yield record

    count = write_records(fetch(), path, record_format)
    fetched = f", {say_count(files, 'file')} below {folder / 'files'}" if files else ""
    print_aside(f"{say_count(count, 'record')} in {path}{fetched}")


def _ask(folder: Path) -> bool:
    """Ask whether files of a folder may be replaced; nobody there to ask: no."""
    is_there = folder.is_dir() and any(folder.iterdir())
    if not is_there or not sys.stdin.isatty():
        return False
    shown = printable(f"{folder} is not empty; replace files there that differ?")
    return typer.confirm(shown, err=True)


def _placed(found: _Committed, folder: Path) -> Iterator[tuple[Mapping[str, Any], Path]]:
    """Yield records with the folder of their item; one without an index has no files."""
    for record in found.records():
        # The reader has checked that the id is that of its job.
        job_id, index = str(record["job_id"]), index_of(record)
        if index is not None:
            yield record, folder / job_id / str(index)
            continue
        remedy = "its worker wrote no index: its files are not fetched"
        found.note_damage(job_id, ContractError("index", record.get("index"), remedy))
        yield {**record, "outputs": []}, folder


def _tell_lost(session: Session, workload: str, batch: str) -> None:
    """Say if jobs of a batch have no message any more, so that nobody will work on them."""
    # Who may not read the queues gets the results all the same.
    with suppress(SpindownError):
        if lost := session.count_lost(workload, reads_at_most=sys.maxsize, batch=batch):
            command = f"spindown redrive {workload} --lost {batch}{session.options}"
            print_aside(f"at least {say_count(lost, 'job')} lost the message; {command} sends it")


def _is_held(session: Session, workload: str, manifest: Manifest) -> bool:
    """Tell whether a worker holds a job; by its manifest alone if the ledger does not say."""
    try:
        return is_held(manifest, workload, session.table, session.aws.clock.now())
    except SpindownError:
        return not manifest.released


def to_json(record: Mapping[str, Any]) -> str:
    """Return a record as JSON, escaped where stdout cannot print a character or would obey it."""
    text = json.dumps(record, ensure_ascii=False)
    if sys.stdout.isatty() and not text.isprintable():
        return json.dumps(record)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(record)
    return text


def _print_progress(progress: JobProgress, now: datetime, *, as_json: bool) -> None:
    if as_json:
        print_line(json.dumps(end_to_json(progress)))
        return
    items = say_items(progress.items_done, progress.items_failed, progress.items)
    # A cancelled job's reason is its state.
    why = "" if progress.reason == progress.state else progress.reason
    why = say_failures(progress, now) or why
    print_line(
        f"{progress.job_id}  {progress.word}  {items}  "
        f"${say_dollars(progress.cost_usd)} at work  {why}".rstrip()
    )
