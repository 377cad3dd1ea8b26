"""What may be released, and that the workflow makes just that."""

import re
from pathlib import Path
from typing import Any

import pytest

from spindown import __version__
from tools.release import complain

ROOT = Path(__file__).parents[2]
GOOD: dict[str, Any] = {
    "status": "",
    "tags": ["v1.2.0"],
    "changelog": "# Changelog\n\n## 1.2.0 (2027-01-01)\n",
    "version": "1.2.0",
}


def test_a_clean_tagged_commit_with_its_changes_is_released() -> None:
    assert complain(**GOOD) == ""


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"status": " M README.md\n"}, "git status"),
        ({"tags": ["v1.1.0", "latest"]}, "tag this commit v1.2.0"),
        ({"tags": []}, "tag this commit v1.2.0"),
        ({"changelog": "# Changelog\n\n## Unreleased\n"}, 'heading "## 1.2.0"'),
    ],
    ids=["changed files", "another tag", "no tag", "no heading"],
)
def test_what_is_no_release_is_told_in_a_sentence(change: dict[str, object], says: str) -> None:
    complaint = complain(**GOOD | change)

    assert says in complaint
    assert "\n" not in complaint


def test_the_workflow_publishes_what_the_command_makes() -> None:
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")

    assert "make release" in workflow
    assert all(
        re.fullmatch(r"[0-9a-f]{40}", pin) for pin in re.findall(r"uses: \S+@(\S+)", workflow)
    )
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)
