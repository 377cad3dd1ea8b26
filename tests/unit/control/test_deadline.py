"""Jobs with a deadline: the ladder opens by their slack, and they move while they run."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.contract.codec import encode
from spindown.contract.decision import Decision, Outcome, RequestOutcome
from spindown.contract.row import (
    lease_sort_key,
    requeued_sort_key,
    throughput_sort_key,
    worker_sort_key,
)
from spindown.domain.fleet import RequeuedJob, Worker, WorkerState
from spindown.domain.reason import ReasonCode
from spindown.reason_text import say_notes
from tests.builders import ON_DEMAND, SPOT, minutes
from tests.control import ControlWorld, every_spot_pool, pools, with_policy

HOUR = timedelta(hours=1)


def a_world(*, hours: float = 10.0, **policy: Any) -> ControlWorld:
    """Return a world that has measured jobs of 100 items on every GPU at 100 items an hour."""
    changes = {"finish_within": hours * HOUR, "start_within": minutes(6), "max_workers": 2}
    world = with_policy(**{**changes, **policy})
    for gpu in ("T4", "L4", "A10G"):
        samples = {"count": 10_000.0, "hours": 100.0, "reports": 100, "lives": 100}
        world.put(throughput_sort_key(gpu, 1.0), **samples)
    return world


def a_running_job(world: ControlWorld, *, done: int = 0, sent: float = 0.0) -> Worker:
    """Let a worker take a job that was sent so many hours ago, of which some items are done."""
    (worker,) = world.workers(WorkerState.BOOTING)
    world.clock.advance(minutes(2))
    world.check_in(worker.instance_id)
    world.claim(worker.instance_id)
    world.put(
        lease_sort_key(worker.instance_id, 0),
        **encode({"sent_at": world.now - sent * HOUR, "items": 1000, "items_done": done}),
    )
    world.put(lease_sort_key(worker.instance_id, 0), first_item=done)
    return world.view().workers[worker.instance_id]


def ticks(world: ControlWorld, count: int) -> list[Decision]:
    """Tick every minute while workers show that they live."""
    found = []
    for _ in range(count):
        world.beat()
        found.append(world.tick(minutes(1)))
    return found


def pass_time(world: ControlWorld, length: int) -> None:
    """Let so many minutes pass without a tick."""
    for _ in range(length // 3):
        world.clock.advance(minutes(3))
        world.beat()


def without_spot(world: ControlWorld) -> ControlWorld:
    world.dry(*every_spot_pool())
    return world


def test_with_time_to_wait_only_spot_is_bought_however_late() -> None:
    world = without_spot(a_world())
    world.send()

    decisions = [world.tick(), *ticks(world, 60)]

    assert not world.workers()
    assert {each.outcome for each in decisions} <= {Outcome.REFUSED, Outcome.HELD}
    (deadline,) = decisions[-1].deadlines
    assert (deadline.job_id, deadline.mode) == ("", "wait-for-spot")
    assert deadline.waits_until is not None


def test_what_is_said_of_jobs_that_nobody_has_begun_counts_them() -> None:
    world = without_spot(a_world())
    world.send(3)

    notes = say_notes(world.tick())

    assert any(note.startswith("3 jobs ") for note in notes)


def test_without_a_deadline_the_ladder_opens_by_waiting() -> None:
    world = without_spot(with_policy(start_within=minutes(6)))
    world.send()
    world.tick()

    ticks(world, 7)

    assert [worker.capacity_type for worker in world.workers()] == [ON_DEMAND]


def test_until_anything_is_measured_the_ladder_opens_by_waiting() -> None:
    world = without_spot(with_policy(start_within=minutes(6), finish_within=10 * HOUR))
    world.send()
    world.tick()

    decisions = ticks(world, 7)

    assert [worker.capacity_type for worker in world.workers()] == [ON_DEMAND]
    assert decisions[-1].deadlines == ()


def test_what_can_wait_no_longer_is_bought_on_demand() -> None:
    world = without_spot(a_world(hours=3.0))
    world.send()
    world.tick()

    decisions = ticks(world, 60)

    first = next(decision for decision in decisions if pools(decision))
    assert pools(first)[0].endswith("/on-demand")
    # 3 h less an hour of work and three changes of 35 min: nothing has been lost yet, so that a
    # checkpoint is taken every 30 min.
    assert first.at - decisions[0].at == pytest.approx(minutes(13), abs=minutes(3))


def test_one_urgent_job_does_not_send_all_others_to_on_demand() -> None:
    world = without_spot(a_world(hours=9.0, max_workers=8))
    world.send(3)
    sent_at = world.now - 8.5 * HOUR
    due = RequeuedJob(job_id="old", sent_at=sent_at, items=100, items_done=70, at=world.now)
    world.put(requeued_sort_key("old"), **encode(due))

    decision = world.tick()

    assert [pool.rpartition("/")[2] for pool in pools(decision)] == ["on-demand"]
    assert decision.deadlines[0].job_id == "old"


def test_a_job_nobody_holds_is_forgotten_with_an_empty_queue() -> None:
    world = a_world()
    due = RequeuedJob(job_id="gone", sent_at=world.now, items=100, items_done=0, at=world.now)
    world.put(requeued_sort_key("gone"), **encode(due))

    ticks(world, 20)

    assert world.row(requeued_sort_key("gone")) is None


def on_demand_for_lack_of_spot(world: ControlWorld, **job: Any) -> Worker:
    """Let a job run on demand, and spot come back."""
    without_spot(world)
    world.send()
    due = RequeuedJob(
        job_id="job-1", sent_at=world.now - 20 * HOUR, items=100, items_done=0, at=world.now
    )
    world.put(requeued_sort_key("job-1"), **encode(due))
    world.tick()
    world.remove(requeued_sort_key("job-1"))
    worker = a_running_job(world, **job)
    assert worker.capacity_type is ON_DEMAND
    for pool in every_spot_pool():
        world.compute.set_capacity(pool, None)
    pass_time(world, 30)
    return worker


def test_a_job_on_demand_and_ahead_goes_back_to_spot() -> None:
    world = a_world(hours=20.0)
    old = on_demand_for_lack_of_spot(world)

    launched = world.tick()

    assert launched.outcome is Outcome.LAUNCHED
    assert launched.summary.sizing.code is ReasonCode.TO_SPOT
    (takeover,) = world.workers(WorkerState.BOOTING)
    assert takeover.capacity_type is SPOT
    assert takeover.warm_until is not None
    ticks(world, 2)
    assert world.view().workers[old.instance_id].migrating_at is None
    assert len(world.workers()) == 2

    world.check_in(takeover.instance_id)
    (told,) = ticks(world, 1)

    assert world.view().workers[old.instance_id].migrating_at == told.at
    assert [(each.kind, each.subject) for each in told.actions] == [("migrate", old.instance_id)]
    assert len(world.workers()) == 2


def test_a_takeover_stays_idle_until_the_job_is_handed_over() -> None:
    world = a_world(hours=20.0, idle_timeout=timedelta(seconds=5))
    on_demand_for_lack_of_spot(world)
    world.tick()
    (takeover,) = world.workers(WorkerState.BOOTING)
    world.check_in(takeover.instance_id)

    ticks(world, 4)

    assert world.view().workers[takeover.instance_id].state is WorkerState.IDLE


@pytest.mark.parametrize(
    ("why", "hours", "most", "job"),
    [
        ("it is not far enough ahead", 10.0, 2, {}),
        ("there is no room for two", 20.0, 1, {}),
        ("too little is left to be worth it", 20.0, 2, {"done": 990}),
    ],
)
def test_a_job_stays_on_demand_if(why: str, hours: float, most: int, job: dict[str, int]) -> None:
    world = a_world(hours=hours, max_workers=most)
    old = on_demand_for_lack_of_spot(world, **job)

    ticks(world, 5)

    assert [worker.instance_id for worker in world.workers()] == [old.instance_id], why


def test_a_job_that_could_lose_no_machine_moves_on_demand() -> None:
    world = a_world(hours=10.1)
    world.send()
    world.tick()
    old = a_running_job(world, sent=0.1)

    decision = world.tick()

    assert old.capacity_type is SPOT
    assert [pool.rpartition("/")[2] for pool in pools(decision)] == ["on-demand"]
    assert decision.deadlines[0].moves_to == "on-demand"


def test_a_job_on_spot_with_time_moves_only_to_cheaper_spot() -> None:
    world = a_world(hours=20.0)
    world.dry(*[pool for pool in every_spot_pool() if pool.instance_type != "g5.xlarge"])
    world.send()
    world.tick()
    old = a_running_job(world)
    assert old.instance_type == "g5.xlarge"
    assert all(not pools(decision) for decision in ticks(world, 40))

    for pool in every_spot_pool():
        world.compute.set_capacity(pool, None)
    ticks(world, 31)

    (takeover,) = world.workers(WorkerState.BOOTING)
    assert takeover.instance_type == "g4dn.xlarge"


def test_a_worker_is_told_to_leave_once_and_counts_no_more() -> None:
    world = a_world(hours=20.0)
    old = on_demand_for_lack_of_spot(world)
    world.put(worker_sort_key(old.instance_id), migrating_at=encode(world.now))

    ticks(world, 3)

    # The worker goes on as if it had not been told; nothing more is launched for it.
    assert [worker.instance_id for worker in world.workers()] == [old.instance_id]


def test_an_interrupted_job_waits_for_spot_while_it_has_time() -> None:
    world = a_world(hours=40.0)
    world.send()
    world.tick()
    old = a_running_job(world)
    without_spot(world)
    world.put(worker_sort_key(old.instance_id), interrupted_at=encode(world.now + minutes(2)))

    decision = world.tick()

    assert not pools(decision)
    assert decision.deadlines[0].on == ""
    assert decision.deadlines[0].mode == "wait-for-spot"


def test_an_ended_worker_s_job_is_remembered_with_its_progress() -> None:
    world = a_world(hours=40.0)
    world.send()
    world.tick()
    old = a_running_job(world, done=400)
    without_spot(world)
    world.end(old.instance_id)

    decision = world.tick()

    row = world.row(requeued_sort_key("job-1"))
    assert row is not None
    assert row["items_done"] == 400
    assert decision.deadlines[0].work_seconds == pytest.approx(6 * 3600, rel=0.05)


def test_a_job_whose_worker_fell_silent_keeps_its_deadline() -> None:
    world = a_world()
    world.send()
    world.tick()
    old = a_running_job(world, done=900, sent=8.0)
    sent_at = world.now - 8.0 * HOUR
    without_spot(world)

    decision = world.tick(minutes(6))

    # Its message shows again, but the worker is given up only after ten minutes.
    assert world.queue.backlog().visible == 1
    assert [worker.instance_id for worker in world.workers(WorkerState.BUSY)] == [old.instance_id]
    (record,) = decision.deadlines
    assert (record.job_id, record.on) == ("job-1", "")
    assert record.due_at == sent_at + 10.0 * HOUR


def test_people_hear_of_jobs_past_or_near_their_deadline() -> None:
    world = a_world(hours=5.0)
    world.send()
    world.tick()
    a_running_job(world)

    at_risk = ticks(world, 1)[-1]

    assert at_risk.deadlines[0].slack_seconds < 0
    assert at_risk.deadlines[0].slack_seconds < 0
    (text,) = [text for subject, text in world.topic.said if "deadline-at-risk" in subject]
    assert "finish_within" in text
    assert world.metric("DeadlineSlack") < 0

    pass_time(world, 300)
    late = ticks(world, 1)[-1]

    assert late.deadlines[0].due_at < late.at
    assert any("deadline-missed" in subject for subject, _ in world.topic.said)


def test_nobody_hears_of_work_that_waits_on_purpose() -> None:
    world = without_spot(a_world(hours=20.0))
    world.send()
    world.tick()

    ticks(world, 60)

    assert not world.topic.said


def test_a_live_edit_gives_running_jobs_a_deadline() -> None:
    world = a_world()
    world.settings.put_live("classify", '{"finish_within": "30m"}')
    world.send()

    world.tick()
    old = a_running_job(world)
    decision = world.tick()

    assert decision.deadlines[0].due_at == replace(old).claimed_at + minutes(30)  # type: ignore[operator]


def test_an_adopted_launch_takes_no_place_of_a_takeover() -> None:
    world = a_world(hours=10.0, max_workers=3)
    world.send()
    world.tick()
    worker = a_running_job(world, sent=0.05)
    world.put(lease_sort_key(worker.instance_id, 0), items=100)
    world.send()
    world.compute.lose_next_answer(is_carried_out=True)
    world.tick()
    late = encode({"sent_at": world.now - 9 * HOUR})
    world.put(lease_sort_key(worker.instance_id, 0), **late)

    decision = world.tick()

    given = {a.outcome: list(a.instances.values()) for a in decision.requests}
    assert len(given[RequestOutcome.ADOPTED]) == 1
    assert [pool.rpartition("/")[2] for pool in given[RequestOutcome.LAUNCHED]] == ["on-demand"]
