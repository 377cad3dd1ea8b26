"""What a person and a script get of an examination: lines, commands whole, an exit code."""

import ast
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import spindown
from spindown.cli.app import app
from spindown.cli.doctor import name_file, print_findings, render_finding, webhook_trier
from spindown.cli.session import is_local
from spindown.error import Unreachable
from spindown.local import environment
from spindown.operate.doctor.finding import Finding, Severity

CONFIG = str(Path(__file__).parents[3] / "spindown.toml")


#: The wheel's console scripts are `spindown` and `spindown-app`.
BARE_CDK = re.compile(r"(?<!spindown )\bcdk [a-z]")


def texts_of(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and words of each text of a module that is no docstring."""
    nodes = list(ast.walk(module))
    said = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.lineno, node.value


def lines_of(finding: Finding) -> list[str]:
    return [line.plain for line in render_finding(finding)]


def test_what_is_well_takes_one_line() -> None:
    finding = Finding(what="account plan", found="paid", needed="any but the free plan")

    assert lines_of(finding) == ["ok       account plan: paid"]


def test_what_is_not_says_what_is_needed_and_how_to_fix_it() -> None:
    finding = Finding(
        what="quota", found="0 vCPUs", needed="4", remedy="aws " * 60, severity=Severity.BLOCKED
    )

    assert lines_of(finding) == [
        "blocked  quota: 0 vCPUs",
        "         needed: 4",
        f"         remedy: {'aws ' * 60}",
    ]


def test_a_finding_is_printed_before_the_next_is_found(capsys: pytest.CaptureFixture[str]) -> None:
    printed = []

    def found() -> Iterator[Finding]:
        for what in ("one", "two"):
            yield Finding(what=what, found="well")
            printed.append(capsys.readouterr().out)

    assert [each.what for each in print_findings(found())] == ["one", "two"]
    assert printed == ["ok       one: well\n", "ok       two: well\n"]


def a_trier(state: str | None) -> Callable[[], bool]:
    """Return what tries a webhook whose alarm is in a state; None: it is missing."""

    def states(prefix: str) -> dict[str, str]:
        assert prefix == "lab--webhook-errors"
        others = {"lab--webhook-errors-of-others": "ALARM"}
        return others if state is None else {**others, prefix: state}

    return webhook_trier(lambda: None, states, "lab--webhook-errors")


def test_a_webhook_that_takes_no_text_is_told() -> None:
    with pytest.raises(Unreachable):
        a_trier("ALARM")()


@pytest.mark.parametrize(
    ("state", "is_known"), [("OK", True), ("INSUFFICIENT_DATA", False), (None, False)]
)
def test_only_an_alarm_that_is_ok_knows_of_no_failure(state: str | None, is_known: bool) -> None:
    assert a_trier(state)() is is_known


def test_the_file_asked_about_is_what_is_to_be_deployed() -> None:
    remedy = "spindown cdk bootstrap, once, then spindown deploy"
    finding = Finding(what="outpost", found="", remedy=remedy)

    named = name_file(finding, Path("my lab/gpu.toml")).remedy

    file = "'my lab/gpu.toml'"
    bootstrap, deploy = f"cdk bootstrap -c config={file}", f"deploy --config {file}"
    assert named == f"spindown {bootstrap}, once, then spindown {deploy}"
    assert name_file(finding, Path("spindown.toml")).remedy == remedy


@pytest.mark.parametrize("layer", ["control", "operate"])
def test_no_text_names_a_command_that_a_wheel_lacks(layer: str) -> None:
    texts = {
        f"{path.name}:{line}": text
        for path in (Path(spindown.__file__).parent / layer).rglob("*.py")
        for line, text in texts_of(ast.parse(path.read_text(encoding="utf-8")))
    }

    bare = {at: text for at, text in texts.items() if BARE_CDK.search(text)}

    assert texts
    assert not bare


@pytest.fixture
def nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be nobody whom AWS knows."""
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.mark.usefixtures("nobody")
def test_without_credentials_it_says_so_and_exits_1() -> None:
    done = CliRunner().invoke(app, ["doctor", "--config", CONFIG])

    assert done.exit_code == 1
    said = done.stdout.splitlines()
    assert said[0] == "blocked  credentials: none"
    assert "valid" in said[1]


@pytest.mark.usefixtures("nobody")
def test_programs_get_the_same_as_json() -> None:
    done = CliRunner().invoke(app, ["doctor", "--json", "--config", CONFIG])

    said = json.loads(done.stdout)
    assert (done.exit_code, said["can_launch"]) == (1, False)
    assert [finding["what"] for finding in said["findings"]] == ["credentials"]


def test_a_local_system_of_any_directory_is_known_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in environment.aws_environment("http://127.0.0.1:1", "us-west-2"):
        monkeypatch.delenv(name, raising=False)
    profile = tmp_path / "aws-config"
    environment.write_profile(profile, endpoint="http://127.0.0.1:1", region="us-west-2")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(profile))
    monkeypatch.setenv("AWS_PROFILE", environment.PROFILE)

    assert is_local()

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAOFSOMEBODY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.delenv("AWS_PROFILE")

    assert not is_local()
