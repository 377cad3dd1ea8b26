"""The insight stack: what people see. Nothing that runs depends on it."""

from collections.abc import Iterable

from aws_cdk import IStackSynthesizer
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_sns as sns
from constructs import Construct

from spindown.config import Config
from spindown.infra.observability.alarm import (
    AlarmDefinition,
    deployment_alarms,
    make_alarm,
    workload_alarms,
)
from spindown.infra.observability.metric import MetricScope
from spindown.infra.observability.overview_dashboard import OverviewDashboard
from spindown.infra.observability.query import SavedQueries, UsageTable
from spindown.infra.observability.workload_dashboard import WorkloadDashboard
from spindown.infra.shared.stack import DeploymentStack


class InsightStack(DeploymentStack):
    """``{deployment}-insight``: dashboards, alarms to people, saved queries, the usage table."""

    def __init__(
        self,
        scope: Construct,
        *,
        config: Config,
        bucket_name: str,
        topic_arn: str,
        failed_events: str,
        synthesizer: IStackSynthesizer,
    ) -> None:
        """Describe what people see of ``config``.

        Usage records are in the bucket; the topic carries alarms to people. ``failed_events`` is
        the name of the queue of what functions have failed on for good.
        """
        deployment = config.deployment
        super().__init__(
            scope,
            deployment=deployment,
            part="insight",
            holds="all that people see",
            synthesizer=synthesizer,
        )
        self._config = config
        self._failed_events = failed_events
        self._topic = sns.Topic.from_topic_arn(self, "Alarms", topic_arn)
        workloads = tuple(config.workloads)
        for name in workloads:
            self._show_workload(name)
        self._show_deployment()
        SavedQueries(self, "Queries", deployment=deployment.name, workloads=workloads)
        UsageTable(
            self,
            "Usage",
            deployment=deployment.name,
            workloads=workloads,
            bucket_name=bucket_name,
        )

    def _show_workload(self, name: str) -> None:
        deployment = self._config.deployment
        metrics = MetricScope(deployment=deployment.name, workload=name)
        policy = self._config.workloads[name].to_policy()
        scope = Construct(self, f"Workload-{name}")
        WorkloadDashboard(
            scope,
            "Dashboard",
            metrics=metrics,
            policy=policy,
            budget_per_month=deployment.budget_per_month,
            alarms=self._make_alarms(scope, workload_alarms(metrics, policy), prefix=metrics.name),
        )

    def _show_deployment(self) -> None:
        deployment = self._config.deployment
        metrics = MetricScope(deployment=deployment.name)
        scope = Construct(self, "Deployment")
        definitions = deployment_alarms(
            metrics,
            budget_per_month=deployment.budget_per_month,
            failed_events=self._failed_events if deployment.is_heard else None,
            has_webhook=deployment.alarm_webhook is not None,
        )
        OverviewDashboard(
            scope,
            "Overview",
            metrics=metrics,
            alarms=self._make_alarms(scope, definitions, prefix=metrics.name),
        )

    def _make_alarms(
        self, scope: Construct, definitions: Iterable[AlarmDefinition], *, prefix: str
    ) -> list[cloudwatch.Alarm]:
        return [make_alarm(scope, one, prefix=prefix, topic=self._topic) for one in definitions]
