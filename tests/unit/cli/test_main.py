"""Whatever goes wrong, the user reads one sentence and no traceback."""

import os
import subprocess
import sys
from contextvars import copy_context
from pathlib import Path

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, SSOTokenLoadError
from rich.text import Text

from spindown import __version__
from spindown.aws.error import translated
from spindown.cli.app import COMMANDS, load
from spindown.cli.error import describe
from spindown.cli.main import main
from spindown.cli.option import GIVEN, place_of
from spindown.cli.render.screen import print_parts
from spindown.cli.session import reach
from spindown.error import BadInput, LedgerMissing, SpindownError, Unreadable

CONFIG = """
[deployment]
name = "here"
region = "us-east-1"
zones = ["us-east-1a"]

[workload.count.run]
entrypoint = "count:run"
code = "code"
"""

#: What takes longest to import, and serves the local system or one command alone.
HEAVY = ("aws_cdk", "hypercorn", "ministack", "moto", "psutil", "spindown.local.system")


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a directory with a spindown.toml, on a machine that knows no AWS account."""
    (tmp_path / "spindown.toml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "a-file").write_text("", encoding="utf-8")
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "count.py").write_text("def run(batch, ctx): ...\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "absent"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run the command, which must fail; return what it says on stderr."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (1, "")
    return said.err


def refusal(code: str, message: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": message}}, "GetParameters")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        pytest.param(["stauts"], "No such command 'stauts'", id="an unknown command"),
        pytest.param(["fly"], "No such command 'fly': see `spindown --help`", id="nothing like it"),
        pytest.param(
            ["status", "--jsno"],
            "--jsno is no option of spindown status: did you mean --json?",
            id="an unknown option",
        ),
        pytest.param(
            ["policy", "show", "--zzz"],
            "--zzz is no option of spindown policy show: see `spindown policy show --help`",
            id="an option like no other",
        ),
        pytest.param(
            ["submit", "count", "--bacth", "one"],
            "--bacth is no option of spindown submit: did you mean --batch?",
            id="an option like two others",
        ),
        pytest.param(
            ["results", "one", "--bacth"],
            "--bacth is no option of spindown results: see `spindown results --help`",
            id="an option that another command has",
        ),
        pytest.param(
            ["plan", "count", "--backlog"],
            "--backlog is not set: write a value after it",
            id="an option without its value",
        ),
        pytest.param(
            ["status", "--json=3"], "--json takes no value: write it alone", id="a switch with one"
        ),
        pytest.param(
            ["plan"],
            "workload is not set: name one of count (`spindown plan --help`)",
            id="a missing workload",
        ),
        pytest.param(
            ["plan", "--config", "a-file"],
            "workload is not set: write it, as `spindown plan --help` shows",
            id="a missing argument",
        ),
        pytest.param(
            ["plan", "a", "b"],
            "Got unexpected extra argument(s) (b): see `spindown plan --help`",
            id="one argument too many",
        ),
        pytest.param(
            ["plan", "count", "--backlog", "-1"],
            "--backlog is '-1': make it at least 0",
            id="a number below its bound",
        ),
        pytest.param(
            ["plan", "count", "--backlog", "many"],
            "--backlog is 'many': write a whole number",
            id="no number",
        ),
        pytest.param(
            ["plan", "count", "--sort", "size"],
            "--sort is 'size': write one of 'cost', 'price'",
            id="none of the choices",
        ),
        pytest.param(
            ["plan", "count", "--backlog", f"{10**20}"],
            f"--backlog is '{10**20}': make it at most 1000000000",
            id="more jobs than a sum can hold",
        ),
        pytest.param(
            ["why", "--last", "99999999999999999999"],
            "--last is '99999999999999999999': make it at most 10000",
            id="more decisions than there are",
        ),
        pytest.param(
            ["why", "--top", "99999999999999999999"],
            "--top is '99999999999999999999': make it at most 10000",
            id="more candidates than there are",
        ),
        pytest.param(
            ["submit", "count", "a-file", "--on-failure", "start"],
            "--on-failure is 'start': give it with --after BATCH",
            id="what follows nothing",
        ),
        pytest.param(
            ["submit", "count", "a-file", "--items-per-job", "99999999999999999999"],
            "--items-per-job is '99999999999999999999': make it at most 1000000",
            id="more items than a job may have",
        ),
        pytest.param(
            ["simulate", "--boot", "99999999d"],
            "--boot is '99999999d': make it at most 3650d",
            id="longer than a clock goes",
        ),
        pytest.param(
            ["watch", "--every", "inf"],
            "--every is 'inf': make it at most 3600",
            id="a wait without end",
        ),
        pytest.param(
            ["run", "--memory", "inf", "--", "x"],
            "--memory is 'inf': make it at most 100000",
            id="more memory than any machine has",
        ),
        pytest.param(
            ["policy", "accept-cost", "count", "--cost", "1e400"],
            "--cost is '1e400': make it at most 1000000",
            id="a cost without end",
        ),
        pytest.param(
            ["demo", "--within", "-4"], "--within is '-4': make it at least 1", id="no time at all"
        ),
        pytest.param(
            ["local", "up", "--port", "70000"],
            "--port is '70000': make it at most 65535",
            id="no such port",
        ),
        pytest.param(
            ["status", "--config", "absent.toml"],
            "--config is 'absent.toml': give a readable file",
            id="no configuration",
        ),
        pytest.param(
            ["doctor", "--config", "absent.toml"],
            "--config is 'absent.toml': give a readable file",
            id="no configuration to examine",
        ),
        pytest.param(["status"], "no AWS credentials were found", id="no credentials"),
        pytest.param(["status", "--local"], "--local is '", id="no local system"),
        pytest.param(["local", "status"], "no local system is up in /", id="its status"),
        pytest.param(
            ["local", "up", "--state", "a-file"],
            "state directory is '",
            id="a state directory that is a file",
        ),
        pytest.param(
            ["local", "up", "--state", "a-file/below"],
            "state directory is '",
            id="one that cannot be made",
        ),
        pytest.param(
            ["results", "\udcff"],
            r"argument is '\udcff': write it in UTF-8",
            id="bytes that are no text",
        ),
        pytest.param(
            ["submit", "count"], "what to send is not set: give exactly one", id="no sources"
        ),
    ],
)
def test_a_mistake_is_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], sentence: str
) -> None:
    said = told(capsys, *arguments).splitlines()

    # What takes a while says first what it does.
    assert all(line.endswith(" ...") for line in said[:-1])
    assert said[-1].startswith(f"spindown: {sentence}")


@pytest.mark.parametrize("command", ["status", "deploy", "destroy", "cdk bootstrap"])
def test_a_profile_that_does_not_exist_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")

    said = told(capsys, *command.split())

    assert said.startswith("spindown: AWS profile is 'nobody': fix it, or name another")


def test_an_unreadable_aws_configuration_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, directory: Path
) -> None:
    (directory / "aws").write_text("no ini", encoding="utf-8")
    monkeypatch.setenv("AWS_CONFIG_FILE", "aws")

    said = told(capsys, "status")

    assert said.startswith("spindown: AWS profile is 'default': fix it, or name another")
    assert "Unable to parse config file: aws" in said


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("AWS_REGION", "us east", "region is 'us east': fix it, or AWS_ENDPOINT_URL: "),
        ("AWS_ENDPOINT_URL", "nonsense", "region is 'us-east-1': fix it, or AWS_ENDPOINT_URL: "),
    ],
)
def test_a_place_that_no_request_could_go_to_is_named(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    sentence: str,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv(name, value)

    said = told(capsys, "status", "--deployment", "here")

    assert said.startswith(f"spindown: {sentence}")
    assert said.count("\n") == 1


def test_aws_region_is_heard_as_the_aws_command_line_hears_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")

    assert reach(None).region == "eu-west-1"


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        pytest.param(
            refusal("ExpiredTokenException", "The security token is expired"),
            "GetParameters: ExpiredTokenException: The security token is expired: log in to AWS",
            id="expired credentials",
        ),
        pytest.param(
            refusal("AccessDeniedException", "is not authorized to perform"),
            "GetParameters: AccessDeniedException: is not authorized to perform: log in to AWS",
            id="a missing grant",
        ),
        pytest.param(
            SSOTokenLoadError(error_msg="Token for https://x does not exist"),
            "no usable answer: Error loading SSO Token: Token for https://x does not exist: log in",
            id="no login",
        ),
        pytest.param(
            EndpointConnectionError(endpoint_url="https://ssm.mars-1.amazonaws.com/"),
            'no usable answer: Could not connect to the endpoint URL: "https://ssm.mars-1.amazonaws'
            '.com/": check that this machine can reach it, and that region and',
            id="no network, or no such region",
        ),
        pytest.param(
            refusal("ThrottlingException", "Rate exceeded"),
            "GetParameters: ThrottlingException: Rate exceeded: try again in a minute",
            id="too many calls",
        ),
        pytest.param(
            refusal("Odd", "line one\nline two"),
            "GetParameters: Odd: line one line two",
            id="an answer of two lines",
        ),
    ],
)
def test_what_aws_says_comes_with_its_remedy(error: Exception, sentence: str) -> None:
    with pytest.raises(SpindownError) as caught, translated():
        raise error

    said = describe(caught.value)

    assert said.startswith(f"spindown: {sentence}")
    assert said.count("\n") == 1


def test_what_is_archived_asks_nobody_to_log_in() -> None:
    denied = Unreadable("GetObject: InvalidObjectState")
    denied.__cause__ = refusal("InvalidObjectState", "it is archived")

    assert "log in" not in describe(denied)
    assert "restore" in describe(denied)


def test_a_ledger_that_is_gone_comes_with_its_remedy() -> None:
    gone = LedgerMissing("there is no table lab--ledger")
    gone.__cause__ = refusal("ResourceNotFoundException", "Requested resource not found")

    assert "`spindown docs runbook`" in describe(gone)


def test_called_bare_it_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([])

    said = capsys.readouterr()
    assert ended.value.code == 1
    assert "Usage:" in said.out
    assert said.err == ""


def test_help_is_no_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["status", "--help"])

    assert not ended.value.code
    assert "--json" in capsys.readouterr().out


@pytest.mark.parametrize("group", [[], ["local"], ["policy"], ["iam"]])
def test_the_list_of_commands_cuts_no_sentence(
    capsys: pytest.CaptureFixture[str], group: list[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*group, "--help"])

    listed = capsys.readouterr().out.partition("Commands:")[2]
    assert listed
    assert "..." not in listed


def test_tells_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])

    assert not ended.value.code
    assert capsys.readouterr().out == f"spindown {__version__}\n"


def test_next_to_nothing_is_imported_before_ctrl_c_is_heard() -> None:
    code = "import sys, spindown.cli.main; print(len(sys.modules), 'typer' in sys.modules)"
    bare = "import sys, io, collections.abc; print(len(sys.modules))"

    count, is_there = _printed(code).split()

    assert is_there == "False"
    assert int(count) <= int(_printed(bare)) + 5


def _printed(code: str) -> str:
    line = [sys.executable, "-c", code]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout


def test_python_m_spindown_runs_the_command_without_a_path() -> None:
    line = [sys.executable, "-m", "spindown", "plan"]
    done = subprocess.run(line, check=False, capture_output=True, text=True)

    assert done.returncode == 1
    assert done.stderr.startswith("spindown: workload is not set: ")


def test_what_the_screen_cannot_spell_is_told_all_the_same(directory: Path) -> None:
    line = [sys.executable, "-m", "spindown", "init", "--config", "\u6f22.toml"]
    there = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        line, check=True, capture_output=True, text=True, cwd=directory, env=there
    )

    assert "Wrote \\u6f22.toml" in done.stdout


def loaded_by(program: str, modules: tuple[str, ...]) -> str:
    look = f"{program}\nprint([m for m in {modules} if m in sys.modules], file=sys.stderr)"
    line = [sys.executable, "-c", f"import sys, contextlib; {look}"]
    return subprocess.run(line, check=True, capture_output=True, text=True).stderr


def test_ctrl_c_at_a_question_ends_as_anywhere() -> None:
    program = """
import sys, typer
import spindown.cli.app as overview
from spindown.cli.main import main

class Interrupted:
    def readline(self):
        raise KeyboardInterrupt

def ask(*_, **__):
    sys.stdin = Interrupted()
    typer.confirm("Go on?", abort=True)

overview.app = ask
main([])
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)

    assert done.returncode == 130, done.stderr


def test_no_command_s_help_waits_for_anything_of_aws() -> None:
    slow = (*HEAVY, "boto3", "botocore", "spindown.aws.wiring", "spindown.simulator")
    program = f"""
from spindown.cli.app import load
for name in {sorted(COMMANDS)}:
    load(name)
    assert not (found := [module for module in {slow} if module in sys.modules]), (name, found)
"""
    assert loaded_by(program, slow) == "[]\n"


def test_a_session_is_found_without_the_planner() -> None:
    planner = ("spindown.operate.plan", "spindown.control.tick")

    assert loaded_by("import spindown.cli.session", planner) == "[]\n"


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_the_overview_loads_no_command(argument: str) -> None:
    program = "from spindown.cli.main import main"
    program = f"{program}\nwith contextlib.suppress(SystemExit): main([{argument!r}])"
    ours = ("spindown.config", "spindown.control", "spindown.cli.session")
    slow = ("asyncio", "boto3", "numpy", "pydantic", "rich", *ours)
    assert loaded_by(program, slow) == "[]\n"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_overview_says_what_the_command_says(name: str) -> None:
    said = (load(name).help or "").partition("\n\n")[0]
    assert COMMANDS[name][1] == " ".join(said.split())


def test_every_screen_s_command_finds_the_deployment(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def show() -> None:
        GIVEN.set(place_of(["doctor", "--config", "a.toml", "--local"]))
        print_parts(["see `spindown why main`", Text("and `spindown docs types`")])

    copy_context().run(show)

    said = capsys.readouterr().out
    assert "`spindown why main --config a.toml --local`" in said
    assert "`spindown docs types`" in said


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ([], ""),
        (["redrive", "main", "--local"], " --local"),
        (["redrive", "--config", "a b.toml", "--local"], " --config 'a b.toml' --local"),
        (["redrive", "--deployment=lab"], " --deployment lab"),
        (["advise", "--policy", "a.toml"], " --config a.toml"),
        (["run", "--deployment", "lab", "--", "make", "--local"], " --deployment lab"),
    ],
)
def test_an_error_s_command_finds_the_deployment(arguments: list[str], place: str) -> None:
    said = describe(BadInput("BATCH", "b", "see `spindown results c`"), arguments)

    assert said == f"spindown: BATCH is 'b': see `spindown results c{place}`\n"
