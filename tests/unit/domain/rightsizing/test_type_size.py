"""How large jobs of a type are, is learned: by evidence, within bounds, one after the other."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.policy import JobNeeds
from spindown.domain.reason import ReasonCode
from spindown.domain.rightsizing.type_size import (
    KEPT_FOR,
    MEMORY,
    RUN_OUT_AT_MOST,
    TRIAL_JOBS,
    VCPUS,
    VRAM,
    SeenAttempt,
    SizeInForce,
    SizeRange,
    SizeTrial,
    TypeHistory,
    TypeSize,
    begin,
    decide,
    decide_cores,
    decide_size,
    enough,
    hour_of_week,
    larger_hours,
    learn,
    room,
    sized_at,
    usual_peaks,
)
from spindown.domain.shape import SCALES, Shape

#: A Monday.
MONDAY = datetime(2026, 11, 2, tzinfo=UTC)
#: USD an hour in proportion to the size.
LINEAR = {size: 0.01 * size for size in SCALES[MEMORY] if size}
CORES = {size: 0.05 * size for size in SCALES[VCPUS] if size}
ASKED = JobNeeds(memory_gib=256, vcpus=8)


def a_range(least: int = 1, most: int = 384, **changes: Any) -> SizeRange:
    base = SizeRange(need=MEMORY, least=least, most=most, stated=256, prices=LINEAR)
    return replace(base, **changes)


RANGES = {
    MEMORY: a_range(),
    VRAM: SizeRange(need=VRAM, least=0, most=0),
    VCPUS: SizeRange(need=VCPUS, least=1, most=32, stated=32, prices=CORES),
}


def an_attempt(gib: float | None, size: int = 256, **changes: Any) -> SeenAttempt:
    base = SeenAttempt(
        at=MONDAY,
        shape=Shape(memory_gib=size, vcpus=8),
        vcpus=8,
        cores=8.0,
        memory_gib=gib,
        seconds=600.0,
        dollars=0.10,
        items=10.0,
    )
    return replace(base, **changes)


def a_trial(jobs: float = 10.0, **changes: Any) -> SizeTrial:
    return replace(
        SizeTrial(jobs=jobs, count=jobs, items=10 * jobs, dollars=jobs, seconds=60 * jobs),
        **changes,
    )


def size_of(peaks: Sequence[tuple[float, float]], sizes: SizeRange | None = None) -> int | None:
    found = enough(peaks, sizes or a_range())
    return None if found is None else found.size


@pytest.mark.parametrize(
    ("peaks", "size"),
    [
        ([], None),
        # 1.5 times 5 GiB after one job; 1.05 times after a hundred.
        ([(5.0, 1)], 8),
        ([(6.0, 1)], 16),
        ([(7.5, 100)], 8),
        # Three of a hundred may not run out, one may.
        ([(7.0, 97), (20.0, 3)], 32),
        ([(7.0, 99), (20.0, 1)], 8),
        # More than may be: the most that may be.
        ([(900.0, 5)], 384),
    ],
)
def test_enough_is_what_nearly_all_jobs_fit_into(
    peaks: list[tuple[float, float]], size: int | None
) -> None:
    assert size_of(peaks) == size


@pytest.mark.parametrize(
    ("price", "size"),
    [
        # The chance of 10 jobs is 0.5 / 11 = 4.5 %: worth at most so much of the larger machine.
        (0.081, 16),
        (0.083, 16),
        (0.085, 8),
    ],
)
def test_a_chance_to_run_out_is_weighed_by_dollars(price: float, size: int) -> None:
    prices = {8: 0.08, 16: price, 32: 1.0}
    assert size_of([(5.0, 10)], a_range(8, 32, prices=prices)) == size


def test_of_machines_of_one_price_the_largest_is_taken() -> None:
    sizes = a_range(1, 64, prices={8: 0.1, 16: 0.1, 32: 0.1, 48: 0.3, 64: 0.3})

    assert sizes.choices == [32, 64]
    assert size_of([(3.0, 500)], sizes) == 32


PEAKS = st.lists(st.tuples(st.floats(0.01, 400.0), st.floats(0.1, 100.0)), min_size=1, max_size=12)


@given(peaks=PEAKS, number=st.integers(0, 11), more=st.floats(1.0, 8.0))
def test_a_higher_peak_makes_nothing_smaller(
    peaks: list[tuple[float, float]], number: int, more: float
) -> None:
    index = number % len(peaks)
    higher = [(gib * (more if i == index else 1.0), n) for i, (gib, n) in enumerate(peaks)]
    assert (size_of(higher) or 0) >= (size_of(peaks) or 0)


@given(peaks=PEAKS, times=st.integers(2, 50))
def test_more_of_the_same_makes_nothing_larger(
    peaks: list[tuple[float, float]], times: int
) -> None:
    once = size_of([(gib, max(n, 1.0)) for gib, n in peaks])
    often = size_of([(gib, times * max(n, 1.0)) for gib, n in peaks])
    assert once is not None
    assert often is not None
    assert often <= once


@given(peaks=PEAKS)
def test_so_few_run_out_of_what_is_enough(peaks: list[tuple[float, float]]) -> None:
    found = enough(peaks, a_range(1, 8192))
    if found is not None and found.size < SCALES[MEMORY][-1]:
        jobs = sum(n for _, n in peaks)
        over = sum(n for gib, n in peaks if gib * room(jobs) > found.size)
        assert over <= RUN_OUT_AT_MOST * jobs


STEPS = st.builds(
    SizeInForce,
    # All are sizes of VRAM too.
    size=st.sampled_from([s for s in SCALES[MEMORY] if 4 <= s <= 96]),
    before=st.sampled_from([0, 8, 64, 128]),
    top=st.sampled_from([0, 64, 128]),
    tried=st.builds(
        lambda jobs, bad, out: a_trial(jobs, failed=bad * jobs, ran_out=out * bad * jobs),
        st.floats(0, 50),
        st.floats(0, 1),
        st.floats(0, 1),
    ),
    earlier=st.builds(a_trial, st.floats(0, 50)),
    not_below=st.sampled_from([0, 16]),
    not_below_until=st.sampled_from([None, MONDAY + timedelta(days=1)]),
)


@given(step=STEPS, peaks=PEAKS, need=st.sampled_from([MEMORY, VRAM]))
def test_a_size_moves_to_a_neighbour_within_its_bounds(
    step: SizeInForce, peaks: list[tuple[float, float]], need: str
) -> None:
    sizes = a_range(4, 128, need=need, prices={n: 0.01 * n for n in SCALES[need] if n})
    after = decide_size(step, enough(peaks, sizes), sizes, MONDAY)

    assert 4 <= after.size <= 128
    choices = list(sizes.choices)
    is_back = after.reason.code in {ReasonCode.SIZE_BACK_FAILURES, ReasonCode.SIZE_BACK_COST}
    if is_back:
        next_one = step.before if step.before > step.size else sizes.above(step.size)
        assert step.size < after.size <= (next_one or 0)
    else:
        assert abs(choices.index(after.size) - choices.index(step.size)) <= 1
    if after.size < step.size:
        assert step.tried.jobs >= TRIAL_JOBS
        assert after.size >= (step.not_below if step.not_below_until else 0)


@pytest.mark.parametrize(
    ("jobs", "failed", "is_raised"),
    [(20, 0.0, True), (60, 0.0, False), (60, 1.0, False), (60, 2.0, True)],
)
def test_a_size_that_has_been_enough_stays(jobs: float, failed: float, is_raised: bool) -> None:
    # With room, 3 of 100 jobs are expected to exceed it.
    want = enough([(100.0, 97), (125.0, 3)], a_range())
    assert want is not None
    assert want.size > 128
    step = SizeInForce(size=128, tried=a_trial(jobs, failed=failed))

    assert (decide_size(step, want, a_range(), MONDAY).size > 128) is is_raised


@pytest.mark.parametrize(("gib", "size"), [(120.0, 128), (126.0, 192)])
def test_a_peak_a_little_below_a_size_fits_into_it(gib: float, size: int) -> None:
    attempts = [an_attempt(gib)] * 2_000
    history = learn(begin(ASKED, MONDAY), attempts, MONDAY)

    assert size_of(usual_peaks(history.peaks[MEMORY])) == size


def test_a_size_is_tried_before_the_next_one_down() -> None:
    sizes, want = a_range(), enough([(6.0, 50)], a_range())
    step = SizeInForce(size=256)
    assert decide_size(step, want, sizes, MONDAY) == step

    step = decide_size(replace(step, tried=a_trial()), want, sizes, MONDAY)
    assert (step.size, step.before, step.reason.code) == (192, 256, ReasonCode.SIZE_LOWERED)
    assert decide_size(step, want, sizes, MONDAY) == step


@pytest.mark.parametrize(
    ("tried", "code"),
    [
        (a_trial(failed=1.0), None),
        (a_trial(failed=2.0), ReasonCode.SIZE_BACK_FAILURES),
        (a_trial(dollars=11.0), None),
        (a_trial(dollars=12.0), ReasonCode.SIZE_BACK_COST),
        (a_trial(4.0, dollars=12.0), None),
        (a_trial(items=0.0, failed=10.0), ReasonCode.SIZE_BACK_FAILURES),
    ],
)
def test_it_goes_back_if_failures_or_costs_rise(tried: SizeTrial, code: ReasonCode | None) -> None:
    step = SizeInForce(
        size=128, before=256, earlier=a_trial(), top=256, usual=a_trial(), tried=tried
    )
    want = enough([(100.0, 50)], a_range())
    after = decide_size(step, want, a_range(), MONDAY)

    if code is None:
        assert after == step
        return
    assert (after.size, after.reason.code) == (256, code)
    # It is left alone for a while, and tried again then.
    ready = replace(after, tried=a_trial())
    assert decide_size(ready, want, a_range(), MONDAY + KEPT_FOR / 2).size == 256
    assert decide_size(ready, want, a_range(), MONDAY + KEPT_FOR).size == 192


def test_what_failed_before_is_no_reason_to_go_back() -> None:
    bad = a_trial(failed=5.0)
    step = SizeInForce(size=128, before=256, earlier=bad, top=256, usual=bad, tried=bad)

    assert decide_size(step, None, a_range(), MONDAY) == step


@pytest.mark.parametrize(
    ("tried", "is_lowered"),
    [
        (a_trial(40.0), True),
        (a_trial(40.0, failed=1.0), True),
        (a_trial(40.0, failed=4.0), False),
        (a_trial(40.0, failed=40.0, items=0.0), False),
        (a_trial(40.0, failed=1.0, ran_out=1.0), False),
    ],
)
def test_a_size_at_which_jobs_fail_gets_no_smaller(tried: SizeTrial, is_lowered: bool) -> None:
    want = enough([(0.02, 40)], a_range())
    after = decide_size(SizeInForce(size=4, tried=tried), want, a_range(), MONDAY)

    assert (after.size < 4) is is_lowered


@pytest.mark.parametrize(
    ("jobs", "ran_out", "size"), [(49, 1, 4), (4, 4, 4), (5, 5, 8), (50, 5, 4), (50, 9, 8)]
)
def test_jobs_that_run_out_of_memory_make_a_size_grow(jobs: int, ran_out: int, size: int) -> None:
    """Nobody has seen a peak above the size, and another need has moved since it was lowered."""
    tried = a_trial(jobs, failed=ran_out, ran_out=ran_out)
    want = enough([(0.02, 400)], a_range())
    after = decide_size(SizeInForce(size=4, tried=tried), want, a_range(), MONDAY)

    assert after.size == size
    if size > 4:
        assert after.reason.code is ReasonCode.SIZE_RAN_OUT
        # No smaller one is tried for a while, and none is advised.
        ready = replace(after, tried=a_trial())
        assert decide_size(ready, want, a_range(), MONDAY + KEPT_FOR / 2).size == size
        assert decide_size(ready, want, a_range(), MONDAY + KEPT_FOR).size < size
        assert a_range().least_of(ready, MONDAY) == size


def test_peaks_raise_no_size_above_what_the_type_states() -> None:
    """One large job in forty would have all others pay for it."""
    want, tried = enough([(1.0, 39), (300.0, 1)], a_range()), a_trial(40.0)
    step = replace(SizeInForce(size=64), tried=tried)

    assert decide_size(step, want, a_range(stated=64), MONDAY) == step
    assert decide_size(step, want, a_range(stated=80), MONDAY).size == 80
    assert decide_size(replace(step, tried=a_trial(4.0)), want, a_range(), MONDAY).size == 64
    # Jobs that run out of it do.
    out = replace(step, tried=replace(tried, ran_out=9.0, failed=9.0))
    assert decide_size(out, want, a_range(stated=64), MONDAY).size == 96


def test_a_size_comes_back_while_every_job_fails() -> None:
    """A program that ends by itself, for want of memory, tells no peak."""
    history, now = begin(ASKED, MONDAY), MONDAY
    sizes = []
    for hour in range(48):
        now += timedelta(hours=1)
        memory, vcpus = (history.sizes[need].size for need in (MEMORY, VCPUS))
        sizes.append((memory, vcpus))
        is_bad = hour >= 24 and memory < 100
        one = an_attempt(
            None if is_bad else (90.0 if hour >= 24 else 5.0),
            shape=Shape(memory_gib=memory, vcpus=vcpus),
            vcpus=vcpus,
            cores=3.0,
            has_failed=is_bad,
            items=0.0 if is_bad else 10.0,
            at=now,
        )
        history, _ = decide(learn(history, [one] * 6, now), RANGES, now, applies=True)

    assert sizes[24][0] == 8
    # Vcpus were the last to be lowered, so what memory cost before is forgotten.
    assert sizes[24][1] < 8
    assert sizes[-1] == (128, sizes[24][1])


def test_jobs_of_needs_of_their_own_teach_nothing() -> None:
    """No peak, nothing of what cores cost, and they end no trial."""
    own = an_attempt(300.0, stated=frozenset({MEMORY}))
    before = begin(ASKED, MONDAY)
    step = SizeInForce(size=128, before=192, earlier=a_trial(), since=MONDAY)
    before = replace(before, sizes={**before.sizes, MEMORY: step})

    assert learn(before, [own] * 20, MONDAY) == before


def test_a_trial_that_no_job_meets_comes_to_an_end() -> None:
    history, now = begin(ASKED, MONDAY), MONDAY
    for _ in range(6):
        now += timedelta(hours=1)
        shape = Shape(memory_gib=256, vcpus=history.sizes[VCPUS].size)
        one = an_attempt(5.0, shape=shape, vcpus=shape.vcpus, cores=1.0, at=now)
        history, _ = decide(learn(history, [one] * 6, now), RANGES, now, applies=True)

    assert history.sizes[MEMORY].size == 192
    assert history.sizes[VCPUS].size < 8


def test_bounds_that_people_move_hold_at_once() -> None:
    step = SizeInForce(size=128, before=256, tried=a_trial())

    assert decide_size(step, None, a_range(192), MONDAY).size == 192
    assert decide_size(step, None, a_range(1, 64), MONDAY).size == 64


def test_a_job_of_once_a_week_is_sized_too() -> None:
    history = begin(JobNeeds(memory_gib=64), MONDAY)
    for week in range(8):
        now, size = MONDAY + timedelta(days=7 * week), history.sizes[MEMORY].size
        history = learn(history, [an_attempt(1.0, size=size, at=now)], now)
        history, _ = decide(history, RANGES, now, applies=True)

    assert history.sizes[MEMORY].size < 64


def test_jobs_that_differ_much_are_no_reason_to_go_back() -> None:
    # A third dearer on average: by five jobs, of which one took long.
    tried = replace(a_trial(5.0, dollars=6.7), dollars_squared=4 * 1.0 + 2.7**2)
    step = SizeInForce(size=128, before=256, earlier=a_trial(), tried=tried)

    assert decide_size(step, None, a_range(), MONDAY) == step


def test_few_jobs_tell_little_of_how_much_they_vary() -> None:
    # Nine jobs that happened to be short and alike, against 34 that vary by 1.7 times their mean.
    earlier = replace(a_trial(9.0, dollars=9.0), dollars_squared=9.0)
    tried = replace(a_trial(34.0, dollars=85.0), dollars_squared=34 * 2.5**2 * (1.0 + 1.7**2))
    step = SizeInForce(size=128, before=256, earlier=earlier, tried=tried)

    assert decide_size(step, None, a_range(), MONDAY) == step


def test_one_need_at_a_time_is_on_trial() -> None:
    history = begin(ASKED, MONDAY)
    seen = [an_attempt(5.0, cores=1.0)] * 6
    changed = []
    for hour in range(4):
        now = MONDAY + timedelta(hours=hour)
        before = history
        history, _ = decide(learn(history, seen, now), RANGES, now, applies=True)
        sizes = history.sizes
        changed.append([before.sizes[n].size != sizes[n].size for n in (MEMORY, VCPUS)])
        shape = Shape(memory_gib=sizes[MEMORY].size, vcpus=sizes[VCPUS].size)
        seen = [an_attempt(5.0, cores=1.0, shape=shape, vcpus=shape.vcpus)] * 6

    assert changed[0] == [True, False]
    assert all(sum(each) <= 1 for each in changed)


def scaling(**costs: float) -> dict[int, SizeTrial]:
    found = {}
    for name, cost in costs.items():
        vcpus = int(name[1:])
        found[vcpus] = a_trial(dollars=100 * cost, seconds=100 * cost * 3600 / CORES[vcpus])
    return found


@pytest.mark.parametrize(
    ("known", "cores", "size", "code"),
    [
        # All cores are in use: more are tried, and kept only while an item gets cheaper.
        (scaling(c8=0.10), 7.5, 16, ReasonCode.CORES_MORE_TRIED),
        (scaling(c8=0.10, c16=0.08), 7.5, 16, ReasonCode.CORES_MORE),
        (scaling(c8=0.10, c16=0.12), 7.5, 8, None),
        (scaling(c8=0.10, c16=0.098), 7.5, 8, None),
        # Fewer are tried if by Amdahl's law an item costs less there: 4 take 1.43 times as long
        # where 4 of 8 are in use, 1.92 times where 7.5 are.
        (scaling(c8=0.10), 3.0, 4, ReasonCode.CORES_FEWER_TRIED),
        (scaling(c8=0.10), 4.0, 4, ReasonCode.CORES_FEWER_TRIED),
        (scaling(c8=0.10), 6.5, 4, ReasonCode.CORES_FEWER_TRIED),
        (scaling(c8=0.10, c4=0.11), 4.0, 8, None),
        (scaling(c8=0.10, c4=0.07), 4.0, 4, ReasonCode.CORES_FEWER),
        (scaling(c8=0.10, c4=0.11), 3.0, 8, None),
    ],
)
def test_cores_are_bought_while_an_item_gets_cheaper(
    known: dict[int, SizeTrial], cores: float, size: int, code: ReasonCode | None
) -> None:
    tried = a_trial(core_seconds=cores * 600.0)
    after = decide_cores(SizeInForce(size=8, tried=tried), known, RANGES[VCPUS], MONDAY)

    assert after.size == size
    assert after.reason.code == (code or ReasonCode.NONE)


@pytest.mark.parametrize(
    ("stated", "size"),
    [pytest.param(8, 8, id="as many as are stated"), pytest.param(16, 16, id="fewer than that")],
)
def test_no_more_cores_are_bought_than_a_type_states(stated: int, size: int) -> None:
    """A few jobs of many small items make them cheaper on ever more cores."""
    sizes = replace(RANGES[VCPUS], stated=stated)
    busy = SizeInForce(size=8, tried=a_trial(core_seconds=8 * 600.0))

    for known in (scaling(c8=0.10), scaling(c8=0.10, c16=0.01)):
        assert decide_cores(busy, known, sizes, MONDAY).size == size


def test_no_more_cores_where_memory_makes_it_the_same_machine() -> None:
    alike, dearer = (
        replace(RANGES[VCPUS], prices={**CORES, 16: times * CORES[8]}) for times in (1.0, 1.1)
    )
    known = {8: a_trial(seconds=36000.0), 16: a_trial(seconds=18000.0)}
    now = SizeInForce(size=8, tried=a_trial(core_seconds=4500.0))

    assert decide_cores(now, known, alike, MONDAY) == now
    assert decide_cores(now, known, dearer, MONDAY).size == 16


def weeks_of(days: int, special_gib: float = 32.0) -> list[SeenAttempt]:
    """Return hourly jobs of 4 GiB, of which those of Mondays at 06:00 need eight times as much."""
    found = []
    for hour in range(days * 24):
        at = MONDAY + timedelta(hours=hour)
        gib = special_gib if hour_of_week(at) == 6 else 4.0
        found.append(an_attempt(gib, at=at))
    return found


def settled(seen: list[SeenAttempt], now: datetime, *, applies: bool = True) -> TypeSize:
    history = learn(begin(ASKED, MONDAY), seen, now)
    history = replace(history, sizes={**history.sizes, MEMORY: SizeInForce(size=8)})
    return decide(history, RANGES, now, applies=applies)[1]


def test_a_monday_that_needs_more_is_foreseen_in_the_third_week() -> None:
    after_one = settled(weeks_of(7), MONDAY + timedelta(days=7))
    after_two = settled(weeks_of(14), MONDAY + timedelta(days=14))
    third = MONDAY + timedelta(days=14, hours=6)

    assert after_one.hours == {}
    assert sized_at(after_two, third).needs.memory_gib == 48
    assert sized_at(after_two, third).reasons[0].code is ReasonCode.SIZE_OF_HOUR
    for hour in (5, 7, 30):
        small = sized_at(after_two, third + timedelta(hours=hour - 6)).needs.memory_gib
        assert small is not None
        assert small <= 8
    assert after_two.advised.memory_gib == 8


@pytest.mark.parametrize(
    ("large", "jobs", "is_larger"),
    [
        pytest.param(1, 1, True, id="the only one"),
        pytest.param(1, 20, True, id="one in twenty"),
        pytest.param(1, 101, False, id="one in a hundred"),
    ],
)
def test_one_job_in_a_hundred_decides_no_hour(large: int, jobs: int, *, is_larger: bool) -> None:
    seen = [one for one in weeks_of(14) if hour_of_week(one.at) != 6]
    for week in range(2):
        at = MONDAY + timedelta(days=7 * week, hours=6)
        seen += [an_attempt(200.0, at=at)] * large + [an_attempt(4.0, at=at)] * (jobs - large)

    assert ("6" in settled(seen, MONDAY + timedelta(days=14)).hours) is is_larger


@pytest.mark.parametrize(("stated", "hours"), [(0, {}), (8, {}), (32, {"6": 32}), (256, {"6": 48})])
def test_an_hour_gets_no_more_than_the_type_states(stated: int, hours: dict[str, int]) -> None:
    now = MONDAY + timedelta(days=14)
    history = learn(begin(ASKED, MONDAY), weeks_of(14), now)
    history = replace(history, sizes={**history.sizes, MEMORY: SizeInForce(size=8)})
    ranges = {**RANGES, MEMORY: a_range(stated=stated)}

    assert decide(history, ranges, now, applies=True)[1].hours == hours


#: A type that states no memory, on any machine; jobs may ask for 384 GiB.
UNSTATED = {**RANGES, MEMORY: a_range(least=0, stated=0)}


def unstated_hours(
    large: int, jobs: int, gib: float = 200.0, *, runs_out: bool = True, weeks: int = 2
) -> dict[str, int]:
    """Return the hours of such a type, of which some jobs of one hour need more, for some weeks."""
    seen = [
        replace(one, shape=Shape(vcpus=8))
        for one in weeks_of(7 * weeks)
        if hour_of_week(one.at) != 6
    ]
    for week in range(weeks):
        at = MONDAY + timedelta(days=7 * week, hours=6)
        seen += [an_attempt(4.0, 0, at=at)] * (jobs - large)
        lack = [
            an_attempt(float(size or 16), size, at=at, ran_out=True, ends_job=False, items=0.0)
            for size in (0, 32, 64, 128)
        ]
        had = an_attempt(gib, 256 if runs_out else 0, at=at)
        seen += [one for _ in range(large) for one in (*(lack if runs_out else ()), had)]
    now = MONDAY + timedelta(days=7 * weeks)
    history = learn(begin(JobNeeds(vcpus=8), MONDAY), seen, now)
    return dict(decide(history, UNSTATED, now, applies=True)[1].hours)


@pytest.mark.parametrize(
    ("large", "jobs", "hours"),
    [
        pytest.param(1, 1, {"6": 384}, id="the only one"),
        pytest.param(20, 20, {"6": 256}, id="all"),
        pytest.param(3, 101, {"6": 256}, id="three in a hundred"),
        pytest.param(2, 101, {}, id="two in a hundred"),
        pytest.param(1, 101, {}, id="one in a hundred"),
    ],
)
def test_an_hour_without_stated_memory_is_foreseen(
    large: int, jobs: int, hours: dict[str, int]
) -> None:
    assert unstated_hours(large, jobs) == hours


def test_without_stated_memory_one_week_foresees_nothing() -> None:
    assert unstated_hours(20, 20, weeks=1) == {}


def test_what_never_ran_out_foresees_no_hour() -> None:
    """Machines without a stated size had so much all the same."""
    assert unstated_hours(20, 20, runs_out=False) == {}


def test_tiny_jobs_of_quiet_hours_make_no_other_special() -> None:
    """Twenty jobs an hour of work need 200 GiB; in each other hour one needs next to nothing."""
    seen = []
    for hour in range(21 * 24):
        at = MONDAY + timedelta(hours=hour)
        is_work = at.weekday() < 5 and 9 <= at.hour < 17
        seen += [an_attempt(200.0, at=at)] * 20 if is_work else [an_attempt(0.3, at=at)]
    peaks = learn(begin(ASKED, MONDAY), seen, MONDAY + timedelta(days=21)).peaks[MEMORY]

    assert larger_hours(peaks) == {}
    assert size_of(usual_peaks(peaks)) == 256


def test_an_hour_that_needs_more_no_longer_is_forgotten() -> None:
    seen = [
        *weeks_of(14),
        *(replace(one, at=one.at + timedelta(days=14)) for one in weeks_of(7, 4)),
    ]
    history = learn(begin(ASKED, MONDAY), seen, MONDAY + timedelta(days=21))

    assert larger_hours(history.peaks[MEMORY]) == {}


def test_jobs_of_the_future_are_lies_and_leave_no_trace() -> None:
    now = MONDAY + timedelta(days=21)
    lies = [
        an_attempt(384.0, at=datetime(9999, 12, day, hour, tzinfo=UTC))
        for day in range(1, 32)
        for hour in range(3)
    ]
    history = learn(begin(ASKED, MONDAY), [*weeks_of(21, special_gib=4.0), *lies], now)

    assert history == learn(begin(ASKED, MONDAY), weeks_of(21, special_gib=4.0), now)
    assert larger_hours(history.peaks[MEMORY]) == {}


def test_jobs_of_many_sizes_have_no_hour_of_their_own() -> None:
    sizes = [2.0, 3.0, 5.0, 8.0, 13.0]
    seen = [an_attempt(sizes[n % 5], at=MONDAY + timedelta(minutes=20 * n)) for n in range(1500)]
    history = learn(begin(ASKED, MONDAY), seen, MONDAY + timedelta(days=21))

    assert larger_hours(history.peaks[MEMORY]) == {}
    assert len(usual_peaks(history.peaks[MEMORY])) == len(sizes)


def follow(history: TypeHistory, need: float, runs: int) -> tuple[TypeHistory, list[int]]:
    """Let jobs that need so much run at whatever size is in force; return the sizes."""
    sizes, now = [], history.at
    for _ in range(runs):
        now += timedelta(hours=1)
        size = history.sizes[MEMORY].size
        sizes.append(size)
        fits = need + 0.5 <= size
        seen = [
            an_attempt(need if fits else size, size, ends_job=fits, ran_out=not fits, at=now)
            for _ in range(6)
        ]
        if not fits:
            seen += [an_attempt(need, size * 2, at=now) for _ in range(6)]
        history, _ = decide(learn(history, seen, now), RANGES, now, applies=True)
    return history, sizes


def test_what_is_asked_for_too_much_comes_down_size_by_size() -> None:
    history, sizes = follow(begin(ASKED, MONDAY), 5.0, 12)

    assert sizes == [256, 192, 128, 96, 64, 48, 32, 16, 8, 8, 8, 8]
    # Jobs that grow later are followed at once.
    _, grown = follow(history, 40.0, 6)
    assert grown == [8, 16, 32, 48, 48, 48]


def test_a_few_large_jobs_move_no_size_to_and_fro() -> None:
    luck, now, history = Random(2), MONDAY, begin(JobNeeds(memory_gib=64), MONDAY)
    ranges = {**RANGES, MEMORY: a_range(most=64)}
    moves = ran_out = jobs = 0
    for _ in range(24 * 14):
        seen = []
        for _ in range(10):
            need, size = (2.0 if luck.random() > 0.02 else 20.0), history.sizes[MEMORY].size
            jobs, has_run_out = jobs + 1, need > size
            seen.append(
                an_attempt(
                    min(need, float(size)),
                    size,
                    ends_job=not has_run_out,
                    ran_out=has_run_out,
                    at=now,
                )
            )
            if has_run_out:
                ran_out += 1
                seen.append(an_attempt(need, 32, at=now))
        now += timedelta(hours=1)
        before = history.sizes[MEMORY].size
        history, _ = decide(learn(history, seen, now), ranges, now, applies=True)
        moves += history.sizes[MEMORY].size != before

    assert ran_out <= RUN_OUT_AT_MOST * jobs
    # Five down from what is asked for, three up to what a job in fifty needs, and once back.
    assert moves <= 10


@pytest.mark.parametrize(("large", "is_lowered"), [(0, True), (1, True), (8, False), (20, False)])
def test_a_size_gets_smaller_only_beyond_chance(large: int, is_lowered: bool) -> None:
    want = enough([(6.0, 500 - large), (125.0, large)], a_range())
    step = SizeInForce(size=128, tried=a_trial())

    assert (decide_size(step, want, a_range(), MONDAY).size < 128) is is_lowered


@pytest.mark.parametrize(
    ("prices", "used", "advised"),
    [
        pytest.param({2: 0.1, 4: 0.1, 8: 0.1, 16: 0.2}, 0.1, 2, id="larger ones cost the same"),
        pytest.param({2: 0.1, 4: 0.1, 8: 0.1, 16: 0.2}, 3.0, 8, id="it is too small"),
        pytest.param({1: 0.05, 2: 0.1, 4: 0.1, 8: 0.2}, 0.1, 1, id="a smaller one costs less"),
    ],
)
def test_no_more_is_advised_than_is_asked_for_in_vain(
    prices: dict[int, float], used: float, advised: int
) -> None:
    of = JobNeeds(memory_gib=2)
    history = learn(begin(of, MONDAY), [an_attempt(used, size=2)] * 30, MONDAY)
    ranges = {**RANGES, MEMORY: a_range(prices=prices)}

    assert decide(history, ranges, MONDAY, applies=False)[1].advised.memory_gib == advised


def test_people_s_word_counts_where_sizes_are_only_advised() -> None:
    size = settled([an_attempt(5.0) for _ in range(20)], MONDAY, applies=False)

    assert size.needs == JobNeeds()
    assert size.advised == JobNeeds(memory_gib=8, vcpus=16)


def test_peaks_of_an_hour_have_no_steps_without_end() -> None:
    seen = [an_attempt(2.0 ** (step / 16)) for step in range(-96, 128)]
    peaks = learn(begin(ASKED, MONDAY), seen, MONDAY).peaks[MEMORY]
    [kept] = peaks.hours.values()

    assert len(kept) == 48
    assert sum(kept.values()) == len(seen)
    assert max(gib for gib, _ in usual_peaks(peaks)) == pytest.approx(2.0 ** (127 / 16))


def test_old_evidence_fades() -> None:
    history = learn(begin(ASKED, MONDAY), [an_attempt(100.0)] * 20, MONDAY)
    history = learn(history, [an_attempt(5.0)] * 200, MONDAY + timedelta(days=120))

    assert size_of(usual_peaks(history.peaks[MEMORY])) == 8


@pytest.mark.parametrize(("applies", "size"), [(True, 16), (False, None)])
def test_memory_that_nobody_states_is_learned_once_it_runs_out(
    applies: bool, size: float | None
) -> None:
    out = an_attempt(7.9, size=0, ends_job=False, ran_out=True)
    seen = [out, an_attempt(12.0, size=16)] * 30
    history = learn(begin(JobNeeds(vcpus=8), MONDAY), seen, MONDAY)
    ranges = {**RANGES, MEMORY: a_range(least=0)}
    history, found = decide(history, ranges, MONDAY, applies=applies)

    assert found.needs.memory_gib == size
    assert found.advised.memory_gib == 16


def test_nothing_is_learned_of_needs_that_a_type_does_not_state() -> None:
    history = learn(begin(JobNeeds(vcpus=8), MONDAY), [an_attempt(100.0)] * 20, MONDAY)
    history, size = decide(history, RANGES, MONDAY, applies=True)

    assert size.needs.memory_gib is None
    assert size.advised.memory_gib is None


GPU = JobNeeds(memory_gib=64, gpu_memory_gib=44)
GPU_RANGES = {
    MEMORY: a_range(most=128),
    VRAM: SizeRange(
        need=VRAM, least=1, most=96, prices={size: 0.1 * size for size in SCALES[VRAM] if size}
    ),
    VCPUS: SizeRange(need=VCPUS, least=0, most=0),
}


def on_gpu(vram: float | None, size: int, **changes: Any) -> SeenAttempt:
    shape = Shape(memory_gib=64, gpus=1, gpu_memory_gib=size)
    return an_attempt(None, shape=shape, vram_gib=vram, **changes)


def test_an_hour_a_week_that_runs_out_keeps_no_size_large() -> None:
    now, history = MONDAY, begin(JobNeeds(vcpus=8, memory_gib=64), MONDAY)
    ranges = {**RANGES, MEMORY: replace(RANGES[MEMORY], stated=64)}
    sizes = []
    for _ in range(24 * 5):
        now += timedelta(hours=1)
        memory, vcpus = (history.sizes[need].size for need in (MEMORY, VCPUS))
        gib = 44.0 if now.weekday() == 0 and now.hour == 6 else 5.5
        one = SeenAttempt(
            at=now,
            shape=Shape(memory_gib=memory, vcpus=vcpus),
            vcpus=vcpus,
            cores=2.0,
            memory_gib=min(gib, memory),
            seconds=750.0 + 6000.0 / vcpus,
            dollars=0.1,
            items=10.0 if gib <= memory else 0.0,
            ran_out=gib > memory,
        )
        history, _ = decide(learn(history, [one] * 20, now), ranges, now, applies=True)
        sizes.append(history.sizes[MEMORY].size)

    assert max(sizes[5:]) == 16
    assert sizes[-1] == 8


def test_vram_comes_down_and_grows_once_it_runs_out() -> None:
    history, now, sizes, codes = begin(GPU, MONDAY), MONDAY, [], []
    for hour in range(11):
        now += timedelta(hours=1)
        size = history.sizes[VRAM].size
        sizes.append(size)
        need = 14.0 if hour < 8 else 21.0
        fits = need <= size
        vram = need if fits else None
        seen = [on_gpu(vram, size, at=now, ends_job=fits, ran_out_of_vram=not fits)] * 6
        history, _ = decide(learn(history, seen, now), GPU_RANGES, now, applies=True)
        codes.append(history.sizes[VRAM].reason.code)

    assert sizes == [44, 40, 32, 24, 22, 20, 16, 16, 16, 20, 22]
    assert codes[8:10] == [ReasonCode.SIZE_BACK_FAILURES, ReasonCode.SIZE_RAN_OUT]
    assert history.sizes[MEMORY].size == 64


@pytest.mark.parametrize(
    ("ran_out", "sizes"),
    [
        pytest.param({"ran_out": True}, (96, 44, 8), id="memory"),
        pytest.param({"ran_out_of_vram": True}, (64, 48, 8), id="memory of a GPU"),
    ],
)
def test_what_ran_out_is_all_that_grows(
    ran_out: dict[str, bool], sizes: tuple[int, int, int]
) -> None:
    history = begin(replace(GPU, vcpus=8), MONDAY)
    shape = Shape(vcpus=8, memory_gib=64, gpus=1, gpu_memory_gib=44)
    seen = [an_attempt(None, shape=shape, ends_job=False, **ran_out)] * 5
    ranges = {**GPU_RANGES, VCPUS: RANGES[VCPUS]}
    history, _ = decide(learn(history, seen, MONDAY), ranges, MONDAY, applies=True)

    assert tuple(history.sizes[need].size for need in (MEMORY, VRAM, VCPUS)) == sizes
    assert history.scaling == {}


def test_vram_that_nobody_states_is_learned_once_it_runs_out() -> None:
    out = on_gpu(None, 0, ends_job=False, ran_out_of_vram=True)
    history = learn(begin(JobNeeds(gpus=1), MONDAY), [out, on_gpu(13.0, 15)] * 30, MONDAY)
    ranges = {**GPU_RANGES, VRAM: replace(GPU_RANGES[VRAM], least=0)}
    _, size = decide(history, ranges, MONDAY, applies=True)

    assert size.needs == JobNeeds(gpu_memory_gib=15)
