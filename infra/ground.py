"""What all workloads of a deployment stand on, and how it is found from another region."""

from dataclasses import dataclass

from aws_cdk import IStackSynthesizer

from infra.image.kit import KitArchive
from infra.ledger import Ledger
from infra.network import Network
from infra.store import Store
from infra.topic import AlarmTopic
from spindown.config import DeploymentConfig


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
