"""Images that the functions have baked once they are earned: ``image.mode = "auto"``."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from spindown.contract.image import STAMP_TAG, make_stamp
from tests.infra.assembly import Assembly, synthesise_once, words, write_project

CONFIG = """
[deployment]
name = "lab"
region = "eu-west-1"
zones = ["eu-west-1a", "eu-west-1c"]

[workload.lean.run]
entrypoint = "job:run"
code = "code"

[workload.lean.image]
mode = "auto"

[workload.own.run]
entrypoint = "job:run"
code = "code"

[workload.own.image]
mode = "auto"
parameters = { x86_64 = "/own/image" }
"""


@pytest.fixture(scope="session")
def core(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    return synthesise_once(
        tmp_path_factory, "auto-baking", lambda directory: write_project(directory, CONFIG)
    )


@pytest.fixture(scope="session")
def image(core: Assembly) -> Assembly:
    return replace(core, stack_name="lab-image")


def test_a_pipeline_waits_until_it_is_started(image: Assembly) -> None:
    (pipeline,) = image.all_of("AWS::ImageBuilder::ImagePipeline")

    assert "Schedule" not in pipeline
    assert not image.all_of("AWS::ImageBuilder::Image")


def test_what_it_makes_bears_what_it_was_baked_with(core: Assembly, image: Assembly) -> None:
    stamp = make_stamp(core.kit, None)
    (pipeline,) = image.all_of("AWS::ImageBuilder::ImagePipeline")
    template = core.one_of("AWS::EC2::LaunchTemplate", LaunchTemplateName="lab--lean--x86_64")

    assert pipeline["ImageTags"][STAMP_TAG] == stamp
    assert settings_of(core, "lean")["bake"]["stamp"] == stamp
    # An instance of the base image installs, one of the baked image does not.
    assert stamp in words(template["LaunchTemplateData"]["UserData"]["Fn::Base64"])


def test_the_functions_know_and_start_that_pipeline(core: Assembly, image: Assembly) -> None:
    (pipeline,) = image.all_of("AWS::ImageBuilder::ImagePipeline")
    known = settings_of(core, "lean")["bake"]["pipelines"]
    granted = core.statements("ControlOffersRole")

    assert [arn.rpartition("/")[2] for arn in known.values()] == [pipeline["Name"]]
    assert words(granted["BakeImages"]["Resource"]).endswith(":image-pipeline/lab--*")
    assert "BakeImages" not in core.statements("ControlScalerRole")


def test_an_image_that_nothing_starts_from_is_not_kept(image: Assembly) -> None:
    (policy,) = image.all_of("AWS::ImageBuilder::LifecyclePolicy")
    (detail,) = policy["PolicyDetails"]

    assert detail["Filter"] == {"Type": "AGE", "Unit": "WEEKS", "Value": 5}


def test_it_builds_in_the_network_of_core(core: Assembly, image: Assembly) -> None:
    (place,) = image.all_of("AWS::ImageBuilder::InfrastructureConfiguration")
    read = {one["Default"] for one in image.template["Parameters"].values() if "Default" in one}
    written = {one.get("Name") for one in core.all_of("AWS::SSM::Parameter")}
    manifest = json.loads((core.directory / "manifest.json").read_text())["artifacts"]

    assert not image.all_of("AWS::EC2::VPC")
    assert "Ref" in place["SubnetId"]
    assert {"/spindown/lab/builder/subnet", "/spindown/lab/builder/group"} <= read & written
    assert "lab-core" in manifest["lab-image"]["dependencies"]


def test_an_image_that_cannot_be_read_is_never_baked(core: Assembly, image: Assembly) -> None:
    assert "bake" not in settings_of(core, "own")
    assert len(image.all_of("AWS::ImageBuilder::ImagePipeline")) == 1


def settings_of(core: Assembly, workload: str) -> Mapping[str, Any]:
    """Return the settings of a workload as a function reads them."""
    value = core.one_of("AWS::SSM::Parameter", Name=f"/spindown/lab/workload/{workload}")["Value"]
    found: Mapping[str, Any] = json.loads(words(value))
    return found
