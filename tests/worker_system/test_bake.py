"""Baking, run: what an image is made to hold, and what its stamp saves an instance."""

from pathlib import Path

import pytest

from spindown.contract.image import Kit, make_stamp, render_bake, render_user_data
from tests.worker_system.machine import CODE_URI, START, Machine

STAMP = "5" * 64


class Base(Machine):
    """A machine whose image may have been baked."""

    @property
    def stamp(self) -> Path:
        return self.directory / "baked"

    def bake(self, *, code_uri: str | None) -> int:
        return self.run(
            render_bake(self.kit, code_uri=code_uri, stamp=STAMP, stamp_file=str(self.stamp))
        )

    def start(self, *, stamp: str) -> int:
        return self.run(render_user_data(self.kit, stamp=stamp, stamp_file=str(self.stamp)))


@pytest.fixture
def base(tmp_path: Path) -> Base:
    return Base(tmp_path)


def test_an_image_has_kit_and_requirements_and_starts_nothing(
    base: Base,
) -> None:
    status = base.bake(code_uri=CODE_URI)

    assert status == 0
    assert base.fetched == ["code.zip", "kit.zip"]
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

    assert base.bake(code_uri=CODE_URI) != 0
    assert not base.stamp.exists()


def test_an_instance_of_the_wanted_image_only_starts_its_units(base: Base) -> None:
    base.stamp.write_text(f"{STAMP}\n")

    status = base.start(stamp=STAMP)

    assert status == 0
    assert not base.fetched
    assert [call for call in base.stubs.calls if call.startswith("systemctl")] == START


@pytest.mark.parametrize("stamp", [None, "6" * 64], ids=["the bare base", "an older image"])
def test_an_instance_of_another_image_installs_what_is_wanted(
    base: Base, stamp: str | None
) -> None:
    if stamp is not None:
        base.stamp.write_text(f"{stamp}\n")

    status = base.start(stamp=STAMP)

    assert status == 0
    assert base.fetched == ["code.zip", "kit.zip"]
    (install,) = base.stubs.calls_of("install.sh")
    assert install.startswith("--code /")
    assert [call for call in base.stubs.calls if call.startswith("systemctl")] == START


def test_a_failed_install_over_an_older_image_ends_the_instance(base: Base) -> None:
    base.stamp.write_text("6" * 64)
    base.stubs.add("aws", "exit 1")

    assert base.start(stamp=STAMP) != 0
    assert base.is_ended


def test_the_stamp_tells_apart_what_was_baked() -> None:
    kit, other = (Kit(uri="s3://b/k.zip", sha256=digit * 64) for digit in "01")

    stamps = {make_stamp(kit, None), make_stamp(kit, "a"), make_stamp(kit, "b")}

    assert len(stamps | {make_stamp(other, None), make_stamp(other, "a")}) == 5
    assert make_stamp(kit, "a") in stamps
