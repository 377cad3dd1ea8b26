"""The example workloads, run by a real child as a worker would."""

import io
import sqlite3
import struct
import sys
import zlib
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spindown.contract.run import RunSpec
from spindown.user import Item
from spindown.worker.child.code import Code
from spindown.worker.child.runner import ChildRunner, ItemDone, Task
from spindown.worker.log import open_log

EXAMPLES = Path(__file__).parents[2] / "examples"


def run_example(
    name: str, values: Sequence[object], outputs: Path, params: dict[str, Any] | None = None
) -> list[ItemDone]:
    spec = RunSpec(entrypoint=f"{name}:run")
    runner = ChildRunner(
        Code(root=EXAMPLES / name, spec=spec, digest="d"),
        slot=0,
        scratch=outputs,
        python=sys.executable,
        env={},
        log=open_log(io.StringIO()),
    )
    done: list[ItemDone] = []
    try:
        items = [Item(index, value) for index, value in enumerate(values)]
        runner.begin(Task(job_id="j", params=params or {}, outputs=outputs), items)
        while len(done) < len(values):
            event = runner.poll(timedelta(seconds=30))
            if event is not None:
                assert isinstance(event, ItemDone), event
                done.append(event)
    finally:
        runner.kill()
    return done


def test_classifies_real_files(tmp_path: Path) -> None:
    script = tmp_path / "something"
    script.write_text('#!/bin/sh\nset -eu\nfor f in *; do\n    echo "$f"\ndone\n' * 5)
    paths = [__file__, str(script), str(tmp_path / "none")]
    found = run_example("classify", paths, tmp_path)
    assert found[0].value["label"] == "python"
    assert found[0].value["mime_type"] == "text/x-python"
    assert found[1].value["label"] == "shell"
    assert found[2].error is not None
    assert "file not found" in found[2].error


def test_does_the_four_jobs_of_a_team(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "team.db")) as database, database:
        database.execute("create table sales as select 4 as n union select 5")
    texts = ["a red boat", "two green trees", "the red boat", "green trees"]
    values: list[object] = [
        {"task": "model", "rows": 20_000},
        {"task": "nlp", "texts": texts},
        {"task": "forecast", "series": {"even": [4.0] * 9, "rising": [1.0, 2.0, 3.0, 4.0]}},
        {"task": "sql", "database": str(tmp_path / "team.db"), "query": "select sum(n) from sales"},
        {"task": "none"},
    ]
    model, nlp, forecast, sql, other = run_example("team", values, tmp_path)
    assert model.value == {"slope": 3.0, "intercept": 1.0}
    assert nlp.value["nearest"] == [2, 3, 0, 1]
    assert forecast.value["even"] == 4.0
    assert 3.0 < forecast.value["rising"] <= 4.0
    assert sql.value == [9]
    assert other.error is not None


@pytest.mark.parametrize("kind", [0, 1, 2, 3, 4])
def test_makes_thumbnails_of_pictures_whatever_their_filter(tmp_path: Path, kind: int) -> None:
    picture = tmp_path / "in.png"
    picture.write_bytes(a_png(100, 60, kind))
    [done] = run_example("thumbnail", [str(picture)], tmp_path / "out", {"width": 20})
    assert done.value == {"file": "thumbnail.png", "width": 20, "height": 12}
    assert done.files == ("thumbnail.png",)
    data = (tmp_path / "out" / "0" / "thumbnail.png").read_bytes()
    assert struct.unpack(">II", data[16:24]) == (20, 12)
    pixels = zlib.decompress(data[data.index(b"IDAT") + 4 : data.index(b"IEND") - 8])
    # A picture of one colour stays of that colour.
    assert pixels == (b"\0" + bytes([10, 200, 30]) * 20) * 12


def test_says_which_file_is_no_picture(tmp_path: Path) -> None:
    path = tmp_path / "text.png"
    path.write_text("hello")
    [done] = run_example("thumbnail", [str(path)], tmp_path / "out")
    assert done.error == "ValueError: not a PNG file"


def a_png(width: int, height: int, kind: int) -> bytes:
    """Return a picture of one colour, each row behind filter ``kind``."""
    row = bytes([10, 200, 30]) * width
    rows, above = b"", bytes(len(row))
    for _ in range(height):
        rows += bytes([kind]) + bytes(
            (value - predict(kind, i, row, above)) & 0xFF for i, value in enumerate(row)
        )
        above = row
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )


def predict(kind: int, i: int, row: bytes, above: bytes) -> int:
    left = row[i - 3] if i >= 3 else 0
    corner = above[i - 3] if i >= 3 else 0
    up = above[i]
    estimate = left + up - corner
    paeth = min((left, up, corner), key=lambda value: abs(estimate - value))
    return (0, left, up, (left + up) // 2, paeth)[kind]
