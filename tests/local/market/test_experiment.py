"""AWS Fault Injection Service as the market plays it, asked by boto3 through our adapter."""

import pytest

from spindown.aws.fault import FisInjector
from spindown.contract import tag
from spindown.ec2sim import LaunchTemplate
from spindown.error import NotFound
from tests.local.market.world import TEMPLATE_ID, World, a_world, an_override

OURS = {tag.DEPLOYMENT: "lab", tag.WORKLOAD: "verify", tag.REGION: "us-east-1"}


def launched(world: World, capacity_type: str = "spot") -> str:
    answer = world.fleet(
        an_override(),
        TargetCapacitySpecification={
            "TotalTargetCapacity": 1,
            "DefaultTargetCapacityType": capacity_type,
        },
    )
    world.wait(2)
    return str(answer["Instances"][0]["InstanceIds"][0])


@pytest.fixture
def world() -> World:
    template = LaunchTemplate(
        template_id=TEMPLATE_ID, version="3", image_id="ami-0123", instance_tags=OURS
    )
    return a_world(template=template)


@pytest.fixture
def faults(world: World) -> FisInjector:
    return FisInjector(lambda: world.client("fis"))


def test_there_is_a_template_before_anything_is_launched(faults: FisInjector) -> None:
    assert faults.find(OURS)
    assert faults.find({**OURS, tag.WORKLOAD: "ocr"}) == ""


def test_an_experiment_gives_notice_and_takes_the_machine(
    world: World, faults: FisInjector
) -> None:
    name = launched(world)

    started = faults.start(faults.find(OURS), token="job-1", tags=OURS)

    assert not faults.read(started).has_failed
    assert world.client("fis").get_experiment(id=started)["experiment"]["tags"] == OURS
    (notice,) = world.events.of("EC2 Spot Instance Interruption Warning")
    assert notice["instance-id"] == name
    # A worker looks for a notice every five seconds.
    world.wait(5)
    assert world.market.instances()[0].state.value == "running"
    world.wait(10)
    assert world.market.instances()[0].state.value in {"shutting-down", "terminated"}


def test_a_token_starts_one_experiment(world: World, faults: FisInjector) -> None:
    launched(world)
    launched(world)
    template = faults.find(OURS)

    first = faults.start(template, token="job-1", tags=OURS)

    assert faults.start(template, token="job-1", tags=OURS) == first
    assert len(world.events.of("EC2 Spot Instance Interruption Warning")) == 1


def test_without_a_spot_instance_it_fails_and_says_so(world: World, faults: FisInjector) -> None:
    launched(world, "on-demand")

    experiment = faults.read(faults.start(faults.find(OURS), token="job-1", tags=OURS))

    assert experiment.has_failed
    assert experiment.said


def test_what_is_not_there_is_not_found(faults: FisInjector) -> None:
    with pytest.raises(NotFound):
        faults.start("EXT-none", token="job-1", tags=OURS)
    with pytest.raises(NotFound):
        faults.read("EXT-none")
