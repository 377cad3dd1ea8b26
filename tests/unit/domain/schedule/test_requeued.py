"""Jobs that had started once wait for the price ladder; those that have not open it in time."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.schedule import Waiting, mark_requeued
from tests.builders import NOW, minutes
from tests.unit.domain.schedule.test_start_within import asked

#: (jobs, minutes that they have waited), oldest first, and which of them had started once.
_GROUPS = st.lists(
    st.tuples(st.integers(1, 20), st.integers(0, 15)).flatmap(
        lambda each: st.tuples(st.just(each[0]), st.just(each[1]), st.integers(0, each[0]))
    ),
    min_size=1,
    max_size=6,
).map(lambda groups: sorted(groups, key=lambda each: -each[1]))
_MINUTES = st.integers(0, 20)


@pytest.mark.parametrize(
    ("waiting", "opens_in"),
    [
        pytest.param([(1, 0, 1)], None, id="it has started already"),
        pytest.param([(2, 0, 1)], 7.5, id="one of the two has not"),
        pytest.param([(1, 5, 1), (1, 2)], 5.5, id="the newer of the two"),
        pytest.param([(1, 5), (1, 2, 1)], 2.5, id="the older of the two"),
        pytest.param([(3, 9, 3), (2, 1, 2)], None, id="none of five"),
    ],
)
def test_the_ladder_opens_in_time_for_jobs_not_yet_started(
    waiting: list[tuple[int, float, int]], opens_in: float | None
) -> None:
    found = asked(*waiting, headroom_slots=99).ladder_opens_at

    assert found == (None if opens_in is None else NOW + minutes(opens_in))


def test_a_slot_of_ours_is_for_a_job_that_has_not_started_yet() -> None:
    assert asked((2, 5.0, 1), free_in=(2.0,), headroom_slots=99).ladder_opens_at is None
    assert asked((2, 5.0), free_in=(5.5,), headroom_slots=99).ladder_opens_at == NOW + minutes(2.5)


@given(groups=_GROUPS, seats=st.integers(0, 60))
def test_a_started_job_changes_only_when_the_ladder_opens(
    groups: list[tuple[int, int, int]], seats: int
) -> None:
    known = asked(*groups, headroom_slots=seats)
    blind = asked(*((jobs, waited) for jobs, waited, _ in groups), headroom_slots=seats)

    assert blind.ladder_opens_at is not None
    assert known.ladder_opens_at is None or known.ladder_opens_at >= blind.ladder_opens_at
    assert (known.slots, known.late_jobs, known.launch_by) == (
        blind.slots,
        blind.late_jobs,
        blind.launch_by,
    )
    assert (known.why, known.side_by_side, known.oldest_since) == (
        blind.why,
        blind.side_by_side,
        blind.oldest_since,
    )


def _waiting(*groups: tuple[int, float]) -> list[Waiting]:
    return [Waiting(since=NOW - minutes(m), jobs=n) for n, m in groups]


def _ago(*waited: float) -> list[datetime]:
    return [NOW - minutes(each) for each in waited]


@pytest.mark.parametrize(
    ("waiting", "dates", "requeued"),
    [
        pytest.param(_waiting((2, 5), (3, 2)), _ago(), [0, 0], id="none"),
        pytest.param(_waiting((2, 5), (3, 2)), _ago(3.5), [0, 1], id="a tick saw it a minute late"),
        pytest.param(_waiting((2, 5), (3, 2)), _ago(6, 5), [2, 0], id="of the first since then"),
        pytest.param(_waiting((2, 5), (3, 2)), _ago(6, 6, 6), [2, 1], id="that has any left"),
        pytest.param(_waiting((2, 5), (3, 2)), _ago(1), [0, 1], id="later than the last look"),
        pytest.param(_waiting((2, 5), (1, 2)), _ago(1, 1), [1, 1], id="or of those before"),
        pytest.param(_waiting((1, 5)), _ago(9, 8, 7), [1], id="more than wait"),
        pytest.param([], _ago(1), [], id="nothing waits"),
    ],
)
def test_a_requeued_job_is_one_of_the_first_seen_since(
    waiting: list[Waiting], dates: list[datetime], requeued: list[int]
) -> None:
    assert [group.requeued for group in mark_requeued(waiting, dates)] == requeued


@given(groups=_GROUPS, waited=st.lists(_MINUTES, max_size=30))
def test_each_is_marked_once_as_far_as_that_many_wait(
    groups: list[tuple[int, int, int]], waited: list[int]
) -> None:
    waiting = [Waiting(since=NOW - timedelta(minutes=m), jobs=n) for n, m, _ in groups]

    found = mark_requeued(waiting, _ago(*waited))

    assert [(each.since, each.jobs) for each in found] == [(x.since, x.jobs) for x in waiting]
    assert all(0 <= each.requeued <= each.jobs for each in found)
    marked = sum(each.requeued for each in found)
    assert marked == min(len(waited), sum(each.jobs for each in waiting))
