"""Files of items come back under their names, and no name does harm."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from spindown.ec2sim import MemoryClock
from spindown.error import BadInput
from spindown.memory.store import MemoryObjectStore
from spindown.operate.download import fetch_outputs

KEY = "jobs/j/parts/00000001-00000000-00000000/0/file"


def a_row(path: str, data: bytes = b"made", key: str = KEY) -> dict[str, Any]:
    digest = hashlib.sha256(data).hexdigest()
    return {"path": path, "key": key, "bytes": len(data), "sha256": digest}


def fetch(
    folder: Path,
    *rows: object,
    data: bytes = b"made",
    may_replace: bool = False,
    may_hide: bool = True,
) -> list[Path | BadInput]:
    store = MemoryObjectStore(MemoryClock())
    store.put(KEY, data)
    records = [({"job_id": "j", "outputs": list(rows)}, folder)]
    ((_, fetched),) = fetch_outputs(records, store, may_replace=may_replace, may_hide=may_hide)
    return list(fetched)


def test_a_file_comes_back_under_its_name(tmp_path: Path) -> None:
    (path,) = fetch(tmp_path, a_row("a/made.txt"))

    assert path == tmp_path / "a" / "made.txt"
    assert path.read_bytes() == b"made"


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "a/../../x",
        "/etc/x",
        "",
        ".",
        "..",
        "a//x",
        "a/",
        "a\0x",
        "\ud800",
        "x" * 300,
        "there",
        "there/x",
        "link/x",
        "full",
    ],
)
def test_a_name_that_would_do_harm_is_told_and_not_used(tmp_path: Path, name: str) -> None:
    folder, outside = tmp_path / "inside", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (folder / "there").write_text("mine")
    (folder / "link").symlink_to(outside)
    (folder / "full").mkdir()
    before = sorted(tmp_path.rglob("*"))

    (fault,) = fetch(folder, a_row(name))

    assert isinstance(fault, BadInput)
    assert sorted(tmp_path.rglob("*")) == before
    assert (folder / "there").read_text() == "mine"


@pytest.mark.parametrize(
    "name",
    [
        *(".git/config", "a/.GIT/config", ".git. /config", "git~1/config", ".git", ".git:x/config"),
        *(".hg/hgrc", ".g\u200cit/config", ".git\\config"),
        *(".jj/repo/config.toml", "a/.sl/config"),
        # A folder that holds these itself is a repository too.
        *("HEAD", "a/head", "HEAD."),
    ],
)
def test_no_name_makes_the_folder_a_repository(tmp_path: Path, name: str) -> None:
    (fault,) = fetch(tmp_path, a_row(name))

    assert isinstance(fault, BadInput)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [".envrc", "a/.b", "a/.vscode/settings.json", "a\\.b"])
def test_a_hidden_name_is_used_only_where_it_may_be(tmp_path: Path, name: str) -> None:
    (fault, shown) = fetch(tmp_path, a_row(name), a_row("a/b.c"), may_hide=False)

    assert isinstance(fault, BadInput)
    assert shown == tmp_path / "a" / "b.c"
    assert fetch(tmp_path, a_row(name)) == [tmp_path / name]


@pytest.mark.parametrize("name", ["a\nb", "\x1b[2J", "\u202egpj.exe", "a\u200bb", "\ue000"])
def test_a_name_that_does_not_show_is_refused(tmp_path: Path, name: str) -> None:
    (fault,) = fetch(tmp_path, a_row(name))

    assert isinstance(fault, BadInput)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    [".gitignore", ".github/x", "x.git", "a\u3000é", "head/x", "head.txt", "HEADER", "overhead"],
)
def test_an_ordinary_name_is_used(tmp_path: Path, name: str) -> None:
    assert fetch(tmp_path, a_row(name)) == [tmp_path / name]


@pytest.mark.parametrize(
    "row",
    [
        7,
        {},
        a_row("x", key="jobs/other/parts/x"),
        a_row("x", key="jobs/j/manifest.json"),
        a_row("x", key=KEY + "-gone"),
        a_row("x", data=b"other bytes"),
        {**a_row("x"), "path": ["x"]},
    ],
)
def test_what_is_no_file_of_the_job_is_told(tmp_path: Path, row: object) -> None:
    (fault,) = fetch(tmp_path, row)

    assert isinstance(fault, BadInput)
    assert list(tmp_path.iterdir()) == []


def test_a_name_given_twice_is_fetched_once(tmp_path: Path) -> None:
    path, fault = fetch(tmp_path, a_row("x"), a_row("x"))

    assert path == tmp_path / "x"
    assert isinstance(fault, BadInput)


def test_a_file_that_is_there_already_is_left_alone(tmp_path: Path) -> None:
    (path,) = fetch(tmp_path, a_row("x"))
    assert isinstance(path, Path)
    inode = path.stat().st_ino

    assert fetch(tmp_path, a_row("x")) == [path]
    assert path.stat().st_ino == inode


def test_another_file_is_replaced_only_if_that_was_allowed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("mine")
    folder = tmp_path / "inside"
    folder.mkdir()
    (folder / "x").symlink_to(outside)

    (path,) = fetch(folder, a_row("x"), may_replace=True)

    assert path == folder / "x"
    assert path.read_bytes() == b"made"
    # The link is replaced, not what it points at.
    assert outside.read_text() == "mine"
