"""Rows of the ledger: a bad one is skipped, a finished one leaves, none is lost."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from spindown.contract import row as rows
from spindown.contract.codec import encode
from spindown.contract.decision import Outcome
from spindown.contract.row import DoneRow, NewerMessage, SpendRow, budget_sort_key
from spindown.error import WriteConflict
from spindown.memory import PortCall
from spindown.port import Key, Write
from tests.builders import NOW, a_launch, a_lease, a_pool, a_pool_cooldown, a_worker, minutes
from tests.control import WORKLOAD, ControlWorld


def test_a_row_that_cannot_be_read_is_skipped_and_counted() -> None:
    world = ControlWorld()
    worker = world.launched(3)
    world.put("machine#i-bad", **encode(a_worker("i-bad")))
    world.put("worker#i-bad", instance_id="i-bad", state="dancing")
    world.put("lease#i-bad#0", job_id="job-9", epoch="first")
    world.put(rows.BREAKER, silent="many")

    decision = world.tick(minutes(1))

    assert set(decision.bad_rows) == {"worker#i-bad", "lease#i-bad#0", "breaker"}
    assert world.metric("BadRows") == 3
    assert worker.instance_id in world.view().workers


def _a_newer_message(message_id: str) -> NewerMessage:
    return NewerMessage(
        message_id=message_id,
        field="message.schema",
        schema=2,
        receipt_handle="handle",
        receives=1,
        sent_at=NOW,
        until=NOW + timedelta(hours=11),
    )


@pytest.mark.parametrize(
    ("sort", "value"),
    [
        ("machine#i-2", a_worker("i-1")),
        ("lease#i-gone#0", a_lease("i-1", deadline=NOW + timedelta(days=3))),
        ("lease#i-1#1", a_lease("i-1", slot=0)),
        ("launch#launch-2", a_launch("launch-1")),
        ("requeued#job-2", a_lease(job_id="job-1").left_behind(NOW)),
        ("newer#m-2", _a_newer_message("m-1")),
        ("pool-cooldown#elsewhere", a_pool_cooldown()),
        ("spend#not-a-day", SpendRow(dollars=1.0)),
        ("done#not-a-day", DoneRow(items=1)),
    ],
)
def test_a_row_under_a_key_that_is_not_its_own_is_bad(sort: str, value: object) -> None:
    world = ControlWorld(budget=100.0)
    world.put(sort, **encode(value))

    decisions = world.run(3)

    assert {d.bad_rows for d in decisions} == {(sort,)}
    assert decisions[-1].outcome is Outcome.IDLE
    assert world.calls["compute.launch"] == world.calls["compute.terminate"] == 0


@pytest.mark.parametrize(
    ("sort", "name", "value"),
    [
        (rows.CLAIMS, "claims", "many"),
        (rows.CLAIMS, "late", [1]),
        (rows.BACKLOG, "claims_seen", -1),
        (rows.BACKLOG, "seen_at", "soon"),
    ],
)
def test_a_row_of_the_queue_that_cannot_be_read_is_replaced(
    sort: str, name: str, value: object
) -> None:
    world = ControlWorld()
    worker = world.launched(3)
    world.put(sort, **{name: value})

    damaged, mended = world.run(2)
    world.claim(worker.instance_id)

    assert (damaged.bad_rows, mended.bad_rows) == ((sort,), ())
    assert world.view().backlog.claims == 1


def test_an_unwritable_spend_day_stops_no_launch_or_charge() -> None:
    world = ControlWorld(budget=100.0)
    busy = world.launched()
    world.claim(busy.instance_id)
    world.put(rows.spend_sort_key(world.now), dollars="many")
    month = budget_sort_key(world.now)
    before = world.table.query(rows.DEPLOYMENT_PARTITION, month)[month].get("dollars", 0.0)
    world.send(1000)

    decision = world.tick(minutes(5))

    assert decision.outcome is Outcome.LAUNCHED
    assert rows.spend_sort_key(world.now) in decision.bad_rows
    started = {i for request in decision.requests for i in request.instances}
    assert started <= world.view().workers.keys()
    assert world.view().workers[busy.instance_id].accrued_until == world.now
    after = world.table.query(rows.DEPLOYMENT_PARTITION, month)[month]["dollars"]
    assert after > before
    # What the next tick finds is the same.
    assert world.tick(minutes(1)).outcome is not Outcome.LOCKED


def test_an_unwritable_month_stops_launches_and_nothing_else() -> None:
    world = ControlWorld(budget=100.0)
    busy = world.launched()
    world.claim(busy.instance_id)
    month = Key(partition=rows.DEPLOYMENT_PARTITION, sort=budget_sort_key(world.now))
    world.table.write(Write(key=month, set={"committed": "much"}))
    world.send(1000)

    decisions = world.run(2, beats=True)

    assert [decision.outcome for decision in decisions] == [Outcome.BLOCKED] * 2
    assert world.view().backlog.seen_at == world.now
    assert world.view().workers[busy.instance_id].accrued_until is None
    assert world.metric("BadRows") == 1


def test_rows_of_a_later_version_keep_their_unknown_fields() -> None:
    world = ControlWorld()
    worker = world.launched()
    sort = rows.worker_sort_key(worker.instance_id)
    world.put(sort, battery="full")

    world.run(2)

    assert (world.row(sort) or {})["battery"] == "full"


def test_rows_in_other_transactions_delay_a_write_only() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.tick(minutes(1))

    def conflict(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "transact" and len(call.args[0]) > 2:
            raise WriteConflict("another transaction is under way")
        return proceed()

    world.interfere = conflict
    delayed = world.tick(minutes(1))
    world.interfere = None
    world.tick(minutes(1))

    day = world.view().spend[f"{world.now:%Y-%m-%d}"]
    assert delayed.outcome is Outcome.ENOUGH
    assert (day.boot_seconds, day.busy_seconds) == (120, 180)


def test_finished_rows_move_to_the_history_with_a_time_to_live() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.empty_the_queue()
    world.compute.power_off(worker.instance_id)

    world.run(25)

    past = world.table.query(rows.history_partition(WORKLOAD))
    assert world.view().workers == {}
    assert world.view().launches == {}
    assert set(past) == {f"worker#{worker.instance_id}", f"launch#{worker.launch_id}"}
    assert all(isinstance(row["expires"], int) for row in past.values())


def test_old_days_and_forgotten_pools_leave_the_live_partition() -> None:
    world = ControlWorld()
    for day in range(75):
        world.put(f"spend#2026-0{1 + day // 25}-{1 + day % 25:02d}", dollars=1.0)
    world.put(
        rows.pool_cooldown_sort_key(a_pool()),
        pool=a_pool(),
        until=NOW - minutes(60),
        strikes=1,
        reason="dry",
    )

    world.run(2)

    # Today, a week, and the eight before it.
    assert len(world.view().spend) == 64
    assert world.view().pool_cooldowns == {}
    assert len(world.table.query(rows.history_partition(WORKLOAD), "spend#")) == 11
