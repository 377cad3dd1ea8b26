"""What is condemned: whatever breaks its own contract, and nothing else."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.fleet import Worker, WorkerState
from spindown.domain.learning import Knowledge
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.termination import Condemnation
from tests.builders import NOW, a_booting_worker, a_worker, minutes
from tests.unit.domain.termination.fleet import POLICY, Box, busy, condemned, reaped


@pytest.mark.parametrize(
    ("worker", "reason"),
    [
        pytest.param(a_worker(idle_since=NOW), None, id="idle for a moment"),
        pytest.param(busy(), None, id="busy"),
        pytest.param(a_booting_worker(age=minutes(10)), None, id="may still check in"),
        pytest.param(
            a_booting_worker(age=minutes(10.1)),
            ReasonCode.NEVER_CHECKED_IN,
            id="never checked in",
        ),
        pytest.param(busy(heartbeat_at=NOW - minutes(10)), None, id="silent for a while"),
        pytest.param(
            busy(heartbeat_at=NOW - minutes(11)), ReasonCode.SILENT, id="stale while busy"
        ),
        pytest.param(
            a_worker(heartbeat_at=NOW - minutes(11)),
            ReasonCode.SILENT,
            id="stale while idle",
        ),
        pytest.param(
            a_worker(heartbeat_at=None, checked_in_at=NOW - minutes(11)),
            ReasonCode.SILENT,
            id="stale since its check-in",
        ),
        pytest.param(
            busy(heartbeat_at=NOW - minutes(10.5)),
            ReasonCode.SILENT,
            id="stale by half a minute",
        ),
        pytest.param(a_worker(idle_since=NOW - minutes(13)), None, id="within its grace"),
        pytest.param(
            a_worker(idle_since=NOW - minutes(14)),
            ReasonCode.IDLE_TOO_LONG,
            id="idle for too long",
        ),
        pytest.param(
            a_worker(launched_at=NOW - timedelta(hours=24, minutes=15)),
            None,
            id="old, in its grace",
        ),
        pytest.param(
            a_worker(launched_at=NOW - timedelta(hours=24, minutes=16)),
            ReasonCode.TOO_OLD,
            id="too old",
        ),
        pytest.param(
            a_worker(state=WorkerState.DRAINED, heartbeat_at=NOW - minutes(5)), None, id="drained"
        ),
        pytest.param(
            a_worker(state=WorkerState.DRAINED, heartbeat_at=NOW - minutes(6)),
            ReasonCode.NEVER_POWERED_OFF,
            id="drained and still there",
        ),
    ],
)
def test_ends_only_what_breaks_its_own_contract(worker: Worker, reason: ReasonCode | None) -> None:
    found = reaped(worker)

    assert [each.reason.code for each in found.condemn] == ([] if reason is None else [reason])
    assert not found.held_back


def test_a_launch_that_never_came_up_is_marked_as_such() -> None:
    (found,) = reaped(a_booting_worker(age=minutes(11))).condemn

    assert found == Condemnation(
        instance_id="i-1",
        reason=Reason(ReasonCode.NEVER_CHECKED_IN, {"within_seconds": 600.0}),
        never_checked_in=True,
    )


@pytest.mark.parametrize(
    ("worker", "reason"),
    [
        pytest.param(
            busy(heartbeat_at=NOW - minutes(11)),
            Reason(ReasonCode.SILENT, {"silent_seconds": 660.0}),
            id="silent",
        ),
        pytest.param(
            a_worker(launched_at=NOW - timedelta(hours=25)),
            Reason(ReasonCode.TOO_OLD, {"age_seconds": 90_000.0}),
            id="too old",
        ),
        pytest.param(
            a_worker(idle_since=NOW - minutes(15)),
            Reason(ReasonCode.IDLE_TOO_LONG, {"idle_seconds": 900.0}),
            id="idle",
        ),
    ],
)
def test_a_reason_tells_for_how_long(worker: Worker, reason: Reason) -> None:
    assert reaped(worker).condemn == (Condemnation(instance_id="i-1", reason=reason),)


def test_slow_boots_earn_more_time_to_check_in() -> None:
    worker = a_booting_worker(age=minutes(29))

    assert not reaped(worker, knowledge=Knowledge(check_ins=(900.0,))).condemn
    assert reaped(worker, knowledge=Knowledge(check_ins=(800.0,))).condemn


def test_a_busy_worker_past_its_lifetime_is_only_reported() -> None:
    found = reaped(busy(launched_at=NOW - timedelta(hours=48)))

    assert not found.condemn
    assert found.overdue == ("i-1",)


@pytest.mark.parametrize(
    "worker",
    [
        pytest.param(busy(), id="it is young"),
        pytest.param(a_worker(launched_at=NOW - timedelta(hours=48)), id="it has no job"),
        pytest.param(
            busy(launched_at=NOW - timedelta(hours=48), heartbeat_at=NOW - timedelta(hours=9)),
            id="it is silent, and ended for that",
        ),
    ],
)
def test_only_who_works_past_its_lifetime_is_reported_for_it(worker: Worker) -> None:
    assert reaped(worker).overdue == ()


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
    # Jobs of an hour: a boot is worth 12 min.
    policy = replace(POLICY, idle_timeout=None, throughput_estimate=1.0, items_per_job_estimate=1.0)

    def found(idle: float) -> list[str]:
        worker = a_worker(idle_since=NOW - minutes(idle), heartbeat_at=NOW)
        return condemned(reaped(worker, policy=policy, knowledge=learned))

    # 10 min learned, 2 min of grace, a tick.
    assert (found(12.9), found(13.1)) == ([], ["i-1"])


def test_a_drained_worker_still_heard_ends_at_its_lifetime() -> None:
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
    reasons = [each.reason.code for each in found.condemn]
    assert reasons.count(ReasonCode.SILENT) <= 5


def test_a_worker_kept_warm_no_longer_has_its_grace_from_then() -> None:
    idle = a_worker(idle_since=NOW - minutes(300), warm_until=NOW - minutes(12))

    assert condemned(reaped(idle)) == []
    late = replace(idle, warm_until=NOW - minutes(14))
    assert condemned(reaped(late)) == ["i-1"]
