"""What outstays its end is ended, whatever its row says; what ends in time never is."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.lease import RELEASE_AFTER
from spindown.domain.policy import Policy, WhenSpent
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.termination import DueKind, ends_within, find_due, outstayed
from spindown.domain.worker_lifecycle import POWER_OFF, STOP_GRACE_AT_MOST, hang_grace
from tests.builders import NOW, minutes
from tests.unit.domain.termination.fleet import Box

policies = st.builds(
    Policy,
    when_spent=st.sampled_from(WhenSpent),
    tick=st.sampled_from([minutes(1), minutes(5)]),
    heartbeat_interval=st.integers(10, 300).map(lambda s: timedelta(seconds=s)),
    max_lifetime=st.integers(10, 120).map(minutes),
    lifetime_grace=st.integers(0, 15).map(minutes),
)


def ticks_until_ended(
    policy: Policy,
    *,
    tells: list[bool],
    says_drained: list[bool],
    until: timedelta,
    surplus: Sequence[bool] = (False,),
) -> tuple[timedelta | None, dict[str, datetime]]:
    """Tick while an instance runs, whose row says it one time and not the next; None: it ran on."""
    box, age = Box(launched_at=NOW), timedelta(0)
    due: dict[str, datetime] = {}
    number = 0
    while age <= until:
        due = find_due(
            [box],
            spent={box.instance_id} if tells[number % len(tells)] else set(),
            surplus={box.instance_id} if surplus[number % len(surplus)] else set(),
            drained={box.instance_id} if says_drained[number % len(says_drained)] else set(),
            known=due,
            policy=policy,
            now=NOW + age,
        )
        if outstayed(due, policy, NOW + age):
            return age, due
        age += policy.tick
        number += 1
    return None, due


@given(policy=policies, tells=st.lists(st.booleans(), min_size=1, max_size=5))
def test_no_instance_outlives_its_lifetime_by_more(policy: Policy, tells: list[bool]) -> None:
    most = policy.max_lifetime + policy.lifetime_grace + ends_within(policy) + 2 * policy.tick

    ended, _ = ticks_until_ended(policy, tells=tells, says_drained=[False], until=most)

    assert ended is not None


@given(policy=policies, says=st.lists(st.booleans(), min_size=1, max_size=5))
def test_who_is_told_to_stop_is_gone_in_time(policy: Policy, says: list[bool]) -> None:
    policy = Policy(tick=policy.tick, when_spent=WhenSpent.STOP)
    tells = [True, *says]

    ended, _ = ticks_until_ended(policy, tells=tells, says_drained=[False], until=minutes(200))

    assert ended is not None
    assert ends_within(policy) < ended <= ends_within(policy) + policy.tick


@given(policy=policies, says=st.lists(st.booleans(), min_size=1, max_size=5))
def test_who_finishes_its_jobs_has_time_for_them(policy: Policy, says: list[bool]) -> None:
    policy = Policy(tick=policy.tick, when_spent=WhenSpent.FINISH_JOBS)
    most = RELEASE_AFTER + ends_within(policy)

    ended, due = ticks_until_ended(
        policy, tells=[True, *says], says_drained=[False], until=most + policy.tick
    )

    assert ended is not None
    assert most < ended
    (reason,) = outstayed(due, policy, NOW + ended).values()
    assert reason.about["due"] == DueKind.SPENT


@given(policy=policies, says=st.lists(st.booleans(), min_size=1, max_size=5))
def test_a_surplus_worker_has_time_for_its_jobs(policy: Policy, says: list[bool]) -> None:
    policy = Policy(tick=policy.tick, when_spent=policy.when_spent)
    most = RELEASE_AFTER + ends_within(policy)

    ended, due = ticks_until_ended(
        policy, tells=[False], says_drained=[False], until=most + policy.tick, surplus=[True, *says]
    )

    assert ended is not None
    assert most < ended
    (reason,) = outstayed(due, policy, NOW + ended).values()
    assert reason.about["due"] == DueKind.SURPLUS


def test_who_takes_jobs_until_none_waits_is_not_ended() -> None:
    policy = Policy(when_spent=WhenSpent.STOP_LAUNCHES)

    ended, _ = ticks_until_ended(policy, tells=[True], says_drained=[False], until=minutes(1400))

    assert ended is None


def test_who_says_it_has_ended_and_runs_on_is_ended() -> None:
    policy = Policy()

    ended, due = ticks_until_ended(
        policy, tells=[False], says_drained=[True, False, False], until=minutes(60)
    )

    assert ended is not None
    (reason,) = outstayed(due, policy, NOW + ended).values()
    assert reason.code is ReasonCode.OUTSTAYED
    assert reason.about["due"] == DueKind.DRAINED


def test_an_instance_is_due_once_its_grace_is_over() -> None:
    policy = Policy(max_lifetime=minutes(60), lifetime_grace=minutes(15))
    boxes = [
        Box(instance_id="i-gone", state="terminated", launched_at=NOW - minutes(99)),
        Box(instance_id="i-young", launched_at=NOW - minutes(75)),
        Box(instance_id="i-old", launched_at=NOW - minutes(75) - timedelta(seconds=1)),
    ]

    due = find_due(boxes, spent=(), surplus=(), drained=(), known={}, policy=policy, now=NOW)

    assert due == {"old#i-old": NOW}


def test_the_reason_of_an_end_tells_since_when_it_was_due() -> None:
    """Told after a tick, heard after a heartbeat, put back, off, and three ticks: 7.83 min."""
    policy = Policy(tick=minutes(1), heartbeat_interval=minutes(1))
    seconds = 470.0
    due = {"old#i-1": NOW - timedelta(seconds=seconds)}

    assert outstayed(due, policy, NOW) == {}
    assert outstayed(due, policy, NOW + timedelta(seconds=1)) == {
        "i-1": Reason(ReasonCode.OUTSTAYED, {"due": "old", "seconds": seconds + 1})
    }


@given(policy=policies)
def test_an_honest_worker_has_ended_before(policy: Policy) -> None:
    """It hears at a heartbeat after the tick, puts back, powers off."""
    honest = policy.heartbeat_interval + hang_grace(STOP_GRACE_AT_MOST) + POWER_OFF
    due = {f"{kind}#i-1": NOW for kind in DueKind}

    assert not outstayed(due, policy, NOW + honest + 2 * policy.tick)


def test_what_is_gone_is_forgotten() -> None:
    known = {f"{kind}#i-1": NOW for kind in DueKind}

    assert not find_due(
        [Box(state="shutting-down")],
        spent=(),
        surplus=(),
        drained=(),
        known=known,
        policy=Policy(),
        now=NOW,
    )
