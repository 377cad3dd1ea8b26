"""The set-up from nothing, in a copy of the repository: whole, cut short, and without a network."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.proof


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a copy of what git tracks, without anything that was built."""
    listed = subprocess.run(["git", "ls-files", "-z"], check=True, cwd=ROOT, capture_output=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file() or (ROOT / name).is_symlink():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, tmp_path / name, follow_symlinks=False)
    return tmp_path


def set_up(checkout: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run `make setup` to its end."""
    return subprocess.run(
        ["make", "setup"],
        check=False,
        cwd=checkout,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )


def works(checkout: Path) -> bool:
    """Tell whether the project can be imported and CDK answers with its pinned version."""
    scripts = checkout / ".venv" / "bin"
    imported = subprocess.run([scripts / "python", "-c", "import spindown, moto"], check=False)
    cdk = subprocess.run([scripts / "cdk", "--version"], check=False, capture_output=True)
    return imported.returncode == 0 and cdk.stdout.startswith(b"2.1148.1")


def test_a_first_setup_is_complete_and_a_second_does_nothing(checkout: Path) -> None:
    first = set_up(checkout)
    second = set_up(checkout)

    assert first.returncode == 0, first.stderr
    assert works(checkout)
    assert (second.returncode, second.stderr) == (0, "")


def test_a_set_up_that_was_interrupted_is_finished_by_the_next(checkout: Path) -> None:
    command = ["make", "setup"]
    with subprocess.Popen(
        command, cwd=checkout, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as cut:
        assert cut.stderr is not None
        next(line for line in cut.stderr if line.startswith("Installing the locked"))
        os.killpg(cut.pid, signal.SIGINT)
        rest = cut.stderr.read()

    assert cut.returncode != 0
    assert "Set-up was interrupted; run the command again to finish it." in rest
    assert "Traceback" not in rest
    assert set_up(checkout).returncode == 0
    assert works(checkout)


def test_a_half_made_environment_is_made_again(checkout: Path) -> None:
    (checkout / ".venv" / "bin").mkdir(parents=True)
    (checkout / ".venv" / "bin" / "python").write_text("torn")

    done = set_up(checkout)

    assert done.returncode == 0, done.stderr
    assert works(checkout)


def test_without_a_registry_the_set_up_says_so_in_one_sentence(checkout: Path) -> None:
    nowhere = "http://127.0.0.1:9/nowhere"

    done = set_up(checkout, PIP_INDEX_URL=nowhere, PIP_NO_CACHE_DIR="1", PIP_RETRIES="0")

    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert done.stderr.count("Set-up stopped: could not download uv") == 1
