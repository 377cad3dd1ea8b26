"""What AWS's own exports say of a deployment is found by tags and instances, and nothing else."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from spindown.domain.month_bill import CostExport, CostKind, LineType
from spindown.ec2sim import MemoryClock
from spindown.error import BadInput, NotFound
from spindown.memory import MemoryObjectStore
from spindown.operate.cost_export import export_files, find_export, read_export
from tests.cost_export import (
    CUR_COLUMNS,
    FOCUS_COLUMNS,
    Used,
    cur_row,
    focus_row,
    write_csv,
    write_parquet,
)

START = datetime(2026, 6, 1, tzinfo=UTC)
END = datetime(2026, 7, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
INSTANCE = "i-0123456789abcdef0"
OURS = {"spindown:deployment": "demo", "spindown:workload": "ocr"}

Make = Callable[[Path, Sequence[Used]], Path]


def cur_csv(folder: Path, lines: Sequence[Used]) -> Path:
    return write_csv(folder / "cur-00001.csv.gz", CUR_COLUMNS, [cur_row(x) for x in lines])


def cur_parquet(folder: Path, lines: Sequence[Used]) -> Path:
    path = folder / "cur-00001.snappy.parquet"
    return write_parquet(path, CUR_COLUMNS, [cur_row(line) for line in lines])


def focus_csv(folder: Path, lines: Sequence[Used]) -> Path:
    return write_csv(folder / "focus.csv", FOCUS_COLUMNS, [focus_row(x) for x in lines])


def focus_parquet(folder: Path, lines: Sequence[Used]) -> Path:
    path = folder / "focus.parquet"
    return write_parquet(path, FOCUS_COLUMNS, [focus_row(line) for line in lines])


def read(*files: Path, **asked: Any) -> CostExport:
    return read_export(
        files,
        start=START,
        end=END,
        deployment="demo",
        workloads=["ocr"],
        instances=[INSTANCE],
        **asked,
    )


def a_month() -> list[Used]:
    at = START + 5 * HOUR
    return [
        Used(at=at, dollars=0.20, amount=1.0, resource=INSTANCE, tags=OURS),
        Used(at=at + HOUR, dollars=0.05, amount=0.25, resource=INSTANCE, tags=OURS),
        Used(
            at=at,
            dollars=0.01,
            amount=0.1,
            resource="vol-1",
            usage_type="USW2-EBS:VolumeUsage.gp3",
            tags=OURS,
        ),
        Used(
            at=at,
            dollars=0.005,
            amount=1.0,
            resource="eni-1",
            usage_type="USW2-PublicIPv4:InUseAddress",
            tags=OURS,
        ),
        Used(
            at=at,
            dollars=0.002,
            amount=9.0,
            resource="demo--scaler",
            usage_type="USW2-Lambda-GB-Second-ARM",
            service="AWSLambda",
            tags=OURS,
        ),
        # Somebody else's.
        Used(at=at + 9 * HOUR, dollars=7.0, amount=1.0, resource="i-0fedcba9876543210"),
        Used(at=at, dollars=9.0, amount=1.0, tags={"spindown:deployment": "other"}),
    ]


@pytest.mark.parametrize("make", [cur_csv, cur_parquet, focus_csv, focus_parquet])
def test_an_export_gives_what_is_ours_by_kind(tmp_path: Path, make: Make) -> None:
    found = read(make(tmp_path, a_month()))

    sums: dict[CostKind, float] = {}
    for line in found.lines:
        sums[line.kind] = sums.get(line.kind, 0.0) + line.dollars
    assert sums == pytest.approx(
        {
            CostKind.MACHINES: 0.25,
            CostKind.DISKS: 0.01,
            CostKind.ADDRESSES: 0.005,
            CostKind.CONTROL: 0.002,
        }
    )
    (machine,) = (line for line in found.lines if line.kind is CostKind.MACHINES)
    assert (machine.resource_id, machine.amount) == (INSTANCE, 1.25)
    assert (found.begin, found.end) == (START + 5 * HOUR, START + 15 * HOUR)
    assert found.tags == {"spindown:deployment", "spindown:workload"}


@pytest.mark.parametrize(("others", "dollars"), [((), 0.75), (("train",), 0.25)])
def test_one_workload_is_compared_with_its_own_lines(
    tmp_path: Path, others: tuple[str, ...], dollars: float
) -> None:
    other = {**OURS, "spindown:workload": "train"}
    lines = [
        Used(at=START, dollars=0.25, amount=1.0, resource=INSTANCE, tags=OURS),
        Used(at=START, dollars=0.5, amount=1.0, resource="i-0fedcba9876543210", tags=other),
    ]

    found = read(cur_csv(tmp_path, lines), others=others)

    assert sum(line.dollars for line in found.lines) == pytest.approx(dollars)


def test_without_tags_instances_are_known_by_their_ids(tmp_path: Path) -> None:
    line = Used(at=START, dollars=0.20, amount=1.0, resource=INSTANCE)
    other = Used(at=START, dollars=0.20, amount=1.0, resource="i-0fedcba9876543210")

    found = read(cur_csv(tmp_path, [line, other]))

    assert [one.resource_id for one in found.lines] == [INSTANCE]
    assert found.tags == frozenset()


def test_a_query_may_have_made_tags_columns(tmp_path: Path) -> None:
    name = "resource_tags_user_spindown_deployment"
    row: Mapping[str, str] = {
        **cur_row(Used(at=START, dollars=0.2, amount=1.0, resource="vol-1")),
        name: "demo",
    }
    path = write_csv(tmp_path / "cur.csv", (*CUR_COLUMNS, name), [row])

    (line,) = read(path).lines

    assert line.resource_id == "vol-1"


@pytest.mark.parametrize(
    ("named", "kind"),
    [
        ("Tax", LineType.TAX),
        ("Credit", LineType.CREDIT),
        ("Refund", LineType.CREDIT),
        ("EdpDiscount", LineType.DISCOUNT),
        ("SavingsPlanNegation", LineType.DISCOUNT),
        ("DiscountedUsage", LineType.USAGE),
    ],
)
def test_lines_that_are_no_usage_are_told_apart(tmp_path: Path, named: str, kind: LineType) -> None:
    usage = Used(at=START, dollars=0.2, amount=1.0, resource=INSTANCE, tags=OURS)
    other = Used(at=START, dollars=-0.1, amount=0.0, tags=OURS, line_type=named)

    found = read(cur_csv(tmp_path, [usage, other]))

    assert {line.line_type for line in found.lines} == {LineType.USAGE, kind}


def test_a_fee_of_the_whole_month_is_not_how_far_it_reaches(tmp_path: Path) -> None:
    usage = Used(at=START, dollars=0.2, amount=1.0, resource=INSTANCE)
    fee = Used(at=START, dollars=3.0, amount=1.0, length=timedelta(days=30))

    assert read(cur_csv(tmp_path, [usage, fee])).end == START + HOUR


def test_several_files_are_one_export(tmp_path: Path) -> None:
    lines = a_month()
    first = write_csv(tmp_path / "a.csv", CUR_COLUMNS, [cur_row(line) for line in lines[:1]])
    write_csv(tmp_path / "b.csv", CUR_COLUMNS, [cur_row(line) for line in lines[1:]])

    files = export_files(tmp_path)

    assert len(files) == 2
    assert sum(x.dollars for x in read(*files).lines) > sum(x.dollars for x in read(first).lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "give a Cost and Usage Report 2.0 or a FOCUS export"),
        ("BilledCost,Tags\n1,{}\n", "let the export have the columns"),
        ("", "give"),
    ],
)
def test_another_file_is_refused_in_a_sentence(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "other.csv"
    path.write_text(text)

    with pytest.raises(BadInput, match=said):
        read(path)


def test_a_file_that_is_no_parquet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    path.write_bytes(b"\x1b[31mno")

    with pytest.raises(BadInput) as refused:
        read(path)

    assert "\x1b" not in str(refused.value)


def test_an_export_of_another_month_is_refused(tmp_path: Path) -> None:
    line = Used(at=END + HOUR, dollars=0.2, amount=1.0, resource=INSTANCE)

    with pytest.raises(BadInput, match="2026-06"):
        read(cur_csv(tmp_path, [line]))


def test_what_tags_and_resources_say_is_never_run(tmp_path: Path) -> None:
    hostile = {"spindown:deployment": "demo", "spindown:workload": "'); DROP TABLE found; --"}
    line = Used(at=START, dollars=0.2, amount=1.0, resource="\x1b[2J<b>", tags=hostile)

    (found,) = read(cur_csv(tmp_path, [line])).lines

    assert found.resource_id == "\\x1b[2J<b>"


def an_export(folder: Path, name: str = "cur.csv", **columns: str) -> Path:
    line = Used(at=START, dollars=0.2, amount=1.0, resource=INSTANCE)
    return write_csv(folder / name, CUR_COLUMNS, [{**cur_row(line), **columns}])


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e308", "1e999", "=1+1"])
@pytest.mark.parametrize("column", ["line_item_unblended_cost", "line_item_usage_amount"])
def test_a_number_of_no_bill_is_told_with_its_place(
    tmp_path: Path, column: str, value: str
) -> None:
    whole, odd = an_export(tmp_path), an_export(tmp_path, "odd.csv", **{column: value})

    with pytest.raises(BadInput, match=rf"odd\.csv.*{column}"):
        read(whole, odd)


@pytest.mark.parametrize("name", ["a*.csv", "a?.csv", "[ab].csv"])
def test_a_file_whose_name_is_a_pattern_is_refused(tmp_path: Path, name: str) -> None:
    an_export(tmp_path, "ab.csv")

    with pytest.raises(BadInput, match="rename it"):
        read(an_export(tmp_path, name))


def test_tags_that_are_nested_without_end_are_none(tmp_path: Path) -> None:
    tags = '{"user_spindown_workload":' + "[" * 100_000

    export = read(an_export(tmp_path, resource_tags=tags))

    assert export.tags == frozenset()
    assert len(export.lines) == 1


def test_the_newest_export_of_the_month_is_taken() -> None:
    clock = MemoryClock(END)
    store = MemoryObjectStore(clock)
    for folder in ("a", "b"):
        for month in ("2026-05", "2026-06"):
            store.put(f"x/data/BILLING_PERIOD={month}/{folder}/1.csv.gz", b"")
            clock.advance(HOUR)
    store.put("x/metadata/BILLING_PERIOD=2026-06/x-Manifest.json", b"{}")

    (found,) = find_export(store, "x/", "2026-06")

    assert found.key == "x/data/BILLING_PERIOD=2026-06/b/1.csv.gz"
    with pytest.raises(NotFound):
        find_export(store, "x/", "2026-07")


def test_a_folder_without_an_export_is_told(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"\.parquet"):
        export_files(tmp_path)
