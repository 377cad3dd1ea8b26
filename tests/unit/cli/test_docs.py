"""The documentation comes along with the command."""

import re
from pathlib import Path

import pytest

from spindown.cli.docs import FOLDER, docs
from spindown.error import BadInput

ROOT = Path(__file__).parents[3]


def test_all_pages_are_listed_with_their_titles(capsys: pytest.CaptureFixture[str]) -> None:
    docs()

    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines} == {one.stem for one in FOLDER.glob("*.md")}
    assert lines[0] == "quickstart    Quickstart: on this machine"
    assert [line.split()[0] for line in lines].index("start") == 1


@pytest.mark.parametrize("page", ["quickstart", "docs/quickstart.md", "quickstart.md#1-install"])
def test_a_page_is_shown_however_a_text_names_it(
    page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    docs(page)

    assert "spindown local up" in capsys.readouterr().out


def test_a_path_is_for_other_programs(capsys: pytest.CaptureFixture[str]) -> None:
    docs("adr/0008-ranking", path=True)

    assert Path(capsys.readouterr().out.strip()).is_file()


def test_an_unknown_page_is_refused_with_those_near() -> None:
    with pytest.raises(BadInput, match="PAGE is 'setings': name settings"):
        docs("setings")


def test_no_message_names_a_file_that_a_wheel_does_not_have() -> None:
    said = re.compile(r"\"[^\"\n]*docs/[a-z]+\.md")
    files = [one for one in (ROOT / "spindown").rglob("*.py") if "cdk" not in one.parts]

    assert files
    assert not [one for one in files if said.search(one.read_text(encoding="utf-8"))]
