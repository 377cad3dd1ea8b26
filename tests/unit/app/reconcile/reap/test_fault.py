"""What stops launches is told with its fault, if a row knows one, and with what ends the stop."""

import pytest

from spindown.domain.fleet import WorkerState
from tests.builders import minutes
from tests.control import with_policy


@pytest.mark.parametrize(
    ("marks", "told"),
    [
        pytest.param(
            {"unfit_at": True, "reason": "the secret hub/token cannot be read: not found."},
            "the secret hub/token cannot be read: not found; mend that",
            id="the worker has said why",
        ),
        pytest.param(
            {"reason": "Client.VolumeLimitExceeded"},
            "Client.VolumeLimitExceeded; mend that",
            id="EC2 has",
        ),
        pytest.param(
            {"reason": "Client.InstanceInitiatedShutdown"},
            "look at its console output and at the image",
            id="EC2 says only that it ended itself",
        ),
    ],
)
def test_what_stops_launches_is_told_with_a_known_reason(
    marks: dict[str, object], told: str
) -> None:
    world = with_policy(max_workers=1)
    world.send()
    for _ in range(30):
        for instance_id in [i for a in world.tick(minutes(1)).attempts for i in a.instances]:
            at = {"unfit_at": world.now} if "unfit_at" in marks else {}
            end = {"state": WorkerState.ENDED, "ended_at": world.now, "end_price_per_hour": 0.2}
            world.change(instance_id, **end, **{**marks, **at})

    breaker = world.view().breaker
    assert breaker.open_until is not None
    assert breaker.reason.startswith("3 instances in a row never checked in, the last one i-")
    assert f": {told}" in breaker.reason
