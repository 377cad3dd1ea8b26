"""Every line of docs/security.md names tests that are there, or admits that none shows it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
_TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def claims() -> Iterator[str]:
    """Yield each line of each table that has a column of tests."""
    for table in re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE):
        head, _, *lines = table.splitlines()
        if head.split("|")[-2].strip() == "test":
            yield from lines


def test_every_party_has_its_lines() -> None:
    parties = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)

    assert len(parties) == 6
    for section in PAGE.split("\n## ")[1:]:
        assert _TEST.search(section), section.splitlines()[0]


def test_no_line_lacks_a_test() -> None:
    found = list(claims())
    # What is not defended (three columns) may have no test, and then says so.
    untested = [line for line in found if not _TEST.search(line.split("|")[-2])]

    assert len(found) > 40
    assert [line for line in untested if line.split("|")[3:] != [" not tested ", ""]] == []


def test_every_named_test_is_there() -> None:
    named = set(_TEST.findall(PAGE))
    missing = [
        f"{path}::{name}"
        for path, name in sorted(named)
        if not (ROOT / path).exists() or name not in defined_in(ROOT / path)
    ]

    assert len(named) > 25
    assert missing == []


def defined_in(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
