"""What a workload's workers are: who they may be, what they boot from, how they end."""

from collections.abc import Mapping, Sequence

from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.grant import worker as grant
from infra.grant.statement import make_role, write_log
from infra.ground import Ground, fixed_name
from infra.log import make_log
from infra.workload.code import CodeArchive
from infra.workload.queue import JobQueue
from infra.workload.template import add_templates, refs_of
from spindown.config import WorkloadConfig
from spindown.config.form import Architecture
from spindown.contract import tag
from spindown.contract.image import Kit, image_parameter, make_stamp, render_user_data
from spindown.contract.settings import TemplateRef


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
        self.tags = {
            **self._home_tags(name, jobs, archive, ground),
            **_describe_machine(workload),
        }
        #: Architecture -> SSM parameter of the image that is booted.
        self.images = _find_images(deployment, name, workload)
        self.user_data = _render_user_data(workload, archive, ground.kit.kit)
        #: Architecture -> launch template.
        self.templates = add_templates(
            self,
            name=f"{deployment}-{name}",
            workload=workload,
            images=self.images,
            profile_arn=profile.attr_arn,
            security_group_id=ground.network.security_group_id,
            tags=self.tags,
            user_data=self.user_data,
        )
        if ground.deployment.outpost:
            self._add_profile_abroad(fixed_name(ground.deployment, name))

    def _add_profile_abroad(self, name: str) -> None:
        """Add a profile beside the other, which running instances have, that outposts can name."""
        iam.CfnInstanceProfile(
            self, "ProfileAbroad", instance_profile_name=name, roles=[self.role.role_name]
        )

    @property
    def template_refs(self) -> Mapping[str, TemplateRef]:
        """Return architecture -> template at the version that this deploy makes."""
        return refs_of(self.templates)

    @property
    def image_parameters(self) -> Sequence[str]:
        """Return the SSM parameters of its images."""
        return tuple(self.images.values())

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
            grant.tell_of_jobs(),
            grant.read_code(archive_arn=archive.arn),
            *([] if workload.image.mode == "ami" else [grant.read_kit(archive_arn=ground.kit.arn)]),
            *grant.read_declared([*workload.inputs, *workload.models]),
            *grant.read_secrets(sorted(set(workload.run.secrets.values()))),
            *grant.use_keys(workload.kms_keys),
            *grant.pull_image(workload.run.image),
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
            tag.REGION: ground.deployment.region,
            tag.QUEUE_URL: jobs.queue.queue_url,
            tag.DLQ_URL: jobs.dead_letters.queue_url,
            tag.TABLE: ground.ledger.table.table_name,
            tag.BUCKET: ground.store.bucket.bucket_name,
            tag.CODE: archive.uri,
            tag.LOG_GROUP: self.log_group.log_group_name,
            "Name": f"{ground.deployment.name}-{name}",
        }


def _describe_machine(workload: WorkloadConfig) -> Mapping[str, str]:
    """Return what the instance must know of itself before the worker runs."""
    memory_mib = workload.requirements.to_domain().gpu_memory_mib_min
    return {
        **({tag.METADATA_ACCESS: "allow"} if workload.run.metadata_access else {}),
        **({tag.GPU_MEMORY: str(memory_mib)} if memory_mib else {}),
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
