"""The budget's rule: what a launch takes, who may go on, and by how much a month may cost more."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindown.domain.budget import (
    LaunchBudget,
    WorkerNeed,
    divide,
    left_for_workers,
    remaining_costs,
    worker_lifetimes,
)
from spindown.domain.fleet import Lease, Worker, WorkerState
from spindown.domain.learning import Knowledge
from spindown.domain.policy import Policy, WhenSpent
from spindown.domain.ranking import Candidate
from spindown.domain.worker_lifecycle import HANG_GRACE, POWER_OFF
from tests.builders import (
    NOW,
    a_booting_worker,
    a_demand,
    a_lease,
    a_ranking,
    a_worker,
    an_offer,
    job_sizes,
    minutes,
)
from tests.overshoot import overshoot_at_most

GO_ON, FINISH, STOP = WhenSpent.STOP_LAUNCHES, WhenSpent.FINISH_JOBS, WhenSpent.STOP
ENDING = (FINISH, STOP)
HOUR = timedelta(hours=1)
DOLLARS = st.floats(0.0, 50.0)


def a_policy(when_spent: WhenSpent) -> Policy:
    """Return a policy: boots of 3 min, idle for 2 min, 1,000 items an hour and 100 a job."""
    return Policy(when_spent=when_spent, idle_timeout=minutes(2), boot_estimate=minutes(3))


def a_budget(when_spent: WhenSpent, left: float = 1.0, items_waiting: float = 0.0) -> LaunchBudget:
    ahead = worker_lifetimes(Knowledge(), a_policy(when_spent))
    return LaunchBudget(month_usd=1.0, left_usd=left, lifetimes=ahead, items_waiting=items_waiting)


def a_candidate(price: float = 0.6, items: float = 1000.0, kind: str = "g4dn.xlarge") -> Candidate:
    """Return an offer of 1,000 items an hour at a price, with so many items for a worker."""
    demand = a_demand(need_items_per_hour=1.0, backlog_items=items, jobs=1, items_per_job=100.0)
    offer = an_offer(kind, instance_price=price, extra_price=0.0)
    best = a_ranking([offer], demand=demand).best
    assert best is not None
    return replace(best, items_per_hour=1000.0)


# What a launch takes.


@pytest.mark.parametrize(
    ("when_spent", "spans"),
    [
        # The boot, all that waits (500 items of work), the idle end.
        (WhenSpent.STOP_LAUNCHES, minutes(3 + 2)),
        # The boot, a job, and until the worker has heard it and is off.
        (WhenSpent.FINISH_JOBS, minutes(3 + 6 + 3)),
        # The boot, as long again of work, and until it has put its job back and is off.
        (WhenSpent.STOP, minutes(3 + 3 + 3.5)),
    ],
)
def test_the_least_that_a_launch_sets_aside(when_spent: WhenSpent, spans: timedelta) -> None:
    candidate, waiting = a_candidate(), 500.0
    work = waiting * (candidate.parts.work + candidate.parts.redo)
    work = work if when_spent is WhenSpent.STOP_LAUNCHES else 0.0

    least = a_budget(when_spent, items_waiting=waiting).least(candidate)

    assert least == pytest.approx(0.6 * (spans / HOUR) + work)


def test_a_launch_pays_for_a_job_in_each_slot() -> None:
    least = a_budget(WhenSpent.FINISH_JOBS).least(a_candidate(kind="g4dn.12xlarge"))

    assert least == pytest.approx(0.6 * (minutes(3 + 4 * 6 + 3) / HOUR))


def test_a_launch_pays_for_the_idle_end_that_was_learned() -> None:
    """Without gaps a worker stays for what a boot is worth: 3 min x 6 / (3 + 6) for jobs of 6."""
    policy = replace(a_policy(WhenSpent.STOP_LAUNCHES), idle_timeout=None)
    budget = LaunchBudget(
        month_usd=1.0, left_usd=1.0, lifetimes=worker_lifetimes(Knowledge(), policy)
    )

    assert budget.least(a_candidate()) == pytest.approx(0.6 * (minutes(3 + 2) / HOUR))


def test_work_that_waits_is_for_whoever_comes_first() -> None:
    candidate = a_candidate()
    budget = a_budget(WhenSpent.STOP_LAUNCHES, left=5.0, items_waiting=1000.0)
    without = replace(budget, items_waiting=0.0)

    assert budget.least(candidate) > without.least(candidate)
    assert budget.after(1.0, 0) == replace(budget, left_usd=4.0)
    assert budget.after(1.0, 1) == replace(without, left_usd=4.0)


@pytest.mark.parametrize("when_spent", WhenSpent)
def test_what_three_machines_cost_is_room_for_three(when_spent: WhenSpent) -> None:
    """0.3 USD are less than 3 x 0.1 in binary."""
    candidate = a_candidate(items=100.0)
    one = a_budget(when_spent, left=100.0).reserved([candidate], 1)
    budget = a_budget(when_spent, left=3 * one * (1.0 - 1e-12))

    assert budget.workers([candidate]) == ([candidate], 3)
    least = budget.least(candidate)
    assert replace(budget, left_usd=least - 1e-12).workers([candidate]) == ([candidate], 1)
    assert replace(budget, left_usd=least - 1e-6).workers([candidate]) == ([], 0)


@pytest.mark.parametrize("stop_grace", [timedelta(0), timedelta(seconds=90)])
def test_what_puts_back_has_the_time_that_its_worker_takes(stop_grace: timedelta) -> None:
    policy = a_policy(WhenSpent.STOP)
    ahead = worker_lifetimes(replace(Knowledge(), stop_grace=stop_grace), policy)

    bound = overshoot_at_most(
        [1.0], policy, longest_job=HOUR, until_idle=HOUR, stop_grace=stop_grace
    )
    assert ahead.put_back / HOUR == pytest.approx(bound)


def test_fewer_machines_set_aside_the_same_work() -> None:
    candidate = a_candidate()
    budget = a_budget(WhenSpent.STOP_LAUNCHES, left=10.0, items_waiting=4000.0)
    one, four = (budget.reserved([candidate], count) for count in (1, 4))

    work = budget.least(candidate) - 0.6 * 5 / 60
    assert work > 4 * 0.6
    assert four - one == pytest.approx(3 * 0.6 * 5 / 60)
    assert replace(budget, left_usd=one - 0.001).workers([candidate]) == ([], 0)
    assert replace(budget, left_usd=one + 0.001).workers([candidate])[1] == 1


@pytest.mark.parametrize("when_spent", ENDING)
def test_one_is_launched_for_a_part_of_the_work(when_spent: WhenSpent) -> None:
    candidate = a_candidate(items=100_000.0)
    budget = a_budget(when_spent, left=0.5)

    assert candidate.expected_dollars > 10.0
    assert budget.workers([candidate]) == ([candidate], 1)
    assert budget.reserved([candidate], 1) == 0.5


@given(
    when_spent=st.sampled_from(WhenSpent),
    prices=st.lists(st.floats(0.05, 5.0), min_size=1, max_size=4),
    items=st.floats(1.0, 1e5),
    left=st.floats(-1.0, 60.0),
    waiting=st.floats(0.0, 1e4),
)
def test_a_launch_never_sets_aside_more_than_is_left(
    when_spent: WhenSpent, prices: list[float], items: float, left: float, waiting: float
) -> None:
    budget = a_budget(when_spent, left=left, items_waiting=waiting)
    band = [a_candidate(price, items) for price in prices]

    paid, most = budget.workers(band)

    for count in {1, int(min(most, 1000))} if most else ():
        reserved = budget.reserved(paid, count)
        assert reserved <= left + 1e-6
        assert reserved >= min(map(budget.least, paid)) - 1e-6
        assert budget.after(reserved, count).left_usd == left - reserved
    assert bool(paid) is (most > 0)
    assert paid or min(map(budget.least, band)) > left


# Who may go on.


@st.composite
def some_needs(draw: st.DrawFn) -> list[WorkerNeed]:
    return [
        WorkerNeed(
            instance_id=f"i-{number}",
            uncharged=draw(DOLLARS),
            at_least=draw(DOLLARS),
            more=draw(DOLLARS),
            in_sight=draw(DOLLARS),
            is_booting=draw(st.booleans()),
        )
        for number in range(draw(st.integers(0, 6)))
    ]


@given(needs=some_needs(), left=st.floats(-100.0, 500.0))
def test_whoever_goes_on_is_paid_for(needs: list[WorkerNeed], left: float) -> None:
    ends, rest = divide(needs, left)

    sure = sum(need.uncharged + need.at_least for need in needs)
    going = [need for need in needs if need.instance_id not in ends]
    assert rest == pytest.approx(left - sure - sum(need.more for need in going))
    if left < sure - 1e-6:
        assert not going
    else:
        assert rest >= -1e-6
        dearest = max((need.more for need in going if not need.is_booting), default=0.0)
        told = [need.more for need in needs if need.instance_id in ends and not need.is_booting]
        assert min(told, default=dearest) >= dearest


FOUR_GPUS: dict[str, Any] = {"instance_type": "g4dn.12xlarge", "gpu_count": 4.0, "slots": 4}


def an_idle_worker(seconds: int, **changes: Any) -> Worker:
    return a_worker(idle_since=NOW - timedelta(seconds=seconds), **changes)


def a_busy_worker(**changes: Any) -> Worker:
    return a_worker(state=WorkerState.BUSY, busy_slots=1, **changes)


def a_young_worker(**changes: Any) -> Worker:
    return a_booting_worker(age=minutes(1), **changes)


@pytest.mark.parametrize(
    ("when_spent", "worker", "held", "waiting", "spans"),
    [
        # All that waits, and the idle end of 2 min, of which a tick at least is to come.
        pytest.param(GO_ON, an_idle_worker(30), None, 0, (1.5, 0, 1.5), id="idle"),
        pytest.param(GO_ON, an_idle_worker(110), None, 0, (1, 0, 1), id="idle for long"),
        pytest.param(GO_ON, a_busy_worker(), 100, 0, (8, 0, 8), id="busy"),
        pytest.param(GO_ON, a_busy_worker(), 100, 10, (68, 0, 68), id="busy, and 10 jobs wait"),
        pytest.param(GO_ON, a_young_worker(), None, 10, (64, 0, 64), id="boots, 10 wait"),
        pytest.param(GO_ON, a_busy_worker(migrating_at=NOW), 100, 10, (6, 0, 6), id="leaves"),
        # The job in hand, and one more if any waits, else the idle end.
        pytest.param(FINISH, a_busy_worker(), 100, 10, (6, 6, 68), id="finishes, and 10 wait"),
        pytest.param(FINISH, a_busy_worker(), 100, 1, (6, 6, 14), id="finishes, and one waits"),
        pytest.param(FINISH, a_busy_worker(), 100, 0, (6, 2, 8), id="finishes, and none waits"),
        pytest.param(FINISH, a_busy_worker(), 25, 1, (3, 6, 9.5), id="finishes before the word"),
        pytest.param(
            FINISH, a_busy_worker(migrating_at=NOW), 100, 10, (6, 0, 6), id="finishes and leaves"
        ),
        pytest.param(
            FINISH, a_worker(**FOUR_GPUS), None, 10, (3, 6, 17), id="four jobs side by side"
        ),
        pytest.param(FINISH, a_young_worker(), None, 1, (1, 10, 10), id="boots for one job"),
        # Until it has put its job back. A boot is followed by as much work, or by one job.
        pytest.param(STOP, a_busy_worker(), 100, 10, (3.5, 0, 68), id="stops"),
        pytest.param(STOP, a_young_worker(), None, 1, (1, 7.5, 10), id="boots for 3 min of work"),
        pytest.param(
            STOP, a_worker(state=WorkerState.DRAINED), None, 10, (1, 0, 1), id="is powering off"
        ),
    ],
)
def test_what_a_machine_will_still_cost(
    when_spent: WhenSpent,
    worker: Worker,
    held: int | None,
    waiting: int,
    spans: tuple[float, float, float],
) -> None:
    """``spans`` are minutes: though it is told now, on top if it goes on, with all in sight."""
    need = remaining_costs(
        [replace(worker, price_per_hour=60.0, accrued_until=NOW - minutes(2))],
        [] if held is None else [a_lease(items=held)],
        visible=waiting,
        knowledge=Knowledge(),
        policy=a_policy(when_spent),
        now=NOW,
    )["i-1"]

    assert (need.at_least, need.more, need.in_sight) == pytest.approx(spans)
    assert need.uncharged == pytest.approx(2.0)
    assert need.is_booting is (worker.state is WorkerState.BOOTING)


def test_what_waits_is_drained_by_those_that_take_jobs() -> None:
    needs = remaining_costs(
        [a_busy_worker(instance_id="i-1"), a_busy_worker(instance_id="i-2", migrating_at=NOW)],
        [a_lease("i-1"), a_lease("i-2", items=50)],
        visible=10,
        knowledge=Knowledge(),
        policy=a_policy(FINISH),
        now=NOW,
    )

    assert needs["i-1"].in_sight == pytest.approx(0.22 * 68 / 60)
    assert needs["i-2"].in_sight == pytest.approx(0.22 * 3 / 60)


@pytest.mark.parametrize(
    ("when_spent", "worker", "can_end"),
    [
        (FINISH, a_busy_worker(), True),
        (FINISH, a_busy_worker(migrating_at=NOW), False),
        (STOP, a_busy_worker(migrating_at=NOW), True),
        (STOP, a_busy_worker(spent_at=NOW), False),
        (STOP, a_worker(state=WorkerState.DRAINED), False),
        (GO_ON, a_busy_worker(), False),
    ],
)
def test_who_can_be_told_to_end(when_spent: WhenSpent, worker: Worker, *, can_end: bool) -> None:
    """One that finishes its jobs and takes no more has nothing to hear; one that stops has."""
    policy, known = a_policy(when_spent), Knowledge()
    (need,) = remaining_costs(
        [worker], [a_lease()], visible=1, knowledge=known, policy=policy, now=NOW
    ).values()

    assert need.can_end is can_end


def test_machines_that_go_on_until_idle_are_never_told() -> None:
    worker = a_worker("i-1", state=WorkerState.BUSY, busy_slots=1)
    needs = remaining_costs(
        [worker],
        [a_lease("i-1")],
        visible=1000,
        knowledge=Knowledge(),
        policy=a_policy(WhenSpent.STOP_LAUNCHES),
        now=NOW,
    )

    ends, left = divide(needs.values(), 1.0)

    assert ends == ()
    assert left < -10.0


def test_a_machine_is_told_once() -> None:
    worker = a_worker("i-1", spent_at=NOW - minutes(1))
    needs = remaining_costs(
        [worker],
        [],
        visible=5,
        knowledge=Knowledge(),
        policy=a_policy(WhenSpent.FINISH_JOBS),
        now=NOW,
    )

    assert divide(needs.values(), -1.0)[0] == ()


def test_a_boot_that_is_paid_for_is_not_ended() -> None:
    """What the least launch sets aside is enough for as long as it boots."""
    for when_spent in ENDING:
        policy, candidate = a_policy(when_spent), a_candidate()
        least = a_budget(when_spent).least(candidate)
        for age in range(4):
            worker = a_booting_worker(
                "i-1", age=minutes(age), price_per_hour=candidate.offer.price, slots=1
            )
            needs = remaining_costs(
                [worker],
                [],
                visible=1,
                knowledge=Knowledge(jobs=job_sizes(100.0)),
                policy=policy,
                now=NOW,
            )
            assert divide(needs.values(), least)[0] == ()


# The bound.


@dataclass
class _Machine:
    """A machine of a small world: it works on jobs whose length nobody has foreseen."""

    worker: Worker
    #: When its present job is over; None: it boots.
    free_at: datetime | None
    up_at: datetime
    #: When it hears of the end, and when it is off.
    hears_at: datetime | None = None
    off_at: datetime | None = None

    def lease(self) -> Lease:
        return a_lease(
            self.worker.instance_id,
            items=100,
            claimed_at=self.up_at,
            deadline=NOW + timedelta(days=9),
        )


@given(
    when_spent=st.sampled_from(ENDING),
    budget=st.floats(0.01, 5.0),
    prices=st.lists(st.floats(0.1, 4.0), min_size=1, max_size=4),
    jobs=st.lists(st.integers(1, 90), min_size=1, max_size=8),
    boots=st.lists(st.integers(0, 9), min_size=1, max_size=3),
    lag=st.integers(1, 60),
)
def test_no_estimate_makes_a_month_cost_more_than_its_bound(
    when_spent: WhenSpent,
    budget: float,
    prices: list[float],
    jobs: list[int],
    boots: list[int],
    lag: int,
) -> None:
    policy = a_policy(when_spent)
    longest = minutes(max(jobs))
    fleet = [
        _Machine(
            worker=a_booting_worker(f"i-{number}", age=timedelta(0), price_per_hour=price),
            free_at=None,
            up_at=NOW + minutes(boots[number % len(boots)]),
        )
        for number, price in enumerate(prices)
    ]

    spent = _spend(fleet, policy, budget, [minutes(job) for job in jobs], timedelta(seconds=lag))

    bound = overshoot_at_most(prices, policy, longest_job=longest, until_idle=timedelta(0))
    assert spent <= budget + bound + 1e-6


def _spend(
    fleet: list[_Machine],
    policy: Policy,
    budget: float,
    jobs: list[timedelta],
    lag: timedelta,
) -> float:
    """Let the machines work on jobs without end; return what they have cost when all are off."""
    now, taken = NOW, 0
    while any(one.off_at is None or one.off_at > now for one in fleet):
        for one in fleet:
            while one.off_at is None and (one.free_at or one.up_at) <= now:
                at = one.free_at or one.up_at
                if one.hears_at is not None and at >= one.hears_at:
                    one.off_at = at + POWER_OFF
                else:
                    one.free_at = at + jobs[taken % len(jobs)]
                    taken += 1
            _show(one)
        alive = [one for one in fleet if one.off_at is None]
        cost = sum(
            one.worker.price_per_hour * ((min(one.off_at or now, now) - NOW) / HOUR)
            for one in fleet
        )
        needs = remaining_costs(
            [replace(one.worker, accrued_until=now) for one in alive],
            [one.lease() for one in alive if one.free_at is not None],
            visible=10**6,
            knowledge=Knowledge(),
            policy=policy,
            now=now,
        )
        ends, _ = divide(needs.values(), budget - cost)
        for one in alive:
            if one.worker.instance_id in ends:
                _tell(one, policy, now, lag)
        now += policy.tick
    return sum(one.worker.price_per_hour * (((one.off_at or now) - NOW) / HOUR) for one in fleet)


def _show(one: _Machine) -> None:
    """Let the row say what the machine does."""
    if one.free_at is not None:
        one.worker = replace(
            one.worker,
            state=WorkerState.BUSY,
            busy_slots=1,
            idle_since=None,
            checked_in_at=one.up_at,
        )


def _tell(one: _Machine, policy: Policy, now: datetime, lag: timedelta) -> None:
    """Let a machine hear at its next heartbeat, and end as the policy says."""
    if one.free_at is None:
        one.off_at = now + POWER_OFF
        return
    one.worker = replace(one.worker, spent_at=now)
    one.hears_at = now + lag
    if policy.when_spent is WhenSpent.STOP:
        one.off_at = one.hears_at + HANG_GRACE + POWER_OFF


def test_the_bound_of_four_machines() -> None:
    def bound(when_spent: WhenSpent) -> float:
        policy = a_policy(when_spent)
        return overshoot_at_most([0.2] * 4, policy, longest_job=HOUR, until_idle=3 * HOUR)

    assert bound(WhenSpent.STOP_LAUNCHES) == pytest.approx(2.4)
    assert bound(WhenSpent.FINISH_JOBS) == pytest.approx(0.84)
    assert bound(WhenSpent.STOP) == pytest.approx(0.0467, abs=1e-4)


def test_what_own_workers_have_set_aside_is_left_to_them() -> None:
    left = left_for_workers(100.0, used=60.0, reserved_before=5.0, reserved_by_own=10.0)

    assert left == pytest.approx(45.0)
