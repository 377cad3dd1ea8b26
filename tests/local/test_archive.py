"""Processes of one function share the files of their code."""

import zipfile
from pathlib import Path

from spindown.local.emulator import SharedArchive
from spindown.local.environment import temporary_files_in


def an_archive(path: Path, text: str) -> Path:
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("package/main.py", text)
    return path


def unpack(archive: Path, directory: Path) -> Path:
    directory.mkdir()
    with SharedArchive(archive) as packed:
        packed.extractall(directory)
    return directory / "package" / "main.py"


def test_equal_archives_are_unpacked_once(tmp_path: Path) -> None:
    with temporary_files_in(tmp_path / "temporary"):
        first = unpack(an_archive(tmp_path / "first.zip", "same"), tmp_path / "first")
        second = unpack(an_archive(tmp_path / "second.zip", "same"), tmp_path / "second")

        assert first.read_text(encoding="utf-8") == "same"
        assert first.samefile(second)


def test_other_code_has_files_of_its_own(tmp_path: Path) -> None:
    with temporary_files_in(tmp_path / "temporary"):
        unpack(an_archive(tmp_path / "first.zip", "one"), tmp_path / "first")
        second = unpack(an_archive(tmp_path / "second.zip", "other"), tmp_path / "second")

        assert second.read_text(encoding="utf-8") == "other"
