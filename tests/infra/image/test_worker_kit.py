"""The kit: made of this checkout, the same bytes each time, with all that an install reads."""

import hashlib
import io
import re
import zipfile

import grimp
import pytest

import spindown
from spindown.infra.shared.worker_kit import pack_kit
from tests.infra.assembly import Assembly

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
    roots = graph.find_descendants("spindown.worker") | {"spindown.contract.run", "spindown.user"}
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
