"""Two deployments in an app of one's own, and what else the app makes of them.

``cdk synth --app "python examples/construct/app.py"`` writes their templates.
"""

from datetime import timedelta
from pathlib import Path

from aws_cdk import App, CfnOutput, Environment, Stack
from aws_cdk import aws_sns_subscriptions as subscriptions

from spindown.config import (
    DeploymentConfig,
    PolicyConfig,
    RequirementsConfig,
    RunConfig,
    WorkloadConfig,
)
from spindown.domain.policy import Policy
from spindown.infra import Deployment

HERE = Path(__file__).parent


def build(app: App) -> None:
    """Add all stacks to ``app``."""
    words = WorkloadConfig(
        run=RunConfig(entrypoint="words:run", code=Path("code"), item_timeout=timedelta(minutes=2)),
        requirements=RequirementsConfig(gpu_count_min=0.0, vcpus_min=2),
        policy=PolicyConfig.of(Policy(max_workers=4, max_price_per_hour=0.5)),
    )
    regions = {"eu": "eu-west-1", "us": "us-east-1"}
    deployments = {
        name: Deployment(
            app,
            f"Words-{name}",
            deployment=DeploymentConfig(
                name=f"words-{name}", region=region, zones=(f"{region}a", f"{region}b")
            ),
            workloads={"count": words},
            root=HERE,
        )
        for name, region in regions.items()
    }
    tell = Stack(app, "tell", env=Environment(region=regions["eu"]))
    deployments["eu"].topic.add_subscription(subscriptions.EmailSubscription("ops@example.com"))
    CfnOutput(tell, "Queue", value=deployments["eu"].queue("count").queue_url)


if __name__ == "__main__":
    made = App()
    build(made)
    made.synth()
