"""The kit: made of this checkout, the same bytes each time, with all that an install reads."""

import hashlib
import io
import re
import zipfile
from pathlib import Path

import grimp
import pytest
from aws_cdk import App, DefaultStackSynthesizer, Stack

import spindown
from spindown.config.form import Architecture
from spindown.infra.shared.archive import KitArchive
from spindown.infra.shared.pinned_uv import fetch_uv
from spindown.infra.shared.worker_kit import pack_kit
from tests.infra.assembly import (
    Assembly,
    describe_core,
    make_app,
    synthesise_core,
    words,
    write_project,
)
from tests.infra.test_fleet import launch_data

WHEEL = f"wheels/spindown-{spindown.__version__}-py3-none-any.whl"


@pytest.fixture(scope="module")
def kit() -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(pack_kit()))


def test_the_same_sources_give_the_same_kit() -> None:
    assert pack_kit() == pack_kit()


def test_the_kit_holds_all_that_its_install_reads(kit: zipfile.ZipFile) -> None:
    names = set(kit.namelist())
    script = kit.read("system/install.sh").decode()
    read = set(re.findall(r"\$kit/((?:system|locks)/[\w.-]+\w)", script))

    assert {WHEEL, "locks/worker.txt", "locks/bootstrap.txt"} <= names
    assert read
    assert read <= names | {"system/sysusers.conf", "system/tmpfiles.conf"}
    for unit in ("spindown-worker.service", "spindown-deadman.service", "spindown-deadman.timer"):
        assert f"system/{unit}" in names
    assert not [name for name in names if "__pycache__" in name]


def test_the_wheel_in_it_is_the_worker_and_what_it_imports(kit: zipfile.ZipFile) -> None:
    with zipfile.ZipFile(io.BytesIO(kit.read(WHEEL))) as wheel:
        names = set(wheel.namelist())

    graph = grimp.build_graph("spindown")
    roots = graph.find_descendants("spindown.worker") | {
        "spindown.contract.run_spec",
        "spindown.user",
    }
    imported = roots.union(*map(graph.find_upstream_modules, roots))
    assert {name.replace(".", "/") for name in imported} <= {
        re.sub(r"(/__init__)?\.py$", "", name) for name in names
    }
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"spindown"}
    assert not [name for name in names if re.match("spindown/(cli|infra|local|functions)/", name)]


def test_the_kit_is_uploaded_under_its_own_digest(assembly: Assembly) -> None:
    asset = assembly.assets[f"spindown/kit/{assembly.kit.sha256}"]

    data = (assembly.directory / asset["source"]["path"]).read_bytes()

    assert hashlib.sha256(data).hexdigest() == assembly.kit.sha256
    assert assembly.kit.uri.endswith(f"/{assembly.kit.sha256}.zip")


#: ELF: the file's machine at byte 18 (ELF-64 Object File Format, e_machine).
ELF_MACHINES: dict[Architecture, int] = {"x86_64": 62, "arm64": 183}


def test_the_uv_of_each_processor_is_uploaded_beside_the_kit(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path), analytics_reporting=False)
    assets = DefaultStackSynthesizer()
    stack = Stack(app, "lab", synthesizer=assets)
    assets.bind(stack)

    made = KitArchive(stack, "Kit", assets=assets, architectures=tuple(ELF_MACHINES))

    assert sorted(made.kit.uv) == ["aarch64", "x86_64"]
    machines = []
    for program in made.kit.uv.values():
        data = (tmp_path / f"asset.{program.sha256}.bin").read_bytes()
        assert hashlib.sha256(data).hexdigest() == program.sha256
        assert program.uri.endswith(f"/spindown/kit/{program.sha256}.bin")
        machines.append(int.from_bytes(data[18:20], "little"))
    assert sorted(machines) == sorted(ELF_MACHINES.values())
    # The grant of the kits holds for it.
    assert made.releases_arn.endswith("/spindown/kit/*")


MIXED = """
[deployment]
name = "lab"
region = "eu-west-1"
zones = ["eu-west-1a"]

[workload.bare.run]
entrypoint = "job:run"
code = "code"

[workload.own]
requirements.architectures = ["arm64"]
image = { mode = "ami", parameters = { arm64 = "/images/own" } }

[workload.own.run]
entrypoint = "job:run"
code = "code"
"""


def test_a_deploy_brings_uv_for_those_who_install(tmp_path: Path) -> None:
    project = write_project(tmp_path, MIXED)
    directory = tmp_path / "out"
    # CDK makes no package of functions that lies there already.
    for name, asset in synthesise_core(project, directory).assets.items():
        if asset["source"]["packaging"] == "zip":
            (directory / f"asset.{name}").mkdir()
    app = make_app(project, directory, context={"aws:cdk:bundling-stacks": ["**"]})
    stack = describe_core(app, project)
    app.synth()
    made = Assembly(project, directory, stack.stack_name)

    (uv,) = (one for one in made.assets.values() if one["displayName"].startswith("uv for"))

    assert uv["displayName"] == "uv for x86_64"
    (place,) = uv["destinations"].values()
    key = place["objectKey"]
    user_data = words(launch_data(made, "lab--bare--x86_64")["UserData"]["Fn::Base64"])
    (line,) = (line for line in user_data.splitlines() if f"/{key}" in line)
    assert re.fullmatch(r" +x86_64\) uv='?s3://\S+' uv_sha256=\w+ ;;", line)
    assert f"uv_sha256={Path(key).stem} " in line


def test_who_cannot_fetch_uv_is_told_that_instances_will(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_NO_CACHE", "1")

    assert fetch_uv("x86_64") is None

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("spindown: instances with x86_64 fetch uv with pip")
