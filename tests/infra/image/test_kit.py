"""The kit: made of this checkout, the same bytes each time, with all that an install reads."""

import hashlib
import io
import re
import zipfile
from pathlib import Path

import pytest

import spindown
from infra.shared.archive import build_wheel, pack_kit
from spindown.error import ConfigError
from tests.infra.assembly import ROOT, Assembly

WHEEL = f"wheels/spindown-{spindown.__version__}-py3-none-any.whl"


@pytest.fixture(scope="module")
def kit() -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(pack_kit(ROOT)))


def test_the_same_sources_give_the_same_kit(tmp_path: Path) -> None:
    first, second = ((build_wheel(ROOT, tmp_path / name)).read_bytes() for name in "ab")

    assert first == second
    assert pack_kit(ROOT) == pack_kit(ROOT)


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

    for name in ("worker/__main__.py", "spindown/aws/wiring.py", "spindown/contract/run.py"):
        assert name in names
    assert not [name for name in names if name.startswith(("tests/", "docs/"))]


def test_where_there_is_no_checkout_it_says_what_to_deploy_from(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=re.escape(str(tmp_path))):
        pack_kit(tmp_path)


def test_the_kit_is_uploaded_under_its_own_digest(assembly: Assembly) -> None:
    asset = assembly.assets[assembly.kit.sha256]

    data = (assembly.directory / asset["source"]["path"]).read_bytes()

    assert hashlib.sha256(data).hexdigest() == assembly.kit.sha256
    assert assembly.kit.uri.endswith(f"/{assembly.kit.sha256}.zip")
