"""The install script, run below a directory: real environments, the real wheel, no network."""

from pathlib import Path

import pytest
from uv import find_uv_bin

import spindown
from tests.worker_system.kit import (
    Stubs,
    lend_packages,
    make_kit,
    make_wheel,
    zip_code,
)

pytestmark = pytest.mark.long

SHOW_ORIGIN = "import {0}; print({0}.__file__ or list({0}.__path__))"


class Prefix:
    """A root directory, a kit, and stubs for the programs that would touch more than that root."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "root"
        self.root.mkdir()
        self.home = self.root / "opt" / "spindown"
        self.kit = make_kit(directory / "kit")
        lend_packages(self.kit)
        self.stubs = Stubs(directory)
        for name in ("nft", "systemctl", "systemd-sysusers", "systemd-tmpfiles", "useradd"):
            self.stubs.add(name)
        self.stubs.add("setpriv", 'while [ "$1" != -- ]; do shift; done; shift; exec "$@"')
        self.said = ""
        #: What the first install left.
        self.first: list[Path] = []

    def install(self, *options: object) -> int:
        options = ("--root", self.root, "--uv", find_uv_bin(), "--offline", *options)
        done = self.stubs.run(
            self.kit / "system" / "install.sh",
            *options,
            AWS_SESSION_TOKEN="the operator's",
            # Where it is memory, large packages have no room in it.
            TMPDIR="/nonexistent",
        )
        self.said = done.stdout + done.stderr
        return done.returncode

    def files(self) -> list[Path]:
        return sorted(path.relative_to(self.root) for path in self.root.rglob("*"))

    def run_worker(self, *arguments: str) -> str:
        return self._run(self.home / "worker" / "bin" / "python", *arguments)

    def run_user_code(self, *arguments: str) -> str:
        return self._run(self.home / "bin" / "run-python", *arguments)

    def _run(self, *command: object) -> str:
        done = self.stubs.run(*command)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture
def prefix(tmp_path: Path) -> Prefix:
    return Prefix(tmp_path)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Prefix:
    prefix = Prefix(tmp_path_factory.mktemp("installed"))
    assert prefix.install() == 0, prefix.said
    prefix.first = prefix.files()
    return prefix


def test_the_installed_worker_starts(installed: Prefix) -> None:
    said = installed.run_worker("-m", "spindown.worker", "--version")

    assert said.split()[-1] == spindown.__version__
    assert str(installed.home) in installed.run_worker("-c", SHOW_ORIGIN.format("spindown.worker"))


def test_an_install_starts_and_enables_nothing(installed: Prefix) -> None:
    units = installed.root / "etc" / "systemd" / "system"

    assert not installed.stubs.calls_of("systemctl")
    assert sorted(path.name for path in units.iterdir() if not path.is_symlink()) == [
        "spindown-deadman.service",
        "spindown-deadman.timer",
        "spindown-instance-store.service",
        "spindown-worker.service",
    ]


def test_nothing_is_updated_beside_a_worker(installed: Prefix) -> None:
    units = installed.root / "etc" / "systemd" / "system"

    masked = {path.name for path in units.iterdir() if path.is_symlink()}

    updates = {"apt-daily", "apt-daily-upgrade"}
    assert {f"{one}.{kind}" for one in updates for kind in ("timer", "service")} <= masked
    assert {str((units / name).readlink()) for name in masked} == {"/dev/null"}
    assert (installed.root / "etc/needrestart/conf.d/spindown.conf").read_text().strip() == (
        "$nrconf{restart} = 'l';"
    )


def test_a_second_install_leaves_what_the_first_left(installed: Prefix) -> None:
    status = installed.install()

    assert status == 0, installed.said
    assert installed.files() == installed.first


def test_the_user_s_packages_win_for_the_user_s_code_alone(prefix: Prefix, tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    theirs = make_wheel(tmp_path / "wheels", "boto3", {"boto3/__init__.py": "KIND = 'theirs'\n"})
    needs: dict[str, str | bytes] = {
        "needs.txt": f"./wheels/{theirs.name}\n",
        f"wheels/{theirs.name}": theirs.read_bytes(),
    }
    code = zip_code(tmp_path / "code.zip", needs, requirements="needs.txt")

    status = prefix.install("--code", code)

    assert status == 0, prefix.said
    assert prefix.run_user_code("-c", "import boto3; print(boto3.KIND)") == "theirs"
    assert prefix.run_worker("-c", "import boto3; print(hasattr(boto3, 'KIND'))") == "False"
    assert str(prefix.home) in prefix.run_user_code("-c", SHOW_ORIGIN.format("spindown.user"))


def test_packages_are_linked_on_the_disk_where_they_stay(prefix: Prefix, tmp_path: Path) -> None:
    told = tmp_path / "told"
    tell = f'echo "$UV_LINK_MODE $UV_CACHE_DIR" >>"{told}"'
    prefix.stubs.add("uv", f'{tell}\nexec {find_uv_bin()} "$@"')
    uv = prefix.stubs.directory / "uv"
    wheel = make_wheel(tmp_path, "theirs", {"theirs.py": ""})
    needs: dict[str, str | bytes] = {
        "needs.txt": f"./{wheel.name}\n",
        wheel.name: wheel.read_bytes(),
    }
    code = zip_code(tmp_path / "code.zip", needs, requirements="needs.txt")

    status = prefix.install("--uv", uv, "--code", code)

    assert status == 0, prefix.said
    lines = [line.split() for line in told.read_text().splitlines()]
    assert {mode for mode, _ in lines} == {"hardlink"}
    assert all(cache.startswith(f"{prefix.home}/") for _, cache in lines)
    # Who builds the code's packages has a cache of its own.
    assert len({cache for _, cache in lines}) == 2


def test_code_without_requirements_needs_none(prefix: Prefix, tmp_path: Path) -> None:
    code = zip_code(tmp_path / "code.zip", {}, requirements=None)

    assert prefix.install("--code", code) == 0, prefix.said


def test_a_package_that_is_not_the_locked_one_is_not_installed(prefix: Prefix) -> None:
    make_wheel(prefix.kit / "wheels", "lent", {"lent.py": "raise SystemExit('replaced')\n"})

    status = prefix.install()

    assert status != 0
    assert "hash" in prefix.said.lower()


def test_a_worker_that_does_not_start_fails_the_install(prefix: Prefix) -> None:
    make_wheel(prefix.kit / "wheels", "lent", {})
    (prefix.kit / "locks" / "worker.txt").write_text("")

    status = prefix.install()

    assert status != 0
    assert ": failed: " in prefix.said


def test_an_unloadable_metadata_rule_fails_the_install(prefix: Prefix) -> None:
    prefix.stubs.add("nft", "exit 1")

    status = prefix.install()

    assert status != 0
    assert "spindown smoke: metadata rule: failed" in prefix.said


def test_an_unknown_option_is_refused(prefix: Prefix) -> None:
    status = prefix.install("--prefix", "/opt")

    assert status == 2
    assert "unknown option --prefix" in prefix.said
    assert not prefix.home.exists()


#: Builds a package that tells who has built it.
BACKEND = """
import os, zipfile

def build_wheel(directory, config_settings=None, metadata_directory=None):
    name = "built-1.0-py3-none-any.whl"
    info = "built-1.0.dist-info"
    text = f"USER, SECRET = {os.getuid()}, {os.environ.get('AWS_SESSION_TOKEN')!r}\\n"
    with zipfile.ZipFile(os.path.join(directory, name), "w") as wheel:
        wheel.writestr("built.py", text)
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: built\\nVersion: 1.0\\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    return name
"""
SOURCES: dict[str, str | bytes] = {
    "needs.txt": "./built\n",
    "built/backend.py": BACKEND,
    "built/pyproject.toml": (
        "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n"
        "[project]\nname = 'built'\nversion = '1.0'\n"
    ),
}


def test_what_has_no_wheel_is_built_only_if_allowed(prefix: Prefix, tmp_path: Path) -> None:
    code = zip_code(tmp_path / "code.zip", SOURCES, requirements="needs.txt")
    assert prefix.install("--code", code) != 0
    assert not list(prefix.home.glob("run/lib/*/site-packages/built.py"))

    allowed = zip_code(
        tmp_path / "allowed.zip", SOURCES, requirements="needs.txt", allow_source_builds=True
    )
    status = prefix.install("--code", allowed)

    assert status == 0, prefix.said
    show = "import built; print(built.SECRET)"
    assert prefix.run_user_code("-c", show) == "None"
    [asked] = {call.split(" -- ")[0] for call in prefix.stubs.calls_of("setpriv")} - {
        call.split(" -- ")[0] for call in prefix.stubs.calls_of("setpriv") if "spindown-run" in call
    }
    assert asked.startswith("--reuid=spindown-build --regid=spindown-build --clear-groups")
