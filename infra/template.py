"""Launch templates of EC2: what every instance of a workload is launched with."""

from collections.abc import Mapping
from functools import partial

from aws_cdk import CfnTag, Fn
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from spindown.config import DeploymentConfig, ImageConfig, WorkloadConfig
from spindown.config.form import Architecture
from spindown.contract import tag
from spindown.contract.image import DISK_KEY
from spindown.contract.name import resource_name
from spindown.contract.settings import TemplateRef, on_spot
from spindown.infra.shared.stack import DeploymentStack

#: EC2 launches nothing on demand from a template with tags for it
#: (github.com/github-aws-runners/terraform-aws-github-runner/issues/4561).
_SPOT_REQUEST = "spot-instances-request"


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
    """Add the launch templates of a workload in a region; their names begin with ``name``.

    There is one for each architecture, and with tags of the account another one for spot.
    """
    stack = DeploymentStack.holding(scope)
    shared = stack.deployment.tags
    what = partial(
        _template_data,
        stack.deployment,
        # A container is a network of its own, one hop farther from instance metadata.
        hops=2 if workload.run.image and workload.run.metadata_access else 1,
        profile_arn=profile_arn,
        security_group_id=security_group_id,
        user_data=user_data,
    )
    # For the bill, and for the grants.
    kept = {**shared, **{key: tags[key] for key in (tag.DEPLOYMENT, tag.WORKLOAD, "Name")}}
    tagged = {"instance": {**shared, **tags}, "network-interface": kept, "volume": kept}

    made = [(key, str(key), tagged) for key in images]
    if shared:
        made += [(key, on_spot(key), {**tagged, _SPOT_REQUEST: kept}) for key in images]
    return {
        key: ec2.CfnLaunchTemplate(
            scope,
            f"Template-{key.replace('/', '-')}",
            launch_template_name=resource_name(name, *key.split("/")),
            launch_template_data=what(
                image_parameter=images[architecture],
                disk=_root_disk(workload.image, architecture, stack.key_arn or DISK_KEY),
                tagged=tags_of,
            ),
            tag_specifications=[_tag_template(shared)] if shared else None,
        )
        for architecture, key, tags_of in made
    }


def refs_of(templates: Mapping[str, ec2.CfnLaunchTemplate]) -> Mapping[str, TemplateRef]:
    """Return the templates by the same keys, at the versions that this deploy makes."""
    return {
        key: TemplateRef(
            id=template.attr_launch_template_id, version=template.attr_latest_version_number
        )
        for key, template in templates.items()
    }


def _template_data(
    deployment: DeploymentConfig,
    *,
    image_parameter: str,
    disk: ec2.CfnLaunchTemplate.BlockDeviceMappingProperty,
    hops: int,
    profile_arn: str,
    security_group_id: str,
    tagged: Mapping[str, Mapping[str, str]],
    user_data: str,
) -> ec2.CfnLaunchTemplate.LaunchTemplateDataProperty:
    """Return what every instance is launched with; each call adds type, subnet and market.

    EC2 looks up the image at each launch, so a rebuilt image needs no deploy. ``tagged``: resource
    type -> tags.
    """
    template = ec2.CfnLaunchTemplate
    is_watched = deployment.detailed_monitoring
    groups = [security_group_id]
    # Whatever the subnet gives; groups are then the interface's.
    private = template.NetworkInterfaceProperty(
        device_index=0,
        associate_public_ip_address=False,
        delete_on_termination=True,
        groups=groups,
    )
    return template.LaunchTemplateDataProperty(
        image_id=f"resolve:ssm:{image_parameter}",
        instance_initiated_shutdown_behavior="terminate",
        iam_instance_profile=template.IamInstanceProfileProperty(arn=profile_arn),
        security_group_ids=groups if deployment.public_addresses else None,
        network_interfaces=None if deployment.public_addresses else [private],
        metadata_options=template.MetadataOptionsProperty(
            http_endpoint="enabled",
            http_tokens="required",
            http_put_response_hop_limit=hops,
            instance_metadata_tags="enabled",
        ),
        monitoring=template.MonitoringProperty(enabled=True) if is_watched else None,
        block_device_mappings=[disk],
        tag_specifications=[
            template.TagSpecificationProperty(resource_type=kind, tags=_listed(tags))
            for kind, tags in tagged.items()
        ],
        user_data=Fn.base64(user_data),
    )


def _root_disk(
    image: ImageConfig, architecture: Architecture, key: str
) -> ec2.CfnLaunchTemplate.BlockDeviceMappingProperty:
    template = ec2.CfnLaunchTemplate
    return template.BlockDeviceMappingProperty(
        device_name=image.find_root_device(architecture),
        ebs=template.EbsProperty(
            volume_type="gp3",
            volume_size=image.root_volume_gib,
            encrypted=True,
            kms_key_id=key,
            delete_on_termination=True,
        ),
    )


def _tag_template(
    tags: Mapping[str, str],
) -> ec2.CfnLaunchTemplate.LaunchTemplateTagSpecificationProperty:
    """Return the tags of a template itself, which CDK's own way to tag leaves out."""
    return ec2.CfnLaunchTemplate.LaunchTemplateTagSpecificationProperty(
        resource_type="launch-template", tags=_listed(tags)
    )


def _listed(tags: Mapping[str, str]) -> list[CfnTag]:
    return [CfnTag(key=key, value=value) for key, value in tags.items()]
