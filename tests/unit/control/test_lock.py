"""Only one tick of a workload is at work, and none keeps the lock that failed."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.contract.decision import Decision, Outcome
from spindown.contract.row import LOCK, LOCK_LEASE
from spindown.control.tick import run_tick
from spindown.domain.reason import ReasonCode
from spindown.error import NotFound, Unreachable, WriteConflict
from spindown.ledger import Ledger
from spindown.memory import PortCall, intercept
from spindown.memory.interception import Interceptor
from spindown.operate.plan import plan_next_tick
from spindown.port import Datum
from tests.control import WORKLOAD, ControlWorld, codes
from tests.failure import failing


def test_a_second_tick_at_the_same_time_leaves_at_once() -> None:
    world = ControlWorld()
    world.send()
    inner: list[Decision] = []

    def interleave(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "launch" and not inner:
            inner.append(run_tick(WORKLOAD, world.ports, holder="other"))
        return proceed()

    world.interfere = interleave
    decision = world.tick()

    assert inner[0].outcome is Outcome.LOCKED
    assert decision.outcome is Outcome.LAUNCHED
    assert len(world.compute.bills()) == 1
    assert world.metrics.values("LockBusy") == [1]


def test_a_tick_that_outlived_its_lock_launches_no_more() -> None:
    world = ControlWorld()
    world.send()
    taken: list[Decision] = []

    def stall() -> None:
        world.clock.advance(LOCK_LEASE)
        taken.append(run_tick(WORKLOAD, world.ports, holder="other"))

    # Before the intent is written another tick finds the lease over.
    world.just_before("spot_prices", stall)
    late = world.tick()

    assert taken[0].outcome is Outcome.LAUNCHED
    assert late.outcome is Outcome.LOCKED
    assert len(world.compute.bills()) == len(world.workers()) == 1


@pytest.mark.parametrize(
    "damage",
    [
        {"until": "zzzz"},
        {"until": "2030-01-01T00:00:00.000000Z"},
        {"until": 7},
        {"fence": "bad"},
        {"fence": []},
        {"fence": None, "until": "zzzz"},
        {"holder": {}},
    ],
    ids=repr,
)
def test_a_damaged_lock_is_taken_as_free_and_told(damage: dict[str, Any]) -> None:
    world = ControlWorld()
    world.tick()
    held = {"until": world.now + timedelta(minutes=2), "holder": "x", "fence": 5}
    world.put(LOCK, **{**held, **damage})
    world.send()

    foreseen = plan_next_tick(WORKLOAD, world.ports).notes
    repaired, following = world.tick(), world.tick(timedelta(seconds=1))

    assert ReasonCode.LOCK_DAMAGED in [note.code for note in foreseen]
    assert repaired.outcome is Outcome.LAUNCHED
    assert ReasonCode.LOCK_DAMAGED in codes(repaired)
    assert following.fence == repaired.fence + 1 > 6
    assert ReasonCode.LOCK_DAMAGED not in codes(following)


def test_the_lock_of_a_teardown_is_not_damaged() -> None:
    world = ControlWorld()
    held = Ledger(world.table, WORKLOAD).take_lock(
        holder="teardown", now=world.now + timedelta(minutes=1), lease=timedelta(minutes=16)
    )

    assert held is not None
    assert world.tick().outcome is Outcome.LOCKED


def test_only_one_of_two_takes_a_damaged_lock() -> None:
    world = ControlWorld()
    world.put(LOCK, until="zzzz", holder="x", fence=5)
    ledger = Ledger(world.table, WORKLOAD)
    others: list[object] = []

    def be_quicker(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "write" and call.args[0].when.equals and not others:
            others.append(ledger.take_lock(holder="other", now=world.now))
        return proceed()

    slow = Ledger(intercept(world.table, "table", be_quicker), WORKLOAD)

    assert slow.take_lock(holder="slow", now=world.now) is None
    assert others != [None]


def test_the_lock_is_free_after_a_tick() -> None:
    world = ControlWorld()
    world.tick()

    assert world.tick().outcome is Outcome.IDLE
    assert (world.row(LOCK) or {})["fence"] == 2


def twice(_: PortCall, proceed: Callable[[], Any]) -> Any:
    """Carry a call out as a client does that repeats it after a lost answer."""
    proceed()
    return proceed()


def unanswered(call: PortCall, proceed: Callable[[], Any]) -> Any:
    proceed()
    raise Unreachable(f"no answer to {call.method}")


@pytest.mark.parametrize("lose", [twice, unanswered])
def test_knows_that_it_has_the_lock_though_the_answer_was_lost(lose: Interceptor) -> None:
    world = ControlWorld()
    world.send()
    world.interfere = at_the_lock(lose)

    assert world.tick().outcome is Outcome.LAUNCHED

    world.interfere = None
    assert world.tick(timedelta(seconds=1)).outcome is not Outcome.LOCKED


def test_a_lock_that_may_have_been_taken_is_given_back() -> None:
    world = ControlWorld()
    world.send()
    lost = at_the_lock(unanswered)
    silent = failing(Unreachable("no answer"), "get", times=1)
    world.interfere = lambda call, proceed: silent(call, lambda: lost(call, proceed))
    with pytest.raises(Unreachable):
        world.tick()

    assert world.tick(timedelta(seconds=1)).outcome is Outcome.LAUNCHED


@pytest.mark.parametrize("lose", [twice, unanswered])
def test_a_lost_answer_gives_nobody_the_lock_that_another_holds(lose: Interceptor) -> None:
    world = ControlWorld()
    ledger = Ledger(intercept(world.table, "table", at_the_lock(lose)), WORKLOAD)
    assert Ledger(world.table, WORKLOAD).take_lock(holder="first", now=world.now) is not None

    assert ledger.take_lock(holder="second", now=world.now) is None


def test_a_lock_that_could_not_be_asked_for_is_no_lock() -> None:
    world = ControlWorld()
    world.interfere = failing(Unreachable("no answer"), "write", times=1)

    with pytest.raises(Unreachable):
        world.tick()


def test_a_lock_that_another_is_just_writing_is_taken() -> None:
    world = ControlWorld()
    world.send()
    world.interfere = failing(WriteConflict("another transaction is under way"), "write", times=1)

    assert world.tick().outcome is Outcome.LOCKED
    assert world.tick().outcome is Outcome.LAUNCHED


def test_two_calls_of_one_holder_do_not_share_a_lock() -> None:
    world = ControlWorld()
    ledger = Ledger(world.table, WORKLOAD)
    first = ledger.take_lock(holder="request-1", now=world.now)
    second = ledger.take_lock(holder="request-1", now=world.now + timedelta(microseconds=1))

    assert (first is not None, second) == (True, None)


def at_the_lock(lose: Interceptor) -> Interceptor:
    """Return what stands in the way of the first call that takes the lock, and of no other."""
    left = iter([True])

    def interfere(call: PortCall, proceed: Callable[[], Any]) -> Any:
        is_lock = call.method == "write" and call.args[0].key.sort == LOCK
        return lose(call, proceed) if is_lock and next(left, False) else proceed()

    return interfere


def test_an_unknown_workload_is_an_error_and_frees_the_lock() -> None:
    world = ControlWorld()

    with pytest.raises(NotFound):
        run_tick("nobody", world.ports, holder="h")
    with pytest.raises(NotFound):
        run_tick("nobody", world.ports, holder="h")


def test_a_tick_that_cannot_read_the_queue_frees_the_lock() -> None:
    world = ControlWorld()
    world.send()
    world.interfere = failing(Unreachable("no answer"), "backlog", times=1)
    with pytest.raises(Unreachable):
        world.tick()

    assert world.tick(timedelta(seconds=1)).outcome is Outcome.LAUNCHED


class BrokenMetrics:
    """A sink that fails over what a tick says at its end, after others have acted."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act

    def emit(self, data: Iterable[Datum]) -> None:
        if any(datum.name == "Ticks" for datum in data):
            self._act()
            raise ZeroDivisionError


def test_a_fault_after_the_lock_is_back_takes_it_from_nobody() -> None:
    world = ControlWorld()
    world.send()
    ledger = Ledger(world.table, WORKLOAD)
    held: list[object] = []

    def take() -> None:
        held.append(ledger.take_lock(holder="other", now=world.now))

    run_tick(WORKLOAD, replace(world.ports, metrics=BrokenMetrics(take)), holder="first")

    assert held != [None]
    assert ledger.take_lock(holder="third", now=world.now + timedelta(seconds=1)) is None
    assert len(world.workers()) == 1
