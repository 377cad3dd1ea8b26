from datetime import timedelta

import pytest

from spindown.domain.fleet import Unavailable, remember_unavailable
from spindown.domain.policy import Policy
from tests.builders import NOW, a_pool, a_worker, minutes


def struck(
    times: int, *, pause: timedelta = timedelta(0), policy: Policy | None = None
) -> Unavailable:
    now, memory = NOW, None
    for _ in range(times):
        memory = remember_unavailable(
            a_pool(), memory, reason="dry", now=now, policy=policy or Policy()
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


def test_a_pool_that_was_left_alone_for_long_starts_anew() -> None:
    assert struck(3, pause=minutes(31)).strikes == 1
    assert struck(3, pause=minutes(30)).strikes == 3


def test_the_memory_of_a_pool_says_which_and_why() -> None:
    memory = struck(1)

    assert (memory.pool, memory.reason) == (a_pool(), "dry")


def test_a_longer_first_memory_than_the_limit_still_holds() -> None:
    policy = Policy(unavailable_for=minutes(60), unavailable_at_most=minutes(30))

    assert struck(1, policy=policy).until == NOW + minutes(60)


def test_a_worker_knows_its_pool() -> None:
    assert a_worker().pool == a_pool()
    assert str(a_pool()) == "g4dn.xlarge/us-west-2a/spot"
