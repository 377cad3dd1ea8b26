"""How many workers are kept warm at which hour, by the clock on whose wall."""

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.fleet import Worker, WorkerState
from spindown.domain.policy import Policy, WarmSpan, Weekday
from spindown.domain.warm import at_hour, kept_warm_of, warm_hours_per_month
from tests.builders import NOW, a_worker, minutes

HOUR = timedelta(hours=1)
WORKDAYS = frozenset(list(Weekday)[:5])
OFFICE = WarmSpan(
    days=WORKDAYS, start=8 * HOUR, end=18 * HOUR, workers=2, time_zone="Europe/Berlin"
)
NIGHT = WarmSpan(days=frozenset({Weekday.SUNDAY}), start=22 * HOUR, end=6 * HOUR, workers=1)


def kept(at: datetime, *spans: WarmSpan, always: int = 0, most: int = 4) -> int:
    policy = Policy(warm_workers=always, warm_schedule=spans, max_workers=most)
    return at_hour(policy, at).warm_workers


def utc(day: int, hour: int, minute: int = 0, month: int = 11) -> datetime:
    """Return an instant; 2026-11-16 and 2026-07-13 are Mondays."""
    return datetime(2026, month, day, hour, minute, tzinfo=UTC)


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        pytest.param(utc(16, 6, 59), 0, id="one minute early"),
        pytest.param(utc(16, 7), 2, id="eight in Berlin in winter"),
        pytest.param(utc(13, 6, month=7), 2, id="eight in Berlin in summer"),
        pytest.param(utc(13, 5, 59, month=7), 0, id="just before it in summer"),
        pytest.param(utc(16, 16, 59), 2, id="just before the end"),
        pytest.param(utc(16, 17), 0, id="at the end"),
        pytest.param(utc(14, 10), 0, id="on a Saturday"),
    ],
)
def test_a_span_holds_by_the_clock_of_its_zone(at: datetime, expected: int) -> None:
    assert kept(at, OFFICE) == expected


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        pytest.param(utc(15, 21, 59), 0, id="Sunday before it"),
        pytest.param(utc(15, 22), 1, id="Sunday night"),
        pytest.param(utc(16, 5, 59), 1, id="Monday morning"),
        pytest.param(utc(16, 6), 0, id="Monday at six"),
        pytest.param(utc(17, 3), 0, id="Tuesday morning"),
    ],
)
def test_a_span_over_midnight_belongs_to_its_first_day(at: datetime, expected: int) -> None:
    assert kept(at, NIGHT) == expected


def test_a_span_holds_to_the_second() -> None:
    span = WarmSpan(
        days=WORKDAYS,
        start=timedelta(hours=8, minutes=30, seconds=20),
        end=timedelta(hours=8, minutes=45, seconds=40),
        workers=1,
    )
    clock = [(30, 19), (30, 20), (45, 39), (45, 40)]

    assert [kept(utc(16, 8, minute).replace(second=s), span) for minute, s in clock] == [0, 1, 1, 0]


def test_the_largest_span_that_holds_counts_up_to_max_workers() -> None:
    more = WarmSpan(days=WORKDAYS, start=timedelta(0), end=24 * HOUR, workers=9)
    monday = utc(16, 10)

    assert kept(monday, OFFICE, NIGHT, always=1) == 2
    assert kept(monday, always=1) == 1
    assert kept(monday, OFFICE, more) == 4
    assert kept(monday, more, most=0) == 0


@given(
    minute=st.integers(0, 2 * 365 * 24 * 60),
    zone=st.sampled_from(["UTC", "Asia/Kolkata", "America/New_York", "Pacific/Apia"]),
    start=st.integers(0, 23),
    end=st.integers(0, 24),
)
def test_a_daily_span_holds_exactly_when_its_clock_says_so(
    minute: int, zone: str, start: int, end: int
) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)
    span = WarmSpan(
        days=frozenset(Weekday), start=start * HOUR, end=end * HOUR, workers=1, time_zone=zone
    )
    hour = at.astimezone(ZoneInfo(zone)).hour

    expected = start <= hour < end if start < end else hour >= start or hour < end
    assert kept(at, span) == expected


@pytest.mark.parametrize(
    ("policy", "hours"),
    [
        pytest.param(Policy(), 0.0, id="none"),
        pytest.param(Policy(warm_workers=2), 1460.0, id="two, always"),
        pytest.param(Policy(warm_schedule=(OFFICE,)), 434.5, id="two in office hours"),
        pytest.param(
            Policy(warm_workers=1, warm_schedule=(OFFICE,)), 730 + 217.3, id="one more then"
        ),
        pytest.param(
            Policy(warm_workers=2, warm_schedule=(OFFICE,)), 1460.0, id="no more than always"
        ),
        pytest.param(Policy(warm_schedule=(NIGHT,)), 34.8, id="one night a week"),
    ],
)
def test_the_hours_of_a_month(policy: Policy, hours: float) -> None:
    assert warm_hours_per_month(policy) == pytest.approx(hours, abs=0.05)


def test_keeps_warm_the_youngest_that_are_up_and_take_jobs() -> None:
    def aged(name: str, age: float, **changes: Any) -> Worker:
        return a_worker(name, launched_at=NOW - minutes(age), **changes)

    fleet = [
        aged("old", 90),
        aged("young", 20),
        aged("booting", 1, state=WorkerState.BOOTING),
        aged("draining", 5, draining_at=NOW),
        aged("leaving", 6, interrupted_at=NOW),
        aged("drained", 8, state=WorkerState.DRAINED),
    ]

    kept = [kept_warm_of(fleet, Policy(warm_workers=n)) for n in range(4)]

    assert kept == [set(), {"young"}, {"young", "old"}, {"young", "old", "booting"}]
