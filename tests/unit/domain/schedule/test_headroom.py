"""What the ceilings leave room for, and what can wait where that is too little."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.learning import Knowledge, ThroughputRecord
from spindown.domain.reason import Reason, ReasonCode
from spindown.domain.schedule import StartPlan, headroom_slots
from tests.builders import NOW, a_start_plan, a_worker, minutes
from tests.unit.domain.schedule.demand import KNOWLEDGE, POLICY, present, sized
from tests.unit.domain.schedule.test_start_within import asked

_ROOMS = st.integers(0, 60)
_GROUPS = st.lists(st.tuples(st.integers(1, 40), st.integers(0, 15)), min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("changes", "slots"),
    [
        pytest.param({}, 47, id="50 workers at most, three are there"),
        pytest.param({"headroom_per_hour": 1.0, "price_per_hour": 0.23}, 4, id="dollars an hour"),
        pytest.param({"headroom_per_hour": 0.1, "price_per_hour": 0.23}, 0, id="not even one"),
        pytest.param({"headroom_per_hour": 99.0, "price_per_hour": 0.23}, 47, id="the tighter"),
        pytest.param({"headroom_per_hour": 350.0}, 3, id="nobody knows what one costs: 100"),
        pytest.param({"knowledge": replace(KNOWLEDGE, slots="4")}, 188, id="of four slots each"),
        pytest.param({"policy": replace(POLICY, max_workers=2)}, 0, id="more than are allowed"),
    ],
)
def test_the_ceilings_leave_room_for_some_slots(changes: dict[str, object], slots: int) -> None:
    fleet = [a_worker(f"i-{n}") for n in range(3)]
    given = {"knowledge": KNOWLEDGE, "policy": POLICY, **changes}

    assert headroom_slots(present(fleet), **given) == slots  # type: ignore[arg-type]


def test_a_worker_has_as_many_slots_as_those_that_ran_most() -> None:
    hours = {("T4", 1.0): 2.0, ("L4", 4.0): 3.0}
    known = {kind: ThroughputRecord(items=1.0, hours=each) for kind, each in hours.items()}
    policy = replace(POLICY, max_workers=5)

    assert headroom_slots(present(), knowledge=Knowledge(throughput=known), policy=policy) == 20


@pytest.mark.parametrize(
    ("jobs", "slots_left", "slots", "is_over_capacity"),
    [
        pytest.param(20, 4, 0, False, id="a tick later four slots are still enough"),
        pytest.param(20, 3, 4, True, id="three are not, and never will be"),
        pytest.param(40, 4, 7, True, id="so what there is room for is wanted now"),
        pytest.param(40, 0, 7, True, id="even if that is nothing"),
    ],
)
def test_where_more_is_needed_than_fits_nothing_waits(
    jobs: int, slots_left: int, slots: int, is_over_capacity: bool
) -> None:
    # 7.5 min are left to a slot: six jobs of 80 s each.
    found = asked((jobs, 0), headroom_slots=slots_left)

    assert (found.slots, found.why is ReasonCode.OVER_CAPACITY) == (slots, is_over_capacity)


def test_where_nothing_waits_nothing_is_crowded() -> None:
    found = asked(headroom_slots=0)

    assert (found.slots, found.why is ReasonCode.OVER_CAPACITY) == (0, False)


@pytest.mark.parametrize(
    ("jobs", "slots_left", "opens_in"),
    [
        pytest.param(20, 3, 7.5 - 6 * 80 / 60, id="the last of three slots' seventh jobs"),
        pytest.param(40, 4, 0.0, id="too late already"),
        pytest.param(1, 0, 7.5, id="no room: 10 min less 90 s of boot and a tick"),
        pytest.param(1, 1, 7.5, id="room for one slot each"),
        pytest.param(20, 4, 7.5 - 4 * 80 / 60, id="room for the fewest: each has four jobs first"),
        pytest.param(20, 99, 7.5, id="room for more slots than jobs"),
    ],
)
def test_the_ladder_opens_a_tick_before_what_fits_would_be_late(
    jobs: int, slots_left: int, opens_in: float
) -> None:
    found = asked((jobs, 0), headroom_slots=slots_left).ladder_opens_at

    assert found == NOW + minutes(max(opens_in, 0.0))


def test_the_ladder_opens_for_the_job_that_can_wait_least() -> None:
    # Five are due in 10 min; the oldest alone could wait until minute 4.5.
    oldest = asked((1, 3), (4, 0), headroom_slots=0)
    assert oldest.ladder_opens_at == NOW + minutes(7.5 - 4 * 80 / 60)
    assert asked((1, 6), (1, 0), headroom_slots=0).ladder_opens_at == NOW + minutes(1.5)
    assert asked((1, 60), headroom_slots=0).ladder_opens_at == NOW
    assert asked((1, 5), free_in=(2.0,), headroom_slots=0).ladder_opens_at is None
    assert asked(headroom_slots=0).ladder_opens_at is None


@given(groups=_GROUPS, narrow=_ROOMS, more=_ROOMS)
def test_less_room_never_waits_longer(
    groups: list[tuple[int, int]], narrow: int, more: int
) -> None:
    waiting = sorted(groups, key=lambda each: -each[1])
    tight, wide = (
        asked(*waiting, headroom_slots=narrow),
        asked(*waiting, headroom_slots=narrow + more),
    )

    assert tight.slots >= wide.slots
    assert tight.why is ReasonCode.OVER_CAPACITY or wide.why is not ReasonCode.OVER_CAPACITY
    assert tight.ladder_opens_at is not None
    assert wide.ladder_opens_at is not None
    assert tight.ladder_opens_at <= wide.ladder_opens_at


@given(groups=_GROUPS, seats=_ROOMS)
def test_the_ladder_never_opens_early_while_a_launch_is_held(
    groups: list[tuple[int, int]], seats: int
) -> None:
    found: StartPlan = asked(*sorted(groups, key=lambda each: -each[1]), headroom_slots=seats)

    assert found.ladder_opens_at is not None
    assert found.slots > 0 or found.ladder_opens_at > NOW


@given(groups=_GROUPS, seats=st.integers(1, 60))
def test_what_is_crowded_is_launched_whole(groups: list[tuple[int, int]], seats: int) -> None:
    found = asked(*sorted(groups, key=lambda each: -each[1]), headroom_slots=seats)

    assert (found.slots > seats) or found.why is not ReasonCode.OVER_CAPACITY


@pytest.mark.parametrize(("jobs", "slots"), [(20, 9), (3, 1), (1, 1)])
def test_says_how_many_slots_too_little_room_is_wanted_for(jobs: int, slots: int) -> None:
    crowd = a_start_plan(slots=slots, why=ReasonCode.OVER_CAPACITY, late_jobs=jobs)
    policy = replace(POLICY, scale_up_threshold=10**6)

    found = sized(jobs, policy=policy, start_plan=crowd)

    assert found.reason == Reason(ReasonCode.OVER_CAPACITY, {"jobs": jobs, "slots": slots})


def test_says_that_there_is_too_little_room() -> None:
    crowd = a_start_plan(slots=9, why=ReasonCode.OVER_CAPACITY, late_jobs=20)
    policy = replace(POLICY, scale_up_threshold=10**6, max_workers=2)

    found = sized(20, policy=policy, start_plan=crowd)

    assert found.reason.code is ReasonCode.CUT_BY_BOUND
    assert found.reason.about["why"] == ReasonCode.OVER_CAPACITY
    assert (found.allowed, found.hold_until, found.bound) == (2, None, "max_workers")
