"""The estimate of a job's requests is what a slot asks that works one off."""

from pathlib import Path

from spindown.domain.control_cost import JOB as ESTIMATE
from spindown.domain.list_price import Usage
from spindown.memory.interception import PortCall
from tests.infra.test_idle import TRANSACTED
from tests.slot import JOB, SlotWorld


def test_a_job_uses_what_the_estimate_says(tmp_path: Path) -> None:
    slot = SlotWorld(tmp_path)
    slot.world.send(JOB)
    slot.step()
    calls: list[PortCall] = []
    slot.world.before = calls.append
    slot.world.send({**JOB, "job_id": "k"})
    slot.step()

    written = sum(
        TRANSACTED * len(call.args[0]) if call.method == "transact" else 1
        for call in calls
        if call.port == "table" and call.method in {"write", "transact"}
    )
    assert written == ESTIMATE[Usage.TABLE_WRITE]
    # The send is the sender's.
    assert 1 + sum(call.port == "queue" for call in calls) == ESTIMATE[Usage.QUEUE_REQUEST]
    assert sum(call.port == "objects" for call in calls) == ESTIMATE[Usage.OBJECT_WRITE]
