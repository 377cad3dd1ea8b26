"""``spindown usage``: what jobs have used, by type, by SQL, or as a plot."""

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import chain, count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from spindown.cli import option
from spindown.cli.render.saving import AT_WORK
from spindown.cli.render.screen import print_parts
from spindown.cli.render.table import make_table
from spindown.cli.session import open_session
from spindown.control.parquet import open_fenced, quote_texts
from spindown.control.policy_edit import current_policy
from spindown.domain.shape import parse_shape, size_up
from spindown.error import BadInput, printable
from spindown.installed import require
from spindown.operate.usage import fetch_usage
from spindown.reason_text import say_days, say_number

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

#: Rows of an answer that a screen shows.
_ROWS_SHOWN = 1000
#: One row a type: what was used at the most is the most of any attempt; means are over time. What a
#: job asked for is what its first attempt did: one that ran out of memory is sent with more.
_BY_TYPE = """
WITH job AS (
    SELECT workload, type, job_id,
           first(asked_vcpus ORDER BY epoch) AS vcpus,
           first(asked_memory_gib ORDER BY epoch) AS memory_gib,
           first(asked_vram_gib ORDER BY epoch) AS vram_gib
    FROM usage GROUP BY workload, type, job_id
), asked AS (
    SELECT workload, type,
           min(vcpus) AS asked_vcpus_least, max(vcpus) AS asked_vcpus,
           min(memory_gib) AS asked_memory_gib_least, max(memory_gib) AS asked_memory_gib,
           min(vram_gib) AS asked_vram_gib_least, max(vram_gib) AS asked_vram_gib
    FROM job GROUP BY workload, type
), used AS (
SELECT workload, type,
       count(DISTINCT job_id) AS jobs,
       sum(seconds) / 3600 AS hours,
       sum(dollars) AS dollars,
       sum(cpu_mean * seconds) / nullif(sum(seconds) FILTER (cpu_mean IS NOT NULL), 0) AS cpu_mean,
       quantile_cont(cpu_p95, 0.95) AS cpu_p95,
       max(cpu_max) AS cpu_max,
       max(vcpus) AS vcpus,
       sum(memory_mean * seconds) / nullif(sum(seconds) FILTER (memory_mean IS NOT NULL), 0)
           AS memory_mean,
       quantile_cont(memory_p95, 0.95) AS memory_p95,
       max(memory_max) AS memory_max,
       max(memory_gib) AS memory_gib,
       sum(gpu_mean * seconds) / nullif(sum(seconds) FILTER (gpu_mean IS NOT NULL), 0) AS gpu_mean,
       max(vram_max) AS vram_max,
       max(vram_gib) AS vram_gib,
       list_sort(list(DISTINCT shape)) AS shapes
FROM usage
GROUP BY workload, type
)
SELECT * FROM used JOIN asked USING (workload, type) ORDER BY dollars DESC, workload, type
"""
_POINTS = """
SELECT started_at, cpu_p95, vcpus, asked_vcpus, memory_max, memory_gib, asked_memory_gib,
       gpu_mean, vram_max, vram_gib
FROM usage ORDER BY started_at
"""


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """What a query gives: names of columns, and rows."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]

    @property
    def records(self) -> list[dict[str, Any]]:
        """Return the rows with their names."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def usage(  # noqa: PLR0913 - its options
    workloads: option.Workloads = None,
    *,
    type_: Annotated[str | None, typer.Option("--type", help="Only jobs of this type.")] = None,
    days: Annotated[int, typer.Option(min=1, max=400, help="Days of history that count.")] = 14,
    sql: Annotated[
        str | None, typer.Option(help="Ask this instead; the table is called usage.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw it into this file (.png, .svg or .pdf).")
    ] = None,
    config: option.ConfigFile = option.CONFIG_FILE,
    deployment: option.Deployment = None,
    local: option.Local = False,
    as_json: option.Json = False,
) -> None:
    """Show what jobs have used, by type, by SQL, or as a plot. Changes nothing."""
    require("usage")
    if plot is not None:
        require("plot")
    session = open_session(config, deployment=deployment, local=local)
    for name in workloads or ():
        session.workload(name)
    ports = session.control_ports()
    now = ports.clock.now()
    types = {
        name: [each.name for each in current_policy(name, ports)[1].types]
        for name in workloads or session.deployment.workloads
    }
    with TemporaryDirectory(prefix="spindown-usage-") as folder:
        with session.told_if_slow():
            files = [
                file
                for name, declared in types.items()
                for file in fetch_usage(
                    name,
                    ports.objects,
                    Path(folder),
                    since=now - timedelta(days=days),
                    until=now,
                    type_=type_,
                    declared=declared,
                )
            ]
        if not files:
            print("[]" if as_json else say_none(type_, types, days))
            return
        with asking(files) as ask:
            answer = run_query(ask, sql or _BY_TYPE)
            points = run_query(ask, _POINTS) if plot is not None else None
    if plot is not None and points is not None:
        from spindown.cli.explain.usage_plot import draw_usage  # noqa: PLC0415 - loads the library

        draw_usage(points.records, plot)
    if as_json:
        print(to_json(answer))
        return
    print_parts(render_answer(answer) if sql else render_types(answer))


def say_none(type_: str | None, declared: Mapping[str, Collection[str]], days: int) -> str:
    """Return that there are no records, and which types there are if one was asked for.

    Args:
        type_: the one that was asked for; None: all.
        declared: workload -> its types; a job without one has the workload's name.
        days: of history.
    """
    if type_ is None:
        return f"No job has left a record in {say_days(days)}."
    known = ", ".join(sorted({*declared, *(name for names in declared.values() for name in names)}))
    return f"No job of type {type_} has left a record in {say_days(days)}; types are {known}."


@contextmanager
def asking(files: Sequence[Path]) -> "Iterator[DuckDBPyConnection]":
    """Give a connection to a database in memory that has the table ``usage`` of some files.

    What is asked there may be a stranger's text: it reads nothing but these files.
    """
    with open_fenced(file.parent for file in files) as connection:
        # Else DuckDB guesses types of partitions by all values: of a type "epoch" a date.
        connection.execute(
            f"CREATE VIEW usage AS FROM read_parquet({quote_texts(map(str, files))},"
            " union_by_name = true, hive_partitioning = true,"
            " hive_types = {'workload': VARCHAR, 'type': VARCHAR, 'day': DATE})"
        )
        yield connection


def run_query(connection: "DuckDBPyConnection", sql: str) -> QueryAnswer:
    """Return what a query gives (raises BadInput, with what DuckDB says of it)."""
    import duckdb  # noqa: PLC0415 - heavy, and only for this command

    try:
        # Of a comment alone there is none, whatever the types say.
        asked: Any = connection.execute(sql)
        if asked is None:
            raise BadInput("--sql", sql[:100], "write a query, such as SELECT * FROM usage")
        names = [one[0] for one in asked.description or ()]
        return QueryAnswer(tuple(_told_apart(names)), asked.fetchall())
    except duckdb.Error as exc:
        said = printable(" ".join(str(exc).split()))[:300]
        raise BadInput("--sql", sql[:100], f"correct it; DuckDB says: {said}") from exc


def _told_apart(names: Sequence[str]) -> list[str]:
    """Return names of columns, of which SQL may repeat one: ``a``, ``a_2``."""
    told = list[str]()
    for name in names:
        numbered = (f"{name}_{number}" for number in count(2))
        told.append(next(one for one in chain([name], numbered) if one not in told))
    return told


def render_types(answer: QueryAnswer) -> Iterator[RenderableType]:
    """Yield the table of types: used on average, p95 and at the most, of what there was."""
    numbers = ("jobs", "hours", "USD", "cores", "of", "asked", "memory GiB", "of", "asked")
    table = make_table("workload", "type", numbers=numbers)
    records = answer.records
    has_gpu = any(row["gpu_mean"] is not None or row["vram_max"] is not None for row in records)
    for name in ("GPU %", "VRAM GiB", "of", "asked") if has_gpu else ():
        table.add_column(name, justify="right")
    is_given = False
    for row in records:
        cells = [
            *(_cell(row[name]) for name in ("workload", "type", "jobs", "hours", "dollars")),
            _spread(row, "cpu"),
            _cell(row["vcpus"]),
            asked := _say_asked(row, "asked_vcpus", "vcpus"),
            _spread(row, "memory"),
            _cell(row["memory_gib"]),
            asked_memory := _say_asked(row, "asked_memory_gib", "memory_gib"),
        ]
        asked_vram = _say_asked(row, "asked_vram_gib", "gpu_memory_gib")
        gpu = [*(_cell(row[name]) for name in ("gpu_mean", "vram_max", "vram_gib")), asked_vram]
        table.add_row(*cells, *(gpu if has_gpu else ()))
        is_given |= any(_GIVEN in one.plain for one in (asked, asked_memory, asked_vram))
    yield table
    yield f"USD: {AT_WORK}."
    yield "Cores and memory that jobs used: on average / 95th percentile / at the most."
    yield "of: what there was, the share of one slot of the machine."
    yield "asked: what the message, the type or the requirements ask for" + (
        "; given: as learned (`spindown rightsize`), or with more after memory ran out."
        if is_given
        else "."
    )


def render_answer(answer: QueryAnswer) -> Iterator[RenderableType]:
    """Yield any answer as a table."""
    table = make_table(*(printable(name) for name in answer.columns))
    for row in answer.rows[:_ROWS_SHOWN]:
        table.add_row(*(_cell(value) for value in row))
    yield table
    if len(answer.rows) > _ROWS_SHOWN:
        yield f"{len(answer.rows) - _ROWS_SHOWN:,} more rows; --json prints all."


_GIVEN = ", given "


def _say_asked(row: dict[str, Any], asked: str, need: str) -> Text:
    """Return what jobs asked for, and what they were given where that is other than it."""
    least, most = row[f"{asked}_least"], row[asked]
    if most is None:
        return _cell(None)
    said = _say_range(least, most)
    shapes = (parse_shape(str(name)) for name in row["shapes"])
    sizes = {size for shape in shapes if shape and (size := getattr(shape, need))}
    # Sizes of machines are on a scale, to which what is asked for is rounded up.
    if sizes and not size_up(need, least) <= min(sizes) <= max(sizes) <= size_up(need, most):
        said += f"{_GIVEN}{_say_range(min(sizes), max(sizes))}"
    return Text(said)


def _say_range(least: float, most: float) -> str:
    shown = [say_number(number, 3) for number in (least, most)]
    return shown[0] if shown[0] == shown[1] else " to ".join(shown)


def _spread(row: dict[str, Any], what: str) -> Text:
    return Text(" / ").join(_cell(row[f"{what}_{how}"]) for how in ("mean", "p95", "max"))


def _cell(value: object) -> Text:
    """Return a value that a worker may have written, as no terminal obeys it."""
    if value is None:
        return Text("-")
    if isinstance(value, float | Decimal):
        return Text(say_number(float(value), 3))
    # No string, whose brackets would be markup.
    return Text(printable(str(value)))


def to_json(answer: QueryAnswer) -> str:
    """Return the rows of an answer as JSON."""
    return json.dumps(_as_json(answer.records), default=_plain)


def _as_json(value: object) -> object:
    """Return a value as JSON has it: DuckDB's keys may be of any type, and a number no number."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(_plain(key)): _as_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(inner) for inner in value]
    return value


def _plain(value: object) -> object:
    if isinstance(value, datetime | date):
        return value.isoformat()
    return float(value) if isinstance(value, Decimal) else str(value)
