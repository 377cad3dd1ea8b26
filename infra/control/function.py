"""One Lambda function of the control plane, with its own role and log."""

from collections.abc import Sequence

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_sqs as sqs
from aws_cdk.aws_lambda_destinations import SqsDestination
from constructs import Construct

from infra import grant
from infra.control import bundle
from spindown.contract.settings import ENV_DEPLOYMENT, NAMESPACE


class ControlFunction(Construct):
    """The function ``{deployment}-{name}``, whose handler is ``functions.{name}.handler``.

    It takes no reserved concurrency: a new account has none to give, and a lock in the ledger
    lets one reconcile at a time through.
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
    ) -> None:
        super().__init__(scope, construct_id)
        log_group = logs.LogGroup(
            self,
            "Log",
            log_group_name=f"/spindown/{deployment}/{name}",
            retention=logs.RetentionDays.ONE_MONTH,
            removal_policy=RemovalPolicy.DESTROY,
        )
        role = iam.Role(
            self,
            "Role",
            description=f"Function {name} of {deployment}",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
        )
        for statement in [*statements, grant.write_log(log_group_arn=log_group.log_group_arn)]:
            role.add_to_policy(statement)
        self.role = role
        self.function = lambda_.Function(
            self,
            "Function",
            function_name=function_name(deployment, name),
            description=description,
            runtime=bundle.RUNTIME,
            architecture=bundle.ARCHITECTURE,
            code=code,
            handler=f"functions.{name}.handler",
            role=role,
            log_group=log_group,
            memory_size=memory_mib,
            timeout=timeout,
            retry_attempts=retries,
            max_event_age=oldest_event,
            on_failure=SqsDestination(failed_events) if failed_events else None,
            environment={
                ENV_DEPLOYMENT: deployment,
                "POWERTOOLS_METRICS_NAMESPACE": NAMESPACE,
                "POWERTOOLS_SERVICE_NAME": name,
            },
        )


def function_name(deployment: str, name: str) -> str:
    """Return the name of a function of the control plane."""
    return f"{deployment}-{name}"
