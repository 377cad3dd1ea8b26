"""The core stack: everything that runs. It holds only types that the local system creates too."""

from collections.abc import Sequence
from pathlib import Path

from aws_cdk import IStackSynthesizer
from constructs import Construct

from infra.control.bundle import FunctionBundle, Target
from infra.control.control import Control
from infra.ground import DeploymentStack, Ground
from infra.image.kit import KitArchive
from infra.ledger import Ledger
from infra.network import Network
from infra.settings import Settings
from infra.store import Store
from infra.topic import AlarmTopic
from infra.workload.workload import Workload
from spindown.config import Config
from spindown.contract.settings import DeploymentSettings


class CoreStack(DeploymentStack):
    """``{deployment}-core``: ledger, bucket, network, functions; queue and fleet a workload."""

    def __init__(
        self,
        scope: Construct,
        *,
        config: Config,
        root: Path,
        target: Target,
        synthesizer: IStackSynthesizer,
    ) -> None:
        """Describe ``config``; ``root`` is where its relative paths begin (ConfigError)."""
        deployment = config.deployment
        super().__init__(
            scope,
            deployment=deployment,
            part="core",
            holds="all that runs",
            synthesizer=synthesizer,
        )
        # The stack works with a bound copy, which cannot be reached from here; both keep one
        # list of assets, so that the code archives can be added through the original.
        synthesizer.bind(self)
        ground = Ground(
            deployment=deployment,
            ledger=Ledger(self, "Ledger", deployment=deployment.name),
            store=Store(self, "Store"),
            network=Network(self, "Network", deployment=deployment),
            topic=AlarmTopic(
                self, "Alarms", deployment=deployment.name, email=deployment.alarm_email
            ),
            kit=KitArchive(self, "Kit", assets=synthesizer),
            assets=synthesizer,
        )
        #: Where results and usage records lie.
        self.bucket_name: str = ground.store.bucket.bucket_name
        #: What carries alarms to people.
        self.topic_arn: str = ground.topic.topic.topic_arn
        self.workloads = workloads = [
            Workload(self, f"Workload-{name}", name=name, config=one, root=root, ground=ground)
            for name, one in config.workloads.items()
        ]
        control = self._add_control(ground, workloads, FunctionBundle(target))
        self._write_settings(config, ground, workloads, control)

    def _add_control(
        self, ground: Ground, workloads: Sequence[Workload], bundle: FunctionBundle
    ) -> Control:
        try:
            return Control(self, "Control", ground=ground, workloads=workloads, code=bundle.code)
        except RuntimeError as exc:
            raise bundle.failure or exc from exc

    def _write_settings(
        self, config: Config, ground: Ground, workloads: Sequence[Workload], control: Control
    ) -> None:
        settings = DeploymentSettings(
            name=config.deployment.name,
            region=config.deployment.region,
            table=ground.ledger.table.table_name,
            bucket=ground.store.bucket.bucket_name,
            workloads=tuple(one.name for one in workloads),
            scaler=control.scaler.function.function_name,
            topic=ground.topic.topic.topic_arn,
            budget_per_month=config.deployment.budget_per_month,
        )
        of_workloads = {one.name: one.settings for one in workloads}
        written = Settings(self, "Settings", deployment=settings, workloads=of_workloads)
        # So no tick comes before them.
        control.teardown.outlive(written)
        control.teardown.end_with_subnets(list(ground.network.subnets.values()), after=written)
