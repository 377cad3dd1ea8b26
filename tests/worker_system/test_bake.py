"""Baking, run: what an image is made to hold, and what its stamp saves an instance."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from spindown.contract.image import Kit, make_stamp, render_bake, render_user_data
from tests.worker_system.kit import Stubs
from tests.worker_system.test_user_data import METADATA, START

STAMP = "5" * 64


class Base:
    """A base image, on which scripts of Image Builder and of EC2 run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.stamp = directory / "baked"
        self.stubs = Stubs(directory)
        for name in ("sleep", "sysctl", "systemctl", "systemd-run"):
            self.stubs.add(name)
        self.stubs.add("curl", METADATA)
        self.stubs.add("aws", f'cp "{directory}/${{4##*/}}" "$5"')
        (directory / "code.zip").write_bytes(b"code")
        path = directory / "kit.zip"
        with zipfile.ZipFile(path, "w") as made:
            made.writestr("system/install.sh", 'echo "install.sh $*" >>"$CALLS"')
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        self.kit = Kit(uri="s3://assets/kit.zip", sha256=sha256)

    def bake(self, *, code_uri: str | None) -> int:
        return self._run(
            render_bake(self.kit, code_uri=code_uri, stamp=STAMP, stamp_file=str(self.stamp))
        )

    def start(self, *, stamp: str) -> int:
        return self._run(render_user_data(self.kit, stamp=stamp, stamp_file=str(self.stamp)))

    def _run(self, text: str) -> int:
        script = self.directory / "script.sh"
        script.write_text(text)
        env = {"CALLS": str(self.stubs.log), "TMPDIR": str(self.directory)}
        return self.stubs.run(script, **env).returncode

    @property
    def fetched(self) -> list[str]:
        return [call.split("/")[-1] for call in self.stubs.calls_of("aws")]


@pytest.fixture
def base(tmp_path: Path) -> Base:
    return Base(tmp_path)


def test_an_image_is_baked_with_the_kit_and_the_requirements_and_starts_nothing(
    base: Base,
) -> None:
    status = base.bake(code_uri="s3://assets/code.zip")

    assert status == 0
    assert base.fetched == ["kit.zip", "code.zip"]
    (install,) = base.stubs.calls_of("install.sh")
    assert install.startswith("--code /")
    assert base.stamp.read_text() == f"{STAMP}\n"
    assert not base.stubs.calls_of("systemctl")


def test_code_without_requirements_is_not_baked(base: Base) -> None:
    status = base.bake(code_uri=None)

    assert status == 0
    assert base.fetched == ["kit.zip"]
    assert [call for call in base.stubs.calls if call.startswith("install.sh")] == ["install.sh "]


@pytest.mark.parametrize("program", ["curl", "aws", "python3"])
def test_a_bake_that_fails_leaves_no_stamp(base: Base, program: str) -> None:
    base.stubs.add(program, "exit 1")

    assert base.bake(code_uri="s3://assets/code.zip") != 0
    assert not base.stamp.exists()


def test_an_instance_of_the_image_asked_for_has_only_to_start_its_units(base: Base) -> None:
    base.stamp.write_text(f"{STAMP}\n")

    status = base.start(stamp=STAMP)

    assert status == 0
    assert not base.fetched
    assert [call for call in base.stubs.calls if call.startswith("systemctl")] == START


@pytest.mark.parametrize("stamp", [None, "6" * 64], ids=["the bare base", "an older image"])
def test_an_instance_of_another_image_installs_what_is_asked_for(
    base: Base, stamp: str | None
) -> None:
    if stamp is not None:
        base.stamp.write_text(f"{stamp}\n")

    status = base.start(stamp=STAMP)

    assert status == 0
    assert base.fetched == ["kit.zip", "code.zip"]
    (install,) = base.stubs.calls_of("install.sh")
    assert install.startswith("--code /")
    assert [call for call in base.stubs.calls if call.startswith("systemctl")] == START


def test_an_install_that_fails_over_an_older_image_ends_the_instance(base: Base) -> None:
    base.stamp.write_text("6" * 64)
    base.stubs.add("aws", "exit 1")

    assert base.start(stamp=STAMP) != 0
    assert base.stubs.calls[-1] == "systemctl poweroff"


def test_the_stamp_tells_apart_what_was_baked() -> None:
    kit, other = (Kit(uri="s3://b/k.zip", sha256=digit * 64) for digit in "01")

    stamps = {make_stamp(kit, None), make_stamp(kit, "a"), make_stamp(kit, "b")}

    assert len(stamps | {make_stamp(other, None), make_stamp(other, "a")}) == 5
    assert make_stamp(kit, "a") in stamps
