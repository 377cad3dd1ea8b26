"""Launch templates: what every instance of a workload is launched with in one region."""

from collections.abc import Mapping

from aws_cdk import CfnTag, Fn
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from spindown.config import WorkloadConfig
from spindown.config.form import Architecture
from spindown.contract import tag
from spindown.contract.image import DISK_KEY
from spindown.contract.settings import TemplateRef

#: What carries tags at a launch besides the instance, for the bill and for the grants. Not the spot
#: request: EC2 launches nothing on demand from a template with tags for one
#: (github.com/github-aws-runners/terraform-aws-github-runner/issues/4561).
_BESIDES = ("network-interface", "volume")


def add_templates(
    scope: Construct,
    *,
    name: str,
    workload: WorkloadConfig,
    images: Mapping[Architecture, str],
    profile_arn: str,
    security_group_id: str,
    tags: Mapping[str, str],
    user_data: str,
) -> Mapping[str, ec2.CfnLaunchTemplate]:
    """Add a template for each architecture to ``scope``; ``name`` begins their names."""
    return {
        architecture: ec2.CfnLaunchTemplate(
            scope,
            f"Template-{architecture}",
            launch_template_name=f"{name}-{architecture}",
            launch_template_data=_template_data(
                image_parameter=parameter,
                root_device=workload.image.find_root_device(architecture),
                root_volume_gib=workload.image.root_volume_gib,
                profile_arn=profile_arn,
                security_group_id=security_group_id,
                tags=tags,
                user_data=user_data,
            ),
        )
        for architecture, parameter in images.items()
    }


def refs_of(templates: Mapping[str, ec2.CfnLaunchTemplate]) -> Mapping[str, TemplateRef]:
    """Return architecture -> template at the version that this deploy makes."""
    return {
        architecture: TemplateRef(
            id=template.attr_launch_template_id, version=template.attr_latest_version_number
        )
        for architecture, template in templates.items()
    }


def _template_data(
    *,
    image_parameter: str,
    root_device: str,
    root_volume_gib: int,
    profile_arn: str,
    security_group_id: str,
    tags: Mapping[str, str],
    user_data: str,
) -> ec2.CfnLaunchTemplate.LaunchTemplateDataProperty:
    """Return what every instance is launched with; type, subnet and market come per call.

    The image is looked up at each launch, so a rebuilt one needs no deploy.
    """
    template = ec2.CfnLaunchTemplate
    kept = {name: tags[name] for name in (tag.DEPLOYMENT, tag.WORKLOAD, "Name")}
    return template.LaunchTemplateDataProperty(
        image_id=f"resolve:ssm:{image_parameter}",
        instance_initiated_shutdown_behavior="terminate",
        iam_instance_profile=template.IamInstanceProfileProperty(arn=profile_arn),
        security_group_ids=[security_group_id],
        metadata_options=template.MetadataOptionsProperty(
            http_endpoint="enabled",
            http_tokens="required",
            http_put_response_hop_limit=2,
            instance_metadata_tags="enabled",
        ),
        block_device_mappings=[
            template.BlockDeviceMappingProperty(
                device_name=root_device,
                ebs=template.EbsProperty(
                    volume_type="gp3",
                    volume_size=root_volume_gib,
                    encrypted=True,
                    kms_key_id=DISK_KEY,
                    delete_on_termination=True,
                ),
            )
        ],
        tag_specifications=[
            _tag("instance", tags),
            *(_tag(kind, kept) for kind in _BESIDES),
        ],
        user_data=Fn.base64(user_data),
    )


def _tag(
    resource_type: str, tags: Mapping[str, str]
) -> ec2.CfnLaunchTemplate.TagSpecificationProperty:
    return ec2.CfnLaunchTemplate.TagSpecificationProperty(
        resource_type=resource_type,
        tags=[CfnTag(key=key, value=value) for key, value in tags.items()],
    )
