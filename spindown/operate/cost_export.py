"""Read an export of AWS's own bill: Cost and Usage Report 2.0, or FOCUS with AWS's columns.

Columns as AWS documents them (AWS Data Exports User Guide, "Cost and Usage Report (CUR) 2.0" and
"FOCUS 1.2 with AWS columns"; those that are read here are the same in FOCUS 1.0). Files are CSV,
gzipped or not, or Parquet. What a file holds is anybody's text: DuckDB reads these files and
nothing else, and what is returned is matched or summed up, never run.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from spindown.control.parquet import open_fenced
from spindown.domain.month_bill import CostExport, CostKind, ExportLine, LineType
from spindown.error import BadInput, NotFound, printable
from spindown.port import ObjectStore, ObjectSummary

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_SUFFIXES = (".parquet", ".csv", ".csv.gz")
_MEMORY = "1GiB"
#: Lines of a month's fees end with it; those of usage are hours or days.
_LONGEST_LINE = timedelta(hours=25)
#: What no line of a bill has: of money in any currency, and of what was used, such as byte hours.
_COST_MAX, _AMOUNT_MAX = 1e15, 1e24
#: Of these DuckDB makes a pattern of paths, wherever they stand in one.
_OF_PATTERNS = frozenset("*?[")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """How a kind of export names what is read of it."""

    source: str
    start: str
    end: str
    cost: str
    amount: str
    resource: str
    usage_type: str
    service: str
    line_type: str
    tags: str
    currency: str


_FORMS = (
    _Form(
        source="CUR 2.0",
        start="line_item_usage_start_date",
        end="line_item_usage_end_date",
        cost="line_item_unblended_cost",
        amount="line_item_usage_amount",
        resource="line_item_resource_id",
        usage_type="line_item_usage_type",
        service="line_item_product_code",
        line_type="line_item_line_item_type",
        tags="resource_tags",
        currency="line_item_currency_code",
    ),
    _Form(
        source="FOCUS",
        start="ChargePeriodStart",
        end="ChargePeriodEnd",
        cost="BilledCost",
        amount="ConsumedQuantity",
        resource="ResourceId",
        usage_type="x_UsageType",
        service="x_ServiceCode",
        line_type="ChargeCategory",
        tags="Tags",
        currency="BillingCurrency",
    ),
)
#: What an export has only if it was asked for.
_MAY_LACK = frozenset({"currency", "service", "tags"})

#: Part of a usage type -> what is paid for. After a region's prefix: ``USW2-BoxUsage:g6.xlarge``.
_KINDS: Sequence[tuple[str, CostKind]] = (
    ("BoxUsage", CostKind.MACHINES),
    ("SpotUsage", CostKind.MACHINES),
    ("DedicatedUsage", CostKind.MACHINES),
    ("CPUCredits", CostKind.MACHINES),
    ("EBS:", CostKind.DISKS),
    ("PublicIPv4", CostKind.ADDRESSES),
    ("DataTransfer", CostKind.DATA),
    ("-Bytes", CostKind.DATA),
    ("NatGateway", CostKind.DATA),
    ("VpcEndpoint", CostKind.DATA),
)
#: Codes of the services of which the control plane is made.
_CONTROL = frozenset(
    {
        "AmazonCloudWatch",
        "AWSLambda",
        "AWSQueueService",
        "AmazonDynamoDB",
        "AmazonS3",
        "AmazonSNS",
        "AWSEvents",
        "AWSSystemsManager",
        "awskms",
    }
)
_INSTANCE = re.compile(r"\bi-[0-9a-f]{8,17}\b")
_TAG = re.compile(r"spindown[^a-z]([a-z-]+)$")


def find_export(store: ObjectStore, prefix: str, month: str) -> Sequence[ObjectSummary]:
    """Return the files of a month's export below a prefix; of several exports the newest.

    Data Exports writes them below ``data/BILLING_PERIOD=2026-11/`` (AWS Data Exports User Guide,
    "Understanding export delivery").

    Raises:
        NotFound: there is none.
    """
    every = [one for one in store.list(prefix) if one.key.endswith(_SUFFIXES)]
    partitioned = [one for one in every if "billing_period=" in one.key.lower()]
    found = [one for one in partitioned if f"billing_period={month}" in one.key.lower()]
    if not partitioned:
        found = every
    if not found:
        raise NotFound(f"no export of {month} below {prefix or 'the bucket'}")
    newest = max(found, key=lambda one: one.modified_at).key.rpartition("/")[0]
    return [one for one in found if one.key.rpartition("/")[0] == newest]


def export_files(path: Path) -> Sequence[Path]:
    """Return the files of an export: one file, or all below a folder.

    Raises:
        BadInput: there is none.
    """
    if path.is_dir():
        found = sorted(each for each in path.rglob("*") if each.name.endswith(_SUFFIXES))
    else:
        found = [path] if path.is_file() and path.name.endswith(_SUFFIXES) else []
    if not found:
        kinds = ", ".join(_SUFFIXES)
        raise BadInput("--export", str(path), f"name a file or a folder of files: {kinds}")
    return found


class _Ours(NamedTuple):
    """By what a line of an export is known as one that is asked for."""

    deployment: str
    workloads: frozenset[str]
    instances: frozenset[str]
    others: frozenset[str]


def read_export(
    files: Sequence[Path],
    *,
    start: datetime,
    end: datetime,
    deployment: str,
    workloads: Collection[str],
    instances: Collection[str],
    others: Collection[str] = (),
) -> CostExport:
    """Return what an export says of a deployment: by our tags, and by instances of our books.

    Args:
        files: all of one export, of one kind.
        start: first instant.
        end: last instant, not included.
        deployment: whose.
        workloads: its workloads.
        instances: ids of all instances that the books have.
        others: workloads of the deployment whose lines are left out.

    Raises:
        BadInput: not such an export, or it has nothing of that time.
    """
    import duckdb  # noqa: PLC0415 - heavy, and of an extra

    named = ", ".join(sorted({str(file.name) for file in files})[:3])
    try:
        with open_fenced((file.parent for file in files), memory_limit=_MEMORY) as database:
            form, columns = _open(database, files, named)
            tags = _tags_of(form, columns)
            return _read(
                database,
                form,
                tags,
                columns,
                named,
                span=(start, end),
                ours=_Ours(deployment, *map(frozenset, (workloads, instances, others))),
            )
    except duckdb.Error as exc:
        said = printable(" ".join(str(exc).split()))[:200]
        raise BadInput("--export", named, f"give a whole file of one kind: {said}") from exc


def _open(
    database: "DuckDBPyConnection", files: Sequence[Path], named: str
) -> tuple[_Form, Mapping[str, str]]:
    """Make the view ``lines`` of the files; return their form, and column -> its type."""
    paths = [str(file) for file in files]
    for path in paths:
        if not _OF_PATTERNS.isdisjoint(path):
            raise BadInput("--export", path, "rename it: * ? [ must not be in its path")
    if all(path.endswith(".parquet") for path in paths):
        relation = database.read_parquet(paths, union_by_name=True, filename=True)
    else:
        # Text as it is: a guess at types may differ from file to file.
        relation = database.from_query(
            "SELECT * FROM read_csv(?, all_varchar = true, union_by_name = true, header = true, "
            "filename = true)",
            params=[paths],
        )
    relation.create_view("lines")
    columns = dict(zip(relation.columns, map(str, relation.types), strict=True))
    for form in _FORMS:
        if form.cost in columns:
            wanted = {name: getattr(form, name) for name in form.__slots__ if name != "source"}
            lacking = sorted(
                column
                for name, column in wanted.items()
                if column not in columns and name not in _MAY_LACK
            )
            if lacking:
                remedy = f"let the export have the columns {', '.join(lacking)}"
                raise BadInput("--export", named, remedy)
            return form, columns
    remedy = "give a Cost and Usage Report 2.0 or a FOCUS export (AWS Data Exports)"
    raise BadInput("--export", named, remedy)


def _tags_of(form: _Form, columns: Mapping[str, str]) -> str:
    """Return the expression for a line's tags as JSON text; a query may have made them columns."""
    own = [name for name in columns if _tag_name(name)]
    parts = [f"{_literal(name)}, {_quoted(name)}" for name in own]
    if parts:
        return f"CAST(json_object({', '.join(parts)}) AS VARCHAR)"
    kind = columns.get(form.tags)
    if kind is None:
        return "''"
    column = _quoted(form.tags)
    return column if kind == "VARCHAR" else f"CAST(to_json({column}) AS VARCHAR)"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _tag_name(key: str) -> str:
    """Return the name of a tag of ours after ``spindown:``, however an export spells it; or "".

    ``user:spindown:workload``, ``user_spindown_workload``, ``resource_tags.user_spindown_...``.
    """
    match = _TAG.search(key.lower())
    return match[1].replace("_", "-") if match else ""


def _read(
    database: "DuckDBPyConnection",
    form: _Form,
    tags: str,
    columns: Mapping[str, str],
    named: str,
    *,
    span: tuple[datetime, datetime],
    ours: _Ours,
) -> CostExport:
    def text(name: str) -> str:
        column = getattr(form, name)
        return f"CAST({_quoted(column)} AS VARCHAR)" if column in columns else "''"

    def number(name: str) -> str:
        column = _quoted(getattr(form, name))
        # What is there and is no number must not pass for nothing.
        return (
            f"CASE WHEN CAST({column} AS VARCHAR) <> '' "
            f"THEN coalesce(TRY_CAST({column} AS DOUBLE), 'nan') END"
        )

    def instant(name: str) -> str:
        column = getattr(form, name)
        is_text = columns[column] == "VARCHAR"
        return (
            f"epoch({f'TRY_CAST({_quoted(column)} AS TIMESTAMP)' if is_text else _quoted(column)})"
        )

    start, end = (at.timestamp() for at in span)
    database.execute(
        f"CREATE TABLE found AS SELECT {instant('start')} AS begins, {instant('end')} AS ends, "  # noqa: S608 - names of columns, quoted
        f"{number('cost')} AS cost, {number('amount')} AS amount, {text('resource')} AS resource, "
        f"{text('usage_type')} AS usage, {text('service')} AS service, "
        f"{text('line_type')} AS line_type, {text('currency')} AS currency, {tags} AS tags, "
        "filename "
        f"FROM lines WHERE {instant('start')} < {end} AND {instant('end')} > {start}"
    )
    # DuckDB takes what is no number for larger than all numbers.
    odd = database.execute(
        "SELECT filename, cost, amount FROM found WHERE abs(cost) > ? OR abs(amount) > ? LIMIT 1",
        [_COST_MAX, _AMOUNT_MAX],
    ).fetchone()
    if odd:
        file, cost, amount = odd
        is_cost = cost is not None and not abs(cost) <= _COST_MAX
        column, value = (form.cost, cost) if is_cost else (form.amount, amount)
        remedy = f"give AWS's own file: no line of a bill has {value} as its {column}"
        raise BadInput("--export", str(file), remedy)
    (reach,) = database.execute(
        "SELECT min(begins), max(ends) FROM found WHERE ends - begins <= ? "
        "AND line_type ILIKE '%usage%'",
        [_LONGEST_LINE.total_seconds()],
    ).fetchall()
    if reach[0] is None or reach[1] is None:
        raise BadInput("--export", named, f"it has no usage of {span[0]:%Y-%m}: give one that has")
    begin, until = (datetime.fromtimestamp(at, UTC) for at in reach)
    grouped = database.execute(
        "SELECT resource, usage, service, line_type, currency, tags, sum(cost), sum(amount) "
        "FROM found WHERE begins < ? AND (contains(lower(tags), 'spindown') "
        "OR list_contains(?, regexp_extract(resource, 'i-[0-9a-f]{8,17}'))) GROUP BY ALL",
        [end, sorted(ours.instances)],
    ).fetchall()
    lines, seen, currencies = [], set(), set()
    for resource, usage, service, line_type, currency, tagged, cost, amount in grouped:
        known = _tags_in(tagged)
        seen |= set(known)
        if _is_ours(known, _instance_of(resource), ours):
            lines.append(_line(resource, usage, service, line_type, cost, amount))
            currencies.add(currency or "USD")
    if len(currencies) > 1:
        raise BadInput("--export", named, f"give one currency, not {', '.join(sorted(currencies))}")
    return CostExport(
        source=form.source,
        lines=tuple(lines),
        begin=begin,
        end=until,
        tags=frozenset(f"spindown:{name}" for name in seen),
        currency=printable(next(iter(currencies), "USD"))[:8],
    )


def _tags_in(text: str | None) -> dict[str, str]:
    """Return the tags of ours in a JSON text, by their names; what is no such text has none."""
    try:
        given: Any = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    # A map of Parquet may come as a list of pairs.
    pairs = _pairs(given)
    return {name: value for key, value in pairs if (name := _tag_name(key)) and value}


def _pairs(given: object) -> Iterator[tuple[str, str]]:
    if isinstance(given, dict):
        yield from ((key, value) for key, value in given.items() if isinstance(value, str))
    elif isinstance(given, list):
        for one in given:
            match one:
                case {"key": str(key), "value": str(value)}:
                    yield key, value


def _instance_of(resource: str | None) -> str:
    match = _INSTANCE.search(resource or "")
    return match[0] if match else ""


def _is_ours(tags: Mapping[str, str], instance: str, ours: _Ours) -> bool:
    if "deployment" in tags:
        return tags["deployment"] == ours.deployment and tags.get("workload") not in ours.others
    return instance in ours.instances or tags.get("workload") in ours.workloads


def _line(
    resource: str | None,
    usage: str | None,
    service: str | None,
    line_type: str | None,
    cost: float | None,
    amount: float | None,
) -> ExportLine:
    return ExportLine(
        kind=_kind_of(usage or "", service or ""),
        line_type=_type_of(line_type or ""),
        resource_id=_instance_of(resource) or printable(resource or ""),
        dollars=cost or 0.0,
        amount=amount or 0.0,
    )


def _kind_of(usage: str, service: str) -> CostKind:
    for part, kind in _KINDS:
        if part in usage:
            return kind
    return CostKind.CONTROL if service in _CONTROL else CostKind.OTHER


def _type_of(name: str) -> LineType:
    """Return what a line is, by CUR's types of line items or FOCUS's categories of charges."""
    if name == "Tax":
        return LineType.TAX
    if name in {"Credit", "Refund", "Adjustment"}:
        return LineType.CREDIT
    if name.endswith("Discount") or name == "SavingsPlanNegation":
        return LineType.DISCOUNT
    return LineType.USAGE
