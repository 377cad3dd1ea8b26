"""A folder is packed with its command: the same bytes each time, and nothing that is hidden."""

import io
import json
import os
import zipfile
from pathlib import Path

import pytest

from spindown.contract.folder import COMMAND_NAME, digest_of
from spindown.error import BadInput
from spindown.memory import MemoryClock, MemoryObjectStore
from spindown.operate.sent_folder import exit_status, pack_folder, send_folder

COMMAND = ["python", "train.py"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "folder"
    for name in ("train.py", "data/a.csv", ".env", ".git/config", "__pycache__/x", "outputs/old"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    (root / "train.py").chmod(0o755)
    return root


def test_what_is_sent_is_seen_and_the_same_each_time(folder: Path) -> None:
    packed = pack_folder(folder, COMMAND)
    os.utime(folder / "train.py", (1, 1))

    assert pack_folder(folder, COMMAND).digest == packed.digest
    assert pack_folder(folder, ["true"]).digest != packed.digest
    with zipfile.ZipFile(io.BytesIO(packed.archive)) as archive:
        assert sorted(archive.namelist()) == [COMMAND_NAME, "data/a.csv", "train.py"]
        assert json.loads(archive.read(COMMAND_NAME)) == COMMAND
    assert packed.files == 2
    assert list(packed.left_out) == [".env", ".git/config", "__pycache__/x"]


def test_a_link_that_leads_out_is_refused(folder: Path) -> None:
    (folder / "secret").symlink_to("/etc/passwd")
    with pytest.raises(BadInput, match="secret"):
        pack_folder(folder, COMMAND)


@pytest.mark.parametrize("place", ["elsewhere", "folder/data", "nowhere"])
def test_a_link_to_no_file_is_refused(folder: Path, place: str) -> None:
    (folder.parent / "elsewhere").mkdir()
    (folder / "more").symlink_to(folder.parent / place)
    with pytest.raises(BadInput, match="more"):
        pack_folder(folder, COMMAND)


@pytest.mark.parametrize("place", [".env", ".git/config", "__pycache__/x"])
def test_a_link_to_what_is_left_out_is_refused(folder: Path, place: str) -> None:
    (folder / "data" / "settings").symlink_to(folder / place)
    with pytest.raises(BadInput, match="data/settings"):
        pack_folder(folder, COMMAND)


def test_a_link_to_what_is_sent_is_sent(folder: Path) -> None:
    (folder / "b.csv").symlink_to("data/a.csv")

    assert pack_folder(folder, COMMAND).files == 3


def test_a_link_in_what_is_left_out_is_no_matter(folder: Path) -> None:
    (folder / ".git" / "more").symlink_to(folder / "data")
    (folder / "outputs" / "more").symlink_to(folder / "data")

    assert pack_folder(folder, COMMAND).files == 2


def test_its_address_names_its_bytes(folder: Path) -> None:
    store = MemoryObjectStore(MemoryClock())
    packed = pack_folder(folder, COMMAND)

    addresses = {send_folder(packed, "lab", "bucket", store) for _ in range(2)}

    (address,) = addresses
    assert digest_of(address) == packed.digest
    assert store.get(address.removeprefix("s3://bucket/")).data == packed.archive


@pytest.mark.parametrize("result", [None, 3, {}, {"exit_status": "0"}, {"exit_status": True}])
def test_a_record_without_a_status_has_none(result: object) -> None:
    assert exit_status({"result": result}) is None
