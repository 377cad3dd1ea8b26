"""What ends every instance when the deployment goes, before anything that it stands on."""

from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import Aws, CustomResource, Duration
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct, IDependable

from infra.control.function import ControlFunction
from infra.iam import control as grants

#: Lambda's longest.
_TIMEOUT = Duration.minutes(15)


class Teardown(Construct):
    """A function, and the resource that stands for the fleet in the stack.

    CloudFormation deletes what depends on a thing before the thing. So this depends on all that
    an instance needs or that holds what it does, and what launches depends on this: triggers
    go first, then the instances, then the rest.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: str,
        workloads: Sequence[str],
        code: lambda_.Code,
        table: dynamodb.ITable | None = None,
        failed_events: sqs.IQueue | None = None,
    ) -> None:
        """End what has our tag in this region; ``table`` is the ledger, if it is in this stack."""
        super().__init__(scope, construct_id)
        self.function = ControlFunction(
            self,
            "Function",
            deployment=deployment,
            name="teardown",
            description="Ends every instance before the stack that it belongs to is deleted",
            code=code,
            statements=_statements(deployment, table),
            memory_mib=256,
            timeout=_TIMEOUT,
            retries=2,
            oldest_event=Duration.hours(1),
            failed_events=failed_events,
        )
        self._properties: Mapping[str, Any] = {
            "Deployment": deployment,
            "Regions": [Aws.REGION],
            "Table": table.table_name if table is not None else "",
            "Workloads": list(workloads),
        }
        self._fleet = self._ask("Fleet", self._properties)

    def _ask(self, what: str, properties: Mapping[str, Any]) -> CustomResource:
        """Have CloudFormation ask the function before something of it changes or goes."""
        resource = CustomResource(
            self,
            what,
            resource_type=f"Custom::Spindown{what}",
            service_token=self.function.function.function_arn,
            # Two tries of the function; CloudFormation's own patience is an hour.
            service_timeout=Duration.minutes(35),
            properties=properties,
        )
        resource.node.add_dependency(self.function)
        return resource

    def end_with_subnets(self, subnets: Sequence[str], *, after: IDependable) -> None:
        """End what runs in a subnet in the update that takes it away, while it is still there.

        A resource of its own, since it acts ``after`` what tells launches where they may go, which
        the fleet cannot outlive where that must be gone before the fleet is ended.
        """
        properties = {
            **self._properties,
            "Subnets": list(subnets),
            "Region": Aws.REGION,
            "Staying": self._properties["Workloads"],
            # A deploy of an earlier revision, or the roll-back of one to this, has that revision's
            # function delete this: to it each delete is that of a whole deployment. This has none.
            "Regions": [],
            "Workloads": [],
        }
        self._ask("Subnets", properties).node.add_dependency(after)

    def outlive(self, *things: IDependable) -> None:
        """Have these stay until no instance runs."""
        self._fleet.node.add_dependency(*things)

    def go_after(self, *things: Construct) -> None:
        """Have these go before the instances are ended."""
        for thing in things:
            thing.node.add_dependency(self._fleet)


def _statements(deployment: str, table: dynamodb.ITable | None) -> list[iam.PolicyStatement]:
    return [
        *([] if table is None else [grants.keep_reconcile_out(table_arn=table.table_arn)]),
        grants.find_instances(),
        grants.end_workers(deployment=deployment),
    ]
