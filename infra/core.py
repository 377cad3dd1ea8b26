"""The core stack: everything that runs. It holds only types that the local system creates too."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from aws_cdk import IStackSynthesizer
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from spindown.config import Config
from spindown.config.form import Architecture
from spindown.config.need import needed_endpoints
from spindown.contract.codec import encode_short, to_json
from spindown.contract.settings import (
    DeploymentSettings,
    WorkloadSettings,
    builder_parameter,
    deployment_parameter,
    workload_parameter,
)
from spindown.infra.control.bundle import LOCK, TABLE_LOCK, FunctionBundle, Target
from spindown.infra.control.control import ControlPlane
from spindown.infra.flow_log import log_connections
from spindown.infra.shared.archive import KitArchive
from spindown.infra.shared.network import Network
from spindown.infra.shared.resources import (
    AlarmTopic,
    DeploymentBucket,
    LedgerTable,
    SharedResources,
)
from spindown.infra.shared.stack import DeploymentStack
from spindown.infra.workload import WorkloadResources


class SettingsParameters(Construct):
    """What is deployed, as SSM parameters of JSON: one for the deployment, one for each workload.

    Live edits are in parameters that no template knows, so no deploy overwrites them.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: DeploymentSettings,
        workloads: Mapping[str, WorkloadSettings],
    ) -> None:
        super().__init__(scope, construct_id)
        self._put("Deployment", deployment_parameter(deployment.name), deployment)
        for name, workload in workloads.items():
            self._put(f"Workload-{name}", workload_parameter(deployment.name, name), workload)

    def _put(
        self, construct_id: str, name: str, value: DeploymentSettings | WorkloadSettings
    ) -> None:
        ssm.CfnParameter(
            self,
            construct_id,
            name=name,
            type="String",
            # Free up to 4 KiB, which long lists of types, GPUs or zones may pass.
            tier="Intelligent-Tiering",
            value=to_json(encode_short(value)),
        )


def _needed_by_workers(config: Config) -> frozenset[str]:
    """Return the services that workers call, by the names of their endpoints."""
    shell = config.deployment.session_manager
    each = (needed_endpoints(one.run, session_manager=shell) for one in config.workloads.values())
    return frozenset[str]().union(*each)


def _installed_on(config: Config) -> frozenset[Architecture]:
    """Return the architectures of instances that may install themselves."""
    return frozenset(
        architecture
        for one in config.workloads.values()
        if one.image.mode != "ami"
        for architecture in one.requirements.architectures
    )


class CoreStack(DeploymentStack):
    """``{deployment}-core``: ledger, bucket, network, functions, and each workload."""

    def __init__(
        self,
        scope: Construct,
        *,
        config: Config,
        root: Path,
        target: Target,
        synthesizer: IStackSynthesizer,
    ) -> None:
        """Describe ``config``; its paths are relative to ``root`` (raises ConfigError)."""
        deployment = config.deployment
        super().__init__(
            scope,
            deployment=deployment,
            part="core",
            holds="all that runs",
            synthesizer=synthesizer,
        )
        # The stack works with a bound copy, which cannot be reached from here. Both keep one list
        # of assets, so the code archives can be added through the original.
        synthesizer.bind(self)
        shared = SharedResources(
            deployment=deployment,
            ledger=LedgerTable(self, "Ledger", deployment=deployment.name),
            store=DeploymentBucket(self, "Store", workloads=list(config.workloads)),
            network=Network(
                self, "Network", deployment=deployment, needed=_needed_by_workers(config)
            ),
            topic=AlarmTopic(
                self, "Alarms", deployment=deployment.name, email=deployment.alarm_email
            ),
            kit=KitArchive(
                self,
                "Kit",
                assets=synthesizer,
                architectures=_installed_on(config) if target is Target.LAMBDA else (),
            ),
            assets=synthesizer,
        )
        log_connections(self, shared.network, deployment)
        #: The bucket of results and usage records.
        self.bucket = shared.store.bucket
        #: The topic that carries alarms to people.
        self.topic = shared.topic.topic
        self.workloads = workloads = [
            WorkloadResources(
                self,
                f"Workload-{name}",
                name=name,
                config=one,
                root=root,
                shared=shared,
                pricing=config.pricing.of(
                    name, deployment.region, has_addresses=deployment.public_addresses
                ),
            )
            for name, one in config.workloads.items()
        ]
        control = self._add_control(shared, workloads, target)
        #: The queue of events on which functions have failed for good.
        self.failed_events = control.failed_events
        self._write_settings(config, shared, workloads, control)

    def _add_control(
        self, shared: SharedResources, workloads: Sequence[WorkloadResources], target: Target
    ) -> ControlPlane:
        bundle, table_bundle = FunctionBundle(target), FunctionBundle(target, (LOCK, TABLE_LOCK))
        try:
            return ControlPlane(
                self,
                "Control",
                shared=shared,
                workloads=workloads,
                code=bundle.code,
                table_code=table_bundle.code,
            )
        except RuntimeError as exc:
            raise bundle.failure or table_bundle.failure or exc from exc

    def _write_settings(
        self,
        config: Config,
        shared: SharedResources,
        workloads: Sequence[WorkloadResources],
        control: ControlPlane,
    ) -> None:
        settings = DeploymentSettings(
            name=config.deployment.name,
            region=config.deployment.region,
            table=shared.ledger.table.table_name,
            bucket=shared.store.bucket.bucket_name,
            workloads=tuple(one.name for one in workloads),
            scaler=control.scaler.function.function_name,
            topic=shared.topic.topic.topic_arn,
            batches_told=config.deployment.alarm_batches,
            budget_per_month=config.deployment.budget_per_month,
            tags=config.deployment.tags,
        )
        of_workloads = {one.name: one.settings for one in workloads}
        written = SettingsParameters(self, "Settings", deployment=settings, workloads=of_workloads)
        if any(one.bake is not None for one in of_workloads.values()):
            self._say_where_to_build(written, shared)
        # So no tick runs before the settings are there.
        control.teardown.outlive(written)
        control.teardown.end_with_subnets(list(shared.network.subnets.values()), after=written)

    def _say_where_to_build(self, written: Construct, shared: SharedResources) -> None:
        """Write down where images are baked, for the stack that is deployed after this one."""
        subnet_id = next(iter(shared.network.subnets.values()))
        place = {"subnet": subnet_id, "group": shared.network.security_group_id}
        for what, value in place.items():
            ssm.CfnParameter(
                written,
                f"Builder{what.capitalize()}",
                name=builder_parameter(shared.deployment.name, what),
                type="String",
                value=value,
            )
