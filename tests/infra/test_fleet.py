"""Launch templates: what an instance may be, however it is asked for."""

import json
from pathlib import Path
from typing import Any

import pytest

from spindown.contract import tag
from spindown.contract.image import render_user_data
from tests.infra.assembly import NO_GPU, PLAIN, Assembly, synthesise_core, words, write_project
from tests.worker_system.kit import USER_DATA_BYTES_MAX

#: Set in the launch call itself, one launch at a time.
PER_LAUNCH = {tag.LAUNCH, tag.LEASE_UNTIL, tag.SHAPE}
#: Said of a queue, to who submits.
OF_QUEUE = {tag.CODE_VERSION}
#: Said only where a workload asks for it.
ASKED_FOR = {tag.METADATA_ACCESS, tag.CONTAINERS, tag.GPU_MEMORY, tag.VCPUS, tag.MEMORY}
TEMPLATES = ["lab--plain--x86_64", "lab--rich--arm64", "lab--rich--x86_64"]


def launch_data(assembly: Assembly, name: str) -> Any:
    return assembly.one_of("AWS::EC2::LaunchTemplate", LaunchTemplateName=name)[
        "LaunchTemplateData"
    ]


def tags_of(data: Any, resource_type: str) -> dict[str, str]:
    (found,) = (one for one in data["TagSpecifications"] if one["ResourceType"] == resource_type)
    return {one["Key"]: words(one["Value"]) for one in found["Tags"]}


def test_each_workload_has_a_template_for_each_architecture(assembly: Assembly) -> None:
    made = assembly.all_of("AWS::EC2::LaunchTemplate")

    assert sorted(one["LaunchTemplateName"] for one in made) == TEMPLATES


@pytest.mark.parametrize("name", TEMPLATES)
def test_every_tag_that_a_worker_reads_is_on_its_template(assembly: Assembly, name: str) -> None:
    wanted = {value for key, value in vars(tag).items() if key.isupper() and isinstance(value, str)}

    tags = tags_of(launch_data(assembly, name), "instance")

    assert set(tags) - ASKED_FOR == (wanted - PER_LAUNCH - ASKED_FOR - OF_QUEUE) | {"Name"}
    workload = name.split("--")[1]
    assert tags[tag.WORKLOAD] == workload
    assert tags[tag.QUEUE_URL].startswith(f"<Workload{workload}JobsQueue")
    assert tags[tag.DLQ_URL].startswith(f"<Workload{workload}JobsDeadLetters")
    assert tags[tag.CODE].startswith("s3://cdk-")
    assert f"/spindown/code/lab/{workload}/" in tags[tag.CODE]
    assert len(tags) <= 50


@pytest.mark.parametrize("kind", ["network-interface", "volume"])
def test_what_comes_with_an_instance_bears_the_tags_of_the_bill(
    assembly: Assembly, kind: str
) -> None:
    tags = tags_of(launch_data(assembly, "lab--rich--arm64"), kind)

    assert tags[tag.DEPLOYMENT] == "lab"
    assert tags[tag.WORKLOAD] == "rich"


@pytest.mark.parametrize("name", TEMPLATES)
def test_no_template_tags_what_a_launch_on_demand_does_not_make(
    assembly: Assembly, name: str
) -> None:
    tagged = {one["ResourceType"] for one in launch_data(assembly, name)["TagSpecifications"]}

    assert tagged == {"instance", "network-interface", "volume"}


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
        "HttpPutResponseHopLimit": 1,
        "HttpTokens": "required",
        "InstanceMetadataTags": "enabled",
    }


def test_the_root_volume_is_encrypted_and_sized_as_configured(assembly: Assembly) -> None:
    (volume,) = launch_data(assembly, "lab--rich--x86_64")["BlockDeviceMappings"]

    assert volume["Ebs"]["Encrypted"] is True
    assert volume["Ebs"]["VolumeType"] == "gp3"
    assert volume["Ebs"]["VolumeSize"] == 60


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_root_volume_needs_no_grant_of_a_key(assembly: Assembly, name: str) -> None:
    """The account's default may be a key of its owner's, of which no role here knows."""
    (volume,) = launch_data(assembly, name)["BlockDeviceMappings"]

    assert volume["Ebs"]["KmsKeyId"] == "alias/aws/ebs"


def test_the_image_is_looked_up_at_each_launch(assembly: Assembly) -> None:
    own = launch_data(assembly, "lab--rich--arm64")["ImageId"]
    default = launch_data(assembly, "lab--plain--x86_64")["ImageId"]

    assert own == "resolve:ssm:/images/rich/arm64"
    assert default.startswith("resolve:ssm:/aws/service/deeplearning/ami/x86_64/base-oss-nvidia")


def test_machines_without_a_gpu_boot_amazon_linux(tmp_path: Path) -> None:
    made = synthesise_core(write_project(tmp_path, NO_GPU), tmp_path)

    for architecture in ("x86_64", "arm64"):
        data = launch_data(made, f"lab--plain--{architecture}")
        image = f"/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-{architecture}"
        assert data["ImageId"] == f"resolve:ssm:{image}"
        (volume,) = data["BlockDeviceMappings"]
        assert (volume["DeviceName"], volume["Ebs"]["VolumeSize"]) == ("/dev/xvda", 30)
    found = made.statements("ControlScalerRole")["ResolveImages"]["Resource"]
    images = [words(one).rpartition("/")[2] for one in found]
    assert images == ["al2023-ami-kernel-default-arm64", "al2023-ami-kernel-default-x86_64"]


def test_nobody_can_log_in_and_the_call_chooses_how_to_buy(assembly: Assembly) -> None:
    data = launch_data(assembly, "lab--plain--x86_64")

    for absent in ("KeyName", "InstanceMarketOptions", "InstanceType", "NetworkInterfaces"):
        assert absent not in data


@pytest.mark.parametrize("name", TEMPLATES)
def test_user_data_installs_the_deployed_kit_and_starts_it(assembly: Assembly, name: str) -> None:
    user_data = words(launch_data(assembly, name)["UserData"]["Fn::Base64"])

    workload = name.split("--")[1]
    settings = assembly.one_of("AWS::SSM::Parameter", Name=f"/spindown/lab/workload/{workload}")
    stamp = json.loads(words(settings["Value"])).get("bake", {}).get("stamp")
    assert user_data == render_user_data(assembly.kit, stamp=stamp)
    assert "spindown-worker.service" in user_data
    assert "systemctl poweroff" in user_data


@pytest.mark.parametrize("name", TEMPLATES)
def test_user_data_is_smaller_than_ec2_takes(assembly: Assembly, name: str) -> None:
    user_data = words(launch_data(assembly, name)["UserData"]["Fn::Base64"])

    # Account and region are longer once CloudFormation has filled them in.
    assert len(user_data.encode()) + 100 < USER_DATA_BYTES_MAX


@pytest.mark.parametrize(
    ("image", "device"),
    [
        pytest.param("", "/dev/sda1", id="the default image is Ubuntu"),
        pytest.param(
            'parameters = { x86_64 = "/aws/service/deeplearning/ami/x86_64/'
            'base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id" }',
            "/dev/xvda",
            id="Amazon Linux has another root device",
        ),
        pytest.param('root_device = "/dev/sdb"', "/dev/sdb", id="an image with a will of its own"),
    ],
)
def test_the_root_volume_is_the_one_that_the_image_boots_from(
    tmp_path: Path, image: str, device: str
) -> None:
    made = synthesise_core(write_project(tmp_path, PLAIN.format(image=image)), tmp_path / "out")

    (volume,) = launch_data(made, "lab--plain--x86_64")["BlockDeviceMappings"]
    assert volume["DeviceName"] == device


def test_an_image_of_one_s_own_has_only_to_start_its_units(tmp_path: Path) -> None:
    config = PLAIN.format(image='mode = "ami"\nparameters = { x86_64 = "/my/image" }')

    made = synthesise_core(write_project(tmp_path, config), tmp_path / "out")

    data = launch_data(made, "lab--plain--x86_64")
    assert data["UserData"]["Fn::Base64"] == render_user_data(None)
    assert data["ImageId"] == "resolve:ssm:/my/image"
