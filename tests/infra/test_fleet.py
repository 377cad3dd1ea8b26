"""Launch templates: what an instance may be, however it is asked for."""

from typing import Any

import pytest

from spindown.contract import tag
from spindown.contract.image import render_user_data
from tests.infra.assembly import Assembly, words

#: Set in the launch call itself, one launch at a time.
PER_LAUNCH = {tag.LAUNCH}
TEMPLATES = ["lab-plain-x86_64", "lab-rich-arm64", "lab-rich-x86_64"]


def launch_data(assembly: Assembly, name: str) -> Any:
    return assembly.one_of("AWS::EC2::LaunchTemplate", LaunchTemplateName=name)[
        "LaunchTemplateData"
    ]


def tags_of(data: Any, resource_type: str) -> dict[str, str]:
    (found,) = (one for one in data["TagSpecifications"] if one["ResourceType"] == resource_type)
    return {one["Key"]: words(one["Value"]) for one in found["Tags"]}


def test_each_workload_has_a_template_for_each_of_its_architectures(assembly: Assembly) -> None:
    made = assembly.all_of("AWS::EC2::LaunchTemplate")

    assert sorted(one["LaunchTemplateName"] for one in made) == TEMPLATES


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_tag_by_which_a_worker_finds_home_is_on_its_template(
    assembly: Assembly, name: str
) -> None:
    wanted = {value for key, value in vars(tag).items() if key.isupper() and isinstance(value, str)}

    tags = tags_of(launch_data(assembly, name), "instance")

    assert set(tags) == (wanted - PER_LAUNCH) | {"Name"}
    workload = name.split("-")[1]
    assert tags[tag.WORKLOAD] == workload
    assert tags[tag.QUEUE_URL].startswith(f"<Workload{workload}JobsQueue")
    assert tags[tag.DLQ_URL].startswith(f"<Workload{workload}JobsDeadLetters")
    assert tags[tag.CODE].startswith("s3://cdk-")
    assert len(tags) <= 50


@pytest.mark.parametrize("kind", ["network-interface", "spot-instances-request", "volume"])
def test_what_comes_with_an_instance_bears_the_tags_of_the_bill(
    assembly: Assembly, kind: str
) -> None:
    tags = tags_of(launch_data(assembly, "lab-rich-arm64"), kind)

    assert tags[tag.DEPLOYMENT] == "lab"
    assert tags[tag.WORKLOAD] == "rich"


@pytest.mark.parametrize("name", TEMPLATES)
def test_an_instance_that_powers_itself_off_is_gone(assembly: Assembly, name: str) -> None:
    data = launch_data(assembly, name)

    assert data["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert "DisableApiTermination" not in data
    assert "DisableApiStop" not in data
    (volume,) = data["BlockDeviceMappings"]
    assert volume["Ebs"]["DeleteOnTermination"] is True


@pytest.mark.parametrize("name", TEMPLATES)
def test_metadata_answers_only_to_tokens_and_tells_the_tags(assembly: Assembly, name: str) -> None:
    assert launch_data(assembly, name)["MetadataOptions"] == {
        "HttpEndpoint": "enabled",
        "HttpPutResponseHopLimit": 2,
        "HttpTokens": "required",
        "InstanceMetadataTags": "enabled",
    }


def test_the_root_volume_is_encrypted_and_as_large_as_configured(assembly: Assembly) -> None:
    (volume,) = launch_data(assembly, "lab-rich-x86_64")["BlockDeviceMappings"]

    assert volume["Ebs"]["Encrypted"] is True
    assert volume["Ebs"]["VolumeType"] == "gp3"
    assert volume["Ebs"]["VolumeSize"] == 60


def test_the_image_is_looked_up_at_each_launch(assembly: Assembly) -> None:
    own = launch_data(assembly, "lab-rich-arm64")["ImageId"]
    default = launch_data(assembly, "lab-plain-x86_64")["ImageId"]

    assert own == "resolve:ssm:/images/rich/arm64"
    assert default.startswith("resolve:ssm:/aws/service/deeplearning/ami/x86_64/base-oss-nvidia")


def test_nobody_can_log_in_and_the_call_chooses_how_to_buy(assembly: Assembly) -> None:
    data = launch_data(assembly, "lab-plain-x86_64")

    for absent in ("KeyName", "InstanceMarketOptions", "InstanceType", "NetworkInterfaces"):
        assert absent not in data


def test_user_data_starts_the_worker_and_ends_an_instance_without_one(assembly: Assembly) -> None:
    user_data = launch_data(assembly, "lab-plain-x86_64")["UserData"]["Fn::Base64"]

    assert user_data == render_user_data(None)
    assert "spindown-worker.service" in user_data
    assert "systemctl poweroff" in user_data
