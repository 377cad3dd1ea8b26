"""``spindown batches``: what was submitted, how far it is, what it cost, when it is done."""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from spindown.cli import option
from spindown.cli.render.batch import say_eta, say_of, say_state
from spindown.cli.render.line import print_aside, print_line, told_if_slow
from spindown.cli.render.saving import AT_WORK, say_saving
from spindown.cli.render.screen import format_item_cost, format_seconds, open_console
from spindown.cli.render.table import make_table
from spindown.cli.session import open_session
from spindown.contract.codec import encode
from spindown.error import BadInput, NotFound, printable
from spindown.job.submit import BATCH_REMEDY
from spindown.operate.batch import BatchStatus, find_newest, read_batches
from spindown.operate.spent import Spent, spent_of
from spindown.reason_text import say_dollars


def batches(
    workloads: option.Workloads = None,
    *,
    limit: Annotated[int, typer.Option(min=1, max=200, help="How many, the newest first.")] = 20,
    before: Annotated[
        str | None, typer.Option(metavar="BATCH", help="Only batches older than this one.")
    ] = None,
    config: option.ConfigFile = option.CONFIG_FILE,
    deployment: option.Deployment = None,
    local: option.Local = False,
    as_json: option.Json = False,
) -> None:
    """List batches: state, items, dollars so far, and when they will be done."""
    with told_if_slow(local=local):
        session = open_session(config, deployment=deployment, local=local)
        names = list(dict.fromkeys(workloads or session.deployment.workloads))
        for name in names:
            session.workload(name)
        stores = {name: session.work_store(name) for name in names}
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
        open_console().print(_table(read, now, with_workload=len(names) > 1))
        for name, outlook in sorted(outlooks.items()):
            parts = _say_spent(spent_of(session.ledger(name), outlook.view, now))
            if said := "; ".join(parts):
                print_line(f"{name}, all of its batches: {said}")
        print_line(f"USD at work: {AT_WORK}.")
    else:
        print("no batches")
    if len(found) > limit:
        named = "".join(f" {name}" for name in workloads or ())
        command = f"spindown batches{named} --before {shown[-1].batch_id}{session.options}"
        print_aside(f"there are older ones: {command}")


def _say_spent(spent: Spent) -> Iterator[str]:
    """Yield what an item has cost, all in, and what was saved, as ``status`` tells them."""
    if (cost := spent.last().cost_per_item) is not None:
        yield f"{format_item_cost(cost)} all in, in 24 hours"
    if said := say_saving(spent.saving, shortly=True):
        yield f"in 7 days {said}"


def _table(found: list[BatchStatus], now: datetime, *, with_workload: bool) -> Table:
    workload = ("workload",) if with_workload else ()
    command = ("command",) if (has_command := any(one.command for one in found)) else ()
    table = make_table(
        *("batch", *workload, *command, "submitted", "state"),
        numbers=("jobs", "items", "failed", "USD at work"),
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
