"""The command line of CDK that comes with Spindown, run in a project that init has written."""

import json
import os
import pty
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path

import pytest
from aws_cdk import App, Stack, Stage
from constructs import Construct

from spindown import config
from spindown.cli.deploy import cdk, check_namesake, deploy, destroy, say_left_stacks
from spindown.cli.init import init
from spindown.error import BadInput, ConfigError, NoCredentials, NotFound
from spindown.installed import cdk_command


@pytest.fixture
def project(tmp_path: Path) -> Path:
    init(config=tmp_path / "spindown.toml", region="eu-west-1")
    path = tmp_path / "spindown.toml"
    path.write_text(path.read_text().replace(path.parent.name.lower(), "mine"))
    return tmp_path


@pytest.fixture(scope="module")
def somebodys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a project whose app has stacks of two deployments, and one that is neither's."""
    directory = tmp_path_factory.mktemp("somebodys")
    app = App(outdir=str(directory / "app"), builtin_cloud_formation_validation=False)
    for name in ("lab-core", "lab-insight", "lab-two-core", "lab-notes"):
        Stack(app, name)
    Stack(Construct(app, "Lab"), "lab-image")
    Stack(Stage(app, "Later"), "lab-outpost-us-west-2")
    app.synth()
    (directory / "cdk.json").write_text('{"app": "app"}')
    (directory / "spindown.toml").write_text(
        '[deployment]\nname = "lab"\nregion = "eu-west-1"\nzones = ["eu-west-1a"]\n'
        'outpost.us-west-2.zones = ["us-west-2b"]\n'
        '[workload.one.run]\ncode = "."\nentrypoint = "job:run"\n'
    )
    return directory


def surroundings(project: Path) -> Mapping[str, str]:
    return {
        **os.environ,
        "CDK_HOME": str(project / "home"),
        "CDK_DISABLE_CLI_TELEMETRY": "true",
        "CDK_VALIDATION": "false",
        # Credentials that no call gets to use.
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "nobody",
        # Not what a shell of the tests may find.
        "PATH": "/usr/bin:/bin",
    }


def run(project: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "spindown", *arguments]
    return subprocess.run(
        command,
        check=False,
        cwd=project,
        env=surroundings(project),
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("chosen", "state"), [({}, "disabled"), ({"CDK_DISABLE_CLI_TELEMETRY": "false"}, "enabled")]
)
def test_cdk_tells_nobody_what_is_run_unless_one_wants_it(
    project: Path, chosen: Mapping[str, str], state: str
) -> None:
    usual = {k: v for k, v in surroundings(project).items() if k != "CDK_DISABLE_CLI_TELEMETRY"}
    done = subprocess.run(
        [sys.executable, "-m", "spindown", "cdk", "cli-telemetry", "--status"],
        check=False,
        cwd=project,
        env={**usual, **chosen},
        capture_output=True,
        text=True,
    )

    assert f"CLI Telemetry is {state}" in done.stdout + done.stderr


def test_code_that_cannot_run_is_not_deployed(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    Path("code", "main.py").write_text("def walk(batch, ctx): ...\n")

    with pytest.raises(ConfigError, match="define run"):
        deploy()


def stacks_to_destroy(project: Path, *arguments: str) -> set[str]:
    """Run destroy at a terminal, answer no, and return the stacks that it asked for."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "spindown", "destroy", "--no-color", *arguments]
    with subprocess.Popen(
        command,
        cwd=project,
        env=surroundings(project),
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.STDOUT,
    ) as child:
        os.close(theirs)
        os.write(ours, b"n\n")
        said = read_terminal(ours)
    os.close(ours)
    assert (child.returncode, "cancelled" in said) == (1, True), said
    found = re.search(r"delete: (.+?) \(y/n\)", said)
    assert found, said
    return set(found[1].split(", "))


def read_terminal(terminal: int) -> str:
    """Return all that is written until nobody has the terminal open."""
    parts: list[bytes] = []
    try:
        while part := os.read(terminal, 4096):
            parts.append(part)
    except OSError:
        # Linux says so when the last one has closed it.
        return b"".join(parts).decode()
    return b"".join(parts).decode()


@pytest.mark.parametrize(
    ("extra", "told"),
    [
        ("", ["lab-fault"]),
        ('[workload.one.image]\nmode = "bootstrap"', ["lab-image", "lab-fault"]),
        ('[workload.one.image]\nmode = "bake"', ["lab-fault"]),
        (
            '[workload.one.image]\nmode = "bootstrap"\n[workload.proof.run]\nverify = true',
            ["lab-fault"],
        ),
    ],
    ids=["baked once earned", "installed", "baked", "baked once earned for verify"],
)
def test_stacks_that_left_the_app_are_named(tmp_path: Path, extra: str, told: list[str]) -> None:
    path = tmp_path / "spindown.toml"
    path.write_text(
        '[deployment]\nname = "lab"\nregion = "eu-west-1"\nzones = ["eu-west-1a"]\n'
        f'[workload.one.run]\ncode = "."\nentrypoint = "job:run"\n{extra}\n'
    )
    there = {"lab-core", "lab-image", "lab-fault", "other-image"}

    said = say_left_stacks(config.load(path), lambda names: [x for x in names if x in there])

    named = [re.search(r"--region eu-west-1 --stack-name (\S+)$", one) for one in said]
    assert [one[1] for one in named if one] == told
    assert not say_left_stacks(config.load(path), lambda names: [])


@pytest.mark.parametrize(
    ("stacks", "has_dashboard", "is_refused"),
    [([], True, True), (["lab-core"], True, False), ([], False, False)],
    ids=["elsewhere", "its own", "new"],
)
def test_a_name_of_another_region_is_not_deployed(
    stacks: list[str], *, has_dashboard: bool, is_refused: bool
) -> None:
    def read_dashboard() -> None:
        if not has_dashboard:
            raise NotFound("no dashboard lab")

    refused = pytest.raises(BadInput, match="another region") if is_refused else nullcontext()
    with refused:
        check_namesake("lab", lambda names: [x for x in names if x in stacks], read_dashboard)


def test_what_is_protected_is_not_destroyed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = project / "spindown.toml"
    path.write_text(path.read_text().replace("[deployment]\n", "[deployment]\nprotect = true\n", 1))
    monkeypatch.chdir(project)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nobody")

    with pytest.raises(BadInput) as caught:
        destroy(config=path)

    assert (caught.value.field, caught.value.value) == ("deployment.protect", "true")


def pinned() -> str:
    package = Path(cdk_command()[1]).parents[1] / "package.json"
    return str(json.loads(package.read_text())["version"])


@pytest.mark.parametrize(
    "command", ["deploy", *(pytest.param(x, marks=pytest.mark.proof) for x in ("destroy", "cdk"))]
)
def test_the_pinned_version_gets_the_options(project: Path, command: str) -> None:
    done = run(project, command, "--version")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(pinned())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder without credentials, settings of AWS or settings of CDK."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [deploy, destroy, lambda rest: cdk(["destroy", *rest])],
    ids=["deploy", "destroy", "cdk"],
)
def test_local_is_never_ignored(home: Path, command: Callable[[list[str]], None]) -> None:
    init(config=home / "spindown.toml", region="eu-west-1")

    with pytest.raises(BadInput) as caught:
        command(["--force", "--local"])

    assert caught.value.field == "--local"


@pytest.mark.parametrize(
    "command",
    [deploy, destroy, lambda: cdk(["bootstrap"])],
    ids=["deploy", "destroy", "bootstrap"],
)
def test_missing_credentials_are_told_first(home: Path, command: Callable[[], None]) -> None:
    init(config=home / "spindown.toml", region="eu-west-1")

    with pytest.raises(BadInput) as caught:
        command()

    assert caught.value.field == "credentials"


@pytest.mark.parametrize("asked", ["--show-template", "--help"])
def test_what_cdk_tells_of_itself_needs_no_account(home: Path, asked: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "spindown", "cdk", "bootstrap", asked],
        check=False,
        cwd=home,
        env={**os.environ, "CDK_HOME": str(home)},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    assert "bootstrap" in done.stdout


def test_settings_are_read_before_cdk_starts(home: Path) -> None:
    (home / "spindown.toml").write_text("[deployment]\n")

    with pytest.raises(ConfigError):
        deploy()


def test_an_empty_folder_is_told_how_to_begin(home: Path) -> None:
    assert not list(home.iterdir())

    with pytest.raises(BadInput, match="spindown init"):
        deploy()


def test_a_profile_of_cdk_has_credentials(home: Path) -> None:
    init(config=home / "spindown.toml", region="eu-west-1")
    (home / "cdk.json").write_text('{"app": "echo spoken >&2; exit 3"}')
    (home / ".cdk.json").write_text('{"profile": "work"}')
    (home / "config").write_text(
        "[profile work]\naws_access_key_id = a\naws_secret_access_key = b\n"
    )

    done = subprocess.run(
        [sys.executable, "-m", "spindown", "deploy"],
        check=False,
        cwd=home,
        env={**os.environ, "AWS_CONFIG_FILE": str(home / "config"), "CDK_HOME": str(home)},
        capture_output=True,
        text=True,
    )

    assert "spoken" in done.stderr


def test_code_for_a_newer_python_is_told_and_not_refused(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    init(config=home / "spindown.toml", region="eu-west-1")
    (module,) = (home / "code").glob("*.py")
    module.write_text("def run(batch, ctx): wait 1\n")

    with pytest.raises(NoCredentials):
        deploy()

    assert "line 1" in (said := capsys.readouterr().err)
    assert "a newer Python" in said


def test_code_for_a_newer_python_hides_no_other_mistake(home: Path) -> None:
    init(config=(file := home / "spindown.toml"), region="eu-west-1")
    (module,) = (home / "code").glob("*.py")
    module.write_text("def run(batch, ctx): wait 1\n")
    (home / "code" / "other.py").write_text("")
    first = tomllib.loads(file.read_text())["workload"].popitem()[0]
    more = '\n[workload.zz.run]\nentrypoint = "other:run"\ncode = "code"\n'
    file.write_text(file.read_text() + more)

    with pytest.raises(ConfigError, match=r"workload\.zz\.run\.entrypoint"):
        deploy()
    assert first < "zz"


#: An SSO profile whose login is over: there is no token.
_LOGGED_OUT = """
[profile work]
sso_session = ours
sso_account_id = 123456789012
sso_role_name = operator
region = eu-west-1

[sso-session ours]
sso_start_url = https://ours.awsapps.com/start
sso_region = eu-west-1
"""


@pytest.mark.parametrize("command", ["deploy", "destroy", "doctor", "status"])
def test_a_login_that_is_over_is_one_sentence(home: Path, command: str) -> None:
    init(config=home / "spindown.toml", region="eu-west-1")
    (home / "config").write_text(_LOGGED_OUT)
    ours = {"AWS_CONFIG_FILE": str(home / "config"), "AWS_PROFILE": "work", "HOME": str(home)}

    done = subprocess.run(
        [sys.executable, "-m", "spindown", command],
        check=False,
        cwd=home,
        env={**os.environ, **ours},
        capture_output=True,
        text=True,
    )

    said = done.stdout + done.stderr
    assert done.returncode == 1
    assert "SSO Token" in said
    assert "log in" in said
    assert "Traceback" not in said


def test_the_app_is_synthesised_of_the_file_that_is_named(project: Path) -> None:
    named = run(project, "cdk", "synth", "--config", "absent.toml")
    to_the_app = run(project, "cdk", "synth", "--app", "spindown-app --config absent.toml")

    assert "context config is 'absent.toml'" in named.stderr
    assert "argument of the app is '--config absent.toml'" in to_the_app.stderr


def test_its_exit_code_and_its_words_are_passed_on(project: Path) -> None:
    done = run(project, "cdk", "diff", "--app", "echo spoken >&2; exit 3")

    assert done.returncode == 1
    assert "spoken" in done.stderr


@pytest.mark.parametrize(
    "app", [pytest.param("of the project", marks=pytest.mark.proof), "of nobody"]
)
def test_a_new_project_is_synthesised_as_it_stands(project: Path, app: str) -> None:
    if app == "of nobody":
        (project / "cdk.json").unlink()

    done = run(project, "cdk", "ls", "--no-notices")

    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.endswith(("-core", "-insight"))]


def test_destroy_is_for_the_deployment_alone(somebodys: Path) -> None:
    assert stacks_to_destroy(somebodys) == {
        "lab-core",
        "lab-insight",
        "Lab/lab-image",
        "Later/lab-outpost-us-west-2",
    }


@pytest.mark.parametrize(
    ("arguments", "stacks"),
    [
        pytest.param(["lab-insight"], {"lab-insight"}, marks=pytest.mark.proof),
        (["-e", "--concurrency", "2", "lab-notes"], {"lab-notes"}),
        (["--all", "--verbose"], {"lab-core", "lab-insight", "lab-two-core", "lab-notes"}),
    ],
    ids=["one", "after options", "all of the app"],
)
def test_destroy_is_for_the_stacks_that_are_named(
    somebodys: Path, arguments: list[str], stacks: set[str]
) -> None:
    assert {one for one in stacks_to_destroy(somebodys, *arguments) if "/" not in one} == stacks


def test_the_value_of_an_option_names_no_stack(somebodys: Path) -> None:
    assert "lab-core" in stacks_to_destroy(somebodys, "--role-arn", "lab-notes")


def test_a_deploy_of_a_named_stack_is_of_that_alone(somebodys: Path) -> None:
    done = run(somebodys, "deploy", "nobodys-stack")

    assert done.returncode == 1
    assert "nobodys-stack" in done.stderr
