"""``spindown results``: print what jobs have committed."""

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Annotated, Any

import typer

from spindown.cli import option
from spindown.cli.render.count import say_count
from spindown.cli.render.screen import print_aside, print_line
from spindown.cli.session import Session, find_workload, open_session
from spindown.contract.codec import encode
from spindown.contract.job.manifest import JobState, Manifest
from spindown.error import ContractError, NotFound, SpindownError
from spindown.job.held import is_at_work
from spindown.job.result import JobProgress, read_progress, read_records
from spindown.port import ObjectStore


def results(
    name: Annotated[str, typer.Argument(help="A batch or a job.")],
    *,
    summary: Annotated[
        bool, typer.Option("--summary", help="Print one line for each job instead.")
    ] = False,
    workload: option.OfWorkload = None,
    config: option.ConfigFile = option.CONFIG_FILE,
    deployment: option.Deployment = None,
    local: option.Local = False,
    as_json: option.Json = False,
) -> None:
    """Print the results committed so far, one JSON record for each item."""
    session = open_session(config, deployment=deployment, local=local)
    owner, jobs = find_workload(session, name, workload=workload, argument="results")
    store = session.work_store(owner)
    is_held = partial(_is_held, session, owner)
    are_over, are_readable = True, True
    for job_id in jobs:
        try:
            if summary:
                progress = read_progress(job_id, store, is_held)
                are_over = are_over and progress.is_over
                _print_progress(progress, as_json=as_json)
            else:
                are_readable = _print_records(store, job_id) and are_readable
        except ContractError as exc:
            are_readable = False
            _say_damaged(job_id, exc)
    if not are_over:
        _tell_lost(session, owner, name)
    if not are_readable:
        raise typer.Exit(1)


def _tell_lost(session: Session, workload: str, batch: str) -> None:
    """Say if jobs of a batch have no message any more, so that nobody will work on them."""
    # Who may not read the queues gets the results all the same.
    with suppress(SpindownError):
        if lost := session.count_lost(workload, jobs_at_most=sys.maxsize, batch=batch):
            command = f"spindown redrive {workload} --lost {batch}{session.options}"
            print_aside(f"at least {say_count(lost, 'job')} lost the message; {command} sends it")


def _is_held(session: Session, workload: str, manifest: Manifest) -> bool:
    """Tell whether a worker holds a job; by its manifest alone if the ledger does not say."""
    try:
        return is_at_work(manifest, workload, session.table, session.aws.clock.now())
    except SpindownError:
        return not manifest.released


def _say_damaged(job_id: str, error: ContractError) -> None:
    """Say what cannot be read of one job; it hides no other."""
    print_aside(f"{job_id}: {error}")


def _print_records(store: ObjectStore, job_id: str) -> bool:
    """Print the records of a job and of its children; tell whether all could be read."""
    damaged: list[str] = []

    def note(name: str, error: ContractError) -> None:
        damaged.append(name)
        _say_damaged(name, error)

    try:
        for record in read_records(job_id, store, note):
            print(to_json(record))
    except NotFound:
        print_aside(f"{job_id} is waiting: no worker has claimed it yet")
        return True
    if not damaged:
        progress = read_progress(job_id, store)
        if progress.state is JobState.FAILED:
            print_aside(f"{job_id} was given up: {progress.reason}")
    return not damaged


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


def _print_progress(progress: JobProgress, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(encode(progress)))
        return
    state = "waiting again" if progress.is_waiting else progress.state or "waiting"
    total = "" if progress.items is None else f"/{progress.items:,}"
    failed = f", {progress.items_failed:,} failed" if progress.items_failed else ""
    # A cancelled job's reason is its state.
    why = "" if progress.reason == progress.state else progress.reason
    if progress.failures and not progress.is_over:
        why = f"{say_count(progress.failures, 'failure')}; last: "
        why += progress.last_failure or "the worker was lost"
    print_line(
        f"{progress.job_id}  {state}  {progress.items_done:,}{total} items{failed}  "
        f"${progress.cost_usd:.6f}  {why}".rstrip()
    )
