"""The tick as a whole: what it reads, what it remembers, what it costs, what it survives."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.app.policy import edit_policy
from spindown.app.reconcile import reconcile
from spindown.app.reconcile.track import follow
from spindown.contract import row as rows
from spindown.contract.decision import Outcome, decision_prefix
from spindown.contract.metric import METRICS, Emitter
from spindown.contract.row import BacklogRow, workload_partition
from spindown.contract.settings import RunSettings
from spindown.domain.fleet import Backlog, WorkerState
from spindown.error import NotFound, Unreachable, WriteConflict
from spindown.memory import PortCall
from tests.builders import NOW, a_pool, minutes
from tests.control import WORKLOAD, ControlWorld, a_pool_of, with_policy

LOCK_CALLS = 2


def test_a_tick_that_launches_nothing_makes_at_most_three_calls_besides_the_lock() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    for _ in range(4):
        world.tick(minutes(1))
        world.beat()
    counts = []
    for _ in range(2):
        world.beat()
        before = world.calls.copy()
        decision = world.tick(minutes(1))
        counts.append((world.calls - before).total() - LOCK_CALLS)
        assert decision.outcome is Outcome.ENOUGH

    assert counts == [3, 3]


def test_a_quiet_tick_of_a_large_fleet_takes_few_transactions() -> None:
    world = with_policy(max_workers=40)
    world.send(4000)
    world.run(2)
    assert len(world.workers()) == 40
    for worker in world.workers():
        world.check_in(worker.instance_id)
        world.claim(worker.instance_id, f"job-{worker.instance_id}")
    before = world.calls["table.transact"]

    world.tick(minutes(1))

    # 40 workers, each with its row and its launch's, and the rows that they share.
    assert world.calls["table.transact"] - before <= 2
    assert all(w.accrued_until == world.now for w in world.workers())


def test_an_idle_tick_makes_two_calls_besides_the_lock() -> None:
    world = ControlWorld()
    world.tick()
    before = world.calls.copy()

    world.tick(minutes(1))

    assert world.calls - before == {
        "table.write": 1,
        "table.transact": 1,
        "table.query": 1,
        "queue.backlog": 1,
    }


def test_a_held_launch_costs_no_look_at_prices() -> None:
    world = with_policy(scale_up_threshold=10, start_within=minutes(30))
    world.tick()
    world.send(2)
    world.tick(minutes(1))
    before = world.calls.total()

    held = world.tick(minutes(1))

    assert held.outcome is Outcome.HELD
    assert world.calls.total() - before - LOCK_CALLS <= 3


def test_a_launch_that_succeeds_first_time_adds_at_most_three_calls() -> None:
    world = ControlWorld()
    world.send()
    world.tick()
    world.send(200)
    before = world.calls.copy()

    decision = world.tick(minutes(1))

    made = world.calls - before
    assert decision.outcome is Outcome.LAUNCHED
    assert made.total() - LOCK_CALLS <= 6, made


def test_holds_a_launch_for_more_work_and_launches_when_the_promise_is_due() -> None:
    world = with_policy(scale_up_threshold=10, start_within=minutes(30))
    world.send(2)

    decisions = [world.tick(), *world.run(30)]

    launched_at = next(d.at for d in decisions if d.outcome is Outcome.LAUNCHED)
    held = [d for d in decisions if d.outcome is Outcome.HELD]
    # 30 min less a boot of 3, a tick and a retry, and 6 min of the first job for the second.
    assert launched_at == NOW + minutes(19)
    assert {d.held_until for d in held} == {NOW + minutes(19)}
    assert "2 of 10 messages" in held[0].summary
    assert world.metrics.values("Held")[0] == 1


def test_launches_at_once_when_the_threshold_is_reached_while_holding() -> None:
    world = with_policy(scale_up_threshold=3, start_within=minutes(30))
    world.send(2)
    held = world.tick()
    world.send(1)

    assert held.outcome is Outcome.HELD
    assert world.tick(minutes(1)).outcome is Outcome.LAUNCHED


@pytest.mark.parametrize(
    ("before", "backlog", "since"),
    [
        pytest.param(BacklogRow(), Backlog(visible=0, in_flight=0), None, id="nothing-waits"),
        pytest.param(BacklogRow(), Backlog(visible=2, in_flight=0), NOW, id="work-has-come"),
        pytest.param(
            BacklogRow(backlog_since=NOW - minutes(4), claims=3, claims_seen=3),
            Backlog(visible=2, in_flight=0),
            NOW - minutes(4),
            id="still-nobody-has-claimed",
        ),
        pytest.param(
            BacklogRow(backlog_since=NOW - minutes(4), claims=4, claims_seen=3),
            Backlog(visible=2, in_flight=1),
            NOW,
            id="a-claim-starts-the-clock-anew",
        ),
        pytest.param(
            BacklogRow(backlog_since=NOW - minutes(4)),
            Backlog(visible=0, in_flight=2),
            None,
            id="all-of-it-is-in-flight",
        ),
    ],
)
def test_the_clock_of_waiting_work(before: BacklogRow, backlog: Backlog, since: Any) -> None:
    assert follow(before, backlog, NOW).backlog_since == since


def test_learns_the_gap_between_no_work_and_new_work() -> None:
    world = ControlWorld()
    world.run(3)
    world.send()
    world.tick(minutes(1))

    assert world.view().rates[rows.GAP_RATE].samples == (180.0,)


def test_a_row_that_cannot_be_read_is_skipped_and_counted() -> None:
    world = ControlWorld()
    worker = world.launched(3)
    world.put("worker#i-bad", instance_id="i-bad", state="dancing")
    world.put("lease#i-bad#0", job_id="job-9", epoch="first")
    world.put(rows.BREAKER, strikes="many")

    decision = world.tick(minutes(1))

    assert set(decision.bad_rows) == {"worker#i-bad", "lease#i-bad#0", "breaker"}
    assert world.metric("BadRows") == 3
    assert worker.instance_id in world.view().workers


def test_rows_of_a_later_version_keep_the_fields_that_are_not_known_here() -> None:
    world = ControlWorld()
    worker = world.launched()
    sort = rows.worker_sort(worker.instance_id)
    world.put(sort, battery="full")

    world.run(2)

    assert (world.row(sort) or {})["battery"] == "full"


def test_a_decision_is_stored_when_it_changes_and_only_then() -> None:
    world = ControlWorld()
    world.run(5)
    idle = [found.key for found in world.objects.list(decision_prefix(WORKLOAD))]
    world.send()
    world.tick(minutes(1))
    keys = [found.key for found in world.objects.list(decision_prefix(WORKLOAD))]

    row = world.view().decision
    assert len(idle) == 1
    assert len(keys) == 2
    assert row is not None
    assert row.key == keys[-1]
    stored = json.loads(world.objects.get(row.key).data)
    assert stored["outcome"] == "launched"
    assert stored["candidates"][0]["offer"] == "g4dn.xlarge/us-west-2a/spot"
    parts = stored["candidates"][0]["parts"]
    assert sum(parts.values()) == pytest.approx(stored["candidates"][0]["cost_per_item"])


def test_a_decision_that_could_not_be_stored_is_stored_by_the_next_tick() -> None:
    world = ControlWorld()
    failures = [Unreachable("no answer")]

    def fail(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.port == "objects" and call.method == "put" and failures:
            raise failures.pop()
        return proceed()

    world.interfere = fail
    world.tick()
    lost = list(world.objects.list(decision_prefix(WORKLOAD)))
    world.tick(minutes(1))

    assert lost == []
    assert len(list(world.objects.list(decision_prefix(WORKLOAD)))) == 1


def test_every_offer_that_is_not_taken_has_its_reason() -> None:
    world = with_policy(max_price_per_hour=0.3)
    world.dry(a_pool_of("g4dn.xlarge"))
    world.send()
    world.tick()
    world.send(400)

    decision = world.tick(minutes(1))

    offers = len(decision.candidates) + sum(r.offers for r in decision.rejections)
    assert offers == 3 * 2 * 2
    assert {r.reason for r in decision.rejections} == {"max_price_per_hour", "unavailable"}


def test_a_live_edit_is_in_force_at_the_very_next_tick() -> None:
    world = with_policy(max_workers=1, drain_within=minutes(10))
    world.send(100)
    world.tick()

    edit_policy(WORKLOAD, {"max_workers": 3}, settings=world.settings, table=world.table)
    decision = world.tick(timedelta(seconds=5))

    assert decision.policy_version == 1
    assert len(world.workers()) == 3


def test_an_invalid_edit_leaves_the_last_good_one_in_force_and_is_said() -> None:
    world = with_policy(max_workers=1, drain_within=minutes(10))
    edit_policy(WORKLOAD, {"max_workers": 2}, settings=world.settings, table=world.table)
    world.tick()
    world.settings.put_live(WORKLOAD, '{"max_workers": "many"}')
    world.send(100)

    decision = world.tick(minutes(6))

    assert "max_workers" in decision.policy_refusal
    assert decision.policy_version == 1
    assert world.metric("PolicyInvalid") == 1
    assert len(world.workers()) == 2
    assert world.view().policy.refused_version == 2


def test_an_unknown_workload_is_an_error_and_leaves_the_lock_free() -> None:
    world = ControlWorld()

    with pytest.raises(NotFound):
        reconcile("nobody", world.ports, holder="h")
    with pytest.raises(NotFound):
        reconcile("nobody", world.ports, holder="h")


def test_a_tick_that_cannot_read_the_queue_frees_the_lock_for_the_next() -> None:
    world = ControlWorld()
    world.send()
    failures = [Unreachable("no answer")]

    def fail(call: PortCall, proceed: Callable[[], Any]) -> Any:
        if call.method == "backlog" and failures:
            raise failures.pop()
        return proceed()

    world.interfere = fail
    with pytest.raises(Unreachable):
        world.tick()

    assert world.tick(timedelta(seconds=1)).outcome is Outcome.LAUNCHED


def test_rows_in_the_way_of_other_transactions_delay_a_write_and_lose_nothing() -> None:
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
    message = world.queue.receive(wait=timedelta(0), visibility=minutes(1))
    assert message is not None
    world.queue.delete(message.receipt_handle)
    world.compute.power_off(worker.instance_id)

    world.run(25)

    past = world.table.query(rows.history_partition(WORKLOAD))
    assert world.view().workers == {}
    assert world.view().launches == {}
    assert set(past) == {f"worker#{worker.instance_id}", f"launch#{worker.launch_id}"}
    assert all(isinstance(row["expires"], int) for row in past.values())


def test_old_days_and_forgotten_pools_leave_the_live_partition() -> None:
    world = ControlWorld()
    for day in range(50):
        world.put(f"spend#2026-0{1 + day // 25}-{1 + day % 25:02d}", dollars=1.0)
    world.put(
        rows.unavailable_sort(a_pool()),
        pool=a_pool(),
        until=NOW - minutes(60),
        strikes=1,
        reason="dry",
    )

    world.run(2)

    assert len(world.view().spend) == 40
    assert world.view().unavailable == {}
    assert len(world.table.query(rows.history_partition(WORKLOAD), "spend#")) == 10


def test_every_metric_is_in_the_table_with_its_dimensions() -> None:
    world = ControlWorld(budget=100.0)
    world.launched(3)
    world.send(400)
    world.run(3)

    for datum in world.metrics.data:
        metric = METRICS[datum.name]
        assert set(datum.dimensions) == set(metric.dimensions), datum
        assert metric.emitters & {Emitter.SCALER, Emitter.OFFERS}


def test_a_worker_that_ec2_takes_away_is_replaced_before_its_job_is_visible_again() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    world.put(rows.worker_sort(worker.instance_id), interrupted_at=world.now + minutes(2))

    decision = world.tick()

    assert decision.outcome is Outcome.LAUNCHED
    assert decision.visible == 0
    assert len(world.workers(WorkerState.BOOTING)) == 1


def test_a_ledger_that_lost_everything_finds_its_instances_again() -> None:
    world = ControlWorld()
    worker = world.launched()
    world.claim(worker.instance_id)
    for sort in list(world.table.query(workload_partition(WORKLOAD))):
        world.remove(sort)

    world.run(20)

    # Not adoptable without its launch row: ended, so that nothing bills unseen.
    view = world.compute.instance(region="us-west-2", instance_id=worker.instance_id)
    assert view.state == "terminated"


def test_tells_workers_which_code_is_deployed() -> None:
    world = ControlWorld()

    world.tick()
    first = (world.row(rows.POLICY) or {})["code_digest"]
    world.settings.deploy(replace(world.workload_settings(), run=RunSettings(code_digest="new")))
    world.run(6)

    assert (first, (world.row(rows.POLICY) or {})["code_digest"]) == ("abc", "new")
