"""The wheel: one name to import, and all that a deploy and the local system need."""

import subprocess
import sys
import zipfile
from collections.abc import Sequence
from email.message import Message
from email.parser import BytesParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
#: Bytes; nearly all are the command line of CDK.
LARGEST = 12 * 1024 * 1024


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
    (made,) = directory.iterdir()
    return made


@pytest.fixture(scope="module")
def names(wheel: Path) -> Sequence[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


@pytest.fixture(scope="module")
def metadata(wheel: Path, names: Sequence[str]) -> Message:
    (name,) = (name for name in names if name.endswith(".dist-info/METADATA"))
    with zipfile.ZipFile(wheel) as archive:
        return BytesParser().parsebytes(archive.read(name))


def test_one_name_can_be_imported(names: Sequence[str]) -> None:
    tops = {name.split("/")[0] for name in names}

    assert {top for top in tops if not top.endswith(".dist-info")} == {"spindown"}


@pytest.mark.parametrize("folder", ["functions", "infra", "worker", "examples"])
def test_every_file_of_the_folders_at_the_top_is_in_it(folder: str, names: Sequence[str]) -> None:
    files = [path for path in (ROOT / folder).rglob("*") if path.is_file()]
    kept = [path for path in files if "__pycache__" not in path.parts]

    assert kept
    assert {f"spindown/{path.relative_to(ROOT)}" for path in kept} <= set(names)


def test_it_brings_the_locks_of_what_is_deployed_and_cdk(names: Sequence[str]) -> None:
    locks = {name for name in names if name.startswith("spindown/locks/")}

    assert {Path(name).stem for name in locks} == {"bootstrap", "functions", "tables", "worker"}
    assert {"spindown/cdk/bin/cdk", "spindown/cdk/lib/index.js"} <= set(names)
    assert {"spindown/cdk/LICENSE", "spindown/cdk/NOTICE"} <= set(names)


def test_it_brings_the_pages_of_the_docs(names: Sequence[str]) -> None:
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "adr").glob("*.md")]

    assert pages
    assert {f"spindown/{path.relative_to(ROOT)}" for path in pages} <= set(names)


def test_it_holds_no_tests_and_nothing_that_is_made(wheel: Path, names: Sequence[str]) -> None:
    assert not [name for name in names if "/tests/" in name or name.endswith((".pyc", ".d.ts"))]
    assert wheel.stat().st_size < LARGEST


def test_the_command_needs_no_extra(metadata: Message) -> None:
    asked = [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]
    plain = {one.name for one in asked if one.marker is None}

    assert plain == {"boto3", "pydantic", "rich", "typer"}
    assert set(metadata.get_all("Provides-Extra", [])) >= {"demo", "infra", "local", "plot"}
