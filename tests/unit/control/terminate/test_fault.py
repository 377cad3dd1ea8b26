"""What stops launches is told with its fault, if a row knows one, and with what ends the stop."""

import pytest

from spindown.domain.fleet import WorkerState
from spindown.domain.reason import ReasonCode
from tests.builders import ec2_said, minutes, unfit
from tests.control import with_policy


@pytest.mark.parametrize(
    ("marks", "told"),
    [
        pytest.param(
            {"unfit_at": True, "reason": unfit("the secret hub/token cannot be read")},
            {"fault_code": "unfit", "fault": "the secret hub/token cannot be read"},
            id="the worker has said why",
        ),
        pytest.param(
            {"reason": ec2_said("Client.VolumeLimitExceeded")},
            {"fault_code": "ec2-said", "state_reason": "Client.VolumeLimitExceeded"},
            id="EC2 has",
        ),
        pytest.param(
            {"reason": ec2_said("Client.InstanceInitiatedShutdown")},
            {"fault_code": ""},
            id="EC2 says only that it ended itself",
        ),
    ],
)
def test_what_stops_launches_is_told_with_a_known_reason(
    marks: dict[str, object], told: dict[str, str]
) -> None:
    world = with_policy(max_workers=1)
    world.send()
    for _ in range(30):
        for instance_id in [i for a in world.tick(minutes(1)).requests for i in a.instances]:
            at = {"unfit_at": world.now} if "unfit_at" in marks else {}
            end = {"state": WorkerState.ENDED, "ended_at": world.now, "end_price_per_hour": 0.2}
            world.compute.power_off(instance_id)
            world.change(instance_id, **end, **{**marks, **at})
            world.end(instance_id)

    breaker = world.view().breaker
    assert breaker.open_until is not None
    assert breaker.reason.code is ReasonCode.STRIKES_SILENT
    assert breaker.reason.about["count"] == 3
    assert told.items() <= breaker.reason.about.items()
