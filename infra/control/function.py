"""One Lambda function of the control plane, with its own role and log."""

from collections.abc import Mapping, Sequence
from typing import cast

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from spindown.contract.name import resource_name
from spindown.contract.settings import ENV_DEPLOYMENT
from spindown.infra.control import bundle
from spindown.infra.iam.statement import allow, connect_function, make_role, write_log
from spindown.infra.shared.network import place_function
from spindown.infra.shared.resources import make_log
from spindown.infra.shared.stack import DeploymentStack


class ControlFunction(Construct):
    """The function ``{deployment}-{name}``, whose handler is ``spindown.functions.{name}.handler``.

    It reserves no concurrency: a new account has none to reserve, and a lock in the ledger lets
    only one tick run at a time.
    """

    def __init__(  # noqa: PLR0913 - what differs between the functions
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: str,
        name: str,
        description: str,
        code: lambda_.Code,
        statements: Sequence[iam.PolicyStatement],
        memory_mib: int,
        timeout: Duration,
        retries: int,
        oldest_event: Duration,
        failed_events: sqs.IQueue | None = None,
        has_named_role: bool = False,
        places: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        stack = DeploymentStack.holding(self)
        log_group = make_log(self, f"/spindown/{deployment}/{name}")
        own = [write_log(log_group_arn=log_group.log_group_arn)]
        if failed_events is not None:
            own.append(allow("KeepFailedEvents", ["sqs:SendMessage"], [failed_events.queue_arn]))
        # Also while no subnets are named: what Lambda leaves, it leaves by the same right, and of
        # one deploy CloudFormation would take the right away first.
        if stack.deployment.regions[stack.region].network is not None:
            own.append(connect_function())
        self.role = make_role(
            self,
            what=[name],
            description=f"Function {name} of {deployment}",
            trusted=iam.ServicePrincipal("lambda.amazonaws.com"),
            statements=[*statements, *own],
            is_named=has_named_role,
        )
        self.function = lambda_.Function(
            self,
            "Function",
            function_name=resource_name(deployment, name),
            description=description,
            runtime=bundle.RUNTIME,
            architecture=bundle.ARCHITECTURE,
            code=code,
            handler=f"spindown.functions.{name}.handler",
            role=self.role,
            log_group=log_group,
            memory_size=memory_mib,
            timeout=timeout,
            environment={ENV_DEPLOYMENT: deployment, **(places or {})},
        )
        cast("lambda_.CfnFunction", self.function.node.default_child).vpc_config = place_function(
            self
        )
        # CDK's own destination would let the role use the queue's key for anything.
        lambda_.CfnEventInvokeConfig(
            self,
            "Invocation",
            function_name=self.function.function_name,
            qualifier="$LATEST",
            maximum_retry_attempts=retries,
            maximum_event_age_in_seconds=oldest_event.to_seconds(),
            destination_config=None
            if failed_events is None
            else lambda_.CfnEventInvokeConfig.DestinationConfigProperty(
                on_failure=lambda_.CfnEventInvokeConfig.OnFailureProperty(
                    destination=failed_events.queue_arn
                )
            ),
        )
