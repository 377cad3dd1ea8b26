"""What ``submit`` reads, and what it refuses before it asks a deployment."""

from pathlib import Path

import pytest

from spindown.cli.submit import _read_items
from spindown.error import BadInput


def test_a_list_on_one_line_is_one_item_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "list.json"
    path.write_text('[{"n": 1}, {"n": 2}]\n', encoding="utf-8")

    assert _read_items(path) == ([{"n": 1}, {"n": 2}],)
    assert "write a line for each of 2 values" in capsys.readouterr().err


def test_lists_on_their_lines_are_items_without_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lists.jsonl"
    path.write_text("[1, 2]\n[3, 4]\n", encoding="utf-8")

    assert _read_items(path) == ([1, 2], [3, 4])
    assert not capsys.readouterr().err


def test_a_list_over_several_lines_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "list.json"
    path.write_text('[\n  {"n": 1}\n]\n', encoding="utf-8")

    with pytest.raises(BadInput, match="write one item a line"):
        _read_items(path)
