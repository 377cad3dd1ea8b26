"""What each stack of a deployment is, and how one stack names what another one holds."""

import hashlib
from typing import Self, cast

import jsii
from aws_cdk import Aspects, Aws, Environment, IAspect, IStackSynthesizer, Stack, Tags
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct, IConstruct

from spindown.config import DeploymentConfig
from spindown.contract import tag
from spindown.contract.name import resource_name


class DeploymentStack(Stack):
    """One stack of a deployment; its resources carry its tag, and those of the account."""

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
            termination_protection=deployment.protect,
            # Of the stack itself.
            tags=deployment.tags or None,
        )
        #: Whose stack it is.
        self.deployment = deployment
        for key, value in {**deployment.tags, tag.DEPLOYMENT: deployment.name}.items():
            Tags.of(self).add(key, value)
        if deployment.role_path is not None:
            Aspects.of(self).add(_Path(deployment.role_path))
        if deployment.role_name_prefix is not None:
            Aspects.of(self).add(_PolicyNames(self))
        self._boundary = _find_boundary(self, deployment)

    @property
    def key_arn(self) -> str | None:
        """Return the account's own key of this region; None: AWS's keys encrypt."""
        return self.deployment.regions[self.region].kms_key_arn

    def find_key(self) -> kms.IKey | None:
        """Return that key as CDK's constructs take it."""
        if self.key_arn is None:
            return None
        found = self.node.try_find_child("Key")
        if found is None:
            return kms.Key.from_key_arn(self, "Key", self.key_arn)
        return cast("kms.IKey", found)

    @property
    def boundary(self) -> iam.IManagedPolicy | None:
        """Return what bounds its roles."""
        return self._boundary

    def role_name(self, *what: str, is_named: bool) -> str | None:
        """Return the name of a role or profile of this stack; None: CloudFormation chooses it.

        Args:
            what: what the name is made of: no other role's of its region.
            is_named: whether another stack refers to it by its name.
        """
        if not is_named and self.deployment.role_name_prefix is None:
            return None
        abroad = () if self.region == self.deployment.region else (self.region,)
        return iam_name(self.deployment, *abroad, *what)

    @classmethod
    def holding(cls, scope: Construct) -> Self:
        """Return the stack that a construct is part of."""
        stack = Stack.of(scope)
        assert isinstance(stack, cls)  # noqa: S101 - no other stack holds what is ours
        return stack


@jsii.implements(IAspect)
class _Path:
    """Puts whatever has a path in IAM below this one: what CDK adds on its own too."""

    def __init__(self, path: str) -> None:
        self._path = path

    def visit(self, node: IConstruct) -> None:
        """Do so."""
        if isinstance(node, iam.CfnRole | iam.CfnManagedPolicy | iam.CfnInstanceProfile):
            node.path = self._path


@jsii.implements(IAspect)
class _PolicyNames:
    """Names managed policies as roles are named, those that CDK adds on its own too.

    An inline policy is no resource of IAM, so no rule of names can be about it.
    """

    def __init__(self, stack: DeploymentStack) -> None:
        self._stack = stack

    def visit(self, node: IConstruct) -> None:
        """Do so."""
        if isinstance(node, iam.CfnManagedPolicy):
            node.managed_policy_name = self._stack.role_name(
                "policy", node.node.addr[-_DIGITS:], is_named=True
            )


def _find_boundary(scope: Construct, deployment: DeploymentConfig) -> iam.IManagedPolicy | None:
    name = deployment.permissions_boundary
    if name is None:
        return None
    own = f"arn:{Aws.PARTITION}:iam::{Aws.ACCOUNT_ID}:policy/{name}"
    arn = name if name.startswith("arn:") else own
    return iam.ManagedPolicy.from_managed_policy_arn(scope, "Boundary", arn)


#: Of a role's name (IAM User Guide, "IAM and AWS STS quotas").
_ROLE_NAME_AT_MOST = 64
_DIGITS = 8


def iam_name(deployment: DeploymentConfig, *what: str) -> str:
    """Return the name of a role or profile that is not left to CloudFormation.

    IAM is not regional, so the name holds the home region. With a path of the account's it ends
    with a digest of that: CloudFormation replaces nothing by something of the same name, and a path
    changes only so (AWS CloudFormation User Guide, "AWS::IAM::Role", "Path"). A name too long ends
    with a digest of all of it.
    """
    path = deployment.role_path
    below = () if path is None else (_digest(path),)
    named = resource_name(deployment.name, deployment.region, *what, *below)
    whole = (deployment.role_name_prefix or "") + named
    if len(whole) <= _ROLE_NAME_AT_MOST:
        return whole
    return f"{whole[: _ROLE_NAME_AT_MOST - _DIGITS - 1]}-{_digest(whole)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
