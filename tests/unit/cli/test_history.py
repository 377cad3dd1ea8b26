"""What files of past traffic are read as, and what is said of those that are wrong."""

import gzip
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from spindown.cli.history.arrival import (
    JobShape,
    check_span,
    generate,
    keep_last,
    read_arrivals,
    read_queue,
)
from spindown.cli.history.gather import (
    SimulatedWorkload,
    gather,
    read_subject,
    with_knowledge,
)
from spindown.cli.history.option import SimulationOptions
from spindown.domain.learning import Knowledge
from spindown.error import BadInput
from spindown.memory import MemoryTrafficHistory
from spindown.port import Sent
from spindown.simulator import BOOTS, Arrival, fit_boot
from tests.builders import job_sizes
from tests.unit.cli.history import HOUR, MONDAY, a_file

SHAPE = JobShape(items=40.0, item_seconds=3.0, source="assumed")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param(
            "t.csv",
            "timestamp,items,item_seconds\n2026-06-01T09:30:00Z,10,2.5\n2026-06-01T10:00:00Z,,\n",
            id="ISO of UTC",
        ),
        pytest.param(
            "t.csv",
            "\ufeffitems,timestamp,item_seconds\r\n10,2026-06-01 11:30:00+02:00,2.5\r\n"
            ",2026-06-01T10:00:00,\r\n",
            id="another offset, Excel's mark, other order",
        ),
        pytest.param(
            "t.csv",
            "timestamp,items,item_seconds\n1780306200,10,2.5\n1780308000000,,\n",
            id="seconds and milliseconds since 1970",
        ),
        pytest.param(
            "t.jsonl",
            '{"timestamp": 1780306200, "items": 10, "item_seconds": 2.5}\n\n'
            '{"timestamp": "2026-06-01T10:00:00Z"}\n',
            id="JSON Lines",
        ),
    ],
)
def test_a_row_is_a_job_and_what_it_does_not_say_is_assumed(
    tmp_path: Path, name: str, text: str
) -> None:
    traffic = read_arrivals(a_file(tmp_path, text, name), SHAPE)

    assert traffic.start == MONDAY + 9 * HOUR
    assert traffic.arrivals == (
        Arrival(at=1800.0, items=10, item_seconds=2.5),
        Arrival(at=3600.0, items=40, item_seconds=3.0),
    )
    assert (traffic.length, traffic.items, traffic.is_dated) == (7200.0, 50, True)


def test_an_item_longer_than_a_job_is_held_keeps_a_checkpoint(tmp_path: Path) -> None:
    text = "timestamp,items,item_seconds\n1780306200,1,39600\n1780306200,1,39599\n"

    traffic = read_arrivals(a_file(tmp_path, text), SHAPE)

    assert [arrival.keeps_state for arrival in traffic.arrivals] == [True, False]


def test_a_date_without_hyphens_is_a_day_and_no_epoch_second(tmp_path: Path) -> None:
    traffic = read_arrivals(a_file(tmp_path, "timestamp\n20260601\n20260602\n"), SHAPE)

    assert traffic.start == MONDAY
    assert [arrival.at for arrival in traffic.arrivals] == [0.0, 86_400.0]


def test_the_header_is_the_first_line_that_is_not_empty(tmp_path: Path) -> None:
    text = "\n,,\ntimestamp,items\n2026-06-01T09:30:00Z,10\n2026-06-01T10:00:00Z,none\n"

    with pytest.raises(BadInput, match=r"t\.csv line 5, items is 'none': write a number"):
        read_arrivals(a_file(tmp_path, text, "t.csv"), SHAPE)


def test_columns_that_are_missing_are_said_to_be_assumed(tmp_path: Path) -> None:
    traffic = read_arrivals(a_file(tmp_path, "timestamp\n1780306200\n"), SHAPE)

    assert traffic.notes == (
        "a job is taken for 40 items (assumed)",
        "an item is taken for 3 s on a T4 (assumed)",
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("", "--arrivals is '", id="empty"),
        pytest.param("timestamp,items\n", "give it at least one row", id="only a header"),
        pytest.param(
            "when,items\n1,2\n", "name the column timestamp in its first line", id="column"
        ),
        pytest.param(
            "timestamp\nyesterday\n", "line 2, timestamp is 'yesterday': write", id="time"
        ),
        pytest.param("timestamp\n1e400\n", "or as seconds since 1970", id="no such second"),
        pytest.param("timestamp,items\n,3\n", "line 2, timestamp is '': give every row", id="gap"),
        pytest.param("timestamp\n200\n100\n", "line 3, timestamp is '100': sort", id="unsorted"),
        pytest.param(
            "timestamp,items\n1,-3\n", "items is '-3': write a number above 0", id="below 0"
        ),
        pytest.param(
            "timestamp,items\n1,2.5\n", "items is '2.5': write a whole", id="half an item"
        ),
        pytest.param(
            "timestamp,items\n1,many\n", "items is 'many': write a number", id="no number"
        ),
        pytest.param("timestamp\n1,2\n", "line 2 is '1,2': give it 1 cell as", id="too many cells"),
        pytest.param('timestamp\n"1\n', "line 2", id="an open quote"),
        pytest.param("timestamp,items\n1,100001\n", "items is '100001': write at most", id="huge"),
        pytest.param(
            "timestamp,items,item_seconds\n1,20,1e300\n",
            "item_seconds is '1e300': write at most 50,000,000 s an item",
            id="an item that never ends",
        ),
        pytest.param(
            "timestamp\n0001-01-01T00:00:00Z\n", "line 2, timestamp is '0001", id="no time yet"
        ),
        pytest.param(
            "timestamp\n0001-01-01T00:00:00+05:00\n", "write it as", id="before the calendar"
        ),
        pytest.param("timestamp\n9999-12-31T23:59:59Z\n", "line 2, timestamp is '9999", id="never"),
        pytest.param(
            "timestamp\n9999-12-31T23:59:59-05:00\n", "write it as", id="after the calendar"
        ),
        pytest.param(
            "timestamp\n20260601093000\n", "is '20260601093000': write it as", id="no hyphens"
        ),
        pytest.param(
            "timestamp,items,timestamp\n1,2,3\n", "name the column timestamp once", id="twice"
        ),
    ],
)
def test_a_file_that_is_wrong_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        read_arrivals(a_file(tmp_path, text), SHAPE)

    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_unsaid_and_unread_columns_of_rows_are_told(tmp_path: Path) -> None:
    text = "timestamp,items,item_seconds,Seconds\n1,4,2,9\n2,,2,9\n3,4,2,9\n"
    traffic = read_arrivals(a_file(tmp_path, text), SHAPE)

    assert traffic.notes == (
        "a job is taken for 40 items in 1 of 3 rows, which do not say it (assumed)",
        "nothing is read from other columns: Seconds",
    )


@pytest.mark.parametrize(
    "text", ['[{"timestamp": 60}, {"timestamp": 120}]', '{"jobs": [{"timestamp": 60}], "n": 1}']
)
def test_a_list_in_json_is_read_entry_by_entry(tmp_path: Path, text: str) -> None:
    traffic = read_arrivals(a_file(tmp_path, text, "t.json"), SHAPE)

    assert [arrival.at for arrival in traffic.arrivals] == [60.0, 120.0][: text.count("timestamp")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("", "give it at least one row", id="empty"),
        pytest.param("[]", "give it at least one row", id="an empty list"),
        pytest.param(
            '{"timestamp": 1}\n{"timestamp": 2}', "goes into a file NAME.jsonl", id="lines"
        ),
        pytest.param(
            '{"timestamp": 1}', "t.json is '{\"timestamp\": 1}': make it a list", id="one"
        ),
        pytest.param("7", "t.json is '7': make it a list of JSON objects", id="a number"),
        pytest.param("[7]", "t.json entry 1 is '7': make it a list", id="a list of numbers"),
        pytest.param(
            '[{"timestamp": true}]', "entry 1, timestamp is true: write it as", id="no time"
        ),
        pytest.param(
            '[{"timestamp": 1, "items": true}]', "items is true: write a number", id="no number"
        ),
        pytest.param(
            f'[{{"timestamp": {10**400}}}]', "0...: write it as 2026", id="a number of 400 digits"
        ),
        pytest.param(
            f'[{{"timestamp": 1, "items": {10**400}}}]', "0...: write a number", id="as many items"
        ),
        pytest.param("[" * 100_000, "t.json is 'maximum recursion", id="lists without end"),
    ],
)
def test_json_that_is_wrong_is_one_sentence(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadInput) as refused:
        read_arrivals(a_file(tmp_path, text, "t.json"), SHAPE)

    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_traffic_over_years_has_a_wrong_time_in_it(tmp_path: Path) -> None:
    text = "timestamp\n1780306200\n1980306200\n"
    years = read_arrivals(a_file(tmp_path, text, "years.csv"), SHAPE)

    with pytest.raises(BadInput, match="is '2026-06-01 to 2032-10-02': fix the times"):
        check_span(years)
    last = keep_last(years, 700.0)
    check_span(last)
    assert last.notes[0] == "of 2,315 days of history the last 700 are used"


@pytest.mark.parametrize("line", ["[1]", "{", "7", "[" * 100_000])
def test_a_line_that_is_no_json_object_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(BadInput, match=r"t\.jsonl line 1 is .*: write one JSON object a line"):
        read_arrivals(a_file(tmp_path, f"{line}\n", "t.jsonl"), SHAPE)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"give a readable file \(No such file or directory\)"):
        read_arrivals(tmp_path / "absent.csv", SHAPE)
    with pytest.raises(BadInput, match=r"give a readable file \(Is a directory\)"):
        read_arrivals(tmp_path, SHAPE)
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"timestamp\n\xff\xfe\n")
    with pytest.raises(BadInput, match="save it as UTF-8 text"):
        read_arrivals(binary, SHAPE)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("t.csv", "\ufefftimestamp\n1780306200\n", id="CSV with Excel's mark"),
        pytest.param("t.jsonl", '{"timestamp": 1780306200}\n', id="JSON Lines"),
        pytest.param("t.json", '[{"timestamp": 1780306200}]', id="a list in JSON"),
    ],
)
def test_a_file_packed_by_gzip_is_read_as_it_is_without(
    tmp_path: Path, name: str, text: str
) -> None:
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress(text.encode()))

    plain = read_arrivals(a_file(tmp_path, text, name), SHAPE)
    assert replace(read_arrivals(packed, SHAPE), source=plain.source) == plain


def test_a_packed_file_that_is_not_whole_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(b"timestamp\n1780306200\n")
    packed = tmp_path / "t.csv.gz"
    for damaged in (whole[:-4], whole[:12] + b"\xff" + whole[13:], b"timestamp\n1780306200\n"):
        packed.write_bytes(damaged)
        with pytest.raises(BadInput, match=r"t\.csv\.gz.*: give a complete gzip file"):
            read_arrivals(packed, SHAPE)


def test_a_queue_s_messages_spread_evenly_within_their_period() -> None:
    history = MemoryTrafficHistory()
    history.record("jobs", MONDAY + HOUR, messages=2)
    traffic = read_queue(history, "jobs", SHAPE, until=MONDAY + 24 * HOUR, days=1.0)

    assert [arrival.at for arrival in traffic.arrivals] == [3615.0, 3645.0]
    assert {arrival.items for arrival in traffic.arrivals} == {40}
    assert (traffic.start, traffic.length) == (MONDAY, 86_400.0)


def test_days_before_the_first_message_are_told() -> None:
    history = MemoryTrafficHistory()
    history.record("jobs", MONDAY - 36 * HOUR, messages=2)
    late = read_queue(history, "jobs", SHAPE, until=MONDAY, days=14.0)
    early = read_queue(history, "jobs", SHAPE, until=MONDAY, days=2.0)

    said = "nothing was sent in the first 12.5 of 14 days, which count; of a queue that is newer"
    assert late.notes[0] == f"{said} take --days 1.5"
    assert late.length == 14 * 86_400.0
    assert not any("nothing was sent" in note for note in early.notes)


def test_a_queue_without_messages_has_nothing_to_simulate() -> None:
    with pytest.raises(BadInput, match="nothing was sent to it in 1 day; give a file"):
        read_queue(MemoryTrafficHistory(), "jobs", SHAPE, until=MONDAY, days=1.0)


def test_a_queue_of_millions_asks_for_fewer_days() -> None:
    class Flood:
        def sent(self, queue: str, *, since: datetime, until: datetime) -> list[Sent]:
            return [Sent(at=since, period=60.0, messages=3_000_000)]

    with pytest.raises(BadInput, match=r"--days is 1\.0: take fewer: 3,000,000 messages"):
        read_queue(Flood(), "jobs", SHAPE, until=MONDAY, days=1.0)


def test_regions_of_a_workload_are_those_of_its_file_home_first(tmp_path: Path) -> None:
    text = """
[deployment]
name = "far"
region = "us-west-2"
zones = ["us-west-2a"]

[deployment.outpost.eu-west-1]
zones = ["eu-west-1a"]

[workload.count.run]
entrypoint = "count:run"
code = "count"
"""
    subject = read_subject(a_file(tmp_path, text, "spindown.toml"), None)

    assert subject.regions == ("us-west-2", "eu-west-1")


@pytest.mark.parametrize(
    ("mode", "boots"), [("auto", "bootstrap"), ("bootstrap", "bootstrap"), ("bake", "baked")]
)
def test_boots_are_those_of_the_workload_s_first_image(
    tmp_path: Path, mode: str, boots: str
) -> None:
    text = f"""
[deployment]
name = "far"
region = "us-west-2"
zones = ["us-west-2a"]

[workload.count]
image.mode = "{mode}"

[workload.count.run]
entrypoint = "count:run"
code = "count"
"""
    subject = read_subject(a_file(tmp_path, text, "spindown.toml"), None)

    assert subject.boot == BOOTS[boots]


@pytest.mark.parametrize("name", BOOTS)
def test_boots_are_named_by_what_an_instance_starts_from(name: str) -> None:
    found = gather(SimulationOptions(arrivals="office", prices="sample", boot=name))

    assert found.scenario.boot == BOOTS[name]


def test_a_made_up_month_is_the_same_for_the_same_seed() -> None:
    assert generate("office", 3) == generate("office", 3)
    assert generate("office", 3) != generate("office", 4)


def test_what_a_workload_has_shown_shapes_its_jobs_and_boots() -> None:
    plain = SimulatedWorkload(workload="ocr", source="here")
    shown = with_knowledge(plain, Knowledge(boots=(60.0,) * 19 + (200.0,), jobs=job_sizes(8.0)))

    assert (plain.shape.items, plain.shape.item_seconds) == (100.0, 3.6)
    assert (shown.shape.items, shown.shape.source) == (8.0, "as the workload has shown")
    assert shown.boot.at_least + shown.boot.median == pytest.approx(60.0)
    assert fit_boot(60.0, 200.0).sigma > fit_boot(60.0, 90.0).sigma
