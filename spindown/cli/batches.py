"""``spindown batches``: what was submitted, how far it is, what it cost, when it is done.

Of jobs that sources have made, which are in no batch, the same with ``--sources``.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from spindown.cli import option
from spindown.cli.render.batch import say_eta, say_of, say_state
from spindown.cli.render.line import print_aside, print_line, told_if_slow
from spindown.cli.render.saving import AT_WORK, say_item_cost, say_saving, say_span_until
from spindown.cli.render.screen import format_seconds, open_console
from spindown.cli.render.table import make_table
from spindown.cli.session import Session, open_session
from spindown.cli.wait import end_to_json, say_failures
from spindown.contract.codec import encode
from spindown.error import BadInput, NotFound, printable
from spindown.job.result import JobProgress, progress_of
from spindown.job.source_search import (
    SEARCHED_AT_MOST,
    has_source_jobs,
    list_source_jobs,
    read_source_jobs,
)
from spindown.job.submit import BATCH_REMEDY
from spindown.operate.batch_status import BatchStatus, find_newest, read_batches
from spindown.operate.spent import Spent, spent_of
from spindown.port import ObjectStore
from spindown.reason_text import say_count, say_dollars


def batches(
    workloads: option.Workloads = None,
    *,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many, the newest first.")] = 20,
    before: Annotated[
        str | None, typer.Option(metavar="BATCH", help="Only batches older than this one.")
    ] = None,
    sources: Annotated[
        bool, typer.Option("--sources", help="Jobs that S3 events asked for, which have no batch.")
    ] = False,
    config: option.ConfigFile = option.CONFIG_FILE,
    deployment: option.Deployment = None,
    local: option.Local = False,
    as_json: option.Json = False,
) -> None:
    """List batches: state, items, dollars so far, and when they will be done."""
    if sources and before is not None:
        raise BadInput("--before", before, "give it without --sources, which lists no batches")
    with told_if_slow(local=local):
        session = open_session(config, deployment=deployment, local=local)
        names = list(dict.fromkeys(workloads or session.deployment.workloads))
        for name in names:
            session.workload(name)
        stores = {name: session.work_store(name) for name in names}
    if sources:
        _list_source_jobs(stores, limit, session, local=local, as_json=as_json)
        return
    _list_batches(stores, limit, before, session, local=local, as_json=as_json)
    for name, store in stores.items():
        if has_source_jobs(store):
            command = f"spindown batches {name} --sources{session.options}"
            print_aside(f"{name} has jobs of S3 events, which are in no batch: {command}")


def _list_batches(
    stores: Mapping[str, ObjectStore],
    limit: int,
    before: str | None,
    session: Session,
    *,
    local: bool,
    as_json: bool,
) -> None:
    with told_if_slow(local=local):
        try:
            # One more tells whether there are more.
            found = find_newest(stores, limit=limit + 1, before=before)
        except NotFound as exc:
            raise BadInput("--before", before, BATCH_REMEDY) from exc
        shown = found[:limit]
        outlooks = {name: session.outlook(name) for name in {one.workload for one in shown}}
        read = list(read_batches(shown, stores, outlooks))
    if as_json:
        print(json.dumps([encode(one) for one in read]))
    elif read:
        now = session.aws.clock.now()
        open_console().print(_table(read, now, with_workload=len(stores) > 1))
        for name, outlook in sorted(outlooks.items()):
            parts = _say_spent(spent_of(session.ledger(name), outlook.view, now))
            if said := "; ".join(parts):
                print_line(f"{name}, all of its batches: {said}")
        print_line(f"USD at work: {AT_WORK}.")
    else:
        print("no batches")
    if len(found) > limit:
        every = set(stores) == set(session.deployment.workloads)
        named = "" if every else "".join(f" {name}" for name in stores)
        command = f"spindown batches{named} --before {shown[-1].batch_id}{session.options}"
        print_aside(f"there are older ones: {command}")


def _list_source_jobs(
    stores: Mapping[str, ObjectStore],
    limit: int,
    session: Session,
    *,
    local: bool,
    as_json: bool,
) -> None:
    """Print for each workload what its jobs have come to that sources made, and the newest."""
    now, rows = session.aws.clock.now(), list[Mapping[str, Any]]()
    for name, store in stores.items():
        with told_if_slow(local=local):
            found = [
                (one.changed_at, session.with_next_try(name, progress_of(manifest)))
                for one, manifest in read_source_jobs(list_source_jobs(store), store)
            ]
        if as_json:
            rows += ({"workload": name, **end_to_json(job)} for _, job in found[:limit])
            continue
        print_line(f"{name}: {_sum_up([job for _, job in found])}")
        if found:
            open_console().print(_source_table(found[:limit], now))
    if as_json:
        print(json.dumps(rows))


def _sum_up(jobs: Sequence[JobProgress]) -> str:
    words = Counter(job.word for job in jobs)
    if not words:
        return "no job of an S3 event was claimed by a worker yet"
    newest = "the newest " if len(jobs) >= SEARCHED_AT_MOST else ""
    states = ", ".join(f"{count:,} {word}" for word, count in sorted(words.items()))
    return f"{newest}{say_count(len(jobs), 'job')} of S3 events that workers have claimed: {states}"


def _source_table(found: Sequence[tuple[datetime, JobProgress]], now: datetime) -> Table:
    table = make_table("job", "object", "state", "written", numbers=("items", "USD at work"))
    for changed_at, job in found:
        cells = [
            job.job_id,
            job.source or "-",
            say_failures(job, now) or job.word,
            f"{format_seconds(now - changed_at)} ago",
            say_of(job.items_over, job.items),
            say_dollars(job.cost_usd),
        ]
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table


def _say_spent(spent: Spent) -> Iterator[str]:
    """Yield what an item has cost, all in, and what was saved, as ``status`` tells them."""
    days = spent.cost_days
    span, week = (say_span_until(spent.now, spent.begun, each) for each in (days, 7))
    cost = say_item_cost(spent.last(days), span, spent.last(7))
    if cost:
        yield cost
    if said := say_saving(spent.saving, shortly=True):
        yield said if cost and span == week else f"{week} {said}"


def _table(found: list[BatchStatus], now: datetime, *, with_workload: bool) -> Table:
    workload = ("workload",) if with_workload else ()
    command = ("command",) if (has_command := any(one.command for one in found)) else ()
    table = make_table(
        *("batch", *workload, *command, "submitted", "state"),
        numbers=("jobs", "items", "failed items", "USD at work"),
    )
    table.add_column("done in (range)")
    for one in found:
        since = "" if one.submitted_at is None else f"{format_seconds(now - one.submitted_at)} ago"
        names = [one.batch_id, one.workload] if with_workload else [one.batch_id]
        cells = [
            *names,
            *([one.command] if has_command else []),
            since,
            say_state(one),
            say_of(one.jobs_over, one.jobs),
            say_of(one.items_done, one.items),
            "-" if one.items_failed is None else f"{one.items_failed:,}",
            "-" if one.dollars is None else say_dollars(one.dollars),
            one.fault or say_eta(one.eta, now),
        ]
        table.add_row(*(Text(printable(cell)) for cell in cells))
    return table
