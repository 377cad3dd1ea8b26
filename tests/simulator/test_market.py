"""EC2 takes spot instances at the rate of their zone, whatever their age, and no others."""

import math
from datetime import datetime
from random import Random
from statistics import fmean

import pytest

from spindown.contract.event import InstanceEvent
from spindown.contract.settings import TemplateRef
from spindown.domain.offer import CapacityType
from spindown.ec2sim import Agenda
from spindown.port import LaunchedInstance, LaunchOverride, LaunchRequest
from spindown.simulator.compute import SimCompute
from spindown.simulator.record import SimRecorder
from tests.simulator.scene import HOUR, a_listing, a_scenario, a_zone

COUNT = 1500
RATE = 0.5


class Ends:
    """When instances were warned and when they ended, hours."""

    def __init__(self, agenda: Agenda) -> None:
        self.agenda = agenda
        self.warned_at: list[float] = []
        self.ended_at: list[float] = []

    def launched(self, given: LaunchedInstance) -> None:
        """Let an instance live."""

    def warned(self, instance_id: str, deadline: datetime) -> None:
        self.warned_at.append(self.agenda.seconds / HOUR)

    def gone(self, instance_id: str) -> None:
        self.ended_at.append(self.agenda.seconds / HOUR)

    def tell(self, event: InstanceEvent) -> None:
        """Hear no event."""


def lives(kind: CapacityType, *, missing: float = 0.0) -> Ends:
    zone = a_zone(reclaims_per_hour=RATE)
    scenario = a_scenario(listings=(a_listing(zones={"us-west-2a": zone}),), notice_missing=missing)
    agenda = Agenda(scenario.start)
    ends = Ends(agenda)
    compute = SimCompute(
        scenario, agenda=agenda, random=Random(1), record=SimRecorder(agenda), watcher=ends
    )
    compute.launch(
        LaunchRequest(
            client_token="all",
            region="us-west-2",
            template=TemplateRef(id="lt", version="1"),
            capacity_type=kind,
            overrides=(
                LaunchOverride(
                    instance_type="g4dn.xlarge", zone="us-west-2a", subnet_id="subnet-a"
                ),
            ),
            count=COUNT,
            tags={},
        )
    )
    while agenda.step():
        pass
    return ends


def test_lives_have_the_mean_of_their_rate_and_no_age_protects() -> None:
    notices = lives(CapacityType.SPOT).warned_at

    assert len(notices) == COUNT
    assert fmean(notices) == pytest.approx(1.0 / RATE, rel=0.08)
    for hours in (0.5, 1.0, 3.0):
        older = sum(at > hours for at in notices) / COUNT
        assert older == pytest.approx(math.exp(-RATE * hours), abs=0.04)


def test_a_notice_comes_2_min_before_the_end_unless_missing() -> None:
    told = lives(CapacityType.SPOT)
    half = lives(CapacityType.SPOT, missing=0.5)

    # A worker looks at its metadata every five seconds.
    for warned, ended in zip(sorted(told.warned_at), sorted(told.ended_at), strict=True):
        assert 115.0 <= (ended - warned) * HOUR <= 120.0
    assert len(half.ended_at) == COUNT
    assert len(half.warned_at) == pytest.approx(COUNT / 2, rel=0.1)


def test_nobody_takes_what_was_bought_on_demand() -> None:
    assert lives(CapacityType.ON_DEMAND).ended_at == []
