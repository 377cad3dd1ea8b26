"""What each stack of a deployment is, and how one stack names what another one holds."""

from aws_cdk import Environment, IStackSynthesizer, Stack, Tags
from constructs import Construct

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
        synthesizer: IStackSynthesizer,
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


def fixed_name(deployment: DeploymentConfig, what: str) -> str:
    """Return the name of a role or profile at home that an outpost refers to.

    IAM knows no regions, so the home region is in the name, which has at most 59 characters.
    """
    return f"{deployment.name}-{deployment.region}-{what}"
