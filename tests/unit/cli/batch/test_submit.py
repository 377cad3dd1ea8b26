"""What the command line makes of files and parameters."""

import os
from pathlib import Path

import pytest

from spindown.cli.batch.submit import find_files
from spindown.error import BadInput


def make_files(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)


def test_a_directory_stands_for_all_files_below_it(tmp_path: Path) -> None:
    make_files(tmp_path, "b.txt", "deep/a.txt")

    found = find_files([str(tmp_path)])

    assert [path.name for path, _ in found] == ["b.txt", "a.txt"]


def test_a_glob_stands_for_what_it_matches(tmp_path: Path) -> None:
    make_files(tmp_path, "a.txt", "b.png", "deep/c.txt")

    found = find_files([str(tmp_path / "**" / "*.txt")])

    assert sorted(path.name for path, _ in found) == ["a.txt", "c.txt"]


def test_a_file_named_twice_is_one_item(tmp_path: Path) -> None:
    make_files(tmp_path, "a.txt")
    path = str(tmp_path / "a.txt")

    assert len(find_files([path, str(tmp_path)])) == 1


def test_a_name_below_the_batch_never_climbs_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_files(tmp_path, "a.txt", "inside/keep")
    monkeypatch.chdir(tmp_path / "inside")

    ((_, name),) = find_files([os.path.join("..", "a.txt")])  # noqa: PTH118 - Path drops nothing

    assert name == "a.txt"


@pytest.mark.parametrize("source", ["absent.txt", "*.nothing"])
def test_a_source_that_names_no_file_is_one_sentence(tmp_path: Path, source: str) -> None:
    with pytest.raises(BadInput, match="name a file, a directory or a glob"):
        find_files([str(tmp_path / source)])
