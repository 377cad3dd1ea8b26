"""By what the leftovers of a slot are known; that they go is in tests/hostile/test_files.py."""

import os
from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from spindown.worker.machine.leftover import Leftovers, group_of_slot, leftovers_of_slot
from tests.slot import JOB, SlotWorld

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


def left_in(place: Path, monotonic: Callable[[], float]) -> Leftovers:
    """Return what takes all of our own in a place for a slot's."""
    return Leftovers(
        user=os.getuid(),
        groups=frozenset({place.stat().st_gid}),
        launcher=(),
        places=(place,),
        proc=place / "none",
        monotonic=monotonic,
    )


def test_each_file_that_was_left_is_looked_at_once(tmp_path: Path) -> None:
    for number in range(3000):
        (tmp_path / str(number)).touch()
    looks = count()

    left = left_in(tmp_path, lambda: float(next(looks) == -1)).remove()

    assert left == 0
    assert list(tmp_path.iterdir()) == []
    assert next(looks) < 3010


def a_place_where_somebody_makes_files(place: Path) -> Leftovers:
    """Return what cleans a place; at each look at the clock, a second passes and a file is made."""
    place.mkdir()
    numbers = count()

    def seconds() -> float:
        number = next(numbers)
        (place / str(number)).touch()
        return float(number)

    return left_in(place, seconds)


def test_a_neighbour_that_makes_files_keeps_no_cleaner(tmp_path: Path) -> None:
    leftovers = a_place_where_somebody_makes_files(tmp_path / "place")

    left = leftovers.remove()

    assert leftovers.monotonic() < 80
    assert 0 < left <= len(list((tmp_path / "place").iterdir()))


def test_files_that_stay_are_told_once_a_job(tmp_path: Path) -> None:
    leftovers = a_place_where_somebody_makes_files(tmp_path / "place")
    slot = SlotWorld(tmp_path / "slot", leftovers=leftovers)
    slot.world.send(JOB)

    assert slot.step()

    (told,) = slot.events("files_left_behind")
    assert told["count"] > 0
