from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.fleet import LaunchState, Worker, WorkerState
from spindown.domain.learning import Knowledge
from spindown.domain.policy import Policy
from spindown.domain.reaping import (
    NO_ROOM,
    OTHER_CODE,
    Condemnation,
    Ending,
    Reaping,
    has_left_work,
    reap,
    watch_from,
)
from spindown.domain.warm import kept_warm_of
from tests.builders import NOW, a_booting_worker, a_launch, a_lease, a_worker, minutes

POLICY = Policy(idle_timeout=minutes(10), scale_down_delay=minutes(2), tick=minutes(1))


@dataclass(frozen=True, kw_only=True)
class Box:
    """An instance as EC2 describes it."""

    instance_id: str = "i-1"
    state: str = "running"
    launched_at: datetime = NOW - minutes(30)
    state_reason: str = ""


def reaped(*workers: Worker, instances: Sequence[Box] | None = None, **changes: Any) -> Reaping:
    running = [Box(instance_id=w.instance_id, launched_at=w.launched_at) for w in workers]
    return reap(
        **{
            "workers": workers,
            "instances": running if instances is None else instances,
            "policy": POLICY,
            "knowledge": Knowledge(),
            "now": NOW,
            **changes,
        }
    )


def condemned(found: Reaping) -> list[str]:
    return [each.instance_id for each in found.condemn]


def busy(instance_id: str = "i-1", **changes: Any) -> Worker:
    return a_worker(instance_id, state=WorkerState.BUSY, busy_slots=1, **changes)


@pytest.mark.parametrize(
    ("worker", "reason"),
    [
        pytest.param(a_worker(idle_since=NOW), None, id="idle for no time"),
        pytest.param(busy(), None, id="busy"),
        pytest.param(a_booting_worker(age=minutes(10)), None, id="may still check in"),
        pytest.param(
            a_booting_worker(age=minutes(10.1)),
            "never checked in within 10 min",
            id="never checked in",
        ),
        pytest.param(busy(heartbeat_at=NOW - minutes(10)), None, id="silent for a while"),
        pytest.param(
            busy(heartbeat_at=NOW - minutes(11)), "no heartbeat for 11 min", id="stale while busy"
        ),
        pytest.param(
            a_worker(heartbeat_at=NOW - minutes(11)),
            "no heartbeat for 11 min",
            id="stale while idle",
        ),
        pytest.param(
            a_worker(heartbeat_at=None, checked_in_at=NOW - minutes(11)),
            "no heartbeat for 11 min",
            id="stale since its check-in",
        ),
        pytest.param(a_worker(idle_since=NOW - minutes(13)), None, id="within its grace"),
        pytest.param(
            a_worker(idle_since=NOW - minutes(14)),
            "idle for 14 min, beyond its timeout and grace",
            id="idle for too long",
        ),
        pytest.param(
            a_worker(launched_at=NOW - timedelta(hours=24, minutes=15)),
            None,
            id="old, in its grace",
        ),
        pytest.param(
            a_worker(launched_at=NOW - timedelta(hours=24, minutes=16)),
            "older than its lifetime and grace (1456 min)",
            id="too old",
        ),
        pytest.param(
            a_worker(state=WorkerState.DRAINED, heartbeat_at=NOW - minutes(5)), None, id="drained"
        ),
        pytest.param(
            a_worker(state=WorkerState.DRAINED, heartbeat_at=NOW - minutes(6)),
            "drained, but never powered off",
            id="drained and still there",
        ),
    ],
)
def test_ends_only_what_breaks_its_own_contract(worker: Worker, reason: str | None) -> None:
    found = reaped(worker)

    assert [each.reason for each in found.condemn] == ([] if reason is None else [reason])
    assert found.held_back is None


def test_a_launch_that_never_came_up_is_marked_as_such() -> None:
    (found,) = reaped(a_booting_worker(age=minutes(11))).condemn

    assert found == Condemnation(
        instance_id="i-1", reason="never checked in within 10 min", never_checked_in=True
    )


def test_slow_boots_earn_more_time_to_check_in() -> None:
    worker = a_booting_worker(age=minutes(29))

    assert not reaped(worker, knowledge=Knowledge(boots=(900.0,))).condemn
    assert reaped(worker, knowledge=Knowledge(boots=(800.0,))).condemn


def test_a_lease_that_was_just_extended_is_a_sign_of_life() -> None:
    worker = busy(heartbeat_at=NOW - minutes(60))

    assert not reaped(worker, leases=[a_lease()]).condemn
    assert reaped(worker, leases=[a_lease(deadline=NOW)]).condemn


def test_a_busy_worker_past_its_lifetime_is_only_reported() -> None:
    found = reaped(busy(launched_at=NOW - timedelta(hours=48)))

    assert not found.condemn
    assert found.overdue == ("i-1",)


def stale(count: int, start: int = 0) -> list[Worker]:
    return [
        busy(f"i-s{n:02d}", heartbeat_at=NOW - minutes(60 - n)) for n in range(start, start + count)
    ]


def fresh(count: int) -> list[Worker]:
    return [busy(f"i-f{n:02d}") for n in range(count)]


@pytest.mark.parametrize(
    ("stale_ones", "others", "ended", "held"),
    [
        pytest.param(1, 0, 1, False, id="a fleet of one"),
        pytest.param(2, 0, 2, False, id="two are no crowd"),
        pytest.param(3, 0, 0, True, id="all of three: then it is us"),
        pytest.param(3, 2, 0, True, id="most of five"),
        pytest.param(3, 3, 3, False, id="half is not most"),
        pytest.param(5, 20, 5, False, id="five a tick"),
        pytest.param(8, 20, 5, True, id="no more than five a tick"),
    ],
)
def test_stale_workers_are_ended_a_few_at_a_time(
    stale_ones: int, others: int, ended: int, held: bool
) -> None:
    found = reaped(*stale(stale_ones), *fresh(others))

    assert len(found.condemn) == ended
    assert (found.held_back is not None) is held


@pytest.mark.parametrize("fleet", [1, 2, 5])
@pytest.mark.parametrize(
    ("silent_for", "watched_for", "ends"),
    [
        pytest.param(11, 11, True, id="the ledger was there all the time"),
        pytest.param(60, 11, True, id="it was there for long enough since"),
        pytest.param(60, 10, False, id="it might report any moment"),
        pytest.param(60, 0, False, id="the first tick after an outage"),
        pytest.param(10, 60, False, id="not silent for long"),
    ],
)
def test_silence_counts_only_while_ticks_reach_the_ledger(
    fleet: int, silent_for: int, watched_for: int, ends: bool
) -> None:
    silent = busy("i-silent", heartbeat_at=NOW - minutes(silent_for))
    found = reaped(silent, *fresh(fleet - 1), watched_since=NOW - minutes(watched_for))

    assert condemned(found) == (["i-silent"] if ends else [])
    assert found.held_back is None
    assert (found.doubt is not None) is (silent_for > 10 and not ends)


def test_after_an_outage_age_alone_still_ends_a_silent_worker() -> None:
    age = POLICY.max_lifetime + POLICY.lifetime_grace + minutes(1)
    old = busy(launched_at=NOW - age, heartbeat_at=NOW - minutes(60))

    found = reaped(old, watched_since=NOW)

    assert (condemned(found), found.doubt) == (["i-1"], None)


@pytest.mark.parametrize(
    ("tick", "stale_after", "last_tick", "breaks"),
    [
        pytest.param(1, 10, 1, False, id="a tick ago"),
        pytest.param(1, 10, 3.3, False, id="two ticks missed"),
        pytest.param(1, 10, 3.4, True, id="three missed"),
        pytest.param(5, 10, 7.5, False, id="a slow tick that comes late"),
        pytest.param(5, 10, 7.6, True, id="one slow tick missed"),
        pytest.param(1, 10, None, True, id="the first tick of all"),
    ],
)
def test_a_watch_begins_anew_after_a_break(
    tick: float, stale_after: float, last_tick: float | None, breaks: bool
) -> None:
    policy = replace(POLICY, tick=minutes(tick), heartbeat_stale_after=minutes(stale_after))
    before = NOW - minutes(90)

    found = watch_from(before, None if last_tick is None else NOW - minutes(last_tick), policy, NOW)

    assert found == (NOW if breaks else before)
    assert watch_from(None, NOW, policy, NOW) == NOW


def test_those_who_were_silent_longest_are_ended_first() -> None:
    assert condemned(reaped(*stale(8), *fresh(20))) == [f"i-s{n:02d}" for n in range(5)]


def test_other_breaches_are_ended_even_when_most_are_stale() -> None:
    never = a_booting_worker("i-never", age=minutes(20))

    found = reaped(*stale(3), never)

    assert condemned(found) == ["i-never"]


def test_ec2_is_let_to_take_what_it_announced() -> None:
    leaving: dict[str, Any] = {
        "interrupted_at": NOW + minutes(1),
        "heartbeat_at": NOW - minutes(60),
    }

    assert not reaped(a_worker(**leaving)).condemn
    late = leaving | {"interrupted_at": NOW - minutes(6)}
    assert condemned(reaped(a_worker(**late))) == ["i-1"]
    assert not reaped(a_worker(**leaving | {"interrupted_at": NOW - minutes(5)})).condemn


def test_one_that_is_let_go_hides_no_other() -> None:
    leaving = a_worker("i-1", interrupted_at=NOW, idle_since=NOW - minutes(60))
    idle = a_worker("i-2", idle_since=NOW - minutes(60), heartbeat_at=NOW)

    assert condemned(reaped(leaving, idle)) == ["i-2"]


def test_a_learned_idle_timeout_is_kept_to() -> None:
    learned = Knowledge(gaps=(600.0,) * 9, boots=(900.0,))
    policy = replace(POLICY, idle_timeout=None)

    def found(idle: float) -> list[str]:
        worker = a_worker(idle_since=NOW - minutes(idle), heartbeat_at=NOW)
        return condemned(reaped(worker, policy=policy, knowledge=learned))

    # 10 min learned, 2 min of grace, a tick.
    assert (found(12.9), found(13.1)) == ([], ["i-1"])


def test_past_their_lifetime_silent_workers_are_ended_though_all_are_silent() -> None:
    silent = {"heartbeat_at": NOW - minutes(30), "checked_in_at": NOW - timedelta(hours=25)}
    age = POLICY.max_lifetime + POLICY.lifetime_grace
    old = [busy(f"i-{n}", launched_at=NOW - age - minutes(1), **silent) for n in range(3)]
    young = busy("i-3", launched_at=NOW - age + minutes(1), **silent)

    found = reaped(*old, young)

    assert sorted(condemned(found)) == ["i-0", "i-1", "i-2"]
    assert found.held_back is not None


def test_a_drained_worker_that_goes_on_saying_that_it_lives_is_ended_at_its_lifetime() -> None:
    age = POLICY.max_lifetime + POLICY.lifetime_grace
    drained = a_worker(state=WorkerState.DRAINED, heartbeat_at=NOW, launched_at=NOW - age)

    assert condemned(reaped(drained)) == []
    assert condemned(reaped(replace(drained, launched_at=NOW - age - minutes(1)))) == ["i-1"]


def test_warm_workers_are_not_ended_for_being_idle() -> None:
    idle = [
        a_worker(f"i-{n}", idle_since=NOW - minutes(60), launched_at=NOW - minutes(90 - n))
        for n in range(3)
    ]

    found = reaped(*idle, policy=replace(POLICY, warm_workers=2))

    assert condemned(found) == ["i-0"]


def test_a_condemned_worker_is_terminated_until_ec2_says_that_it_is_gone() -> None:
    worker = a_worker(state=WorkerState.CONDEMNED)

    assert reaped(worker).terminate == ("i-1",)
    assert reaped(worker, instances=[Box(state="stopped")]).terminate == ("i-1",)
    gone = reaped(worker, instances=[Box(state="shutting-down")])
    assert gone.terminate == ()
    assert [each.instance_id for each in gone.ended] == ["i-1"]


@pytest.mark.parametrize(
    ("worker", "reason", "reclaimed"),
    [
        pytest.param(a_worker(), "Server.SpotInstanceTermination", True, id="without notice"),
        pytest.param(a_worker(interrupted_at=NOW), "", True, id="after a notice"),
        pytest.param(
            a_worker(interrupted_at=NOW),
            "Client.InstanceInitiatedShutdown",
            False,
            id="powered off after a notice",
        ),
        pytest.param(a_worker(), "Client.InstanceInitiatedShutdown", False, id="powered off"),
        pytest.param(a_worker(), "Client.UserInitiatedShutdown", False, id="terminated"),
    ],
)
def test_tells_a_reclaim_from_an_end_of_ours(worker: Worker, reason: str, reclaimed: bool) -> None:
    box = Box(state="terminated", state_reason=reason)

    (found,) = reaped(worker, instances=[box]).ended

    assert found == Ending(instance_id="i-1", reason=reason or "terminated", reclaimed=reclaimed)


@pytest.mark.parametrize(
    ("changes", "waiting_for", "expected"),
    [
        pytest.param({}, 10, True, id="work waited all the time"),
        pytest.param({}, 5, False, id="what waits now came later or was worked on since"),
        pytest.param({}, None, False, id="nothing waits"),
        pytest.param({"state": WorkerState.IDLE}, 10, False, id="it has not ended"),
        pytest.param({"checked_in_at": None}, 10, False, id="it never came up"),
        pytest.param({"claimed_at": NOW}, 10, False, id="it had a job"),
        pytest.param({"interrupted_at": NOW}, 10, False, id="EC2 took it"),
        pytest.param({"rebalance_at": NOW}, 10, False, id="EC2 was about to take it"),
        pytest.param({"reason": OTHER_CODE}, 10, False, id="a deploy sent it away"),
        pytest.param({"reason": NO_ROOM}, 10, False, id="a drain sent it away"),
        pytest.param({"reason": "idle", "draining_at": NOW}, 10, True, id="it found no message"),
        pytest.param({"reason": "Client.UserInitiatedShutdown"}, 10, False, id="a person ended it"),
    ],
)
def test_a_worker_has_left_work_if_it_ended_without_a_job_though_one_waited(
    changes: dict[str, Any], waiting_for: int | None, expected: bool
) -> None:
    ended = a_worker(checked_in_at=NOW - minutes(8), state=WorkerState.ENDED)

    found = has_left_work(
        replace(ended, **changes), None if waiting_for is None else NOW - minutes(waiting_for)
    )

    assert found is expected


def test_a_row_that_ec2_does_not_know_is_lost_once_it_cannot_be_late() -> None:
    young = a_booting_worker("i-young", age=minutes(4))
    old = a_worker("i-old")
    ended = a_worker("i-ended", state=WorkerState.ENDED)

    found = reaped(young, old, ended, instances=[])

    assert found == Reaping(lost_rows=("i-old",))
    # Whatever comes before it in the list, and not a moment earlier.
    just = a_booting_worker("i-just", age=minutes(5))
    assert reaped(ended, old, just, instances=[]).lost_rows == ("i-old",)


def test_an_instance_that_no_row_knows_is_an_orphan() -> None:
    found = reaped(
        a_worker("i-ours"), instances=[Box(instance_id="i-ours"), Box(instance_id="i-x")]
    )

    assert found.orphans == ("i-x",)


@pytest.mark.parametrize(
    ("box", "launches"),
    [
        pytest.param(Box(launched_at=NOW - minutes(4)), [], id="its row may be on the way"),
        pytest.param(Box(launched_at=NOW - minutes(5)), [], id="its row may be just late"),
        pytest.param(
            Box(), [a_launch(intended_at=NOW - minutes(30))], id="an intent of the same instant"
        ),
        pytest.param(Box(state="terminated"), [], id="gone"),
        pytest.param(
            Box(), [a_launch(intended_at=NOW - minutes(31))], id="an open intent may adopt it"
        ),
        pytest.param(
            Box(),
            [a_launch(state=LaunchState.LAUNCHED, instance_ids=("i-1",))],
            id="a launch knows it",
        ),
    ],
)
def test_what_may_still_be_ours_is_no_orphan(box: Box, launches: list[Any]) -> None:
    assert reaped(instances=[box], launches=launches).orphans == ()


def test_an_intent_that_came_later_protects_nothing() -> None:
    assert reaped(instances=[Box()], launches=[a_launch()]).orphans == ("i-1",)


instants = st.integers(0, 3000).map(lambda m: NOW - minutes(m))
workers = st.builds(
    a_worker,
    st.from_regex(r"i-[0-9]{1,3}", fullmatch=True),
    state=st.sampled_from(WorkerState),
    launched_at=instants,
    checked_in_at=st.none() | instants,
    heartbeat_at=st.none() | instants,
    idle_since=st.none() | instants,
    interrupted_at=st.none() | instants,
)


@given(
    fleet=st.lists(workers, max_size=20, unique_by=lambda w: w.instance_id),
    gone=st.sets(st.integers(0, 19)),
    warm=st.integers(0, 3),
)
def test_a_worker_is_in_one_list_and_a_live_busy_one_in_none(
    fleet: list[Worker], gone: set[int], warm: int
) -> None:
    boxes = [
        Box(instance_id=w.instance_id, state="terminated" if n in gone else "running")
        for n, w in enumerate(fleet)
    ]
    policy = replace(POLICY, warm_workers=warm)

    found = reaped(*fleet, instances=boxes, policy=policy)

    listed = [
        *condemned(found),
        *found.terminate,
        *(each.instance_id for each in found.ended),
        *found.lost_rows,
        *found.overdue,
    ]
    assert len(listed) == len(set(listed))
    assert not found.orphans
    alive = {
        w.instance_id
        for w in fleet
        if w.state is WorkerState.BUSY
        and w.heartbeat_at is not None
        and NOW - w.heartbeat_at <= policy.heartbeat_stale_after
    }
    assert not alive & set(condemned(found))
    assert not alive & set(found.terminate)
    reasons = [each.reason for each in found.condemn]
    assert sum(r.startswith("no heartbeat") for r in reasons) <= 5


def test_a_worker_that_is_kept_warm_no_more_gets_its_grace_from_then_on() -> None:
    idle = a_worker(idle_since=NOW - minutes(300), warm_until=NOW - minutes(12))

    assert condemned(reaped(idle)) == []
    late = replace(idle, warm_until=NOW - minutes(14))
    assert condemned(reaped(late)) == ["i-1"]


def test_keeps_warm_the_youngest_of_those_that_are_up_and_take_jobs() -> None:
    def aged(name: str, age: float, **changes: Any) -> Worker:
        return a_worker(name, launched_at=NOW - minutes(age), **changes)

    fleet = [
        aged("old", 90),
        aged("young", 20),
        aged("booting", 1, state=WorkerState.BOOTING),
        aged("draining", 5, draining_at=NOW),
        aged("leaving", 6, interrupted_at=NOW),
        aged("at-risk", 7, rebalance_at=NOW),
        aged("drained", 8, state=WorkerState.DRAINED),
    ]

    kept = [kept_warm_of(fleet, replace(POLICY, warm_workers=n)) for n in range(4)]

    assert kept == [set(), {"young"}, {"young", "old"}, {"young", "old", "booting"}]
