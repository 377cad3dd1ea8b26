"""A worker that gets no answer when it starts or ends loses no job, and ends all the same."""

import errno
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spindown.contract.job.manifest import JobState
from spindown.domain.fleet import WorkerState
from spindown.domain.reason import Reason, ReasonCode
from spindown.error import AccessDenied, SpindownError, Unreachable
from tests.plant import QUICK, Plant
from tests.work import items

PATIENT = replace(QUICK, idle_timeout=timedelta(hours=1))


def fail_once(method: str, when: Callable[[], bool]) -> Callable[[Any], None]:
    """Return what fails one call of a method, as soon as something holds."""
    left = iter([True])

    def fail(call: Any) -> None:
        if call.method == method and when() and next(left, False):
            raise Unreachable("no answer")

    return fail


def test_asks_again_for_its_end_after_a_lost_answer(
    plant: Callable[..., Plant],
) -> None:
    one = plant()
    one.world.before = fail_once("receive", lambda: threading.current_thread() is one.thread)
    one.start()
    one.join()
    assert len(one.events("end_not_asked_for")) == 1
    assert (one.world.worker().state, one.world.worker().reason) == (
        WorkerState.DRAINED,
        Reason(ReasonCode.IDLE),
    )
    assert one.has_powered_off


@pytest.mark.parametrize(
    ("error", "delay", "asked"),
    [
        pytest.param(AccessDenied("sqs:ReceiveMessage is missing"), 3600.0, 1, id="it may not"),
        pytest.param(Unreachable("no answer"), 0.0, 1, id="at once, as the policy says"),
        pytest.param(Unreachable("no answer"), 1.5, 2, id="after its patience"),
    ],
)
def test_ends_though_it_never_hears_whether_there_is_work(
    plant: Callable[..., Plant], error: SpindownError, delay: float, asked: int
) -> None:
    one = plant(policy=replace(QUICK, scale_down_delay=timedelta(seconds=delay)))

    def refuse(call: Any) -> None:
        if call.method == "receive":
            raise error

    one.world.before = refuse
    one.start()
    one.join()
    assert len(one.events("end_not_asked_for")) >= asked
    assert one.world.worker().state is WorkerState.DRAINED
    assert one.has_powered_off


def test_works_though_its_first_heartbeat_had_no_answer(plant: Callable[..., Plant]) -> None:
    one = plant()
    one.world.before = fail_once("write", lambda: one.world.worker().state != "booting")
    one.world.send({"job_id": "a", "items": items(1)})
    one.start()
    one.join()
    assert one.events("heartbeat_failed")
    assert one.world.manifest("a").state is JobState.COMPLETED


def test_powers_off_though_its_drained_row_cannot_be_written(
    plant: Callable[..., Plant],
) -> None:
    one = plant(policy=PATIENT)
    one.start()
    one.until(lambda: one.world.calls["queue.receive"] > 0)

    def fail(call: Any) -> None:
        if call.port == "table" and call.method != "query":
            raise Unreachable("no answer")

    one.world.before = fail
    one.daemon.stop()
    one.join()
    assert one.events("drained")
    assert one.has_powered_off


def test_gives_back_the_last_poll_if_it_must_leave_meanwhile(
    plant: Callable[..., Plant],
) -> None:
    def leave(call: Any) -> None:
        if call.method == "receive" and threading.current_thread() is one.thread:
            one.world.send({"job_id": "late", "items": items(1)})
            one.daemon.stop()

    one = plant()
    one.world.before = leave
    one.start()
    one.join()
    assert one.world.queue.backlog().visible == 1
    assert one.next_item("late") == -1


def test_a_slot_that_cannot_warm_its_code_fails_at_a_job(
    plant: Callable[..., Plant],
) -> None:
    one = plant()
    one.code.root.rename(one.scratch / "elsewhere")
    one.world.send({"job_id": "a", "items": items(1)})
    one.start()
    one.join()
    assert one.events("code_not_warmed")
    [failure] = one.world.manifest("a").failures
    assert os.strerror(errno.ENOENT) in failure.reason
