"""The lock files pin what pyproject declares, and nothing ties them to one registry."""

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "locks").glob("*.txt"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT, GROUPS = PYPROJECT["project"], PYPROJECT["dependency-groups"]
EXTRAS = PROJECT["optional-dependencies"]

#: What each lock file pins: all that is declared, or what one group is.
COMPILED_FROM = {
    "dev": [PROJECT["dependencies"], *EXTRAS.values(), *GROUPS.values()],
    "functions": [GROUPS["functions"]],
    "worker": [GROUPS["worker"]],
}

ENTRY = re.compile(
    r"^([a-z0-9-]+)==(\S+)[^\n]*\\\n((?: +--hash=[^\n]*\n?)+)((?: +#[^\n]*\n?)*)", re.MULTILINE
)


def pins(lock: str) -> dict[str, str]:
    """Return name -> version of a lock file."""
    text = (ROOT / "locks" / f"{lock}.txt").read_text(encoding="utf-8")
    return {name: version for name, version, _hashes, _why in ENTRY.findall(text)}


def declared(lists: list[list[str]]) -> list[Requirement]:
    """Return what some lists ask for, without references to the project itself."""
    asked = [Requirement(text) for texts in lists for text in texts]
    return [one for one in asked if one.name != PROJECT["name"]]


@pytest.mark.parametrize("lock", COMPILED_FROM)
def test_a_lock_pins_every_declared_dependency_within_its_range(lock: str) -> None:
    pinned = pins(lock)

    loose = [
        str(asked)
        for asked in declared(COMPILED_FROM[lock])
        if pinned.get(canonicalize_name(asked.name), "") not in asked.specifier
    ]

    assert loose == [], "run make lock"


@pytest.mark.parametrize("lock", COMPILED_FROM)
def test_a_lock_holds_nothing_that_is_no_longer_declared(lock: str) -> None:
    text = (ROOT / "locks" / f"{lock}.txt").read_text(encoding="utf-8")
    direct = {name for name, _, _, why in ENTRY.findall(text) if "pyproject.toml" in why}

    assert {canonicalize_name(one.name) for one in declared(COMPILED_FROM[lock])} == direct


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_every_line_of_a_lock_is_a_hashed_pin_or_a_comment(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")

    rest = ENTRY.sub("", text)

    assert pins(lock.stem)
    assert [line for line in rest.splitlines() if line and not line.startswith("#")] == []


@pytest.mark.parametrize("lock", ["bootstrap", "functions", "worker"])
def test_what_is_deployed_is_what_is_tested(lock: str) -> None:
    assert pins(lock).items() <= pins("dev").items()


@pytest.mark.parametrize("name", [*(f"locks/{lock.name}" for lock in LOCKS), "package-lock.json"])
def test_a_lock_names_no_address(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")

    assert re.findall(r"\w+://\S+|--\S*index-url\S*|--find-links|\"resolved\"", text) == []


def test_every_node_package_is_pinned_with_its_hash() -> None:
    lock = json.loads((ROOT / "package-lock.json").read_text(encoding="utf-8"))
    wanted = json.loads((ROOT / "package.json").read_text(encoding="utf-8"))["devDependencies"]
    packages = {name: package for name, package in lock["packages"].items() if name}

    assert {name: packages[f"node_modules/{name}"]["version"] for name in wanted} == wanted
    assert [name for name, package in packages.items() if "integrity" not in package] == []


def test_without_a_fitting_python_set_up_says_so_in_a_sentence() -> None:
    done = subprocess.run(
        ["sh", "tools/setup.sh"],
        check=False,
        cwd=ROOT,
        env=os.environ | {"PYTHON": "no-such-python"},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 1
    assert done.stderr.startswith("Spindown needs Python 3.11 or newer")
    assert done.stderr.count("\n") == 1
