"""The archive of a workload's code: same content, same bytes, nothing from beside it."""

import hashlib
import io
import json
import os
import py_compile
import tomllib
import zipfile
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from aws_cdk.assertions import Annotations, Match

from spindown import config
from spindown.config import WorkloadConfig
from spindown.config.archive import (
    REQUIREMENTS_NAME,
    find_code,
    is_deployed,
    pack,
    read_version,
    run_spec,
)
from spindown.contract.run_spec import RUN_SPEC_NAME, OnNewCode, RunSpec, decode_run_spec
from spindown.error import ConfigError
from tests.infra.assembly import (
    CONFIG,
    Assembly,
    describe_core,
    make_app,
    words,
    write_project,
)

SPEC = RunSpec(entrypoint="job:run")


@pytest.fixture
def code(tmp_path: Path) -> Path:
    directory = tmp_path / "code"
    (directory / "model").mkdir(parents=True)
    (directory / "job.py").write_text("def run(batch, ctx): return []\n")
    (directory / "model" / "weights.bin").write_bytes(bytes(range(256)))
    return directory


def members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def rich() -> WorkloadConfig:
    return config.parse(tomllib.loads(CONFIG)).workload["rich"]


def test_the_archive_holds_the_code_and_how_to_call_it(code: Path) -> None:
    found = members(pack(code, SPEC))

    assert set(found) == {"job.py", "model/weights.bin", RUN_SPEC_NAME}
    assert found["model/weights.bin"] == bytes(range(256))
    spec = decode_run_spec(found[RUN_SPEC_NAME])
    assert replace(spec, version="") == SPEC
    assert len(spec.version) == 64


def test_the_same_code_gives_the_same_bytes_to_whoever_packs_it(code: Path, tmp_path: Path) -> None:
    other, usual = tmp_path / "elsewhere" / "of another name", os.umask(0o077)
    try:
        # In another order, at another time, with other rights, beside what running it leaves.
        for path in sorted(code.rglob("*"), reverse=True):
            if path.is_file():
                copy = other / path.relative_to(code)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(path.read_bytes())
                os.utime(copy, (1_000_000_000, 1_000_000_000))
    finally:
        os.umask(usual)
    py_compile.compile(str(other / "job.py"))
    (other / "empty").mkdir()

    assert pack(other, SPEC) == pack(code, SPEC)


def test_no_library_decides_on_the_bytes_of_an_archive(code: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(pack(code, SPEC))) as archive:
        assert {one.compress_type for one in archive.infolist()} == {zipfile.ZIP_STORED}


def test_another_way_to_call_it_is_another_archive(code: Path) -> None:
    assert pack(code, SPEC) != pack(code, RunSpec(entrypoint="job:run", batch_size=2))


@pytest.mark.parametrize("change", [
    {"item_timeout": timedelta(hours=1)},
    {"setup_timeout": timedelta(hours=1)},
    {"job_timeout": timedelta(hours=1)},
    {"stop_grace": timedelta(minutes=1)},
    {"batch_size": 2},
    {"slots": "2"},
    {"inputs": ("s3://a/b/",)},
    {"env": {"LEVEL": "3"}},
    {"secrets": {"KEY": "/a"}},
    {"on_new_code": OnNewCode.KEEP},
])  # fmt: skip
def test_a_deploy_that_changes_no_result_is_the_same_version(
    code: Path, change: dict[str, Any]
) -> None:
    before, after = pack(code, SPEC), pack(code, replace(SPEC, **change))

    assert before != after
    assert read_version(before) == read_version(after)


@pytest.mark.parametrize("change", [
    {"entrypoint": "job:other"},
    {"entrypoint": "", "command": ("job",)},
    {"entrypoint": "", "image": "render:1"},
    {"requirements": "needs.txt"},
])  # fmt: skip
def test_whatever_changes_results_is_another_version(code: Path, change: dict[str, Any]) -> None:
    assert read_version(pack(code, SPEC)) != read_version(pack(code, replace(SPEC, **change)))


@pytest.mark.parametrize("act", [
    lambda code: (code / "job.py").write_text("# other"),
    lambda code: (code / "job.py").chmod(0o755),
    lambda code: (code / "job.py").rename(code / "jobs.py"),
    lambda code: (code / "more.py").touch(),
], ids=["content", "mode", "name", "one more"])  # fmt: skip
def test_other_files_are_another_version(code: Path, act: Callable[[Path], object]) -> None:
    before = read_version(pack(code, SPEC))
    act(code)
    assert read_version(pack(code, SPEC)) != before


def test_a_program_stays_one(code: Path) -> None:
    (code / "convert").write_text("#!/bin/sh\n")
    (code / "convert").chmod(0o755)

    with zipfile.ZipFile(io.BytesIO(pack(code, SPEC))) as archive:
        modes = {one.filename: one.external_attr >> 16 for one in archive.infolist()}

    assert modes["convert"] & 0o111
    assert not modes["job.py"] & 0o111


@pytest.mark.parametrize(
    "left",
    [".git/config", ".env", "__pycache__/job.cpython-314.pyc", "old.pyc", "a.egg-info/PKG-INFO"],
)
def test_what_tools_leave_beside_code_stays_at_home(code: Path, left: str) -> None:
    before = pack(code, SPEC)
    (code / left).parent.mkdir(exist_ok=True)
    (code / left).write_text("left")

    assert pack(code, SPEC) == before


def test_a_link_out_of_the_code_is_refused(code: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("key")
    (code / "data").symlink_to(tmp_path / "secret")

    with pytest.raises(ConfigError, match=r"run\.code is 'data'"):
        pack(code, SPEC)


@pytest.mark.parametrize("place", ["lib", "code/parts"])
def test_a_linked_folder_of_code_is_refused(code: Path, tmp_path: Path, place: str) -> None:
    (tmp_path / place).mkdir()
    (code / "more").symlink_to(tmp_path / place)

    with pytest.raises(ConfigError, match=r"run\.code is 'more': replace"):
        pack(code, SPEC)


def test_what_is_no_file_is_neither_read_nor_waited_for(code: Path) -> None:
    os.mkfifo(code / "pipe")
    with pytest.raises(ConfigError, match="'pipe'"):
        pack(code, SPEC)
    (code / "pipe").unlink()
    (code / "gone").symlink_to("nowhere")
    with pytest.raises(ConfigError, match="'gone'"):
        pack(code, SPEC)


def test_a_name_that_is_no_text_is_refused(code: Path) -> None:
    (code / os.fsdecode(b"\xff")).touch()

    with pytest.raises(ConfigError, match="rename"):
        pack(code, SPEC)


def test_a_file_that_looks_like_ours_is_refused(code: Path) -> None:
    (code / RUN_SPEC_NAME).write_text("{}")

    with pytest.raises(ConfigError, match=rf"run\.code is {RUN_SPEC_NAME!r}"):
        pack(code, SPEC)


def test_the_archive_says_what_spindown_toml_says() -> None:
    spec = run_spec(rich())

    assert spec.on_new_code is OnNewCode.RESTART
    assert (spec.entrypoint, spec.slots, spec.env) == ("job:run", "2", {"LEVEL": "3"})


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        pytest.param(
            ('code = "code"', 'code = "absent"'),
            "workload.plain.run.code is 'absent': "
            "name a folder or a Python file beside spindown.toml",
            id="no such directory",
        ),
        pytest.param(
            ('entrypoint = "job:run"', 'entrypoint = "jobs.main:run"'),
            "workload.plain.run.entrypoint is 'jobs.main:run': name a module below code/",
            id="no such module",
        ),
        pytest.param(
            (
                'entrypoint = "job:run"\ncode = "code"',
                'entrypoint = "no:run"\ncode = "code/job.py"',
            ),
            "workload.plain.run.entrypoint is 'no:run': name job:callable",
            id="another module than the file",
        ),
        pytest.param(
            ('code = "code"', 'code = "code"\nrequirements = "needs.txt"'),
            "workload.plain.run.requirements is 'needs.txt': name a file below code/",
            id="no such requirements",
        ),
    ],
)
def test_code_that_is_not_there_is_one_sentence(
    tmp_path: Path, change: tuple[str, str], sentence: str
) -> None:
    project = write_project(tmp_path, CONFIG.replace(*change, 1))
    workload = config.load(project).workload["plain"]

    with pytest.raises(ConfigError) as caught:
        find_code(tmp_path, "plain", workload)

    assert str(caught.value) == sentence


def test_plain_cdk_warns_of_code_that_cannot_run(tmp_path: Path) -> None:
    project = write_project(tmp_path)
    (tmp_path / "code" / "job.py").write_text("def walk(batch, ctx): return []\n")

    stack = describe_core(make_app(project, tmp_path / "out"), project)

    found = Annotations.from_stack(stack).find_warning("*", Match.any_value())
    told = [str(one.entry.data) for one in found]
    assert len(told) == 2
    assert all("define run at the top level of code/job.py" in one for one in told)


def test_a_file_goes_with_what_it_imports_from_beside_it(tmp_path: Path) -> None:
    for name, text in {
        "job.py": "import json, near, deep.inner\nfrom pack.part import x\nimport spindown, far\n",
        "near.py": "def late():\n    import farther\n",
        "farther.py": "",
        "pack/__init__.py": "from . import part",
        "pack/part.py": "x = 1",
        "pack/words.txt": "data",
        "deep/inner.py": "",
        "deep/other.py": "",
        "spindown/__init__.py": "",
        "use.py": "import job",
        "scans/a.png": "",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    found = members(pack(tmp_path / "job.py", SPEC, ["numpy>=2", "torch"]))

    assert found.pop(REQUIREMENTS_NAME) == b"numpy>=2\ntorch\n"
    assert set(found) - {RUN_SPEC_NAME} == {
        *("job.py", "near.py", "farther.py", "deep/inner.py"),
        *("pack/__init__.py", "pack/part.py", "pack/words.txt"),
    }


def test_a_file_of_a_package_goes_with_the_package(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()
    for name in ("lab/__init__.py", "lab/job.py", "lab/near.py", "other.py"):
        (tmp_path / name).touch()

    found = members(pack(tmp_path / "lab" / "job.py", replace(SPEC, entrypoint="lab.job:run")))

    assert set(found) == {"lab/__init__.py", "lab/job.py", "lab/near.py", RUN_SPEC_NAME}


def test_what_a_function_has_no_use_of_restarts_no_job(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("import near\n")
    (tmp_path / "near.py").write_text("")
    first = read_version(pack(tmp_path / "job.py", SPEC))
    (tmp_path / "use.py").write_text("import job\n")

    assert read_version(pack(tmp_path / "job.py", SPEC)) == first
    (tmp_path / "near.py").write_text("x = 1\n")
    assert read_version(pack(tmp_path / "job.py", SPEC)) != first


def test_options_that_are_refused_later_are_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text(
        "import spindown\n@spindown.function(requirements=['a\\nb'])\ndef f(x): return x\n"
    )

    with pytest.raises(ConfigError, match="requirements"):
        is_deployed("", path, "f")


def test_an_archive_is_uploaded_under_its_own_digest(assembly: Assembly) -> None:
    archives = {
        name.rpartition("/")[2]: one
        for name, one in assembly.assets.items()
        if one["displayName"].startswith("Code of")
    }

    assert len(archives) == 2
    for digest, one in archives.items():
        data = (assembly.directory / one["source"]["path"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == digest
        (destination,) = one["destinations"].values()
        workload = one["displayName"].removeprefix("Code of ")
        assert destination["objectKey"] == f"spindown/code/lab/{workload}/{digest}.zip"


def test_a_worker_s_code_is_named_by_its_deployed_digest(assembly: Assembly) -> None:
    settings = [
        (name, json.loads(words(one["Value"])))
        for one in assembly.all_of("AWS::SSM::Parameter")
        if "/workload/" in (name := words(one["Name"]))
    ]

    # Were they to differ, each worker would leave its work to the next, without end.
    assert len(settings) == 2
    for _, found in settings:
        assert PurePosixPath(found["run"]["code"]).stem == found["run"]["code_digest"] != ""
