"""What a workload's workers are: who they may be, what they boot from, how they end."""

from collections.abc import Mapping, Sequence

from aws_cdk import CfnTag, Fn
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.grant import worker as grant
from infra.grant.statement import make_role, write_log
from infra.ground import Ground
from infra.log import make_log
from infra.workload.code import CodeArchive
from infra.workload.queue import JobQueue
from spindown.config import WorkloadConfig
from spindown.config.schema import Architecture
from spindown.contract import tag
from spindown.contract.image import Kit, image_parameter, make_stamp, render_user_data
from spindown.contract.settings import TemplateRef

#: What carries tags at a launch besides the instance, for the bill and for the grants.
_BESIDES = ("network-interface", "spot-instances-request", "volume")


class Fleet(Construct):
    """A workload's worker role, log group and one launch template for each architecture."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        workload: WorkloadConfig,
        jobs: JobQueue,
        archive: CodeArchive,
        ground: Ground,
    ) -> None:
        super().__init__(scope, construct_id)
        deployment = ground.deployment.name
        self.log_group = make_log(self, f"/spindown/{deployment}/worker/{name}")
        self.role = make_role(
            self,
            description=f"Workers of {name} in {deployment}",
            trusted=iam.ServicePrincipal("ec2.amazonaws.com"),
            statements=self._grants(name, workload, jobs, archive, ground),
        )
        profile = iam.CfnInstanceProfile(self, "Profile", roles=[self.role.role_name])
        #: Tags by which a worker finds home.
        self.tags = self._home_tags(name, jobs, archive, ground)
        #: Architecture -> SSM parameter of the image that is booted.
        self._images = _find_images(deployment, name, workload)
        user_data = _render_user_data(workload, archive, ground.kit.kit)
        #: Architecture -> launch template.
        self.templates: Mapping[str, ec2.CfnLaunchTemplate] = {
            architecture: ec2.CfnLaunchTemplate(
                self,
                f"Template-{architecture}",
                launch_template_name=f"{deployment}-{name}-{architecture}",
                launch_template_data=_template_data(
                    image_parameter=parameter,
                    root_device=workload.image.find_root_device(architecture),
                    root_volume_gib=workload.image.root_volume_gib,
                    profile_arn=profile.attr_arn,
                    security_group_id=ground.network.security_group_id,
                    tags=self.tags,
                    user_data=user_data,
                ),
            )
            for architecture, parameter in self._images.items()
        }

    @property
    def template_refs(self) -> Mapping[str, TemplateRef]:
        """Return architecture -> template at the version that this deploy makes."""
        return {
            architecture: TemplateRef(
                id=template.attr_launch_template_id, version=template.attr_latest_version_number
            )
            for architecture, template in self.templates.items()
        }

    @property
    def image_parameters(self) -> Sequence[str]:
        """Return the SSM parameters of its images."""
        return tuple(self._images.values())

    def _grants(
        self,
        name: str,
        workload: WorkloadConfig,
        jobs: JobQueue,
        archive: CodeArchive,
        ground: Ground,
    ) -> list[iam.PolicyStatement]:
        dead_letters_arn = jobs.dead_letters.queue_arn
        return [
            *grant.work_jobs(queue_arn=jobs.queue.queue_arn, dead_letters_arn=dead_letters_arn),
            *grant.keep_results(bucket_arn=ground.store.bucket.bucket_arn, workload=name),
            grant.keep_usage(bucket_arn=ground.store.bucket.bucket_arn, workload=name),
            grant.read_code(archive_arn=archive.arn),
            *([] if workload.image.mode == "ami" else [grant.read_kit(archive_arn=ground.kit.arn)]),
            *grant.read_inputs(workload.inputs),
            *grant.keep_own_rows(table_arn=ground.ledger.table.table_arn, workload=name),
            write_log(log_group_arn=self.log_group.log_group_arn),
            *([grant.open_sessions()] if ground.deployment.session_manager else []),
        ]

    def _home_tags(
        self, name: str, jobs: JobQueue, archive: CodeArchive, ground: Ground
    ) -> Mapping[str, str]:
        return {
            tag.DEPLOYMENT: ground.deployment.name,
            tag.WORKLOAD: name,
            tag.QUEUE_URL: jobs.queue.queue_url,
            tag.DLQ_URL: jobs.dead_letters.queue_url,
            tag.TABLE: ground.ledger.table.table_name,
            tag.BUCKET: ground.store.bucket.bucket_name,
            tag.CODE: archive.uri,
            tag.LOG_GROUP: self.log_group.log_group_name,
            "Name": f"{ground.deployment.name}-{name}",
        }


def _find_images(
    deployment: str, name: str, workload: WorkloadConfig
) -> Mapping[Architecture, str]:
    return {
        architecture: image_parameter(deployment, name, architecture)
        if workload.image.mode == "bake"
        else workload.image.parameters[architecture]
        for architecture in sorted(workload.requirements.architectures)
    }


def _render_user_data(workload: WorkloadConfig, archive: CodeArchive, kit: Kit) -> str:
    match workload.image.mode:
        case "bootstrap":
            return render_user_data(kit)
        case "bake":
            return render_user_data(kit, stamp=make_stamp(kit, archive.requirements_digest))
        case "ami":
            return render_user_data(None)


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
