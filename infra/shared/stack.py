"""What each stack of a deployment is, and how one stack names what another one holds."""

from aws_cdk import Environment, IStackSynthesizer, Stack, Tags
from constructs import Construct

from spindown.config import DeploymentConfig
from spindown.contract import tag
from spindown.contract.name import resource_name


class DeploymentStack(Stack):
    """One stack of a deployment; its resources carry the tag of the deployment."""

    def __init__(
        self,
        scope: Construct,
        *,
        deployment: DeploymentConfig,
        part: str,
        holds: str,
        synthesizer: IStackSynthesizer,
        region: str = "",
    ) -> None:
        """Name the stack ``{deployment}-{part}``; it is in the home region by default.

        The parts are known, so no two deployments share a stack's name, and no grant names one.
        """
        super().__init__(
            scope,
            f"{deployment.name}-{part}",
            # Not after the place in an app, which may be somebody's own.
            stack_name=f"{deployment.name}-{part}",
            env=Environment(region=region or deployment.region),
            description=f"Spindown deployment {deployment.name}: {holds}",
            synthesizer=synthesizer,
            # A template may have one megabyte (AWS CloudFormation User Guide, "Quotas"). With
            # indentation half of it would be blanks.
            suppress_template_indentation=True,
        )
        Tags.of(self).add(tag.DEPLOYMENT, deployment.name)


def fixed_name(deployment: DeploymentConfig, what: str) -> str:
    """Return the name of a role or profile of the home region to which an outpost refers.

    IAM is not regional, so the name holds the home region. It has at most 64 characters.
    """
    return resource_name(deployment.name, deployment.region, what)
