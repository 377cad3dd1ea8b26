"""User data, run: what it asks for in which order, and that whatever fails ends the instance."""

import platform
import re
from datetime import timedelta
from pathlib import Path

import pytest

from spindown.contract.image import Kit, UvBinary, render_user_data
from spindown.infra.shared.pinned_uv import MACHINES
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
    assert bootstrap.fetched == ["code.zip", "kit.zip"]
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
    # What else is being fetched may try once more meanwhile.
    calls = [call for call in bootstrap.stubs.calls if not call.startswith(("aws", "sleep"))]
    assert calls[-1] == "systemctl poweroff"
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
    tries = '"$CALLS.${4##*/}"'
    fails_twice = f"echo >>{tries}; test $(wc -l <{tries}) -gt 2 || exit 1\n"
    copies = f'cp "{bootstrap.directory}/${{4##*/}}" "$5"'
    bootstrap.stubs.add("aws", fails_twice + copies)

    status = bootstrap.run(render_user_data(bootstrap.kit))

    assert status == 0, bootstrap.said
    assert sorted(bootstrap.stubs.calls_of("sleep")) == ["2", "2", "4", "4"]


def test_an_instance_that_will_not_shut_down_is_cut_off(bootstrap: Machine) -> None:
    bootstrap.stubs.add("systemctl", 'test "$2" = --force')

    bootstrap.run(render_user_data(None))

    assert bootstrap.stubs.calls[-2:] == [
        "systemctl poweroff",
        "systemctl poweroff --force --force",
    ]


def test_an_instance_takes_the_uv_of_its_processor(bootstrap: Machine) -> None:
    status = bootstrap.run(render_user_data(bootstrap.add_uv(platform.machine())))

    assert status == 0, bootstrap.said
    assert bootstrap.fetched == ["code.zip", "kit.zip", "uv"]
    (call,) = bootstrap.stubs.calls_of("install.sh")
    assert re.fullmatch(r"--uv \S+/uv --code \S+/code.zip", call)


def test_an_instance_without_a_uv_of_its_own_fetches_none(bootstrap: Machine) -> None:
    status = bootstrap.run(render_user_data(bootstrap.add_uv("riscv64")))

    assert status == 0, bootstrap.said
    (call,) = bootstrap.stubs.calls_of("install.sh")
    assert call.startswith("--code ")


def test_a_uv_that_is_not_the_one_deployed_is_not_run(bootstrap: Machine) -> None:
    kit = bootstrap.add_uv(platform.machine())
    (bootstrap.directory / "uv.bin").write_text("#!/bin/sh\n: of somebody else\n")

    bootstrap.run(render_user_data(kit))

    assert bootstrap.is_ended
    assert not bootstrap.stubs.calls_of("install.sh")


def test_what_is_fetched_is_fetched_side_by_side(bootstrap: Machine) -> None:
    # Each waits until all have begun, and fails at its first try if they do not.
    met = """until test "$(wc -l <"$CALLS.begun")" -ge 3; do :; done"""
    meet = f"echo >>\"$CALLS.begun\"; timeout 60 sh -c '{met}' || exit 1\n"
    bootstrap.stubs.add("aws", f'{meet}cp "{bootstrap.directory}/${{4##*/}}" "$5"')

    status = bootstrap.run(render_user_data(bootstrap.add_uv(platform.machine())))

    assert status == 0, bootstrap.said
    assert not bootstrap.stubs.calls_of("sleep")


def test_user_data_fits_with_room_for_tokens() -> None:
    uri = "s3://" + "b" * 63 + "/" + "k" * 1024
    uv = {machine: UvBinary(uri, "0" * 64) for machine in MACHINES.values()}
    kit = Kit(uri=uri, sha256="0" * 64, uv=uv)

    assert len(render_user_data(kit).encode()) < USER_DATA_BYTES_MAX / 2


def test_a_value_cannot_become_a_command(bootstrap: Machine, tmp_path: Path) -> None:
    kit = Kit(uri=f"s3://b/$(touch {tmp_path}/broken);touch {tmp_path}/broken", sha256="0")

    bootstrap.run(render_user_data(kit))

    assert not (tmp_path / "broken").exists()
