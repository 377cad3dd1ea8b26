"""Buses of the local system: what an outpost's rules send home arrives there as it was."""

import json
import sys
from collections.abc import Iterator

import pytest

from spindown.local.environment import ACCOUNT
from spindown.local.system import LocalSystem
from tests.local.waiting import until
from tests.local.world import ROLE, Recorder, a_system, write_config

HOME, AWAY = "us-east-1", "us-west-2"
WARNING = "EC2 Spot Instance Interruption Warning"


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalSystem]:
    directory = tmp_path_factory.mktemp("regions")
    with a_system(write_config(directory), guest=(sys.executable, "-c", "pass")) as started:
        yield started


def put_rule(system: LocalSystem, region: str, **target: str) -> None:
    events = system.client("events", region)
    pattern = json.dumps({"source": ["aws.ec2"], "detail-type": [WARNING]})
    events.put_rule(Name="warning", EventPattern=pattern)
    events.put_targets(Rule="warning", Targets=[{"Id": "1", **target}])


def test_a_rule_sends_events_to_the_bus_of_another_region(system: LocalSystem) -> None:
    recorder = Recorder(system, "events")
    bus = f"arn:aws:events:{HOME}:{ACCOUNT}:event-bus/default"
    put_rule(system, HOME, Arn=recorder.arn)
    put_rule(system, AWAY, Arn=bus, RoleArn=ROLE)
    arn = f"arn:aws:ec2:{AWAY}:{ACCOUNT}:instance/i-0abc"

    system._emit(
        source="aws.ec2",
        detail_type=WARNING,
        detail={"instance-id": "i-0abc", "instance-action": "terminate"},
        resources=[arn],
    )

    (event,) = until(recorder.events)
    assert event["region"] == AWAY
    assert event["resources"] == [arn]
    assert event["detail"]["instance-id"] == "i-0abc"
