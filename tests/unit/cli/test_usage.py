"""What `usage` answers: by type, by SQL, as a plot; and what hostile records cannot do by it."""

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from rich.console import Console

from spindown.cli.explain.usage import (
    _BY_TYPE,
    _POINTS,
    QueryAnswer,
    _plain,
    asking,
    render_answer,
    render_types,
    run_query,
    say_none,
    to_json,
)
from spindown.cli.explain.usage_plot import draw_usage
from spindown.contract.usage import (
    UsageSeries,
    done_key,
    encode_usage,
    measured_key,
    measured_prefix,
    table_key,
)
from spindown.contract.usage_table import to_row
from spindown.control.parquet import encode_table
from spindown.control.usage import compact
from spindown.error import BadInput
from spindown.memory.interception import PortCall, intercept
from spindown.operate.usage import fetch_usage
from tests.builders import NOW, a_usage_record
from tests.control import WORKLOAD, ControlWorld

HOSTILE = "x'); DROP VIEW usage; --\x1b[2J[bold]"
RECORD = a_usage_record(
    workload=WORKLOAD,
    started_at=NOW - timedelta(days=1),
    seconds=100.0,
    vcpus=4.0,
    memory_gib=16.0,
    asked_vcpus=2.0,
    cpu_mean=1.0,
    cpu_p95=1.5,
    cpu_max=2.0,
    memory_mean=2.0,
    memory_p95=3.0,
    memory_max=4.0,
    series=UsageSeries(at=(0.0, 1.0), cpu=(0.5, 1.0)),
)


@pytest.fixture
def world() -> ControlWorld:
    """Return a world with a day in a table and a day that is not over."""
    world = ControlWorld()
    today = NOW.date()
    yesterday = today - timedelta(days=1)
    keep(world, yesterday, RECORD, replace(RECORD, job_id="b", type="scan", gpu_mean=50.0))
    compact(WORKLOAD, yesterday, world.objects)
    keep(world, today, replace(RECORD, job_id=HOSTILE, seconds=300.0, cpu_mean=3.0, cpu_max=3.5))
    return world


def keep(world: ControlWorld, day: date, *records: Any) -> None:
    for number, record in enumerate(records):
        key = measured_key(replace(record, job_id=f"j{number}"), day)
        world.objects.put(key, encode_usage([record]))


def ask(world: ControlWorld, folder: Path, sql: str, type_: str | None = None) -> QueryAnswer:
    files = fetch_usage(
        WORKLOAD,
        world.objects,
        folder,
        since=NOW - timedelta(days=7),
        until=NOW,
        type_=type_,
    )
    with asking(files) as connection:
        return run_query(connection, sql)


def shown(parts: Any) -> str:
    console = Console(width=200, record=True, force_terminal=False)
    for part in parts:
        console.print(part)
    return console.export_text()


def test_each_type_has_a_row(world: ControlWorld, tmp_path: Path) -> None:
    records = ask(world, tmp_path, _BY_TYPE).records

    assert [(row["type"], row["jobs"]) for row in records] == [(WORKLOAD, 2), ("scan", 1)]
    first = records[0]
    assert first["workload"] == WORKLOAD
    assert first["cpu_mean"] == pytest.approx((100 * 1.0 + 300 * 3.0) / 400)
    assert (first["cpu_max"], first["memory_max"], first["asked_vcpus"]) == (3.5, 4.0, 2.0)
    assert (first["gpu_mean"], records[1]["gpu_mean"]) == (None, 50.0)


def test_attempts_of_no_time_have_no_mean(tmp_path: Path) -> None:
    world = ControlWorld()
    keep(world, NOW.date(), replace(RECORD, started_at=NOW, seconds=0.0))
    answer = ask(world, tmp_path, _BY_TYPE)

    assert [row["cpu_mean"] for row in answer.records] == [None]
    assert "nan" not in shown(render_types(answer)).lower()


def test_types_that_are_declared_have_files_of_their_own_today(tmp_path: Path) -> None:
    world = ControlWorld()
    made_up = [replace(RECORD, job_id=f"x{number}", type=f"x{number}") for number in range(110)]
    # The last that is read, as names sort: more types than have a file each come before.
    keep(world, NOW.date(), *made_up[:99], replace(RECORD, type="scan"), *made_up[99:])

    def files(declared: list[str]) -> int:
        return len(
            fetch_usage(
                WORKLOAD,
                world.objects,
                tmp_path,
                since=NOW,
                until=NOW,
                type_="scan",
                declared=declared,
            )
        )

    assert (files([]), files(["scan"])) == (0, 1)


def test_days_that_are_not_over_are_read_one_at_a_time(tmp_path: Path) -> None:
    world = ControlWorld()
    for back in range(3):
        keep(world, NOW.date() - timedelta(days=back), RECORD)
    first = measured_prefix(WORKLOAD, NOW.date() - timedelta(days=2))
    another, met = Event(), list[bool]()

    def wait_for_another(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "get" and call.args[0].startswith(first):
            met.append(another.wait(0.2))
        elif call.method == "get":
            another.set()
        return proceed()

    store = intercept(world.objects, "objects", wait_for_another)
    since = NOW - timedelta(days=2)

    assert len(fetch_usage(WORKLOAD, store, tmp_path, since=since, until=NOW)) == 3
    assert met == [False]


def test_a_query_without_a_query_is_told(world: ControlWorld, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="write a query"):
        ask(world, tmp_path, "-- nothing")


def test_keys_of_any_type_become_texts(world: ControlWorld, tmp_path: Path) -> None:
    sql = "SELECT MAP {DATE '2026-01-02': [MAP {1.5: 'x'}]} AS m"
    answer = ask(world, tmp_path, sql)

    told = json.loads(to_json(answer))

    assert told == [{"m": {"2026-01-02": [{"1.5": "x"}]}}]


def test_a_number_that_is_none_is_null_in_json(world: ControlWorld, tmp_path: Path) -> None:
    answer = ask(world, tmp_path, "SELECT 'nan'::DOUBLE AS a, [1e308 * 10, 1.5] AS b")

    assert to_json(answer) == '[{"a": null, "b": [null, 1.5]}]'


def test_a_type_without_records_is_told_with_those_there_are() -> None:
    assert "scan" not in say_none(None, {WORKLOAD: ["scan"]}, 14)
    assert f"types are {WORKLOAD}, scan" in say_none("scna", {WORKLOAD: ["scan"]}, 14)


def test_what_was_asked_for_stands_beside_what_was_given(tmp_path: Path) -> None:
    world = ControlWorld()
    asked = replace(RECORD, started_at=NOW, type="scan", asked_memory_gib=6.0, shape="c2m8")
    keep(
        world,
        NOW.date(),
        asked,
        # It ran out of memory, and was sent with more.
        replace(asked, epoch=asked.epoch + 1, asked_memory_gib=16.0, shape="c2m16"),
        replace(asked, job_id="p", type="plain"),
    )

    answer = ask(world, tmp_path, _BY_TYPE)
    found = {row["type"]: row for row in answer.records}

    assert (found["scan"]["asked_memory_gib"], found["scan"]["shapes"]) == (6.0, ["c2m16", "c2m8"])
    said = shown(render_types(answer))
    assert "6, given 8 to 16" in said
    assert said.count(", given ") == 1


@pytest.mark.parametrize("zone", ["America/Los_Angeles", "Asia/Tokyo"])
def test_a_query_s_clock_is_that_of_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    """Whatever the time zone of the machine: by itself DuckDB reads instants as of there."""
    world, now = ControlWorld(), datetime.now(UTC)
    ages = [timedelta(minutes=30), timedelta(hours=5)]
    rows = [to_row(replace(RECORD, started_at=now - age)) for age in ages]
    world.objects.put(table_key(WORKLOAD, NOW.date(), WORKLOAD), encode_table(rows))
    world.objects.put(done_key(WORKLOAD, NOW.date()), b"")
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        sql = "SELECT count(*) FROM usage WHERE started_at > now() - INTERVAL 1 HOUR"
        assert ask(world, tmp_path, sql).rows == [(1,)]
        ((told,),) = ask(world, tmp_path, "SELECT now()").rows
    finally:
        monkeypatch.undo()
        time.tzset()
    assert told.utcoffset() == timedelta(0)
    assert abs(told - datetime.now(UTC)) < timedelta(minutes=10)


@pytest.mark.parametrize("name", ["epoch", "infinity", "today", "2026-11-29", "001", "null"])
def test_a_type_is_a_text_whatever_it_looks_like(tmp_path: Path, name: str) -> None:
    world = ControlWorld()
    keep(world, NOW.date(), replace(RECORD, type=name))

    answer = ask(world, tmp_path, "SELECT type, day FROM usage WHERE type LIKE '%'")

    assert answer.rows == [(name, NOW.date())]


def test_a_column_that_is_named_twice_is_told_twice(world: ControlWorld, tmp_path: Path) -> None:
    answer = ask(world, tmp_path, "SELECT 1 AS a, 2 AS a, 3 AS a_2")

    assert json.loads(to_json(answer)) == [{"a": 1, "a_2": 2, "a_2_2": 3}]


def test_one_type_alone_is_read(world: ControlWorld, tmp_path: Path) -> None:
    (row,) = ask(world, tmp_path, _BY_TYPE, type_="scan").records

    assert row["type"] == "scan"
    assert [path.parent.name for path in tmp_path.rglob("*.parquet")] == ["type=scan"]


def test_any_query_is_answered(world: ControlWorld, tmp_path: Path) -> None:
    sql = "SELECT day, count(*) AS n, max(series->>'$.cpu[1]') FROM usage GROUP BY day ORDER BY day"

    found = ask(world, tmp_path, sql)

    assert [row[1:] for row in found.rows] == [(2, "1.0"), (1, "1.0")]
    assert json.loads(json.dumps(found.records, default=_plain))[0]["n"] == 2


def test_a_wrong_query_is_told_in_one_sentence(world: ControlWorld, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as caught:
        ask(world, tmp_path, "SELECT nothing FROM usage")

    assert "\n" not in str(caught.value)


def test_what_a_worker_wrote_is_no_sql_no_path_no_escape(
    world: ControlWorld, tmp_path: Path
) -> None:
    folder = tmp_path / "in 'quotes"
    said = shown(render_answer(ask(world, folder, "SELECT DISTINCT job_id FROM usage")))

    assert "DROP VIEW usage" in said
    assert "[bold]" in said
    assert "\x1b" not in said
    inside = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    assert all(path.name == "usage.parquet" for path in inside)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('{}/secret')",
        "SELECT * FROM read_csv('{}/secret')",
        "SELECT * FROM glob('{}/*')",
        "COPY usage TO '{}/copied.csv'",
        "SELECT 1; EXPORT DATABASE '{}/exported'",
        "ATTACH '{}/attached.db'",
        "LOAD '{}/secret'",
        "INSTALL httpfs FROM '{}'",
        "SET allowed_directories = ['{}']",
        "RESET allowed_directories",
        "SET enable_external_access = true",
        "SET home_directory = '{}'",
        "SELECT * FROM read_csv('.tmp/secret')",
        "COPY usage TO '.tmp/copied.csv'",
    ],
)
def test_a_stranger_s_query_reaches_no_file(
    world: ControlWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    (tmp_path / "secret").write_text("key")
    # Where DuckDB spills what its memory does not hold, if it is told nothing else.
    at_work = tmp_path / "tables" / "at work"
    (at_work / ".tmp").mkdir(parents=True)
    (at_work / ".tmp" / "secret").write_text("key")
    monkeypatch.chdir(at_work)

    with pytest.raises(BadInput):
        ask(world, tmp_path / "tables", sql.format(tmp_path))

    assert {path.name for path in tmp_path.iterdir()} == {"secret", "tables"}
    assert {path.name for path in (at_work / ".tmp").iterdir()} == {"secret"}


def test_without_a_gpu_a_table_has_no_column_of_one(world: ControlWorld, tmp_path: Path) -> None:
    assert "GPU" in shown(render_types(ask(world, tmp_path / "a", _BY_TYPE)))
    only = ask(world, tmp_path / "b", _BY_TYPE, type_=WORKLOAD)
    assert "GPU" not in shown(render_types(only))


def test_long_answers_are_cut_on_a_screen_alone() -> None:
    answer = QueryAnswer(("n",), [(number,) for number in range(1200)])

    said = shown(render_answer(answer))

    assert "200 more rows" in said
    assert len(answer.records) == 1200


def test_values_of_all_kinds_are_json() -> None:
    at = datetime(2026, 3, 9, tzinfo=UTC)

    assert json.loads(json.dumps([at, at.date()], default=_plain)) == [
        "2026-03-09T00:00:00+00:00",
        "2026-03-09",
    ]


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_a_plot_is_drawn_and_told(
    world: ControlWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    path = tmp_path / f"usage{suffix}"

    draw_usage(ask(world, tmp_path / "data", _POINTS).records, path)

    assert path.stat().st_size > 5000
    assert capsys.readouterr().err == f"spindown: the plot is in {path}\n"


def test_a_plot_that_cannot_be_written_is_refused(world: ControlWorld, tmp_path: Path) -> None:
    records = ask(world, tmp_path / "data", _POINTS).records
    for path in (tmp_path / "usage", tmp_path / "nowhere" / "usage.png"):
        with pytest.raises(BadInput):
            draw_usage(records, path)
    with pytest.raises(BadInput):
        draw_usage([], tmp_path / "usage.png")


def test_the_queries_of_the_page_are_answered(world: ControlWorld, tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "usage.md").read_text(encoding="utf-8")
    queries = re.findall(r'^spindown usage --sql "(.+)"$', page, re.MULTILINE)

    answers = [
        ask(world, tmp_path / str(number), sql.replace('\\"', '"').replace("j-1", "b"))
        for number, sql in enumerate(queries)
    ]

    assert [bool(answer.rows) for answer in answers] == [True, False, True]
    assert answers[-1].rows == [(0.0, 0.5), (1.0, 1.0)]
