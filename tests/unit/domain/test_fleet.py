from datetime import timedelta

import pytest

from spindown.domain.fleet import RequeuedJob
from tests.builders import NOW, a_lease, a_pool, a_worker, minutes


def test_a_worker_knows_its_pool() -> None:
    assert a_worker().pool == a_pool()
    assert str(a_pool()) == "g4dn.xlarge/us-west-2a/spot"


@pytest.mark.parametrize(
    ("items_done", "first_item", "after", "pace"),
    [
        pytest.param(10, 0, 60, 11.0, id="ten done and one in hand"),
        pytest.param(1, 0, 30, 4.0, id="one done and one in hand, in half an hour"),
        pytest.param(10, 4, 30, 14.0, id="what it began with was done by another"),
        pytest.param(0, 0, 60, None, id="none done yet"),
        pytest.param(4, 4, 60, None, id="none done since it was resumed"),
        pytest.param(10, 0, 0, None, id="in no time"),
        pytest.param(10, 0, -1, None, id="before it was claimed"),
    ],
)
def test_a_job_goes_on_at_the_pace_that_it_had_since_its_claim(
    items_done: int, first_item: int, after: float, pace: float | None
) -> None:
    lease = a_lease(first_item=first_item)

    assert lease.pace(items_done, NOW + minutes(after)) == pace


def test_a_job_that_is_put_down_is_remembered_as_it_is_then() -> None:
    lease = a_lease(items=600, items_done=20, sent_at=NOW - minutes(60))

    assert lease.requeued(30, NOW + minutes(60)) == RequeuedJob(
        job_id="job-1",
        sent_at=NOW - minutes(60),
        items=600,
        items_done=30,
        items_per_hour=31.0,
        at=NOW + minutes(60),
    )


@pytest.mark.parametrize(
    ("found_gone", "requeued"),
    [
        pytest.param(minutes(10), minutes(10), id="while its lease runs"),
        pytest.param(minutes(90), minutes(20), id="its lease had lapsed, and the job was nobody's"),
    ],
)
def test_a_job_is_left_behind_as_far_as_its_holder_has_told(
    found_gone: timedelta, requeued: timedelta
) -> None:
    lease = a_lease(
        claimed_at=NOW, deadline=NOW + minutes(20), sent_at=NOW, items=40, items_done=30
    )

    assert lease.left_behind(NOW + found_gone) == lease.requeued(30, NOW + requeued)
