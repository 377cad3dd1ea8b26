"""One batch of a workload, run here as a worker would run it."""

import json
import os
import sys
from pathlib import Path

import pytest

from spindown.cli.local_run import BatchFailed, read_items, run_batch
from spindown.contract.job.result import ItemStatus, Record, to_row
from spindown.error import BadInput, ConfigError

CONFIG = """
[deployment]
name = "here"
region = "us-east-1"
zones = ["us-east-1a"]

[workload.count.run]
entrypoint = "count:run"
code = "code"
env = { UNIT = "letters" }

[workload.shout.run]
command = [PYTHON, "shout.py"]
code = "code"

[workload.sealed.run]
entrypoint = "count:run"
code = "code"
secrets = { TOKEN_OF_MINE = "/somewhere/token" }
"""

COUNT = """
import os
from spindown.user import Result

def setup(ctx):
    print("loading")

def run(batch, ctx):
    for item in batch:
        if item.value == "bad":
            raise ValueError("no such letter")
        ctx.output_dir(item).joinpath("note.txt").write_text("seen")
        read = item.path.read_text() if item.path else item.value
        ctx.progress(item.index + 1, len(batch))
        yield Result(item, {"of": len(read), "in": os.environ["UNIT"], **ctx.params})
"""

SHOUT = """
import json, os
items = [json.loads(line) for line in open(os.environ["SPINDOWN_ITEMS"])]
with open(os.environ["SPINDOWN_RESULTS"], "w") as out:
    for item in items:
        out.write(json.dumps({"index": item["index"], "value": item["value"].upper()}) + "\\n")
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    code = tmp_path / "code"
    code.mkdir()
    (code / "count.py").write_text(COUNT, encoding="utf-8")
    (code / "shout.py").write_text(SHOUT, encoding="utf-8")
    path = tmp_path / "spindown.toml"
    path.write_text(CONFIG.replace("PYTHON", json.dumps(sys.executable)), encoding="utf-8")
    return path


def test_a_batch_gives_the_records_that_results_would_show(
    config: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "scan.txt").write_text("four", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    items = ["scan.txt", "[1, 2, 3]", "text"]

    run_batch(config, "count", items, '{"by": 7}', tmp_path / "out")

    said = capsys.readouterr()
    found = [json.loads(line) for line in said.out.splitlines()]
    assert [one["item"] for one in found] == ["s3://local/scan.txt", [1, 2, 3], "text"]
    assert [one["result"]["of"] for one in found] == [4, 3, 4]
    assert found[0]["result"] == {"of": 4, "in": "letters", "by": 7}
    (file,) = found[0]["outputs"]
    assert (file["path"], file["key"], file["bytes"]) == ("note.txt", "0/note.txt", 4)
    record = Record(job_id="a", index=0, item="", status=ItemStatus.OK)
    assert all(list(one) == list(to_row(record)) for one in found)
    assert (tmp_path / "out" / "0" / "note.txt").read_text(encoding="utf-8") == "seen"
    assert "loading" in said.err
    assert "3/3" in said.err


def test_a_mistyped_file_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    items = read_items(["scna.pdf", "a text. With two", "s3://b/a.pdf", "1.5"])

    assert [one.value for one in items] == ["scna.pdf", "a text. With two", "s3://b/a.pdf", 1.5]
    (told,) = capsys.readouterr().err.splitlines()
    assert "scna.pdf is no file here" in told


def test_a_folder_is_an_item_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("a", "b"):
        (tmp_path / "scans" / folder).mkdir(parents=True)
        (tmp_path / "scans" / folder / "x.txt").write_text("four", encoding="utf-8")
    (tmp_path / "scans" / ".hidden").write_text("four", encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    found = read_items(["scans", "text"])

    names = ["scans/a/x.txt", "scans/b/x.txt"]
    assert [one.value for one in found] == [*(f"s3://local/{name}" for name in names), "text"]
    assert [one.path for one in found] == [*(tmp_path / name for name in names), None]
    assert [one.index for one in found] == [0, 1, 2]
    told = capsys.readouterr().err
    assert "2 files" in told
    assert "1 hidden file" in told


def test_a_folder_that_cannot_be_read_is_no_text(tmp_path: Path) -> None:
    # Paths below it are longer than the system takes.
    folder, name = os.open(tmp_path, os.O_RDONLY), "d" * 250
    for _ in range(20):
        os.mkdir(name, dir_fd=folder)
        inner = os.open(name, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(folder)

    with pytest.raises(OSError, match="too long"):
        read_items([str(tmp_path)])


def test_a_folder_without_files_is_refused(config: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="empty"):
        run_batch(config, "count", [str(tmp_path / "empty")], "{}", None)


def test_any_text_is_an_item(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = json.dumps(["a" * 300])
    items = [long, "x/" * 3000, "NaN", "1e999", "[" * 20_000, "null"]

    with pytest.raises(BatchFailed):
        run_batch(config, "count", items, "{}", None)

    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["item"] for one in found] == [["a" * 300], *items[1:5], None]


@pytest.mark.parametrize("params", ["[" * 20_000, '{"a": NaN}', "null"])
def test_parameters_that_are_no_json_are_one_sentence(config: Path, params: str) -> None:
    with pytest.raises(BadInput):
        run_batch(config, "count", ["a"], params, None)


def test_an_item_that_fails_is_told_and_the_others_go_on(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BatchFailed, match="1 of 3 items failed"):
        run_batch(config, "count", ["a", "bad", "b"], "{}", None)

    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sorted(one["index"] for one in found) == [0, 1, 2]
    failed = next(one for one in found if one["status"] == "failed")
    assert (failed["index"], failed["error"]) == (1, "ValueError: no such letter")
    assert "count.py" in failed["traceback"].splitlines()[1]


def test_code_that_cannot_be_loaded_is_one_sentence(config: Path, tmp_path: Path) -> None:
    code = tmp_path / "code" / "count.py"
    code.write_text(f"import nothing_like_it\n{COUNT}", encoding="utf-8")

    with pytest.raises(BatchFailed, match="cannot be loaded: ModuleNotFoundError"):
        run_batch(config, "count", ["a"], "{}", None)


def test_an_entrypoint_without_a_function_is_one_sentence(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = config.read_text(encoding="utf-8")
    config.write_text(text.replace('"count:run"', '"count:ran"'), encoding="utf-8")

    with pytest.raises(ConfigError, match="entrypoint is 'count:ran'"):
        run_batch(config, "count", ["a"], "{}", None)

    assert "Traceback" not in capsys.readouterr().err


def test_a_traceback_begins_in_the_code_of_the_user(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "code" / "count.py").write_text(f"{COUNT}\ndef setup(ctx): 1 / 0\n", "utf-8")

    with pytest.raises(BatchFailed, match="ZeroDivisionError"):
        run_batch(config, "count", ["a"], "{}", None)

    assert "count.py" in capsys.readouterr().err.splitlines()[1]


@pytest.mark.parametrize("code", [COUNT, f"{COUNT}\n1 / 0\n"])
def test_all_of_a_traceback_is_the_code_of_the_user(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], code: str
) -> None:
    (tmp_path / "code" / "count.py").write_text(code, "utf-8")

    with pytest.raises(BatchFailed):
        run_batch(config, "count", ["bad"], "{}", None)

    frames = [line for line in capsys.readouterr().err.splitlines() if 'File "' in line]
    assert frames
    assert all("count.py" in frame for frame in frames)


def test_a_command_runs_as_well(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_batch(config, "shout", ["quiet"], "{}", None)

    assert json.loads(capsys.readouterr().out)["result"] == "QUIET"


@pytest.mark.parametrize(
    ("workload", "params", "said"),
    [
        ("cuont", "{}", "workload is 'cuont': name one of count, shout, sealed"),
        ("count", "[]", "--params is '\\[\\]'"),
        ("sealed", "{}", "environment is 'TOKEN_OF_MINE': export it here"),
    ],
)
def test_wrong_input_is_refused_in_a_sentence(
    config: Path, workload: str, params: str, said: str
) -> None:
    with pytest.raises(BadInput, match=said):
        run_batch(config, workload, ["a"], params, None)
