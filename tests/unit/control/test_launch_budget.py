"""What the month's budget leaves for launches, to the cent, in the midst of a tick."""

from dataclasses import replace

import pytest

from spindown.contract.codec import replace_fields
from spindown.contract.row import budget_sort_key
from spindown.control.plan.action import Action, ActionKind, PlanDraft
from spindown.control.plan.wind_down import divide_budget
from spindown.control.tick import observe
from spindown.domain.budget import LaunchBudget
from spindown.domain.fleet import Launch, LaunchState, WorkerState
from spindown.domain.policy import Policy, WhenSpent
from spindown.ledger import AccountView, account_key
from spindown.port import Key, Write
from tests.builders import minutes
from tests.control import WORKLOAD, ControlWorld

BUDGET = 10.0
#: Well before the month of the worlds' clock.
MONTH_AGO = minutes(60 * 24 * 40)


def at_work(spent: float = 0.0) -> tuple[PlanDraft, AccountView, Launch]:
    """Return a draft in which a worker is at work, the month, and the worker's launch.

    Others have ``spent`` USD of the month.
    """
    policy = Policy(when_spent=WhenSpent.FINISH_JOBS, max_workers=1, idle_timeout=minutes(30))
    world = ControlWorld(policy=policy, budget=BUDGET)
    worker = world.launched(5)
    world.claim(worker.instance_id)
    world.tick(minutes(1))
    sums = {"dollars": spent, "committed": spent}
    world.table.write(Write(key=month_of(world), add=sums))
    draft, account = observed(world)
    (launch,) = draft.fleet.launches.values()
    return draft, account, launch


def waiting() -> PlanDraft:
    """Return a draft in which nobody has been launched and five jobs wait."""
    world = ControlWorld(budget=BUDGET)
    world.send(5)
    return observed(world)[0]


def observed(world: ControlWorld) -> tuple[PlanDraft, AccountView]:
    seen, early = observe(WORKLOAD, world.ports, now=world.now, source="")
    return early.draft, seen.account or AccountView()


def month_of(world: ControlWorld) -> Key:
    return account_key(budget_sort_key(world.now))


def left_by(draft: PlanDraft, account: AccountView) -> LaunchBudget:
    _, budget = divide_budget(draft, account)
    assert budget is not None
    return budget


def left_in(draft: PlanDraft, account: AccountView) -> float:
    return left_by(draft, account).left_usd


def with_launches(draft: PlanDraft, *launches: Launch) -> PlanDraft:
    more = {launch.launch_id: launch for launch in launches}
    return replace(draft, fleet=replace(draft.fleet, launches={**draft.fleet.launches, **more}))


def test_what_the_tick_sets_aside_itself_is_no_longer_left() -> None:
    draft, account, _ = at_work()
    month = account_key(budget_sort_key(draft.now))
    writes = (
        Write(key=month, add={"committed": 1.0}),
        # What is spent was set aside before.
        Write(key=month, add={"dollars": 3.0}),
    )
    charged = draft.act([Action(kind=ActionKind.CHARGE, subject="", writes=writes)])

    assert left_in(charged, account) == pytest.approx(left_in(draft, account) - 1.0)


def test_all_may_take_what_is_taken_and_what_is_left() -> None:
    draft, account, _ = at_work()
    taken = account.budget_at(draft.now).committed
    assert taken > 0.0

    budget = left_by(draft, account)

    most = budget.left_usd + taken
    assert budget.committed_at_most_usd == pytest.approx(most)
    # What was just found to fit must not be refused for a last digit.
    assert budget.committed_at_most_usd is not None
    assert budget.committed_at_most_usd > most


def test_an_open_launch_of_last_month_takes_of_this_month() -> None:
    draft, account, launch = at_work()
    changes = {"launch_id": "open", "reserved_usd": 2.0, "intended_at": draft.now - MONTH_AGO}
    opened = with_launches(draft, replace_fields(launch, changes))

    assert left_in(opened, account) == pytest.approx(left_in(draft, account) - 2.0)


def test_an_open_launch_of_this_month_is_in_its_row_already() -> None:
    draft, account, launch = at_work()
    changes = {"launch_id": "open", "reserved_usd": 2.0, "intended_at": draft.now}
    opened = with_launches(draft, replace_fields(launch, changes))

    assert left_in(opened, account) == pytest.approx(left_in(draft, account))


def test_what_runs_since_last_month_is_not_set_aside_twice() -> None:
    """Nothing in this month's row is its own, and what it needs counts once."""
    draft, account, launch = at_work()
    old = replace_fields(launch, {"intended_at": draft.now - MONTH_AGO})

    left = left_in(draft, account) - launch.reserved_usd
    assert left_in(with_launches(draft, old), account) == pytest.approx(left)


def test_a_worker_that_is_told_is_marked_in_the_same_tick() -> None:
    draft, account, _ = at_work(spent=BUDGET)

    after, _ = divide_budget(draft, account)

    (worker,) = after.fleet.workers.values()
    assert worker.spent_at == draft.now
    assert worker.state is WorkerState.BUSY


def test_one_that_ends_gives_back_what_no_job_in_hand_needs() -> None:
    """The row has all that its launch has set aside; a tick gives back what that is too much."""
    draft, account, launch = at_work(spent=BUDGET + 5.0)
    taken = account.budget_at(draft.now).committed
    reserved = replace_fields(launch, {"reserved_usd": 5.0})

    after, budget = divide_budget(with_launches(draft, reserved), account)

    assert [worker.spent_at for worker in after.fleet.workers.values()] == [draft.now]
    assert budget is not None
    assert budget.left_usd == pytest.approx(BUDGET - taken)


def test_waiting_items_count_while_nobody_is_on_the_way() -> None:
    draft = waiting()
    _, account, launch = at_work()
    failed = replace_fields(launch, {"state": LaunchState.REFUSED, "reserved_usd": 0.0})
    coming = replace_fields(failed, {"state": LaunchState.INTENDED})

    def items_waiting(*launches: Launch) -> float:
        return left_by(with_launches(draft, *launches), account).items_waiting

    assert items_waiting() > 0.0
    assert items_waiting(failed) == items_waiting()
    assert items_waiting(coming) == 0.0
