"""The wheel as a new user has it: an empty folder, an environment of its own, and no checkout."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from uv import find_uv_bin

from tests.local.waiting import until
from tools.setup import uv_environment

pytestmark = pytest.mark.proof

ROOT = Path(__file__).parents[2]
#: Seconds, for an instance to start and work on this machine.
PATIENCE = 120.0
PIPX = "pipx@1.18.4"


@dataclass(frozen=True)
class Installed:
    """An environment that has the wheel, and a folder that was empty."""

    environment: Path
    folder: Path

    def run(self, *arguments: str, program: str = "spindown") -> str:
        """Run a program of the environment in the folder; return what it prints."""
        done = self.attempt(*arguments, program=program)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def attempt(
        self, *arguments: str, program: str = "spindown"
    ) -> "subprocess.CompletedProcess[str]":
        """Run a program whatever comes of it."""
        return subprocess.run(
            [self.environment / "bin" / program, *arguments],
            check=False,
            cwd=self.folder,
            env=outside(),
            capture_output=True,
            text=True,
        )


def outside() -> Mapping[str, str]:
    """Return an environment that leads to nothing of the checkout, and to no account."""
    foreign = ("AWS_", "JSII_", "PYTHON", "VIRTUAL_ENV")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(foreign)}
    return {**kept, "PATH": "/usr/bin:/bin"}


def install(directory: Path, wheel: Path, extra: str, way: str = "uv pip") -> Installed:
    """Install the wheel with an extra in an environment of its own, and make an empty folder.

    Args:
        directory: for both.
        wheel: what is installed.
        extra: in brackets; "": none.
        way: of installing: ``uv pip``, ``uv tool`` or ``pipx``.
    """
    folder = directory / "words"
    folder.mkdir()
    environment = ENVIRONMENTS[way](directory)
    python, named = ["--python", sys.executable], f"{wheel}{extra}"
    if way == "uv pip":
        install_by(directory, "uv", "venv", "--quiet", *python, str(environment))
        python = ["--python", str(environment)]
    install_by(directory, *way.split(), "install", "--quiet", *python, named)
    return Installed(environment, folder)


#: Where each way makes the environment.
ENVIRONMENTS: Mapping[str, Callable[[Path], Path]] = {
    "uv pip": lambda directory: directory / "environment",
    "uv tool": lambda directory: directory / "tools" / "spindown",
    "pipx": lambda directory: directory / "pipx" / "venvs" / "spindown",
}


def install_by(directory: Path, program: str, *arguments: str) -> None:
    """Run uv, or pipx by uv, with all that they make in a directory."""
    programs = {"uv": [find_uv_bin()], "pipx": [find_uv_bin(), *["tool", "run", "--quiet"], PIPX]}
    places = {
        "UV_TOOL_DIR": directory / "tools" if program == "uv" else directory / "pipx_itself",
        "UV_TOOL_BIN_DIR": directory / "bin",
        "PIPX_HOME": directory / "pipx",
        "PIPX_BIN_DIR": directory / "bin",
        "PIPX_MAN_DIR": directory / "man",
    }
    done = subprocess.run(
        [*programs[program], *arguments],
        check=False,
        cwd=directory,
        env={
            **uv_environment([sys.executable, "-m", "pip"]),
            **{name: str(place) for name, place in places.items()},
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    (made,) = directory.iterdir()
    return made


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Iterator[Installed]:
    installed = install(tmp_path_factory.mktemp("whole"), wheel, "[local]")
    yield installed
    installed.attempt("local", "down", "--yes")


def test_from_an_empty_folder_to_the_first_result(whole: Installed) -> None:
    if not (whole.folder / "spindown.toml").exists():
        whole.run("init")
    for name in ("functions", "infra", "worker"):
        (whole.folder / f"{name}.py").write_text("raise SystemExit('planted')\n")
        (whole.folder / "code" / f"{name}.py").write_text(f"NAME = {name!r}\n")
    main = whole.folder / "code" / "main.py"
    theirs = "import functions, infra, worker\nassert worker.NAME == 'worker'\n"
    main.write_text(main.read_text().replace("from collections", f"{theirs}from collections", 1))

    whole.run("local", "up", "--port", "0")
    sent = json.loads(whole.run("submit", "main", "spindown.toml", "--local", "--json"))
    until(
        lambda: '"ok"' in whole.run("results", sent["batch_id"], "--local"),
        seconds=PATIENCE,
    )

    record = json.loads(whole.run("results", sent["batch_id"], "--local"))
    words = (whole.folder / "spindown.toml").read_text().split()
    assert record["result"] == {"words": len(words)}


def test_the_app_is_synthesised_for_an_account(whole: Installed) -> None:
    if not (whole.folder / "spindown.toml").exists():
        whole.run("init")

    listed = whole.run("cdk", "ls", "--no-notices").split()

    assert {name.rpartition("-")[2] for name in listed} == {"core", "image", "insight"}


@pytest.mark.parametrize("way", ENVIRONMENTS)
def test_without_an_extra_it_says_how_to_get_it(tmp_path: Path, wheel: Path, way: str) -> None:
    bare = install(tmp_path, wheel, "", way)
    bare.run("init")
    bare.run("iam", "submitter", "--account", "123456789012")
    told = {
        "uv pip": f"uv pip install --python {bare.environment}",
        "uv tool": "uv tool install --force",
        "pipx": "pipx install --force",
    }[way]

    for arguments, extra in (
        (("deploy",), "infra"),
        (("local", "up"), "local"),
        (("simulate", "--html", "page.html"), "plot"),
    ):
        done = bare.attempt(*arguments)
        assert (done.returncode, done.stdout) == (1, "")
        # `simulate` says first what it is about to do.
        # Beside what it says that it does, as that it loads on a busy machine.
        assert [line.endswith(" ...") for line in done.stderr.splitlines()].count(False) == 1
        assert f"{told} '{wheel}[{extra}]'" in done.stderr
    app = bare.attempt(program="spindown-app")
    assert (app.returncode, app.stdout, app.stderr.count("\n")) == (1, "", 1)

    install_by(tmp_path, *told.split(), f"{wheel}[plot]")

    bare.run("-c", "from spindown.installed import require; require('plot')", program="python")
