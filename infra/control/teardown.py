"""What ends every instance when a deployment is deleted, before anything that an instance needs."""

from collections.abc import Mapping, Sequence
from typing import Any

from aws_cdk import Aws, CustomResource, Duration
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct, IDependable

from spindown.infra.control.function import ControlFunction
from spindown.infra.iam import control as grants

#: Lambda's longest.
_TIMEOUT = Duration.minutes(15)


class Teardown(Construct):
    """A function, and a custom resource that represents the fleet in the stack.

    CloudFormation deletes a resource only after everything that depends on it. So the custom
    resource depends on all that an instance needs or writes to, and everything that launches
    depends on the custom resource: triggers are deleted first, then the instances, then the rest.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        deployment: str,
        home: str,
        workloads: Sequence[str],
        code: lambda_.Code,
        table: dynamodb.ITable | None = None,
        failed_events: sqs.IQueue | None = None,
    ) -> None:
        """End what has our tag in this region.

        Args:
            scope: what it is part of.
            construct_id: its name there.
            deployment: whose.
            home: its home region.
            workloads: names of those that run here.
            code: of the function.
            table: the ledger, if it is in this stack.
            failed_events: where events go on which it fails for good.
        """
        super().__init__(scope, construct_id)
        self.function = ControlFunction(
            self,
            "Function",
            deployment=deployment,
            name="teardown",
            description="Ends every instance before the stack that it belongs to is deleted",
            code=code,
            statements=_statements(deployment, home, table),
            memory_mib=256,
            timeout=_TIMEOUT,
            retries=2,
            oldest_event=Duration.hours(1),
            failed_events=failed_events,
        )
        self._workloads = list(workloads)
        self._where = {
            "Deployment": deployment,
            "Home": home,
            "Table": table.table_name if table is not None else "",
        }
        self._fleet = self._ask("Fleet", {"Regions": [Aws.REGION], "Workloads": self._workloads})

    def _ask(self, what: str, properties: Mapping[str, Any]) -> CustomResource:
        """Have CloudFormation invoke the function before it changes or deletes the fleet."""
        resource = CustomResource(
            self,
            what,
            resource_type=f"Custom::Spindown{what}",
            service_token=self.function.function.function_arn,
            # Two tries of the function; CloudFormation's default is an hour.
            service_timeout=Duration.minutes(35),
            properties={**self._where, **properties},
        )
        resource.node.add_dependency(self.function)
        return resource

    def end_with_subnets(self, subnets: Sequence[str], *, after: IDependable) -> None:
        """End what runs in a subnet in the update that removes it, while the subnet is still there.

        This is a resource of its own, since it acts ``after`` the change of what tells launches
        where they may go. The fleet cannot depend on that where it must be deleted first.
        """
        properties = {
            "Subnets": list(subnets),
            "Region": Aws.REGION,
            "Staying": self._workloads,
        }
        self._ask("Subnets", properties).node.add_dependency(after)

    def outlive(self, *things: IDependable) -> None:
        """Have these things stay until no instance runs."""
        self._fleet.node.add_dependency(*things)

    def go_after(self, *things: Construct) -> None:
        """Have these things deleted before the instances are ended."""
        for thing in things:
            thing.node.add_dependency(self._fleet)


def _statements(
    deployment: str, home: str, table: dynamodb.ITable | None
) -> list[iam.PolicyStatement]:
    ledger = (
        []
        if table is None
        else [
            grants.keep_reconcile_out(table_arn=table.table_arn),
            grants.find_shapes(table_arn=table.table_arn),
            grants.remove_queues(deployment=deployment),
        ]
    )
    end = grants.end_workers(deployment=deployment, home=home)
    return [*ledger, grants.find_instances(), end]
