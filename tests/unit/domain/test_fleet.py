from datetime import timedelta

import pytest

from spindown.domain.fleet import RequeuedJob, Unavailable, remember_unavailable
from spindown.domain.policy import Policy
from spindown.domain.reason import Reason, ReasonCode
from tests.builders import NOW, a_lease, a_pool, a_worker, minutes

_DRY = Reason(ReasonCode.POOL_REFUSED, {"refusal": "InsufficientInstanceCapacity"})


def struck(
    times: int, *, pause: timedelta = timedelta(0), policy: Policy | None = None
) -> Unavailable:
    now, memory = NOW, None
    for _ in range(times):
        memory = remember_unavailable(
            a_pool(), memory, reason=_DRY, now=now, policy=policy or Policy()
        )
        now = memory.until + pause
    assert memory is not None
    return memory


@pytest.mark.parametrize(
    ("times", "minutes_long"), [(1, 3), (2, 6), (3, 12), (4, 24), (5, 30), (99, 30)]
)
def test_the_memory_of_a_dry_pool_doubles_up_to_half_an_hour(
    times: int, minutes_long: float
) -> None:
    before = NOW if times == 1 else struck(times - 1).until

    memory = struck(times)

    assert memory.until - before == minutes(minutes_long)
    assert memory.strikes == times


def test_a_forbidden_pool_is_left_alone_longer_and_counts_apart() -> None:
    forbidden = Reason(ReasonCode.POOL_FORBIDDEN, {"refusal": "OptInRequired"})
    memory, now, waits = struck(4), NOW + minutes(90), []
    # The policy says how long capacity is remembered to be short, and nothing of this.
    policy = Policy(unavailable_at_most=timedelta(hours=2))
    for reason in (forbidden, forbidden, forbidden, forbidden, _DRY):
        memory = remember_unavailable(a_pool(), memory, reason=reason, now=now, policy=policy)
        waits.append((memory.until - now, memory.strikes))
        now = memory.until

    lengths = [(30, 1), (60, 2), (120, 3), (120, 4), (3, 1)]
    assert waits == [(minutes(length), strikes) for length, strikes in lengths]


def test_a_pool_that_was_left_alone_for_long_starts_anew() -> None:
    assert struck(3, pause=minutes(31)).strikes == 1
    assert struck(3, pause=minutes(30)).strikes == 3


def test_the_memory_of_a_pool_says_which_and_why() -> None:
    memory = struck(1)

    assert (memory.pool, memory.reason) == (a_pool(), _DRY)


def test_a_longer_first_memory_than_the_limit_still_holds() -> None:
    policy = Policy(unavailable_for=minutes(60), unavailable_at_most=minutes(30))

    assert struck(1, policy=policy).until == NOW + minutes(60)


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
