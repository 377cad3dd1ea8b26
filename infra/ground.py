"""What all stacks and workloads of a deployment stand on, and how it is found from elsewhere."""

from dataclasses import dataclass

from aws_cdk import Environment, IStackSynthesizer, Stack, Tags
from constructs import Construct

from infra.image.kit import KitArchive
from infra.ledger import Ledger
from infra.network import Network
from infra.store import Store
from infra.topic import AlarmTopic
from spindown.config import DeploymentConfig
from spindown.contract import tag


class DeploymentStack(Stack):
    """One stack of a deployment: it bears the deployment's name, and all in it the tag."""

    def __init__(
        self,
        scope: Construct,
        *,
        deployment: DeploymentConfig,
        part: str,
        holds: str,
        synthesizer: IStackSynthesizer | None,
        region: str = "",
    ) -> None:
        """Name the stack ``{deployment}-{part}``; it lies at home unless ``region`` says else."""
        super().__init__(
            scope,
            f"{deployment.name}-{part}",
            env=Environment(region=region or deployment.region),
            description=f"Spindown deployment {deployment.name}: {holds}",
            synthesizer=synthesizer,
            # A template may have a megabyte (AWS CloudFormation User Guide, "Quotas"), half of
            # which would be blanks.
            suppress_template_indentation=True,
        )
        Tags.of(self).add(tag.DEPLOYMENT, deployment.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """The shared parts that each workload is wired to."""

    deployment: DeploymentConfig
    ledger: Ledger
    store: Store
    network: Network
    topic: AlarmTopic
    #: What instances install themselves from.
    kit: KitArchive
    #: Where the stack's assets are added.
    assets: IStackSynthesizer


def fixed_name(deployment: DeploymentConfig, what: str) -> str:
    """Return the name of a role or profile at home that an outpost refers to.

    IAM knows no regions, so the home region is in the name, which has at most 59 characters.
    """
    return f"{deployment.name}-{deployment.region}-{what}"
