"""User data, run: what it asks for in which order, and that whatever fails ends the instance."""

import hashlib
import zipfile
from datetime import timedelta
from pathlib import Path

import pytest

from spindown.contract.image import USER_DATA_BYTES_MAX, Kit, render_user_data
from tests.worker_system.kit import Stubs

#: Answers as instance metadata does, but only to those who bring a token.
METADATA = """
case "$*" in
    *"-X PUT"*/latest/api/token*) echo TOKEN ;;
    *"meta-data/placement/region"*"X-aws-ec2-metadata-token: TOKEN"*) echo eu-north-1 ;;
    *"meta-data/tags/instance/spindown:code"*"X-aws-ec2-metadata-token: TOKEN"*)
        echo s3://assets/code.zip ;;
    *) exit 22 ;;
esac
"""
START = [
    "systemctl enable --now spindown-deadman.timer",
    "systemctl enable --now spindown-worker.service",
    "systemctl stop spindown-start.timer",
]


class Bootstrap:
    """A base image, and what user data does on it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.stubs = Stubs(directory)
        for name in ("sleep", "sysctl", "systemctl", "systemd-run"):
            self.stubs.add(name)
        self.stubs.add("curl", METADATA)
        self.stubs.add("aws", f'echo "in $AWS_DEFAULT_REGION"; cp "{directory}/${{4##*/}}" "$5"')
        (directory / "code.zip").write_bytes(b"code")
        self.kit = self.make_kit('echo "install.sh $*" >>"$CALLS"')
        self.said = ""

    def make_kit(self, install: str) -> Kit:
        path = self.directory / "kit.zip"
        with zipfile.ZipFile(path, "w") as made:
            made.writestr("system/install.sh", install)
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        return Kit(uri="s3://assets/kit.zip", sha256=sha256)

    def start(self, user_data: str) -> int:
        script = self.directory / "user_data.sh"
        script.write_text(user_data)
        done = self.stubs.run(script, CALLS=str(self.stubs.log), TMPDIR=str(self.directory))
        self.said = done.stdout + done.stderr
        return done.returncode

    @property
    def is_ended(self) -> bool:
        return "systemctl poweroff" in self.stubs.calls


@pytest.fixture
def bootstrap(tmp_path: Path) -> Bootstrap:
    return Bootstrap(tmp_path)


def test_an_instance_installs_the_kit_and_then_starts_the_dead_man_check_and_the_worker(
    bootstrap: Bootstrap,
) -> None:
    status = bootstrap.start(render_user_data(bootstrap.kit))

    assert status == 0, bootstrap.said
    assert "in eu-north-1" in bootstrap.said
    assert [call.split("/")[-1] for call in bootstrap.stubs.calls_of("aws")] == [
        "kit.zip",
        "code.zip",
    ]
    calls = bootstrap.stubs.calls
    (install,) = [n for n, call in enumerate(calls) if call.startswith("install.sh --code ")]
    assert [call for call in calls[install:] if call.startswith("systemctl")] == START
    assert not bootstrap.is_ended


def test_the_image_of_a_bake_has_only_to_start_its_units(bootstrap: Bootstrap) -> None:
    status = bootstrap.start(render_user_data(None))

    assert status == 0, bootstrap.said
    assert bootstrap.stubs.calls == [
        "systemd-run --quiet --unit=spindown-start --on-active=1800 systemctl poweroff",
        "sysctl --quiet --load /etc/sysctl.d/90-spindown.conf",
        *START,
    ]


def test_the_time_to_start_is_bounded_before_anything_else(bootstrap: Bootstrap) -> None:
    bootstrap.start(render_user_data(bootstrap.kit, within=timedelta(minutes=7)))

    assert bootstrap.stubs.calls[0] == (
        "systemd-run --quiet --unit=spindown-start --on-active=420 systemctl poweroff"
    )


@pytest.mark.parametrize(
    ("program", "script"),
    [
        ("systemd-run", "exit 1"),
        ("curl", "exit 7"),
        ("aws", "exit 1"),
        ("python3", "exit 1"),
        ("systemctl", 'test "$3" != spindown-deadman.timer'),
        ("systemctl", 'test "$3" != spindown-worker.service'),
    ],
    ids=["no bound", "no metadata", "no fetch", "no unpacking", "no dead-man check", "no worker"],
)
def test_whatever_fails_ends_the_instance(bootstrap: Bootstrap, program: str, script: str) -> None:
    bootstrap.stubs.add(program, script)

    status = bootstrap.start(render_user_data(bootstrap.kit))

    assert status != 0
    assert bootstrap.stubs.calls[-1] == "systemctl poweroff"
    assert "could not become a worker" in bootstrap.said


def test_a_failed_install_ends_the_instance(bootstrap: Bootstrap) -> None:
    kit = bootstrap.make_kit("echo no space left >&2; exit 3")

    status = bootstrap.start(render_user_data(kit))

    assert (status, bootstrap.is_ended) == (3, True)
    assert bootstrap.said.index("no space left") < bootstrap.said.index("the cause is above")
    assert START[1] not in bootstrap.stubs.calls


def test_a_kit_that_is_not_the_one_deployed_is_not_installed(bootstrap: Bootstrap) -> None:
    deployed = bootstrap.kit
    bootstrap.make_kit('echo "install.sh of somebody else" >>"$CALLS"')

    bootstrap.start(render_user_data(deployed))

    assert bootstrap.is_ended
    assert not bootstrap.stubs.calls_of("install.sh")


def test_credentials_may_come_some_seconds_late(bootstrap: Bootstrap) -> None:
    fails_twice = 'echo >>"$CALLS.tries"; test "$(wc -l <"$CALLS.tries")" -gt 2 || exit 1\n'
    copies = f'cp "{bootstrap.directory}/${{4##*/}}" "$5"'
    bootstrap.stubs.add("aws", fails_twice + copies)

    status = bootstrap.start(render_user_data(bootstrap.kit))

    assert status == 0, bootstrap.said
    assert bootstrap.stubs.calls_of("sleep") == ["2", "4"]


def test_an_instance_that_will_not_shut_down_is_cut_off(bootstrap: Bootstrap) -> None:
    bootstrap.stubs.add("systemctl", 'test "$2" = --force')

    bootstrap.start(render_user_data(None))

    assert bootstrap.stubs.calls[-2:] == [
        "systemctl poweroff",
        "systemctl poweroff --force --force",
    ]


def test_a_complete_kit_is_installed_without_an_index(bootstrap: Bootstrap) -> None:
    kit = Kit(uri=bootstrap.kit.uri, sha256=bootstrap.kit.sha256, is_complete=True)

    bootstrap.start(render_user_data(kit))

    (call,) = bootstrap.stubs.calls_of("install.sh")
    assert call.endswith(" --offline")


def test_user_data_fits_with_room_for_tokens() -> None:
    kit = Kit(uri="s3://" + "b" * 63 + "/" + "k" * 1024, sha256="0" * 64, is_complete=True)

    assert len(render_user_data(kit).encode()) < USER_DATA_BYTES_MAX / 2


def test_a_value_cannot_become_a_command(bootstrap: Bootstrap, tmp_path: Path) -> None:
    kit = Kit(uri=f"s3://b/$(touch {tmp_path}/broken);touch {tmp_path}/broken", sha256="0")

    bootstrap.start(render_user_data(kit))

    assert not (tmp_path / "broken").exists()
