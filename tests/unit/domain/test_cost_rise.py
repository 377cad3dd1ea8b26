"""A rise of the cost of an item is found at once or over weeks, and stands until it is over."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.cost_rise import (
    AcceptedCost,
    CostRise,
    RiseFound,
    find_rise,
    middle_window,
)
from spindown.domain.past_cost import CostWindow

DAY = timedelta(days=1)
#: A Friday, at noon.
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
TODAY = NOW.date()
LIMIT = 1.25
#: 900 items for 2 USD.
USUAL = CostWindow(
    dollars=2.0,
    items=900,
    items_redone=100,
    launches=3,
    boot_seconds=1080.0,
    busy_seconds=5400.0,
    idle_seconds=720.0,
)


def a_day(cost: float = 1.0, size: float = 1.0) -> CostWindow:
    """Return a day whose items cost so many times the usual, with so many times the items."""
    return replace(USUAL, dollars=2.0 * cost * size, items=900 * size)


def days_of(*costs: float | None, last: date = TODAY) -> dict[date, CostWindow]:
    """Return days that cost so many times the usual, the last one today's; None: no work."""
    found = zip(reversed(costs), range(len(costs)), strict=True)
    return {last - ago * DAY: a_day(cost) for cost, ago in found if cost is not None}


#: Two weeks of usual days.
USUAL_DAYS = [1.0] * 14


@pytest.mark.parametrize(
    ("days", "judged"),
    [
        pytest.param(days_of(*USUAL_DAYS, 3), 9 / 7, id="today"),
        pytest.param(
            days_of(*USUAL_DAYS, 3) | {TODAY + DAY: a_day(1, 0.2)}, 8.2 / 6.2, id="tomorrow began"
        ),
        pytest.param(days_of(*USUAL_DAYS, 3, 1), None, id="today it is down"),
        pytest.param(days_of(*USUAL_DAYS, 3, None), 8 / 6, id="nothing was done today"),
        pytest.param(days_of(*USUAL_DAYS, 2), None, id="one day twice as dear"),
        pytest.param(days_of(*USUAL_DAYS, 2, 2), 9 / 7, id="two days twice as dear"),
        pytest.param(days_of(*USUAL_DAYS, *[1.5] * 3), None, id="half dearer for three days"),
        pytest.param(days_of(*USUAL_DAYS, *[1.5] * 4), 9 / 7, id="half dearer for four days"),
        pytest.param(days_of(*USUAL_DAYS, *[1.25] * 9), None, id="the limit itself"),
        pytest.param(days_of(1, *[None] * 7, 3), None, id="one day is no habit"),
        pytest.param(days_of(1, 1, *[None] * 7, 3), 3.0, id="two days are"),
        pytest.param(days_of(*USUAL_DAYS, 3, *[None] * 7), None, id="nothing lately"),
        pytest.param(days_of(*USUAL_DAYS, 9, *USUAL_DAYS, 3), 9 / 7, id="an odd day before it"),
        pytest.param({}, None, id="nothing at all"),
    ],
)
def test_the_last_week_is_compared_with_weeks_before(
    days: Mapping[date, CostWindow], judged: float | None
) -> None:
    found = find_rise(days, max(NOW, NOW + (max(days, default=TODAY) - TODAY)), limit=LIMIT)

    assert (found is None) is (judged is None)
    if found is not None:
        assert found.now.cost_per_item == pytest.approx(judged and judged * 2 / 900)
        assert found.rise.usual.cost_per_item == pytest.approx(2 / 900)


def weeks_of(weekend: CostWindow | None, weeks: int = 3) -> dict[date, CostWindow]:
    """Return whole weeks until today, with other Saturdays."""
    days = {TODAY - ago * DAY: a_day() for ago in range(7 * weeks)}
    saturdays = [day for day in days if day.weekday() == 5]
    for day in saturdays:
        if weekend is None:
            del days[day]
        else:
            days[day] = weekend
    return days


@pytest.mark.parametrize(
    ("saturday", "rings"),
    [
        pytest.param(a_day(3.0, 0.05), False, id="a small one, dear as it is"),
        pytest.param(a_day(3.0, 1.0), True, id="a whole day that is dear"),
    ],
)
def test_a_sunday_after_the_first_saturday(saturday: CostWindow, *, rings: bool) -> None:
    days = weeks_of(None)
    days |= {TODAY + DAY: saturday, TODAY + 2 * DAY: a_day(1.0, 0.02)}

    assert bool(find_rise(days, NOW + 2 * DAY, limit=LIMIT)) is rings


@pytest.mark.parametrize(
    ("cost", "rings"), [pytest.param(3.2, False, id="as always"), pytest.param(6.0, True, id="not")]
)
def test_a_saturday_is_compared_with_saturdays(cost: float, *, rings: bool) -> None:
    days = weeks_of(a_day(3.0)) | {TODAY + DAY: a_day(cost)}

    assert bool(find_rise(days, NOW + DAY, limit=LIMIT)) is rings


@pytest.mark.parametrize(
    ("dollars", "is_judged"),
    [
        pytest.param(1.0, True, id="half of the usual dollars"),
        pytest.param(0.99, False, id="less than half"),
    ],
)
def test_a_week_of_little_work_is_not_judged(dollars: float, *, is_judged: bool) -> None:
    week = {TODAY + ago * DAY: a_day(3.0, dollars / 6) for ago in range(1, 8)}

    assert bool(find_rise(days_of(*USUAL_DAYS) | week, NOW + 7 * DAY, limit=LIMIT)) is is_judged


def test_the_newest_day_tells_with_half_of_the_mean_dollars() -> None:
    usual = {TODAY - 9 * DAY: a_day(), TODAY - 10 * DAY: a_day()}
    down = {TODAY - DAY: a_day(3.0, 0.5), TODAY: a_day(1.0, 0.5)}
    less = down | {TODAY: a_day(1.0, 0.49)}

    assert find_rise(usual | down, NOW, limit=LIMIT) is None
    assert find_rise(usual | less, NOW, limit=LIMIT) is not None


@pytest.mark.parametrize(("cheap", "usual"), [(3, 2.0), (4, 1.0)])
def test_eight_weeks_with_work_are_the_usual_ones(cheap: int, usual: float) -> None:
    """Of nine, the oldest is not looked at; nor are weeks in which no item was done."""
    before = {TODAY - 35 * ago * DAY: a_day(1.0 if ago <= cheap else 2.0) for ago in range(1, 10)}
    without_items = {TODAY - 10 * DAY: replace(USUAL, items=0.0)}

    found = find_rise({TODAY: a_day(4.0)} | before | without_items, NOW, limit=LIMIT)

    assert found is not None
    assert found.rise.usual.cost_per_item == pytest.approx(usual * 2 / 900)


@pytest.mark.parametrize("gap", [27, 29, 36, 60, 200])
@pytest.mark.parametrize(
    ("costs", "rings"),
    [
        pytest.param((1.0, 1.0, 3.0), True, id="three times as dear"),
        pytest.param((1.0, 1.0, 1.0, 1.0, 1.3), True, id="a little above the limit"),
        pytest.param((1.0, 1.0, 1.0, 1.0, 1.2), False, id="a little below it"),
        pytest.param((1.0, 1.0, 1.0, 1.0, 0.5), False, id="cheaper"),
        pytest.param((1.0, 3.0), False, id="once is no habit"),
    ],
)
def test_work_that_comes_rarely_rings_as_well(
    costs: tuple[float, ...], gap: int, *, rings: bool
) -> None:
    days = {TODAY - gap * ago * DAY: a_day(cost) for ago, cost in enumerate(reversed(costs))}

    assert bool(find_rise(days, NOW, limit=LIMIT)) is rings


def first_ring(rate: float, length: int = 60) -> int | None:
    """Return on which day of so many a cost rings that grows by so much a day."""
    days: dict[date, CostWindow] = {}
    for day in range(length):
        days[TODAY + day * DAY] = a_day((1 + rate) ** day)
        kept = dict(sorted(days.items())[-64:])
        if find_rise(kept, NOW + day * DAY, limit=LIMIT) is not None:
            return day
    return None


@pytest.mark.parametrize(
    ("rate", "by"),
    [
        pytest.param(0.08, 21, id="8 % a day"),
        pytest.param(0.02, 30, id="2 % a day"),
        pytest.param(0.01, 60, id="1 % a day"),
        pytest.param(0.002, None, id="13 % in two months"),
        pytest.param(0.0, None, id="no trend"),
        pytest.param(-0.05, None, id="cheaper each day"),
    ],
)
def test_a_slow_trend_rings_in_time(rate: float, by: int | None) -> None:
    found = first_ring(rate)

    assert (found is None) is (by is None)
    assert found is None or found <= (by or 0)


def live(
    days: dict[date, CostWindow],
    costs: list[float],
    standing: CostRise | None = None,
    accepted: AcceptedCost | None = None,
) -> list[RiseFound | None]:
    """Return what is found at the end of further days."""
    last, found = max(days), []
    for ago, cost in enumerate(costs, start=1):
        days[last + ago * DAY] = a_day(cost)
        at = datetime.combine(last + ago * DAY, datetime.min.time(), UTC) + timedelta(hours=23)
        one = find_rise(days, at, limit=LIMIT, standing=standing, accepted=accepted)
        standing = one.rise if one else None
        found.append(one)
    return found


def test_a_rise_stands_until_the_cost_is_down() -> None:
    found = live(days_of(*[1.0] * 30), [*[2.0] * 30, 1.2, 1.2])

    assert found[0] is None
    assert all(found[1:30])
    assert found[30:] == [None, None]
    assert {one.rise.since for one in found if one} == {found[1].rise.since if found[1] else None}


def test_a_rise_ends_when_no_work_comes_any_more() -> None:
    days = days_of(*USUAL_DAYS, 3)
    standing = find_rise(days, NOW, limit=LIMIT)
    assert standing is not None

    def later(length: int) -> RiseFound | None:
        return find_rise(days, NOW + length * DAY, limit=LIMIT, standing=standing.rise)

    assert later(6)
    assert later(7) is None


@pytest.mark.parametrize(
    ("grows", "rings_again"),
    [
        pytest.param(lambda _: 2.0, False, id="it stays"),
        pytest.param(lambda day: 2.0 * 1.08**day, True, id="it goes on growing"),
    ],
)
def test_an_accepted_cost_is_the_usual_one(
    grows: Callable[[int], float], *, rings_again: bool
) -> None:
    days = days_of(*[1.0] * 30, *[2.0] * 9)
    standing = find_rise(days, NOW, limit=LIMIT)
    assert standing is not None
    accepted = AcceptedCost(at=NOW, dollars=standing.now.cost_per_item, by="ann")

    found = live(days, [grows(day) for day in range(30)], standing.rise, accepted)

    assert found[0] is None
    assert any(found) is rings_again


def test_a_cost_accepted_beforehand_never_rings() -> None:
    accepted = AcceptedCost(at=NOW, dollars=3 * 2 / 900, by="ann")

    assert not any(live(days_of(*[1.0] * 30), [3.0] * 30, accepted=accepted))


def test_the_day_of_an_acceptance_counts_as_accepted() -> None:
    accepted = AcceptedCost(at=NOW, dollars=3 * 2 / 900, by="ann")
    before = {TODAY - DAY: a_day(), TODAY: a_day(1.0, 5.0)}
    week = {TODAY + day * DAY: a_day(3.0) for day in range(1, 8)}

    assert find_rise(before | week, NOW + 7 * DAY, limit=LIMIT, accepted=accepted) is None


@pytest.mark.parametrize(
    ("costs", "usual"), [((2.0, 1.0), 1.0), ((1.0, 3.0, 2.0), 2.0), ((4.0, 3.0, 2.0, 1.0), 2.0)]
)
def test_the_middle_of_single_items(costs: tuple[float, ...], usual: float) -> None:
    windows = {cost: replace(USUAL, dollars=cost, items=1.0) for cost in costs}

    assert middle_window(list(windows.values())) == windows[usual]


def test_after_an_acceptance_later_days_become_usual() -> None:
    accepted = AcceptedCost(at=NOW, dollars=3 * 2 / 900, by="ann")
    days = days_of(*[3.0] * 30)

    # The reason is mended, and forgotten three months later.
    assert not any(live(days, [1.0] * 60, accepted=accepted))
    assert any(live(days, [2.0] * 3, accepted=accepted))


WINDOWS = st.lists(
    st.builds(a_day, st.floats(0.01, 100.0), st.floats(0.01, 100.0)), min_size=1, max_size=9
)


@given(windows=WINDOWS)
def test_half_of_the_items_cost_no_more_than_usual(windows: list[CostWindow]) -> None:
    usual = middle_window(windows)

    assert usual is not None
    # A window of more than twice the usual items counts for no more.
    most = 2 * median(window.items for window in windows)
    weights = [(window.dollars / window.items, min(window.items, most)) for window in windows]
    cost = usual.dollars / usual.items
    cheap = sum(weight for each, weight in weights if each <= cost)
    dear = sum(weight for each, weight in weights if each >= cost)
    half = sum(weight for _, weight in weights) / 2
    assert min(cheap, dear) >= half * (1 - 1e-9)


@pytest.mark.parametrize("size", [10, 20, 100])
def test_a_week_of_much_work_hides_no_rise_after_it(size: float) -> None:
    days = days_of(*[1.0] * 30) | {TODAY + ahead * DAY: a_day(1.0, size) for ahead in range(1, 8)}
    assert not any(live(days, [1.0] * 14))

    assert any(live(days, [3.0] * 7))


def test_nothing_is_usual_where_nothing_was_done() -> None:
    assert middle_window([]) is None
    assert middle_window([a_day(1.0, 0.0)]) is None
