"""What the pages show can be typed: each command is run, or at least read by what runs it.

`NOT_RUN` says which of ours are only read, and why. In `make test` those run that need no
deployment, in `make proof` the others, in a local system of a project that `spindown init` wrote.
"""

import ast
import importlib
import json
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import botocore.session
import pytest
import typer
from botocore import xform_name

from spindown import config
from spindown.cli.app import COMMANDS, app, load
from spindown.cli.init import init
from spindown.cli.main import main
from spindown.contract.job.message import parse_job
from tests.e2e.world import HANGING, SPINDOWN, SWIFT, Deployed, found, in_background
from tests.page import ROOT, Block, Command, blocks, commands, filled, form, shown

EVERY = tuple(commands())
OURS = tuple(one for one in EVERY if one.program == "spindown")

#: How commands begin that are read and not run -> why.
NOT_RUN: Mapping[str, str] = {
    "--install-completion": "it changes the files of a person's shell",
    "bill --export": "it reads AWS's own bill: tests/e2e/test_operate.py has one",
    "cdk": "it is for an AWS account",
    "dashboard --open": "it serves until Ctrl-C: tests/unit/cli/test_dashboard.py asks it",
    "dashboard --since": "likewise",
    "dashboard WORKLOAD": "likewise; with --html it is run",
    "deploy": "it is for an AWS account; the local system deploys with the same cdk",
    "destroy": "it is for an AWS account; the local system destroys with the same cdk",
    "local down": "the proof below begins and ends with it",
    "local status": "likewise",
    "local up": "likewise",
    "run": "it takes a workload of folders: tests/e2e/test_operate.py and test_types.py run it",
    "shell": "it takes Session Manager of AWS",
    "submit embed --uri": "its address is of a bucket of somebody's own",
    "submit video": "likewise",
    "verify": "it takes a workload of its own: tests/e2e/test_operate.py runs it",
    "watch": "it shows until Ctrl-C: it is run below, and interrupted",
}
#: How commands begin that need no deployment and little time; `init` alone is one too.
ALONE = ("iam", "init --function", "local run")
#: Programs that are not ours -> what is known of their commands.
OTHERS: Mapping[str, str] = {
    **dict.fromkeys((".", "cd", "do", "done", "for", "head", "mkdir", "tail"), "the shell's own"),
    "aws": "held against AWS's models below",
    "make": "tests/unit/test_document.py holds it against the Makefile",
    "python": "sends a message by boto3, or merges JSON",
    "uv": "tests/proof/test_wheel.py installs the wheel by it",
}
#: Words that stand for something in the project of these tests.
MINE = {
    **dict.fromkeys(("W", "WORKLOAD", "classify", "embed", "extract", "lab", "video"), "main"),
    "ITEM": "spindown.toml",
    "C": "--local",
}
#: While a file of this name is in the project, each item fails.
FLAW = "flaw"
TRAFFIC = "timestamp,items,item_seconds\n" + "".join(
    f"2026-06-01T{hour:02}:00:00Z,60,6\n" for hour in range(9, 16)
)


def begins(command: Command, *heads: str) -> bool:
    return any(f"{' '.join(command.words[1:])} ".startswith(f"{head} ") for head in heads)


def why_not_run(command: Command) -> str | None:
    if "--html" in command.words and begins(command, "dashboard"):
        return None
    return next((why for head, why in NOT_RUN.items() if begins(command, head)), None)


def is_alone(command: Command) -> bool:
    return begins(command, *ALONE) or command.words == ("spindown", "init")


def test_every_program_of_the_pages_is_known() -> None:
    strange = [str(one) for one in EVERY if one.program not in {"spindown", *OTHERS}]

    assert len(OURS) > 80
    assert strange == []


def test_what_is_not_run_is_on_a_page() -> None:
    for head in NOT_RUN:
        assert any(begins(one, head) for one in OURS), head


def read(words: Sequence[str]) -> None:
    """Have the command line read words as it does before it runs them (raises TyperException)."""
    name, *rest = words
    command: Any = load(name) if name in COMMANDS else typer.main.get_command(app)
    if name not in COMMANDS:
        known = {option for one in command.params for option in one.opts}
        assert name in known
        return
    context = command.make_context(name, [*rest])
    if hasattr(command, "commands"):
        name, command, rest = command.resolve_command(context, rest)
        command.make_context(name, rest, parent=context)


@pytest.mark.parametrize("command", OURS, ids=str)
def test_every_command_of_ours_can_be_read(command: Command) -> None:
    read(filled(command.words[1:], MINE))


@pytest.mark.parametrize(
    "words", [["status", "main", "--lokal"], ["local", "upp"], ["simulate", "--days", "x"]]
)
def test_a_command_that_is_not_there_is_found(words: list[str]) -> None:
    with pytest.raises(typer.TyperException):
        read(words)


#: Options of the aws CLI that are named otherwise than in the service's model (AWS CLI Command
#: Reference, "sns subscribe"): its ``--endpoint`` would be taken for ``--endpoint-url``.
RENAMED_BY_THE_CLI = {("sns", "subscribe"): {"notification-endpoint"}}


@pytest.mark.parametrize("command", [one for one in EVERY if one.program == "aws"], ids=str)
def test_every_command_of_aws_is_in_its_models(command: Command) -> None:
    service, operation, *words = command.words[1:]
    model = botocore.session.get_session().get_service_model(service.replace("s3api", "s3"))
    operations = {xform_name(name, "-"): name for name in model.operation_names}
    shape = model.operation_model(operations[operation]).input_shape
    assert shape is not None
    known = {xform_name(name, "-") for name in shape.members} | {"region", "query", "output"}

    given = {word.removeprefix("--") for word in words if word.startswith("--")}
    assert given - known - RENAMED_BY_THE_CLI.get((service, operation), set()) == set()


def run(*words: str) -> int:
    """Run a command in this process; return its exit status."""
    with pytest.raises(SystemExit) as ended:
        main([*words])
    return int(ended.value.code or 0)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with nothing but the function of the page."""
    (function,) = (one.text for one in blocks("py") if one.text.startswith("# digest.py\n"))
    (tmp_path / "digest.py").write_text(function)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", [one for one in OURS if is_alone(one)], ids=str)
def test_a_command_that_needs_no_deployment_runs(
    project: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = filled(command.words[1:], MINE)
    if "examples/demo.toml" in words:
        words = list(command.words[1:])
        monkeypatch.chdir(ROOT)
    elif words[0] != "init":
        init(config=project / "spindown.toml")
    if words[0] == "iam":
        words += ["--account", "111122223333"]

    assert run(*words) == 0


@pytest.mark.parametrize("block", [*blocks("python", "py")], ids=str)
def test_python_compiles_and_imports_what_is_there(block: Block) -> None:
    tree = ast.parse(block.text)

    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] == "spindown":
                found = importlib.import_module(module)
                assert [one.name for one in node.names if not hasattr(found, one.name)] == []
            case ast.Attribute(value=ast.Name(id="spindown"), attr=name):
                assert hasattr(importlib.import_module("spindown"), name)


@pytest.mark.parametrize("block", [*blocks("toml")], ids=str)
def test_toml_is_of_the_form_of_spindown_toml(block: Block) -> None:
    # What a page leaves out.
    text = block.text.replace("sha256:...", f"sha256:{'0' * 64}").replace(
        "key/...", "key/1234abcd-12ab-34cd-56ef-1234567890ab"
    )
    document = tomllib.loads(text)
    place = {"name": "page", "region": "us-east-1", "zones": ["us-east-1a"]}
    document["deployment"] = place | document.get("deployment", {})
    for table in document.setdefault("workload", {"ocr": {}}).values():
        how = table.setdefault("run", {})
        if not how.keys() & {"entrypoint", "command", "image", "folders", "verify"}:
            how |= {"entrypoint": "job:run", "code": "code"}
        wanted = table.setdefault("requirements", {})
        if "types" in table.get("policy", {}):
            wanted.setdefault("gpu_count_min", 0)

    assert config.parse(document).workloads


@pytest.mark.parametrize("block", [*blocks("json")], ids=str)
def test_json_is_json_and_messages_are_messages(block: Block) -> None:
    values = [json.loads(one) for one in re.split(r"\n(?=\{)", block.text.strip())]

    for value in values:
        if value.keys() & {"items", "items_uri", "prefix_uri"}:
            parse_job(json.dumps(value))


#: How commands begin that simulate days, for minutes.
LONG = ("advise", "simulate")
#: How commands begin that end with 1 and a sentence in this project -> why.
FAILS: Mapping[str, str] = {
    "policy set classify max_workerz=2": "the page shows what is said of a slip of the pen",
    "batches ocr --sources": "there is no `ocr` here: tests/e2e/test_source.py has one",
    "status s3://my-scans/incoming/a.png": "no source has sent a job here: likewise",
    "results s3://my-scans/incoming/a.png": "likewise",
    "redrive W JOB": "no job has failed here: tests/unit/cli/batch/test_redrive.py has some",
    "redrive W --malformed --remove MESSAGE": "no message is malformed here: likewise",
}
#: How commands begin that take a batch in which an item has failed; the next ones what came of it.
FAILED = ("redrive WORKLOAD --items", "results BATCH-again")


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """Return a local system of what `spindown init` writes, with machines that end in seconds."""
    directory = tmp_path_factory.mktemp("pages")
    path = directory / "spindown.toml"
    init(config=path)
    text = path.read_text(encoding="utf-8")
    policy = text.index("[workload.main.policy]")
    path.write_text(f"{text[:policy]}[workload.main.policy]\n{SWIFT}", encoding="utf-8")
    code = directory / "code" / "main.py"
    text = code.read_text(encoding="utf-8")
    flawed = f"error='flawed' if Path({str(directory / FLAW)!r}).exists() else None)"
    assert "len(text.split())})" in text
    text = text.replace("len(text.split())})", f"len(text.split())}}, {flawed}")
    code.write_text(f"from pathlib import Path\n{text}", encoding="utf-8")
    with in_background(path) as (deployed, _):
        yield deployed


@pytest.fixture(scope="module")
def sent(deployed: Deployed) -> Any:
    """Return what `submit` said of a job that has finished since."""
    sent = deployed.spindown_json("submit", "main", str(deployed.directory / "spindown.toml"))
    (job,) = sent["jobs"]
    deployed.finished(job)
    return sent


@pytest.fixture(scope="module")
def failed(deployed: Deployed, sent: Any) -> str:
    """Return a batch whose item has failed by a flaw that is mended since."""
    flaw = deployed.directory / FLAW
    flaw.touch()
    batch = deployed.spindown_json("submit", "main", str(deployed.directory / "cdk.json"))
    assert batch["batch_id"] != sent["batch_id"]
    assert deployed.finished(batch["jobs"][0]).items_failed == 1
    flaw.unlink()
    return str(batch["batch_id"])


@pytest.mark.proof
def test_every_command_runs_in_a_local_system(deployed: Deployed, sent: Any, failed: str) -> None:
    here = deployed.directory
    for name in ("scans/a.txt", "spindown/cli/render/a.py", "examples/classify/classify.py"):
        (here / name).parent.mkdir(parents=True)
        (here / name).write_text("some words", encoding="utf-8")
    (here / "texts.jsonl").write_text('"a"\n"b"\n', encoding="utf-8")
    (job,) = sent["jobs"]
    known = {**MINE, "JOB": job, "first": job, "BATCH": sent["batch_id"], "MESSAGE": "none"}
    known |= {"b-20261120-152800-1a2b3c4d": sent["batch_id"]}
    of_failed = {**known, "BATCH": failed, "BATCH-again": f"{failed}-again"}

    wrong, one_of_each = [], {one.words: one for one in OURS if why_not_run(one) is None}
    # What drains comes last: nothing is launched after it.
    for command in sorted(one_of_each.values(), key=lambda one: begins(one, "drain")):
        if not is_alone(command) and not begins(command, *LONG):
            # Each page begins with an empty folder.
            shutil.rmtree(here / "got", ignore_errors=True)
            own = of_failed if begins(command, *FAILED) else known
            done = typed(filled(command.words[1:], own), here)
            if done.returncode != int(begins(command, *FAILS)):
                wrong.append(
                    f"{command}: {done.returncode} {done.stdout[-300:]} {done.stderr[-300:]}"
                )

    assert "\n".join(wrong) == ""


@pytest.mark.proof
@pytest.mark.usefixtures("sent")
def test_watch_shows_until_it_is_interrupted(deployed: Deployed) -> None:
    with deployed.followed("watch", "--json", "--every", "0.2") as process:
        assert process.stdout is not None
        looks = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(signal.SIGINT)
        assert process.wait(HANGING) == 130

    assert [one["workload"] for look in looks for one in look] == ["main", "main"]


@pytest.mark.proof
@pytest.mark.parametrize("command", [one for one in OURS if begins(one, *LONG)], ids=str)
@pytest.mark.usefixtures("sent")
def test_every_simulation_runs(deployed: Deployed, command: Command) -> None:
    (deployed.directory / "traffic.csv").write_text(TRAFFIC, encoding="utf-8")

    done = typed(filled(command.words[1:], MINE), deployed.directory)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.proof
def test_rightsize_says_what_its_example_shows(tmp_path: Path) -> None:
    (example,) = shown("spindown rightsize")
    text = (ROOT / "examples" / "demo.toml").read_text(encoding="utf-8")
    needs = "gpu_memory_gib_min = 8\n"
    assert needs in text
    much = text.replace(needs, f"{needs}vcpus_min = 8\nmemory_gib_min = 32\n")
    path = tmp_path / "spindown.toml"
    path.write_text(much.replace('tick = "2s"', 'tick = "1s"'), encoding="utf-8")
    shutil.copytree(ROOT / "examples" / "classify", tmp_path / "classify")

    with in_background(path):
        for _ in range(3):
            sent = typed(["submit", "classify", "classify/classify.py", "--wait"], tmp_path)
            assert sent.returncode == 0, sent.stdout + sent.stderr
        said = found(
            lambda: (
                text
                if "3 jobs" in (text := typed(["rightsize", "classify"], tmp_path).stdout)
                else None
            )
        )

    assert set(form(said)) == set(form(example))


def typed(words: Sequence[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run a command in the project, on its local system; who is asked says yes."""
    is_of_nobody = words[0] in LONG and "--workload" not in words
    here = [] if "--local" in words or is_of_nobody else ["--local"]
    return subprocess.run(
        [sys.executable, SPINDOWN, *words, *here],
        check=False,
        cwd=folder,
        input="y\n",
        capture_output=True,
        text=True,
        timeout=4 * HANGING,
    )
