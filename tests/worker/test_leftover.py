"""By what the leftovers of a slot are known; that they go is in tests/hostile/test_files.py."""

import os

import pytest

from spindown.worker.machine.leftover import group_of_slot, leftovers_of_slot

_RUN_CODE = ("/opt/spindown/bin/run-code",)


@pytest.mark.parametrize(
    ("slots", "groups"),
    [
        pytest.param(1, {group_of_slot(0), 990}, id="alone: the user's group too"),
        pytest.param(4, {group_of_slot(0)}, id="with neighbours: its own"),
    ],
)
def test_the_own_group_tells_what_a_slot_left(slots: int, groups: set[int]) -> None:
    found = leftovers_of_slot(0, slots, "991:990", _RUN_CODE)
    assert found is not None
    assert found.user == 991
    assert found.groups == groups
    assert found.launcher == _RUN_CODE


@pytest.mark.parametrize(
    ("code_user", "launcher"),
    [
        pytest.param("991:990", (), id="nothing becomes the user"),
        pytest.param(f"{os.getuid()}:{os.getgid()}", _RUN_CODE, id="the code is we"),
    ],
)
def test_what_may_be_our_own_is_left_alone(code_user: str, launcher: tuple[str, ...]) -> None:
    assert leftovers_of_slot(0, 1, code_user, launcher) is None


def test_no_two_slots_have_one_group() -> None:
    assert len({group_of_slot(slot) for slot in range(64)}) == 64
