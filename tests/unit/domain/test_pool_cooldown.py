from datetime import timedelta

import pytest

from spindown.domain.policy import Policy
from spindown.domain.pool_cooldown import PoolCooldown, cool_down
from spindown.domain.reason import Reason, ReasonCode
from tests.builders import NOW, a_pool, minutes

_FULL = Reason(ReasonCode.POOL_REFUSED, {"refusal": "InsufficientInstanceCapacity"})
_INTERRUPTED = Reason(ReasonCode.POOL_INTERRUPTED, {})


def struck(
    times: int,
    *,
    reason: Reason = _INTERRUPTED,
    pause: timedelta = timedelta(0),
    policy: Policy | None = None,
) -> PoolCooldown:
    now, cooldown = NOW, None
    for _ in range(times):
        cooldown = cool_down(a_pool(), cooldown, reason=reason, now=now, policy=policy or Policy())
        now = cooldown.until + pause
    assert cooldown is not None
    return cooldown


@pytest.mark.parametrize(
    ("times", "minutes_long"), [(1, 3), (2, 6), (3, 12), (4, 24), (5, 30), (99, 30)]
)
def test_a_cooldown_after_a_boot_doubles_to_half_an_hour(times: int, minutes_long: float) -> None:
    before = NOW if times == 1 else struck(times - 1).until

    cooldown = struck(times)

    assert cooldown.until - before == minutes(minutes_long)
    assert cooldown.strikes == times


def test_a_pool_without_capacity_is_always_asked_as_soon() -> None:
    assert struck(9, reason=_FULL).until - struck(8, reason=_FULL).until == minutes(3)


@pytest.mark.parametrize(("lost", "next_minutes"), [(0, 3), (1, 6), (2, 12)])
def test_refusals_lengthen_no_cooldown_after_a_boot(lost: int, next_minutes: float) -> None:
    cooldown, now = None, NOW
    for reason in (*[_INTERRUPTED] * lost, *[_FULL] * 9, _INTERRUPTED):
        cooldown = cool_down(a_pool(), cooldown, reason=reason, now=now, policy=Policy())
        begun_at, now = now, cooldown.until

    assert now - begun_at == minutes(next_minutes)


def test_a_forbidden_pool_cools_down_longer_and_counts_apart() -> None:
    forbidden = Reason(ReasonCode.POOL_FORBIDDEN, {"refusal": "OptInRequired"})
    cooldown, now, waits = struck(4), NOW + minutes(90), []
    # The policy says how long a pool without capacity cools down, and nothing of this.
    policy = Policy(pool_cooldown_at_most=timedelta(hours=2))
    for reason in (forbidden, forbidden, forbidden, forbidden, _FULL):
        cooldown = cool_down(a_pool(), cooldown, reason=reason, now=now, policy=policy)
        waits.append((cooldown.until - now, cooldown.strikes))
        now = cooldown.until

    lengths = [(30, 1), (60, 2), (120, 3), (120, 4), (3, 0)]
    assert waits == [(minutes(length), strikes) for length, strikes in lengths]


def test_a_pool_without_strikes_for_long_starts_anew() -> None:
    assert struck(3, pause=minutes(31)).strikes == 1
    assert struck(3, pause=minutes(30)).strikes == 3


def test_a_cooldown_says_which_pool_and_why() -> None:
    cooldown = struck(1, reason=_FULL)

    assert (cooldown.pool, cooldown.reason) == (a_pool(), _FULL)


def test_a_longer_first_cooldown_than_the_limit_still_holds() -> None:
    policy = Policy(pool_cooldown=minutes(60), pool_cooldown_at_most=minutes(30))

    assert struck(1, policy=policy).until == NOW + minutes(60)
