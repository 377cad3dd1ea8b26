"""The dead-man check, with the time and the signs of life given to it."""

import os
from pathlib import Path

import pytest

from tests.worker_system.kit import SYSTEM, Stubs

SILENCE = 900
LIFETIME = 87300


class Instance:
    """An instance: its time since boot, its worker's signs of life, and how often it was ended."""

    def __init__(self, directory: Path, stubs: Stubs) -> None:
        self._alive = directory / "alive"
        self._seen = directory / "seen"
        self._uptime = directory / "uptime"
        self.stubs = stubs

    def show_life(self, told: str = "", *, clock: int) -> None:
        self._alive.write_text(told)
        os.utime(self._alive, (clock, clock))

    def forget(self) -> None:
        self._seen.unlink()
        self._seen.mkdir()

    def check(self, uptime: float, **limits: str) -> None:
        self._uptime.write_text(f"{uptime:.2f} 1234.56\n")
        script = SYSTEM / "deadman.sh"
        done = self.stubs.run(script, self._alive, self._seen, self._uptime, **limits)
        assert done.returncode == 0, done.stderr

    def is_ended_at(self, uptime: float, **limits: str) -> bool:
        before = len(self.stubs.calls)
        self.check(uptime, **limits)
        ended = self.stubs.calls[before:]
        assert ended in ([], ["systemctl poweroff"])
        return bool(ended)


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    stubs = Stubs(tmp_path)
    stubs.add("systemctl")
    return Instance(tmp_path, stubs)


def test_an_instance_whose_worker_never_started_ends(instance: Instance) -> None:
    ended = {uptime: instance.is_ended_at(uptime) for uptime in (60, 120, 959, 960)}

    assert ended == {60: False, 120: False, 959: False, 960: True}


def test_silence_counts_from_the_last_sign_of_life(instance: Instance) -> None:
    instance.show_life(clock=1)
    assert not instance.is_ended_at(60)
    instance.show_life(clock=2)
    assert not instance.is_ended_at(1000)

    assert not instance.is_ended_at(1000 + SILENCE - 1)
    assert instance.is_ended_at(1000 + SILENCE)


def test_a_removed_sign_of_life_is_silence(instance: Instance, tmp_path: Path) -> None:
    instance.show_life(clock=1)
    assert not instance.is_ended_at(60)
    (tmp_path / "alive").unlink()
    assert not instance.is_ended_at(120)

    assert instance.is_ended_at(120 + SILENCE)


@pytest.mark.parametrize("clock", [0, 4_000_000_000], ids=["set back", "set far ahead"])
def test_setting_the_clock_neither_ends_nor_keeps_an_instance(
    instance: Instance, clock: int
) -> None:
    instance.show_life(clock=1_000_000_000)
    assert not instance.is_ended_at(60)
    instance.show_life(clock=clock)
    assert not instance.is_ended_at(120)

    assert not instance.is_ended_at(120 + SILENCE - 1)
    assert instance.is_ended_at(120 + SILENCE)


@pytest.mark.parametrize(
    ("told", "longest"),
    [
        ("", LIFETIME),
        ("\n", LIFETIME),
        ("soon\n", LIFETIME),
        ("-5\n", LIFETIME),
        ("7200", 7200),
        ("7200\n", 7200),
        ("200000\n", 200_000),
    ],
    ids=["nothing", "empty line", "word", "negative", "no newline", "shorter", "longer"],
)
def test_a_live_worker_ends_at_the_lifetime_of_its_policy(
    instance: Instance, told: str, longest: int
) -> None:
    instance.show_life(told, clock=1)
    assert not instance.is_ended_at(longest - 1)
    instance.show_life(told, clock=2)

    assert instance.is_ended_at(longest)


def test_both_limits_can_be_set_on_an_image(instance: Instance) -> None:
    assert not instance.is_ended_at(10, SILENCE="30", LIFETIME="100")
    assert instance.is_ended_at(40, SILENCE="30", LIFETIME="100")
    instance.show_life(clock=1)

    assert instance.is_ended_at(100, SILENCE="30", LIFETIME="100")


def test_the_lifetime_holds_where_nothing_can_be_remembered(instance: Instance) -> None:
    instance.is_ended_at(1)
    instance.forget()

    assert not instance.is_ended_at(LIFETIME - 1)
    assert instance.is_ended_at(LIFETIME)


def test_an_instance_that_will_not_shut_down_is_cut_off(instance: Instance) -> None:
    instance.stubs.add("systemctl", 'test "$2" = --force')

    instance.check(LIFETIME)

    assert instance.stubs.calls == ["systemctl poweroff", "systemctl poweroff --force --force"]
