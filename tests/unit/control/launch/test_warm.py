"""Workers are kept warm as long as the policy says so, and no longer."""

from datetime import timedelta

from spindown.contract.decision import EndingRecord, Outcome
from spindown.control.policy_edit import edit_policy
from spindown.domain.policy import WarmSpan, Weekday
from spindown.domain.reason import Reason, ReasonCode
from spindown.error import Unreachable
from tests.builders import minutes
from tests.control import WORKLOAD, codes, pools, with_policy
from tests.failure import failing


def test_a_warm_worker_is_kept_without_any_work() -> None:
    world = with_policy(warm_workers=1)

    decision = world.tick()

    assert decision.outcome is Outcome.LAUNCHED
    assert len(world.workers()) == 1
    assert world.tick(minutes(1)).requests == ()


def test_workers_are_kept_warm_at_their_hours_and_no_longer() -> None:
    noon = timedelta(hours=12)
    span = WarmSpan(
        days=frozenset(Weekday), start=noon + minutes(10), end=noon + minutes(60), workers=2
    )
    world = with_policy(warm_schedule=(span,), idle_timeout=minutes(3))

    before = world.run(9)
    at_work = world.tick(minutes(1))
    for worker in world.workers():
        world.check_in(worker.instance_id)
    for _ in range(55):
        world.beat()
        world.tick(minutes(1))

    assert not any(d.requests for d in before)
    assert len(pools(at_work)) == 2
    assert at_work.sizing is not None
    assert at_work.sizing.reason == Reason(ReasonCode.KEPT_WARM, {"workers": 2})
    # Past the hour nobody renews their stay.
    assert all(
        w.warm_until is not None and w.warm_until <= world.now + minutes(1) for w in world.workers()
    )
    assert world.policy.warm_workers == 0


def test_a_warm_worker_ends_when_it_is_kept_no_longer() -> None:
    world = with_policy(warm_workers=1, idle_timeout=minutes(3))
    world.tick()
    (worker,) = world.workers()
    world.clock.advance(minutes(2))
    world.check_in(worker.instance_id)

    def until() -> timedelta:
        (found,) = world.workers()
        assert found.warm_until is not None
        return found.warm_until - world.now

    for _ in range(60):
        world.clock.advance(minutes(1))
        world.beat()
        assert world.tick().requests == ()
        assert until() == minutes(5)
        assert world.metric("IdleBeyondExpectation") == 0
    edit_policy(WORKLOAD, {"warm_workers": 0}, settings=world.settings, table=world.table)
    condemned: list[EndingRecord] = []
    for _ in range(13):
        world.clock.advance(minutes(1))
        world.beat()
        condemned += world.tick().condemned

    # Five minutes until the stay is over, three idle, two and one of grace.
    assert [e.reason for e in condemned] == [
        Reason(ReasonCode.IDLE_TOO_LONG, {"idle_seconds": 420.0})
    ]


def test_a_warm_worker_stays_while_ec2_is_silent_for_hours() -> None:
    world = with_policy(warm_workers=1, idle_timeout=minutes(3))
    world.tick()
    (worker,) = world.workers()
    world.clock.advance(minutes(2))
    world.check_in(worker.instance_id)
    world.interfere = failing(Unreachable("no answer"), "instances", "reclaimed", "terminate")

    for _ in range(120):
        decision = world.tick(minutes(1))
        world.beat()
        (worker,) = world.workers()
        assert worker.warm_until is not None
        assert worker.warm_until > world.now

    assert codes(decision) == [ReasonCode.NO_ANSWER]
