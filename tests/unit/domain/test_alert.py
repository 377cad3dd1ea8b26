"""A person hears of what lasts, once, and again only when it is news."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.alert import Alert, AlertState, review

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
QUOTA = Alert(name="quota", says="It is full.", remedy="ask for more.", for_=10 * MINUTE)


def remembered(since: timedelta, seen: timedelta, told: timedelta | None = None) -> AlertState:
    return AlertState(
        since=NOW - since, seen_at=NOW - seen, told_at=None if told is None else NOW - told
    )


def test_says_what_happened_and_what_to_do() -> None:
    assert QUOTA.says in QUOTA.text
    assert QUOTA.text.endswith(QUOTA.remedy)


@pytest.mark.parametrize(
    ("known", "is_standing", "is_due"),
    [
        pytest.param(None, False, False, id="seen for the first time"),
        pytest.param(remembered(9 * MINUTE, MINUTE), False, False, id="not for long enough"),
        pytest.param(remembered(10 * MINUTE, MINUTE), True, True, id="for long enough"),
        pytest.param(remembered(2 * HOUR, MINUTE, HOUR), True, False, id="told an hour ago"),
        pytest.param(remembered(30 * HOUR, MINUTE, DAY), True, True, id="told a day ago"),
        pytest.param(remembered(2 * HOUR, MINUTE, 2 * HOUR), True, False, id="told at first sight"),
        pytest.param(remembered(5 * HOUR, 3 * HOUR, 4 * HOUR), False, False, id="back again"),
        pytest.param(remembered(5 * HOUR, 2 * HOUR, 4 * HOUR), True, False, id="seldom looked at"),
        pytest.param(
            remembered(10 * MINUTE, MINUTE, 3 * HOUR), True, True, id="told of the time before"
        ),
        pytest.param(
            remembered(10 * MINUTE, MINUTE, 59 * MINUTE), True, False, id="told of too lately"
        ),
        pytest.param(remembered(10 * MINUTE, MINUTE, HOUR), True, True, id="rested just enough"),
    ],
)
def test_tells_of_what_lasts_and_not_twice(
    known: AlertState | None, *, is_standing: bool, is_due: bool
) -> None:
    found = review([QUOTA], {} if known is None else {"quota": known}, NOW)

    assert (QUOTA in found.standing, QUOTA in found.due) == (is_standing, is_due)


def test_rests_after_a_telling_even_if_it_was_over_meanwhile() -> None:
    daily = replace(QUOTA, for_=timedelta(0), rest=DAY)

    early = review([daily], {"quota": remembered(5 * HOUR, 4 * HOUR, 5 * HOUR)}, NOW)
    late = review([daily], {"quota": remembered(25 * HOUR, 4 * HOUR, 25 * HOUR)}, NOW)

    assert (early.due, late.due) == ((), (daily,))


def test_what_is_over_is_new_when_it_comes_back() -> None:
    known = {"quota": remembered(HOUR, MINUTE, 50 * MINUTE)}

    ended = review([], known, NOW, over={"quota"})
    back = review([QUOTA], ended.changed, NOW + MINUTE)

    assert back.changed["quota"].since == NOW + MINUTE
    assert (back.standing, back.due) == ((), ())
    assert review([], ended.changed, NOW + MINUTE, over={"quota"}).changed == {}


@pytest.mark.parametrize(
    ("known", "kept"),
    [
        pytest.param(remembered(HOUR, 30 * MINUTE), False, id="seen lately"),
        pytest.param(remembered(40 * HOUR, 26 * HOUR, 23 * HOUR), False, id="told lately"),
        pytest.param(remembered(40 * HOUR, 25 * HOUR, 30 * HOUR), True, id="long over"),
        pytest.param(remembered(40 * HOUR, DAY), False, id="just not over for long"),
    ],
)
def test_forgets_what_would_be_news_if_it_came_back(known: AlertState, *, kept: bool) -> None:
    assert review([], {"quota": known}, NOW).forgotten == (("quota",) if kept else ())


@pytest.mark.parametrize(
    ("seen", "is_written"),
    [
        pytest.param(4 * MINUTE, False, id="seen a moment ago"),
        pytest.param(5 * MINUTE, True, id="seen a while ago"),
        pytest.param(3 * HOUR, True, id="news"),
    ],
)
def test_remembers_that_it_was_seen_without_writing_each_look(
    seen: timedelta, *, is_written: bool
) -> None:
    found = review([QUOTA], {"quota": remembered(4 * HOUR, seen)}, NOW)

    since = NOW if seen == 3 * HOUR else NOW - 4 * HOUR
    assert found.present == {"quota": AlertState(since=since, seen_at=NOW)}
    assert found.changed == (found.present if is_written else {})


@pytest.mark.parametrize("seen", [MINUTE, 2 * HOUR])
def test_a_sure_end_is_news_at_once_an_unseen_cause_only_later(
    seen: timedelta,
) -> None:
    known = {"quota": remembered(4 * HOUR, seen, 3 * HOUR)}

    unseen = review([], known, NOW)
    over = review([], known, NOW, over={"quota"})

    assert (unseen.changed, unseen.present) == ({}, {})
    assert review([QUOTA], {**known, **unseen.changed}, NOW).present["quota"].since < NOW
    assert review([QUOTA], {**known, **over.changed}, NOW).present["quota"].since == NOW


def test_of_one_name_the_first_counts() -> None:
    other = replace(QUOTA, says="Another one.", for_=timedelta(0))

    assert review([replace(QUOTA, for_=timedelta(0)), other], {}, NOW).due[0].says == QUOTA.says


@given(st.lists(st.booleans(), min_size=30, max_size=400), st.integers(0, 60), st.integers(1, 20))
def test_two_alerts_are_an_hour_apart_and_follow_some_waiting(
    given: list[bool], for_: int, step: int
) -> None:
    alert = replace(QUOTA, for_=for_ * MINUTE)
    known: Mapping[str, AlertState] = {}
    told: list[datetime] = []
    for number, is_seen in enumerate(given):
        now = NOW + number * step * MINUTE
        found = review([alert] if is_seen else [], known, now)
        kept = {**known, **found.changed}
        if found.due:
            told.append(now)
            kept["quota"] = replace(kept["quota"], told_at=now)
        known = {name: one for name, one in kept.items() if name not in found.forgotten}
    assert all(later - before >= HOUR for before, later in pairwise(told))
    assert all(at - NOW >= alert.for_ for at in told)
