"""The phases of a boot."""

from datetime import UTC, datetime, timedelta

import pytest

from spindown.domain.boot import BootPhase, BootProfile, boot_phases, usual_boot

LAUNCHED = datetime(2026, 11, 20, 12, tzinfo=UTC)
IMAGE, INIT, INSTALL, FITNESS, FIRST = BootPhase


def at(seconds: float) -> datetime:
    return LAUNCHED + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("ends", "seconds"),
    [
        pytest.param(
            {IMAGE: 12, INIT: 30, INSTALL: 150, FITNESS: 158, FIRST: 170},
            {IMAGE: 12, INIT: 18, INSTALL: 120, FITNESS: 8, FIRST: 12},
            id="all",
        ),
        pytest.param(
            {IMAGE: None, INIT: None, INSTALL: 3, FITNESS: 4, FIRST: 4.5},
            {INSTALL: 3, FITNESS: 1, FIRST: 0.5},
            id="no kernel of its own",
        ),
        pytest.param(
            {IMAGE: -4000, INIT: -3000, INSTALL: 3, FITNESS: 4},
            {INSTALL: 3, FITNESS: 1},
            id="a machine that was there before",
        ),
        pytest.param({IMAGE: -1, INIT: 5, FITNESS: 4}, {IMAGE: 0, INIT: 5, FITNESS: 0}, id="clock"),
    ],
)
def test_a_phase_lasts_from_the_end_of_the_one_before(
    ends: dict[BootPhase, float | None], seconds: dict[BootPhase, float]
) -> None:
    told = {phase: None if end is None else at(end) for phase, end in ends.items()}

    assert boot_phases(LAUNCHED, told) == seconds


def test_the_usual_boot_names_its_slowest_phase() -> None:
    found = usual_boot({INSTALL: (90.0, 100.0, 500.0), IMAGE: (10.0,), FIRST: ()})

    assert found == BootProfile(phases={IMAGE: 10.0, INSTALL: 100.0})
    assert (found.seconds, found.slowest) == (110.0, INSTALL)
    assert usual_boot({}) is None


@pytest.mark.parametrize(
    ("phases", "is_slow"),
    [
        ({IMAGE: 20.0, INSTALL: 90.0}, True),
        ({IMAGE: 20.0, INSTALL: 59.0}, False),
        ({IMAGE: 20.0, INSTALL: 90.0, FIRST: 200.0}, False),
        ({IMAGE: 20.0}, False),
    ],
)
def test_baking_is_named_where_it_spares_the_slowest_phase(
    phases: dict[BootPhase, float], is_slow: bool
) -> None:
    assert BootProfile(phases=phases).is_slow_to_install is is_slow
