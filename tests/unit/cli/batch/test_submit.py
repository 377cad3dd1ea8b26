"""What the command line makes of files and parameters."""

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
import typer
from moto import mock_aws

from spindown import config
from spindown.cli.sender import open_sender
from spindown.cli.submit import announce, find_files, submit
from spindown.cli.wait import INTERRUPTED, going_on, say_sent, sending
from spindown.config.archive import pack, read_version, run_spec
from spindown.contract.job.batch import Batch
from spindown.error import BadInput, SpindownError, Unreachable
from spindown.job.submit import SendStage
from tests.unit.cli.batch.account import REGION, Account


def make_files(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


@pytest.mark.parametrize(
    ("after", "named"), [("", ""), ("day", "when day is"), ("other/day", "when other/day is")]
)
def test_a_batch_that_waits_says_for_which(
    capsys: pytest.CaptureFixture[str], after: str, named: str
) -> None:
    batch = Batch(batch_id="night", workload="main", jobs=("night-0",), items=1, after=after)
    announce(batch, "", as_json=False)
    said = capsys.readouterr().out
    assert named in said
    assert ("It starts" in said) is bool(after)


def test_a_directory_stands_for_all_files_below_it(tmp_path: Path) -> None:
    make_files(tmp_path, "b.txt", "deep/a.txt")

    found = find_files([str(tmp_path)]).files

    assert [path.name for path, _ in found] == ["b.txt", "a.txt"]


def test_a_linked_directory_is_sent_and_no_loop_is_run(tmp_path: Path) -> None:
    make_files(tmp_path, "scans/a.txt", "other/deep/b.txt")
    (tmp_path / "scans" / "link").symlink_to(tmp_path / "other")
    (tmp_path / "other" / "back").symlink_to(tmp_path / "scans")
    (tmp_path / "other" / "deep" / "self").symlink_to(tmp_path / "other" / "deep")

    found = find_files([str(tmp_path / "scans")]).files

    names = [path.relative_to(tmp_path / "scans").as_posix() for path, _ in found]
    assert names == ["a.txt", "link/deep/b.txt"]


def test_hidden_files_of_a_folder_stay_unless_asked_for(tmp_path: Path) -> None:
    make_files(tmp_path, "a.txt", ".env", ".git/config", "deep/.cache/x")

    without, all_of_them = (find_files([str(tmp_path)], hidden=asked) for asked in (False, True))

    assert ([path.name for path, _ in without.files], without.left_out) == (["a.txt"], 3)
    assert (len(all_of_them.files), all_of_them.left_out) == (4, 0)
    # Who names one means it.
    assert len(find_files([str(tmp_path / ".env")]).files) == 1
    with pytest.raises(BadInput, match="--hidden"):
        find_files([str(tmp_path / "deep")])


def test_a_glob_stands_for_what_it_matches(tmp_path: Path) -> None:
    make_files(tmp_path, "a.txt", "b.png", "deep/c.txt")

    found = find_files([str(tmp_path / "**" / "*.txt")]).files

    assert sorted(path.name for path, _ in found) == ["a.txt", "c.txt"]


def test_a_file_named_twice_is_one_item(tmp_path: Path) -> None:
    make_files(tmp_path, "a.txt")
    path = str(tmp_path / "a.txt")

    assert len(find_files([path, str(tmp_path)]).files) == 1


def test_a_file_is_itself_though_its_name_is_a_pattern(tmp_path: Path) -> None:
    make_files(tmp_path, "scan1.png", "scan[1].png")

    found = find_files([str(tmp_path / "scan1.png"), str(tmp_path / "scan[1].png")]).files

    assert sorted(path.name for path, _ in found) == ["scan1.png", "scan[1].png"]


def test_two_files_of_one_name_are_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_files(tmp_path, "monday/a.png", "work/monday/a.png")
    monkeypatch.chdir(tmp_path / "work")

    with pytest.raises(BadInput, match=r"monday/a\.png is monday/a\.png"):
        find_files(["monday", str(Path("..") / "monday")])


def test_one_file_by_two_ways_is_one_item(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_files(tmp_path, "a/x.png", "b/keep")
    monkeypatch.chdir(tmp_path / "b")

    assert len(find_files(["../a/x.png", "../b/../a/x.png"]).files) == 1


def test_a_name_below_the_batch_never_climbs_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_files(tmp_path, "a.txt", "inside/keep")
    monkeypatch.chdir(tmp_path / "inside")

    ((_, name),) = find_files([os.path.join("..", "a.txt")]).files  # noqa: PTH118 - Path drops nothing

    assert name == "a.txt"


@pytest.mark.parametrize("source", ["absent.txt", "*.nothing"])
def test_a_source_that_names_no_file_is_one_sentence(tmp_path: Path, source: str) -> None:
    with pytest.raises(BadInput, match="name a file or a directory that is there, or a glob"):
        find_files([str(tmp_path / source)])


def test_an_address_among_files_is_sent_to_its_option() -> None:
    with pytest.raises(BadInput, match="give it with --uri"):
        find_files(["s3://bucket/a.png"])


def test_an_empty_directory_is_called_empty(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="put a file into it: this directory is empty"):
        find_files([str(tmp_path)])


def test_a_file_whose_name_no_request_can_carry_is_named(tmp_path: Path) -> None:
    Path(os.fsdecode(bytes(tmp_path) + b"/\xff.txt")).write_text("x")

    with pytest.raises(BadInput, match="rename it: its name is not UTF-8"):
        find_files([str(tmp_path)])


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    with mock_aws():
        account = Account(tmp_path)
        text = account.config.read_text()
        inputs = 'inputs = ["s3://scans/in/"]'
        account.config.write_text(
            text.replace("[workload.ocr", f"[workload.ocr]\n{inputs}\n\n[workload.ocr", 1)
        )
        yield account


@pytest.mark.parametrize(
    "uri", ["s3://scans/out/", "s3://sans/in/list.jsonl", "s3://store/workloads/other/inputs/"]
)
def test_an_address_that_no_worker_may_read_is_not_sent(account: Account, uri: str) -> None:
    with pytest.raises(BadInput, match=r"add its prefix to workload\.ocr\.inputs in"):
        submit("ocr", uri=uri, config=account.config)

    assert account.waiting(account.queue) == 0


def test_a_list_with_an_item_no_worker_may_read_is_not_sent(
    account: Account, tmp_path: Path
) -> None:
    items = tmp_path / "items.jsonl"
    items.write_text('"s3://scans/in/a"\n{"text": "b"}\n"s3://scans/c"\n')

    with pytest.raises(BadInput, match="S3 address is 's3://scans/c': add its prefix"):
        submit("ocr", items=items, config=account.config)

    assert account.waiting(account.queue) == 0


@pytest.mark.parametrize("uri", ["http://scans/in/", "s3://scans", "in/list.jsonl"])
def test_an_address_that_is_none_of_s3_is_refused_by_its_option(account: Account, uri: str) -> None:
    with pytest.raises(BadInput, match=f"^--uri is '{uri}': write it as s3://bucket/") as told:
        submit("ocr", uri=uri, config=account.config)

    assert "s3://bucket/prefix/" in str(told.value)
    assert account.waiting(account.queue) == 0


@pytest.mark.parametrize("uri", ["s3://scans/in/", "s3://store/workloads/ocr/inputs/b-1/"])
def test_what_is_declared_or_was_uploaded_is_sent(
    account: Account, uri: str, capsys: pytest.CaptureFixture[str]
) -> None:
    submit("ocr", uri=uri, config=account.config)

    assert account.waiting(account.queue) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0].endswith(": items still to be read in 1 job")
    # The line can be run as it stands: it names the same deployment.
    assert said[1].endswith(f" --config {account.config}")


def test_parameters_and_the_tenant_go_along_with_the_message(account: Account) -> None:
    param = ["width=128", "query=a=b", "empty="]

    submit("ocr", uri="s3://scans/in/", param=param, tenant="t", config=account.config)

    sent = account.take()
    assert sent["params"] == {"width": "128", "query": "a=b", "empty": ""}
    assert sent["tenant"] == "t"


@pytest.mark.parametrize("pair", ["width", "=128", ""])
def test_a_parameter_has_a_name_and_a_value(account: Account, pair: str) -> None:
    with pytest.raises(BadInput, match=r"--param is '.*': write it as key=value"):
        submit("ocr", uri="s3://scans/in/", param=[pair], config=account.config)


def test_without_the_file_only_the_worker_knows_its_rights(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", REGION)

    submit("ocr", uri="s3://elsewhere/in/", deployment="lab", config=account.config)

    assert account.waiting(account.queue) == 1


def test_a_name_that_was_used_is_said_before_anything_is_sent(
    account: Account, tmp_path: Path
) -> None:
    file = tmp_path / "a.txt"
    for text in ("first", "second"):
        file.write_text(text)
        try:
            submit("ocr", [str(file)], batch="monday", config=account.config)
        except BadInput as exc:
            refused = exc
    assert (refused.field, refused.value) == ("batch", "monday")

    assert account.waiting(account.queue) == 1
    s3: Any = boto3.client("s3", region_name=REGION)
    found = s3.list_objects_v2(Bucket="store", Prefix="workloads/ocr/inputs/")["Contents"]
    bodies = [s3.get_object(Bucket="store", Key=one["Key"])["Body"].read() for one in found]
    assert bodies == [b"first"]


@pytest.mark.parametrize("name", ["a b", "", "-a", "a/b", "x" * 101])
def test_the_name_of_a_batch_is_refused_by_its_option(account: Account, name: str) -> None:
    with pytest.raises(BadInput, match=r"^--batch is "):
        submit("ocr", uri="s3://scans/in/", batch=name, config=account.config)

    assert account.waiting(account.queue) == 0


@pytest.mark.parametrize("is_changed", [True, False])
def test_other_code_than_runs_is_told_once(
    account: Account, capsys: pytest.CaptureFixture[str], *, is_changed: bool
) -> None:
    code = account.config.parent / "code"
    code.mkdir()
    (code / "job.py").write_text("def run(batch, ctx): ...\n")
    workload = config.load(account.config).workloads["ocr"]
    version = read_version(pack(code, run_spec(workload)))
    account.tag_queue("spindown:code-version", version)
    if is_changed:
        (code / "job.py").write_text("def run(batch, ctx): yield 1\n")

    submit("ocr", uri="s3://scans/in/", config=account.config)

    told = capsys.readouterr().err
    assert told.count("is not what runs") == is_changed
    assert ("spindown deploy" in told) is is_changed


@pytest.mark.parametrize(
    ("is_deployed", "told"), [(True, "every job may fail"), (False, "jobs run what was deployed")]
)
def test_code_that_cannot_run_is_told_with_its_line(
    account: Account, capsys: pytest.CaptureFixture[str], told: str, *, is_deployed: bool
) -> None:
    code = account.config.parent / "code"
    code.mkdir()
    (code / "job.py").write_text("def run(batch, ctx):\n")
    workload = config.load(account.config).workloads["ocr"]
    version = read_version(pack(code, run_spec(workload)))
    account.tag_queue("spindown:code-version", version if is_deployed else "other")

    submit("ocr", uri="s3://scans/in/", config=account.config)

    said = capsys.readouterr().err
    assert f"the code of ocr here cannot run, so {told}" in said
    assert "mend code/job.py, its line 1" in said


@pytest.mark.parametrize(
    ("options", "command"),
    [
        (" --config a.toml --local", "spindown local up --config a.toml"),
        (" --config a.toml", "spindown deploy --config a.toml"),
    ],
)
def test_new_code_is_brought_in_place(account: Account, options: str, command: str) -> None:
    sender = open_sender("ocr", account.config, deployment=None, local=False)

    assert replace(sender, options=options).deploy_command == command


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_who_is_ended_while_waiting_says_what_goes_on(
    capsys: pytest.CaptureFixture[str], sent: signal.Signals
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(typer.Exit) as left, going_on("b-1", " --local"):
        signal.raise_signal(sent)

    assert signal.getsignal(signal.SIGTERM) is before

    assert left.value.exit_code == INTERRUPTED
    told = capsys.readouterr().err
    assert "b-1 goes on" in told
    assert "spindown cancel b-1 --local" in told


def test_a_submit_that_breaks_off_names_what_goes_on(
    account: Account, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    items = tmp_path / "items.jsonl"
    items.write_text(json.dumps("x" * 2000))
    account.take_at_most(1024)

    with pytest.raises(SpindownError):
        submit("ocr", items=items, batch="b-1", config=account.config)

    told = capsys.readouterr().err
    assert f"spindown cancel b-1 --config {account.config}" in told
    assert f"spindown redrive ocr --lost b-1 --config {account.config}" in told


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_submit_that_has_not_begun_has_sent_nothing(
    capsys: pytest.CaptureFixture[str], sent: signal.Signals
) -> None:
    with pytest.raises(KeyboardInterrupt), sending():
        signal.raise_signal(sent)
    broken_off = capsys.readouterr().err
    with pytest.raises(BadInput), sending():
        raise BadInput("--uri", "x", "write it otherwise")

    assert say_sent(None, None, "") in broken_off
    assert not capsys.readouterr().err


def test_each_stage_of_a_submit_names_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    batch, told = Batch(batch_id="b-1", workload="ocr", jobs=("b-1-0",), items=1), []

    def send(stage: SendStage) -> None:
        with sending() as state:
            state.note(batch, stage)
            raise Unreachable

    for stage in SendStage:
        with pytest.raises(Unreachable):
            send(stage)
        told.append(capsys.readouterr().err)

    assert len(set(told)) == len(SendStage)
    assert [f"redrive ocr --lost {batch.batch_id}" in one for one in told] == [False, True, False]
    assert all("spindown cancel b-1" in one for one in told)
    command = "spindown redrive ocr --items b"
    goes_on = [command in say_sent(batch, stage, "", command) for stage in SendStage]
    assert goes_on == [True, False, False]


def test_a_type_of_a_live_edit_is_sent(account: Account, tmp_path: Path) -> None:
    make_files(tmp_path, "a.txt")
    account.declare("old", live="fresh")

    submit("ocr", [str(tmp_path / "a.txt")], type_name="fresh", config=account.config)

    assert account.take()["type"] == "fresh"
    with pytest.raises(BadInput, match="type is 'old'"):
        submit("ocr", [str(tmp_path / "a.txt")], type_name="old", config=account.config)


def test_who_reads_no_settings_is_told_what_the_file_refuses(
    account: Account, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_files(tmp_path, "a.txt")
    account.hide_settings()

    submit("ocr", [str(tmp_path / "a.txt")], type_name="fresh", config=account.config)

    assert "type is 'fresh'" in capsys.readouterr().err
    assert account.take()["type"] == "fresh"
    wrong = '{"memory_gib": -1}'
    with pytest.raises(BadInput, match="memory_gib"):
        submit("ocr", [str(tmp_path / "a.txt")], requirements=wrong, config=account.config)
