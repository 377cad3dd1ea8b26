"""One workload: its queues, its code, its workers' role, and its settings as deployed."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from aws_cdk import Duration, RemovalPolicy, Tags
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from spindown.config import WorkloadConfig
from spindown.config.form import Architecture
from spindown.contract import tag
from spindown.contract.folder import folder_prefix
from spindown.contract.image import (
    Kit,
    image_name,
    image_parameter,
    make_stamp,
    render_user_data,
)
from spindown.contract.job.batch import SUBMITTED
from spindown.contract.job.manifest import STATES
from spindown.contract.location import work_root
from spindown.contract.name import queue_name, resource_name
from spindown.contract.queue import HIDDEN_FOR, KEPT_FOR, POLL, SHAPES, queue_of_shape
from spindown.contract.settings import (
    BakeSettings,
    RegionSettings,
    RunSettings,
    TemplateRef,
    WorkloadSettings,
)
from spindown.domain.account_pricing import Pricing
from spindown.domain.retry_or_dead_letter import MAX_RECEIVE_COUNT
from spindown.infra.iam import worker as grants
from spindown.infra.iam.statement import make_profile, make_role, regional, write_log
from spindown.infra.observability.alarm import lost_events, make_alarm
from spindown.infra.shared.archive import CodeArchive
from spindown.infra.shared.resources import (
    ANY_DEAD_LETTERS,
    NO_DEAD_LETTERS,
    SharedResources,
    encrypt_queue,
    make_log,
)
from spindown.infra.source import add_source
from spindown.infra.template import add_templates, refs_of


class WorkloadQueues(Construct):
    """``{deployment}--{workload}`` and ``{deployment}--{workload}--dlq``, both standard queues.

    The dead-letter queue keeps messages longer, since a message that is moved there keeps its age.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: str,
        workload: str,
        has_types: bool,
    ) -> None:
        super().__init__(scope, construct_id)
        name = queue_name(deployment, workload)
        # Queues of shapes are made later, and SQS takes the names of ten at most. By its ARN, since
        # the queue itself refers to this one.
        own = sqs.Queue.from_queue_arn(self, "Source", regional("sqs", name))
        self.dead_letters = sqs.Queue(
            self,
            "DeadLetters",
            queue_name=resource_name(name, "dlq"),
            **encrypt_queue(self),
            enforce_ssl=True,
            retention_period=Duration.days(14),
            removal_policy=RemovalPolicy.DESTROY,
            redrive_allow_policy=ANY_DEAD_LETTERS
            if has_types
            else sqs.RedriveAllowPolicy(source_queues=[own]),
        )
        self.queue = sqs.Queue(
            self,
            "Queue",
            queue_name=name,
            **encrypt_queue(self),
            enforce_ssl=True,
            retention_period=Duration.seconds(KEPT_FOR.total_seconds()),
            receive_message_wait_time=Duration.seconds(POLL.total_seconds()),
            visibility_timeout=Duration.seconds(HIDDEN_FOR.total_seconds()),
            removal_policy=RemovalPolicy.DESTROY,
            redrive_allow_policy=NO_DEAD_LETTERS,
            dead_letter_queue=sqs.DeadLetterQueue(
                queue=self.dead_letters, max_receive_count=MAX_RECEIVE_COUNT
            ),
        )
        #: Pattern of the queues of its shapes, which a deploy without types may have left behind.
        self.shapes_arn = queue_of_shape(self.queue.queue_arn, SHAPES)

    @property
    def work_arns(self) -> list[str]:
        """Return the queues in which its messages wait."""
        return [self.queue.queue_arn, self.shapes_arn]


class WorkerFleet(Construct):
    """A workload's worker role, log group and one launch template for each architecture."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        workload: WorkloadConfig,
        jobs: WorkloadQueues,
        archive: CodeArchive,
        shared: SharedResources,
    ) -> None:
        super().__init__(scope, construct_id)
        deployment = shared.deployment.name
        self.log_group = make_log(self, f"/spindown/{deployment}/worker/{name}")
        self.role = make_role(
            self,
            what=["worker", name],
            description=f"Workers of {name} in {deployment}",
            trusted=iam.ServicePrincipal("ec2.amazonaws.com"),
            statements=self._grants(name, workload, jobs, archive, shared),
        )
        profile = make_profile(self, "Profile", self.role, what=["worker", name], is_named=False)
        #: Tags by which a worker finds the home region.
        self.tags = {
            **self._home_tags(name, jobs, archive, shared),
            **_describe_machine(workload),
        }
        #: Architecture -> SSM parameter of the image.
        self.images = _find_images(deployment, name, workload)
        self.user_data = _render_user_data(workload, archive, shared.kit.kit)
        self.templates = add_templates(
            self,
            name=resource_name(deployment, name),
            workload=workload,
            images=self.images,
            profile_arn=profile.attr_arn,
            security_group_id=shared.network.security_group_id,
            tags=self.tags,
            user_data=self.user_data,
        )
        if shared.deployment.outpost:
            # With a fixed name, for outposts, beside that of running instances.
            make_profile(self, "ProfileAbroad", self.role, what=[name], is_named=True)

    @property
    def template_refs(self) -> Mapping[str, TemplateRef]:
        """Return its templates at the versions that this deploy makes, as an outpost has them."""
        return refs_of(self.templates)

    @property
    def image_parameters(self) -> Sequence[str]:
        """Return the SSM parameters of its images."""
        return tuple(self.images.values())

    def _grants(
        self,
        name: str,
        workload: WorkloadConfig,
        jobs: WorkloadQueues,
        archive: CodeArchive,
        shared: SharedResources,
    ) -> list[iam.PolicyStatement]:
        dead_letters_arn, has_types = jobs.dead_letters.queue_arn, workload.has_types
        return [
            *grants.work_jobs(
                queue_arn=jobs.shapes_arn if has_types else jobs.queue.queue_arn,
                other_arn=jobs.queue.queue_arn if has_types else jobs.shapes_arn,
                dead_letters_arn=dead_letters_arn,
            ),
            *grants.keep_results(bucket_arn=shared.store.bucket.bucket_arn, workload=name),
            grants.keep_usage(bucket_arn=shared.store.bucket.bucket_arn, workload=name),
            grants.tell_of_jobs(deployment=shared.deployment.name, workload=name),
            grants.read_code(archives_arn=archive.releases_arn),
            *(
                [grants.read_folders(bucket_arn=shared.store.bucket.bucket_arn, workload=name)]
                if workload.run.folders
                else []
            ),
            # Also for an image of one's own: the release before may have installed itself.
            grants.read_kit(archives_arn=shared.kit.releases_arn),
            *grants.read_declared([*workload.inputs, *workload.models]),
            *grants.read_secrets(
                sorted(set(workload.run.secrets.values())), own_key=shared.deployment.kms_key_arn
            ),
            *grants.use_keys(workload.kms_keys),
            *grants.pull_image(workload.run.image),
            *grants.keep_own_rows(table_arn=shared.ledger.table.table_arn, workload=name),
            write_log(log_group_arn=self.log_group.log_group_arn),
            *(
                [grants.open_sessions(list(shared.deployment.regions))]
                if shared.deployment.session_manager
                else []
            ),
        ]

    def _home_tags(
        self, name: str, jobs: WorkloadQueues, archive: CodeArchive, shared: SharedResources
    ) -> Mapping[str, str]:
        return {
            tag.DEPLOYMENT: shared.deployment.name,
            tag.WORKLOAD: name,
            tag.REGION: shared.deployment.region,
            tag.QUEUE_URL: jobs.queue.queue_url,
            tag.DLQ_URL: jobs.dead_letters.queue_url,
            tag.TABLE: shared.ledger.table.table_name,
            tag.BUCKET: shared.store.bucket.bucket_name,
            tag.CODE: archive.uri,
            tag.LOG_GROUP: self.log_group.log_group_name,
            "Name": resource_name(shared.deployment.name, name),
        }


def _describe_machine(workload: WorkloadConfig) -> Mapping[str, str]:
    """Return the tags that an instance reads before its worker runs."""
    required = workload.requirements.to_domain()
    numbers = {
        tag.VCPUS: required.vcpus_min,
        tag.MEMORY: required.memory_mib_min,
        tag.GPU_MEMORY: required.gpu_memory_mib_min,
    }
    return {
        **({tag.METADATA_ACCESS: "allow"} if workload.run.metadata_access else {}),
        **({tag.CONTAINERS: "allow"} if workload.run.image else {}),
        **{name: str(number) for name, number in numbers.items() if number},
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
        case "auto" if not workload.image.is_baked:
            return render_user_data(kit)
        case "auto" | "bake":
            return render_user_data(kit, stamp=make_stamp(kit, archive.requirements_digest))
        case "ami":
            return render_user_data(None)


#: Far longer than ``RENEW_STATE_AFTER`` (contract.job.manifest): by then jobs write theirs anew.
STATE_KEPT_FOR = Duration.days(30)
#: Longer than a message waits, in both queues together, with a redrive between.
FOLDERS_KEPT_FOR = Duration.days(60)
#: Longer than the queue keeps a message: what is lost in that time can be sent again.
MESSAGES_KEPT_FOR = Duration.days(30)


class WorkloadResources(Construct):
    """What a ``[workload.NAME]`` of spindown.toml becomes."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name: str,
        config: WorkloadConfig,
        root: Path,
        shared: SharedResources,
        pricing: Pricing | None = None,
    ) -> None:
        """Describe ``config``; its paths are relative to ``root`` (raises ConfigError)."""
        super().__init__(scope, construct_id)
        self.name = name
        self.config = config
        self._shared = shared
        self._pricing = pricing
        self.jobs = WorkloadQueues(
            self,
            "Jobs",
            deployment=shared.deployment.name,
            workload=name,
            has_types=config.has_types,
        )
        # So who only submits finds the bucket without a right to read settings.
        Tags.of(self.jobs.queue).add(tag.BUCKET, shared.store.bucket.bucket_name)
        # Expiry deletes checkpoints in use too, so jobs write those anew before they expire.
        shared.store.bucket.add_lifecycle_rule(
            id=f"expire-state-{name}",
            prefix=f"{work_root(name)}{STATES}",
            expiration=STATE_KEPT_FOR,
        )
        shared.store.bucket.add_lifecycle_rule(
            id=f"expire-submitted-{name}",
            prefix=f"{work_root(name)}{SUBMITTED}",
            expiration=MESSAGES_KEPT_FOR,
        )
        if config.run.folders:
            shared.store.bucket.add_lifecycle_rule(
                id=f"expire-folders-{name}",
                prefix=folder_prefix(name),
                expiration=FOLDERS_KEPT_FOR,
            )
        for number, source in enumerate(config.sources):
            rule = add_source(
                self, f"Source{number}", source, self.jobs.queue, self.jobs.dead_letters
            )
            make_alarm(
                self,
                lost_events(
                    rule.ref,
                    number,
                    bucket=source.bucket,
                    queue=queue_name(shared.deployment.name, name),
                ),
                prefix=resource_name(shared.deployment.name, name),
                topic=shared.topic.topic,
            )
        self.archive = CodeArchive(
            self,
            "Code",
            root=root,
            deployment=shared.deployment.name,
            name=name,
            workload=config,
            assets=shared.assets,
        )
        # So who submits sees that the code here is not the one that runs.
        Tags.of(self.jobs.queue).add(tag.CODE_VERSION, self.archive.version)
        self.fleet = WorkerFleet(
            self,
            "Fleet",
            name=name,
            workload=config,
            jobs=self.jobs,
            archive=self.archive,
            shared=shared,
        )

    @property
    def settings(self) -> WorkloadSettings:
        """Return what functions and the command line read about the workload."""
        place = RegionSettings(
            subnets=self._shared.network.subnets, templates=self.fleet.template_refs
        )
        return WorkloadSettings(
            name=self.name,
            queue_url=self.jobs.queue.queue_url,
            dlq_url=self.jobs.dead_letters.queue_url,
            log_group=self.fleet.log_group.log_group_name,
            regions={self._shared.deployment.region: place},
            outposts=tuple(sorted(self._shared.deployment.outpost)),
            run=RunSettings(
                slots=str(self.config.run.slots),
                code=self.archive.uri,
                code_digest=self.archive.digest,
                code_version=self.archive.version,
                root_volume_gib=self.config.image.root_volume_gib,
                folders=self.config.run.folders,
                verify=self.config.run.verify,
                stop_grace=self.config.run.stop_grace
                if self.config.run.entrypoint is None
                else timedelta(0),
            ),
            requirements=self.config.to_requirements(),
            policy=self.config.to_policy(),
            bake=self._bake(),
            pricing=self._pricing,
        )

    def _bake(self) -> BakeSettings | None:
        """Return how the functions have its images baked, by the names that its stack gives."""
        image, name = self.config.image, self._shared.deployment.name
        if image.mode != "auto" or not image.is_baked:
            return None
        return BakeSettings(
            pipelines={
                architecture: regional(
                    "imagebuilder",
                    f"image-pipeline/{image_name(name, self.name, architecture)}",
                )
                for architecture in sorted(self.config.requirements.architectures)
            },
            stamp=make_stamp(self._shared.kit.kit, self.archive.requirements_digest),
        )
