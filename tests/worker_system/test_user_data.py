"""User data, run: what it asks for in which order, and that whatever fails ends the instance."""

from datetime import timedelta
from pathlib import Path

import pytest

from spindown.contract.image import Kit, render_user_data
from tests.worker_system.kit import USER_DATA_BYTES_MAX
from tests.worker_system.machine import START, Machine


@pytest.fixture
def bootstrap(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_an_instance_installs_the_kit_and_starts_both_services(
    bootstrap: Machine,
) -> None:
    status = bootstrap.run(render_user_data(bootstrap.kit))

    assert status == 0, bootstrap.said
    assert "in eu-north-1" in bootstrap.said
    assert bootstrap.fetched == ["kit.zip", "code.zip"]
    calls = bootstrap.stubs.calls
    (install,) = [n for n, call in enumerate(calls) if call.startswith("install.sh --code ")]
    assert [call for call in calls[install:] if call.startswith("systemctl")] == START
    assert not bootstrap.is_ended
    assert float(bootstrap.begun.read_text()) > 0.0


def test_code_with_other_bytes_than_deployed_ends_the_instance(bootstrap: Machine) -> None:
    bootstrap.tamper()

    assert bootstrap.run(render_user_data(bootstrap.kit)) != 0

    assert not bootstrap.stubs.calls_of("install.sh")
    assert bootstrap.is_ended


def test_the_image_of_a_bake_has_only_to_start_its_units(bootstrap: Machine) -> None:
    status = bootstrap.run(render_user_data(None))

    assert status == 0, bootstrap.said
    assert bootstrap.stubs.calls == [
        "systemd-run --quiet --unit=spindown-start --on-active=1800 systemctl poweroff",
        "sysctl --quiet --load /etc/sysctl.d/90-spindown.conf",
        *START,
    ]


def test_the_time_to_start_is_bounded_before_anything_else(bootstrap: Machine) -> None:
    bootstrap.run(render_user_data(bootstrap.kit, within=timedelta(minutes=7)))

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
def test_whatever_fails_ends_the_instance(bootstrap: Machine, program: str, script: str) -> None:
    bootstrap.stubs.add(program, script)

    status = bootstrap.run(render_user_data(bootstrap.kit))

    assert status != 0
    assert bootstrap.stubs.calls[-1] == "systemctl poweroff"
    assert "could not become a worker" in bootstrap.said


def test_a_failed_install_ends_the_instance(bootstrap: Machine) -> None:
    kit = bootstrap.make_kit("echo no space left >&2; exit 3")

    status = bootstrap.run(render_user_data(kit))

    assert (status, bootstrap.is_ended) == (3, True)
    assert bootstrap.said.index("no space left") < bootstrap.said.index("the cause is above")
    assert START[1] not in bootstrap.stubs.calls


def test_a_kit_that_is_not_the_one_deployed_is_not_installed(bootstrap: Machine) -> None:
    deployed = bootstrap.kit
    bootstrap.make_kit('echo "install.sh of somebody else" >>"$CALLS"')

    bootstrap.run(render_user_data(deployed))

    assert bootstrap.is_ended
    assert not bootstrap.stubs.calls_of("install.sh")


def test_credentials_may_come_some_seconds_late(bootstrap: Machine) -> None:
    fails_twice = 'echo >>"$CALLS.tries"; test "$(wc -l <"$CALLS.tries")" -gt 2 || exit 1\n'
    copies = f'cp "{bootstrap.directory}/${{4##*/}}" "$5"'
    bootstrap.stubs.add("aws", fails_twice + copies)

    status = bootstrap.run(render_user_data(bootstrap.kit))

    assert status == 0, bootstrap.said
    assert bootstrap.stubs.calls_of("sleep") == ["2", "4"]


def test_an_instance_that_will_not_shut_down_is_cut_off(bootstrap: Machine) -> None:
    bootstrap.stubs.add("systemctl", 'test "$2" = --force')

    bootstrap.run(render_user_data(None))

    assert bootstrap.stubs.calls[-2:] == [
        "systemctl poweroff",
        "systemctl poweroff --force --force",
    ]


def test_a_complete_kit_is_installed_without_an_index(bootstrap: Machine) -> None:
    kit = Kit(uri=bootstrap.kit.uri, sha256=bootstrap.kit.sha256, is_complete=True)

    bootstrap.run(render_user_data(kit))

    (call,) = bootstrap.stubs.calls_of("install.sh")
    assert call.endswith(" --offline")


def test_user_data_fits_with_room_for_tokens() -> None:
    kit = Kit(uri="s3://" + "b" * 63 + "/" + "k" * 1024, sha256="0" * 64, is_complete=True)

    assert len(render_user_data(kit).encode()) < USER_DATA_BYTES_MAX / 2


def test_a_value_cannot_become_a_command(bootstrap: Machine, tmp_path: Path) -> None:
    kit = Kit(uri=f"s3://b/$(touch {tmp_path}/broken);touch {tmp_path}/broken", sha256="0")

    bootstrap.run(render_user_data(kit))

    assert not (tmp_path / "broken").exists()
