"""Silent workers: when silence counts, and how many are ended for it at once."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.domain.fleet import Worker
from spindown.domain.reason import NO_REASON, Reason, ReasonCode
from spindown.domain.termination import is_heard, watch_from
from spindown.domain.useless_instance import could_check_in
from tests.builders import NOW, a_booting_worker, a_lease, minutes
from tests.unit.domain.termination.fleet import POLICY, busy, condemned, reaped


def test_a_lease_that_was_just_extended_is_a_sign_of_life() -> None:
    worker = busy(heartbeat_at=NOW - minutes(60))

    assert not reaped(worker, leases=[a_lease()]).condemn
    assert reaped(worker, leases=[a_lease(deadline=NOW)]).condemn


@pytest.mark.parametrize(
    ("changes", "leased", "heard"),
    [
        ({"heartbeat_at": NOW - minutes(10)}, (), True),
        ({"heartbeat_at": NOW - minutes(10.1)}, (), False),
        ({"heartbeat_at": NOW - minutes(10.1)}, ("i-1",), True),
        ({"checked_in_at": None}, ("i-1",), False),
    ],
)
def test_who_has_checked_in_and_signs_is_heard(
    changes: dict[str, Any], leased: tuple[str, ...], *, heard: bool
) -> None:
    assert is_heard(replace(busy(), **changes), leased, POLICY, NOW) is heard


def stale(count: int, start: int = 0) -> list[Worker]:
    return [
        busy(f"i-s{n:02d}", heartbeat_at=NOW - minutes(60 - n)) for n in range(start, start + count)
    ]


def fresh(count: int) -> list[Worker]:
    return [busy(f"i-f{n:02d}") for n in range(count)]


def most_stale(stale_ones: int, workers: int) -> Reason:
    return Reason(ReasonCode.MOST_ARE_STALE, {"stale": stale_ones, "workers": workers})


@pytest.mark.parametrize(
    ("stale_ones", "others", "ended", "held"),
    [
        pytest.param(1, 0, 1, NO_REASON, id="a fleet of one"),
        pytest.param(2, 0, 2, NO_REASON, id="two are no crowd"),
        pytest.param(3, 0, 0, most_stale(3, 3), id="all of three: then it is us"),
        pytest.param(3, 2, 0, most_stale(3, 5), id="most of five"),
        pytest.param(3, 3, 3, NO_REASON, id="half is not most"),
        pytest.param(5, 20, 5, NO_REASON, id="five a tick"),
        pytest.param(
            8, 20, 5, Reason(ReasonCode.STALE_NEXT_TICK, {"stale": 3}), id="no more than five"
        ),
        pytest.param(
            45,
            555,
            30,
            Reason(ReasonCode.STALE_NEXT_TICK, {"stale": 15}),
            id="a twentieth of a large fleet",
        ),
    ],
)
def test_stale_workers_are_ended_a_few_at_a_time(
    stale_ones: int, others: int, ended: int, held: Reason
) -> None:
    found = reaped(*stale(stale_ones), *fresh(others))

    assert len(found.condemn) == ended
    assert found.held_back == held


@pytest.mark.parametrize("fleet", [1, 2, 5])
@pytest.mark.parametrize(
    ("silent_for", "watched_for", "ends"),
    [
        pytest.param(11, 11, True, id="the ledger was there all the time"),
        pytest.param(60, 11, True, id="it was there for long enough since"),
        pytest.param(60, 10, False, id="it might report any moment"),
        pytest.param(60, 0, False, id="the first tick after an outage"),
        pytest.param(10, 60, False, id="not silent for long"),
    ],
)
def test_silence_counts_only_while_ticks_reach_the_ledger(
    fleet: int, silent_for: int, watched_for: int, ends: bool
) -> None:
    silent = busy("i-silent", heartbeat_at=NOW - minutes(silent_for))
    found = reaped(silent, *fresh(fleet - 1), watched_since=NOW - minutes(watched_for))

    assert condemned(found) == (["i-silent"] if ends else [])
    assert not found.held_back
    assert bool(found.doubt) is (silent_for > 10 and not ends)


def test_says_how_many_silent_workers_are_in_doubt_and_why() -> None:
    age = POLICY.max_lifetime + POLICY.lifetime_grace + minutes(1)
    old = busy("i-old", launched_at=NOW - age, heartbeat_at=NOW - minutes(60))

    found = reaped(old, *stale(2), *fresh(3), watched_since=NOW - minutes(4))

    assert condemned(found) == ["i-old"]
    since = (NOW - minutes(4)).isoformat()
    assert found.doubt == Reason(ReasonCode.NOBODY_LISTENED, {"silent": 2, "since": since})


def test_after_an_outage_age_alone_still_ends_a_silent_worker() -> None:
    age = POLICY.max_lifetime + POLICY.lifetime_grace + minutes(1)
    old = busy(launched_at=NOW - age, heartbeat_at=NOW - minutes(60))

    found = reaped(old, watched_since=NOW)

    assert (condemned(found), bool(found.doubt)) == (["i-1"], False)


@pytest.mark.parametrize(
    ("tick", "stale_after", "last_tick", "breaks"),
    [
        pytest.param(1, 10, 1, False, id="a tick ago"),
        pytest.param(1, 10, 3.3, False, id="two ticks missed"),
        pytest.param(1, 10, 3.4, True, id="three missed"),
        pytest.param(5, 10, 7.5, False, id="a slow tick that comes late"),
        pytest.param(5, 10, 7.6, True, id="one slow tick missed"),
        pytest.param(1, 10, None, True, id="the first tick of all"),
    ],
)
def test_a_watch_begins_anew_after_a_break(
    tick: float, stale_after: float, last_tick: float | None, breaks: bool
) -> None:
    policy = replace(POLICY, tick=minutes(tick), heartbeat_stale_after=minutes(stale_after))
    before = NOW - minutes(90)

    found = watch_from(before, None if last_tick is None else NOW - minutes(last_tick), policy, NOW)

    assert found == (NOW if breaks else before)
    assert watch_from(None, NOW, policy, NOW) == NOW


@pytest.mark.parametrize(
    ("watched_for", "heard"),
    [
        pytest.param(None, True, id="always"),
        pytest.param(60, True, id="since before its launch"),
        pytest.param(12, True, id="since its launch"),
        pytest.param(11, True, id="for longer than a boot may take"),
        pytest.param(10, False, id="for just as long as a boot may take"),
    ],
)
def test_a_check_in_is_missed_only_if_all_of_a_boot_was_watched(
    watched_for: int | None, heard: bool
) -> None:
    since = None if watched_for is None else NOW - minutes(watched_for)

    assert could_check_in(NOW - minutes(12), NOW, since, minutes(10)) is heard


def test_a_watcher_since_the_launch_heard_a_life_below_a_boot() -> None:
    began = NOW - minutes(2)

    assert could_check_in(began, NOW, began, minutes(10))
    assert not could_check_in(began, NOW, began + minutes(1), minutes(10))


def test_those_who_were_silent_longest_are_ended_first() -> None:
    assert condemned(reaped(*stale(8), *fresh(20))) == [f"i-s{n:02d}" for n in range(5)]


def test_the_last_launched_and_longest_unheard_is_ended_first() -> None:
    heard = [busy(f"i-{n}") for n in range(20)]
    silent = [
        busy(
            f"i-silent-{n}",
            launched_at=NOW - minutes(200 - 10 * n),
            heartbeat_at=NOW - minutes(60 + n),
        )
        for n in range(7)
    ]

    found = reaped(*heard, *silent)

    assert condemned(found) == [f"i-silent-{n}" for n in (6, 5, 4, 3, 2)]


def test_other_breaches_are_ended_even_when_most_are_stale() -> None:
    never = a_booting_worker("i-never", age=minutes(20))

    found = reaped(*stale(3), never)

    assert condemned(found) == ["i-never"]


def test_past_their_lifetime_all_silent_workers_are_ended() -> None:
    silent = {"heartbeat_at": NOW - minutes(30), "checked_in_at": NOW - timedelta(hours=25)}
    age = POLICY.max_lifetime + POLICY.lifetime_grace
    old = [busy(f"i-{n}", launched_at=NOW - age - minutes(1), **silent) for n in range(3)]
    young = busy("i-3", launched_at=NOW - age + minutes(1), **silent)

    found = reaped(*old, young)

    assert sorted(condemned(found)) == ["i-0", "i-1", "i-2"]
    assert found.held_back
