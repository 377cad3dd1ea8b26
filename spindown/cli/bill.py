"""``spindown bill``: what a month has cost, what for, and how it differs from AWS's own bill."""

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from spindown.cli import option
from spindown.cli.render.month_bill import render_bill, render_export_comparison
from spindown.cli.render.screen import print_parts
from spindown.cli.session import Session, open_session
from spindown.contract.codec import encode
from spindown.contract.name import SEPARATOR
from spindown.domain.month_bill import (
    BillRow,
    ExportComparison,
    Grouping,
    MonthBill,
    rows_of,
)
from spindown.error import AccessDenied, BadInput, NotFound
from spindown.installed import require
from spindown.operate.cost_export import export_files, find_export, read_export
from spindown.operate.month_bill import compare_month, month_span, read_month

_S3 = "s3://"
#: Metrics that the alarm of the control plane's share reads; each other alarm reads one.
_CONTROL_SHARE = ("control-share", 5)


def bill(  # noqa: PLR0913 - its options
    workloads: option.Workloads = None,
    *,
    month: Annotated[
        str | None, typer.Option(metavar="YYYY-MM", help="Which month, of UTC; else the present.")
    ] = None,
    by: Annotated[Grouping, typer.Option(help="What each row is about.")] = Grouping.KIND,
    export: Annotated[
        str | None,
        typer.Option(
            metavar="PATH|s3://...",
            help="Compare with AWS's own bill: a Cost and Usage Report 2.0 or a FOCUS export.",
        ),
    ] = None,
    config: option.ConfigFile = option.CONFIG_FILE,
    deployment: option.Deployment = None,
    local: option.Local = False,
    as_json: option.Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
) -> None:
    """Show what a month has cost, what for, and what was saved. Changes nothing."""
    if as_json and as_csv:
        raise BadInput("--csv", "with --json", "give one of them")
    if export is not None:
        require("usage")
    session = open_session(config, deployment=deployment, local=local)
    names = list(dict.fromkeys(workloads or session.deployment.workloads))
    settings = {name: session.workload(name) for name in names}
    now = session.aws.clock.now()
    start, end = month_span(month, now)
    ledgers = {name: session.ledger(name) for name in names}
    without = frozenset(
        name
        for name, one in settings.items()
        if one.pricing is not None and not one.pricing.has_addresses
    )
    metrics = _alarm_metrics(session)
    with session.told_if_slow():
        found = read_month(
            ledgers,
            deployment=session.deployment.name,
            start=start,
            end=end,
            now=now,
            without_addresses=without,
            alarm_metrics=metrics,
        )
    compared, tags, source = None, frozenset[str](), ""
    if export is not None:
        with _files(session, export, start) as files:
            read = read_export(
                files,
                start=start,
                end=end,
                deployment=session.deployment.name,
                workloads=names,
                instances=[one.instance_id for one in found.machines],
                others=set(session.deployment.workloads) - set(names),
            )
        compared = compare_month(
            ledgers,
            read,
            found,
            now=now,
            without_addresses=without,
            alarm_metrics=metrics,
        )
        tags, source = read.tags, f"{read.source}, {read.currency}"
    rows = rows_of(found, by)
    if as_json:
        print(json.dumps(_to_json(found, rows, compared, tags)))
    elif as_csv:
        _print_csv(rows)
    else:
        print_parts(render_bill(found, rows, by))
        if compared is not None:
            print_parts(render_export_comparison(compared, source=source, tags=tags))


def _alarm_metrics(session: Session) -> int:
    """Return how many metrics the alarms of the deployment read; 0 where that may not be asked."""
    try:
        names = session.aws.alarms().states(f"{session.deployment.name}{SEPARATOR}")
    except AccessDenied:
        return 0
    name, more = _CONTROL_SHARE
    return len(names) + sum(more - 1 for each in names if each.endswith(name))


@contextmanager
def _files(session: Session, export: str, start: datetime) -> Iterator[Sequence[Path]]:
    """Give the files of an export; of one in S3 copies that are gone afterwards."""
    if not export.startswith(_S3):
        yield export_files(Path(export))
        return
    bucket, _, prefix = export.removeprefix(_S3).partition("/")
    store = session.aws.object_store(bucket)
    with TemporaryDirectory(prefix="spindown-export-") as folder:
        files = []
        try:
            for number, one in enumerate(find_export(store, prefix, f"{start:%Y-%m}")):
                # Never a name that is somebody else's text.
                suffix = ".parquet" if one.key.endswith(".parquet") else ".csv"
                suffix += ".gz" if one.key.endswith(".gz") else ""
                files.append(Path(folder, f"{number:05d}{suffix}"))
                store.get_file(one.key, files[-1])
        except NotFound as exc:
            remedy = "name the folder to which AWS Data Exports writes"
            raise BadInput("--export", export, f"{remedy} ({exc})") from exc
        yield files


def _to_json(
    found: MonthBill,
    rows: Sequence[BillRow],
    compared: ExportComparison | None,
    tags: frozenset[str],
) -> dict[str, Any]:
    return {
        "deployment": found.deployment,
        "start": encode(found.start),
        "end": encode(found.end),
        "dollars": found.dollars,
        "booked": found.booked,
        "rows": [encode(row) for row in rows],
        "workloads": [
            {
                "workload": one.workload,
                "dollars": one.dollars,
                "items": one.items,
                "cost_per_item": one.cost_per_item,
                "trend": one.trend,
                "saving": {
                    **encode(one.saving),
                    "against_on_demand": one.saving.against_on_demand,
                    "against_warm": one.saving.against_warm,
                },
            }
            for one in found.workloads
        ],
        "machines": [encode(one) for one in found.machines],
        "export": None
        if compared is None
        else {
            **encode(compared),
            "booked": compared.booked,
            "billed": compared.billed,
            "tags": sorted(tags),
        },
    }


def _print_csv(rows: Sequence[BillRow]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["name", "usd", "estimate", "items", "hours", "note"])
    for row in rows:
        items, hours = ("" if value is None else f"{value:g}" for value in (row.items, row.hours))
        estimate = "yes" if row.is_estimate else "no"
        dollars = f"{row.dollars:.6f}" if row.is_recorded else ""
        writer.writerow([row.name, dollars, estimate, items, hours, row.note])
