"""What advise works out: cases against Spindown, gaps between work, long jobs."""

import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.advice import (
    Answer,
    Verdict,
    find_gaps,
    find_long_jobs,
    gap_quantile,
    gap_share,
    judge_constant_load,
    judge_interruptions,
    judge_latency,
    judge_long_items,
    judge_small_bill,
)
from spindown.domain.reason import ReasonCode


@pytest.mark.parametrize(
    ("promise", "answer"), [(60.0, Answer.YES), (90.0, Answer.NO), (600.0, Answer.NO)]
)
def test_work_that_cannot_wait_for_a_boot_needs_a_warm_worker(
    promise: float, answer: Answer
) -> None:
    verdict = judge_latency(
        month=40.0,
        warm_month=140.0,
        jobs=1000.0,
        promise=promise,
        boot=90.0,
        wait=70.0,
        warm_wait=4.0,
    )

    assert verdict.answer is answer
    assert verdict.break_even == pytest.approx(0.10)
    assert verdict.reason.about == pytest.approx(
        {
            "boot": 90.0,
            "warm_workers": 1,
            "month": 140.0,
            "more": 100.0,
            "now": 70.0,
            "helps": True,
            "wait": 4.0,
            "each": 0.1,
        }
    )


def test_who_is_in_time_without_a_warm_worker_needs_none() -> None:
    verdict = judge_latency(
        month=40.0,
        warm_month=140.0,
        jobs=1000.0,
        promise=0.0,
        boot=90.0,
        wait=0.0,
        warm_wait=0.0,
        is_kept=True,
    )

    assert verdict.answer is Answer.NO


@pytest.mark.parametrize(
    ("warm_month", "jobs", "each"),
    [
        pytest.param(140.0, 0.0, math.inf, id="without jobs no price is right"),
        pytest.param(30.0, 1000.0, 0.0, id="a warm worker that saves money costs nothing"),
    ],
)
def test_a_warm_worker_is_paid_by_jobs(warm_month: float, jobs: float, each: float) -> None:
    verdict = judge_latency(
        month=40.0,
        warm_month=warm_month,
        jobs=jobs,
        promise=60.0,
        boot=90.0,
        wait=70.0,
        warm_wait=4.0,
    )

    assert verdict.break_even == each


def test_a_warm_worker_that_starts_nothing_sooner_is_no_advice() -> None:
    verdict = judge_latency(
        month=40.0,
        warm_month=140.0,
        jobs=1000.0,
        promise=60.0,
        boot=90.0,
        wait=3600.0,
        warm_wait=3600.0,
    )

    assert (verdict.answer, verdict.break_even) == (Answer.NO, math.inf)


def beside_one_machine(month: float, work_month: float, share: float) -> Verdict:
    """Judge a load beside one machine that costs 200 USD a month."""
    return judge_constant_load(
        month=month,
        work_month=work_month,
        reserved_month=200.0,
        machine="g4dn.xlarge",
        share=share,
        machines=1,
    )


@pytest.mark.parametrize(
    ("month", "share", "answer", "tips"),
    [
        pytest.param(100.0, 0.40, Answer.NO, 0.80, id="two fifths busy"),
        pytest.param(225.0, 0.90, Answer.YES, 0.80, id="nine tenths busy"),
        pytest.param(20.0, 0.40, Answer.NO, math.inf, id="never dear enough"),
        pytest.param(0.0, 0.0, Answer.NO, math.inf, id="no work"),
        pytest.param(0.0, 0.4, Answer.NO, math.inf, id="work for nothing"),
        pytest.param(80.0, 0.40, Answer.NO, 1.0, id="from all hours on"),
        pytest.param(200.0, 0.50, Answer.NO, 0.50, id="just as dear"),
    ],
)
def test_constant_load_is_cheaper_reserved(
    month: float, share: float, answer: Answer, tips: float
) -> None:
    verdict = beside_one_machine(month, month, share)

    assert verdict.answer is answer
    assert verdict.break_even == pytest.approx(tips)
    assert verdict.reason.about["share"] == share


@pytest.mark.parametrize(
    ("month", "work_month", "share", "answer", "tips"),
    [
        pytest.param(1.0, 0.18, 0.001, Answer.NO, math.inf, id="boots of short jobs, far apart"),
        pytest.param(100.0, 96.0, 0.4, Answer.NO, 0.8333, id="little beside the work"),
        pytest.param(250.0, 100.0, 0.4, Answer.YES, 0.32, id="more beside the work than work"),
    ],
)
def test_boots_and_idle_time_do_not_grow_with_the_load(
    month: float, work_month: float, share: float, answer: Answer, tips: float
) -> None:
    verdict = beside_one_machine(month, work_month, share)

    assert verdict.answer is answer
    assert verdict.break_even == pytest.approx(tips, rel=1e-3)


@pytest.mark.parametrize(
    ("month", "reserved", "tips", "break_even"),
    [
        pytest.param(100.0, 200.0, 0.8, 0.8, id="four fifths"),
        pytest.param(100.0, 300.0, 1.2, math.inf, id="dearer than all hours"),
        pytest.param(100.0, 250.0, 1.0, 1.0, id="as dear as all hours"),
        pytest.param(0.2, 0.3, 0.6, 0.6, id="cents"),
    ],
)
def test_tells_at_which_load_a_reserved_machine_pays(
    month: float, reserved: float, tips: float, break_even: float
) -> None:
    verdict = judge_constant_load(
        month=month,
        work_month=month,
        reserved_month=reserved,
        machine="g4dn.xlarge",
        share=0.4,
        machines=3,
    )

    assert verdict.break_even == pytest.approx(break_even)
    assert verdict.reason.about == pytest.approx(
        {"machines": 3, "machine": "g4dn.xlarge", "month": reserved, "share": 0.4, "tips": tips}
    )


@pytest.mark.parametrize(
    ("by_hand", "answer", "tips"),
    [
        pytest.param(60.0, Answer.YES, 5000.0, id="saves ten dollars"),
        pytest.param(150.0, Answer.NO, 500.0, id="saves a hundred"),
        pytest.param(100.0, Answer.NO, 1000.0, id="saves just enough"),
        pytest.param(50.5, Answer.YES, 100_000.0, id="saves half a dollar"),
        pytest.param(50.0, Answer.YES, math.inf, id="saves nothing"),
        pytest.param(40.0, Answer.YES, math.inf, id="costs more"),
    ],
)
def test_a_bill_that_saves_less_than_fifty_dollars_is_too_small(
    by_hand: float, answer: Answer, tips: float
) -> None:
    verdict = judge_small_bill(month=50.0, by_hand_month=by_hand, jobs=1000.0)

    assert verdict.answer is answer
    assert verdict.break_even == pytest.approx(tips)
    assert verdict.reason.about == pytest.approx(
        {"month": by_hand, "saving": by_hand - 50.0, "least": 50.0, "tips": tips, "jobs": 1000.0}
    )


def test_without_jobs_no_bill_is_large_enough() -> None:
    assert judge_small_bill(month=50.0, by_hand_month=40.0, jobs=0.0).break_even == math.inf


def test_every_case_has_its_name() -> None:
    cases = [
        judge_latency(
            month=1.0,
            warm_month=2.0,
            jobs=1.0,
            promise=60.0,
            boot=90.0,
            wait=70.0,
            warm_wait=4.0,
        ),
        judge_constant_load(
            month=1.0,
            work_month=1.0,
            reserved_month=2.0,
            machine="g4dn.xlarge",
            share=0.5,
            machines=1,
        ),
        judge_small_bill(month=1.0, by_hand_month=2.0, jobs=1.0),
        judge_long_items(longest=1.0, rate=0.1, boot=0.05, spot=0.2, on_demand=0.5),
        judge_interruptions(month=1.0, on_demand_month=2.0, interruptions=1.0, redone_hours=0.0),
    ]

    assert [verdict.reason.code for verdict in cases] == [
        ReasonCode.CASE_LATENCY,
        ReasonCode.CASE_CONSTANT_LOAD,
        ReasonCode.CASE_SMALL_BILL,
        ReasonCode.CASE_LONG_ITEMS,
        ReasonCode.CASE_NO_INTERRUPTION,
    ]


@pytest.mark.parametrize(
    ("longest", "rate", "spot", "answer", "tips"),
    [
        pytest.param(8.0, 0.5, 0.2, Answer.YES, 3.158, id="the worked example"),
        pytest.param(3.0, 0.5, 0.2, Answer.NO, 3.158, id="short enough"),
        pytest.param(0.0, 0.5, 0.2, Answer.NO, 3.158, id="all keep checkpoints"),
        pytest.param(8.0, 0.0, 0.2, Answer.NO, math.inf, id="never reclaimed"),
        pytest.param(0.1, 0.5, 0.6, Answer.YES, 0.0, id="spot is the dearer"),
    ],
)
def test_long_items_without_a_checkpoint(
    longest: float, rate: float, spot: float, answer: Answer, tips: float
) -> None:
    verdict = judge_long_items(longest=longest, rate=rate, boot=0.05, spot=spot, on_demand=0.5)

    assert verdict.answer is answer
    assert verdict.break_even == pytest.approx(tips, abs=1e-3)


@pytest.mark.parametrize(
    ("on_demand", "interruptions", "more", "each"),
    [
        pytest.param(130.0, 20.0, 80.0, 4.0, id="some"),
        pytest.param(130.0, 0.5, 80.0, 160.0, id="rare ones"),
        pytest.param(40.0, 20.0, 0.0, 0.0, id="spot is the dearer"),
        pytest.param(130.0, 0.0, 80.0, math.inf, id="none"),
    ],
)
def test_what_an_interruption_may_cost_is_the_users_to_judge(
    on_demand: float, interruptions: float, more: float, each: float
) -> None:
    verdict = judge_interruptions(
        month=50.0, on_demand_month=on_demand, interruptions=interruptions, redone_hours=1.5
    )

    assert (verdict.answer, verdict.break_even) == (Answer.JUDGE, each)
    assert verdict.reason.about == {
        "interruptions": interruptions,
        "redone_hours": 1.5,
        "month": on_demand,
        "more": more,
        "each": each,
    }


def test_a_gap_lasts_from_a_look_without_work_to_the_next_job() -> None:
    looks = [
        (0.0, False),
        (60.0, True),
        (120.0, False),
        (180.0, False),
        (240.0, True),
        (300.0, False),
    ]

    assert find_gaps(looks, [30.0, 200.0]) == [80.0]
    assert find_gaps(looks, [30.0, 200.0, 360.0]) == [80.0, 60.0]
    assert find_gaps([], [1.0]) == []


def test_a_timeout_covers_the_gaps_that_are_not_longer() -> None:
    gaps = [30.0, 600.0, 40.0, 90.0]

    assert (gap_share(gaps, 90.0).covered, gap_share(gaps, 89.0).covered) == (3, 2)
    assert gap_share(gaps, 90.0).share == 0.75
    assert gap_share([], 90.0).share == 0.0


@given(st.lists(st.floats(0.0, 1e5), max_size=40), st.floats(0.01, 1.0))
def test_a_quantile_covers_the_share_that_was_asked_for(gaps: list[float], share: float) -> None:
    timeout = gap_quantile(gaps, share)

    assert not gaps or gap_share(gaps, timeout).share >= share
    assert gaps or timeout == 0.0


HOUR = 3600.0


def test_long_jobs_are_told_with_what_they_would_cost_on_demand() -> None:
    found = find_long_jobs(
        [60.0, 2 * HOUR, 5 * HOUR, HOUR - 1],
        months=0.5,
        spot=0.2,
        on_demand=0.5,
        done_after=5.0 * HOUR,
    )

    assert found is not None
    assert (found.jobs, found.hours) == (4.0, 14.0)
    assert (found.longest, found.within) == (timedelta(hours=5), timedelta(hours=10))
    assert found.more_an_hour == pytest.approx(0.30)
    assert found.more_a_month == pytest.approx(4.20)


@pytest.mark.parametrize(
    ("seconds", "spot", "hours"),
    [
        pytest.param([HOUR - 1], 0.2, None, id="none is long"),
        pytest.param([], 0.2, None, id="no job"),
        pytest.param([HOUR], 0.2, 2, id="just long"),
        pytest.param([1.25 * HOUR], 0.2, 3, id="in whole hours"),
        pytest.param([84 * HOUR], 0.2, 168, id="as long as a deadline can be"),
        pytest.param([84 * HOUR + 1], 0.2, None, id="too long for any deadline"),
        pytest.param([2 * HOUR], 0.5, None, id="spot is no cheaper"),
    ],
)
def test_a_deadline_is_shown_where_waiting_for_spot_could_save(
    seconds: list[float], spot: float, hours: int | None
) -> None:
    found = find_long_jobs(seconds, months=1.0, spot=spot, on_demand=0.5, done_after=0.0)

    assert (found and found.within) == (hours and timedelta(hours=hours))


def test_no_deadline_is_shown_that_waiting_jobs_cannot_keep() -> None:
    # Two machines for many jobs of an hour: the last one is done after 13 h.
    found = find_long_jobs(
        [1.0 * HOUR] * 26, months=1.0, spot=0.2, on_demand=0.5, done_after=13.0 * HOUR
    )

    assert found is not None
    assert found.within == timedelta(hours=14)
