"""One Lambda function of the control plane, with its own role and log."""

from collections.abc import Mapping, Sequence

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from aws_cdk.aws_lambda_destinations import SqsDestination
from constructs import Construct

from spindown.contract.name import resource_name
from spindown.contract.settings import ENV_DEPLOYMENT
from spindown.infra.control import bundle
from spindown.infra.iam.statement import make_role, write_log
from spindown.infra.shared.resources import make_log


class ControlFunction(Construct):
    """The function ``{deployment}-{name}``, whose handler is ``spindown.functions.{name}.handler``.

    It reserves no concurrency: a new account has none to reserve, and a lock in the ledger lets
    only one reconcile run at a time.
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
        log_group = make_log(self, f"/spindown/{deployment}/{name}")
        self.role = make_role(
            self,
            what=[name],
            description=f"Function {name} of {deployment}",
            trusted=iam.ServicePrincipal("lambda.amazonaws.com"),
            statements=[*statements, write_log(log_group_arn=log_group.log_group_arn)],
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
            retry_attempts=retries,
            max_event_age=oldest_event,
            on_failure=SqsDestination(failed_events) if failed_events else None,
            environment={ENV_DEPLOYMENT: deployment, **(places or {})},
        )
