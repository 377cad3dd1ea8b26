"""The budget in the rows: who is told to end, what a launch keeps set aside, what it gives back."""

from datetime import UTC, datetime

import pytest

from spindown.contract.codec import encode
from spindown.contract.row import DEPLOYMENT_PARTITION, budget_sort_key, lease_sort_key
from spindown.control.plan.action import ActionKind
from spindown.domain.fleet import Worker, WorkerState
from spindown.domain.policy import Policy, WhenSpent
from spindown.domain.reason import Reason, ReasonCode
from spindown.ledger import account_key
from spindown.port import Key, Write
from tests.builders import minutes
from tests.control import ControlWorld
from tests.spending import PRICE, budget_row

ENDING = (WhenSpent.FINISH_JOBS, WhenSpent.STOP)


def a_world(when_spent: WhenSpent, budget: float = 10.0) -> ControlWorld:
    policy = Policy(when_spent=when_spent, max_workers=2, idle_timeout=minutes(30))
    return ControlWorld(policy=policy, budget=budget)


def at_work(world: ControlWorld, jobs: int = 5) -> Worker:
    """Let a worker be at work on a job, and others wait."""
    worker = world.launched(jobs)
    world.claim(worker.instance_id)
    return world.view().workers[worker.instance_id]


def spend(world: ControlWorld, dollars: float) -> None:
    """Let another workload spend."""
    sums = {"dollars": dollars, "committed": dollars}
    world.table.write(Write(key=account_key(budget_sort_key(world.now)), add=sums))


def told(world: ControlWorld) -> list[str]:
    """Return who is told in the next tick that the budget ends it."""
    decision = world.tick(minutes(1))
    return [each.subject for each in decision.actions if each.kind == ActionKind.WIND_DOWN]


@pytest.mark.parametrize("when_spent", ENDING)
def test_a_worker_without_budget_is_told_once(when_spent: WhenSpent) -> None:
    world = a_world(when_spent)
    worker = at_work(world)
    assert told(world) == []
    spend(world, 9.99)

    assert told(world) == [worker.instance_id]
    assert told(world) == []
    row = world.view().workers[worker.instance_id]
    assert row.spent_at == world.now - minutes(1)
    assert row.state is WorkerState.BUSY
    assert not row.takes_jobs


def test_the_reason_of_an_end_tells_of_the_month() -> None:
    world = a_world(WhenSpent.FINISH_JOBS)
    at_work(world)
    world.tick(minutes(1))
    spend(world, 9.99)

    decision = world.tick(minutes(1))

    (ending,) = (each for each in decision.actions if each.kind == ActionKind.WIND_DOWN)
    month = {"budget_per_month": 10.0, "spent": 9.99}
    assert ending.reason == Reason(ReasonCode.BUDGET_ENDS_WORKER, month)


def test_what_is_left_is_what_the_month_s_row_leaves() -> None:
    """A charge of this very tick is known, and what was set aside counts once."""
    world = a_world(WhenSpent.FINISH_JOBS, budget=0.16)
    at_work(world, jobs=300)

    for decision in world.run(9, beats=True):
        left = decision.summary.why.about["left"]
        assert left == pytest.approx(0.16 - budget_row(world)["committed"])
    assert budget_row(world)["dollars"] > 0.0


def test_what_is_left_beside_a_job_that_takes_longer() -> None:
    """The charge that sets more aside for it is of this tick, and the last one five minutes ago."""
    world = a_world(WhenSpent.FINISH_JOBS, budget=0.22)
    worker = at_work(world, jobs=1)
    world.run(7, beats=True)
    world.put(lease_sort_key(worker.instance_id, 0), **encode({"items": 100, "items_done": 15}))
    world.send(300)
    before = budget_row(world)["committed"]

    decision = world.tick(minutes(1))

    left = decision.summary.why.about["left"]
    assert budget_row(world)["committed"] > before
    assert left == pytest.approx(0.22 - budget_row(world)["committed"])
    assert float(str(left)) > 0.0


def test_waiting_work_is_set_aside_until_somebody_is_there() -> None:
    """Machines that go on until idle take all of it, whoever is launched beside them."""

    def least(world: ControlWorld) -> float:
        return float(str(world.tick(minutes(1)).summary.why.about["least"]))

    world = a_world(WhenSpent.STOP_LAUNCHES, budget=0.1)
    world.send(1)
    one = least(world)
    world.send(299)
    alone = least(world)
    served = a_world(WhenSpent.STOP_LAUNCHES, budget=0.2)
    at_work(served, jobs=300)

    # Of 300 jobs; a boot and an idle end are of the machine.
    assert alone - one == pytest.approx(299 * 100 * PRICE / 1000, rel=0.05)
    assert least(served) < one


def test_who_goes_on_until_idle_is_not_told() -> None:
    world = a_world(WhenSpent.STOP_LAUNCHES)
    worker = at_work(world)
    spend(world, 100.0)

    assert told(world) == []
    assert world.view().workers[worker.instance_id].takes_jobs


@pytest.mark.parametrize("when_spent", ENDING)
def test_a_boot_without_budget_is_condemned(when_spent: WhenSpent) -> None:
    world = a_world(when_spent)
    world.send(1)
    world.tick()
    (booting,) = world.workers(WorkerState.BOOTING)
    spend(world, 10.0)

    decision = world.tick(minutes(1))

    (ending,) = decision.condemned
    assert ending.instance_id == booting.instance_id
    assert ending.reason.code is ReasonCode.BUDGET_ENDS_WORKER
    assert decision.summary.why.code is not ReasonCode.BREAKER_OPEN


def test_the_next_job_must_be_paid_for_not_only_the_present() -> None:
    """A job takes 6 minutes: with room for the rest of one, the worker takes no other."""
    world = a_world(WhenSpent.FINISH_JOBS, budget=0.5)
    worker = at_work(world)
    job = PRICE * 0.1
    spend(world, 0.5 - 2.5 * job)
    assert told(world) == []
    spend(world, job)

    assert told(world) == [worker.instance_id]


def test_a_damaged_month_ends_nobody() -> None:
    world = a_world(WhenSpent.STOP)
    at_work(world)
    key = account_key(budget_sort_key(world.now))
    world.table.write(Write(key=key, set={"committed": "much"}))

    assert told(world) == []


def test_a_charge_corrects_what_is_set_aside_to_a_long_job() -> None:
    world = a_world(WhenSpent.FINISH_JOBS)
    worker = at_work(world, jobs=1)
    before = budget_row(world)["committed"]
    # Of 100 items one was done in five minutes: eight hours are left.
    world.run(5, beats=True)
    lease = {"items": 100, "items_done": 1}
    world.put(lease_sort_key(worker.instance_id, 0), **encode(lease))

    world.run(5, beats=True)

    after = budget_row(world)
    (launch,) = world.view().launches.values()
    assert before < 0.2
    assert launch.reserved_usd > 5 * PRICE
    assert after["committed"] == pytest.approx(after["dollars"] + launch.reserved_usd)


def test_what_is_set_aside_comes_back_at_the_end() -> None:
    world = a_world(WhenSpent.FINISH_JOBS)
    worker = world.launched()
    world.empty_the_queue()
    world.compute.power_off(worker.instance_id)

    world.run(2)

    row = budget_row(world)
    assert world.view().workers[worker.instance_id].state is WorkerState.ENDED
    assert row["dollars"] > 0.0
    assert row["committed"] == pytest.approx(row["dollars"])


def test_a_smaller_machine_is_bought_if_the_best_is_too_dear() -> None:
    """What is cheapest by the item may set aside more than is left."""
    world = a_world(WhenSpent.FINISH_JOBS, budget=50.0)
    world.send(500)
    best = world.tick().candidates[0]
    small = a_world(WhenSpent.FINISH_JOBS, budget=0.06)
    small.send(500)

    decision = small.tick()

    assert best.price_per_hour >= min(w.price_per_hour for w in small.workers())
    assert len(decision.requests) == 1
    assert budget_row(small)["committed"] <= 0.06


def test_why_names_what_is_left_and_what_a_launch_takes() -> None:
    world = a_world(WhenSpent.FINISH_JOBS)
    spend(world, 9.99)
    world.send(3)

    about = world.tick().summary.why.about

    assert about["left"] == pytest.approx(0.01)
    assert float(str(about["least"])) > 0.01
    assert about["budget_per_month"] == 10.0


@pytest.mark.parametrize("when_spent", WhenSpent)
def test_a_budget_below_any_launch_is_told_as_such(when_spent: WhenSpent) -> None:
    world = a_world(when_spent, budget=0.001)
    world.send(3)

    decision = world.tick()

    assert decision.requests == ()
    assert decision.summary.why.code is ReasonCode.BUDGET_BELOW_LAUNCH


def test_an_idle_worker_is_kept_warm_within_the_budget() -> None:
    """Machines that go on until idle would never be."""
    policy = Policy(when_spent=WhenSpent.STOP_LAUNCHES, warm_workers=1, idle_timeout=minutes(2))
    world = ControlWorld(policy=policy, budget=10.0)
    ((worker,),) = (each.instances for each in world.tick().requests)
    world.check_in(worker)
    world.run(3, beats=True)
    until = world.view().workers[worker].warm_until
    assert until is not None
    assert until > world.now

    spend(world, 10.0)
    world.run(3, beats=True)

    assert world.view().workers[worker].warm_until == until
    assert not world.tick(minutes(1)).requests


def test_what_machines_still_need_is_set_aside_in_the_new_month() -> None:
    world = a_world(WhenSpent.FINISH_JOBS)
    midnight = datetime(world.now.year + 1, 1, 1, tzinfo=UTC)
    world.clock.advance(midnight - minutes(30) - world.now)
    old = Key(partition=DEPLOYMENT_PARTITION, sort=budget_sort_key(world.now))
    worker = at_work(world, jobs=300)
    world.run(20, beats=True)
    before = budget_row(world)["committed"] - budget_row(world)["dollars"]
    assert before > 0.0

    world.run(20, beats=True)

    launches = world.view().launches.values()
    assert all(x.reserved_at >= midnight for x in launches if x.reserved_usd)
    row, past = budget_row(world), world.table.get(old)
    reserved = sum(launch.reserved_usd for launch in launches)
    assert row["committed"] - row["dollars"] == pytest.approx(reserved)
    assert reserved > 0.0
    assert past is not None
    assert past["committed"] == pytest.approx(past["dollars"])
    assert world.view().workers[worker.instance_id].takes_jobs
