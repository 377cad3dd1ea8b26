"""What has ended: by whom, and whether it left work behind."""

from dataclasses import replace
from typing import Any

import pytest

from spindown.domain.fleet import Worker, WorkerState
from spindown.domain.reason import NO_REASON, Reason, ReasonCode
from spindown.domain.termination import Ending
from spindown.domain.useless_instance import (
    could_not_claim,
    has_declined_all,
    has_failed_all,
    has_left_work,
    has_missed_check_in,
    is_fault_of_ec2,
    known_fault,
)
from tests.builders import NOW, a_worker, ec2_said, minutes, unfit
from tests.unit.domain.termination.fleet import Box, reaped

_SILENT = Reason(ReasonCode.NEVER_CHECKED_IN, {"within_seconds": 600.0})


def _found(state_reason: str) -> Reason:
    if state_reason:
        return ec2_said(state_reason)
    return Reason(ReasonCode.EC2_STATE, {"state": "terminated"})


def test_a_condemned_worker_is_terminated_until_ec2_has_it_gone() -> None:
    worker = a_worker(state=WorkerState.CONDEMNED)

    assert reaped(worker).terminate == ("i-1",)
    assert reaped(worker, instances=[Box(state="stopped")]).terminate == ("i-1",)
    gone = reaped(worker, instances=[Box(state="shutting-down")])
    assert gone.terminate == ()
    assert [each.instance_id for each in gone.ended] == ["i-1"]


@pytest.mark.parametrize(
    ("worker", "reason", "reclaimed"),
    [
        pytest.param(a_worker(), "Server.SpotInstanceTermination", True, id="without notice"),
        pytest.param(a_worker(noticed_at=NOW), "", True, id="after a notice"),
        pytest.param(a_worker(interrupted_at=NOW), "", False, id="by its own word alone"),
        pytest.param(
            a_worker(noticed_at=NOW),
            "Client.InstanceInitiatedShutdown",
            False,
            id="powered off after a notice",
        ),
        pytest.param(a_worker(), "Client.InstanceInitiatedShutdown", False, id="powered off"),
        pytest.param(a_worker(), "Client.UserInitiatedShutdown", False, id="terminated"),
    ],
)
def test_tells_a_reclaim_from_an_end_of_ours(worker: Worker, reason: str, reclaimed: bool) -> None:
    box = Box(state="terminated", state_reason=reason)

    (found,) = reaped(worker, instances=[box]).ended

    assert found == Ending(instance_id="i-1", reason=_found(reason), reclaimed=reclaimed)


@pytest.mark.parametrize(
    ("changes", "waiting_for", "expected"),
    [
        pytest.param({}, 10, True, id="work waited all the time"),
        pytest.param({}, 8, True, id="work waited from its check-in on"),
        pytest.param({}, 5, False, id="what waits now came later or was worked on since"),
        pytest.param({}, None, False, id="nothing waits"),
        pytest.param({"state": WorkerState.IDLE}, 10, False, id="it has not ended"),
        pytest.param({"checked_in_at": None}, 10, False, id="it never came up"),
        pytest.param({"claimed_at": NOW}, 10, False, id="it had a job"),
        pytest.param({"interrupted_at": NOW}, 10, False, id="EC2 took it"),
        pytest.param({"rebalance_at": NOW}, 10, True, id="EC2 saw a risk, which ends nothing"),
        pytest.param(
            {"reason": Reason(ReasonCode.OTHER_CODE)}, 10, False, id="a deploy sent it away"
        ),
        pytest.param({"reason": Reason(ReasonCode.NO_ROOM)}, 10, False, id="a drain sent it away"),
        pytest.param(
            {"reason": Reason(ReasonCode.IDLE), "draining_at": NOW},
            10,
            True,
            id="it found no message",
        ),
        pytest.param(
            {"reason": ec2_said("Client.UserInitiatedShutdown")}, 10, False, id="a person ended it"
        ),
    ],
)
def test_a_worker_left_work_if_it_ended_jobless_beside_a_job(
    changes: dict[str, Any], waiting_for: int | None, expected: bool
) -> None:
    ended = a_worker(checked_in_at=NOW - minutes(8), state=WorkerState.ENDED)

    found = has_left_work(
        replace(ended, **changes), None if waiting_for is None else NOW - minutes(waiting_for)
    )

    assert found is expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, True, id="its last jobs had all failed"),
        pytest.param({"state": WorkerState.IDLE}, False, id="it has not ended"),
        pytest.param({"claimed_at": None}, False, id="its own test failed before any job"),
        pytest.param({"unfit_at": None}, False, id="it was fit"),
        pytest.param({"interrupted_at": NOW}, True, id="EC2 took it as it left"),
    ],
)
def test_a_worker_failed_all_if_it_took_jobs_and_ended_unfit(
    changes: dict[str, Any], expected: bool
) -> None:
    ended = a_worker(state=WorkerState.ENDED, claimed_at=NOW - minutes(9), unfit_at=NOW)

    assert has_failed_all(replace(ended, **changes)) is expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, True, id="it could do none of what waited"),
        pytest.param({"state": WorkerState.IDLE}, False, id="it has not ended"),
        pytest.param({"claimed_at": NOW}, False, id="it took a job"),
        pytest.param({"declined_at": None}, False, id="it declined none"),
        pytest.param({"interrupted_at": NOW}, False, id="taken back"),
        pytest.param({"reason": Reason(ReasonCode.OTHER_CODE)}, False, id="sent away"),
        pytest.param(
            {"reason": ec2_said("Client.UserInitiatedShutdown")}, False, id="ended by a call"
        ),
    ],
)
def test_a_worker_declined_all_if_it_ended_without_a_job(
    changes: dict[str, Any], expected: bool
) -> None:
    ended = a_worker(state=WorkerState.ENDED, claimed_at=None, declined_at=NOW)
    unanswered = replace(ended, declined_at=None, unanswered_at=changes.get("declined_at", NOW))
    changed = {name: value for name, value in changes.items() if name != "declined_at"}

    assert has_declined_all(replace(ended, **changes)) is expected
    assert could_not_claim(replace(unanswered, **changed)) is expected


@pytest.mark.parametrize(
    ("changes", "missed"),
    [
        pytest.param({}, True, id="ended by itself before its check-in"),
        pytest.param({"state": WorkerState.BOOTING}, False, id="still booting"),
        pytest.param({"checked_in_at": NOW}, False, id="after its check-in"),
        pytest.param({"condemned_at": NOW}, False, id="counted when it was condemned"),
        pytest.param({"interrupted_at": NOW}, False, id="taken back"),
        pytest.param(
            {"reason": ec2_said("Client.UserInitiatedShutdown")}, False, id="ended by a call"
        ),
    ],
)
def test_a_check_in_is_missed_by_an_early_end_of_its_own_fault(
    changes: dict[str, Any], missed: bool
) -> None:
    ended: dict[str, Any] = {"state": WorkerState.ENDED, "checked_in_at": None}

    assert has_missed_check_in(a_worker(**{**ended, **changes})) is missed


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        pytest.param(ec2_said("Server.InsufficientInstanceCapacity"), True, id="EC2 had no room"),
        pytest.param(ec2_said("Server.InternalError"), True, id="EC2 failed"),
        pytest.param(ec2_said("Client.VolumeLimitExceeded"), False, id="the account has no room"),
        pytest.param(_SILENT, False, id="setup hangs"),
        pytest.param(NO_REASON, False, id="nobody knows"),
    ],
)
def test_what_ec2_does_not_own_up_to_is_not_its_fault(reason: Reason, *, expected: bool) -> None:
    assert is_fault_of_ec2(a_worker(reason=reason)) is expected


@pytest.mark.parametrize(
    ("reason", "has_said", "told"),
    [
        pytest.param(unfit("nvidia-smi failed (9)"), True, True, id="the worker has found it"),
        pytest.param(
            ec2_said("Client.InternalError"), False, True, id="EC2 blames what was asked for"
        ),
        pytest.param(
            ec2_said("Client.InstanceInitiatedShutdown"), False, False, id="it ended itself"
        ),
        pytest.param(
            ec2_said("Client.UserInitiatedShutdown"), False, False, id="a person ended it"
        ),
        pytest.param(ec2_said("Server.InternalError"), False, False, id="EC2 failed"),
        pytest.param(_SILENT, False, False, id="it kept silent"),
    ],
)
def test_an_instance_s_fault_is_known_if_it_or_ec2_named_one(
    reason: Reason, *, has_said: bool, told: bool
) -> None:
    worker = a_worker(reason=reason, unfit_at=NOW if has_said else None)

    assert known_fault(worker) == (reason if told else NO_REASON)
