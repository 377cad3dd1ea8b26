"""A deployment as a construct: the same stacks as those of the app, inside somebody's own app."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from aws_cdk import DefaultStackSynthesizer, IStackSynthesizer
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from spindown import config as configuration
from spindown.config import Config, DeploymentConfig, PricingConfig, WorkloadConfig
from spindown.error import ConfigError
from spindown.infra.control.bundle import Target
from spindown.infra.core import CoreStack
from spindown.infra.fault import FaultStack, workloads_to_verify
from spindown.infra.image_stack import ImageStack, baked_workloads, precedes_core
from spindown.infra.observability.stack import InsightStack
from spindown.infra.outpost import OutpostStack


class Deployment(Construct):
    """One deployment: its stacks, named ``{deployment}-core`` and so on wherever it stands.

    An app may hold several. They share no name, and none needs another to be deployed before.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: DeploymentConfig,
        workloads: Mapping[str, WorkloadConfig],
        pricing: PricingConfig | None = None,
        root: Path | None = None,
        make_synthesizer: Callable[[], IStackSynthesizer] | None = None,
    ) -> None:
        """Add the stacks of a deployment to an app or a stage.

        Args:
            scope: an app or a stage, not a stack.
            construct_id: unique in the scope.
            deployment: as the table ``[deployment]`` of spindown.toml.
            workloads: as its tables ``[workload.NAME]``, by name.
            pricing: as the table ``[pricing]``; None: EC2's prices.
            root: where the folders of the code begin; None: the working directory.
            make_synthesizer: makes the synthesizer of one stack; None: CDK's usual one.

        Raises:
            ConfigError: a value that only the files or other values show to be wrong, or a name
                that another deployment of the app has, also where they are for other accounts.
        """
        super().__init__(scope, construct_id)
        #: What its stacks are named after.
        self.name: str = deployment.name
        for other in scope.node.root.node.find_all():
            if (
                isinstance(other, Deployment)
                and other is not self
                and other.name == deployment.name
            ):
                advice = f"give it a name of its own: {other.node.path} has this one"
                raise ConfigError("deployment.name", deployment.name, advice)
        document = {
            "deployment": deployment,
            "workload": dict(workloads),
            "pricing": pricing or PricingConfig(),
        }
        self._core = add_stacks(
            self,
            configuration.parse(document),
            root=root or Path(),
            target=Target.LAMBDA,
            make_synthesizer=make_synthesizer,
        )

    @classmethod
    def from_file(cls, scope: Construct, construct_id: str, path: Path) -> "Deployment":
        """Add the deployment that a spindown.toml describes (raises ConfigError)."""
        loaded = configuration.load(path)
        return cls(
            scope,
            construct_id,
            deployment=loaded.deployment,
            workloads=loaded.workloads,
            pricing=loaded.pricing,
            root=path.resolve().parent,
        )

    @property
    def bucket(self) -> s3.IBucket:
        """Return the bucket of inputs and results."""
        return self._core.bucket

    @property
    def topic(self) -> sns.ITopic:
        """Return the topic that carries alarms to people."""
        return self._core.topic

    def queue(self, workload: str) -> sqs.IQueue:
        """Return the queue of a workload, to which work is sent (raises ConfigError)."""
        queues = {one.name: one.jobs.queue for one in self._core.workloads}
        if workload not in queues:
            raise ConfigError("queue", workload, f"name a workload: {', '.join(sorted(queues))}")
        return queues[workload]


def add_stacks(
    scope: Construct,
    config: Config,
    *,
    root: Path,
    target: Target,
    make_synthesizer: Callable[[], IStackSynthesizer] | None = None,
) -> CoreStack:
    """Add the stacks of a deployment, return the core stack (raises ConfigError)."""
    if make_synthesizer is None:
        make_synthesizer = partial(
            DefaultStackSynthesizer, qualifier=config.deployment.bootstrap_qualifier
        )
    core = CoreStack(scope, config=config, root=root, target=target, synthesizer=make_synthesizer())
    if baked_workloads(config):
        image = ImageStack(scope, config=config, root=root, synthesizer=make_synthesizer())
        if precedes_core(config):
            # Core launches workers from these images, so they must be there first.
            core.add_stack_dependency(image)
        else:
            # It builds in core's network; should it fail, instances install at their start.
            image.add_stack_dependency(core)
    for region in sorted(config.deployment.outpost):
        outpost = OutpostStack(
            scope,
            deployment=config.deployment,
            region=region,
            workloads=core.workloads,
            target=target,
            synthesizer=make_synthesizer(),
        )
        # The outpost attaches its grants to roles of core.
        outpost.add_stack_dependency(core)
    if workloads_to_verify(config):
        FaultStack(scope, config=config, synthesizer=make_synthesizer())
    # In an app of strong references insight imports it where alarms are heard. An export that went
    # with that setting could not be deleted: the insight that is deployed would still use it.
    core.export_value(core.failed_events.queue_name)
    InsightStack(
        scope,
        config=config,
        bucket_name=core.bucket.bucket_name,
        topic_arn=core.topic.topic_arn,
        failed_events=core.failed_events.queue_name,
        synthesizer=make_synthesizer(),
    )
    return core
