"""The example workloads, run by a real child as a worker would."""

import io
import math
import sqlite3
import struct
import subprocess
import sys
import zlib
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from examples.embed.embed import embed
from spindown.contract.run_spec import RunSpec
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


class LetterEncoder:
    """A small model: the shares of some letters, as a vector of length 1."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def encode(self, texts: Sequence[str], *, tokens: int) -> Sequence[Sequence[float]]:
        self.batches.append(len(texts))
        counts = [[1.0 + text[:tokens].count(letter) for letter in "aeiou"] for text in texts]
        return [[count / math.hypot(*each) for count in each] for each in counts]


def test_embeds_a_batch_at_once_but_what_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "text"
    file.write_text("a text in a file", encoding="utf-8")
    values = ["aaa", "s3://texts/text", "  ", {"no": "text"}, "aaa"]
    paths = {1: file}
    encoder = LetterEncoder()

    batch = [Item(i, value, paths.get(i)) for i, value in enumerate(values)]
    results = list(embed(batch, encoder, {}))

    found = {result.item.index: result for result in results}
    assert sorted(found) == list(range(len(values)))
    assert [index for index, result in sorted(found.items()) if result.error] == [2, 3]
    assert encoder.batches == [3]
    assert found[0].value == found[4].value != found[1].value
    assert math.hypot(*found[0].value["vector"]) == pytest.approx(1.0, abs=1e-4)


def test_embeds_only_as_much_of_a_text_as_it_is_told() -> None:
    items = [Item(0, "aaae"), Item(1, "aaaa")]

    cut, whole = (
        [result.value["vector"] for result in embed(items, LetterEncoder(), params)]
        for params in ({"tokens": 3}, {})
    )

    assert cut[0] == cut[1]
    assert whole[0] != whole[1]


#: Plays ffmpeg where there is none: copies its input, refuses a bad video, or is ended by a signal.
STAND_IN = """#!/bin/sh
while [ "$1" != -i ]; do shift; done
input=$2
for last; do :; done
case $(cat "$input") in
    bad*) echo "Invalid data found" >&2; exit 1 ;;
    reclaimed*) exit 255 ;;
esac
cp "$input" "$last"
"""


def transcode(tmp_path: Path, video: Path, path: str) -> tuple[int, list[str]]:
    """Run the script on one video; return its exit status, and the files that it left."""
    output = tmp_path / f"of-{video.name}"
    output.mkdir()
    done = subprocess.run(
        ["/bin/sh", str(EXAMPLES / "transcode" / "transcode.sh")],
        check=False,
        env={"PATH": path, "SPINDOWN_INPUT": str(video), "SPINDOWN_ITEM_OUTPUT": str(output)},
        capture_output=True,
    )
    return done.returncode, [each.name for each in output.iterdir()]


@pytest.mark.parametrize(
    ("content", "status", "files"),
    [("good", 0, ["video.mp4"]), ("bad", 65, []), ("reclaimed", 255, [])],
)
def test_a_transcoder_tells_bad_videos_from_lost_machines(
    tmp_path: Path, content: str, status: int, files: list[str]
) -> None:
    stand_in = tmp_path / "ffmpeg"
    stand_in.write_text(STAND_IN, encoding="utf-8")
    stand_in.chmod(0o755)
    video = tmp_path / "video"
    video.write_text(content, encoding="utf-8")

    assert transcode(tmp_path, video, f"{tmp_path}:/usr/bin:/bin") == (status, files)


def test_a_machine_without_ffmpeg_is_not_the_videos_fault(tmp_path: Path) -> None:
    video = tmp_path / "video"
    video.write_text("good", encoding="utf-8")

    assert transcode(tmp_path, video, str(tmp_path)) == (69, [])
