"""The image stack: what is baked, from what, by whom, and what becomes of old images."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from spindown import config
from spindown.contract import tag
from spindown.contract.image import (
    image_parameter,
    make_stamp,
    render_bake,
    render_user_data,
)
from spindown.infra.image_stack import baked_workloads
from tests.infra.assembly import (
    Assembly,
    describe_image,
    listed,
    report_findings,
    synthesise_image,
    words,
    write_project,
)
from tests.infra.image.conftest import CONFIG, write_baking_project
from tests.infra.policy import REGION, Call, ours, read_statements
from tests.worker_system.kit import USER_DATA_BYTES_MAX

IMAGES = ["lab--lean--x86-64", "lab--rich--arm64", "lab--rich--x86-64"]
PARAMETERS = {
    "lab--lean--x86-64": "/imagebuilder/spindown/lab/lean/x86_64",
    "lab--rich--arm64": "/imagebuilder/spindown/lab/rich/arm64",
    "lab--rich--x86-64": "/imagebuilder/spindown/lab/rich/x86_64",
}
#: Characters of a component that is given in the template (EC2 Image Builder API Reference,
#: "CreateComponent").
COMPONENT_MAX = 16_000

#: What the rules find and we keep, with the reason. Logical ids without their digests.
KEPT = {
    "AwsSolutions-IAM5[Resource::*]": "the agent of Systems Manager and describing know none",
    "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:ec2:<AWS::Region>::image/*]": (
        "images come to be later; conditions ask for our tag and for Image Builder's"
    ),
    "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:ec2:<AWS::Region>::snapshot/*]": (
        "snapshots come to be later; conditions ask for Image Builder's tags, with our names"
    ),
    "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:imagebuilder:<AWS::Region>"
    ":<AWS::AccountId>:image/lab--*]": "images of this deployment, by the names that it gives them",
    "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:s3:::ec2imagebuilder*]": (
        "buckets of AWS's own, from which Image Builder's program comes"
    ),
    **{
        "AwsSolutions-IAM5[Resource::arn:<AWS::Partition>:s3:::cdk-hnb659fds-assets-"
        f"<AWS::AccountId>-eu-west-1/spindown/{folder}/*]": (
            "archives of one workload, or kits: one a release, named by its digest"
        )
        for folder in ("code/lab/rich", "kit")
    },
    "AwsSolutions-VPC7": "flow logs are billed by volume; build instances accept no connection",
}


def made(image: Assembly, kind: str, name: str) -> Mapping[str, Any]:
    return image.one_of(f"AWS::ImageBuilder::{kind}", Name=name)


def script_of(image: Assembly, name: str) -> str:
    document = json.loads(words(made(image, "Component", name)["Data"]))
    build = document["phases"][0]
    assert build["name"] == "build"
    (command,) = build["steps"][0]["inputs"]["commands"]
    return str(command)


def code_of(core: Assembly, workload: str) -> tuple[str, str]:
    """Return where a workload's code lies, and its digest."""
    ((name, asset),) = (
        (name, one)
        for name, one in core.assets.items()
        if one["displayName"] == f"Code of {workload}"
    )
    (place,) = asset["destinations"].values()
    return f"s3://{place['bucketName']}/{place['objectKey']}", name.rpartition("/")[2]


def test_each_architecture_of_a_baking_workload_has_an_image(image: Assembly) -> None:
    for kind in ("Component", "ImageRecipe", "ImagePipeline", "LifecyclePolicy"):
        names = [one["Name"] for one in image.all_of(f"AWS::ImageBuilder::{kind}")]
        assert sorted(names) == IMAGES
    assert len(image.all_of("AWS::ImageBuilder::Image")) == len(IMAGES)


def test_without_a_workload_that_bakes_there_is_no_image_stack(tmp_path: Path) -> None:
    project = write_project(tmp_path, CONFIG.replace('"bake"', '"bootstrap"'))
    (tmp_path / "code" / "needs.txt").write_text("six\n")

    assert not baked_workloads(config.load(project))


def test_images_are_there_before_anything_is_launched_from_them(core: Assembly) -> None:
    manifest = json.loads((core.directory / "manifest.json").read_text())["artifacts"]

    assert "lab-image" in manifest["lab-core"]["dependencies"]
    assert "lab-core" not in manifest["lab-image"]["dependencies"]


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_is_published_where_its_launches_look_it_up(
    core: Assembly, image: Assembly, name: str
) -> None:
    (distribution,) = made(image, "DistributionConfiguration", name)["Distributions"]
    (parameter,) = distribution["SsmParameterConfigurations"]
    template = name.replace("x86-64", "x86_64")
    launched = core.one_of("AWS::EC2::LaunchTemplate", LaunchTemplateName=template)
    resolved = words(core.statements("ControlScalerRole")["ResolveImages"]["Resource"])

    assert parameter == {"DataType": "aws:ec2:image", "ParameterName": PARAMETERS[name]}
    assert launched["LaunchTemplateData"]["ImageId"] == f"resolve:ssm:{PARAMETERS[name]}"
    assert f"parameter{PARAMETERS[name]}" in resolved


def test_image_builder_s_own_role_may_write_the_parameter() -> None:
    assert image_parameter("lab", "rich", "arm64") == PARAMETERS["lab--rich--arm64"]
    # That role may write nowhere else.
    assert image_parameter("a", "b", "c").startswith("/imagebuilder/")


def test_the_deploy_bakes_and_then_each_week_does(image: Assembly) -> None:
    for resource in image.resources.values():
        if resource["Type"] == "AWS::ImageBuilder::Image":
            # A deploy that is rolled back must not take what the parameter names.
            assert (resource["DeletionPolicy"], resource["UpdateReplacePolicy"]) == (
                "Retain",
                "Retain",
            )
            assert any(
                name.startswith("BuilderRoleDefaultPolicy") for name in resource["DependsOn"]
            )
            assert any(name.startswith("NetworkToInternet") for name in resource["DependsOn"])
    for name in IMAGES:
        assert made(image, "ImagePipeline", name)["Schedule"] == {
            "PipelineExecutionStartCondition": "EXPRESSION_MATCH_ONLY",
            "ScheduleExpression": "cron(0 3 ? * sun *)",
        }


@pytest.mark.parametrize("name", IMAGES)
def test_the_base_is_the_latest_and_the_root_volume_encrypted(image: Assembly, name: str) -> None:
    recipe = made(image, "ImageRecipe", name)
    (volume,) = recipe["BlockDeviceMappings"]
    architecture = "arm64" if "arm64" in name else "x86_64"

    assert recipe["ParentImage"].startswith(f"ssm:/aws/service/deeplearning/ami/{architecture}/")
    assert volume["DeviceName"] == "/dev/sda1"
    assert volume["Ebs"]["Encrypted"] is True
    # As the disks of instances: the account's default may be a key that nobody has opened to us.
    key = words(volume["Ebs"]["KmsKeyId"])
    assert key == "arn:<AWS::Partition>:kms:<AWS::Region>:<AWS::AccountId>:alias/aws/ebs"
    assert volume["Ebs"]["VolumeSize"] == (60 if "rich" in name else 100)
    # Image Builder counts up: a changed recipe needs no version from us.
    assert recipe["Version"] == "1.0.x"


def test_an_image_holds_the_kit_and_the_requirements(core: Assembly, image: Assembly) -> None:
    uri, digest = code_of(core, "rich")
    stamp = make_stamp(core.kit, digest)

    script = script_of(image, "lab--rich--arm64")

    assert script == render_bake(core.kit, code_uri=uri, stamp=stamp)
    assert user_data(core, "lab--rich--arm64") == render_user_data(core.kit, stamp=stamp)


def test_code_without_requirements_changes_no_image(core: Assembly, image: Assembly) -> None:
    stamp = make_stamp(core.kit, None)

    script = script_of(image, "lab--lean--x86-64")

    assert script == render_bake(core.kit, code_uri=None, stamp=stamp)
    assert code_of(core, "lean")[1] not in json.dumps(image.template)
    assert user_data(core, "lab--lean--x86_64") == render_user_data(core.kit, stamp=stamp)


def user_data(core: Assembly, template: str) -> str:
    launched = core.one_of("AWS::EC2::LaunchTemplate", LaunchTemplateName=template)
    text = words(launched["LaunchTemplateData"]["UserData"]["Fn::Base64"])
    assert len(text.encode()) + 100 < USER_DATA_BYTES_MAX
    return text


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_is_tested_on_an_instance_that_booted_it(image: Assembly, name: str) -> None:
    data = words(made(image, "Component", name)["Data"])
    build, test = json.loads(data)["phases"]

    assert len(data) < COMPONENT_MAX
    assert [build["name"], test["name"]] == ["build", "test"]
    (step,) = test["steps"]
    assert step["action"] == "ExecuteBash"
    assert step["inputs"]["commands"] == ["/opt/spindown/system/smoke.sh"]
    # Image Builder would take these for variables of its own.
    assert "{{" not in data


def test_builders_take_no_connection_and_metadata_needs_tokens(
    image: Assembly,
) -> None:
    for made_on in image.all_of("AWS::ImageBuilder::InfrastructureConfiguration"):
        assert made_on["InstanceMetadataOptions"]["HttpTokens"] == "required"
        assert made_on["TerminateInstanceOnFailure"] is True
        assert not {"KeyPair", "SnsTopicArn", "Logging"} & set(made_on)
        # Reconcile ends instances that bear the tag of workers and that it does not know.
        assert tag.DEPLOYMENT not in made_on["ResourceTags"]
        # CreateInfrastructureConfiguration refuses these keys (EC2 Image Builder API Reference).
        kept = {"CreatedBy", "Ec2ImageBuilderArn", "Name", "Tags"}
        assert not kept & set(made_on["ResourceTags"])
    (group,) = image.all_of("AWS::EC2::SecurityGroup")
    assert "SecurityGroupIngress" not in group
    assert len(image.all_of("AWS::EC2::Subnet")) == 1


def test_an_existing_network_is_used_for_builds_too(tmp_path: Path) -> None:
    project = write_baking_project(tmp_path)
    network = '[deployment.network]\nvpc_id = "vpc-1"\nsubnets = { eu-west-1a = "subnet-a", '
    project.write_text(
        CONFIG.replace(
            "[workload.plain.run]", network + 'eu-west-1c = "subnet-c" }\n\n[workload.plain.run]'
        )
    )

    template = synthesise_image(project, tmp_path / "out")

    assert not template.all_of("AWS::EC2::VPC")
    for made_on in template.all_of("AWS::ImageBuilder::InfrastructureConfiguration"):
        assert made_on["SubnetId"] == "subnet-a"


def test_unused_old_images_are_deleted_with_their_snapshots(
    image: Assembly,
) -> None:
    for name in IMAGES:
        policy = made(image, "LifecyclePolicy", name)
        (rule,) = policy["PolicyDetails"]

        tags = policy["ResourceSelection"]["TagMap"]
        assert tags == made(image, "ImagePipeline", name)["ImageTags"]
        assert tags == {tag.DEPLOYMENT: "lab", "Name": name}
        assert rule["Action"]["IncludeResources"] == {"Amis": True, "Snapshots": True}
        assert rule["Filter"]["RetainAtLeast"] >= 1
        assert rule["ExclusionRules"]["Amis"]["LastLaunched"] == {"Unit": "WEEKS", "Value": 1}


def test_what_is_baked_reads_its_own_parts_and_nothing_else(
    core: Assembly, image: Assembly
) -> None:
    statements = image.statements("BuilderRole")
    uri, _ = code_of(core, "rich")

    read = {words(one) for one in listed(statements["ReadArchives"]["Resource"])}

    assert {one.partition(":::")[2] for one in read} == {
        f"{place.removeprefix('s3://').rpartition('/')[0]}/*" for place in (core.kit.uri, uri)
    }
    assert len(listed(statements["ReadComponents"]["Resource"])) == len(IMAGES)
    assert (
        words(statements["ReadTools"]["Resource"]) == "arn:<AWS::Partition>:s3:::ec2imagebuilder*"
    )
    actions = {action for one in statements.values() for action in listed(one["Action"])}
    assert not [one for one in actions if "*" in one or one.startswith(("ec2:", "iam:", "sqs:"))]


def test_only_images_of_this_deployment_expire(image: Assembly) -> None:
    statements = image.statements("ExpiryRole")

    assert statements["EndImages"]["Condition"]["StringEquals"] == {
        "aws:ResourceTag/CreatedBy": "EC2 Image Builder",
        f"aws:ResourceTag/{tag.DEPLOYMENT}": "lab",
    }
    assert words(statements["ForgetImages"]["Resource"]).endswith(":image/lab--*")


@pytest.mark.parametrize(
    ("image_arn", "may"),
    [
        (ours("imagebuilder", "image/lab--rich--arm64/1.0.3/1"), True),
        (ours("imagebuilder", "image/lab-two--rich--arm64/1.0.3/1"), False),
        (ours("imagebuilder", "image/somebodys/1.0.3/1"), False),
        (None, False),
    ],
    ids=["ours", "another deployment's", "somebody's", "not told"],
)
def test_only_snapshots_of_own_images_are_deleted(
    image: Assembly, image_arn: str | None, may: bool
) -> None:
    tags = {"CreatedBy": "EC2 Image Builder"}
    if image_arn is not None:
        tags["Ec2ImageBuilderArn"] = image_arn
    call = Call(
        "ec2:DeleteSnapshot",
        f"arn:aws:ec2:{REGION}::snapshot/snap-1",
        {f"aws:ResourceTag/{key}": [value] for key, value in tags.items()},
    )

    statements = read_statements(image, "ExpiryRole")

    assert any(one.allows(call) for one in statements) == may


def test_a_worker_of_a_baked_image_may_still_install_itself(core: Assembly) -> None:
    for role in ("WorkloadleanFleetRole", "WorkloadrichFleetRole", "WorkloadplainFleetRole"):
        read = words(core.statements(role)["ReadKit"]["Resource"])
        folder = core.kit.uri.removeprefix("s3://").rpartition("/")[0]
        assert read.partition(":::")[2] == f"{folder}/*"


def test_builds_log_where_logs_end_after_a_month(image: Assembly) -> None:
    groups = image.all_of("AWS::Logs::LogGroup")

    assert sorted(one["LogGroupName"] for one in groups) == [
        f"/aws/imagebuilder/{name}" for name in IMAGES
    ]
    assert {one["RetentionInDays"] for one in groups} == {30}


def test_cdk_and_cdk_nag_find_nothing_that_is_not_justified(tmp_path: Path) -> None:
    project = write_baking_project(tmp_path)

    found = {
        re.sub(r"<(\w+)[0-9A-F]{8}\.", r"<\1.", rule)
        for rule, _ in report_findings(
            project, tmp_path / "out", add=lambda app: describe_image(app, project)
        )
    }

    assert found == set(KEPT)


def test_archives_of_images_are_encrypted_with_an_own_key(
    tmp_path: Path,
) -> None:
    key = "arn:aws:kms:eu-west-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
    keyed = CONFIG.replace(
        "[workload.rich.run]", f'[workload.rich]\nkms_keys = ["{key}"]\n\n[workload.rich.run]'
    )
    project = write_project(tmp_path, keyed)
    (tmp_path / "code" / "needs.txt").write_text("six\n")

    statement = synthesise_image(project, tmp_path / "out").statements("BuilderRole")["UseKeys"]

    assert (statement["Action"], statement["Resource"]) == ("kms:Decrypt", key)
    through = statement["Condition"]["StringEquals"]["kms:ViaService"]
    assert "s3.eu-west-1.amazonaws.com" in through
