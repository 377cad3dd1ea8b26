"""The whole worker with its threads and real children, over ports in memory and a real clock."""

import itertools
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spindown.contract.job.manifest import JobState
from spindown.contract.usage import UsageEnd, decode_usage, measured_prefix
from spindown.domain.fleet import WorkerState
from spindown.domain.policy import Dispatch
from spindown.domain.reason import Reason, ReasonCode
from spindown.error import NotFound
from spindown.job.worker_row import Condemned
from spindown.worker.action import say_duration
from spindown.worker.usage.summary import summarise
from tests.basket import Basket
from tests.plant import ECHO, QUICK, Plant
from tests.work import WORKLOAD, items
from tests.worker.usage.machine import GIB, Device, gpus_of

PATIENT = replace(QUICK, idle_timeout=timedelta(hours=1))
SLEEPER = """
    import threading
    from spindown.user import Result
    def run(batch, ctx):
        for item in batch:
            if item.index >= 2:
                threading.Event().wait()
            yield Result(item, ctx.slot)
"""
STEPPER = """
    import threading
    from pathlib import Path
    from spindown.user import Result
    def run(batch, ctx):
        while not (Path(__file__).parents[1] / "go").exists():
            threading.Event().wait(0.02)
        return [Result(item, item.value) for item in batch]
"""
BURNER = """
    from pathlib import Path
    from spindown.user import Result
    def run(batch, ctx):
        while not (Path(__file__).parents[1] / "go").exists():
            sum(range(99_999))
        return [Result(item, item.value) for item in batch]
"""

SILENT = Reason(ReasonCode.NEVER_CHECKED_IN, {"within_seconds": 600.0})


def test_works_until_there_is_nothing_more_and_ends_itself(plant: Callable[..., Plant]) -> None:
    one = plant()
    for name in ("a", "b", "c"):
        one.world.send({"job_id": name, "items": items(3)})
    one.start()
    one.join()
    for name in ("a", "b", "c"):
        assert one.world.manifest(name).state is JobState.COMPLETED
    assert one.world.queue.bodies() == []
    worker = one.world.worker()
    assert (worker.state, worker.reason) == (WorkerState.DRAINED, Reason(ReasonCode.IDLE))
    assert worker.checked_in_at is not None
    [line] = one.events("idle_timeout")
    assert " 0.3 seconds" in line["message"]
    assert one.has_powered_off
    assert one.world.metrics.values("ItemsDone") == [3, 3, 3]
    assert len(one.world.metrics.values("BootSeconds")) == 1
    # No kernel of its own was started for it, nor was anything installed.
    assert worker.first_item_at is not None
    assert set(worker.boot_phases) == {"fitness", "first-item"}


CRASHER = """
    import os
    def run(batch, ctx):
        os._exit(3)
"""


@pytest.mark.parametrize(
    ("source", "waits", "reason"),
    [
        pytest.param(ECHO, {"b"}, ReasonCode.JOB_OVER, id="completed"),
        pytest.param(CRASHER, {"a", "b"}, ReasonCode.JOBS_FAILED, id="failed"),
    ],
)
def test_a_dedicated_machine_takes_one_job_and_ends(
    plant: Callable[..., Plant], source: str, waits: set[str], reason: ReasonCode
) -> None:
    one = plant(source, policy=replace(PATIENT, dispatch=Dispatch.DEDICATED))
    for name in ("a", "b"):
        one.world.send({"job_id": name, "items": items(3)})
    one.start()
    one.join()
    worker = one.world.worker()
    assert (worker.state, worker.reason) == (WorkerState.DRAINED, Reason(reason))
    assert one.has_powered_off
    assert {json.loads(body)["job_id"] for body in one.world.queue.bodies()} == waits
    assert len(one.events("job_claimed")) == 1


def test_a_dedicated_machine_that_split_a_job_takes_a_part(plant: Callable[..., Plant]) -> None:
    one = plant(policy=replace(PATIENT, dispatch=Dispatch.DEDICATED, max_items_per_job=2))
    one.world.send({"job_id": "a", "items": items(3)})
    one.start()
    one.join()
    assert one.world.worker().reason == Reason(ReasonCode.JOB_OVER)
    assert len(one.world.queue.bodies()) == 1
    assert len(one.events("job_completed")) == 1


def test_heartbeats_tell_how_the_gpus_are_used_while_a_job_runs(
    plant: Callable[..., Plant], tmp_path: Path
) -> None:
    devices = [
        Device(gpu=gpu, used=gib * GIB, total=16 * GIB, power=1) for gpu, gib in ((20, 2), (60, 4))
    ]
    one = plant(STEPPER, find_gpus=lambda: gpus_of(*devices))
    one.world.send({"job_id": "a", "items": items(1)})
    one.start(gpu_count=2.0)

    one.until(lambda: one.world.worker().gpu_percent is not None)

    told = one.world.worker()
    assert (told.gpu_percent, told.vram_percent, told.vram_gib) == (40.0, 25.0, 4.0)
    (tmp_path / "go").touch()
    one.join()


def test_without_a_gpu_heartbeats_tell_nothing_of_one(plant: Callable[..., Plant]) -> None:
    one = plant()
    one.world.send({"job_id": "a", "items": items(1)})
    one.start()
    one.join()

    assert one.world.worker().gpu_percent is None


def test_sends_its_log_at_heartbeats_and_before_it_powers_off(
    plant: Callable[..., Plant],
) -> None:
    one, basket = plant(STEPPER), Basket()
    one.log.ship(basket)
    one.world.send({"job_id": "a", "items": items(1)})
    one.start()
    one.until(lambda: "job_claimed" in basket.sent)
    assert not one.has_powered_off
    (one.scratch / "go").touch()
    one.join()
    assert basket.sent[-3:] == ["draining", "drained", "powering_off"]
    assert basket.waiting == []


def test_writes_how_well_each_job_used_the_machine(
    plant: Callable[..., Plant], tmp_path: Path
) -> None:
    one = plant(BURNER)
    one.world.send({"job_id": "a", "items": items(1)})
    one.start()
    one.until(lambda: bool(one.events("job_claimed")))
    (tmp_path / "go").touch()
    one.join()
    [found] = one.world.objects.list(measured_prefix(WORKLOAD))
    [record] = decode_usage(one.world.objects.get(found.key).data, workload=WORKLOAD)
    assert (record.job_id, record.items, record.end) == ("a", 1, UsageEnd.COMPLETED)
    assert record.cpu_mean is not None
    assert record.cpu_mean > 0.0
    assert record.memory_max is not None
    assert 0.0 < record.memory_max < record.memory_gib
    [line] = one.events("job_used")
    assert line["summary"] == summarise(record)


def test_one_notice_drains_all_four_slots(plant: Callable[..., Plant]) -> None:
    one = plant(SLEEPER)
    names = ["a", "b", "c", "d"]
    for name in names:
        one.world.send({"job_id": name, "items": items(5)})
    launched_at = one.world.clock.now() - timedelta(hours=2)
    one.start(slots=4, gpu_count=4.0, launched_at=launched_at)
    one.until(lambda: one.world.worker().busy_slots == 4)
    one.until(lambda: sum(one.items_done(slot) for slot in range(4)) == 8)
    one.metadata.announce_interruption(one.world.clock.now() + timedelta(seconds=1.5))
    one.join()
    for name in names:
        manifest = one.world.manifest(name)
        assert (manifest.next_item, manifest.released, manifest.interruptions) == (2, True, 1)
    assert one.world.queue.backlog().visible == 4
    assert [one.world.lease_row(f"i-1/{slot}") for slot in range(4)] == [None] * 4
    assert {r.result for name in names for r in one.world.records(name)} == {0, 1, 2, 3}
    assert one.world.worker().state is WorkerState.DRAINED
    assert len(one.events("interruption_noticed")) == 1
    # After the first hour nothing is free of charge.
    assert one.has_powered_off


def test_waits_to_be_reclaimed_within_the_first_hour(plant: Callable[..., Plant]) -> None:
    one = plant(policy=PATIENT)
    one.start()
    one.until(lambda: one.world.worker().state is WorkerState.IDLE)
    one.metadata.announce_interruption(one.world.clock.now() + timedelta(seconds=1.2))
    one.until(lambda: bool(one.events("waiting_to_be_reclaimed")))
    assert not one.has_powered_off
    one.stop()
    assert not one.has_powered_off


def test_a_request_to_stop_commits_and_gives_back_what_is_held(
    plant: Callable[..., Plant],
) -> None:
    one = plant(SLEEPER)
    one.world.send({"job_id": "a", "items": items(5)})
    one.start()
    one.until(lambda: one.items_done(0) == 2)
    one.daemon.stop()
    one.join()
    manifest = one.world.manifest("a")
    assert (manifest.next_item, manifest.released, manifest.interruptions) == (2, True, 0)
    assert one.world.queue.backlog().visible == 1
    assert one.has_powered_off


def test_waits_for_its_row_if_it_was_quicker_than_its_launch(plant: Callable[..., Plant]) -> None:
    one = plant(check_in_patience=timedelta(minutes=1))
    looks = itertools.count()

    def launch_late(call: Any) -> None:
        if (call.port, call.method) == ("table", "get") and next(looks) == 1:
            one.world.launch("i-1")

    one.world.before = launch_late
    one.thread.start()
    one.join()
    assert one.world.worker().state is WorkerState.DRAINED


def test_gives_up_when_nobody_has_launched_it(plant: Callable[..., Plant]) -> None:
    one = plant()
    with pytest.raises(NotFound, match="i-1"):
        one.daemon.run()


def test_does_not_work_when_condemned_before_its_check_in(
    plant: Callable[..., Plant],
) -> None:
    one = plant()
    one.world.launch("i-1", state=WorkerState.CONDEMNED, reason=SILENT)
    with pytest.raises(Condemned, match="never-checked-in"):
        one.daemon.run()


def test_a_restarted_worker_lets_its_old_leases_go(plant: Callable[..., Plant]) -> None:
    one = plant()
    one.world.worker_row("i-1")
    one.world.hold({"job_id": "a", "items": items(2)})
    one.thread.start()
    one.join()
    manifest = one.world.manifest("a")
    assert (manifest.state, manifest.epoch, manifest.losses) == (JobState.COMPLETED, 2, 1)


@pytest.mark.parametrize("lived", [timedelta(0), timedelta(hours=2)], ids=str)
def test_leaves_at_its_lifetime_also_at_one_that_is_long_over(
    plant: Callable[..., Plant], lived: timedelta
) -> None:
    def take_time(call: Any) -> None:
        if call.method == "put" and one.events("lifetime_over"):
            threading.Event().wait(0.8)

    one = plant(SLEEPER)
    one.world.before = take_time
    one.world.send({"job_id": "a", "items": items(5)})
    one.start(launched_at=one.world.clock.now() - lived)
    one.until(lambda: one.items_done(0) == 2)
    one.world.set_policy(
        replace(QUICK, max_lifetime=timedelta(0), lifetime_grace=timedelta(seconds=2))
    )
    one.join()
    assert one.world.worker().reason.code is ReasonCode.LIFETIME
    assert one.world.manifest("a").released


def test_leaves_at_its_lifetime_though_told_to_end_its_last_job(
    plant: Callable[..., Plant],
) -> None:
    one = plant(SLEEPER, policy=PATIENT)
    one.world.send({"job_id": "a", "items": items(5)})
    one.start()
    one.until(lambda: one.items_done(0) == 2)
    one.world.set_policy(replace(PATIENT, max_workers=0))
    one.until(lambda: bool(one.events("draining")))
    assert not one.events("lifetime_over")
    over = replace(PATIENT, max_workers=0, max_lifetime=timedelta(0), lifetime_grace=timedelta(0))
    one.world.set_policy(over)
    one.join()
    assert one.events("lifetime_over")
    assert one.world.manifest("a").released
    assert one.world.manifest("a").failures == ()
    assert one.world.worker().state is WorkerState.DRAINED


@pytest.mark.parametrize("is_told", [False, True])
def test_ends_after_its_job_once_the_limits_allow_no_worker(
    plant: Callable[..., Plant], *, is_told: bool
) -> None:
    one = plant(STEPPER, policy=PATIENT)
    one.world.send({"job_id": "a", "items": items(3)})
    one.start()
    one.until(lambda: one.next_item("a") == 0)
    one.world.send({"job_id": "b", "items": items(1)})
    if is_told:
        one.world.change_worker(one.world.worker().instance_id, surplus_at=one.world.clock.now())
    else:
        one.world.set_policy(replace(PATIENT, max_workers=0))
    one.until(lambda: bool(one.events("draining")))
    (one.scratch / "go").touch()
    one.join()
    assert one.world.manifest("a").state is JobState.COMPLETED
    assert one.world.queue.backlog().visible == 1
    worker = one.world.worker()
    assert (worker.state, worker.reason) == (WorkerState.DRAINED, Reason(ReasonCode.NO_ROOM))
    assert one.has_powered_off


def test_unloadable_code_fails_the_job_and_the_worker_lives(
    plant: Callable[..., Plant],
) -> None:
    one = plant("raise RuntimeError('no licence')")
    one.world.send({"job_id": "a", "items": items(2)})
    one.start()
    one.join()
    [failure] = one.world.manifest("a").failures
    assert failure.reason.endswith("RuntimeError: no licence")
    assert one.world.worker().reason.code is ReasonCode.IDLE


def test_takes_a_job_that_arrives_at_the_last_poll(plant: Callable[..., Plant]) -> None:
    one = plant()
    sent = iter([True])

    def arrive(call: Any) -> None:
        if call.method == "receive" and has_waited(one) and next(sent, False):
            one.world.send({"job_id": "late", "items": items(1)})

    one.world.before = arrive
    one.start()
    one.join()
    assert one.next_item("late") == 1
    assert one.world.worker().state is WorkerState.DRAINED


def test_stays_while_it_is_kept_warm_and_ends_when_it_is_not(plant: Callable[..., Plant]) -> None:
    one = plant()
    now = one.world.clock.now()
    one.start(warm_until=now + timedelta(seconds=1.5))
    one.join()
    worker = one.world.worker()
    assert (worker.state, worker.reason) == (WorkerState.DRAINED, Reason(ReasonCode.IDLE))
    assert one.world.clock.now() - now >= timedelta(seconds=1.5)


def test_what_a_tick_keeps_warm_at_the_last_moment_stays(plant: Callable[..., Plant]) -> None:
    one = plant()
    one.world.set_policy(replace(QUICK, heartbeat_interval=timedelta(seconds=1)))
    until = one.world.clock.now() + timedelta(seconds=2.5)

    def keep(call: Any) -> None:
        # The worker has not heard of it when it asks for its end.
        if call.method == "receive" and has_waited(one):
            one.world.change_worker("i-1", warm_until=until)

    one.world.before = keep
    one.start()
    one.join()
    assert one.world.clock.now() >= until
    assert one.world.worker().reason.code is ReasonCode.IDLE


def has_waited(one: Plant) -> bool:
    row = one.world.table.get(one.world.worker_key("i-1"))
    since = None if row is None else one.world.worker().idle_since
    return since is not None and one.world.clock.now() - since >= timedelta(seconds=0.25)


@pytest.mark.parametrize(
    ("length", "words"),
    [
        (timedelta(minutes=10), "10 minutes"),
        (timedelta(minutes=1), "1 minute"),
        (timedelta(hours=1), "1 hour"),
        (timedelta(seconds=90), "90 seconds"),
        (timedelta(seconds=2.5), "2.5 seconds"),
    ],
    ids=str,
)
def test_says_a_duration_as_people_do(length: timedelta, words: str) -> None:
    assert say_duration(length) == words
