"""What a deadline asks for: to wait, to buy, to move, and never to be late for it."""

from datetime import timedelta
from itertools import chain, repeat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.deadline import (
    Course,
    Reserve,
    Unfinished,
    allows,
    hurry,
    judge,
    look_out,
    open_ladder,
    pays_at,
    reserve_of,
)
from spindown.domain.learning import Knowledge, PoolRecord, ThroughputRecord
from spindown.domain.offer import CapacityType
from spindown.domain.policy import Policy, Rung
from spindown.domain.ranking import Demand
from spindown.domain.sizing import Patience
from tests.builders import NOW, ON_DEMAND, SPOT, a_demand, a_policy, a_pool, minutes

HOUR = timedelta(hours=1)
#: A change takes 10 minutes; a loss every 10 hours.
RESERVE = Reserve(change=minutes(10), rate=0.1)


def a_job(slack: float, *, work: float = 10.0, **changes: object) -> Unfinished:
    """Return a job with so many minutes of slack, and hours of work."""
    took = timedelta(hours=work)
    base = {"job_id": "job-1", "due": NOW + took + minutes(slack), "work": took}
    return Unfinished(**{**base, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("slack", "course"),
    [
        pytest.param(41, Course.SPOT, id="3 changes and 1 loss in 10 h are 40 min"),
        pytest.param(40, Course.ANY, id="what is held back is used up"),
        pytest.param(20.1, Course.ANY, id="still more than two changes"),
        pytest.param(20, Course.ON_DEMAND, id="two changes"),
        pytest.param(-600, Course.ON_DEMAND, id="too late for anything"),
    ],
)
def test_a_job_waits_for_spot_until_its_slack_is_what_losses_take(
    slack: float, course: Course
) -> None:
    assert judge(a_job(slack), RESERVE, NOW).course is course


@pytest.mark.parametrize(
    ("on", "slack", "moves_to"),
    [
        pytest.param(ON_DEMAND, 30, SPOT, id="back to spot from three changes on"),
        pytest.param(ON_DEMAND, 29.9, None, id="not with less"),
        pytest.param(SPOT, 30, SPOT, id="to cheaper spot, if there is any"),
        pytest.param(SPOT, 29.9, None, id="stays where it is"),
        pytest.param(SPOT, 10, None, id="can lose one change yet"),
        pytest.param(SPOT, 9.9, ON_DEMAND, id="cannot"),
        pytest.param(ON_DEMAND, -60, None, id="nothing is surer than on demand"),
        pytest.param(None, 600, None, id="what waits is not moved"),
    ],
)
def test_a_job_that_runs_moves_by_its_slack(
    on: CapacityType | None, slack: float, moves_to: CapacityType | None
) -> None:
    assert judge(a_job(slack, on=on), RESERVE, NOW).moves_to is moves_to


def test_less_work_holds_back_less() -> None:
    assert judge(a_job(35, work=10.0), RESERVE, NOW).course is Course.ANY
    assert judge(a_job(35, work=1.0), RESERVE, NOW).course is Course.SPOT


def test_the_moment_until_which_it_waits_is_when_its_course_changes() -> None:
    job = a_job(90)

    verdict = judge(job, RESERVE, NOW)

    assert verdict.waits_until == NOW + minutes(50)
    assert judge(job, RESERVE, verdict.waits_until).course is Course.ANY
    assert judge(job, RESERVE, verdict.waits_until - minutes(1)).course is Course.SPOT


def test_a_change_is_a_slow_boot_two_ticks_and_what_is_done_again() -> None:
    policy = a_policy(checkpoint_interval=minutes(2.5))
    knowledge = Knowledge(boots=(180.0,))

    assert reserve_of(knowledge, policy).change == minutes(7.5)


def test_an_item_that_takes_longer_than_a_checkpoint_may_be_lost_whole() -> None:
    policy = a_policy(checkpoint_interval=minutes(2.5))
    record = ThroughputRecord(items=60.0, hours=20.0, reports=60)
    knowledge = Knowledge(boots=(180.0,), throughput={("T4", 1.0): record})

    # Three items an hour.
    assert reserve_of(knowledge, policy).change == pytest.approx(minutes(25), rel=0.01)


def test_the_losses_to_expect_are_those_of_all_spot_pools() -> None:
    pools = {
        a_pool(): PoolRecord(interruptions=3.0, hours=6.0),
        a_pool("g5.xlarge"): PoolRecord(interruptions=0.0, hours=0.0),
    }

    assert reserve_of(Knowledge(pools=pools), a_policy()).rate == pytest.approx(0.1, rel=0.01)


def test_the_gravest_job_that_waits_sets_the_course_and_all_urgent_ones_count() -> None:
    jobs = [
        a_job(25, job_id="late", jobs=2),
        a_job(500, job_id="early"),
        a_job(15, job_id="running", on=SPOT),
        a_job(10, job_id="last"),
    ]

    outlook = look_out(jobs, RESERVE, NOW, slots=9)

    assert outlook.course is Course.ON_DEMAND
    assert outlook.urgent == 3
    assert [each.job.job_id for each in outlook.verdicts] == ["last", "running", "late", "early"]
    assert outlook.waits_until == NOW + minutes(460)
    # 10 h of work in as many, once a change is over.
    assert outlook.speed == pytest.approx(1.0)


def test_a_long_job_may_be_urgent_before_a_short_one_that_has_less_slack() -> None:
    # One hour of work holds back 31 minutes, ten hold back 40.
    jobs = [a_job(35, work=1.0), a_job(39, work=10.0)]

    outlook = look_out(jobs, RESERVE, NOW, slots=9)

    assert (outlook.course, outlook.urgent) == (Course.ANY, 1)
    assert outlook.waits_until == NOW + minutes(4)


def test_where_no_job_is_urgent_all_wait_for_spot_on_whatever_speed() -> None:
    outlook = look_out([a_job(500), a_job(400)], RESERVE, NOW, slots=9)

    assert (outlook.course, outlook.urgent, outlook.speed) == (Course.SPOT, 0, 0.0)
    assert outlook.waits_until == NOW + minutes(360)


@pytest.mark.parametrize(
    ("slack", "speed"),
    [
        pytest.param(20, 600 / 610, id="a change leaves more time than the work takes"),
        pytest.param(10, 1.0, id="as much"),
        pytest.param(-290, 2.0, id="half as much"),
        pytest.param(-590, 0.0, id="none: no machine is fast enough"),
        pytest.param(-600, 0.0, id="due now"),
        pytest.param(-900, 0.0, id="overdue"),
    ],
)
def test_an_urgent_job_asks_for_a_machine_that_does_it_in_the_time_left(
    slack: float, speed: float
) -> None:
    assert look_out([a_job(slack)], RESERVE, NOW, slots=1).speed == pytest.approx(speed)


@pytest.mark.parametrize(
    ("slots", "slack"),
    [
        pytest.param(4, 10.0, id="each has a slot of its own"),
        # 12 h of work on two slots, in whatever order: 6 h and half of the longest.
        pytest.param(2, 13.0 - 7.5, id="two share the work"),
        pytest.param(1, 13.0 - 12.0, id="one after the other"),
    ],
)
def test_what_waits_has_the_work_before_it_that_is_due_before(slots: int, slack: float) -> None:
    jobs = [a_job(600, work=3.0, jobs=3), a_job(600, work=3.0, on=SPOT, job_id="first")]

    outlook = look_out(jobs, RESERVE, NOW, slots=slots)

    (waits,) = [each for each in outlook.verdicts if each.job.on is None]
    (runs,) = [each for each in outlook.verdicts if each.job.on is SPOT]
    assert waits.slack / HOUR == pytest.approx(slack)
    assert runs.slack == 10 * HOUR


def test_what_does_not_wait_asks_for_no_launch() -> None:
    outlook = look_out([a_job(10, on=SPOT), a_job(10, on=ON_DEMAND)], RESERVE, NOW, slots=1)

    assert (outlook.course, outlook.urgent, outlook.waits_until) == (None, 0, None)
    assert outlook.speed == 0.0


def test_moving_pays_when_the_saving_outlives_the_move() -> None:
    verdict = judge(a_job(600, work=5.0, on=ON_DEMAND), RESERVE, NOW)
    # 5 h of work; a change of a sixth of an hour; a band of 5 %.
    expected = 0.95 * 0.03 * (5 - 1 / 6) / (5 + 1 / 6)

    assert pays_at(verdict, 0.03, RESERVE, Policy()) == pytest.approx(expected)


def test_moving_never_pays_for_less_work_than_a_change_takes() -> None:
    verdict = judge(a_job(600, work=0.1, on=ON_DEMAND), RESERVE, NOW)

    assert pays_at(verdict, 100.0, RESERVE, Policy()) == 0.0


@pytest.mark.parametrize(
    ("rate", "hours"),
    [
        pytest.param(0.0, 40.0, id="never: until the work is done"),
        pytest.param(0.01, 40.0, id="after the work is done"),
        pytest.param(0.1, 10.0, id="after 10 h"),
        pytest.param(1.0, 1.0, id="after an hour"),
    ],
)
def test_spot_that_is_taken_back_saves_for_no_longer(rate: float, hours: float) -> None:
    reserve = Reserve(change=minutes(10), rate=rate)
    verdict = judge(a_job(600, work=40.0, on=ON_DEMAND), reserve, NOW)

    limit = pays_at(verdict, 1.0, reserve, Policy())

    assert limit == pytest.approx(0.95 * (hours - 1 / 6) / (hours + 1 / 6))


LADDER = (
    Rung(after=timedelta(0), capacity_types=frozenset({SPOT}), max_price_per_hour=1.0),
    Rung(after=minutes(30), capacity_types=frozenset(CapacityType), max_price_per_hour=3.0),
)


@pytest.mark.parametrize(
    ("wanted", "open_now"),
    [
        (Course.SPOT, [({SPOT}, 1.0)]),
        (Course.ANY, [({SPOT}, 1.0), (set(CapacityType), 3.0)]),
        (Course.ON_DEMAND, [({ON_DEMAND}, 3.0)]),
        (ON_DEMAND, [({ON_DEMAND}, 3.0)]),
        (SPOT, [({SPOT}, 1.0), ({SPOT}, 3.0)]),
    ],
)
def test_the_ladder_opens_by_the_course_and_not_by_the_wait(
    wanted: Course | CapacityType, open_now: list[tuple[set[CapacityType], float]]
) -> None:
    rungs = open_ladder(Policy(ladder=LADDER), wanted).ladder

    assert [(set(r.capacity_types), r.max_price_per_hour) for r in rungs] == open_now
    assert all(rung.after == timedelta(0) for rung in rungs)


def test_a_kind_that_no_rung_allows_is_never_asked_for() -> None:
    policy = Policy(ladder=LADDER[:1])

    assert allows(policy, SPOT)
    assert not allows(policy, ON_DEMAND)
    assert open_ladder(policy, Course.ON_DEMAND).ladder == policy.ladder
    assert allows(a_policy(), ON_DEMAND)


@pytest.mark.parametrize("wanted", [*Course, *CapacityType])
def test_no_ladder_stays_none(wanted: Course | CapacityType) -> None:
    assert open_ladder(a_policy(), wanted).ladder == ()


def test_urgent_jobs_get_slots_side_by_side_whatever_else_is_wanted() -> None:
    waiting = Patience(
        slots=1, side_by_side=0, items_per_hour=45.0, late_jobs=1, until=NOW, since=NOW
    )
    demand = a_demand(need_items_per_hour=-5.0, backlog_items=0.0, jobs=0)

    asked, patience = hurry(demand, waiting, 3, usual=50.0)

    assert (asked.need_items_per_hour, asked.jobs, asked.slots) == (150.0, 3, 3)
    assert asked.backlog_items == 300.0
    assert patience is not None
    assert (patience.slots, patience.side_by_side, patience.late_jobs) == (3, 3, 3)
    assert hurry(demand, None, 3, usual=50.0) == (asked, None)


def test_more_than_what_is_urgent_stays_wanted() -> None:
    demand: Demand = a_demand(slots=7)

    assert hurry(demand, None, 1, usual=50.0)[0] == demand


class _World:
    """A job under the rule, on a market that gives and takes spot as it is told."""

    def __init__(self, work: timedelta, within: timedelta) -> None:
        self.now, self.work, self.due = NOW, work, NOW + within
        self.on: CapacityType | None = None
        #: Boots under way: what comes, when.
        self.coming: tuple[CapacityType, timedelta] | None = None
        self.moves = self.losses = 0

    def step(self, *, spot: bool, taken: bool, boot: timedelta, length: timedelta) -> None:
        """Let a tick pass; what is taken goes with ``taken``, at most one boot takes ``boot``."""
        if self.on is SPOT and (taken or not spot):
            self.on, self.losses = None, self.losses + 1
        if self.coming and self.coming[0] is SPOT and not spot:
            self.coming = None
        verdict = judge(self._job(), RESERVE, self.now)
        wanted = self._wanted(verdict.course) if self.on is None else verdict.moves_to
        if wanted is self.on or (wanted is SPOT and not spot):
            wanted = None
        if self.coming and wanted is ON_DEMAND and self.coming[0] is SPOT:
            self.coming = None
        if wanted is not None and self.coming is None:
            self.coming = wanted, self.now + boot  # type: ignore[assignment]
        self._pass(length)

    def _job(self) -> Unfinished:
        return Unfinished(job_id="job", due=self.due, work=self.work, on=self.on)

    def _wanted(self, course: Course) -> CapacityType:
        return ON_DEMAND if course is Course.ON_DEMAND else SPOT

    def _pass(self, length: timedelta) -> None:
        if self.on is not None:
            self.work = max(self.work - length, timedelta(0))
        self.now += length
        if self.coming and self.coming[1] <= self.now:  # type: ignore[operator]
            self.moves += self.on is not None
            self.on, self.coming = self.coming[0], None


@given(
    work=st.floats(0.5, 6.0),
    slack=st.floats(0.5, 4.0),
    market=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=30, max_size=400),
    boot=st.integers(1, 8),
)
def test_no_market_makes_it_late_while_on_demand_is_to_be_had(
    work: float, slack: float, market: list[tuple[bool, bool]], boot: int
) -> None:
    took = timedelta(hours=work)
    world = _World(took, took + slack * HOUR)
    for spot, taken in chain(market, repeat((False, False))):
        if not world.work or world.now > world.due:
            break
        world.step(spot=spot, taken=taken, boot=minutes(boot), length=minutes(1))

    assert world.now <= world.due


@given(
    work=st.floats(0.5, 6.0),
    slack=st.floats(0.5, 4.0),
    boot=st.integers(1, 8),
    begins=st.integers(0, 300),
)
def test_spot_that_stays_is_moved_to_once_and_never_left(
    work: float, slack: float, boot: int, begins: int
) -> None:
    took = timedelta(hours=work)
    world = _World(took, took + slack * HOUR)
    for minute in range(900):
        if not world.work:
            break
        world.step(spot=minute >= begins, taken=False, boot=minutes(boot), length=minutes(1))

    assert world.moves <= 1
    assert world.losses == 0


@given(
    slacks=st.lists(st.floats(-100, 500), min_size=1, max_size=8),
    on=st.sampled_from([None, SPOT, ON_DEMAND]),
)
def test_less_slack_never_asks_for_less(slacks: list[float], on: CapacityType | None) -> None:
    order = [Course.SPOT, Course.ANY, Course.ON_DEMAND]
    found = [judge(a_job(slack, on=on), RESERVE, NOW) for slack in sorted(slacks)]

    ranks = [order.index(each.course) for each in found]
    assert ranks == sorted(ranks, reverse=True)
