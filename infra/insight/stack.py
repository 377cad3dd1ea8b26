"""The insight stack: what people see. Nothing that runs depends on it."""

from aws_cdk import IStackSynthesizer
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.ground import DeploymentStack
from infra.insight.alarm import make_alarm
from infra.insight.deployment_alarm import watch_deployment
from infra.insight.overview import Overview
from infra.insight.query import SavedQueries
from infra.insight.series import Series
from infra.insight.usage_table import UsageTable
from infra.insight.workload_alarm import watch_workload
from infra.insight.workload_dashboard import WorkloadDashboard
from spindown.config import Config


class InsightStack(DeploymentStack):
    """``{deployment}-insight``: dashboards, alarms to people, saved queries, the usage table."""

    def __init__(
        self,
        scope: Construct,
        *,
        config: Config,
        bucket_name: str,
        topic_arn: str,
        synthesizer: IStackSynthesizer | None = None,
    ) -> None:
        """Describe what is to be seen of ``config``.

        Args:
            scope: the app.
            config: what spindown.toml says.
            bucket_name: where usage records lie.
            topic_arn: what carries alarms to people.
            synthesizer: how the stack is deployed.
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
        series = Series(deployment=deployment.name, workload=name)
        policy = self._config.workloads[name].to_policy()
        scope = Construct(self, f"Workload-{name}")
        alarms = [
            make_alarm(scope, watch, prefix=f"{deployment.name}-{name}", topic=self._topic)
            for watch in watch_workload(series, policy)
        ]
        WorkloadDashboard(
            scope,
            "Dashboard",
            series=series,
            policy=policy,
            budget_per_month=deployment.budget_per_month,
            alarms=alarms,
        )

    def _show_deployment(self) -> None:
        deployment = self._config.deployment
        watches = watch_deployment(deployment.name, budget_per_month=deployment.budget_per_month)
        scope = Construct(self, "Deployment")
        alarms = [
            make_alarm(scope, watch, prefix=deployment.name, topic=self._topic) for watch in watches
        ]
        Overview(scope, "Overview", series=Series(deployment=deployment.name), alarms=alarms)
