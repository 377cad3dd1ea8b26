"""The code archive: unpacked whole below its directory, or refused whole."""

import hashlib
import shutil
import zipfile
from pathlib import Path

import pytest

from spindown.contract.run_spec import RUN_SPEC_NAME, RunSpec, encode_run_spec
from spindown.error import BadInput, ContractError, NewerSchema
from spindown.worker.child.code import fetch_code

SPEC = RunSpec(entrypoint="job:run", batch_size=4)


def pack(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def fetch(archive: Path, scratch: Path) -> None:
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    place = f"s3://assets/{digest}.zip"

    def copy(uri: str, path: Path) -> None:
        assert uri == place
        shutil.copy(archive, path)

    code = fetch_code(place, copy, scratch)
    assert code.spec == SPEC
    assert code.digest == digest
    assert (code.root / "pkg" / "job.py").read_bytes() == b"x = 1"


def test_unpacks_the_code_and_reads_how_to_call_it(tmp_path: Path) -> None:
    members = {RUN_SPEC_NAME: encode_run_spec(SPEC), "pkg/job.py": b"x = 1"}
    fetch(pack(tmp_path / "a.zip", members), tmp_path / "scratch")


def test_refuses_an_archive_that_is_not_the_deployed_one(tmp_path: Path) -> None:
    members = {RUN_SPEC_NAME: encode_run_spec(SPEC), "pkg/job.py": b"x = 1"}
    archive = pack(tmp_path / "a.zip", members)
    place = f"s3://assets/{hashlib.sha256(archive.read_bytes()).hexdigest()}.zip"
    data = pack(archive, {**members, "pkg/job.py": b"x = 2"}).read_bytes()

    def fetch_other(_: str, path: Path) -> None:
        path.write_bytes(data)

    with pytest.raises(ContractError) as caught:
        fetch_code(place, fetch_other, tmp_path / "scratch")

    assert (caught.value.field, caught.value.value) == ("code", place)
    assert not (tmp_path / "scratch" / "code").exists()


@pytest.mark.parametrize("name", ["../evil.py", "/etc/evil", "a/../../evil", "a\\..\\evil"])
def test_refuses_an_archive_that_leaves_its_directory(tmp_path: Path, name: str) -> None:
    members = {RUN_SPEC_NAME: encode_run_spec(SPEC), name: b"evil"}
    with pytest.raises(ContractError) as caught:
        fetch(pack(tmp_path / "a.zip", members), tmp_path / "scratch")
    assert (caught.value.field, caught.value.value) == ("code", name)
    assert not list(tmp_path.rglob("evil*"))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (None, "the archive has no spindown-run.json"),
        (b"{", "it is not JSON"),
        (b"[]", "it is not an object"),
        (b"{}", "module:callable"),
        (b'{"entrypoint": "job:run", "command": ["true"]}', "one of entrypoint, command"),
        (b'{"command": ["true"], "stop_grace": -1}', "zero or longer"),
        (b'{"image": "a", "results": "some"}', "RunSpec.results is 'some'"),
        (b'{"entrypoint": "job"}', "module:callable"),
        (b'{"entrypoint": "job:run", "batch_size": 0}', "at least 1"),
        (b'{"entrypoint": "job:run", "item_timeout": 0}', "longer than zero"),
        (b'{"entrypoint": "job:run", "batch_size": "many"}', "RunSpec.batch_size is 'many'"),
    ],
    ids=[
        "none",
        "cut",
        "list",
        "empty",
        "two modes",
        "no grace",
        "no such results",
        "no callable",
        "no batch",
        "no time",
        "text",
    ],
)
def test_says_what_is_wrong_with_the_call(tmp_path: Path, data: bytes | None, says: str) -> None:
    members = {"a.py": b""} if data is None else {RUN_SPEC_NAME: data}
    with pytest.raises(BadInput, match=says):
        fetch(pack(tmp_path / "a.zip", members), tmp_path / "scratch")


def test_leaves_a_newer_call_to_newer_workers(tmp_path: Path) -> None:
    members = {RUN_SPEC_NAME: b'{"entrypoint": "job:run", "schema": 2}'}
    with pytest.raises(NewerSchema):
        fetch(pack(tmp_path / "a.zip", members), tmp_path / "scratch")


def test_says_that_a_file_is_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    path.write_bytes(b"PK no")
    with pytest.raises(ContractError) as caught:
        fetch(path, tmp_path / "scratch")
    assert (caught.value.field, caught.value.value) == ("code", "code.zip")
